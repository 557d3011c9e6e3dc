//! `--profile fpga`: what it promises, and the binary protocol as it is without it.

use crate::client::{Tcp, Udp};
use crate::recorded::{cases, normal};
use crate::server::{SOON, Server, run, text};
use memcache::binary::{Header, opcode};
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::time::Duration;

fn request(opcode: u8, key: &str) -> Vec<u8> {
    Header::request(opcode).packet(b"", key.as_bytes(), b"").unwrap()
}

/// The next reply: its key and its value.
fn reply(tcp: &mut Tcp) -> (String, String) {
    let head = tcp.receive(24);
    let (header, _) = Header::split(&head)
        .map_or_else(|| panic!("no header: {head:x?}"), |(header, rest)| (header, rest.len()));
    let body = text(&tcp.receive(header.body_bytes as usize));
    let (key, value) = body.split_at(usize::from(header.key_bytes));
    (key.to_owned(), value.to_owned())
}

/// Chunk sizes and pages of the classes, as `stats slabs` has them.
fn slabs(server: &Server) -> Vec<(String, String)> {
    let mut tcp = Tcp::connect(server.tcp());
    tcp.send(request(opcode::STAT, "slabs"));
    let mut classes: BTreeMap<u32, (String, String)> = BTreeMap::new();
    loop {
        let (name, value) = reply(&mut tcp);
        if name.is_empty() {
            return classes.into_values().collect();
        }
        if let Some((class, name)) = name.split_once(':') {
            let class = classes.entry(class.parse().unwrap()).or_default();
            match name {
                "chunk_size" => class.0 = value,
                "total_pages" => class.1 = value,
                _ => {}
            }
        }
    }
}

/// Every recorded conversation, over TCP: the answer, and what becomes of the connection.
#[test]
fn the_binary_protocol_is_answered_as_memcached_answers_it() {
    let server = Server::start(&["--profile", "fpga"]);
    for case in cases().into_iter().filter(|case| case.name != "version") {
        let mut flush = Tcp::connect(server.tcp());
        flush.send(request(opcode::FLUSH, ""));
        flush.receive(24);
        let mut tcp = Tcp::connect(server.tcp());
        tcp.send(&case.sent);
        let mut answer = Vec::new();
        if !case.closed {
            answer = tcp.receive(case.answer.len());
            tcp.0.shutdown(Shutdown::Write).unwrap();
        }
        answer.extend(tcp.rest());
        assert_eq!(normal(&answer), case.answer, "{}", case.name);
    }
    assert_eq!(server.stop()["received"], 0);
}

#[test]
fn datagrams_are_answered_and_text_is_not() {
    let server = Server::start(&["--profile", "fpga"]);
    let udp = Udp::to(server.udp());
    let wanted = cases().into_iter().find(|case| case.name == "set and every get").unwrap();
    // More than a batch at once.
    (0..20).for_each(|id| udp.send(id, &wanted.sent));
    for _ in 0..20 {
        let got = udp.receive(SOON).expect("an answer");
        assert_eq!(normal(&got[8..]), wanted.answer);
    }
    udp.send(1, "get k\r\n");
    assert_eq!(udp.receive(Duration::from_millis(300)), None);
    assert_eq!(server.stop()["received"], 21);
}

#[test]
fn classes_have_the_pages_of_the_flags() {
    let own = Server::start(&["--slab-pages", "64:2,128:8,1k:1", "-B", "binary"]);
    let have = slabs(&own);
    let have: Vec<_> = have.iter().map(|(size, pages)| (&size[..], &pages[..])).collect();
    assert_eq!(have, [("64", "2"), ("128", "8"), ("1024", "1")]);
    let profile = Server::start(&["--profile", "fpga", "-m", "30"]);
    let classes = slabs(&profile);
    let sizes: Vec<usize> = classes.iter().map(|(size, _)| size.parse().unwrap()).collect();
    assert_eq!(sizes, (6..=20).map(|power| 1 << power).collect::<Vec<_>>());
    assert!(classes.iter().all(|(_, pages)| pages == "1"), "{classes:?}");
}

#[test]
fn what_it_stands_for_is_shown_and_touches_nothing() {
    let stands_for = "fpga: -B binary, UDP, -f 2, --slab-pages 64:1,128:1,256:1,";
    for args in [&["serve", "--dry-run"][..], &["check", "--huge", "off"]] {
        let out = run(&[args, &["--profile", "fpga", "-m", "30", "-p", "-1"]].concat());
        let said = text(&out.stdout);
        assert!(said.contains(stands_for), "{args:?}: {said}");
        assert!(said.contains("--evict round-robin, --batch 1"), "{args:?}: {said}");
    }
}
