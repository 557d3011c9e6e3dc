//! Fault drills on the bad-weather port, one kind each: no reply is wrong, the packet-accounting invariant (D10) holds,
//! every slot returns ([`World::end`]), and after the fault every request is answered again.
//! `docs/drills.md` lists them; `tests/e2e/test_drills.py` runs each by name.

use crate::faults::is_right;
use crate::world::{World, Wrap, request};
use driver_shim::ports::fault::{FaultConfig, FaultCounters, Faults, PerMillion, Wire, wrap};
use driver_shim::{Burst, Frame, RxChecksum};
use std::time::{Duration, Instant};
use store::StoreConfig;
use wire::DropReason;

/// Keys that are set before anything happens.
const KEYS: u16 = 50;

/// A worker behind a wire with these faults, both ways. Every key has its value.
fn bad_day(faults: Faults) -> (World, FaultCounters) {
    let mut counters = None;
    let config = StoreConfig { memory_bytes: 16 << 20, ..StoreConfig::default() };
    let mut w = World::with(1, config, |pair, region| {
        let config = FaultConfig { seed: 7, rx: faults, tx: faults };
        let (pair, c) = wrap(pair, region, &config);
        counters = Some(c);
        pair
    });
    let counters = counters.unwrap();
    let mut set = 0;
    // Some may get lost.
    while set < KEYS {
        for key in 0..KEYS {
            let line = format!("set key{key:02} 0 0 6\r\nval{key:03}\r\n");
            w.send(&request(Wrap::V4, key, line.as_bytes()));
        }
        w.settle();
        w.received(0);
        set = u16::try_from(w.store.stats().curr_items).unwrap();
    }
    // A turn that got nothing looks like rest: what still waits shall not be counted later.
    for _ in 0..500 {
        w.settle();
        w.received(0);
    }
    (w, counters)
}

fn get(n: u16) -> Vec<u8> {
    let key = n % KEYS;
    request(Wrap::V4, key, format!("get key{key:02}\r\n").as_bytes())
}

/// Right replies among what has come; a wrong one ends the test.
fn right(frames: &[Frame]) -> u32 {
    frames.iter().map(|f| u32::from(is_right(f.bytes()))).sum()
}

/// Sends so many requests, a burst at a time, and counts right replies.
fn exchange(w: &mut World, requests: u16) -> u32 {
    let mut total = 0;
    for n in 0..requests {
        w.send(&get(n));
        if n % 32 == 31 || n + 1 == requests {
            w.settle();
            total += right(&w.received(0));
        }
    }
    total
}

/// Lets the worker work, and counts what comes right, for so long.
fn live(w: &mut World, time: Duration) -> u32 {
    let (begun, mut total) = (Instant::now(), 0);
    while begun.elapsed() < time {
        w.send(&get(0));
        w.settle();
        total += right(&w.received(0));
        std::thread::sleep(Duration::from_micros(100));
    }
    total
}

#[test]
fn loss_from_a_thousandth_to_half() {
    for (rate, at_least) in [(1_000, 1_900), (10_000, 1_800), (100_000, 1_400), (500_000, 300)] {
        let (mut w, c) = bad_day(Faults { lose: PerMillion(rate), ..Faults::default() });
        let came = exchange(&mut w, 2_000);
        assert!((at_least..=2_000).contains(&came), "{came} of 2,000 at {rate} in a million");
        let ledger = w.end();
        assert_eq!(ledger.received, c.rx().left);
    }
}

#[test]
fn frames_that_come_twice() {
    let (mut w, c) = bad_day(Faults { duplicate: PerMillion(300_000), ..Faults::default() });
    let came = exchange(&mut w, 1_000);
    assert!(came > 1_000, "{came}: requests and replies come twice");
    assert!(c.rx().duplicated > 0 && c.tx().duplicated > 0);
    w.end();
}

#[test]
fn frames_that_overtake() {
    let (mut w, c) = bad_day(Faults { reorder: PerMillion(500_000), ..Faults::default() });
    assert_eq!(exchange(&mut w, 1_000), 1_000);
    assert!(c.rx().reordered > 0 && c.tx().reordered > 0);
    w.end();
}

