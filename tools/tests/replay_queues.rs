//! The player over the queues of a port: a port in memory whose far side is a server, one that
//! keeps count of what it may answer.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

mod common;
use common::*;
use driver_shim::ports::fault::{self, FaultConfig, FaultCounters, Faults, PerMillion};
use driver_shim::{Burst, Frame, MacAddr, Pages, QueuePair, Region, RxQueue, TxQueue};
use gnomon_client::codec::Asked;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tools::replay::queues::Queues;
use tools::replay::{Pace, Plan, Report, play};
use tools::trace::{Datagram, Envelope, Reader, Request, Timing, Trace};

/// The wire between the player and the server.
struct Wire {
    region: Region,
    store: Store,
    /// Answers, and when they may arrive.
    answers: VecDeque<(Frame, Instant)>,
    /// Stations that frames were sent to.
    stations: Vec<MacAddr>,
    /// Who asked.
    clients: Vec<SocketAddr>,
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
            if !wire.clients.contains(&src) {
                wire.clients.push(src);
            }
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
    let (pair, wire) = pair(&region, delay);
    (Queues::new(vec![pair], region.clone(), mac), wire, region)
}

/// A pair of queues with a server behind them.
fn pair(region: &Region, delay: Duration) -> (QueuePair, Arc<Mutex<Wire>>) {
    let wire = Arc::new(Mutex::new(Wire {
        region: region.clone(),
        store: Store::default(),
        answers: VecDeque::new(),
        stations: Vec::new(),
        clients: Vec::new(),
        refused: 0,
        delay,
    }));
    let pair =
        QueuePair { rx: Box::new(Rx(Arc::clone(&wire))), tx: Box::new(Tx(Arc::clone(&wire))) };
    (pair, wire)
}

#[test]
fn frames_go_out_as_they_are_and_only_requests_expect_an_answer() {
    for base in [trace(), over_ipv6(trace())] {
        let dir = tempfile::tempdir().unwrap();
        let mut t = Trace { preload: true, corrupt: 0.2, ..base };
        t.workload.mix.multi_get = 8;
        t.workload.mix.get_ratio = 0.8;
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
        assert_eq!(region.available(), region.capacity(), "every slot was returned");
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
    let plan = Plan {
        limit: Some(100),
        timeout: Duration::from_millis(30),
        outstanding: 100,
        ..Plan::default()
    };
    // All are given up before the first answer comes; the player then stays for 50 ms of quiet. A
    // player that was kept from running takes answers before it gives up, in the worst case all.
    let lost = (0..10).any(|_| {
        let (mut link, ..) = wire(Duration::from_millis(60));
        let r = play(&mut Reader::open(&path).unwrap(), &mut link, &plan, |_| ()).unwrap();
        assert_eq!((r.sent, r.late, r.answered), (100, r.lost, 100 - r.lost), "{r}");
        r.lost > 0
    });
    assert!(lost);
}

#[test]
fn latency_counts_from_when_a_request_was_due() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = write(dir.path(), "t.pcap", &trace());
    // One on its way at a time, 5 ms each, but due every millisecond: the 40th is about 160 ms
    // behind, though each answer took 5 ms.
    let (mut link, ..) = wire(Duration::from_millis(5));
    let plan =
        Plan { pace: Pace::Rate(1_000.0), limit: Some(40), outstanding: 1, ..Plan::default() };
    let r = play(&mut Reader::open(&path).unwrap(), &mut link, &plan, |_| ()).unwrap();
    assert_eq!(r.answered, 40);
    assert!(r.latency_ns.max() >= 155_000_000, "{}", r.latency_ns.max());
    // A late start delays all of them.
    let apart = r.latency_ns.max() - r.latency_ns.min();
    assert!(apart >= 100_000_000, "{apart}");
}

/// Plays gets of one client through an injector; gives the report and what was injected.
fn through(tx: Faults, rx: Faults) -> (Report, FaultCounters) {
    let dir = tempfile::tempdir().unwrap();
    let mut t = Trace { requests: 20_000, ..trace() };
    t.workload.clients.count = 1;
    t.workload.mix.value_size = "1..100".parse().unwrap();
    let (sets, _) = write(dir.path(), "sets.pcap", &preload(&t));
    let (path, _) = write(dir.path(), "t.pcap", &t);
    let region = Region::new(8_192, Pages::Small).unwrap();
    let (pair, wire) = pair(&region, Duration::ZERO);
    wire.lock().unwrap().store.load(&sets);
    let (pair, counters) = fault::wrap(pair, &region, &FaultConfig { seed: 7, rx, tx });
    let mut link = Queues::new(vec![pair], region, None);
    let plan = Plan {
        outstanding: 4_000,
        timeout: Duration::from_millis(300),
        expect_hits: true,
        ..Plan::default()
    };
    let r = play(&mut Reader::open(&path).unwrap(), &mut link, &plan, |_| ()).unwrap();
    assert_eq!((r.sent, r.wrong_total(), r.unexpected, r.late), (20_000, 0, 0, 0), "{r}");
    assert_eq!(r.answered + r.lost, 20_000, "{r}");
    (r, counters)
}

