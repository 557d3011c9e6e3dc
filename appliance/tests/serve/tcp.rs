//! The protocol over TCP, good clients and bad ones.

use crate::client::Tcp;
use crate::server::{SOON, Server};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

#[test]
fn each_verb_once() {
    let server = Server::start(&["-m", "8"]);
    let mut c = Tcp::connect(server.tcp());
    c.expect("get a\r\n", "END\r\n");
    c.expect("set a 1 0 2\r\nhi\r\n", "STORED\r\n");
    c.expect("get a b\r\n", "VALUE a 1 2\r\nhi\r\nEND\r\n");
    c.expect("set b 0 0 0 noreply\r\n\r\nget b\r\n", "VALUE b 0 0\r\n\r\nEND\r\n");
    c.expect("delete a\r\n", "DELETED\r\n");
    c.expect("delete a\r\n", "NOT_FOUND\r\n");
    c.expect("nonsense\r\n", "ERROR\r\n");
    c.expect("version\r\n", "VERSION 1.6.18\r\n");
    let stats = c.until_end("stats\r\n");
    for line in ["STAT curr_connections 1", "STAT cmd_set 2", "STAT delete_hits 1"] {
        assert!(stats.lines().any(|l| l == line), "{line} is not in {stats}");
    }
    let settings = c.until_end("stats settings\r\n");
    for line in ["STAT maxbytes 8388608", "STAT maxconns 1024", "STAT evictions on"] {
        assert!(settings.lines().any(|l| l == line), "{line} is not in {settings}");
    }
    c.send("quit\r\n");
    assert!(c.rest().is_empty());
}

/// What stands where a refused command's data block would be is never obeyed.
#[test]
fn a_refused_store_takes_its_data_block_along() {
    let server = Server::start(&["-m", "8"]);
    let mut c = Tcp::connect(server.tcp());
    let long = "k".repeat(251);
    let lines = [
        format!("set {long} 0 0 13"),
        format!("add {long} 0 0 13"),
        format!("replace {long} 0 0 13"),
        format!("append {long} 0 0 13"),
        format!("prepend {long} 0 0 13"),
        format!("cas {long} 0 0 13 1"),
        "set x a 0 13".to_owned(),
        "add x -1 0 13".to_owned(),
        "replace x 0 soon 13".to_owned(),
        "append x 4294967296 0 13".to_owned(),
        "prepend x 0 1e3 13".to_owned(),
        "cas x 0 0 13 x".to_owned(),
        format!("ms {long} 13"),
        format!("ms {long} 13 T0 q"),
    ];
    // As it was found: all in one piece, on a connection of its own.
    for line in [&lines[0], "set x a 0 13", &lines[12]] {
        let mut c = Tcp::connect(server.tcp());
        c.expect(
            &format!("set victim 0 0 1\r\nv\r\n{line}\r\ndelete victim\r\nget victim\r\n"),
            "STORED\r\nCLIENT_ERROR bad command line format\r\nVALUE victim 0 1\r\nv\r\nEND\r\n",
        );
    }
    for line in &lines {
        let quiet = format!("{line} noreply");
        let refused = "CLIENT_ERROR bad command line format\r\n";
        let got = "VALUE victim 0 1\r\nv\r\nEND\r\n";
        c.expect(&format!("{line}\r\ndelete victim\r\nget victim\r\n"), &format!("{refused}{got}"));
        if !line.starts_with("ms") {
            c.expect(&format!("{quiet}\r\ndelete victim\r\nget victim\r\n"), got);
        }
    }
    // Of too many flags, too.
    let flags = " k".repeat(17);
    let refused = "CLIENT_ERROR options flags too long\r\n";
    c.expect(&format!("ms x 13{flags}\r\ndelete victim\r\nmn\r\n"), &format!("{refused}MN\r\n"));
    c.expect("get victim\r\n", "VALUE victim 0 1\r\nv\r\nEND\r\n");
    // Without a length nobody knows where a block would end.
    let refused = "CLIENT_ERROR bad command line format\r\n";
    c.expect("set x 0 0 y\r\ndelete victim\r\n", &format!("{refused}DELETED\r\n"));
}

