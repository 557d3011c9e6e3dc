//! Captures beside the journey: what was copied is what went by, and nothing went otherwise.

use crate::world::{CLIENT_PORT, PORT, SERVER4, World, Wrap, datagram, request};
use dataplane::capture::{Capture, Filter, KeyPattern, NotHeeded, Record, Seen, What};
use dataplane::policy::Policy;
use driver_shim::ports::memory::{MAC, PEER_MAC};
use std::num::{NonZeroU8, NonZeroU32};
use std::sync::Arc;
use wire::DropReason;
use wire::build::{UdpFrame, arp_request};
use wire::{AllowList, Cidr};

const ALL: Filter = Filter { what: What::Traffic, source: None, key: None, snap_bytes: 2048 };

fn begin(w: &mut World, filter: Filter, records: usize) -> Arc<Capture> {
    let capture = Arc::new(Capture::new(NonZeroU8::MIN, filter, 1, records).unwrap());
    let line = w.workers[0].capture_channel();
    line.order(Some(Arc::clone(&capture))).unwrap();
    w.settle();
    assert!(line.is_acknowledged());
    capture
}

fn end(w: &mut World, capture: Arc<Capture>) {
    w.workers[0].capture_channel().order(None).unwrap();
    w.settle();
    assert!(Arc::into_inner(capture).is_some(), "the worker has dropped it");
}

fn taken(capture: &Capture) -> Vec<Record> {
    std::iter::from_fn(|| capture.take()).collect()
}

/// Sends a request and gives what came back, frame by frame.
fn exchange(w: &mut World, frame: &[u8]) -> Vec<Vec<u8>> {
    w.send(frame);
    w.settle();
    w.received(0).iter().map(|f| f.bytes().to_vec()).collect()
}

#[test]
fn what_came_and_what_left_byte_for_byte() {
    let mut w = World::new();
    assert!(!exchange(&mut w, &request(Wrap::V4, 1, b"set k 0 0 1\r\nx\r\n")).is_empty());
    let capture = begin(&mut w, ALL, 64);
    let value = "v".repeat(3000);
    let big = |name: &str| format!("set {name} 0 0 1200\r\n{}\r\n", &value[..1200]);
    let mut expected: Vec<(Seen, Vec<u8>)> = Vec::new();
    for (wrap, text) in [
        (Wrap::V4, "get k\r\n"),
        (Wrap::V6, "get k none\r\n"),
        (Wrap::QinQ6, "set k 0 0 1\r\ny\r\n"),
        (Wrap::Vlan4, "delete none noreply\r\n"),
        (Wrap::V4, &big("a")),
        (Wrap::V4, &big("b")),
        // Of several datagrams.
        (Wrap::V4, "get a b\r\n"),
    ] {
        let request = request(wrap, 7, text.as_bytes());
        let replies = exchange(&mut w, &request);
        expected.push((Seen::Received, request));
        expected.extend(replies.into_iter().map(|r| (Seen::Sent, r)));
    }
    let arp = arp_request(PEER_MAC, [10, 0, 0, 1].into(), SERVER4.into());
    let answer = exchange(&mut w, &arp);
    assert_eq!(answer.len(), 1);
    expected.push((Seen::Received, arp));
    expected.push((Seen::Sent, answer[0].clone()));
    assert_eq!(expected.len(), 7 + 5 + 2 + 2);
    let records = taken(&capture);
    let got: Vec<_> = records.iter().map(|r| (r.seen, r.bytes.clone())).collect();
    assert!(got == expected, "{got:x?}\n{expected:x?}");
    assert!(records.is_sorted_by_key(|r| r.at_ns));
    assert!(records.iter().all(|r| r.len == r.bytes.len() && r.port == 0));
    let tally = &capture.tallies()[0];
    assert_eq!((tally.received.get(), tally.wanted.get(), tally.lost.get()), (8, 16, 0));
    end(&mut w, capture);
    w.end();
}

