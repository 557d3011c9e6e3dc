//! Rates of sources: who has used its rate up waits, and loses nothing.

use crate::world::*;
use dataplane::policy::{Policy, Rate};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;
use store::verbs;

/// A stage whose clients have these rates.
fn world(requests: u32, reply_bytes: u64) -> World {
    world_made(8, (requests, reply_bytes), Made::default())
}

fn world_made(connections: usize, (requests, reply_bytes): (u32, u64), made: Made) -> World {
    let source =
        Rate { requests: NonZeroU32::new(requests), reply_bytes: NonZeroU64::new(reply_bytes) };
    let policy = Policy { source, ..Policy::default() };
    let mut w = World::made(connections, Made { policy, ..made });
    w.limited = true;
    w
}

/// `--rate-limit` slows a TCP client down; nothing of it is lost.
#[test]
fn sources_that_are_not_trusted_have_their_rate() {
    let mut w = world(50, 1 << 20);
    w.limited = false;
    let trusted = w.open(5000);
    w.limited = true;
    let p = w.open(5001);
    w.send(p, "A", &b"mn\r\n".repeat(200)).unwrap();
    let mut all = 0;
    for second in 0..5 {
        // All that has come so far is acknowledged, so that nothing comes twice.
        let heard = if second == 0 { w.hear() } else { w.pass(1) };
        let ends = heard.iter().filter(|h| h.to == 5001 && !h.payload.is_empty());
        let end = ends.map(|h| h.seq.wrapping_sub(p.ack) + len(&h.payload)).max();
        let more = end.map_or(0, |end| end / 4 - all);
        assert!(all + more == 200 || (30..=70).contains(&more), "{more} in second {second}");
        all += more;
        let acks = Peer { ack: p.ack.wrapping_add(4 * all), ..moved(p, 800) };
        w.send(acks, "A", b"").unwrap();
        w.limited = false;
        if second == 0 {
            w.is_alive(trusted);
        }
    }
    assert_eq!(all, 200);
}

/// A client that has used its rate up, and has had all its replies.
fn spent(w: &mut World, rate: u32) -> Peer {
    let p = w.open(5001);
    // Turns of twenty, the last of which has less left than it takes: at 50 a second the third.
    let turns = if rate == 50 { 3 } else { 1 };
    w.send(p, "A", &b"mn\r\n".repeat(20 * turns)).unwrap();
    let got: usize = w.hear().iter().map(|h| h.payload.len()).sum();
    assert_eq!(got, 80 * turns);
    let got = len(&vec![0; got]);
    let p = Peer { seq: p.seq.wrapping_add(got), ack: p.ack.wrapping_add(got), ..p };
    w.send(p, "A", b"").unwrap();
    assert_eq!(w.hear(), []);
    p
}

/// As over UDP: one request with the work of many is as many.
#[test]
fn keys_and_what_is_copied_count_as_requests() {
    let mut w = world(50, 1 << 20);
    w.limited = false;
    let mut writer = w.open(5000);
    let set = [&b"set a 0 0 40000\r\n"[..], &[b'v'; 40_000], b"\r\n"].concat();
    for piece in set.chunks(1400) {
        w.send(writer, "A", piece).unwrap();
        w.hear();
        writer.seq = writer.seq.wrapping_add(len(piece));
    }
    let mut session = w.server.store.session().unwrap();
    for n in 0..400 {
        let key = n.to_string();
        verbs::store(&mut session, None, &base::Store::set(key.as_bytes(), 0, 0, b"v")).unwrap();
    }
    w.limited = true;
    let [reader, joiner, asker, lister] = [5001, 5002, 5003, 5004].map(|port| w.open(port));
    // 400 keys are worth 100 requests, and ten copies of 40 KB as many, or four pages of counters, or a list of 400 keys.
    for (p, request) in [
        (reader, [b"get", &b" k".repeat(400)[..], b"\r\n"].concat()),
        (joiner, b"prepend a 0 0 1\r\nx\r\n".repeat(10)),
        (asker, b"stats reset\r\n".repeat(4)),
        (lister, b"lru_crawler mgdump hash\r\n".to_vec()),
    ] {
        let port = p.port;
        w.send(p, "A", &request).unwrap();
        let heard = w.hear();
        let got = heard.iter().filter(|h| h.to == port).map(|h| h.payload.len()).sum::<usize>();
        let seq = p.seq.wrapping_add(len(&request));
        let p = Peer { seq, ack: p.ack.wrapping_add(u32::try_from(got).unwrap()), ..p };
        w.send(p, "A", b"mn\r\n").unwrap();
        let is_answered = |h: Vec<Heard>| h.iter().any(|h| h.to == port && !h.payload.is_empty());
        assert!(!is_answered(w.hear()));
        let waited = (0..10).take_while(|_| !is_answered(w.pass(1))).count();
        assert!((1..4).contains(&waited), "{port}: {waited} s");
        w.now_ns += 10 * SECOND;
    }
}