#[test]
fn a_value_of_nearly_a_megabyte() {
    let server = Server::start(&["-m", "16"]);
    let mut c = Tcp::connect(server.tcp());
    let value: Vec<u8> = (0..1_040_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    c.set("big", &value);
    c.send("get big\r\n");
    assert_eq!(c.receive(21), b"VALUE big 0 1040000\r\n");
    assert!(c.receive(value.len()) == value, "another value came back");
    assert_eq!(c.receive(7), b"\r\nEND\r\n");
    // Above the limit: refused, the block swallowed, the old value gone.
    c.send(format!("set big 0 0 {}\r\n", 1 << 21));
    c.send(vec![b'x'; 1 << 21]);
    c.expect("\r\n", "SERVER_ERROR object too large for cache\r\n");
    c.expect("get big\r\n", "END\r\n");
}

#[test]
fn a_value_of_many_megabytes() {
    let server = Server::start(&["-m", "128", "-I", "64m"]);
    let mut c = Tcp::connect(server.tcp());
    let value: Vec<u8> = (0..50_000_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    c.set("big", &value);
    c.send("get big\r\n");
    assert_eq!(c.receive(22), b"VALUE big 0 50000000\r\n");
    assert!(c.receive(value.len()) == value, "another value came back");
    assert_eq!(c.receive(7), b"\r\nEND\r\n");
    c.expect("append big 0 0 3\r\nend\r\n", "STORED\r\n");
    c.expect("delete big\r\n", "DELETED\r\n");
}

#[test]
fn a_thousand_commands_in_one_write_are_answered_in_order() {
    let server = Server::start(&["-m", "8"]);
    let mut c = Tcp::connect(server.tcp());
    let (mut ask, mut expect) = (String::new(), String::new());
    for i in 0..500 {
        ask += &format!("set k{i} {i} 0 4\r\n{i:04}\r\nget k{i}\r\n");
        expect += &format!("STORED\r\nVALUE k{i} {i} 4\r\n{i:04}\r\nEND\r\n");
    }
    c.expect(&ask, &expect);
}

#[test]
fn a_request_in_single_bytes() {
    let server = Server::start(&["-m", "8"]);
    let mut c = Tcp::connect(server.tcp());
    for byte in b"set a 0 0 3\r\na\r\n\r\nget a\r" {
        c.send([*byte]);
    }
    c.expect("\n", "STORED\r\nVALUE a 0 3\r\na\r\n\r\nEND\r\n");
}

#[test]
fn a_client_that_does_not_read_costs_two_buffers_and_nobody_else_anything() {
    const GETS: usize = 100;
    const VALUE: usize = 500_000;
    let server = Server::start(&["-m", "16", "-t", "1"]);
    let mut slow = Tcp::connect(server.tcp());
    slow.set("big", &vec![b'x'; VALUE]);
    let before = server.resident();
    slow.send("get big\r\n".repeat(GETS));
    // It has begun to send, and then had to stop: 50 MB are more than the kernel takes.
    slow.receive(1000);
    let mut other = Tcp::connect(server.tcp());
    for _ in 0..200 {
        other.expect("get a\r\n", "END\r\n");
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes for a client that does not read");
    let reply = VALUE + "VALUE big 0 500000\r\n".len() + "\r\nEND\r\n".len();
    let all = slow.receive(GETS * reply - 1000);
    assert!(all.ends_with(b"x\r\nEND\r\n"));
    slow.expect("version\r\n", "VERSION ");
}

#[test]
fn connections_over_the_limit_are_told_so() {
    let server = Server::start(&["-m", "8", "-c", "2", "-t", "2"]);
    let mut first = Tcp::connect(server.tcp());
    let mut second = Tcp::connect(server.tcp());
    first.expect("version\r\n", "VERSION ");
    second.expect("version\r\n", "VERSION ");
    assert_eq!(Tcp::connect(server.tcp()).rest(), b"ERROR Too many open connections\r\n");
    second.send("quit\r\n");
    second.rest();
    // The place is free again as soon as the server has noticed.
    let deadline = Instant::now() + SOON;
    loop {
        let mut third = Tcp::connect(server.tcp());
        let _ = third.0.write_all(b"get a\r\n");
        let mut reply = [0; 5];
        if third.0.read_exact(&mut reply).is_ok() && reply == *b"END\r\n" {
            break;
        }
        assert!(Instant::now() < deadline, "the place was not given back");
        std::thread::sleep(Duration::from_millis(5));
    }
    let report = server.stop();
    assert!(report["connections"][1].as_u64().unwrap() >= 1, "{report}");
}

#[test]
fn replies_before_quit_arrive_whatever_follows_it() {
    const GETS: usize = 60;
    let server = Server::start(&["-m", "16"]);
    let mut c = Tcp::connect(server.tcp());
    c.set("big", &[b'x'; 100_000]);
    // More than the server reads at once, so that it ends the conversation with bytes unread.
    let rest = "set a 0 0 40000\r\n".to_owned() + &"y".repeat(40_000) + "\r\n";
    c.send("get big\r\n".repeat(GETS) + "quit\r\n" + &rest.repeat(3));
    let reply = "VALUE big 0 100000\r\n".len() + 100_000 + "\r\nEND\r\n".len();
    assert_eq!(c.rest().len(), GETS * reply);
}

#[test]
fn a_binary_client_is_answered_in_binary() {
    let server = Server::start(&["-m", "8"]);
    let mut c = Tcp::connect(server.tcp());
    // `noop`, then `quit`, each with an opaque of its own.
    c.send([b"\x80\x0a".as_slice(), &[0; 10], b"noop", &[0; 8]].concat());
    c.send([b"\x80\x07".as_slice(), &[0; 10], b"quit", &[0; 8]].concat());
    let noop = [b"\x81\x0a".as_slice(), &[0; 10], b"noop", &[0; 8]].concat();
    let quit = [b"\x81\x07".as_slice(), &[0; 10], b"quit", &[0; 8]].concat();
    assert_eq!(c.rest(), [noop, quit].concat());
    // A value behind a `stat` is no part of it.
    let mut c = Tcp::connect(server.tcp());
    let body = [0, 0, 0, 6];
    c.send([b"\x80\x10\0\x05\0\0\0\0".as_slice(), &body, &[0; 12], b"bogus1"].concat());
    let reply = c.rest();
    assert_eq!((&reply[..2], &reply[6..8]), (&b"\x81\x10"[..], &b"\0\x04"[..]));
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let server = Server::start(&["-m", "8"]);
    for request in ["set a 0 0 100\r\nhalf", "get", "set a 0 0 9999999\r\n", ""] {
        let mut c = Tcp::connect(server.tcp());
        c.send(request);
        c.0.shutdown(Shutdown::Write).unwrap();
        c.rest();
    }
    let mut c = Tcp::connect(server.tcp());
    c.expect("get a\r\n", "END\r\n");
    let deadline = Instant::now() + SOON;
    while !c.until_end("stats\r\n").contains("STAT curr_connections 1\r\n") {
        assert!(Instant::now() < deadline, "a connection is still counted");
    }
}

#[test]
fn many_connections_at_once() {
    let server = Server::start(&["-m", "8", "-t", "3"]);
    let mut clients: Vec<Tcp> = (0..200).map(|_| Tcp::connect(server.tcp())).collect();
    for (i, c) in clients.iter_mut().enumerate() {
        c.send(format!("set k{i} 0 0 3\r\n{i:03}\r\n"));
    }
    for c in &mut clients {
        assert_eq!(c.receive(8), b"STORED\r\n");
    }
    for (i, c) in clients.iter_mut().enumerate() {
        let j = 199 - i;
        c.expect(&format!("get k{j}\r\n"), &format!("VALUE k{j} 0 3\r\n{j:03}\r\nEND\r\n"));
    }
}

#[test]
fn requests_in_pieces_on_many_connections_do_not_mix() {
    let server = Server::start(&["-m", "8", "-t", "1"]);
    let mut clients: Vec<Tcp> = (0..30).map(|_| Tcp::connect(server.tcp())).collect();
    let request = |i: usize| format!("get none\r\nset k{i} {i} 0 40\r\n{i:040}\r\nget k{i}\r\n");
    // Every client is cut somewhere else, and each piece is taken before the next one is sent.
    for (i, c) in clients.iter_mut().enumerate() {
        c.expect(&request(i)[..20 + i], "END\r\n");
    }
    for (i, c) in clients.iter_mut().enumerate().rev() {
        let reply = format!("STORED\r\nVALUE k{i} {i} 40\r\n{i:040}\r\nEND\r\n");
        c.expect(&request(i)[20 + i..], &reply);
    }
}
