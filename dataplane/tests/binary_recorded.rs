//! What memcached 1.6.18 answered to binary requests, byte for byte, and what is answered here.
//!
//! `binary_recorded.txt` is written by `tests/e2e/record_binary.py`, which also says its form. CAS
//! ids are numbers of each server's own: they are compared by their order of appearance.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use dataplane::commands::{Conversation, Ctx};
use dataplane::observe::Server;
use driver_shim::Pages;
use memcache::binary::Header;
use std::sync::Arc;
use store::{Store, StoreConfig};

const RECORDED: &str = include_str!("binary_recorded.txt");
const ITEM_MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
struct Case {
    name: &'static str,
    sent: Vec<u8>,
    answer: Vec<u8>,
    closed: bool,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in RECORDED.lines().skip(1) {
        let (mark, text) = line.split_at(1);
        let text = text.trim_start();
        if mark == "#" {
            cases.push(Case { name: text, ..Case::default() });
        }
        let case = cases.last_mut().expect("a name comes first");
        match mark {
            "#" => {}
            ">" => case.sent = bytes(text),
            "<" => case.answer = bytes(text),
            "=" => case.closed = text == "closed",
            other => panic!("a line that begins with {other}"),
        }
    }
    cases
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The answer with CAS ids numbered from 1.
fn normal(answer: &[u8]) -> Vec<u8> {
    let (mut seen, mut normal, mut rest) = (Vec::new(), Vec::new(), answer);
    while let Some((mut header, body)) = Header::split(rest) {
        if header.cas != 0 {
            let place = seen.iter().position(|&cas| cas == header.cas).unwrap_or_else(|| {
                seen.push(header.cas);
                seen.len() - 1
            });
            header.cas = place as u64 + 1;
        }
        let (body, more) = body.split_at(header.body_bytes as usize);
        normal.extend_from_slice(&header.bytes());
        normal.extend_from_slice(body);
        rest = more;
    }
    assert!(rest.is_empty(), "half a packet: {rest:x?}");
    normal
}

#[test]
fn every_recorded_answer_is_ours_too() {
    let config =
        StoreConfig { memory_bytes: 16 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let server = Server::new(Arc::clone(&store), "1.6.18".to_owned());
    let mut session = store.session().unwrap();
    let ops = server.ops();
    let cases = cases();
    assert!(cases.len() > 100, "{} cases", cases.len());
    for case in cases {
        // Whole, and byte by byte.
        for piece in [case.sent.len(), 1] {
            let mut conversation = Conversation::new(ITEM_MAX_BYTES);
            let (mut waiting, mut out, mut closed) = (Vec::new(), Vec::new(), false);
            for piece in case.sent.chunks(piece) {
                waiting.extend_from_slice(piece);
                let mut ctx = Ctx::new(&mut session, &ops, &server);
                let progress = conversation.advance(&mut ctx, &waiting, &mut out, 1 << 24);
                waiting.drain(..progress.consumed);
                closed |= progress.close;
                if closed {
                    break;
                }
            }
            let (ours, theirs) = (normal(&out), case.answer.clone());
            assert_eq!(ours, theirs, "{}: ours left, theirs right", case.name);
            assert_eq!(closed, case.closed, "{}: closed", case.name);
            session.store().flush(0);
        }
    }
}
