//! `/metrics` of a live server: what memcached_exporter has, what the dashboard asks for, and who
//! cannot hold it. `gnomon stats` and `gnomon top` over it.

use crate::client::{Tcp, Udp};
use crate::server::{SOON, Server, Tree, run, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::time::{Duration, Instant};

const DASHBOARD: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/appliance/dashboards/gnomon.json"));
const ALERTS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/appliance/containers/chart/alerts.yaml"));

/// Every metric that memcached_exporter 0.15 and later has for a server without extstore and
/// proxy: type, name, labels.
const EXPORTER: &str = "
    gauge memcached_up
    counter memcached_uptime_seconds
    gauge memcached_time_seconds
    gauge memcached_version version
    counter memcached_process_user_cpu_seconds_total
    counter memcached_process_system_cpu_seconds_total
    counter memcached_read_bytes_total
    counter memcached_written_bytes_total
    gauge memcached_current_connections
    gauge memcached_max_connections
    counter memcached_connections_total
    counter memcached_connections_rejected_total
    counter memcached_connections_yielded_total
    counter memcached_connections_listener_disabled_total
    gauge memcached_current_bytes
    gauge memcached_limit_bytes
    counter memcached_commands_total command,status
    gauge memcached_current_items
    counter memcached_items_total
    counter memcached_items_evicted_total
    counter memcached_items_reclaimed_total
    counter memcached_item_too_large_total
    counter memcached_item_no_memory_total
    counter memcached_direct_reclaims_total
    gauge memcached_lru_crawler_enabled
    gauge memcached_lru_crawler_sleep
    gauge memcached_lru_crawler_to_crawl
    gauge memcached_lru_crawler_maintainer_thread
    gauge memcached_lru_crawler_hot_percent
    gauge memcached_lru_crawler_warm_percent
    gauge memcached_lru_crawler_hot_max_factor
    gauge memcached_lru_crawler_warm_max_factor
    counter memcached_lru_crawler_starts_total
    counter memcached_lru_crawler_reclaimed_total
    counter memcached_lru_crawler_items_checked_total
    counter memcached_lru_crawler_moves_to_cold_total
    counter memcached_lru_crawler_moves_to_warm_total
    counter memcached_lru_crawler_moves_within_lru_total
    gauge memcached_malloced_bytes
    gauge memcached_accepting_connections
    gauge memcached_slab_current_items slab
    gauge memcached_slab_items_age_seconds slab
    counter memcached_slab_items_crawler_reclaimed_total slab
    counter memcached_slab_items_evicted_total slab
    counter memcached_slab_items_evicted_nonzero_total slab
    counter memcached_slab_items_evicted_time_seconds slab
    counter memcached_slab_items_evicted_unfetched_total slab
    counter memcached_slab_items_expired_unfetched_total slab
    counter memcached_slab_items_outofmemory_total slab
    counter memcached_slab_items_reclaimed_total slab
    counter memcached_slab_items_tailrepairs_total slab
    counter memcached_slab_items_moves_to_cold slab
    counter memcached_slab_items_moves_to_warm slab
    counter memcached_slab_items_moves_within_lru slab
    gauge memcached_slab_hot_items slab
    gauge memcached_slab_warm_items slab
    gauge memcached_slab_cold_items slab
    gauge memcached_slab_hot_age_seconds slab
    gauge memcached_slab_warm_age_seconds slab
    counter memcached_slab_lru_hits_total slab,lru
    gauge memcached_slab_chunk_size_bytes slab
    gauge memcached_slab_chunks_per_page slab
    gauge memcached_slab_current_pages slab
    gauge memcached_slab_current_chunks slab
    gauge memcached_slab_chunks_used slab
    gauge memcached_slab_chunks_free slab
    gauge memcached_slab_chunks_free_end slab
    gauge memcached_slab_mem_requested_bytes slab
    counter memcached_slab_commands_total slab,command,status
";

/// A scrape, by hand.
struct Page(String);

impl Page {
    fn of(address: SocketAddr) -> Self {
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", page.len())), "{head}");
        Self(page.to_owned())
    }

    fn types(&self) -> BTreeMap<&str, &str> {
        self.0.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split_once(' ')).collect()
    }

    /// The value of the sample that is written so.
    fn value(&self, sample: &str) -> f64 {
        let line = self.0.lines().find(|l| l.rsplit_once(' ').is_some_and(|(s, _)| s == sample));
        line.unwrap_or_else(|| panic!("no {sample} in {}", self.0))
            .rsplit_once(' ')
            .unwrap()
            .1
            .parse()
            .unwrap()
    }

    /// The sum over all samples that begin so.
    fn sum(&self, with: &str) -> f64 {
        let lines = self.0.lines().filter(|l| l.starts_with(with));
        lines.map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn start(args: &[&str]) -> (Server, SocketAddr) {
    let server = Server::start(&[&["-m", "8", "--metrics", "127.0.0.1:0"], args].concat());
    let address = server.ready["metrics"].as_str().unwrap().parse().unwrap();
    (server, address)
}

/// A page on which `done` holds: pages are kept for a moment.
fn page_when(address: SocketAddr, done: impl Fn(&Page) -> bool) -> Page {
    let deadline = Instant::now() + SOON;
    loop {
        let page = Page::of(address);
        if done(&page) {
            return page;
        }
        assert!(Instant::now() < deadline, "{}", page.0);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn power_that_no_meter_shows_is_energy_and_is_set_against_requests() {
    const BASE: &str = "gnomon_energy_joules_total{zone=\"base\"}";
    let (_server, address) = start(&["--base-watts", "60.5"]);
    let of = |page: &Page| page.0.lines().find_map(|l| l.strip_prefix(BASE)?.trim().parse().ok());
    let page = page_when(address, |page| of(page).is_some_and(|joules: f64| joules > 30.0));
    assert!(of(&page).unwrap() < 60.5 * SOON.as_secs_f64());
}

/// Each verb with and without success.
fn work(server: &Server) {
    let mut tcp = Tcp::connect(server.tcp());
    for (request, reply) in [
        ("set k 0 0 1\r\n5\r\n", "STORED\r\n"),
        ("set other 0 0 1\r\n5\r\n", "STORED\r\n"),
        ("get k none\r\n", "VALUE k 0 1\r\n5\r\nEND\r\n"),
        ("incr k 1\r\n", "6\r\n"),
        ("decr none 1\r\n", "NOT_FOUND\r\n"),
        ("touch k 0\r\n", "TOUCHED\r\n"),
        ("cas k 0 0 1 18446744073709551615\r\nx\r\n", "EXISTS\r\n"),
        ("cas none 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
        ("delete none\r\n", "NOT_FOUND\r\n"),
    ] {
        tcp.expect(request, reply);
    }
    let udp = Udp::to(server.udp());
    for id in 0..7 {
        udp.expect(id, "get k\r\n", "VALUE k 0 1\r\n6\r\nEND\r\n");
    }
}

#[test]
fn all_that_memcached_exporter_has_is_there_and_means_the_same() {
    let (server, address) = start(&["--engine", "cpu"]);
    work(&server);
    let page = page_when(address, |p| p.sum("gnomon_worker_frames_answered_total") >= 7.0);
    let types = page.types();
    for line in EXPORTER.lines().filter(|l| !l.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (kind, name) = (words[0], words[1]);
        assert_eq!(types.get(name), Some(&kind), "{name}");
        let sample = page
            .0
            .lines()
            .find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        let sample = sample.unwrap_or_else(|| panic!("{name} has no sample"));
        let parts: Vec<&str> = sample.split('"').step_by(2).collect();
        let named = parts[..parts.len() - 1]
            .iter()
            .map(|part| part.trim_start_matches(name).trim_matches(['{', ',', '=']));
        let labels: Vec<&str> = named.collect();
        let wanted: Vec<&str> = words.get(2).map_or(Vec::new(), |l| l.split(',').collect());
        assert_eq!(labels, wanted, "{sample}");
    }
    // The exporter has no sample of it without a server that has such items.
    assert_eq!(types.get("memcached_slab_temporary_items"), Some(&"gauge"));
    for (sample, value) in [
        ("memcached_up", 1.0),
        ("memcached_commands_total{command=\"get\",status=\"hit\"}", 8.0),
        ("memcached_commands_total{command=\"get\",status=\"miss\"}", 1.0),
        ("memcached_commands_total{command=\"set\",status=\"hit\"}", 2.0),
        ("memcached_commands_total{command=\"cas\",status=\"badval\"}", 1.0),
        ("memcached_commands_total{command=\"cas\",status=\"miss\"}", 1.0),
        ("memcached_commands_total{command=\"incr\",status=\"hit\"}", 1.0),
        ("memcached_commands_total{command=\"decr\",status=\"miss\"}", 1.0),
        ("memcached_commands_total{command=\"touch\",status=\"hit\"}", 1.0),
        ("memcached_commands_total{command=\"delete\",status=\"miss\"}", 1.0),
        ("memcached_current_items", 2.0),
        ("memcached_limit_bytes", f64::from(8 << 20)),
        ("memcached_max_connections", 1024.0),
        ("memcached_lru_crawler_enabled", 1.0),
        (
            "gnomon_request_duration_seconds_count{transport=\"udp\",engine=\"cpu\",command=\"get\"}",
            7.0,
        ),
        (
            "gnomon_request_duration_seconds_count{transport=\"tcp\",engine=\"none\",command=\"store\"}",
            4.0,
        ),
        ("gnomon_engine_batch_limit", 512.0),
    ] {
        assert!((page.value(sample) - value).abs() < 1e-9, "{sample}: {}", page.value(sample));
    }
    for (with, value) in [
        ("memcached_slab_current_items{", 2.0),
        // 8 gets, incr, touch, a bad CAS id; 2 sets and a cas that missed, as the exporter counts.
        ("memcached_slab_commands_total{", 14.0),
        ("gnomon_worker_frames_received_total{", 7.0),
        ("gnomon_engine_requests_total{", 7.0),
    ] {
        assert!((page.sum(with) - value).abs() < 1e-9, "{with}: {}", page.sum(with));
    }
    page_when(address, |p| p.sum("gnomon_port_frames_received_total{") >= 7.0);
    server.stop();
}

#[cfg(feature = "simt")]
#[test]
fn the_engine_beside_the_cpu_has_its_share() {
    let (server, address) = start(&["--engine", "simt"]);
    work(&server);
    let page = page_when(address, |p| {
        p.0.lines().any(|l| {
            l.starts_with("gnomon_engine_requests_total{")
                && l.contains("engine=\"simt\"")
                && !l.ends_with(" 0")
        })
    });
    assert!((page.value("gnomon_gpu_up") - 1.0).abs() < 1e-9);
    assert!(page.value("gnomon_gpu_index_bytes") > 0.0);
    assert!((page.sum("gnomon_engine_requests_total{") - 7.0).abs() < 1e-9);
    server.stop();
}

/// Names of metrics in a query: what stands before `{`, `[` or an operator, and is no function.
fn names(query: &str) -> BTreeSet<String> {
    let bare: Vec<&str> = query.split('"').step_by(2).collect();
    let bare = bare.join(" ");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    bare.split(|c| !is_name(c))
        .filter(|w| w.starts_with("gnomon_") || w.starts_with("memcached_"))
        .map(str::to_owned)
        .collect()
}

fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str() {
                    Some(query) if key == "expr" || key == "query" || key == "definition" => {
                        found.push(query.to_owned());
                    }
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|v| queries(v, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_nothing_that_is_not_there() {
    let (server, address) = start(&[]);
    work(&server);
    let page = Page::of(address);
    let mut there: BTreeSet<String> = BTreeSet::new();
    for (name, kind) in page.types() {
        match kind {
            "histogram" => {
                for suffix in ["_bucket", "_sum", "_count"] {
                    there.insert(format!("{name}{suffix}"));
                }
            }
            _ => {
                there.insert(name.to_owned());
            }
        }
    }
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut all = Vec::new();
    queries(&dashboard, &mut all);
    assert!(all.len() > 20, "{all:?}");
    // The rules' comments and words name no metric that is not there, either.
    let alerts: Vec<&str> = ALERTS
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("gnomon_"))
        .collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    for name in alerts {
        assert!(
            there.contains(name) || name == "gnomon_",
            "{name} of the alerts is not on the page"
        );
    }
    for query in &all {
        let names = names(query);
        assert!(!names.is_empty() || query == "prometheus", "{query} asks for nothing");
        for name in names {
            assert!(there.contains(&name), "{name} of {query} is not on the page");
        }
        for labels in query.split('{').skip(1).filter_map(|q| q.split('}').next()) {
            for label in labels.split(',').filter_map(|l| l.split(['=', '!', '~']).next()) {
                let known = label == "job"
                    || label == "instance"
                    || page.0.contains(&format!("{label}=\""));
                assert!(known, "{label} of {query} is no label");
            }
        }
    }
    server.stop();
}

/// The oldest of those who hold a connection makes way.
#[test]
fn a_hundred_half_requests_do_not_hold_a_scraper_up() {
    let (server, address) = start(&[]);
    let mut half: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    half.iter_mut().for_each(|s| s.write_all(b"GET /metr").unwrap());
    for _ in 0..5 {
        let begun = std::time::Instant::now();
        Page::of(address);
        assert!(begun.elapsed() < std::time::Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    server.stop();
}

#[test]
fn nobody_can_hold_the_page_or_the_service() {
    let (server, address) = start(&[]);
    // As many as are served at a time, and they say nothing.
    let idle: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut tcp = Tcp::connect(server.tcp());
    tcp.expect("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    Page::of(address);
    drop(idle);
    // One that asks without end.
    let mut endless = TcpStream::connect(address).unwrap();
    endless.set_read_timeout(Some(SOON)).unwrap();
    let mut answer = Vec::new();
    // The server may close before all of it is taken.
    let _ = endless.write_all(&[b'x'; 8 << 10]);
    let _ = endless.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 431 "), "{answer:?}");
    // One that is too slow.
    let mut slow = TcpStream::connect(address).unwrap();
    slow.set_read_timeout(Some(SOON)).unwrap();
    slow.write_all(b"GET /met").unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"");
    assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask(address, "BREW /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    server.stop();
}

#[test]
fn on_a_unix_socket_for_scripts_and_people() {
    let tree = Tree::empty("metrics");
    let path = tree.path("metrics.sock");
    let at = format!("unix:{path}");
    let server = Server::start(&["-m", "8", "--metrics", &at]);
    assert_eq!(server.ready["metrics"], at.as_str());
    let file = std::fs::metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o660);
    work(&server);

    let stats = |args: &[&str]| run(&[&["stats"], args].concat());
    let all = stats(&["--server", &at]);
    assert!(all.status.success(), "{}", text(&all.stderr));
    assert!(text(&all.stdout).contains("\nmemcached_up 1\n"));
    let one = stats(&["--socket", &path, "memcached_limit_bytes"]);
    assert_eq!(text(&one.stdout), "8388608\n");
    let some = stats(&["--socket", &path, "memcached_commands_total"]);
    let hits = "memcached_commands_total{command=\"get\",status=\"hit\"} ";
    assert!(text(&some.stdout).contains(hits), "{}", text(&some.stdout));
    let none = stats(&["--socket", &path, "memcached_limit"]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(1), 0));

    let top = run(&["top", "--socket", &path, "--once", "--interval", "1"]);
    let screen = text(&top.stdout);
    assert!(top.status.success(), "{}", text(&top.stderr));
    assert!(screen.starts_with("gnomon ") && screen.contains("\nitems 2 "), "{screen}");
    assert!(screen.contains("\nworker ") && !screen.contains('\x1b'), "{screen}");

    server.stop();
    assert!(std::fs::metadata(&path).is_err());
    let gone = stats(&["--server", &at]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).contains("is gnomon running there"), "{}", text(&gone.stderr));
}

#[test]
fn an_address_in_use_is_told_and_without_the_flag_there_is_none() {
    let (server, address) = start(&[]);
    let out = run(&["-p", "-1", "-U", "-1", "--metrics", &address.to_string()]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains("Address already in use") && said.contains("--metrics"), "{said}");
    server.stop();
    let server = Server::start(&["-m", "8"]);
    assert_eq!(server.ready.get("metrics"), None);
    server.stop();
}
