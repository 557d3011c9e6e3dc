//! UDP by way of kernel sockets: the whole pipeline behind them.

use crate::client::{Tcp, Udp};
use crate::server::{SOON, Server};
use std::time::Duration;

#[test]
fn what_tcp_stored_udp_finds() {
    let server = Server::start(&["-m", "8"]);
    let mut tcp = Tcp::connect(server.tcp());
    tcp.expect("set k 7 0 5\r\nvalue\r\n", "STORED\r\n");
    let udp = Udp::to(server.udp());
    udp.expect(0xabcd, "get k\r\n", "VALUE k 7 5\r\nvalue\r\nEND\r\n");
    udp.expect(1, "get k nothing k\r\n", "VALUE k 7 5\r\nvalue\r\nVALUE k 7 5\r\nvalue\r\nEND\r\n");
    tcp.expect("delete k\r\n", "DELETED\r\n");
    udp.expect(2, "get k\r\n", "END\r\n");
}

/// Whatever engine or path reads a `get`: with `-B binary` it is none.
#[test]
fn text_is_not_answered_where_only_binary_is_spoken() {
    for mode in ["adaptive", "fixed", "periodic"] {
        let server = Server::start(&["-m", "8", "-B", "binary", "--batch-mode", mode]);
        let udp = Udp::to(server.udp());
        for text in ["get k\r\n", "get a b\r\n", "version\r\n"] {
            udp.send(1, text);
            assert_eq!(udp.receive(Duration::from_millis(300)), None, "{mode}, {text}");
        }
        assert_eq!(server.stop()["received"], 3);
    }
}

#[test]
fn strangers_get_no_answer_and_are_counted() {
    let server = Server::start(&["-m", "8", "--allow", "10.0.0.0/8"]);
    let udp = Udp::to(server.udp());
    udp.send(1, "get k\r\n");
    assert_eq!(udp.receive(Duration::from_millis(300)), None);
    let report = server.stop();
    assert_eq!(report["received"], 1);
    assert_eq!(report["dropped"], serde_json::json!({ "source_not_allowed": 1 }));
}

#[test]
fn several_workers_and_addresses_serve_one_store() {
    let args = ["-m", "8", "-l", "127.0.0.1,127.0.0.2", "--batch", "64", "--batch-mode", "fixed"];
    let server = Server::start(&args);
    assert_eq!(server.ready["udp"].as_array().unwrap().len(), 2);
    Tcp::connect(server.tcp()).expect("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    for address in server.ready["udp"].as_array().unwrap() {
        let address = address.as_str().unwrap().parse().unwrap();
        for id in 0..20 {
            Udp::to(address).expect(id, "get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
        }
    }
    let report = server.stop();
    assert_eq!(report["answered"], 40);
}

#[test]
fn a_value_of_several_datagrams_arrives_whole() {
    let server = Server::start(&["-m", "8"]);
    let value: Vec<u8> = (0..4000u32).map(|i| b'a' + (i % 23) as u8).collect();
    Tcp::connect(server.tcp()).set("k", &value);
    let udp = Udp::to(server.udp());
    udp.send(9, "get k\r\n");
    let mut parts = vec![Vec::new(); 3];
    for _ in 0..3 {
        let part = udp.receive(SOON).expect("a part");
        assert_eq!(part[..2], [0, 9]);
        assert_eq!(part[4..6], [0, 3]);
        parts[usize::from(part[3])] = part[8..].to_vec();
    }
    let expected = [b"VALUE k 0 4000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    assert!(parts.concat() == expected, "the parts do not make up the reply");
}

#[test]
fn who_is_not_trusted_gets_small_replies_and_no_more_than_its_rate() {
    // Loopback is served, and only another network is trusted.
    let args = ["-m", "8", "--cores", "0", "--allow", "127.0.0.0/8", "--trusted", "10.0.0.0/8"];
    let server = Server::start(&[&args[..], &["--rate-limit", "4"]].concat());
    let mut tcp = Tcp::connect(server.tcp());
    tcp.set("big", &[b'v'; 5000]);
    tcp.set("k", b"0123456789abcdef");
    let udp = Udp::to(server.udp());
    udp.expect(1, "get big\r\n", "SERVER_ERROR too large, use TCP\r\n");
    // 45 bytes for 15, frame headers included.
    udp.expect(2, "get k\r\n", "VALUE k 0 16\r\n0123456789abcdef\r\nEND\r\n");
    tcp.set("k", b"0123456789abcdefg");
    udp.expect(3, "get k\r\n", "SERVER_ERROR too large, use TCP\r\n");
    // A thousand at once, of four per second. What passes depends on the clock; all do not,
    // unless sending them takes four minutes.
    for id in 0..1000 {
        udp.send(id, "get nothing\r\n");
    }
    while udp.receive(Duration::from_millis(300)).is_some() {}
    let report = server.stop();
    assert_eq!(report["amplification_refused"], 2);
    assert!(report["dropped"]["rate_source"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["responded"], 0);
}

#[test]
fn trusted_sources_are_limited_when_asked_for() {
    // One reply is worth more seconds than the test takes.
    let server = Server::start(&["-m", "8", "--cores", "0", "--rate-limit-trusted", ":100"]);
    Tcp::connect(server.tcp()).set("k", &[b'v'; 100_000]);
    let udp = Udp::to(server.udp());
    udp.send(1, "get k\r\n");
    assert!(udp.receive(SOON).is_some());
    while udp.receive(Duration::from_millis(300)).is_some() {}
    udp.send(2, "get k\r\n");
    assert_eq!(udp.receive(Duration::from_millis(300)), None);
    let report = server.stop();
    assert_eq!(report["dropped"], serde_json::json!({ "rate_source_bytes": 1 }));
}
