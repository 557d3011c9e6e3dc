//! The metrics of memcached_exporter, under its names, with its labels, types and meanings.
//!
//! In: the pages of `stats` that the exporter reads. Out: what it makes of them. The metrics that
//! it has only for servers with extstore or a proxy do not come up here, as they do not there.

use super::family::{Exposition, Family, counter, families, fields, gauge};
use super::sources::Sources;
use dataplane::observe::{Overview, Rows, overview};
use std::collections::BTreeMap;
use std::fmt::Display;

const SLAB: &[&str] = &["slab"];

families! {
    UP gauge "memcached_up" &[], "The server answers: 1.";
    VERSION gauge "memcached_version" &["version"], "The server's version: 1.";
    COMMANDS counter "memcached_commands_total" &["command", "status"], "Commands by name and what came of them.";
    SLAB_COMMANDS counter "memcached_slab_commands_total" &["slab", "command", "status"], "Commands by size class, name and what came of them.";
    SLAB_LRU_HITS counter "memcached_slab_lru_hits_total" &["slab", "lru"], "Hits by size class and segment; all are in `cold`.";
}

/// A family, and the row of a page that its figure is.
type Row = (Family, &'static str);

/// From `stats` and `stats slabs`.
static GENERAL: &[Row] = fields! { &[];
    counter "memcached_uptime_seconds" "Seconds since the start." "uptime";
    gauge "memcached_time_seconds" "The server's clock, in seconds since 1970." "time";
    counter "memcached_process_user_cpu_seconds_total" "CPU time outside the kernel." "rusage_user";
    counter "memcached_process_system_cpu_seconds_total" "CPU time in the kernel." "rusage_system";
    gauge "memcached_current_bytes" "Bytes of items there now." "bytes";
    gauge "memcached_limit_bytes" "Bytes that items may take." "limit_maxbytes";
    gauge "memcached_current_items" "Items there now." "curr_items";
    counter "memcached_items_total" "Items stored." "total_items";
    counter "memcached_read_bytes_total" "Bytes of requests." "bytes_read";
    counter "memcached_written_bytes_total" "Bytes of replies." "bytes_written";
    gauge "memcached_current_connections" "Connections there now." "curr_connections";
    counter "memcached_connections_total" "Connections accepted." "total_connections";
    counter "memcached_connections_rejected_total" "Connections refused because `-c` was reached." "rejected_connections";
    counter "memcached_connections_yielded_total" "Turns that a connection ended with requests left (`-R`)." "conn_yields";
    counter "memcached_connections_listener_disabled_total" "Times that no connection could be accepted, for lack of files, memory, or with no_maxconns_fast of a slot." "listen_disabled_num";
    counter "memcached_items_evicted_total" "Live items removed to make room." "evictions";
    counter "memcached_items_reclaimed_total" "Expired items removed." "reclaimed";
    counter "memcached_item_too_large_total" "Items refused because of their size." "store_too_large";
    counter "memcached_item_no_memory_total" "Items refused for lack of memory." "store_no_memory";
    counter "memcached_direct_reclaims_total" "Evictions by a request that needed room." "direct_reclaims";
    counter "memcached_lru_crawler_starts_total" "Rounds that the sweeper began." "lru_crawler_starts";
    counter "memcached_lru_crawler_items_checked_total" "Items that the sweeper looked at." "crawler_items_checked";
    counter "memcached_lru_crawler_reclaimed_total" "Dead items that the sweeper removed." "crawler_reclaimed";
    counter "memcached_lru_crawler_moves_to_cold_total" "Items moved to the cold segment: 0, there are no segments." "moves_to_cold";
    counter "memcached_lru_crawler_moves_to_warm_total" "Items moved to the warm segment: 0, there are no segments." "moves_to_warm";
    counter "memcached_lru_crawler_moves_within_lru_total" "Items that the evicting hand left for another round." "moves_within_lru";
    gauge "memcached_accepting_connections" "1 where connections are accepted; 0 for lack of files, memory, or with no_maxconns_fast of a slot." "accepting_conns";
};

static MALLOCED: Row = (
    gauge("memcached_malloced_bytes", &[], "Bytes of slab pages that classes have."),
    "total_malloced",
);

/// From `stats settings`.
static MAX_CONNECTIONS: Row =
    (gauge("memcached_max_connections", &[], "Connections that there may be."), "maxconns");

/// From `stats settings`, while the sweeper is on. `yes` is 1.
static CRAWLER: &[Row] = fields! { &[];
    gauge "memcached_lru_crawler_enabled" "The sweeper is on." "lru_crawler";
    gauge "memcached_lru_crawler_sleep" "Its pause as it was set, in microseconds." "lru_crawler_sleep";
    gauge "memcached_lru_crawler_to_crawl" "Items to a round as it was set." "lru_crawler_tocrawl";
    gauge "memcached_lru_crawler_maintainer_thread" "There is housekeeping in the background." "lru_maintainer_thread";
    gauge "memcached_lru_crawler_hot_percent" "Share of the hot segment as it was set." "hot_lru_pct";
    gauge "memcached_lru_crawler_warm_percent" "Share of the warm segment as it was set." "warm_lru_pct";
    gauge "memcached_lru_crawler_hot_max_factor" "Age of the hot segment as it was set." "hot_max_factor";
    gauge "memcached_lru_crawler_warm_max_factor" "Age of the warm segment as it was set." "warm_max_factor";
};

/// From `stats items`, by class.
static ITEMS: &[Row] = fields! { SLAB;
    gauge "memcached_slab_current_items" "Items of the class there now." "number";
    gauge "memcached_slab_items_age_seconds" "Seconds since the last access of an item that is soon to be evicted." "age";
    counter "memcached_slab_items_crawler_reclaimed_total" "Dead items that the sweeper removed." "crawler_reclaimed";
    counter "memcached_slab_items_evicted_total" "Live items removed to make room." "evicted";
    counter "memcached_slab_items_evicted_nonzero_total" "Of these, those that would have expired one day." "evicted_nonzero";
    counter "memcached_slab_items_evicted_time_seconds" "Seconds between the last access of the item evicted last and its eviction." "evicted_time";
    counter "memcached_slab_items_evicted_unfetched_total" "Evicted items that were never read." "evicted_unfetched";
    counter "memcached_slab_items_expired_unfetched_total" "Expired items that were never read." "expired_unfetched";
    counter "memcached_slab_items_outofmemory_total" "Items refused for lack of memory." "outofmemory";
    counter "memcached_slab_items_reclaimed_total" "Expired items removed." "reclaimed";
    counter "memcached_slab_items_tailrepairs_total" "Repairs of the list: 0, it needs none." "tailrepairs";
    counter "memcached_slab_items_moves_to_cold" "Items moved to the cold segment: 0." "moves_to_cold";
    counter "memcached_slab_items_moves_to_warm" "Items moved to the warm segment: 0." "moves_to_warm";
    counter "memcached_slab_items_moves_within_lru" "Items that the evicting hand left for another round." "moves_within_lru";
    gauge "memcached_slab_hot_items" "Items of the hot segment: 0." "number_hot";
    gauge "memcached_slab_warm_items" "Items of the warm segment: 0." "number_warm";
    gauge "memcached_slab_cold_items" "Items of the cold segment: all." "number_cold";
    gauge "memcached_slab_temporary_items" "Items of the temporary segment; no sample, there is none." "number_temp";
    gauge "memcached_slab_hot_age_seconds" "Age of the hot segment: 0." "age_hot";
    gauge "memcached_slab_warm_age_seconds" "Age of the warm segment: 0." "age_warm";
    gauge "memcached_slab_mem_requested_bytes" "Bytes of the items of the class." "mem_requested";
};

/// From `stats slabs`, by class.
static SLABS: &[Row] = fields! { SLAB;
    gauge "memcached_slab_chunk_size_bytes" "Bytes of a chunk." "chunk_size";
    gauge "memcached_slab_chunks_per_page" "Chunks of a page." "chunks_per_page";
    gauge "memcached_slab_current_pages" "Pages that the class has." "total_pages";
    gauge "memcached_slab_current_chunks" "Chunks that the class has." "total_chunks";
    gauge "memcached_slab_chunks_used" "Chunks in use." "used_chunks";
    gauge "memcached_slab_chunks_free" "Chunks not in use." "free_chunks";
    gauge "memcached_slab_chunks_free_end" "Chunks never used since their page came: 0." "free_chunks_end";
};

/// In the order of the page.
pub(super) fn families() -> impl Iterator<Item = &'static Family> {
    let of = |rows: &'static [Row]| rows.iter().map(|(family, _)| family);
    [&UP, &VERSION]
        .into_iter()
        .chain(of(GENERAL))
        .chain([&MALLOCED.0, &MAX_CONNECTIONS.0])
        .chain(of(CRAWLER))
        .chain([&COMMANDS])
        .chain(of(ITEMS))
        .chain([&SLAB_LRU_HITS])
        .chain(of(SLABS))
        .chain([&SLAB_COMMANDS])
}