#[test]
fn the_ports_own_count_of_its_faults_is_the_reports() {
    let two_in_a_hundred = PerMillion(20_000);
    let lossy = Faults { lose: two_in_a_hundred, ..Faults::default() };
    let doubling = Faults { duplicate: two_in_a_hundred, ..lossy };
    let shuffling = Faults { reorder: two_in_a_hundred, ..lossy };
    // Requests that are lost or come twice.
    let (r, injected) = through(doubling, Faults::default());
    let tx = injected.tx();
    assert_eq!((r.lost, r.duplicates, r.reordered), (tx.lost, tx.duplicated, 0), "{r}");
    assert!(tx.lost > 200 && tx.duplicated > 200 && tx.not_duplicated == 0, "{tx:?}");
    // Replies that are lost or come twice.
    let (r, injected) = through(Faults::default(), doubling);
    let rx = injected.rx();
    assert_eq!((r.lost, r.duplicates, r.reordered), (rx.lost, rx.duplicated, 0), "{r}");
    // Requests that are lost, and replies that are lost or overtaken.
    let (r, injected) = through(lossy, shuffling);
    let (tx, rx) = (injected.tx(), injected.rx());
    assert_eq!((r.lost, r.duplicates), (tx.lost + rx.lost, 0), "{r}");
    assert_eq!(r.reordered, rx.reordered, "{r}");
    assert!(rx.reordered > 200, "{rx:?}");
}

#[test]
fn several_queues_lose_nothing_and_keep_each_clients_order() {
    let dir = tempfile::tempdir().unwrap();
    let t = Trace { requests: 5_000, ..trace() };
    let (path, _) = write(dir.path(), "t.pcap", &Trace { preload: true, ..t });
    let region = Region::new(4_096, Pages::Small).unwrap();
    let (pairs, wires): (Vec<_>, Vec<_>) = (0..3).map(|_| pair(&region, Duration::ZERO)).unzip();
    let mut link = Queues::new(pairs, region.clone(), None);
    let r = play(&mut Reader::open(&path).unwrap(), &mut link, &Plan::default(), |_| ()).unwrap();
    let done = (r.sent, r.answered, r.lost, r.reordered, r.unexpected);
    assert_eq!(done, (5_200, 5_200, 0, 0, 0), "{r}");
    // Each wire is a server of its own here: it saw the clients of its queue.
    let clients: Vec<_> = wires.iter().map(|w| w.lock().unwrap().clients.clone()).collect();
    assert!(clients.iter().all(|c| c.len() >= 2), "{clients:?}");
    let all: Vec<_> = clients.concat();
    let distinct: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!((all.len(), distinct.len()), (8, 8), "no client speaks through two queues");
}

#[test]
fn frames_leave_when_the_capture_says() {
    let dir = tempfile::tempdir().unwrap();
    // 60 frames in bursts of 10, the last burst after 50 ms; played twice, at twice the speed.
    let t = Trace { rate: 1_000.0, timing: Timing::Bursts(10), requests: 60, ..trace() };
    let (path, _) = write(dir.path(), "t.pcap", &t);
    let (mut link, ..) = wire(Duration::ZERO);
    let plan = Plan { pace: Pace::Source(2.0), loops: 2, ..Plan::default() };
    let begun = Instant::now();
    let r = play(&mut Reader::open(&path).unwrap(), &mut link, &plan, |_| ()).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(50), "sent too fast");
    assert_eq!((r.answered, r.late_ns.len()), (120, 120), "{r}");
    // Latency counts from when a request was due: it is the lateness and the service together.
    assert!(r.latency_ns.max() >= r.late_ns.max() && r.latency_ns.max() >= r.service_ns.max());
    assert!(r.to_string().contains("sent late") && r.json()["late_us"]["count"] == 120);
}
