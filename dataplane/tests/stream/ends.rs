//! How connections end: in each state, from both sides, and when the client takes its replies slowly.

use crate::world::{CLIENT, Heard, Peer, SECOND, SERVER, World, head, len, moved};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use etherparse::{PacketBuilder, TcpOptionElement as Opt};
use wire::{At, DropReason};

const VALUE: usize = 30_000;

/// A client that has asked for the value and said its end, and how long the reply is.
fn asked(w: &mut World) -> (Peer, u32) {
    asked_with(w, &[])
}

fn asked_with(w: &mut World, options: &[Opt]) -> (Peer, u32) {
    let mut p = w.open_with(5000, 100, options);
    w.say(&mut p, format!("set k 0 0 {VALUE}\r\n").as_bytes(), b"");
    let data = [&[b'v'; VALUE][..], b"\r\n"].concat();
    let (last, all) = data.as_chunks::<1000>().0.split_last().unwrap();
    all.iter().for_each(|part| w.say(&mut p, part, b""));
    w.say(&mut p, &[last, &b"\r\n"[..]].concat(), b"STORED\r\n");
    w.send(p, "FA", b"get k\r\n").unwrap();
    (moved(p, 8), len(format!("VALUE k 0 {VALUE}\r\n\r\nEND\r\n").as_bytes()) + len(&[0; VALUE]))
}

/// How many bytes of the reply have come in order.
fn come(p: Peer, mut have: u32, heard: &[Heard]) -> u32 {
    for h in heard {
        assert!(!h.flags.contains('R'), "{h:?}");
        let at = h.seq.wrapping_sub(p.ack);
        if at <= have {
            have = have.max(at + len(&h.payload));
        }
    }
    have
}

#[test]
fn who_takes_a_little_at_a_time_gets_all_of_it() {
    let mut w = World::new(4);
    let (p, all) = asked(&mut w);
    let mut have = come(p, 0, &w.hear());
    let mut taken = 0;
    for _ in 0..60 {
        taken = have.min(taken + 1500);
        if taken == all {
            break;
        }
        w.send(Peer { ack: p.ack.wrapping_add(taken), ..p }, "A", b"").unwrap();
        have = come(p, have, &w.pass(1));
    }
    assert_eq!((taken, have), (all, all));
    // Who takes nothing more is not waited for.
    let (p, _) = {
        w.send(Peer { ack: p.ack.wrapping_add(all + 1), ..p }, "A", b"").unwrap();
        w.pass(1);
        assert_eq!(w.ended(), 1);
        asked(&mut w)
    };
    w.hear();
    assert!(w.pass(14).iter().all(|h| !h.flags.contains('R')));
    assert!(w.pass(3).iter().any(|h| h.to == p.port && h.flags.contains('R')));
}

/// Commands behind our end are thrown away, and a reset says so (RFC 1122, section 4.2.2.13): once the client has all
/// that it was owed, which it might lose by a reset.
#[test]
fn commands_behind_our_end_are_refused_once_the_client_has_all_its_replies() {
    for with_end in [false, true] {
        let mut w = World::new(4);
        let mut p = w.open(5000);
        w.say(&mut p, b"set k 0 0 5\r\nabcde\r\n", b"STORED\r\n");
        let says = b"get k\r\nquit\r\nget k\r\n";
        w.send(p, "A", says).unwrap();
        let heard = w.hear();
        let got: Vec<u8> = heard.iter().flat_map(|h| h.payload.clone()).collect();
        assert_eq!(got, b"VALUE k 0 5\r\nabcde\r\nEND\r\n");
        assert_eq!(heard.last().unwrap().flags, "AF");
        // It has not got that yet.
        p = moved(p, i32::try_from(says.len()).unwrap());
        for _ in 0..3 {
            w.send(p, "A", b"mn\r\n").unwrap();
            p = moved(p, 4);
            let heard = w.hear();
            assert!(heard.iter().all(|h| h.ack == p.seq && !h.flags.contains('R')), "{heard:?}");
        }
        p.ack = p.ack.wrapping_add(len(&got));
        w.send(p, "A", b"").unwrap();
        assert_eq!(w.hear(), []);
        p.ack = p.ack.wrapping_add(1);
        w.send(p, "A", b"").unwrap();
        assert_eq!(w.hear(), []);
        // Now it has.
        w.send(p, if with_end { "FA" } else { "A" }, b"mn\r\n").unwrap();
        let heard = w.hear();
        assert!(heard.iter().any(|h| h.flags.contains('R')), "{heard:?}");
        assert_eq!(w.ended(), 1);
        let fresh = w.open(5000);
        w.is_alive(fresh);
    }
}