#[test]
fn who_ends_with_its_rate_used_up_is_let_go() {
    for rate in [1, 50] {
        let mut w = world(rate, 1 << 20);
        let p = spent(&mut w, rate);
        w.send(p, "FA", b"").unwrap();
        let mut heard = w.hear();
        heard.extend(w.pass(1));
        assert!(heard.iter().any(|h| h.flags.contains('F')), "{rate} a second");
    }
}

#[test]
fn a_stop_ends_who_has_used_its_rate_up() {
    for rate in [1, 50] {
        let mut w = world(rate, 1 << 20);
        spent(&mut w, rate);
        w.streams.stop(w.now_ns);
        assert!(w.pass(1).iter().any(|h| h.flags.contains('F')), "{rate} a second");
    }
}

/// Says how often a client was looked at until it had all of a long reply that is more than its rate.
fn takes_a_long_reply(idle_max: Option<Duration>) -> (World, usize) {
    const REPLY: usize = "VALUE k 0 300000\r\n".len() + 300_000 + "\r\nEND\r\n".len();
    let mut w = world_made(8, (1000, 100_000), Made { idle_max, ..Made::default() });
    w.keep(b"k", 300_000);
    let mut p = w.open(5002);
    w.send(p, "A", b"get k\r\n").unwrap();
    p.seq = p.seq.wrapping_add(7);
    let (mut got, mut waited) = (0, 0);
    while got < REPLY {
        let had = got;
        w.now_ns += SECOND / 20;
        for h in w.hear() {
            assert!(!h.flags.contains('R'), "after {got} bytes");
            if h.to == 5002 && h.seq == p.ack {
                p.ack = p.ack.wrapping_add(len(&h.payload));
                got += h.payload.len();
            }
        }
        // The client says no more than what it has.
        if got > had {
            w.send(p, "A", b"").unwrap();
        }
        waited += 1;
        assert!(waited < 200, "{got} bytes");
    }
    (w, waited)
}

/// The client says nothing more: what is owed is not forgotten.
#[test]
fn the_rest_of_a_long_reply_comes_when_its_rate_is_there_again() {
    let (_, waited) = takes_a_long_reply(None);
    assert!(waited > 20, "more than its rate");
}

const IDLE_MAX: Duration = Duration::from_secs(1);

/// It is not idle meanwhile, though nothing goes.
#[test]
fn who_waits_for_the_rest_of_a_long_reply_is_not_idle() {
    let (w, waited) = takes_a_long_reply(Some(IDLE_MAX));
    assert!(waited > 40, "no longer than a client may be idle");
    assert_eq!(w.server.totals().idle_kicks, 0);
}

