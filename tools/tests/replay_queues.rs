//! The player over the queues of a port: a port in memory whose far side is a server, one that
//! keeps count of what it may answer.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

mod common;
use common::*;
use driver_shim::{Burst, Frame, MacAddr, Pages, QueuePair, Region, RxQueue, TxQueue};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tools::replay::queues::Queues;
use tools::replay::{Plan, play};
use tools::trace::{Asked, Datagram, Envelope, Reader, Request, Trace};

/// The wire between the player and the server.
struct Wire {
    region: Region,
    store: Store,
    /// Answers, and when they may arrive.
    answers: VecDeque<(Frame, Instant)>,
    /// Stations that frames were sent to.
    stations: Vec<MacAddr>,
    /// Frames that were no requests.
    refused: u64,
    delay: Duration,
}

struct Tx(Arc<Mutex<Wire>>);
struct Rx(Arc<Mutex<Wire>>);

impl TxQueue for Tx {
    fn burst(&mut self, from: &mut Burst) -> usize {
        let mut wire = self.0.lock().unwrap();
        let taken = from.len().min(16);
        for mut frame in from.drain(..taken) {
            let to = MacAddr(*frame.bytes().first_chunk().unwrap_or(&[0; 6]));
            if !wire.stations.contains(&to) {
                wire.stations.push(to);
            }
            let request = Request::parse(frame.bytes()).filter(|r| r.asked != Asked::Other);
            let Some(request) = request else {
                wire.refused += 1;
                continue;
            };
            let Datagram { src, dst, payload } = request.datagram;
            let text = wire.store.answer(&frame.bytes()[payload.start + 8..payload.end]);
            // The answers go back in fresh slots but the first, which takes the request's.
            let mut own = Some(frame.fill(&[]).map(|()| frame).unwrap());
            let back = Envelope {
                src_mac: MacAddr([9; 6]),
                dst_mac: MacAddr([8; 6]),
                vlan: None,
                server: src,
            };
            for d in datagrams(request.id.to_be_bytes(), &text, 1392) {
                let mut out = own.take().or_else(|| wire.region.alloc()).unwrap();
                out.fill(&back.frame(dst, &d).to_vec().unwrap()).unwrap();
                let when = Instant::now() + wire.delay;
                wire.answers.push_back((out, when));
            }
        }
        taken
    }
}

impl RxQueue for Rx {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let mut wire = self.0.lock().unwrap();
        let mut got = 0;
        while !into.is_full() && wire.answers.front().is_some_and(|(_, t)| *t <= Instant::now()) {
            into.extend(wire.answers.pop_front().map(|(f, _)| f));
            got += 1;
        }
        got
    }
}

fn wire(delay: Duration) -> (Queues, Arc<Mutex<Wire>>, Region) {
    wire_to(delay, None)
}

fn wire_to(delay: Duration, mac: Option<MacAddr>) -> (Queues, Arc<Mutex<Wire>>, Region) {
    let region = Region::new(4_096, Pages::Small).unwrap();
    let wire = Arc::new(Mutex::new(Wire {
        region: region.clone(),
        store: Store::default(),
        answers: VecDeque::new(),
        stations: Vec::new(),
        refused: 0,
        delay,
    }));
    let pair =
        QueuePair { rx: Box::new(Rx(Arc::clone(&wire))), tx: Box::new(Tx(Arc::clone(&wire))) };
    (Queues::new(pair, region.clone(), mac), wire, region)
}

#[test]
fn frames_go_out_as_they_are_and_only_requests_expect_an_answer() {
    for base in [trace(), over_ipv6(trace())] {
        let dir = tempfile::tempdir().unwrap();
        let mut t = Trace { preload: true, corrupt: 0.2, ..base };
        t.workload.multi_get = 8;
        t.workload.get_ratio = 0.8;
        let (path, summary) = write(dir.path(), "t.pcapng", &t);
        let (mut link, wire, region) = wire(Duration::ZERO);
        let plan = Plan { expect_hits: true, outstanding: 100, ..Plan::default() };
        let r = play(&mut Reader::open(&path).unwrap(), &mut link, &plan, |_| ()).unwrap();
        assert_eq!((r.gets, r.sets), (summary.gets, summary.sets + summary.preload_sets));
        assert_eq!(r.others, summary.corrupt_total());
        assert_eq!((r.answered, r.lost, r.wrong_total(), r.unexpected), (r.sent, 0, 0, 0), "{r}");
        assert_eq!(r.hits, summary.keys_asked);
        assert!(r.in_pieces > 0);
        assert_eq!(wire.lock().unwrap().refused, summary.corrupt_total());
        drop(link);
        assert_eq!(region.available(), region.capacity(), "every slot came home");
    }
}

#[test]
fn frames_can_be_sent_to_another_station() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = write(dir.path(), "t.pcap", &trace());
    for (mac, seen) in [(None, trace().envelope.dst_mac), (Some(MacAddr([6; 6])), MacAddr([6; 6]))]
    {
        let (mut link, wire, _) = wire_to(Duration::ZERO, mac);
        play(&mut Reader::open(&path).unwrap(), &mut link, &Plan::default(), |_| ()).unwrap();
        assert_eq!(wire.lock().unwrap().stations, [seen]);
    }
}

#[test]
fn late_answers_are_lost_and_late() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = write(dir.path(), "t.pcap", &trace());
    // All are given up before the first answer comes; the player then stays for 50 ms of quiet.
    let (mut link, ..) = wire(Duration::from_millis(60));
    let plan = Plan {
        limit: Some(100),
        timeout: Duration::from_millis(30),
        outstanding: 100,
        ..Plan::default()
    };
    let r = play(&mut Reader::open(&path).unwrap(), &mut link, &plan, |_| ()).unwrap();
    // A player that was kept from running may have taken an answer before it gave up.
    assert_eq!((r.sent, r.late, r.answered), (100, r.lost, 100 - r.lost), "{r}");
    assert!(r.lost > 0);
}

#[test]
fn latency_counts_from_when_a_request_was_due() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = write(dir.path(), "t.pcap", &trace());
    // One on its way at a time, 5 ms each, but due every millisecond: the 40th is about 160 ms
    // behind, though each answer took 5 ms.
    let (mut link, ..) = wire(Duration::from_millis(5));
    let plan = Plan { rate: Some(1_000.0), limit: Some(40), outstanding: 1, ..Plan::default() };
    let r = play(&mut Reader::open(&path).unwrap(), &mut link, &plan, |_| ()).unwrap();
    assert_eq!(r.answered, 40);
    assert!(r.latency_ns.max() >= 155_000_000, "{}", r.latency_ns.max());
    assert!(r.latency_ns.min() < r.latency_ns.max() / 2, "{}", r.latency_ns.min());
}
