//! Ports under DPDK, with devices that need neither hardware nor privileges.

use crate::client::Tcp;
use crate::server::{SOON, Server, gnomon, run};
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::path::PathBuf;

fn start(args: &[&str]) -> Server {
    let fixed = ["-p", "-1", "-m", "8", "--huge", "off", "--side-door", "none"];
    Server::spawn(gnomon().args(fixed).args(args))
}

#[test]
fn every_frame_of_a_null_device_is_accounted_for() {
    let server = start(&["--port", "net_null0", "--ip", "10.0.0.1/24", "--cores", "0"]);
    assert_eq!(server.ready["udp"], serde_json::json!(["10.0.0.1:11211"]));
    Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
    let report = server.stop();
    // A null device gives frames as fast as they are taken, of whatever stands in their slots: zeros,
    // which name no station of ours, or what was announced before.
    let received = report["received"].as_u64().unwrap();
    let dropped = report["dropped"].as_object().unwrap();
    assert!(received > 0 && dropped["eth_not_ours"].as_u64().unwrap() > 0);
    assert_eq!(dropped.values().filter_map(Value::as_u64).sum::<u64>(), received);
    assert_eq!(report["slots"], report["slots_home"]);
}

/// Where DPDK puts the telemetry socket of a process without a file prefix of its own.
fn telemetry_socket(server: &Server) -> PathBuf {
    let base = match nix::unistd::geteuid().is_root() {
        true => "/var/run".into(),
        false => std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_else(|| "/tmp".into()),
    };
    PathBuf::from(base).join(format!("dpdk/gnomon-{}/dpdk_telemetry.v2", server.pid()))
}

#[test]
fn dpdks_own_telemetry_answers() {
    let server = start(&["--port", "net_null0", "--ip", "10.0.0.1/24", "--cores", "0"]);
    let mut socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket.connect(&SockAddr::unix(telemetry_socket(&server)).unwrap()).unwrap();
    let mut answer = |question: &str| -> Value {
        if !question.is_empty() {
            socket.write_all(question.as_bytes()).unwrap();
        }
        let mut bytes = [0; 16 << 10];
        let n = socket.read(&mut bytes).unwrap();
        serde_json::from_slice(&bytes[..n]).unwrap()
    };
    assert_eq!(answer("")["pid"], server.pid());
    assert_eq!(answer("/ethdev/list"), serde_json::json!({ "/ethdev/list": [0] }));
    let stats = answer("/ethdev/stats,0");
    assert!(stats["/ethdev/stats"]["ipackets"].as_u64().unwrap() > 0, "{stats}");
    server.stop();
}

#[test]
fn two_ports_are_served_by_one_worker() {
    let server = start(&[
        "--port",
        "net_ring0",
        "--port",
        "net_ring1",
        "--ip",
        "0=10.0.0.1/24",
        "--ip",
        "1=10.0.1.1/24",
        "--ip",
        "1=fd00::1/64",
        "-U",
        "9",
    ]);
    let expected = ["10.0.0.1:9", "10.0.1.1:9", "[fd00::1]:9"];
    assert_eq!(server.ready["udp"], serde_json::json!(expected));
    let report = server.stop();
    assert_eq!(report["ports"].as_array().unwrap().len(), 2);
}

#[test]
fn a_device_that_is_none_and_an_argument_that_is_ours_are_told() {
    let fixed = ["-p", "-1", "-m", "8", "--ip", "10.0.0.1/24", "--side-door", "none"];
    for (args, said) in [
        (&["--port", "net_rubbish0"][..], "DPDK has no port `net_rubbish0`"),
        (
            &["--port", "net_null0", "--", "--lcores=1"],
            "DPDK argument `--lcores=1` is set by gnomon",
        ),
        (&["--port", "ffff:ff:1f.7"], "--port ffff:ff:1f.7: no such PCI device"),
        (
            &["--port", "net_null0", "--isolated", "on"],
            "port net_null0: net_null cannot isolate: Function not implemented",
        ),
    ] {
        let out = run(&[&fixed[..], args].concat());
        let last = String::from_utf8(out.stderr).unwrap().lines().last().unwrap().to_owned();
        assert_eq!(out.status.code(), Some(1), "{last}");
        assert!(last.starts_with(&format!("gnomon: {said}")), "{last}");
    }
}
