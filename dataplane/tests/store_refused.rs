//! A full store that evicts nothing, and what clients get from it: that there is no memory, and
//! never that a condition was not met.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use dataplane::commands::{Buffer, Conversation, Ctx};
use dataplane::observe::Server;
use driver_shim::Pages;
use memcache::binary::{Header, opcode};
use std::sync::Arc;
use store::{Store, StoreConfig};

const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object\r\n";

/// Asks a full store, on which `k` has this value.
fn ask(value: &str, requests: &[&[u8]]) -> Vec<Vec<u8>> {
    let config = StoreConfig {
        memory_bytes: 8 << 20,
        evict: false,
        pages: Pages::Small,
        ..StoreConfig::default()
    };
    let store = Store::new(config).unwrap();
    let mut session = store.session().unwrap();
    let server = Server::new(Arc::clone(&store), "test".to_owned());
    let ops = server.ops();
    let mut ask = |request: &[u8]| {
        let mut out = Vec::new();
        let mut ctx = Ctx::new(&mut session, &ops, &server);
        let p = Conversation::new(1 << 20).advance(
            &mut ctx,
            request,
            Buffer::new(&mut out, usize::MAX),
        );
        assert_eq!((p.consumed, p.close), (request.len(), false));
        out
    };
    let set = |key: &str, value: &str| format!("set {key} 3 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(ask(set("k", value).as_bytes()), b"STORED\r\n");
    // From the largest on, until no size finds a chunk.
    for size in [900_000, 300_000, 100_000, 30_000, 10_000, 3_000, 1_000, 300, 100, 10] {
        let value = "f".repeat(size);
        let refused = |n| ask(set(&format!("fill-{size}-{n}"), &value).as_bytes()) != b"STORED\r\n";
        assert!((0..200_000).any(refused));
    }
    requests.iter().map(|request| ask(request)).collect()
}

#[test]
fn what_finds_no_memory_to_join_is_out_of_memory_and_stays() {
    let value = "v".repeat(1_000);
    let more = "w".repeat(200_000);
    let line = |command: &str| format!("{command} k 0 0 {}\r\n{more}\r\n", more.len());
    let (append, prepend) = (line("append"), line("prepend"));
    let meta = |mode: &str| format!("ms k {} M{mode}\r\n{more}\r\n", more.len());
    let (meta_append, meta_prepend) = (meta("A"), meta("P"));
    let binary = Header::request(opcode::APPEND).packet(b"", b"k", more.as_bytes()).unwrap();
    let requests: [&[u8]; 7] = [
        append.as_bytes(),
        prepend.as_bytes(),
        meta_append.as_bytes(),
        meta_prepend.as_bytes(),
        &binary,
        b"append none 0 0 1\r\nw\r\n",
        b"get k\r\n",
    ];
    let told = ask(&value, &requests);
    let (text, rest) = told.split_at(4);
    for (n, told) in text.iter().enumerate() {
        assert_eq!(String::from_utf8_lossy(told), OUT_OF_MEMORY, "request {n}");
    }
    assert_eq!((&rest[0][..2], &rest[0][6..8]), (&b"\x81\x0e"[..], &b"\x00\x82"[..]));
    assert_eq!(&rest[0][24..], b"Out of memory allocating item");
    assert_eq!(rest[1], b"NOT_STORED\r\n", "no item is no condition met");
    assert_eq!(rest[2], format!("VALUE k 3 1000\r\n{value}\r\nEND\r\n").as_bytes());
}

/// As in memcached: whoever reads after a failed `set` must not get what its writer believes replaced.
#[test]
fn a_refused_set_takes_the_old_value_with_it_and_a_refused_replace_does_not() {
    let value = "v".repeat(1_000);
    let more = "w".repeat(200_000);
    let line = |command: &str| format!("{command} k 0 0 {}\r\n{more}\r\n", more.len());
    let (replace, set) = (line("replace"), line("set"));
    let told = ask(&value, &[replace.as_bytes(), b"get k\r\n", set.as_bytes(), b"get k\r\n"]);
    let hit = format!("VALUE k 3 1000\r\n{value}\r\nEND\r\n");
    assert_eq!(
        told,
        [OUT_OF_MEMORY, &hit, OUT_OF_MEMORY, "END\r\n"].map(|t| t.as_bytes().to_vec())
    );
}