#[test]
fn frames_that_are_cut() {
    let (mut w, c) = bad_day(Faults { truncate: PerMillion(400_000), ..Faults::default() });
    let came = exchange(&mut w, 1_000);
    assert!(came > 200 && came < 1_000, "{came}");
    assert!(c.rx().truncated > 0 && c.tx().truncated > 0);
    w.end();
}

#[test]
fn frames_that_are_too_long() {
    let (mut w, _) = bad_day(Faults::default());
    for long in [1_501, 1_600, 1_900] {
        // Padding behind the packet is Ethernet's own.
        let mut padded = get(1);
        padded.resize(long, 0xff);
        w.send(&padded);
        w.settle();
        assert_eq!(right(&w.received(0)), 1, "{long}");
        // A packet of more than the MTU, as from a wire with jumbo frames.
        let keys = vec![b' '; long - 80];
        w.send(&request(Wrap::V4, 1, &[b"get key01", &keys[..], b"\r\n"].concat()));
        w.settle();
        assert!(w.received(0).iter().all(|f| f.len() <= 1_514));
    }
    assert_eq!(exchange(&mut w, 100), 100);
    w.end();
}

#[test]
fn bursts_that_are_short_or_empty() {
    let (mut w, c) = bad_day(Faults { short_burst: PerMillion(900_000), ..Faults::default() });
    let mut came = exchange(&mut w, 1_000);
    let begun = Instant::now();
    // A turn that got nothing looks like rest.
    while came < 1_000 && begun.elapsed() < Duration::from_secs(60) {
        w.settle();
        came += right(&w.received(0));
    }
    let refused = w.dropped(DropReason::TxFull);
    assert_eq!(u64::from(came) + refused, 1_000);
    assert!(c.rx().short_bursts > 100 && c.tx().short_bursts > 100);
    w.end();
}

#[test]
fn a_transmit_ring_that_is_full() {
    let (mut w, c) = bad_day(Faults::default());
    // The client takes nothing: its ring holds 2,048.
    for n in 0..2_500 {
        w.send(&get(n));
        if n % 64 == 63 {
            w.settle();
        }
    }
    w.settle();
    let lost = w.dropped(DropReason::TxFull);
    assert!(lost > 0, "nothing was dropped");
    let came = right(&w.received(0));
    let held = c.tx().held();
    assert_eq!(u64::from(came) + lost + held, 2_500);
    // What the port held leaves with the next.
    assert_eq!(u64::from(exchange(&mut w, 100)), 100 + held);
    w.end();
}

#[test]
fn slots_that_run_out() {
    let (mut w, _) = bad_day(Faults::default());
    let part = [b'x'; 1_000];
    let line = [b"set large 0 0 1000\r\n", &part[..], b"\r\n"].concat();
    assert_eq!(w.ask(&line), b"STORED\r\n");
    for _ in 0..4 {
        let line = [b"append large 0 0 1000\r\n", &part[..], b"\r\n"].concat();
        assert_eq!(w.ask(&line), b"STORED\r\n");
    }
    // One is left, for the request: a reply of one datagram is built in it.
    let mut all: Vec<Frame> = std::iter::from_fn(|| w.region.alloc()).collect();
    all.pop();
    assert_eq!(exchange(&mut w, 1), 1);
    w.send(&request(Wrap::V4, 1, b"get large\r\n"));
    w.settle();
    assert_eq!(w.dropped(DropReason::NoFrame), 1);
    w.received(0);
    drop(all);
    assert_eq!(w.ask(b"get large\r\n").len(), 5_000 + "VALUE large 0 5000\r\n\r\nEND\r\n".len());
    w.end();
}

