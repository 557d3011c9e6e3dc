//! The holes that others' memcached parsers had, one test each: none of them is here.
//!
//! Parsers may see any bytes. They never panic (a panic fails the test), never wait for more than
//! one item, never have more thrown away than a request announced, and never take bytes from
//! beyond the input. The UDP ones go through a whole worker, in `journeys/vulnerabilities.rs`.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use dataplane::commands::{Buffer, Conversation, Ctx};
use dataplane::observe::Server;
use driver_shim::Pages;
use memcache::binary::{self, HEADER_BYTES, Header, REQUEST_MAGIC, opcode};
use memcache::{KEY_MAX_BYTES, Parsed, Refused, Verb};
use proptest::prelude::*;
use std::sync::Arc;
use store::{Store, StoreConfig};

const ITEM_MAX_BYTES: usize = 1 << 20;

/// Where lengths begin to go wrong: signs, and what the parts add to them.
const BODY_LENGTHS: [u32; 17] = [
    0,
    1,
    7,
    8,
    9,
    20,
    250,
    251,
    0xFFFF,
    0x1_0000,
    0x7FFF_FFFE,
    0x7FFF_FFFF,
    0x8000_0000,
    0x8000_0001,
    0xFFFF_FFE7,
    0xFFFF_FFFE,
    0xFFFF_FFFF,
];

fn packet(opcode: u8, key_bytes: u16, extras_bytes: u8, body_bytes: u32) -> Vec<u8> {
    let opaque = *b"mark";
    let header = Header { key_bytes, extras_bytes, body_bytes, opaque, ..Header::request(opcode) };
    let mut packet = header.bytes().to_vec();
    packet.resize(HEADER_BYTES + usize::from(extras_bytes) + usize::from(key_bytes) + 300, b'x');
    packet
}

/// The invariant that holds whatever the lengths say.
fn check_lengths(opcode: u8, key_bytes: u16, extras_bytes: u8, body_bytes: u32, come: usize) {
    let packet = packet(opcode, key_bytes, extras_bytes, body_bytes);
    let input = &packet[..come.min(packet.len())];
    let parts = usize::from(extras_bytes) + usize::from(key_bytes);
    let body = body_bytes as usize;
    match binary::parse(input, ITEM_MAX_BYTES) {
        Parsed::Incomplete { at_least } => {
            assert!(at_least > input.len());
            // Never more than a header, its parts, and one item.
            assert!(at_least <= HEADER_BYTES + parts + ITEM_MAX_BYTES);
            assert!(at_least <= HEADER_BYTES + parts.max(body));
        }
        Parsed::Swallow { command, used, skip } => {
            assert_eq!(used + skip, HEADER_BYTES + body);
            assert!(body <= i32::MAX as usize && key_bytes as usize <= KEY_MAX_BYTES);
            assert!(matches!(command.verb, Verb::Refused(Refused { close: false, .. })));
        }
        Parsed::Command { command, used } => {
            assert!(used <= input.len());
            if let Verb::Refused(Refused { close, .. }) = command.verb {
                assert!(close, "a refusal that goes on says how far");
            } else {
                // Carried out: extras and key lie in the body, and the body in what has come.
                assert!(parts <= body && usize::from(key_bytes) <= KEY_MAX_BYTES);
                assert_eq!(used, HEADER_BYTES + body);
            }
        }
        other => panic!("{other:?}"),
    }
}

