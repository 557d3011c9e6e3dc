//! Peers that follow no rule, segment by segment.

use dataplane::stages::stream::ConnFilter;
use driver_shim::Frame;
use driver_shim::ports::memory::{MAC, PEER_MAC};
use etherparse::{PacketBuilder, TcpHeader, TcpOptionElement as Opt};
use std::sync::Arc;
use wire::{At, DropReason};

use crate::world::*;

const NOT_TAKEN: Result<(), DropReason> = Err(DropReason::TcpUnacceptable);

/// RFC 5961, section 3.
#[test]
fn a_reset_ends_a_connection_only_with_the_number_that_is_next() {
    let mut w = World::new(4);
    let p = w.open(5000);
    for by in [-1, -10_000, 16_384, 1 << 30] {
        assert_eq!(w.send(moved(p, by), "R", b""), NOT_TAKEN);
        assert_eq!(w.hear(), [], "out of the window: {by}");
    }
    for by in [1, 500, 16_383] {
        w.now_ns += 2 * SECOND;
        for tenth in 0..20 {
            assert_eq!(w.send(moved(p, by), "RA", b""), NOT_TAKEN);
            let heard = w.hear();
            assert_eq!(
                heard.len(),
                usize::from(tenth % 5 == 0),
                "two challenges a second: {tenth}"
            );
            w.now_ns += SECOND / 10;
            for h in heard {
                assert_eq!((&h.flags[..], h.seq, h.ack), ("A", p.ack, p.seq));
            }
        }
    }
    w.is_alive(p);
    assert_eq!(w.ended(), 0);
    // Behind bytes that came with it.
    let mut p = moved(p, 4);
    p.ack = p.ack.wrapping_add(4);
    w.send(p, "A", b"set k 0 0 5\r\n").unwrap();
    assert_eq!(w.send(p, "R", b""), NOT_TAKEN, "those bytes are in");
    w.send(moved(p, 13), "R", b"").unwrap();
    assert!(w.hear().iter().all(|h| h.flags == "A"));
    assert_eq!(w.ended(), 1);
}

/// RFC 5961, section 4.
#[test]
fn a_syn_in_the_middle_is_challenged_and_a_client_that_forgot_comes_back() {
    let mut w = World::new(4);
    let p = w.open(5000);
    for by in [-1, 0, 7, 1 << 20] {
        w.now_ns += 2 * SECOND;
        assert_eq!(w.send(moved(p, by), "S", b""), NOT_TAKEN);
        let heard = w.hear();
        assert_eq!((heard.len(), &heard[0].flags[..], heard[0].ack), (1, "A", p.seq));
    }
    w.is_alive(p);
    let p = Peer { ack: p.ack.wrapping_add(4), ..moved(p, 4) };
    // It has started anew, and knows nothing of the connection.
    w.now_ns += 2 * SECOND;
    assert_eq!(w.send(Peer { seq: 9, ..p }, "S", b""), NOT_TAKEN);
    let challenge = w.hear().pop().unwrap();
    w.send(Peer { seq: challenge.ack, ..p }, "R", b"").unwrap();
    assert_eq!(w.hear(), []);
    assert_eq!(w.ended(), 1);
    let fresh = w.open_with(5000, 9, &[]);
    w.is_alive(fresh);
}

/// RFC 5961, section 5; and what an acknowledgement came with is not lost when another overtook it.
#[test]
fn overtaken_acknowledgements_keep_their_bytes_and_old_ones_are_challenged() {
    let mut w = World::new(4);
    let mut p = w.open(5000);
    w.say(&mut p, b"set k 0 0 3\r\nabc\r\n", b"STORED\r\n");
    let before = Peer { ack: p.ack.wrapping_sub(8), ..p };
    w.send(moved(p, 4), "A", b"mn\r\n").unwrap();
    w.send(before, "A", b"mn\r\n").unwrap();
    let got: Vec<u8> = w.hear().into_iter().flat_map(|h| h.payload).collect();
    assert_eq!(got, b"MN\r\nMN\r\n");
    let p = Peer { ack: p.ack.wrapping_add(8), ..moved(p, 8) };
    w.send(p, "A", b"").unwrap();
    assert_eq!(w.hear(), []);
    for by in [70_000_u32, 1 << 30] {
        w.now_ns += 2 * SECOND;
        assert_eq!(w.send(Peer { ack: p.ack.wrapping_sub(by), ..p }, "A", b"quit\r\n"), NOT_TAKEN);
        assert_eq!(w.hear().len(), 1, "a challenge");
    }
    // Of what was never sent.
    w.now_ns += 2 * SECOND;
    let _ = w.send(Peer { ack: p.ack.wrapping_add(5_000), ..p }, "A", b"quit\r\n");
    assert_eq!(w.hear().len(), 1, "a challenge");
    w.is_alive(p);
}