#[test]
fn who_waits_for_its_rate_with_a_request_is_not_idle() {
    let mut w = world_made(8, (400, 1 << 30), Made { idle_max: Some(IDLE_MAX), ..Made::default() });
    w.keep(b"a", BURNT);
    let p = w.open(5001);
    burn(&mut w);
    w.send(p, "A", b"mn\r\n").unwrap();
    assert!(w.pass(3).iter().all(|h| h.to != 5001 || h.payload.is_empty()));
    let heard = w.pass(3);
    let said: Vec<u8> =
        heard.into_iter().filter(|h| h.to == 5001).flat_map(|h| h.payload).collect();
    assert_eq!(&said[..4], b"MN\r\n");
}

/// Nor is it its rate that holds up who takes nothing, whatever else it asks for.
#[test]
fn who_takes_nothing_is_idle_though_its_rate_is_used_up() {
    let mut w =
        world_made(8, (1000, 100_000), Made { idle_max: Some(IDLE_MAX), ..Made::default() });
    w.keep(b"k", 300_000);
    let p = w.open(5001);
    w.send(p, "A", b"get k\r\nget k\r\n").unwrap();
    w.hear();
    assert!(w.pass(2).iter().any(|h| h.flags.contains('R')));
    assert_eq!(w.server.totals().idle_kicks, 1);
}

/// What it sent meanwhile may still be in the port's queue.
#[test]
fn who_asked_during_a_pause_of_the_process_is_not_idle() {
    let mut w = world_made(8, (400, 1 << 30), Made { idle_max: Some(IDLE_MAX), ..Made::default() });
    let p = w.open(5001);
    let quiet = w.open(5002);
    w.hear();
    w.now_ns += 20 * 1_000_000_000;
    assert!(
        w.hear().iter().all(|h| !h.flags.contains('F')),
        "a turn before what has come is taken in"
    );
    w.send(p, "A", b"mn\r\n").unwrap();
    assert!(w.hear().iter().any(|h| h.payload == b"MN\r\n"));
    // Who says nothing from then on is idle.
    assert!(w.pass(3).iter().any(|h| h.to == quiet.port && h.flags.contains('F')));
    assert_eq!(w.server.totals().idle_kicks, 2);
}

/// Bytes of a value that requests are put before which use a rate up.
const BURNT: usize = 500_000;

/// Uses 400 requests a second up for more than 5 s, with work for 2400.
const BURN: &[u8] = b"prepend a 0 0 1\r\nx\r\n";

fn burn(w: &mut World) {
    let p = w.open(5999);
    w.send(p, "A", &BURN.repeat(20)).unwrap();
    let heard = w.hear();
    assert_eq!(heard.iter().map(|h| h.payload.len()).sum::<usize>(), 20 * 8, "{heard:?}");
}

/// A byte acknowledged now and then is less than a connection with memory that others wait for is to move.
#[test]
fn who_takes_a_byte_at_a_time_is_slow_though_its_rate_is_used_up() {
    let mut w = world_made(8, (400, 1 << 30), Made { spills_four: true, ..Made::default() });
    w.keep(b"a", BURNT);
    w.keep(b"k", 300_000);
    let mut readers = [5000, 5001, 5002, 5003].map(|port| w.open(port));
    let mut heard = Vec::new();
    for p in &mut readers {
        w.send(*p, "A", b"get k\r\n").unwrap();
        p.seq = p.seq.wrapping_add(7);
        heard.extend(w.hear());
    }
    burn(&mut w);
    let (mut ended, mut steps) = (Vec::new(), 0);
    while steps < 50 {
        ended.extend(heard.iter().filter(|h| h.flags.contains('R')).map(|h| h.to));
        let [slow, others @ ..] = &mut readers;
        for p in others {
            for h in heard.iter().filter(|h| h.to == p.port) {
                if h.seq == p.ack {
                    p.ack = p.ack.wrapping_add(len(&h.payload));
                }
            }
            w.send(*p, "A", b"").unwrap();
        }
        heard = w.hear();
        if heard.iter().all(|h| h.payload.is_empty()) {
            // The first of all takes a little of its first flight.
            if ended.is_empty() {
                slow.ack = slow.ack.wrapping_add(1);
                w.send(*slow, "A", b"").unwrap();
            }
            w.now_ns += SECOND / 10;
            heard.extend(w.hear());
            steps += 1;
        }
    }
    assert_eq!((ended, w.stalled()), (vec![5000], 1));
}