/// Reports them all.
pub(super) fn collect(sources: &Sources, out: &mut Exposition) {
    let read = |page| {
        let mut rows = Page::default();
        overview(page, &sources.server, &mut rows);
        rows
    };
    let (general, settings) = (read(Overview::General), read(Overview::Settings));
    let (items, slabs) = (read(Overview::Items), read(Overview::Slabs));
    out.family(&UP).sample(&[], 1);
    out.family(&VERSION).sample(&[&sources.server.version], 1);
    for row in GENERAL {
        general.tell(row, out);
    }
    slabs.tell(&MALLOCED, out);
    settings.tell(&MAX_CONNECTIONS, out);
    let nothing = Page::default();
    let crawler_on = settings.0.get("lru_crawler").is_some_and(|on| on == "yes");
    for row in CRAWLER {
        if crawler_on { &settings } else { &nothing }.tell(row, out);
    }
    commands(&general, out);
    let (items, slabs) = (items.by_class("items:"), slabs.by_class(""));
    by_class(ITEMS, &items, out);
    let mut hits = out.family(&SLAB_LRU_HITS);
    for (class, rows) in &items {
        for (lru, row) in [
            ("hot", "hits_to_hot"),
            ("warm", "hits_to_warm"),
            ("cold", "hits_to_cold"),
            ("temporary", "hits_to_temp"),
        ] {
            rows.number(row).inspect(|value| hits.sample(&[class, lru], value));
        }
    }
    by_class(SLABS, &slabs, out);
    let mut commands = out.family(&SLAB_COMMANDS);
    for (class, rows) in &slabs {
        for name in NAMES {
            commands.sample(&[class, name, "hit"], rows.count(&format!("{name}_hits")));
        }
        commands.sample(&[class, "cas", "badval"], rows.count("cas_badval"));
        commands.sample(&[class, "set", "hit"], rows.plain_sets());
    }
}