#[test]
fn resets_of_strangers_have_a_rate() {
    let mut w = World::new(4);
    let p = Peer { port: 9, seq: 1, ack: 1 };
    let answered = (0..5000).filter(|_| {
        let why = w.send(p, "A", b"x");
        assert!(matches!(why, Err(DropReason::TcpNoConnection | DropReason::TcpUnanswered)));
        let heard = w.hear();
        assert_eq!(heard.len(), usize::from(why == Err(DropReason::TcpNoConnection)));
        heard.iter().any(|h| h.flags.contains('R'))
    });
    assert_eq!(answered.count(), 1000);
    // A reset is never answered.
    w.now_ns += 2 * SECOND;
    assert_eq!(w.send(p, "R", b""), Err(DropReason::TcpNoConnection));
    assert_eq!(w.hear(), []);
    // Nor does it wear down who has a connection.
    let p = w.open(5000);
    w.is_alive(p);
}

/// Segments that no state machine takes: with options of a length that those cannot have, and with flags that exclude
/// each other.
fn malformed(p: Peer, flags: &str) -> Vec<TcpHeader> {
    let with = |options: &[u8]| {
        let mut head = head(p, flags);
        head.set_options_raw(options).unwrap();
        head
    };
    let mut both = head(p, flags);
    (both.fin, both.rst) = (true, true);
    let short: [&[u8]; 5] =
        [&[2, 2, 0, 0], &[5, 2, 0, 0], &[3, 0, 0, 0], &[8, 40, 0, 0], &[1, 1, 1, 9]];
    short.iter().map(|options| with(options)).chain([both]).collect()
}

const MALFORMED: Result<(), DropReason> = Err(DropReason::TcpMalformed);

/// RFC 9293, section 3.1: they are discarded, and counted as such.
#[test]
fn what_no_state_machine_takes_is_dropped_by_name_and_opens_nothing() {
    let mut w = World::new(1);
    // The one slot has a client that has still to confirm, and that none of them throws out.
    let slow = Peer { port: 9, seq: 1, ack: 0 };
    w.send(slow, "S", b"").unwrap();
    let h = w.hear().pop().unwrap();
    for port in 1000..1020 {
        for syn in malformed(Peer { port, seq: 1, ack: 0 }, "S") {
            assert_eq!(w.put(syn.clone(), b""), MALFORMED, "{syn:?}");
            assert_eq!(w.hear(), []);
        }
    }
    let p = Peer { seq: 2, ack: h.seq.wrapping_add(1), ..slow };
    w.send(p, "A", b"").unwrap();
    for segment in malformed(p, "A") {
        assert_eq!(w.put(segment.clone(), b"mn\r\n"), MALFORMED, "{segment:?}");
        assert_eq!(w.hear(), []);
    }
    w.is_alive(p);
    // Behind a reset in the same burst.
    let p = Peer { ack: p.ack.wrapping_add(4), ..moved(p, 4) };
    w.send(p, "R", b"").unwrap();
    assert_eq!(w.send(p, "A", b"mn\r\n"), Err(DropReason::TcpUnanswered));
    assert_eq!((w.hear(), w.ended()), (vec![], 1));
}

/// What is not answered leaves the rate of resets to what is.
#[test]
fn malformed_segments_of_strangers_take_no_resets_from_others() {
    let mut w = World::new(4);
    let p = Peer { port: 9, seq: 1, ack: 1 };
    for _ in 0..1000 {
        for segment in malformed(p, "A") {
            assert_eq!(w.put(segment, b""), MALFORMED);
        }
    }
    assert_eq!(w.hear(), []);
    assert_eq!(w.send(p, "A", b"x"), Err(DropReason::TcpNoConnection));
    assert_eq!(w.hear().len(), 1);
}

