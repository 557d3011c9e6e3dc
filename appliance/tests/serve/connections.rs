//! Flags about connections: Unix sockets, turns, idle time, limits, dialects.

use crate::admin::value;
use crate::client::{Tcp, Udp};
use crate::server::{SOON, Server, Tree, gnomon, refuses, run};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

fn talk(path: &Path, request: &str, reply: &str) {
    let mut stream = UnixStream::connect(path).expect("connects");
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), reply);
}

#[test]
fn a_unix_socket_serves_everything_and_goes_at_the_end() {
    let dir = Tree::empty("unix");
    let path = dir.path("socket");
    let args = ["-s", &path, "-a", "0711", "-p", "-1", "-U", "-1", "-m", "8"];
    let server = Server::spawn(gnomon().args(args));
    assert_eq!(server.ready["tcp"], serde_json::json!([]));
    assert_eq!(server.ready["udp"], serde_json::json!([]));
    assert_eq!(server.ready["unix"], path);
    let path = Path::new(&path);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o711);
    talk(path, "set k 0 0 1\r\nv\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
    talk(path, "get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    // Another one there is refused; the first keeps its socket.
    refuses(&run(&["-s", path.to_str().unwrap(), "-m", "8"]), "the Unix socket ");
    talk(path, "get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    server.stop();
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_that_was_left_behind_is_taken_over() {
    let dir = Tree::empty("stale");
    let path = dir.path("socket");
    let start = || Server::spawn(gnomon().args(["-s", &path, "-m", "8"]));
    // Ended without a chance to clean up.
    drop(start());
    assert!(Path::new(&path).exists());
    let server = start();
    talk(Path::new(&path), "get k\r\n", "END\r\n");
    server.stop();
}

#[test]
fn a_pipeline_is_answered_in_turns() {
    let server = Server::start(&["-m", "8", "-t", "1", "-R", "10"]);
    let mut c = Tcp::connect(server.tcp());
    c.expect(&"get a\r\n".repeat(1000), &"END\r\n".repeat(1000));
    let stats = c.until_end("stats\r\n");
    let yields = stats.lines().find_map(|l| l.strip_prefix("STAT conn_yields ")).unwrap();
    // However the bytes were cut, most turns ended with requests left.
    assert!((50..=100).contains(&yields.parse::<u32>().unwrap()), "{yields}");
    let settings = c.until_end("stats settings\r\n");
    assert!(settings.contains("STAT reqs_per_event 10\r\n"), "{settings}");
}

/// Who asks and does not read holds its connection no longer than who says nothing.
#[test]
fn connections_that_do_not_read_are_closed_and_counted() {
    let server = Server::start(&["-m", "16", "-o", "idle_timeout=1"]);
    let mut c = Tcp::connect(server.tcp());
    c.set("big", &vec![b'x'; 900_000]);
    let mut stuck: Vec<Tcp> = (0..4).map(|_| Tcp::connect(server.tcp())).collect();
    // More than the kernel's buffers hold.
    stuck.iter_mut().for_each(|s| s.send("get big\r\n".repeat(64)));
    let begun = Instant::now();
    while !c.until_end("stats\r\n").contains("STAT idle_kicks 4\r\n") {
        assert!(begun.elapsed() < SOON, "they are still open");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(c.until_end("stats\r\n").contains("STAT curr_connections 1\r\n"));
}

/// A slow reader is no idle one.
#[test]
fn connections_that_read_slowly_stay() {
    let server = Server::start(&["-m", "16", "-o", "idle_timeout=2"]);
    let mut c = Tcp::connect(server.tcp());
    c.set("big", &vec![b'x'; 900_000]);
    c.send("get big\r\n".repeat(40));
    let begun = Instant::now();
    for _ in 0..40 {
        c.receive(21 + 900_000 - 1 + 2 + 5);
        std::thread::sleep(Duration::from_millis(80));
    }
    assert!(begun.elapsed() > Duration::from_secs(3));
    // What the kernel held for it was less than a second's reading.
    c.expect("get none\r\n", "END\r\n");
}

#[test]
fn idle_connections_are_closed_and_counted() {
    let server = Server::start(&["-m", "8", "-o", "idle_timeout=1"]);
    let mut idle = Tcp::connect(server.tcp());
    let mut half = Tcp::connect(server.tcp());
    half.send("set a 0 0 10\r\nabc");
    let mut busy = Tcp::connect(server.tcp());
    let (begun, mut idle_ended) = (Instant::now(), false);
    idle.0.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    while !idle_ended {
        busy.expect("get a\r\n", "END\r\n");
        assert!(begun.elapsed() < SOON, "an idle connection is still open");
        idle_ended = match idle.0.read(&mut [0]) {
            Ok(n) => n == 0,
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
    }
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert!(half.rest().is_empty());
    let stats = busy.until_end("stats\r\n");
    assert!(stats.contains("STAT idle_kicks 2\r\n"), "{stats}");
}

#[test]
fn a_connection_that_waits_takes_a_kilobyte_at_most() {
    const CONNECTIONS: u64 = 700;
    let server = Server::start(&["-m", "8", "-t", "1"]);
    let connected = |n| -> Vec<Tcp> { (0..n).map(|_| Tcp::connect(server.tcp())).collect() };
    // What grows once has grown.
    let mut first = connected(100);
    let there = |c: &mut Tcp, n: u64| {
        let (line, begun) = (format!("STAT curr_connections {n}\r\n"), Instant::now());
        while !c.until_end("stats\r\n").contains(&line) {
            assert!(begun.elapsed() < SOON, "they are not all accepted");
        }
    };
    there(&mut first[0], 100);
    let before = server.resident();
    let _more = connected(CONNECTIONS);
    there(&mut first[0], 100 + CONNECTIONS);
    let each = server.resident().saturating_sub(before) / CONNECTIONS;
    assert!(each <= 1_024, "{each} bytes");
}

#[test]
fn a_connection_over_the_limit_can_wait_its_turn() {
    let server = Server::start(&["-m", "8", "-t", "2", "-c", "1", "-o", "no_maxconns_fast"]);
    let mut first = Tcp::connect(server.tcp());
    first.expect("get a\r\n", "END\r\n");
    let mut second = Tcp::connect(server.tcp());
    second.send("get a\r\n");
    let wait = |c: &Tcp, at_most| c.0.set_read_timeout(Some(at_most)).unwrap();
    wait(&second, Duration::from_millis(300));
    assert!(second.0.read(&mut [0]).is_err());
    let shown = |client: &mut Tcp| {
        let page = client.until_end("stats\r\n");
        ["accepting_conns", "listen_disabled_num", "time_in_listen_disabled_us"]
            .map(|row| value(&page, row).parse::<u64>().unwrap())
    };
    assert_eq!(shown(&mut first), [0, 1, 0]);
    drop(first);
    wait(&second, SOON);
    assert_eq!(second.receive(5), b"END\r\n");
    let [accepting, times, us] = shown(&mut second);
    assert!(accepting == 1 && times == 1 && us >= 300_000, "{times} times, {us} us");
    assert_eq!(server.stop()["connections"], serde_json::json!([2, 0]));
}

#[test]
fn it_ends_soon_with_a_connection_that_waits() {
    let server = Server::start(&["-m", "8", "-t", "1", "-c", "1", "-o", "no_maxconns_fast"]);
    let mut first = Tcp::connect(server.tcp());
    first.expect("get a\r\n", "END\r\n");
    let mut second = Tcp::connect(server.tcp());
    server.stop();
    // In good order, or reset where the server had not come to it yet.
    assert!(!matches!(second.0.read(&mut [0]), Ok(1..)) && first.rest().is_empty());
}

#[test]
fn connections_speak_what_they_may() {
    let server = Server::start(&["-m", "8", "-B", "ascii"]);
    Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
    let mut binary = Tcp::connect(server.tcp());
    binary.send(b"\x80");
    assert!(binary.rest().is_empty());
    let server = Server::start(&["-m", "8", "-B", "binary"]);
    let mut ascii = Tcp::connect(server.tcp());
    ascii.send("g");
    assert!(ascii.rest().is_empty());
}

#[test]
fn without_cas_every_number_is_0() {
    let server = Server::start(&["-m", "8", "-C"]);
    let mut c = Tcp::connect(server.tcp());
    c.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    c.expect("gets a\r\n", "VALUE a 0 1 0\r\nx\r\nEND\r\n");
    Udp::to(server.udp()).expect(1, "gets a\r\n", "VALUE a 0 1 0\r\nx\r\nEND\r\n");
    c.expect("cas a 0 0 1 0\r\ny\r\n", "EXISTS\r\n");
    c.expect("cas a 0 0 1 1\r\ny\r\n", "EXISTS\r\n");
    c.expect("cas a 0 0 1 7\r\ny\r\n", "EXISTS\r\n");
}

#[test]
fn prefixes_end_where_they_are_told_to() {
    let server = Server::start(&["-m", "8", "-D", "|"]);
    let mut c = Tcp::connect(server.tcp());
    c.expect("set a|b 0 0 1\r\nx\r\nset a:b 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n");
    c.expect("flush_prefix a\r\n", "OK\r\n");
    c.expect("get a|b a:b\r\n", "VALUE a:b 0 1\r\ny\r\nEND\r\n");
}

#[test]
fn what_a_connection_waits_for_is_shown() {
    let server = Server::start(&["-m", "8", "-t", "1"]);
    let mut asks = Tcp::connect(server.tcp());
    let mut state = |of: &Tcp| {
        let peer = format!("tcp:{}\r\n", of.0.local_addr().unwrap());
        let page = asks.until_end("stats conns\r\n");
        let row = page.lines().find(|row| format!("{row}\r\n").ends_with(&peer)).unwrap();
        let fd = row.strip_prefix("STAT ").unwrap().split(':').next().unwrap();
        let row = page.lines().find_map(|row| row.strip_prefix(&format!("STAT {fd}:state ")));
        row.unwrap().to_owned()
    };
    let mut c = Tcp::connect(server.tcp());
    c.expect("get a\r\n", "END\r\n");
    let deadline = Instant::now() + SOON;
    for (sent, wanted) in [
        ("", "conn_read"),
        ("set a x 0 10\r\nabc", "conn_swallow"),
        ("defghij\r\nset b 0 0 10\r\nabc", "conn_nread"),
        ("defghij\r\n", "conn_read"),
    ] {
        c.send(sent);
        while state(&c) != wanted {
            assert!(Instant::now() < deadline, "{wanted}: {}", state(&c));
        }
    }
}