#[test]
fn checksums_that_the_device_does_not_vouch_for() {
    let (mut w, _) = bad_day(Faults::default());
    for n in 0..400 {
        let mut frame = w.region.alloc().unwrap();
        frame.fill(&get(n)).unwrap();
        let bad = n % 4 == 3;
        if bad {
            // The last byte of the key: another key, were it not for the checksum.
            let at = frame.len() - 3;
            frame.bytes_mut()[at] ^= 1;
        }
        // Known, not known, one of each; what is bad, nobody calls good.
        let flags = (n % 2 == 0 && !bad, n % 3 == 0 && !bad);
        frame.rx = RxChecksum { ip_good: flags.0.into(), udp_good: flags.1.into() };
        let mut burst = Burst::new();
        burst.push(frame);
        assert_eq!(w.wires[0].tx.burst(&mut burst), 1);
        w.settle();
    }
    assert_eq!(right(&w.received(0)), 300);
    assert_eq!(w.dropped(DropReason::UdpChecksum), 100);
    w.end();
}

#[test]
fn a_link_that_is_down_for_a_millisecond() {
    down_for(Duration::from_millis(1));
}

#[test]
fn a_link_that_is_down_for_two_seconds() {
    down_for(Duration::from_secs(2));
}

fn down_for(time: Duration) {
    let (mut w, c) = bad_day(Faults::default());
    c.plug().set(Wire::Down);
    assert_eq!(live(&mut w, time), 0);
    assert!(c.rx().lost > 0);
    c.plug().set(Wire::Up);
    assert_eq!(exchange(&mut w, 500), 500);
    w.end();
}

#[test]
fn a_link_that_flaps_a_thousand_times() {
    let (mut w, c) = bad_day(Faults::default());
    let mut came = 0;
    for n in 0..1_000 {
        c.plug().set(Wire::Down);
        w.send(&get(n));
        w.settle();
        c.plug().set(Wire::Up);
        w.send(&get(n));
        w.settle();
        came += right(&w.received(0));
    }
    assert_eq!((came, c.rx().lost), (1_000, 1_000));
    w.end();
}

#[test]
fn a_device_that_rests_in_the_middle_of_a_burst() {
    let (mut w, c) = bad_day(Faults::default());
    let (mut came, mut sent) = (0, 0);
    for round in 0..200 {
        for n in 0..100 {
            w.send(&get(n));
            sent += 1;
        }
        // Some are in, some wait, some are with the engine.
        for _ in 0..round % 4 {
            w.workers[0].turn();
        }
        c.plug().set(Wire::Away);
        for _ in 0..3 {
            w.workers[0].turn();
        }
        c.plug().set(Wire::Up);
        w.settle();
        came += right(&w.received(0));
    }
    let lost = w.dropped(DropReason::TxFull);
    assert_eq!(u64::from(came) + lost, sent);
    assert_eq!(exchange(&mut w, 500), 500);
    w.end();
}

#[test]
fn a_device_that_is_gone_for_good() {
    let (mut w, c) = bad_day(Faults::default());
    for n in 0..100 {
        w.send(&get(n));
    }
    w.workers[0].turn();
    c.plug().set(Wire::Away);
    let ledger = w.end();
    // What was on the wire is still there, and is nobody's answer.
    assert!(ledger.received < u64::from(KEYS) + 100);
}

#[test]
fn a_clock_that_jumps() {
    let (mut w, _) = bad_day(Faults::default());
    assert_eq!(w.ask(b"set soon 0 100 1\r\nx\r\n"), b"STORED\r\n");
    assert_eq!(w.ask(b"set month 0 2592000 1\r\ny\r\n"), b"STORED\r\n");
    w.store.clock().skip_ahead(101);
    assert_eq!(w.ask(b"get soon\r\n"), b"END\r\n");
    assert_eq!(w.ask(b"get month\r\n"), b"VALUE month 0 1\r\ny\r\nEND\r\n");
    // A hundred years, then to the end of what the clock can say.
    for jump in [3_155_760_000, 1_139_207_000] {
        w.store.clock().skip_ahead(jump);
        w.store.housekeep();
    }
    assert_eq!(w.ask(b"get month\r\n"), b"END\r\n");
    assert_eq!(exchange(&mut w, 100), 100);
    w.end();
}
