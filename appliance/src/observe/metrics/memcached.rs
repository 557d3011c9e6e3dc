//! The metrics of memcached_exporter, under its names, with its labels, types and meanings.
//!
//! In: the pages of `stats` that the exporter reads. Out: what it makes of them. The metrics that
//! it has only for servers with extstore or a proxy do not come up here, as they do not there.

use super::family::{Exposition, Family, counter, gauge};
use super::sources::Sources;
use dataplane::observe::{Overview, Rows, overview};
use std::collections::BTreeMap;
use std::fmt::Display;

const SLAB: &[&str] = &["slab"];

static UP: Family = gauge("memcached_up", &[], "The server answers: 1.");
static VERSION: Family = gauge("memcached_version", &["version"], "The server's version: 1.");
static COMMANDS: Family = counter(
    "memcached_commands_total",
    &["command", "status"],
    "Commands by name and what came of them.",
);
static SLAB_COMMANDS: Family = counter(
    "memcached_slab_commands_total",
    &["slab", "command", "status"],
    "Commands by size class, name and what came of them.",
);
static SLAB_LRU_HITS: Family = counter(
    "memcached_slab_lru_hits_total",
    &["slab", "lru"],
    "Hits by size class and segment; all are in `cold`.",
);

/// A family, and the row of a page that its figure is.
type Row = (Family, &'static str);

/// Families with the same labels. Of each: type, name, row, meaning.
macro_rules! rows {
    ($labels:expr; $($kind:ident $name:literal $row:literal $help:literal)*) => {
        &[$(($kind($name, $labels, $help), $row)),*]
    };
}

/// From `stats` and `stats slabs`.
static GENERAL: &[Row] = rows! { &[];
    counter "memcached_uptime_seconds" "uptime" "Seconds since the start."
    gauge "memcached_time_seconds" "time" "The server's clock, in seconds since 1970."
    counter "memcached_process_user_cpu_seconds_total" "rusage_user" "CPU time outside the kernel."
    counter "memcached_process_system_cpu_seconds_total" "rusage_system" "CPU time in the kernel."
    gauge "memcached_current_bytes" "bytes" "Bytes of items there now."
    gauge "memcached_limit_bytes" "limit_maxbytes" "Bytes that items may take."
    gauge "memcached_current_items" "curr_items" "Items there now."
    counter "memcached_items_total" "total_items" "Items stored."
    counter "memcached_read_bytes_total" "bytes_read" "Bytes of requests."
    counter "memcached_written_bytes_total" "bytes_written" "Bytes of replies."
    gauge "memcached_current_connections" "curr_connections" "Connections there now."
    counter "memcached_connections_total" "total_connections" "Connections accepted."
    counter "memcached_connections_rejected_total" "rejected_connections" "Connections refused because `-c` was reached."
    counter "memcached_connections_yielded_total" "conn_yields" "Turns that a connection ended with requests left (`-R`)."
    counter "memcached_connections_listener_disabled_total" "listen_disabled_num" "Times that no connection could be accepted, for lack of files, memory, or with no_maxconns_fast of a slot."
    counter "memcached_items_evicted_total" "evictions" "Live items removed to make room."
    counter "memcached_items_reclaimed_total" "reclaimed" "Expired items removed."
    counter "memcached_item_too_large_total" "store_too_large" "Items refused because of their size."
    counter "memcached_item_no_memory_total" "store_no_memory" "Items refused for lack of memory."
    counter "memcached_direct_reclaims_total" "direct_reclaims" "Evictions by a request that needed room."
    counter "memcached_lru_crawler_starts_total" "lru_crawler_starts" "Rounds that the sweeper began."
    counter "memcached_lru_crawler_items_checked_total" "crawler_items_checked" "Items that the sweeper looked at."
    counter "memcached_lru_crawler_reclaimed_total" "crawler_reclaimed" "Dead items that the sweeper removed."
    counter "memcached_lru_crawler_moves_to_cold_total" "moves_to_cold" "Items moved to the cold segment: 0, there are no segments."
    counter "memcached_lru_crawler_moves_to_warm_total" "moves_to_warm" "Items moved to the warm segment: 0, there are no segments."
    counter "memcached_lru_crawler_moves_within_lru_total" "moves_within_lru" "Items that the evicting hand left for another round."
    gauge "memcached_accepting_connections" "accepting_conns" "1 where connections are accepted; 0 for lack of files, memory, or with no_maxconns_fast of a slot."
};

static MALLOCED: Row = (
    gauge("memcached_malloced_bytes", &[], "Bytes of slab pages that classes have."),
    "total_malloced",
);

/// From `stats settings`.
static MAX_CONNECTIONS: Row =
    (gauge("memcached_max_connections", &[], "Connections that there may be."), "maxconns");

/// From `stats settings`, while the sweeper is on. `yes` is 1.
static CRAWLER: &[Row] = rows! { &[];
    gauge "memcached_lru_crawler_enabled" "lru_crawler" "The sweeper is on."
    gauge "memcached_lru_crawler_sleep" "lru_crawler_sleep" "Its pause as it was set, in microseconds."
    gauge "memcached_lru_crawler_to_crawl" "lru_crawler_tocrawl" "Items to a round as it was set."
    gauge "memcached_lru_crawler_maintainer_thread" "lru_maintainer_thread" "There is housekeeping in the background."
    gauge "memcached_lru_crawler_hot_percent" "hot_lru_pct" "Share of the hot segment as it was set."
    gauge "memcached_lru_crawler_warm_percent" "warm_lru_pct" "Share of the warm segment as it was set."
    gauge "memcached_lru_crawler_hot_max_factor" "hot_max_factor" "Age of the hot segment as it was set."
    gauge "memcached_lru_crawler_warm_max_factor" "warm_max_factor" "Age of the warm segment as it was set."
};

/// From `stats items`, by class.
static ITEMS: &[Row] = rows! { SLAB;
    gauge "memcached_slab_current_items" "number" "Items of the class there now."
    gauge "memcached_slab_items_age_seconds" "age" "Seconds since the last access of an item that is soon to be evicted."
    counter "memcached_slab_items_crawler_reclaimed_total" "crawler_reclaimed" "Dead items that the sweeper removed."
    counter "memcached_slab_items_evicted_total" "evicted" "Live items removed to make room."
    counter "memcached_slab_items_evicted_nonzero_total" "evicted_nonzero" "Of these, those that would have expired one day."
    counter "memcached_slab_items_evicted_time_seconds" "evicted_time" "Seconds between the last access of the item evicted last and its eviction."
    counter "memcached_slab_items_evicted_unfetched_total" "evicted_unfetched" "Evicted items that were never read."
    counter "memcached_slab_items_expired_unfetched_total" "expired_unfetched" "Expired items that were never read."
    counter "memcached_slab_items_outofmemory_total" "outofmemory" "Items refused for lack of memory."
    counter "memcached_slab_items_reclaimed_total" "reclaimed" "Expired items removed."
    counter "memcached_slab_items_tailrepairs_total" "tailrepairs" "Repairs of the list: 0, it needs none."
    counter "memcached_slab_items_moves_to_cold" "moves_to_cold" "Items moved to the cold segment: 0."
    counter "memcached_slab_items_moves_to_warm" "moves_to_warm" "Items moved to the warm segment: 0."
    counter "memcached_slab_items_moves_within_lru" "moves_within_lru" "Items that the evicting hand left for another round."
    gauge "memcached_slab_hot_items" "number_hot" "Items of the hot segment: 0."
    gauge "memcached_slab_warm_items" "number_warm" "Items of the warm segment: 0."
    gauge "memcached_slab_cold_items" "number_cold" "Items of the cold segment: all."
    gauge "memcached_slab_temporary_items" "number_temp" "Items of the temporary segment; no sample, there is none."
    gauge "memcached_slab_hot_age_seconds" "age_hot" "Age of the hot segment: 0."
    gauge "memcached_slab_warm_age_seconds" "age_warm" "Age of the warm segment: 0."
    gauge "memcached_slab_mem_requested_bytes" "mem_requested" "Bytes of the items of the class."
};

/// From `stats slabs`, by class.
static SLABS: &[Row] = rows! { SLAB;
    gauge "memcached_slab_chunk_size_bytes" "chunk_size" "Bytes of a chunk."
    gauge "memcached_slab_chunks_per_page" "chunks_per_page" "Chunks of a page."
    gauge "memcached_slab_current_pages" "total_pages" "Pages that the class has."
    gauge "memcached_slab_current_chunks" "total_chunks" "Chunks that the class has."
    gauge "memcached_slab_chunks_used" "used_chunks" "Chunks in use."
    gauge "memcached_slab_chunks_free" "free_chunks" "Chunks not in use."
    gauge "memcached_slab_chunks_free_end" "free_chunks_end" "Chunks never used since their page came: 0."
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
