//! `stats`: what the process as a whole has done, under memcached's names.
//!
//! In: the sums over all threads, and the store's numbers. Out: every row that memcached
//! 1.6.18 or 1.6.45 has. Where a row counts what cannot happen here (LRU segments, pools of buffers, a table
//! that grows), it is 0; `docs/operations.md` says which those are. Never fails.

use super::op_counters::OpTotals;
use super::rows::Rows;
use super::server::Server;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use store::StoreStats;

/// Writes the page.
pub(super) fn page(server: &Server, rows: &mut impl Rows) {
    let ops = server.counted();
    let all = server.totals();
    let store = server.store.stats();
    process(server, rows);
    connections(server, &ops, &all, rows);
    commands(&ops, rows);
    memory(server, &ops, &store, rows);
    watching(server, &ops, rows);
    items(&store, rows);
}

/// Seconds and microseconds.
struct Cpu(TimeVal);

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0.tv_sec(), self.0.tv_usec())
    }
}

fn process(server: &Server, rows: &mut impl Rows) {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    let cpu = |of: fn(&nix::sys::resource::Usage) -> TimeVal| {
        Cpu(usage.as_ref().map_or(TimeVal::new(0, 0), of))
    };
    rows.row("pid", &std::process::id());
    rows.row("uptime", &server.uptime().as_secs());
    rows.row("time", &unix);
    rows.row("version", &server.version);
    // Not memcached's: what really answers.
    rows.row("gnomon_version", &env!("CARGO_PKG_VERSION"));
    // There is no libevent here, and tools expect the row, beginning with a digit.
    rows.row("libevent", &0);
    rows.row("pointer_size", &usize::BITS);
    rows.row("rusage_user", &cpu(|u| u.user_time()));
    rows.row("rusage_system", &cpu(|u| u.system_time()));
}

fn connections(server: &Server, ops: &OpTotals, all: &OpTotals, rows: &mut impl Rows) {
    let open = all.total_connections.saturating_sub(all.closed_connections);
    rows.row("max_connections", &server.max_connections);
    rows.row("curr_connections", &open);
    rows.row("total_connections", &ops.total_connections);
    rows.row("rejected_connections", &ops.rejected_connections);
    rows.row("connection_structures", &open);
    // Requests and replies share one account: its buffers are all reported as read buffers.
    let memory = server.conn_memory.now();
    rows.row("response_obj_oom", &memory.replies_refused);
    for name in ["response_obj_count", "response_obj_bytes"] {
        rows.row(name, &0);
    }
    rows.row("read_buf_count", &memory.charges);
    rows.row("read_buf_bytes", &memory.used_bytes);
    rows.row("read_buf_bytes_free", &memory.limit_bytes.saturating_sub(memory.used_bytes));
    rows.row("read_buf_oom", &memory.requests_refused);
    rows.row("conn_memory_limit", &memory.limit_bytes);
    rows.row("conn_memory_waits", &memory.waits);
    rows.row("conn_memory_stalled", &memory.stalled);
    rows.row("reserved_fds", &server.reserved_fds);
}

fn commands(ops: &OpTotals, rows: &mut impl Rows) {
    macro_rules! named {
        ($($counter:ident)*) => { $(rows.row(stringify!($counter), &ops.$counter);)* };
    }
    named! {
        cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses get_expired
        get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits
        cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large
        store_no_memory auth_cmds auth_errors idle_kicks bytes_read bytes_written
    }
}

fn memory(server: &Server, ops: &OpTotals, store: &StoreStats, rows: &mut impl Rows) {
    rows.row("limit_maxbytes", &store.limit_maxbytes);
    rows.row("accepting_conns", &u8::from(server.is_accepting()));
    rows.row("listen_disabled_num", &ops.accept_failures);
    rows.row("time_in_listen_disabled_us", &ops.accept_paused_us);
    rows.row("threads", &server.threads);
    rows.row("conn_yields", &ops.conn_yields);
    rows.row("hash_power_level", &store.index_slots.checked_ilog2().unwrap_or(0));
    rows.row("hash_bytes", &store.index_bytes);
    rows.row("hash_is_expanding", &0);
    // A reader of an item in a page that is being emptied delays the page, and is not counted.
    rows.row("slab_reassign_rescues", &store.rescued);
    rows.row("slab_reassign_chunk_rescues", &0);
    rows.row("slab_reassign_evictions_nomem", &store.evicted_by_mover);
    rows.row("slab_reassign_inline_reclaim", &0);
    rows.row("slab_reassign_busy_items", &0);
    rows.row("slab_reassign_busy_deletes", &0);
    // The mover takes memory from its own class, or evicts: it waits for none.
    rows.row("slab_reassign_busy_nomem", &0);
    rows.row("slab_reassign_last_busy_status", &"none");
    rows.row("slab_reassign_running", &u8::from(store.moving));
    rows.row("slabs_moved", &store.pages_moved);
    rows.row("lru_crawler_running", &u8::from(store.sweeping));
    rows.row("lru_crawler_starts", &store.sweeps);
    rows.row("lru_maintainer_juggles", &store.turns);
    rows.row("malloc_fails", &ops.malloc_fails);
}

