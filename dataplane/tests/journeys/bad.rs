//! Bad frames are dropped, each under its own name, and hurt nobody else.

use crate::world::{CLIENT_PORT, PORT, World, Wrap, frame, request};
use std::collections::BTreeMap;
use wire::DropReason;
use wire::corrupt::Corruption;

#[test]
fn one_frame_in_ten_is_bad_in_every_way_there_is() {
    let mut w = World::new();
    assert_eq!(w.ask(b"set k 0 0 5\r\nhello\r\n"), b"STORED\r\n");
    let (mut good, mut bad) = (1, BTreeMap::new());
    for wrap in Wrap::ALL {
        for (n, way) in Corruption::ALL.into_iter().enumerate() {
            for id in 0..9 {
                w.send(&request(wrap, id, b"get k\r\n"));
                good += 1;
            }
            let mut spoiled = request(wrap, 9, b"get k\r\n");
            if way.apply(&mut spoiled) {
                w.send(&spoiled);
                *bad.entry(way.reason() as u8).or_insert(0) += 1;
            }
            if n % 8 == 0 {
                w.settle();
            }
        }
    }
    w.settle();
    for f in w.received(0) {
        // Every reply is whole and right; which wrapping it has shows in its length.
        assert!(
            f.bytes().ends_with(b"VALUE k 0 5\r\nhello\r\nEND\r\n")
                || f.bytes().ends_with(b"STORED\r\n")
        );
    }
    let ledger = w.end();
    assert_eq!(ledger.answered, good);
    for (reason, &count) in ledger.dropped.iter() {
        let want = bad.get(&(reason as u8)).copied().unwrap_or(0);
        assert_eq!(count, want, "{}", reason.name());
    }
    assert!(bad.len() >= 20, "few reasons were tried: {bad:?}");
}

#[test]
fn every_cut_of_a_request_is_dropped_or_answered() {
    let mut w = World::new();
    for wrap in Wrap::ALL {
        let whole = request(wrap, 1, b"get k\r\n");
        for len in 1..whole.len() {
            w.send(&whole[..len]);
        }
        w.settle();
        assert!(w.received(0).is_empty(), "a cut frame was answered");
    }
    let ledger = w.end();
    assert_eq!(ledger.answered, 0);
}

#[test]
fn empty_and_headerless_datagrams() {
    let mut w = World::new();
    for payload in [&b""[..], b"\0", b"\0\x01\0\0\0\x01\0", b"\0\x01\0\0\0\x01\0\0"] {
        w.send(&frame(Wrap::V4, CLIENT_PORT, PORT, payload));
    }
    w.send(&frame(Wrap::V4, CLIENT_PORT, PORT, b"\0\x01\0\0\0\x02\0\0get k\r\n"));
    w.send(&frame(Wrap::V4, CLIENT_PORT, PORT + 1, b"\0\x01\0\0\0\x01\0\0get k\r\n"));
    w.settle();
    assert!(w.received(0).is_empty());
    assert_eq!(w.dropped(DropReason::KvFrameShort), 4);
    assert_eq!(w.dropped(DropReason::KvMultipart), 1);
    assert_eq!(w.dropped(DropReason::NoExceptionPath), 1);
    w.end();
}

#[test]
fn a_full_wire_drops_replies_by_name() {
    let mut w = World::new();
    // The client does not read, and its end of the wire holds 2,048 frames.
    for n in 0..2_500 {
        w.send(&request(Wrap::V4, n, b"get k\r\n"));
        if n % 500 == 0 {
            w.settle();
        }
    }
    w.settle();
    assert_eq!(w.received(0).len(), 2_048);
    assert_eq!(w.dropped(DropReason::TxFull), 452);
    assert_eq!(w.end().answered, 2_048);
}