/// CVE-2016-8704, -8705, -8706 (lengths of append, of updates, of SASL), CVE-2011-4971 (a
/// negative body), CVE-2020-10931 (extras longer than their buffer), and a body above 2^31.
#[test]
fn binary_lengths_at_every_boundary() {
    for opcode in 0..=255 {
        for key_bytes in [0, 1, 5, 249, 250, 251, 252, 255, 256, 0x7FFF, 0xFFFF] {
            for extras_bytes in [0, 1, 3, 4, 5, 8, 9, 19, 20, 21, 24, 127, 128, 255] {
                for body_bytes in BODY_LENGTHS {
                    check_lengths(opcode, key_bytes, extras_bytes, body_bytes, usize::MAX);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn binary_lengths_of_every_size(
        opcode in any::<u8>(),
        key_bytes in prop_oneof![any::<u16>(), 0u16..300],
        extras_bytes in prop_oneof![any::<u8>(), Just(0), Just(4), Just(8), Just(20)],
        body_bytes in prop_oneof![any::<u32>(), 0u32..600, 0x7FFF_FF00u32..0x8000_0100],
        come in prop_oneof![Just(usize::MAX), 0usize..400],
    ) {
        check_lengths(opcode, key_bytes, extras_bytes, body_bytes, come);
    }
}

/// A client at a server with items of at most `ITEM_MAX_BYTES`.
fn converse(pieces: &[&[u8]]) -> (Vec<u8>, bool, usize) {
    let config =
        StoreConfig { memory_bytes: 8 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let server = Server::new(Arc::clone(&store), "test".to_owned());
    let mut session = store.session().unwrap();
    let ops = server.ops();
    let mut conversation = Conversation::new(ITEM_MAX_BYTES);
    let (mut input, mut out) = (Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let mut ctx = Ctx::new(&mut session, &ops, &server);
            let progress = conversation.advance(&mut ctx, &input, Buffer::new(&mut out, 1 << 24));
            input.drain(..progress.consumed);
            if progress.close {
                return (out, true, conversation.wants());
            }
            if !progress.more {
                break;
            }
        }
    }
    (out, false, conversation.wants())
}

fn text(pieces: &[&[u8]]) -> (String, bool) {
    let (out, closed, _) = converse(pieces);
    (String::from_utf8(out).unwrap(), closed)
}

/// A body above 2^31 bytes: memcached lost its place in the stream. Here the connection ends, and
/// nothing of the body is obeyed.
#[test]
fn a_body_of_two_gigabytes_and_more_ends_the_connection() {
    let set = [&[REQUEST_MAGIC, opcode::SET, 0, 1, 8, 0, 0, 0][..], &[0; 16], &[0; 8], b"k"];
    for (length, goes_on) in
        [(0x7FFF_FFFFu32, true), (0x8000_0000, false), (0x8000_0008, false), (u32::MAX, false)]
    {
        let mut set = set.concat();
        set[8..12].copy_from_slice(&length.to_be_bytes());
        let noop = [&[REQUEST_MAGIC, opcode::NOOP][..], &[0; 22]].concat();
        let (out, closed, wants) = converse(&[&set, &noop, &noop]);
        // Where it goes on, it is said behind all of the body.
        let said = out.get(HEADER_BYTES..).unwrap_or_default();
        assert_eq!(said, if goes_on { &b""[..] } else { b"Too large." }, "{length:#x}");
        assert_eq!(out.is_empty(), goes_on, "{length:#x}");
        assert_eq!((closed, wants), (!goes_on, 0), "{length:#x}");
    }
}

/// CVE-2023-46852: a get with many blanks.
#[test]
fn a_get_of_fifteen_hundred_blanks() {
    let blanks = b" ".repeat(1500);
    let keyless = [b"get", &blanks[..], b"\r\n"].concat();
    assert_eq!(text(&[&keyless]), ("ERROR\r\n".to_owned(), false));
    let spread = [b"get", &blanks[..], b"a", &blanks, b"b", &blanks, b"\r\n"].concat();
    assert_eq!(text(&[&spread]), ("END\r\n".to_owned(), false));
    let long = [b"get", &b" ".repeat(1 << 21)[..]].concat();
    assert_eq!(text(&[&long]), (String::new(), true));
    // And nothing but blanks, with an end and without.
    assert_eq!(text(&[&b" ".repeat(2000), b"\n"]), ("ERROR\r\n".to_owned(), false));
    assert_eq!(text(&[&b" ".repeat(3000)]), (String::new(), true));
}

/// CVE-2023-46853: a line that ends in a bare `\n`.
#[test]
fn bare_line_ends() {
    let (out, closed) = text(&[b"set a 0 0 1\nx\r\nget a\nget a\r\nversion\n"]);
    let value = "VALUE a 0 1\r\nx\r\nEND\r\n";
    assert_eq!((out, closed), (format!("STORED\r\n{value}{value}VERSION test\r\n"), false));
    // A value ends in both, though.
    let (out, _) = text(&[b"set a 0 0 1\r\nx\n\nget a\r\n"]);
    assert!(out.starts_with("CLIENT_ERROR bad data chunk\r\n"), "{out}");
    assert_eq!(text(&[b"\n", b"\r\n", b"\r\r\n"]).0, "ERROR\r\n".repeat(3));
}

/// CVE-2020-22570 and its relatives: words that are missing, empty, too many or too long.
#[test]
fn words_that_are_missing_empty_or_huge() {
    let verbs = [
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "replace",
        "append",
        "prepend",
        "cas",
        "delete",
        "incr",
        "decr",
        "touch",
        "flush_all",
        "verbosity",
        "stats",
        "mg",
        "ms",
        "md",
        "ma",
        "mn",
        "me",
        "lru",
        "slabs",
        "watch",
        "shutdown",
        "cache_memlimit",
        "lru_crawler",
        "",
    ];
    for verb in verbs {
        for more in [
            "",
            " ",
            " a",
            "  a  ",
            " a a",
            " a 0 0 -1",
            " a 0 0 2147483647",
            " a 1 2 3 4 5 6 7 8 9 10",
        ] {
            for end in ["\r\n", "\n"] {
                // Whatever it is answered, the next command is read, or the line's block is awaited.
                let line = format!("{verb}{more}{end}");
                let (_, _, wants) = converse(&[line.as_bytes(), b"version\r\n"]);
                assert!(wants <= ITEM_MAX_BYTES + line.len() + 2, "{line:?} waits for {wants}");
            }
        }
        let huge = format!("{verb} {}\r\n", "k".repeat(100_000));
        assert_eq!(converse(&[huge.as_bytes(), b"version\r\n"]).2, 0, "{verb} waits");
        let endless = format!("{verb} {}", "k".repeat(2 << 20));
        assert!(converse(&[endless.as_bytes()]).1, "{verb} without an end is followed for ever");
    }
}

/// Numbers that do not fit, or wrap when something is added to them.
#[test]
fn ascii_lengths_at_every_boundary() {
    for length in [
        "-1",
        "-2147483648",
        "2147483646",
        "2147483647",
        "2147483648",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "18446744073709551616",
    ] {
        for verb in ["set", "add", "append"] {
            let line = format!("{verb} k 0 0 {length}\r\n");
            let (out, closed, wants) = converse(&[line.as_bytes()]);
            let out = String::from_utf8(out).unwrap();
            assert!(out.contains("ERROR"), "{line:?} is answered {out:?}");
            assert!(!closed && wants == 0, "{line:?} waits for {wants}");
        }
    }
}

/// CVE-2018-1000127 and the overflow of 2026: one item referred to more often than a counter of 16
/// bits can count.
#[test]
fn one_key_seventy_thousand_times_in_one_get() {
    let get = [b"get", &b" k".repeat(70_000)[..], b"\r\n"].concat();
    let (out, closed) = text(&[b"set k 0 0 1\r\nx\r\n", &get, b"get k\r\n"]);
    assert!(!closed);
    assert_eq!(out.matches("VALUE k 0 1\r\nx\r\n").count(), 70_001);
    // In the binary protocol every one of them is a request.
    let getq = [&[REQUEST_MAGIC, opcode::GETQ, 0, 1][..], &[0; 7], &[1], &[0; 12], b"k"].concat();
    let set =
        [&[REQUEST_MAGIC, opcode::SETQ, 0, 1, 8][..], &[0; 6], &[10], &[0; 20], b"kx"].concat();
    let (out, closed, _) = converse(&[&set, &getq.repeat(70_000)]);
    assert_eq!((out.len(), closed), (70_000 * (HEADER_BYTES + 5), false));
}

/// Any bytes at all, cut anywhere: no panic, and nobody waits for more than an item.
#[test]
fn any_bytes_in_either_dialect() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let dialect = prop_oneof![Just(&b""[..]), Just(&[REQUEST_MAGIC][..]), Just(&b"set k 0 0 "[..])];
    let bytes = prop::collection::vec(any::<u8>(), 0..600);
    let words = vec![&b"get "[..], b"set k 0 0 9\r\n", b"\r\n", b" "];
    let word = prop::sample::select(words);
    runner
        .run(&(dialect, bytes, word, 0usize..600), |(dialect, bytes, word, cut)| {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let (_, _, wants) = converse(&[dialect, first, word, second]);
            // A header's parts may be 65 kB, and an item is at most what it may be.
            prop_assert!(wants <= ITEM_MAX_BYTES + (1 << 17), "waits for {}", wants);
            Ok(())
        })
        .unwrap();
}