/// The rest of a request is not what it waits for that takes nothing of what has been answered.
#[test]
fn who_takes_nothing_is_slow_with_the_rest_of_a_long_request_too() {
    let mut w = world_made(8, (400, 1 << 30), Made { spills_four: true, ..Made::default() });
    w.keep(b"a", BURNT);
    w.keep(b"k", 300_000);
    let get = [&b"get"[..], &b" k".repeat(7000), b"\r\n"].concat();
    for port in [5000, 5001, 5002, 5003] {
        let mut p = w.open(port);
        for part in get.chunks(1400) {
            w.send(p, "A", part).unwrap();
            p.seq = p.seq.wrapping_add(len(part));
            w.hear();
        }
    }
    burn(&mut w);
    assert_eq!(w.stalled(), 0);
    assert!(w.pass(5).iter().any(|h| h.flags.contains('R')));
    assert!(w.stalled() > 0);
}

/// As much of a long request as its window has space for has come, whatever buffer there is for it.
#[test]
fn who_fills_its_window_is_not_slow_while_its_rate_is_used_up() {
    const PART: &[u8] = &[b'v'; 1400];
    // How many have long buffers before; how many segments come then.
    for (before, parts) in [(32, 11), (0, 29)] {
        let made = Made { spills_four: true, ..Made::default() };
        let mut w = world_made(40, (400, 1 << 30), made);
        w.keep(b"a", BURNT);
        w.limited = false;
        for port in 6000..6000 + before {
            let mut p = w.open(port);
            let set = [&b"set b 0 0 20000\r\n"[..], &[b'v'; 20_000], b"\r\n"].concat();
            let got: usize = set.chunks(1400).map(|part| sends(&mut w, &mut p, part)).sum();
            assert_eq!(got, 8);
        }
        w.limited = true;
        let mut uploads = [5000, 5001, 5002, 5003].map(|port| w.open(port));
        for p in &mut uploads {
            sends(&mut w, p, b"set k 0 0 1001000\r\n");
            sends(&mut w, p, PART);
        }
        burn(&mut w);
        for p in &mut uploads {
            for _ in 0..parts {
                sends(&mut w, p, PART);
            }
        }
        w.pass(3);
        assert_eq!((w.stalled(), w.ended()), (0, 0), "{parts} segments wait");
        w.pass(3);
        let last = &mut uploads[3];
        let left = 1_001_000 / PART.len() - 1 - parts;
        for _ in 0..left {
            assert_eq!(sends(&mut w, last, PART), 0);
        }
        assert_eq!(sends(&mut w, last, b"\r\n"), 8);
    }
}

/// Sends one segment, and says how many bytes come back.
fn sends(w: &mut World, p: &mut Peer, part: &[u8]) -> usize {
    w.send(*p, "A", part).unwrap();
    p.seq = p.seq.wrapping_add(len(part));
    let got: usize = w.hear().iter().map(|h| h.payload.len()).sum();
    p.ack = p.ack.wrapping_add(u32::try_from(got).unwrap());
    got
}

/// However many wait for their rate, looking whether they may have more takes no more than a part of a worker.
#[test]
fn who_waits_for_its_rate_takes_little_time() {
    const CONNECTIONS: u16 = 4_000;
    let mut w = world_made(usize::from(CONNECTIONS), (1, 1 << 20), Made::default());
    for p in (0..CONNECTIONS).map(|n| w.open(5000 + n)).collect::<Vec<_>>() {
        w.send(p, "A", b"mn\r\n").unwrap();
    }
    let mut looks = 0;
    for _ in 0..2_000 {
        w.now_ns += SECOND / 1000;
        looks += w.streams.turn(&mut w.gate, w.now_ns);
        w.streams.frames().for_each(drop);
    }
    assert!((10_000..250_000).contains(&looks), "{looks} looks in two seconds");
}