fn watching(server: &Server, ops: &OpTotals, rows: &mut impl Rows) {
    let log = server.watchers.counts();
    rows.row("log_worker_dropped", &0);
    rows.row("log_worker_written", &log.written);
    rows.row("log_watcher_skipped", &log.skipped);
    rows.row("log_watcher_sent", &log.sent);
    rows.row("log_watchers", &log.watchers);
    if let Some(tls) = &server.tls {
        if tls.keeps_sessions() {
            rows.row("ssl_new_sessions", &ops.tls_sessions);
        }
        rows.row("ssl_handshake_errors", &ops.tls_handshake_errors);
        rows.row("ssl_proto_errors", &ops.tls_proto_errors);
        rows.row("ssl_handshakes_refused", &ops.tls_refused);
        rows.row("time_since_server_cert_refresh", &tls.age_seconds());
    }
    rows.row("unexpected_napi_ids", &0);
    rows.row("round_robin_fallback", &0);
}

fn items(store: &StoreStats, rows: &mut impl Rows) {
    for (name, value) in [
        ("bytes", store.bytes),
        ("curr_items", store.curr_items),
        ("total_items", store.total_items),
        ("slab_global_page_pool", store.pages_free),
        ("expired_unfetched", store.expired_unfetched),
        ("evicted_unfetched", store.evicted_unfetched),
        ("evicted_active", store.evicted_active),
        ("evictions", store.evictions),
        ("reclaimed", store.reclaimed),
        ("crawler_reclaimed", store.swept_out),
        ("crawler_items_checked", store.swept),
        ("lrutail_reflocked", 0),
        ("moves_to_cold", 0),
        ("moves_to_warm", 0),
        ("moves_within_lru", store.spared),
        ("direct_reclaims", store.evictions.saturating_sub(store.evicted_by_mover)),
        ("lru_bumps_dropped", 0),
    ] {
        rows.row(name, &value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_shim::Pages;
    use std::fmt::Display;
    use store::{Store, StoreConfig};

    /// What memcached 1.6.18 prints, and 1.6.45.
    const MEMCACHED: &str = "
        pid uptime time version libevent pointer_size rusage_user rusage_system
        max_connections curr_connections total_connections rejected_connections
        connection_structures response_obj_oom response_obj_count response_obj_bytes
        read_buf_count read_buf_bytes read_buf_bytes_free read_buf_oom reserved_fds cmd_get
        cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses get_expired get_flushed
        delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits cas_misses
        cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory
        auth_cmds auth_errors bytes_read bytes_written limit_maxbytes accepting_conns
        listen_disabled_num time_in_listen_disabled_us threads conn_yields hash_power_level
        hash_bytes hash_is_expanding slab_reassign_rescues slab_reassign_chunk_rescues
        slab_reassign_evictions_nomem slab_reassign_inline_reclaim slab_reassign_busy_items
        slab_reassign_busy_deletes slab_reassign_busy_nomem slab_reassign_last_busy_status
        slab_reassign_running slabs_moved lru_crawler_running
        lru_crawler_starts lru_maintainer_juggles malloc_fails log_worker_dropped
        log_worker_written log_watcher_skipped log_watcher_sent log_watchers
        unexpected_napi_ids round_robin_fallback bytes curr_items total_items
        slab_global_page_pool expired_unfetched evicted_unfetched evicted_active evictions
        reclaimed crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold
        moves_to_warm moves_within_lru direct_reclaims lru_bumps_dropped
    ";

    #[derive(Default)]
    struct Page(Vec<(String, String)>);

    impl Rows for Page {
        fn row(&mut self, name: &str, value: &dyn Display) {
            self.0.push((name.to_owned(), value.to_string()));
        }
    }

    #[test]
    fn every_row_of_memcacheds_is_there_once_and_a_number() {
        let memory_bytes = 8 << 20;
        let config = StoreConfig { memory_bytes, pages: Pages::Small, ..StoreConfig::default() };
        let server = Server::new(Store::new(config).unwrap(), "1.6.18-test".to_owned());
        let mut rows = Page::default();
        page(&server, &mut rows);
        let wanted: Vec<&str> = MEMCACHED.split_whitespace().collect();
        assert_eq!(wanted.len(), 94);
        for name in &wanted {
            let n = rows.0.iter().filter(|(row, _)| row == name).count();
            assert_eq!(n, 1, "{name}");
        }
        for (name, value) in rows.0 {
            let text = ["version", "gnomon_version", "slab_reassign_last_busy_status"]
                .contains(&name.as_str());
            assert!(text || value.parse::<f64>().is_ok(), "{name} {value}");
        }
    }
}