/// Reports families of size classes.
fn by_class(table: &[Row], classes: &[(String, Page)], out: &mut Exposition) {
    for (family, row) in table {
        let mut samples = out.family(family);
        for (class, rows) in classes {
            rows.number(row).inspect(|value| samples.sample(&[class], value));
        }
    }
}

/// Commands that hit or miss.
const NAMES: [&str; 6] = ["get", "delete", "incr", "decr", "cas", "touch"];

fn commands(general: &Page, out: &mut Exposition) {
    let mut commands = out.family(&COMMANDS);
    for name in NAMES {
        commands.sample(&[name, "hit"], general.count(&format!("{name}_hits")));
        commands.sample(&[name, "miss"], general.count(&format!("{name}_misses")));
    }
    commands.sample(&["cas", "badval"], general.count("cas_badval"));
    commands.sample(&["flush", "hit"], general.count("cmd_flush"));
    commands.sample(&["set", "hit"], general.plain_sets());
}

/// A page of `stats`, or the part of it that is about one class.
#[derive(Debug, Default)]
pub(super) struct Page(BTreeMap<String, String>);

impl Rows for Page {
    fn row(&mut self, name: &str, value: &dyn Display) {
        self.0.insert(name.to_owned(), value.to_string());
    }
}

impl Page {
    /// Reports a row's family, with the row's value.
    fn tell(&self, (family, row): &Row, out: &mut Exposition) {
        let mut samples = out.family(family);
        self.number(row).inspect(|value| samples.sample(&[], value));
    }

    /// A row as a sample has it.
    pub(super) fn number(&self, row: &str) -> Option<&str> {
        match self.0.get(row)?.as_str() {
            "yes" => Some("1"),
            "no" => Some("0"),
            value => value.parse::<f64>().is_ok().then_some(value),
        }
    }

    /// A row as it is.
    pub(super) fn text(&self, row: &str) -> Option<&str> {
        self.0.get(row).map(String::as_str)
    }

    fn count(&self, row: &str) -> u64 {
        self.0.get(row).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// Stores, but for those with a CAS id, which `cmd_set` counts too. A class has no row for
    /// those that missed.
    fn plain_sets(&self) -> u64 {
        let cas: u64 =
            ["cas_misses", "cas_hits", "cas_badval"].map(|row| self.count(row)).iter().sum();
        self.count("cmd_set").saturating_sub(cas)
    }

    /// The rows under `prefix`, by class, in the order of their numbers.
    fn by_class(&self, prefix: &str) -> Vec<(String, Self)> {
        let mut classes: BTreeMap<u32, Self> = BTreeMap::new();
        for (name, value) in &self.0 {
            let row = name.strip_prefix(prefix).and_then(|rest| rest.split_once(':'));
            if let Some((class, row)) = row
                && let Ok(class) = class.parse()
            {
                classes.entry(class).or_default().row(row, value);
            }
        }
        classes.into_iter().map(|(class, rows)| (class.to_string(), rows)).collect()
    }
}