/// Who never confirms, because somebody else has sent its SYN, gets three packets of ours and no reset.
#[test]
fn a_forged_syn_has_three_packets_sent() {
    let mut w = World::new(4);
    w.send(Peer { port: 9, seq: 1, ack: 0 }, "S", b"").unwrap();
    let mut heard = w.hear();
    heard.extend(w.pass(20));
    let flags: Vec<&str> = heard.iter().map(|h| &h.flags[..]).collect();
    assert_eq!(flags, ["SA", "SA", "SA"]);
}

/// Two workers by whose port flows may stray. A segment of the other's connection gets no reset, which would end that;
/// one of nobody's does.
#[test]
fn what_is_another_workers_is_not_reset() {
    let filter = Some(Arc::new(ConnFilter::new(8)));
    let made = || World::made(4, Made { filter: filter.clone(), ..Made::default() });
    let (mut one, mut other) = (made(), made());
    let reset = |w: &mut World, p: Peer| {
        assert_eq!(w.send(p, "A", b"mn\r\n"), Err(DropReason::TcpNoConnection));
        matches!(&w.hear()[..], [h] if h.flags.contains('R'))
    };
    let p = one.open(5000);
    for flags in ["A", "FA", "R", "RA", "SA", ""] {
        assert_eq!(other.send(p, flags, b"x"), Err(DropReason::TcpStray), "{flags}");
        assert_eq!(other.hear(), [], "{flags}");
    }
    one.is_alive(p);
    // What is gone is nobody's. One connection at a time, since two may have one place in the filter.
    one.send(Peer { ack: p.ack.wrapping_add(4), ..moved(p, 4) }, "R", b"").unwrap();
    assert_eq!((one.hear(), one.ended()), (vec![], 1));
    assert!(reset(&mut other, p));
    // Before it is confirmed, too: what strays may have overtaken that.
    one.send(Peer { port: 9, seq: 1, ack: 0 }, "S", b"").unwrap();
    let h = one.hear().pop().unwrap();
    let late = Peer { port: 9, seq: 2, ack: h.seq.wrapping_add(1) };
    assert_eq!(other.send(late, "A", b"mn\r\n"), Err(DropReason::TcpStray));
    // Where it is not confirmed in time, its client may have done so elsewhere, and gets a reset, as it expects it.
    let told = one.pass(20).pop().unwrap();
    assert_eq!((told.to, &told.flags[..], told.seq), (9, "AR", late.ack));
    assert!(reset(&mut other, late));
}

#[test]
fn a_shut_window_is_probed_and_opens_again() {
    let mut w = World::new(4);
    let mut p = w.open(5000);
    w.say(&mut p, b"set k 0 0 3\r\nabc\r\n", b"STORED\r\n");
    let mut shut = head(p, "A");
    shut.window_size = 0;
    w.put(shut.clone(), b"get k\r\n").unwrap();
    p = moved(p, 7);
    let mut probes = w.hear();
    probes.extend(w.pass(20));
    assert!((2..10).contains(&probes.len()), "{probes:?}");
    assert!(probes.iter().all(|h| h.payload.len() <= 1), "{probes:?}");
    // It is there still, says so, and has room in the end.
    shut.sequence_number = p.seq;
    w.put(shut, b"").unwrap();
    w.hear();
    w.send(p, "A", b"").unwrap();
    let got = w.hear();
    let want = b"VALUE k 0 3\r\nabc\r\nEND\r\n";
    let mut bytes = vec![0; want.len()];
    for h in probes.iter().chain(&got).filter(|h| !h.payload.is_empty()) {
        let at = h.seq.wrapping_sub(p.ack) as usize;
        bytes[at..at + h.payload.len()].copy_from_slice(&h.payload);
    }
    assert_eq!(bytes, want);
}

