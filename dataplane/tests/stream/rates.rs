//! Rates of sources: who has used its rate up waits, and loses nothing.

use crate::world::*;
use dataplane::policy::{Policy, Rate};
use std::num::{NonZeroU32, NonZeroU64};
use store::verbs;

/// A stage whose clients have these rates.
fn world(requests: u32, reply_bytes: u64) -> World {
    let source =
        Rate { requests: NonZeroU32::new(requests), reply_bytes: NonZeroU64::new(reply_bytes) };
    let mut w = World::with(8, Policy { source, ..Policy::default() });
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
fn spent(w: &mut World) -> Peer {
    let p = w.open(5001);
    // Three turns, the last of which has less left than it takes.
    w.send(p, "A", &b"mn\r\n".repeat(60)).unwrap();
    let got: usize = w.hear().iter().map(|h| h.payload.len()).sum();
    assert_eq!(got, 240);
    let p = Peer { ack: p.ack.wrapping_add(240), ..moved(p, 240) };
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
    let mut w = world(50, 1 << 20);
    let p = spent(&mut w);
    w.send(p, "FA", b"").unwrap();
    w.hear();
    assert!(w.pass(1).iter().any(|h| h.flags.contains('F')));
}

#[test]
fn a_stop_ends_who_has_used_its_rate_up() {
    let mut w = world(50, 1 << 20);
    spent(&mut w);
    w.streams.stop(w.now_ns);
    assert!(w.pass(1).iter().any(|h| h.flags.contains('F')));
}

/// The client says nothing more: what is owed is not forgotten.
#[test]
fn the_rest_of_a_long_reply_comes_when_its_rate_is_there_again() {
    const REPLY: usize = "VALUE k 0 300000\r\n".len() + 300_000 + "\r\nEND\r\n".len();
    let mut w = world(1000, 100_000);
    w.limited = false;
    let mut p = w.open(5001);
    let set = [&b"set k 0 0 300000\r\n"[..], &[b'v'; 300_000], b"\r\n"].concat();
    for piece in set.chunks(1400) {
        w.send(p, "A", piece).unwrap();
        p.seq = p.seq.wrapping_add(len(piece));
        for h in w.hear() {
            p.ack = p.ack.wrapping_add(len(&h.payload));
        }
    }
    w.limited = true;
    let mut p = w.open(5002);
    w.send(p, "A", b"get k\r\n").unwrap();
    p.seq = p.seq.wrapping_add(7);
    let (mut got, mut waited) = (0, 0);
    while got < REPLY {
        let had = got;
        w.now_ns += SECOND / 20;
        for h in w.hear() {
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
    assert!(waited > 20, "more than its rate");
}