#[test]
fn a_window_that_opens_behind_the_end_is_used_at_once() {
    let mut w = World::new(4);
    let (p, _) = asked(&mut w);
    let have = come(p, 0, &w.hear());
    let p = Peer { ack: p.ack.wrapping_add(have), ..p };
    let mut closed = head(p, "A");
    closed.window_size = 0;
    w.put(closed, b"").unwrap();
    assert_eq!(w.hear(), []);
    w.send(p, "A", b"").unwrap();
    assert!(come(p, 0, &w.hear()) > 0);
}

/// What the client has got of the end counts, though the end has a number and no byte.
#[test]
fn what_is_missing_before_the_end_is_sent_again_early() {
    let mut w = World::new(4);
    let (p, all) = asked_with(&mut w, &[Opt::SelectiveAcknowledgementPermitted]);
    let mut have = 0;
    let mut last = Vec::new();
    // All but the last segments, at a round trip of 10 ms.
    while have < all {
        last = w.hear();
        have = come(p, have, &last);
        w.now_ns += SECOND / 100;
        let taken = if have < all { have } else { last[0].seq.wrapping_sub(p.ack) };
        w.send(Peer { ack: p.ack.wrapping_add(taken), ..p }, "A", b"").unwrap();
    }
    // Of these the first is lost, and the others come with the end.
    assert!(last.len() > 1 && last.last().unwrap().flags.contains('F'), "{last:?}");
    let missing = last[0].seq;
    let mut sack = head(Peer { ack: missing, ..p }, "A");
    let got = (last[1].seq, p.ack.wrapping_add(all + 1));
    sack.set_options(&[Opt::Noop, Opt::Noop, Opt::SelectiveAcknowledgement(got, [None; 3])])
        .unwrap();
    w.put(sack, b"").unwrap();
    let mut heard = w.hear();
    for _ in 0..5 {
        w.now_ns += SECOND / 100;
        heard.extend(w.hear());
    }
    assert!(heard.iter().any(|h| h.seq == missing && !h.payload.is_empty()), "{heard:?}");
}