#[test]
fn segments_are_as_small_as_the_client_wants_them() {
    let mut w = World::new(8);
    let mut filler = w.open(4000);
    let value = vec![b'v'; 1000];
    w.say(&mut filler, &[b"set k 0 0 1000\r\n", &value[..], b"\r\n"].concat(), b"STORED\r\n");
    let want = [b"VALUE k 0 1000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    for (port, mss, most) in [(5000, 0, 536), (5001, 1, 48), (5002, 64, 64), (5003, 536, 536)] {
        let p = w.open_with(port, 7, &[Opt::MaximumSegmentSize(mss)]);
        w.send(p, "A", b"get k\r\n").unwrap();
        let (mut got, mut heard) = (Vec::new(), w.hear());
        while !heard.is_empty() {
            for h in &heard {
                assert!(h.payload.len() <= most, "{} of {mss}", h.payload.len());
                assert_eq!(h.seq, p.ack.wrapping_add(len(&got)));
                got.extend_from_slice(&h.payload);
            }
            w.send(Peer { ack: p.ack.wrapping_add(len(&got)), ..moved(p, 7) }, "A", b"").unwrap();
            heard = w.hear();
        }
        assert_eq!(got, want, "MSS {mss}");
    }
}

#[test]
fn numbers_wrap_in_both_directions_of_order() {
    for isn in [u32::MAX, u32::MAX - 1, u32::MAX - 20, u32::MAX - 1000, i32::MAX.unsigned_abs()] {
        let mut w = World::new(4);
        let mut p = w.open_with(5000, isn, &[]);
        let text = [b"set k 0 0 2000\r\n", &[b'x'; 2000][..], b"\r\n"].concat();
        // The last piece first.
        for at in (0..text.len()).step_by(500).rev() {
            let to = text.len().min(at + 510);
            w.send(moved(p, i32::try_from(at).unwrap()), "A", &text[at..to]).unwrap();
        }
        let got: Vec<u8> = w.hear().into_iter().flat_map(|h| h.payload).collect();
        assert_eq!(got, b"STORED\r\n", "from {isn}");
        p.ack = p.ack.wrapping_add(8);
        p.seq = p.seq.wrapping_add(len(&text));
        w.is_alive(p);
        w.send(Peer { ack: p.ack.wrapping_add(4), ..moved(p, 4) }, "R", b"").unwrap();
        w.hear();
        assert_eq!(w.ended(), 1);
    }
}

/// As FreeBSD sends them: MSS, window scale, SACK permitted, timestamps.
#[test]
fn options_of_others_are_understood_or_passed_over() {
    let mut w = World::new(4);
    let options = [
        Opt::MaximumSegmentSize(1460),
        Opt::Noop,
        Opt::WindowScale(6),
        Opt::SelectiveAcknowledgementPermitted,
        Opt::Timestamp(77, 0),
    ];
    let mut p = w.open_with(5000, 100, &options);
    w.say(&mut p, b"set k 0 0 3000\r\n", b"");
    let value = [b'k'; 1500];
    w.say(&mut p, &value, b"");
    w.say(&mut p, &[&value[..], b"\r\n"].concat(), b"STORED\r\n");
    // 40 stands for 2,560 bytes, and every segment has a timestamp.
    let mut asks = head(p, "A");
    asks.window_size = 40;
    asks.set_options(&[Opt::Noop, Opt::Noop, Opt::Timestamp(78, 0)]).unwrap();
    w.put(asks, b"get k\r\n").unwrap();
    let came: usize = w.hear().iter().map(|h| h.payload.len()).sum();
    assert!((2_000..=2_560).contains(&came), "{came}");
    // Acknowledges the second segment alone, by SACK: the first is sent again in time.
    let mut sack = head(moved(p, 7), "A");
    let (from, to) = (p.ack.wrapping_add(1460), p.ack.wrapping_add(2_560));
    sack.set_options(&[Opt::Noop, Opt::Noop, Opt::SelectiveAcknowledgement((from, to), [None; 3])])
        .unwrap();
    w.put(sack, b"").unwrap();
    assert!(w.pass(3).iter().any(|h| h.seq == p.ack && !h.payload.is_empty()));
}

