//! A GPU beside the CPU: the GPU's kernels, run on the CPU.

use crate::client::{Tcp, Udp};
use crate::server::{Server, run, text};
use std::time::{Duration, Instant};

fn facts(tcp: &mut Tcp) -> Vec<(String, String)> {
    let page = tcp.until_end("stats engine\r\n");
    let row = |line: &str| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        Some((name.to_owned(), value.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

fn fact(tcp: &mut Tcp, name: &str) -> String {
    let facts = facts(tcp);
    let found = facts.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    found.unwrap_or_else(|| panic!("{name} in {facts:?}"))
}

#[test]
fn every_mode_and_index_serves_and_says_what_it_did() {
    for args in [
        &["--gpu-mode", "launch"][..],
        &["--gpu-mode", "graph", "--index", "cuckoo", "--index-memory", "1"],
        &["--gpu-mode", "persistent", "--batch", "64", "--gpu-verify-ratio", "3"],
    ] {
        let server = Server::start(&[&["-m", "8", "--engine", "simt"], args].concat());
        assert_eq!(server.ready["engine"], "simt");
        let mut tcp = Tcp::connect(server.tcp());
        tcp.expect("set k 7 0 5\r\nvalue\r\n", "STORED\r\n");
        let udp = Udp::to(server.udp());
        // The change is on its way to the index; the reply is right at once.
        let begun = Instant::now();
        loop {
            udp.expect(9, "get k\r\n", "VALUE k 7 5\r\nvalue\r\nEND\r\n");
            // Until then the host finds what the GPU misses.
            if fact(&mut tcp, "hints_right") != fact(&mut tcp, "gpu_missed") {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", facts(&mut tcp));
        }
        tcp.expect("delete k\r\n", "DELETED\r\n");
        udp.expect(10, "get k\r\n", "END\r\n");
        assert_eq!(fact(&mut tcp, "gpu_state"), "used");
        assert_eq!(fact(&mut tcp, "cpu_requests"), "0");
        // Counted once the updater has seen that the kernel ended.
        while fact(&mut tcp, "index_inserted") != "1" {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", facts(&mut tcp));
        }
        assert!(server.stop()["balanced"].as_bool().unwrap());
    }
}

/// A worker for each, and what one client stores is seen beside both.
#[test]
fn two_gpus_share_the_workers() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    for replies in ["none", "complete"] {
        let gpus = ["--engine", "simt", "--gpu-device", "0,3", "--gpu-replies", replies];
        let server = Server::start(&[&["-m", "8", "--cores", "0,1"], &gpus[..]].concat());
        let mut tcp = Tcp::connect(server.tcp());
        for name in ["gpu:0:workers", "gpu:3:workers"] {
            assert_eq!(fact(&mut tcp, name), "1");
        }
        tcp.expect("set k 7 0 5\r\nvalue\r\n", "STORED\r\n");
        // Which worker a client has is the kernel's choice, by its port.
        for _ in 0..32 {
            Udp::to(server.udp()).expect(9, "get k\r\n", "VALUE k 7 5\r\nvalue\r\nEND\r\n");
        }
        let begun = Instant::now();
        for name in ["gpu:0:index_filled", "gpu:3:index_filled"] {
            while fact(&mut tcp, name) != "1" {
                assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", facts(&mut tcp));
            }
        }
        tcp.expect("delete k\r\n", "DELETED\r\n");
        for _ in 0..32 {
            Udp::to(server.udp()).expect(9, "get k\r\n", "END\r\n");
        }
        assert_eq!(fact(&mut tcp, "gpu_requests"), "64");
        assert_eq!(fact(&mut tcp, "gpu_state"), "used");
        assert!(server.stop()["balanced"].as_bool().unwrap());
    }
}

#[test]
fn without_a_card_the_page_tells_of_the_cpu() {
    let server = Server::start(&["-m", "8", "--engine", "cpu"]);
    let mut tcp = Tcp::connect(server.tcp());
    Udp::to(server.udp()).expect(1, "get k\r\n", "END\r\n");
    assert_eq!(fact(&mut tcp, "engine"), "cpu");
    assert_eq!(fact(&mut tcp, "cpu_requests"), "1");
    assert!(!facts(&mut tcp).iter().any(|(name, _)| name.starts_with("gpu")));
}

#[test]
fn a_gpu_that_is_not_there_is_an_error_where_it_was_asked_for() {
    let out = run(&["serve", "-p", "-1", "-U", "-1", "-m", "8", "--engine", "gpu", "--dry-run"]);
    let said = text(&out.stderr);
    // Where there is one, this test has nothing to say.
    if out.status.code() == Some(1) {
        assert!(said.starts_with("gnomon: --engine gpu: "), "{said}");
        assert!(said.contains("use --engine auto or cpu"), "{said}");
    }
}