/// Two segments in a row from elsewhere move a connection there, but none whose numbers were guessed: neither
/// before the client has confirmed, nor between what a client that has moved says.
#[test]
fn forged_segments_do_not_say_where_replies_go() {
    const OTHER: [u8; 6] = [2, 9, 9, 9, 9, 9];
    let from = |w: &mut World, mac: [u8; 6], p: Peer, flags: &str, payload: &[u8]| {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ethernet2(mac, MAC.0).ipv4(CLIENT, SERVER, 64);
        builder.tcp_header(head(p, flags)).write(&mut bytes, payload).unwrap();
        let mut frame = w.region.alloc().unwrap();
        frame.fill(&bytes).unwrap();
        let at = At { l3: 14, l4: 34, ipv6: false, limited: false };
        let _ = w.take(frame, at).1;
        w.streams.turn(&mut w.gate, w.now_ns);
        w.streams.frames().map(|(_, frame)| frame.bytes()[..6].to_vec()).collect::<Vec<_>>()
    };
    let forge = |w: &mut World, p: Peer| {
        for ack in [0, 0x8000_0000_u32] {
            for flags in ["", "A"] {
                for _ in 0..2 {
                    let forged = Peer { ack, seq: p.seq ^ 0x4000_0000, ..p };
                    from(w, OTHER, forged, flags, b"");
                }
            }
        }
    };
    let mut w = World::new(4);
    let p = Peer { port: 5000, seq: 100, ack: 0 };
    w.put(head(p, "S"), b"").unwrap();
    let heard = w.hear();
    let p = Peer { seq: heard[0].ack, ack: heard[0].seq.wrapping_add(1), ..p };
    forge(&mut w, p);
    w.send(p, "A", b"").unwrap();
    forge(&mut w, p);
    w.hear();
    w.now_ns += 2 * SECOND;
    let to = from(&mut w, PEER_MAC.0, p, "A", b"mn\r\n");
    assert!(!to.is_empty() && to.iter().all(|mac| *mac == PEER_MAC.0), "{to:x?}");
    // It moves, and old or forged words from where it was do not keep it there.
    let p = Peer { ack: p.ack.wrapping_add(4), ..moved(p, 4) };
    from(&mut w, OTHER, p, "A", b"");
    from(&mut w, PEER_MAC.0, Peer { seq: p.seq ^ 0x4000_0000, ..p }, "A", b"");
    let to = from(&mut w, OTHER, p, "A", b"mn\r\n");
    assert!(!to.is_empty() && to.iter().all(|mac| *mac == OTHER), "{to:x?}");
}

/// A client that always has requests waiting is served for a second, gets a reply to all that had come by then, and the
/// end of the stream: whatever kind of requests, also such as take many turns.
#[test]
fn a_stop_ends_who_goes_on_asking() {
    for (request, reply) in [
        (b"mn\r\n".to_vec(), b"MN\r\n".to_vec()),
        ([b"get", &b" k".repeat(600)[..], b"\r\n"].concat(), b"END\r\n".to_vec()),
    ] {
        let mut w = World::new(4);
        let mut p = w.open(5000);
        w.streams.stop(w.now_ns);
        let (mut room, mut replies, mut end) = (16 << 10, 0, None);
        for ms in 0..3_000 {
            // As much as its window takes, and one turn.
            while request.len() <= room {
                w.send(p, "A", &request).unwrap();
                p = moved(p, i32::try_from(request.len()).unwrap());
                room -= request.len();
            }
            w.now_ns += SECOND / 1000;
            w.streams.turn(&mut w.gate, w.now_ns);
            for h in w.streams.frames().map(|(_, frame)| crate::world::open(frame.bytes())) {
                assert!(!h.flags.contains('R'), "reset after {ms} ms");
                assert_eq!(h.seq, p.ack);
                p.ack = p.ack.wrapping_add(len(&h.payload));
                replies += h.payload.len();
                room = usize::from(h.window) - p.seq.wrapping_sub(h.ack) as usize;
                end = h.flags.contains('F').then_some(ms);
            }
            if end.is_some() {
                break;
            }
            w.send(p, "A", b"").unwrap();
        }
        assert!(end.is_some_and(|ms| (900..1_500).contains(&ms)), "{end:?}");
        assert!(replies % reply.len() == 0 && replies > 0, "{replies} bytes");
    }
}

/// Who ends a connection with us is not counted among the open ones while its numbers are still kept.
#[test]
fn who_has_said_quit_is_gone() {
    let mut w = World::new(4);
    let p = w.open(5000);
    w.send(p, "A", b"quit\r\n").unwrap();
    assert!(w.hear().iter().any(|h| h.flags.contains('F')));
    assert_eq!(w.ended(), 0);
    w.send(Peer { ack: p.ack.wrapping_add(1), ..moved(p, 6) }, "FA", b"").unwrap();
    w.hear();
    assert_eq!(w.ended(), 1);
    w.pass(20);
    assert_eq!(w.ended(), 1);
}

