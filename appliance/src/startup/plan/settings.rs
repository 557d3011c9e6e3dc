//! What `stats settings` shows: the plan under memcached's names, in its order.
//!
//! Settings of mechanisms that do not exist here are left out, or have the one value that they can
//! have: no SSD, no segments of an LRU. Those that administrators change while it runs are
//! replaced by their values of the moment (`dataplane::observe`).

use super::{FileMask, Plan, TlsPlan};
use memcache::{Dialect, Dialects};
use store::Eviction;

impl Plan {
    /// Names and values, in order.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut all = self.general_settings();
        all.extend(self.client_settings());
        for (name, value) in STANDING {
            if *name == "num_napi_ids" {
                all.extend(TlsPlan::settings(self.tls.as_ref()));
            }
            all.push((name, (*value).to_owned()));
            if *name == "worker_logbuf_size" {
                all.push(("read_buf_mem_limit", self.conn_memory_bytes.to_string()));
            }
        }
        let file = self.memory_file.as_ref();
        let file = file.map_or_else(|| "(null)".to_owned(), |f| f.display().to_string());
        all.push(("memory_file", file));
        if let Some(slab_pages) = &self.slab_pages {
            all.push(("slab_pages", slab_pages.to_string()));
        }
        if self.evict && self.eviction != Eviction::Clock {
            all.push(("evict", self.eviction.name().to_owned()));
        }
        all.extend([("engine", self.engine.name().to_owned()), ("batch", self.batch.to_string())]);
        all
    }

    fn general_settings(&self) -> Vec<(&'static str, String)> {
        let udp_port = self.ports.first().map_or(0, |p| p.udp_port);
        let tcp = self.tcp.first();
        let unix = self.clients.unix.as_ref();
        vec![
            ("maxbytes", self.memory_bytes.to_string()),
            ("maxconns", self.conn_limit.to_string()),
            ("tcpport", tcp.map_or(0, |t| t.address.port()).to_string()),
            ("udpport", udp_port.to_string()),
            ("inter", self.inter()),
            // Its level is set by -v, and what it logs is not memcached's.
            ("verbosity", 0.to_string()),
            ("oldest", 0.to_string()),
            ("evictions", if self.evict { "on" } else { "off" }.to_owned()),
            (
                "domain_socket",
                unix.map_or_else(|| "NULL".to_owned(), |u| u.path.display().to_string()),
            ),
            ("umask", unix.map_or(FileMask::DEFAULT, |u| u.mask).to_string()),
            ("shutdown_command", yes(self.clients.shutdown_allowed)),
            ("growth_factor", format!("{:.2}", self.growth_factor)),
            ("chunk_size", self.chunk_min_bytes.to_string()),
            ("num_threads", (self.worker_cpus().len() + self.tcp_threads).to_string()),
            ("num_threads_per_udp", self.worker_cpus().len().to_string()),
        ]
    }

    /// The addresses with TCP, as memcached shows what it was given.
    fn inter(&self) -> String {
        let mut ips = Vec::<String>::new();
        for ip in self.tcp.iter().map(|t| t.address.ip().to_string()) {
            if !ips.contains(&ip) {
                ips.push(ip);
            }
        }
        if ips.is_empty() { "NULL".to_owned() } else { ips.join(",") }
    }

    fn client_settings(&self) -> Vec<(&'static str, String)> {
        let clients = &self.clients;
        vec![
            ("stat_key_prefix", char::from(clients.prefix_delimiter).to_string()),
            ("detail_enabled", yes(false)),
            ("reqs_per_event", clients.requests_per_turn.to_string()),
            ("cas_enabled", yes(clients.cas_enabled)),
            ("tcp_backlog", clients.backlog.to_string()),
            ("binding_protocol", setting(clients.dialect).to_owned()),
            ("auth_enabled_sasl", yes(clients.sasl)),
            ("auth_enabled_ascii", yes(clients.auth_file.is_some())),
            ("item_size_max", self.item_max_bytes.to_string()),
            ("maxconns_fast", yes(clients.refuse_over_limit)),
            ("slab_reassign", yes(self.evict && self.slab_pages.is_none())),
            ("slab_chunk_max", self.item_max_bytes.to_string()),
            ("flush_enabled", yes(clients.flush_allowed)),
            ("dump_enabled", yes(clients.dump_allowed)),
            ("idle_timeout", clients.idle_timeout_seconds.to_string()),
        ]
    }
}

/// Settings that no flag sets at start-up.
const STANDING: &[(&str, &str)] = &[
    ("hashpower_init", "0"),
    ("slab_automove", "1"),
    ("slab_automove_ratio", "0.00"),
    ("slab_automove_window", "3"),
    ("lru_crawler", "yes"),
    ("lru_crawler_sleep", "100"),
    ("lru_crawler_tocrawl", "0"),
    ("tail_repair_time", "0"),
    ("hash_algorithm", "siphash"),
    ("lru_maintainer_thread", "yes"),
    ("lru_segmented", "yes"),
    ("hot_lru_pct", "20"),
    ("warm_lru_pct", "40"),
    ("hot_max_factor", "0.20"),
    ("warm_max_factor", "2.00"),
    ("temp_lru", "no"),
    ("temporary_ttl", "61"),
    ("watcher_logbuf_size", "262144"),
    ("worker_logbuf_size", "0"),
    ("track_sizes", "no"),
    ("inline_ascii_response", "no"),
    ("slab_automove_freeratio", "0.000"),
    ("num_napi_ids", "(null)"),
    ("client_flags_size", "4"),
];

fn yes(on: bool) -> String {
    if on { "yes" } else { "no" }.to_owned()
}

/// What `stats settings` calls it.
fn setting(dialect: Dialects) -> &'static str {
    match dialect {
        Dialects::Auto => "auto-negotiate",
        Dialects::Only(Dialect::Ascii) => "ascii",
        Dialects::Only(Dialect::Binary) => "binary",
    }
}

#[cfg(test)]
mod tests {
    use crate::startup::plan::tests::planned;

    #[test]
    fn each_setting_is_told_once() {
        let plan = planned("");
        let mut names: Vec<_> = plan.settings().iter().map(|(name, _)| *name).collect();
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
        for name in ["maxconns", "lru_crawler_sleep", "hot_lru_pct", "warm_max_factor"] {
            assert!(names.contains(&name), "{name}: collectors ask for it");
        }
    }
}
