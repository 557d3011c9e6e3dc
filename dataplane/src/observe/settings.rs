//! `stats settings`: how the process was started, and what was set since.
//!
//! In: the settings that start-up made, in memcached's order, and what administrators have
//! changed. Out: those, the changed ones with their value now. Never fails.

use super::rows::Rows;
use super::server::Server;
use store::Automove;

/// Writes the page.
pub(super) fn page(server: &Server, rows: &mut impl Rows) {
    for (name, at_start) in server.settings.iter().chain(server.late_settings()) {
        match now(name, server) {
            Some(value) => rows.row(name, &value),
            None => rows.row(name, at_start),
        }
    }
}

/// The value now of a setting that can change.
fn now(name: &str, server: &Server) -> Option<String> {
    let (set, store) = (server.tuning.now(), &server.store);
    let yes = |on| if on { "yes" } else { "no" }.to_owned();
    Some(match name {
        "maxbytes" => store.limit_bytes().to_string(),
        "detail_enabled" => yes(server.detail.is_on()),
        "slab_automove" => match store.automove() {
            Automove::Off => "0",
            Automove::Slow => "1",
            Automove::Eager => "2",
        }
        .to_owned(),
        "slab_automove_ratio" => hundredths(set.automove_ratio_hundredths),
        "slab_automove_freeratio" => {
            let n = set.automove_free_thousandths;
            format!("{}.{:03}", n / 1000, n % 1000)
        }
        "slab_automove_window" => set.automove_window_seconds.to_string(),
        "lru_crawler" => yes(store.is_sweeper_on()),
        "lru_crawler_sleep" => set.crawler_sleep_us.to_string(),
        "lru_crawler_tocrawl" => set.crawler_to_crawl.to_string(),
        "lru_segmented" => yes(set.segmented),
        "hot_lru_pct" => set.hot_percent.to_string(),
        "warm_lru_pct" => set.warm_percent.to_string(),
        "hot_max_factor" => hundredths(set.hot_factor_hundredths),
        "warm_max_factor" => hundredths(set.warm_factor_hundredths),
        "temp_lru" => yes(set.temporary_ttl.is_some()),
        "temporary_ttl" => set.temporary_ttl.unwrap_or(61).to_string(),
        _ => return None,
    })
}

fn hundredths(n: u32) -> String {
    format!("{}.{:02}", n / 100, n % 100)
}