/// A client with a value of 14,000 bytes, which it has asked for, and the segments that brought it.
fn asks_for_much(w: &mut World) -> (Peer, Vec<Heard>) {
    let options = [Opt::MaximumSegmentSize(1460), Opt::SelectiveAcknowledgementPermitted];
    let mut p = w.open_with(5000, 100, &options);
    let value = [&[b'k'; 14_000][..], b"\r\n"].concat();
    w.say(&mut p, b"set k 0 0 14000\r\n", b"");
    for part in value.chunks(1400) {
        w.send(p, "A", part).unwrap();
        p = moved(p, i32::try_from(part.len()).unwrap());
    }
    let stored: Vec<u8> = w.hear().iter().flat_map(|h| h.payload.clone()).collect();
    assert_eq!(stored, b"STORED\r\n");
    p.ack = p.ack.wrapping_add(8);
    w.send(p, "A", b"get k\r\n").unwrap();
    p = moved(p, 7);
    let sent = w.hear();
    (p, sent)
}

/// Ten segments are sent before the first acknowledgement comes (RFC 6928).
#[test]
fn a_first_reply_of_ten_segments_leaves_at_once() {
    let mut w = World::new(4);
    let (p, sent) = asks_for_much(&mut w);
    let bytes: usize = sent.iter().map(|h| h.payload.len()).sum();
    assert_eq!((sent.len(), bytes), (10, 14_000 + "VALUE k 0 14000\r\n\r\nEND\r\n".len()));
    assert_eq!(sent[0].seq, p.ack);
}

/// A client that misses a segment says so with SACK, and with whatever window it has by then: the segment,
/// and no other, is sent again long before its time.
#[test]
fn what_is_missing_by_sack_is_sent_again_at_once_and_nothing_else() {
    let mut w = World::new(4);
    let (p, sent) = asks_for_much(&mut w);
    let mut again = Vec::new();
    // The first and the fourth are lost; each of the others is acknowledged selectively.
    for (n, h) in sent.iter().enumerate().filter(|(n, _)| ![0, 3].contains(n)) {
        let mut sack = head(p, "A");
        sack.window_size = 60_000 - 100 * u16::try_from(n).unwrap();
        let last =
            (if n < 3 { sent[1].seq } else { sent[4].seq }, h.seq.wrapping_add(len(&h.payload)));
        let first = (n > 3).then(|| (sent[1].seq, sent[3].seq));
        let blocks = Opt::SelectiveAcknowledgement(last, [first, None, None]);
        sack.set_options(&[Opt::Noop, Opt::Noop, blocks]).unwrap();
        w.put(sack, b"").unwrap();
        again.extend(w.hear());
    }
    let again: Vec<u32> = again.iter().map(|h| h.seq).collect();
    assert_eq!(again, [sent[0].seq, sent[3].seq]);
    // The last of what is lost twice takes a fifth of a second, not a second.
    w.now_ns += SECOND / 4;
    assert!(w.hear().iter().any(|h| h.seq == p.ack && !h.payload.is_empty()));
}

/// Replies go where the client's segments come from. One alone, whose Ethernet header nothing sums, does not
/// say that it has moved, nor do two with a good one between.
#[test]
fn a_client_has_moved_when_two_segments_say_so() {
    let mut w = World::new(4);
    let mut p = w.open(5000);
    let moved_to = [2, 0, 0, 0, 9, 9];
    let stays = [PEER_MAC.0, moved_to, PEER_MAC.0, moved_to].map(|from| (from, PEER_MAC.0));
    for (from, to) in stays.into_iter().chain([(moved_to, moved_to)]) {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ethernet2(from, MAC.0).ipv4(CLIENT, SERVER, 64);
        builder.tcp_header(head(p, "A")).write(&mut bytes, b"mn\r\n").unwrap();
        let mut frame = w.region.alloc().unwrap();
        frame.fill(&bytes).unwrap();
        let at = At { l3: 14, l4: 34, ipv6: false, limited: false };
        w.take(frame, at).1.unwrap();
        w.streams.turn(&mut w.gate, w.now_ns);
        let replies: Vec<Frame> = w.streams.frames().map(|(_, frame)| frame).collect();
        assert!(replies.len() == 1 && replies[0].bytes()[..6] == to);
        p = Peer { ack: p.ack.wrapping_add(4), ..moved(p, 4) };
    }
}