#[test]
fn a_key_selects_requests_and_their_replies() {
    let mut w = World::new();
    exchange(&mut w, &request(Wrap::V4, 1, b"set user:1 0 0 1\r\nx\r\n"));
    let key = Some(KeyPattern::new(b"user:*").unwrap());
    let capture = begin(&mut w, Filter { key: key.clone(), ..ALL }, 64);
    let wanted = request(Wrap::V4, 2, b"get user:1\r\n");
    // A miss: no key in the reply.
    let missed = request(Wrap::V6, 3, b"get user:none\r\n");
    exchange(&mut w, &request(Wrap::V4, 1, b"get other\r\n"));
    let hit = exchange(&mut w, &wanted);
    exchange(&mut w, &request(Wrap::V4, 1, b"set other 0 0 1\r\nx\r\n"));
    let miss = exchange(&mut w, &missed);
    let got: Vec<Vec<u8>> = taken(&capture).into_iter().map(|r| r.bytes).collect();
    assert_eq!(got, [wanted.clone(), hit[0].clone(), missed, miss[0].clone()]);
    end(&mut w, capture);
    // Only the replies, and the beginning of each.
    let replies = Filter { what: What::Replies, key, snap_bytes: 50, ..ALL };
    let capture = begin(&mut w, replies, 64);
    let hit = exchange(&mut w, &wanted);
    let [record] = &taken(&capture)[..] else { panic!("one record") };
    assert_eq!((record.seen, record.len), (Seen::Sent, hit[0].len()));
    assert_eq!(record.bytes, hit[0][..50]);
    end(&mut w, capture);
    w.end();
}

#[test]
fn what_is_dropped_is_captured_as_it_came() {
    let allow: AllowList = std::iter::once("192.0.2.0/24".parse::<Cidr>().unwrap()).collect();
    let policy = Policy { amp_factor: NonZeroU32::MIN, ..Policy::default() };
    let mut w = World::policed(&allow, policy);
    let from = |source: [u8; 4], text: &[u8]| {
        UdpFrame {
            src_mac: PEER_MAC,
            dst_mac: MAC,
            vlans: &[],
            src: (source, CLIENT_PORT).into(),
            dst: (SERVER4, PORT).into(),
            payload: &datagram(7, text),
        }
        .to_vec()
        .unwrap()
    };
    let mut broken = request(Wrap::V4, 1, b"get k\r\n");
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let frames = [
        (from([203, 0, 113, 1], b"get k\r\n"), DropReason::SourceNotAllowed),
        (broken, DropReason::UdpChecksum),
        // Even a refusal is more than this may get.
        (from([192, 0, 2, 1], b"get k\r\nget k\r\nx"), DropReason::Amplification),
        (request(Wrap::V4, 1, b"get k\r\n")[..30].to_vec(), DropReason::Ipv4Truncated),
    ];
    let capture = begin(&mut w, Filter { what: What::Drops(None), ..ALL }, 64);
    for (frame, _) in &frames {
        assert!(exchange(&mut w, frame).is_empty());
        assert!(!exchange(&mut w, &request(Wrap::V4, 1, b"get k\r\n")).is_empty());
    }
    let got: Vec<_> = taken(&capture).into_iter().map(|r| (r.seen, r.bytes)).collect();
    let expected: Vec<_> =
        frames.iter().map(|(frame, why)| (Seen::Dropped(*why), frame.clone())).collect();
    assert_eq!(got, expected);
    end(&mut w, capture);
    let one = What::Drops(Some(DropReason::UdpChecksum));
    let source = Some("10.0.0.0/8".parse().unwrap());
    let capture = begin(&mut w, Filter { what: one, source, ..ALL }, 64);
    for (frame, _) in &frames {
        exchange(&mut w, frame);
    }
    let got: Vec<_> = taken(&capture).into_iter().map(|r| (r.seen, r.bytes)).collect();
    assert_eq!(got, [(Seen::Dropped(DropReason::UdpChecksum), frames[1].0.clone())]);
    end(&mut w, capture);
    w.end();
}

#[test]
fn whoever_is_too_slow_loses_copies_and_delays_nothing() {
    let mut w = World::new();
    let capture = begin(&mut w, ALL, 5);
    let ask = request(Wrap::V4, 1, b"get k\r\n");
    for _ in 0..10 {
        assert_eq!(exchange(&mut w, &ask).len(), 1);
    }
    let records = taken(&capture);
    assert_eq!(records.len(), 5);
    let tally = &capture.tallies()[0];
    assert_eq!((tally.received.get(), tally.wanted.get(), tally.lost.get()), (10, 20, 15));
    for record in records {
        capture.give_back(record);
    }
    exchange(&mut w, &ask);
    assert_eq!(taken(&capture).len(), 2);
    end(&mut w, capture);
    exchange(&mut w, &ask);
    w.end();
}

#[test]
fn a_worker_that_stands_still_is_told_so_much_and_no_more() {
    let w = World::new();
    let line = w.workers[0].capture_channel();
    assert_eq!((line.order(None), line.order(None)), (Ok(()), Ok(())));
    assert_eq!(line.order(None), Err(NotHeeded));
    assert!(!line.is_acknowledged());
    w.end();
}