/// Both windows are closed, and the client's opens: it says so with the next byte that it has, as lwIP does.
#[test]
fn a_probe_that_opens_a_window_is_heard() {
    let mut w = World::new(4);
    w.keep(b"k", 10_000);
    let mut p = w.open(5000);
    let gets = b"get k\r\n".repeat(200);
    let mut heard = Vec::new();
    let put = |w: &mut World, p: Peer, window: u16, payload: &[u8]| {
        let mut head = head(p, "A");
        head.window_size = window;
        w.put(head, payload).unwrap();
        w.hear()
    };
    // Requests until ours is closed; all that comes is acknowledged, and the client's is closed.
    loop {
        heard.extend(put(&mut w, p, 0, &gets));
        p = moved(p, 1400);
        let h = heard.last().unwrap();
        if h.window == 0 {
            break;
        }
    }
    let last = heard.last().unwrap();
    let have = come(p, 0, &heard);
    let p = Peer { seq: last.ack, ack: p.ack.wrapping_add(have), ..p };
    put(&mut w, p, 0, b"");
    w.pass(5);
    let heard = put(&mut w, p, 60_000, b"g");
    assert!(come(p, 0, &heard) > 1000, "{heard:?}");
}

/// A window closes over bytes under way, and opens again unheard: the probe has the first of them, which is answered.
#[test]
fn a_probe_of_what_is_under_way_has_a_byte() {
    let mut w = World::new(4);
    w.keep(b"k", 2_000);
    let p = w.open(5000);
    w.send(p, "A", b"get k\r\n").unwrap();
    let first = w.hear();
    assert!(first.len() > 2 && come(p, 0, &first) > 2_000, "{first:?}");
    let taken = len(&first[0].payload);
    let p = Peer { ack: p.ack.wrapping_add(taken), ..moved(p, 7) };
    let mut closed = head(p, "A");
    closed.window_size = 0;
    w.put(closed, b"").unwrap();
    assert_eq!(w.hear(), []);
    assert!(come(p, 0, &w.pass(10)) > 0);
}