/// When nothing is heard of a reply, its last segment asks what became of the others.
#[test]
fn a_lost_end_is_asked_for_after_two_round_trips() {
    let mut w = World::new(4);
    let (_, sent) = asks_for_much(&mut w);
    w.now_ns += SECOND / 50;
    let ends = |h: &Heard| h.seq.wrapping_add(len(&h.payload));
    let again: Vec<u32> = w.hear().iter().map(ends).collect();
    assert_eq!(again, [ends(&sent[9])]);
}

/// Slots whose connections have ended are had back, the oldest first, however often others began anew.
#[test]
fn what_has_ended_makes_room_and_what_has_not_does_not() {
    let mut w = World::new(3);
    let quit = |w: &mut World, port: u16| {
        let p = w.open(port);
        w.send(p, "A", b"quit\r\n").unwrap();
        w.hear();
        w.send(Peer { ack: p.ack.wrapping_add(1), ..moved(p, 6) }, "FA", b"").unwrap();
        w.hear();
    };
    let stays = w.open(4000);
    quit(&mut w, 5000);
    // The same client comes back again and again, each time where its last connection has just ended.
    for _ in 0..20 {
        quit(&mut w, 6000);
    }
    // Two have ended, and both make room.
    let one = w.open(7000);
    let two = w.open(7001);
    let p = Peer { port: 7002, seq: 1, ack: 0 };
    assert_eq!(w.send(p, "S", b""), Err(DropReason::TcpFull));
    for p in [stays, one, two] {
        w.is_alive(p);
    }
}

/// A client that is slow to confirm is not thrown out by others that have long confirmed.
#[test]
fn only_those_that_wait_count_as_waiting() {
    let mut w = World::new(400);
    w.send(Peer { port: 9, seq: 1, ack: 0 }, "S", b"").unwrap();
    let h = w.hear().pop().unwrap();
    for port in 1000..1300 {
        w.open(port);
    }
    let p = Peer { port: 9, seq: 2, ack: h.seq.wrapping_add(1) };
    w.send(p, "A", b"").unwrap();
    w.is_alive(p);
}

#[test]
fn a_lost_answer_to_a_syn_is_sent_again_and_nobody_waits_for_ever() {
    let mut w = World::new(4);
    w.send(Peer { port: 9, seq: 1, ack: 0 }, "S", b"").unwrap();
    let heard = w.pass(8);
    assert!(heard.iter().filter(|h| h.flags == "SA").count() >= 2, "{heard:?}");
    let last = heard.iter().rfind(|h| h.flags == "SA").unwrap();
    // It has been given up.
    let p = Peer { port: 9, seq: 2, ack: last.seq.wrapping_add(1) };
    assert_eq!(w.send(p, "A", b""), Err(DropReason::TcpNoConnection));
    // A client that has forgotten that it asked may ask anew at once.
    w.send(Peer { port: 10, seq: 1, ack: 0 }, "S", b"").unwrap();
    w.hear();
    let p = w.open_with(10, 5_000, &[]);
    w.is_alive(p);
}

#[test]
fn a_silent_client_is_asked_and_then_given_up_and_one_that_asks_is_told() {
    let mut w = World::new(4);
    let (gone, here) = (w.open(5000), w.open(5001));
    // The client's own question: a byte that we have.
    w.send(moved(here, -1), "A", b"").unwrap();
    assert!(matches!(&w.hear()[..], [h] if h.flags == "A" && h.ack == here.seq));
    w.send(moved(here, -1), "A", b"x").unwrap();
    assert!(matches!(&w.hear()[..], [h] if h.flags == "A" && h.ack == here.seq));
    let mut asked = 0;
    for _ in 0..400 {
        for h in w.pass(1) {
            if h.to == 5001 && h.flags == "A" {
                w.send(here, "A", b"").unwrap();
            } else if h.to == 5000 {
                assert!(h.payload.len() <= 1);
                asked += 1;
            }
        }
    }
    assert!(asked >= 2, "asked {asked} times");
    assert_eq!(w.ended(), 1, "one of them is gone");
    let _ = gone;
    w.is_alive(here);
}

