//! The player over a DPDK port. `net_ring` receives what it sends: every request comes back as
//! it went, which answers nothing.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]
#![cfg(feature = "dpdk")]

mod common;
use common::*;
use std::process::Command;

#[test]
fn frames_travel_through_a_dpdk_port() {
    let dir = tempfile::tempdir().unwrap();
    let mut t = trace();
    t.requests = 100;
    let (path, _) = write(dir.path(), "t.pcap", &t);
    let json = dir.path().join("r.json");
    let replay = |spec: &str| {
        Command::new(env!("CARGO_BIN_EXE_gnomon-replay"))
            .arg(&path)
            .args(["--port", spec, "--timeout-ms", "200", "--max-lost", "0"])
            .arg("--json")
            .arg(&json)
            .output()
            .unwrap()
    };
    let out = replay("net_ring0");
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{err}");
    let r: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    for (name, n) in [("sent", 100), ("lost", 100), ("unexpected", 100), ("bad_datagrams", 0)] {
        assert_eq!(r[name], n, "{name}: {r:#}");
    }

    let out = replay("net_nonsense0");
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(err.contains("net_nonsense0"), "{err}");
}