/// FIN, in each state in which one may come.
#[test]
fn the_clients_end_in_each_state() {
    // With the confirmation.
    let mut w = World::new(4);
    w.send(Peer { port: 5000, seq: 9, ack: 0 }, "S", b"").unwrap();
    let h = w.hear().pop().unwrap();
    let p = Peer { port: 5000, seq: 10, ack: h.seq.wrapping_add(1) };
    w.send(p, "FA", b"").unwrap();
    let h = w.hear().pop().unwrap();
    assert!(h.flags.contains('F') && h.ack == 11, "{h:?}");
    w.send(Peer { seq: 11, ack: p.ack.wrapping_add(1), ..p }, "A", b"").unwrap();
    assert_eq!((w.hear(), w.ended()), (vec![], 1));

    // Before bytes that are missing: it does not count until they are there.
    let p = w.open(5001);
    w.send(moved(p, 4), "FA", b"mn\r\n").unwrap();
    assert!(w.hear().iter().all(|h| h.flags == "A" && h.ack == p.seq));
    w.send(p, "A", b"mn\r\n").unwrap();
    w.send(moved(p, 8), "FA", b"").unwrap();
    let heard = w.hear();
    let got: Vec<u8> = heard.iter().flat_map(|h| h.payload.clone()).collect();
    assert_eq!(got, b"MN\r\nMN\r\n");
    assert!(heard.last().is_some_and(|h| h.flags.contains('F') && h.ack == p.seq + 9));
    // Again, while our end is on its way: it is answered, and nothing changes.
    w.send(Peer { ack: p.ack.wrapping_add(8), ..moved(p, 8) }, "FA", b"").unwrap();
    w.hear();
    let done = Peer { ack: p.ack.wrapping_add(9), ..moved(p, 9) };
    w.send(done, "A", b"").unwrap();
    assert_eq!((w.hear(), w.ended()), (vec![], 2));

    // Bytes behind its end are nobody's, and repeated ones are answered.
    let p = w.open(5003);
    w.send(p, "A", &b"get k\r\n".repeat(3)[..20]).unwrap();
    w.hear();
    w.send(moved(p, 20), "FA", b"").unwrap();
    w.hear();
    let p = Peer { ack: p.ack.wrapping_add(10), ..p };
    assert_eq!(w.send(moved(p, 21), "A", b"\nget k\r\n"), Err(DropReason::TcpUnacceptable));
    assert!(w.hear().iter().all(|h| h.payload.is_empty()));
    assert_eq!(w.server.totals().cmd_get, 2);
    w.send(moved(p, 7), "FA", &b"get k\r\n".repeat(2)[..13]).unwrap();
    assert!(w.hear().iter().all(|h| h.ack == p.seq + 21));
    w.send(Peer { ack: p.ack.wrapping_add(1), ..moved(p, 21) }, "A", b"").unwrap();
    w.hear();
    assert_eq!(w.ended(), 3);

    // We end it first; the client ends, and repeats its end.
    let p = w.open(5002);
    w.send(p, "A", b"quit\r\n").unwrap();
    let h = w.hear().pop().unwrap();
    assert!(h.flags.contains('F'));
    let p = Peer { ack: p.ack.wrapping_add(1), ..moved(p, 6) };
    w.send(p, "A", b"").unwrap();
    assert_eq!(w.hear(), []);
    for again in 0..3 {
        w.now_ns += 2 * SECOND;
        w.send(p, "FA", b"").unwrap();
        let heard = w.hear();
        assert!(heard.len() == 1 && heard[0].ack == p.seq + 1, "{again}: {heard:?}");
    }
    w.pass(15);
    assert_eq!(w.ended(), 4);
}

/// Both end at once: neither FIN acknowledges the other.
#[test]
fn both_may_end_at_once() {
    let mut w = World::new(4);
    let p = w.open(5000);
    w.send(p, "A", b"quit\r\n").unwrap();
    let h = w.hear().pop().unwrap();
    assert!(h.flags.contains('F'));
    let p = moved(p, 6);
    w.send(p, "FA", b"").unwrap();
    assert!(w.hear().iter().all(|h| h.ack == p.seq + 1));
    w.send(Peer { ack: p.ack.wrapping_add(1), ..moved(p, 1) }, "A", b"").unwrap();
    assert_eq!(w.hear(), []);
    w.pass(11);
    assert_eq!(w.ended(), 1);
    let fresh = w.open(5000);
    w.is_alive(fresh);
}

#[test]
fn a_client_that_says_no_more_gets_all_its_replies() {
    let mut w = World::new(4);
    let mut p = w.open(5000);
    w.say(&mut p, b"set k 0 0 400\r\n", b"");
    w.say(&mut p, &[&[b'k'; 400][..], b"\r\n"].concat(), b"STORED\r\n");
    let asks = b"get k\r\n".repeat(200);
    w.send(p, "FA", &asks).unwrap();
    let p = moved(p, i32::try_from(asks.len()).unwrap() + 1);
    let (mut got, mut ended) = (0, false);
    for _ in 0..2000 {
        let heard = w.hear();
        for h in &heard {
            assert_eq!(h.seq, p.ack.wrapping_add(got));
            got += len(&h.payload);
            ended |= h.flags.contains('F');
        }
        let ack = p.ack.wrapping_add(got + u32::from(ended));
        let _ = w.send(Peer { ack, ..p }, "A", b"");
        w.now_ns += SECOND / 100;
        if ended {
            break;
        }
    }
    assert!(ended);
    assert_eq!(got, 200 * len(b"VALUE k 0 400\r\n\r\nEND\r\n") + 200 * 400);
}