/// A million SYNs from addresses of nobody's: who is there keeps all of its service, and who comes
/// gets in.
#[test]
fn a_flood_of_a_million_syns() {
    let mut w = World::new(1024);
    let mut clients: Vec<Peer> = (100..132).map(|port| w.open(port)).collect();
    let mut frame = w.region.alloc().unwrap();
    let mut bytes = Vec::new();
    let syn = head(Peer { port: 1, seq: 1, ack: 0 }, "S");
    let builder = PacketBuilder::ethernet2(PEER_MAC.0, MAC.0).ipv4(CLIENT, SERVER, 64);
    builder.tcp_header(syn).write(&mut bytes, b"").unwrap();
    // The port says that it has looked at the sums.
    (frame.rx.ip_good, frame.rx.udp_good) = (true.into(), true.into());
    let at = At { l3: 14, l4: 34, ipv6: false, limited: false };
    let (mut flood, mut honest) = (0_u32, 0);
    while flood < 1_000_000 {
        for _ in 0..31 {
            flood += 1;
            let [a, b, c, d] = flood.to_be_bytes();
            bytes[26..30].copy_from_slice(&[172, 16 + a % 16, b, c]);
            bytes[34..36].copy_from_slice(&[d | 1, c]);
            frame.fill(&bytes).unwrap();
            let taken;
            (frame, taken) = w.take(frame, at);
            assert_eq!(taken, Ok(()));
        }
        w.now_ns += 30_000;
        let n = flood as usize % clients.len();
        let p = &mut clients[n];
        let request = head(*p, "A");
        w.put(request, b"mn\r\n").unwrap();
        let port = p.port;
        let heard = w.hear();
        let reply = heard.iter().find(|h| h.to == port).expect("the reply, in the same turn");
        assert_eq!(reply.payload, b"MN\r\n");
        let p = &mut clients[n];
        (p.seq, p.ack) = (p.seq + 4, p.ack.wrapping_add(4));
        honest += 1;
        if honest % 1000 == 0 {
            // And one that comes in the midst of it. The flood's segments are not for its ears.
            let port = u16::try_from(200 + honest / 1000).unwrap();
            let p = Peer { port, seq: 1, ack: 0 };
            w.send(p, "S", b"").unwrap();
            let h = w.hear().into_iter().find(|h| h.to == port).expect("a SYN-ACK");
            let p = Peer { seq: 2, ack: h.seq.wrapping_add(1), ..p };
            w.send(p, "A", b"").unwrap();
            w.send(p, "A", b"mn\r\n").unwrap();
            let reply = w.hear().into_iter().find(|h| h.to == port);
            assert!(reply.is_some_and(|h| h.payload == b"MN\r\n"));
        }
    }
    assert_eq!(w.server.totals().rejected_connections, 0);
    assert_eq!(w.ended(), 0);
}

/// A client has filled the window and said its end; then comes a number from the other side of all of them.
#[test]
fn a_number_far_away_behind_a_full_window_does_no_harm() {
    let bytes = [b'x'; 16 << 10];
    let pieces: Vec<_> = bytes.chunks(1400).collect();
    for (fin_comes_alone, (flags, payload)) in [false, true]
        .into_iter()
        .flat_map(|alone| [("A", ""), ("A", "x"), ("FA", "")].map(|what| (alone, what)))
    {
        for more in -2..=2 {
            let mut w = World::new(4);
            let mut p = w.open(5000);
            for (at, piece) in pieces.iter().enumerate() {
                let ends = at + 1 == pieces.len() && !fin_comes_alone;
                w.send(p, if ends { "FA" } else { "A" }, piece).unwrap();
                p = moved(p, i32::try_from(piece.len()).unwrap());
            }
            if fin_comes_alone {
                w.send(p, "FA", b"").unwrap();
            }
            let seq = p.seq.wrapping_add(1 << 31).wrapping_add_signed(more);
            let _ = w.send(Peer { seq, ..p }, flags, payload.as_bytes());
            w.hear();
            let other = w.open(5001);
            w.is_alive(other);
        }
    }
}
