//! TCP served by the worker: a client with a stack of its own on the far side of the wire.

use crate::stream_client::{Client, ip};
use crate::world::{CLIENT4, PORT, SERVER4, SERVER6, World};
use driver_shim::ports::fault::{FaultConfig, Faults, PerMillion, wrap};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use etherparse::{PacketBuilder, SlicedPacket, TcpHeader, TransportSlice};
use smoltcp::socket::tcp;
use std::time::{Duration, Instant};
use wire::DropReason;

#[test]
fn a_connection_from_its_first_segment_to_its_last() {
    for to in [ip(SERVER4), ip(SERVER6)] {
        let mut w = World::streaming(8, |q, _| q);
        let mut client = Client::new();
        let c = client.connect(to);
        client.say(&mut w, c, "set sun 5 0 4\r\nstar\r\n", "STORED\r\n");
        client.say(&mut w, c, "get sun moon\r\n", "VALUE sun 5 4\r\nstar\r\nEND\r\n");
        client.say(&mut w, c, "mg sun v\r\nmn\r\n", "VA 4\r\nstar\r\nMN\r\n");
        let (many, replies) =
            ("get sun\r\n".repeat(300), "VALUE sun 5 4\r\nstar\r\nEND\r\n".repeat(300));
        client.say(&mut w, c, &many, &replies);
        assert_eq!(w.server.totals().total_connections, 1);
        client.close(&mut w, c);
        let totals = w.server.totals();
        let ledger = w.end();
        assert_eq!(totals.closed_connections, 1);
        assert!(ledger.answered > 5);
    }
}

/// Bytes that look like nothing else.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut x = seed | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x.to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn found(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\nEND\r\n"].concat()
}

#[test]
fn long_values_pass_in_both_directions() {
    let mut w = World::streaming(2, |q, _| q);
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    for len in [1, 1400, 16_300, 16_384, 16_500, 70_000, 900_000] {
        let value = noise(len, 99);
        assert_eq!(client.ask(&mut w, c, &set("k", &value), 8), b"STORED\r\n");
        let want = found("k", &value);
        assert!(client.ask(&mut w, c, b"get k\r\n", want.len()) == want, "{len}");
    }
    client.close(&mut w, c);
    w.end();
}

#[test]
fn a_bad_wire_costs_time_and_not_a_byte() {
    let faults = Faults {
        lose: PerMillion(10_000),
        duplicate: PerMillion(10_000),
        reorder: PerMillion(20_000),
        flip: PerMillion(2_000),
        ..Faults::default()
    };
    let mut counters = Vec::new();
    let mut w = World::streaming(2, |pair, region| {
        let (pair, c) = wrap(pair, region, &FaultConfig { seed: 1, rx: faults, tx: faults });
        counters.push(c);
        pair
    });
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    // A loss at the end of a burst costs the least retransmission time, a second.
    for round in 0..6 {
        let value = noise(400_000, round + 1);
        assert_eq!(client.ask(&mut w, c, &set("k", &value), 8), b"STORED\r\n");
        let want = found("k", &value);
        assert!(client.ask(&mut w, c, b"get k\r\n", want.len()) == want, "round {round}");
    }
    let (rx, tx) = (counters[0].rx(), counters[0].tx());
    assert!(rx.lost > 3 && tx.lost > 3 && rx.duplicated > 3 && tx.reordered > 3, "{rx:?} {tx:?}");
    w.end();
}

/// A segment made by hand, from port `from`.
fn segment(from: u16, flags: &str, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
    let mut head = TcpHeader::new(from, PORT, seq, 60_000);
    (head.syn, head.ack) = (flags.contains('S'), flags.contains('A'));
    (head.fin, head.rst) = (flags.contains('F'), flags.contains('R'));
    head.acknowledgment_number = ack;
    let builder = PacketBuilder::ethernet2(PEER_MAC.0, MAC.0).ipv4(CLIENT4, SERVER4, 64);
    let mut bytes = Vec::new();
    builder.tcp_header(head).write(&mut bytes, payload).unwrap();
    bytes
}

/// The segments that came, each well formed: flags, sequence number, acknowledgement, payload.
fn replies(w: &mut World) -> Vec<(String, u32, u32, Vec<u8>)> {
    w.settle();
    let frames = w.received(0);
    let open = |bytes: &[u8]| {
        let packet = SlicedPacket::from_ethernet(bytes).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else { panic!("{bytes:x?}") };
        let head = tcp.to_header();
        let sum = head.calc_checksum_ipv4_raw(SERVER4, CLIENT4, tcp.payload()).unwrap();
        assert_eq!(sum, tcp.checksum());
        let flags = [(tcp.syn(), 'S'), (tcp.ack(), 'A'), (tcp.fin(), 'F'), (tcp.rst(), 'R')];
        let flags = flags.iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
        let payload = tcp.payload().to_vec();
        (flags, tcp.sequence_number(), tcp.acknowledgment_number(), payload)
    };
    frames.iter().map(|f| open(f.bytes())).collect()
}

/// Opens a connection by hand; the next byte of ours is 101. Gives the next byte of the server's.
fn open(w: &mut World, from: u16) -> u32 {
    w.send(&segment(from, "S", 100, 0, b""));
    let [(flags, seq, 101, _)] = &replies(w)[..] else { panic!("no SYN-ACK") };
    assert_eq!(flags, "SA");
    let next = seq.wrapping_add(1);
    w.send(&segment(from, "A", 101, next, b""));
    assert!(replies(w).is_empty());
    next
}

#[test]
fn segments_may_come_in_any_order_and_overlap() {
    let mut w = World::streaming(4, |q, _| q);
    let next = open(&mut w, 5000);
    let text = b"set k 0 0 10\r\n0123456789\r\nget k\r\n";
    let piece = |from: usize, to: usize| {
        segment(5000, "A", 101 + u32::try_from(from).unwrap(), next, &text[from..to])
    };
    for (from, to) in [(20, 30), (10, 25), (28, text.len()), (20, 30)] {
        w.send(&piece(from, to));
    }
    assert!(
        replies(&mut w)
            .iter()
            .all(|(flags, _, ack, data)| flags == "A" && *ack == 101 && data.is_empty())
    );
    w.send(&piece(0, 12));
    let got: Vec<u8> = replies(&mut w).into_iter().flat_map(|(.., data)| data).collect();
    assert_eq!(got, b"STORED\r\nVALUE k 0 10\r\n0123456789\r\nEND\r\n");
    // A reset in the window ends it.
    w.send(&segment(5000, "R", 101 + u32::try_from(text.len()).unwrap(), 0, b""));
    w.settle();
    assert_eq!(w.server.totals().closed_connections, 1);
    // What comes then belongs to nothing, and a reset says so.
    w.send(&piece(0, 12));
    assert_eq!(replies(&mut w)[0].0, "R");
    assert_eq!(w.dropped(DropReason::TcpNoConnection), 1);
    w.end();
}

#[test]
fn a_reply_carries_the_acknowledgement_and_no_other_waits() {
    let mut w = World::streaming(4, |q, _| q);
    let next = open(&mut w, 5000);
    w.send(&segment(5000, "A", 101, next, b"get k\r\n"));
    let [(flags, _, ack, data)] = &replies(&mut w)[..] else { panic!("one segment, at once") };
    assert_eq!((&flags[..], *ack, &data[..]), ("A", 108, &b"END\r\n"[..]));
    // Half a request is acknowledged at once: the client may hold the other half back until then.
    w.send(&segment(5000, "A", 108, next + 5, b"set k 0 0 3\r\n"));
    let [(_, _, ack, data)] = &replies(&mut w)[..] else { panic!("one segment, at once") };
    assert_eq!((*ack, &data[..]), (121, &b""[..]));
    w.end();
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let mut w = World::streaming(4, |q, _| q);
    let value = noise(100_000, 5);
    let mut client = Client::new();
    let filler = client.connect(ip(SERVER4));
    client.ask(&mut w, filler, &set("big", &value), 8);
    client.close(&mut w, filler);
    let mut next = open(&mut w, 5000);
    // Asks for more than it will ever take in, and says that its window is shut.
    let asks = b"get big\r\n".repeat(100);
    let mut shut = segment(5000, "A", 101, next, &asks);
    let at = 14 + 20 + 14;
    shut[at..at + 2].fill(0);
    let sum = |bytes: &mut Vec<u8>| {
        let (mut head, payload) = TcpHeader::from_slice(&bytes[34..]).unwrap();
        head.checksum = head.calc_checksum_ipv4_raw(CLIENT4, SERVER4, payload).unwrap();
        let head = head.to_bytes();
        bytes[34..34 + head.len()].copy_from_slice(&head);
    };
    sum(&mut shut);
    w.send(&shut);
    let came: Vec<_> = replies(&mut w).into_iter().filter(|r| !r.3.is_empty()).collect();
    assert!(came.iter().map(|r| r.3.len()).sum::<usize>() <= 1, "a window probe at most");
    let read = w.server.totals().bytes_read;
    for _ in 0..200 {
        w.settle();
    }
    assert!(w.server.totals().cmd_get < 10, "it reads on");
    assert_eq!(w.server.totals().bytes_read, read);
    next = next.wrapping_add(0);
    w.send(&segment(5000, "R", 101 + 900, next, b""));
    w.settle();
    w.end();
}

#[test]
fn a_flood_of_syns_takes_no_clients_place() {
    let mut w = World::streaming(64, |q, _| q);
    let next = open(&mut w, 5000);
    for port in 10_000..12_000 {
        w.send(&segment(port, "S", 7, 0, b""));
        w.settle();
        w.received(0);
    }
    assert_eq!(w.server.totals().rejected_connections, 0);
    // The client that was there is still there, and another finds a place.
    w.send(&segment(5000, "A", 101, next, b"mn\r\n"));
    assert_eq!(replies(&mut w)[0].3, b"MN\r\n");
    open(&mut w, 5001);
    w.end();
}

#[test]
fn a_full_house_lets_nobody_in_and_a_place_is_used_again() {
    let mut w = World::streaming(3, |q, _| q);
    let mut nexts = Vec::new();
    for port in 5000..5003 {
        nexts.push(open(&mut w, port));
    }
    w.send(&segment(6000, "S", 7, 0, b""));
    assert!(replies(&mut w).is_empty());
    assert_eq!(w.dropped(DropReason::TcpFull), 1);
    // The client ends one: our FIN is the answer, and its acknowledgement the end.
    w.send(&segment(5001, "FA", 101, nexts[1], b""));
    let (flags, seq, ack, _) = replies(&mut w).pop().unwrap();
    assert!(flags.contains('F') && seq == nexts[1] && ack == 102, "{flags}");
    w.send(&segment(5001, "A", 102, nexts[1].wrapping_add(1), b""));
    assert!(replies(&mut w).is_empty());
    for _ in 0..3 {
        let next = open(&mut w, 6000);
        w.send(&segment(6000, "A", 101, next, b"quit\r\n"));
        let (flags, ..) = replies(&mut w).pop().unwrap();
        assert!(flags.contains('F'));
        w.send(&segment(6000, "FA", 107, next.wrapping_add(1), b""));
        assert_eq!(replies(&mut w).pop().unwrap().0, "A");
        // The place is held for late segments, and a fresh SYN may still have it.
    }
    w.end();
}

#[test]
fn broken_segments_have_names() {
    let mut w = World::streaming(4, |q, _| q);
    let good = segment(5000, "S", 100, 0, b"");
    let with = |at: usize, bytes: &[u8]| {
        let mut s = good.clone();
        s[at..at + bytes.len()].copy_from_slice(bytes);
        s
    };
    for (bytes, reason) in [
        (with(34 + 16, &[1, 2]), DropReason::TcpChecksum),
        (with(34 + 12, &[0x40]), DropReason::TcpTruncated),
        (with(34 + 12, &[0xf0]), DropReason::TcpTruncated),
        (with(24, &[1, 2]), DropReason::Ipv4Checksum),
        (with(34, &[0, 0]), DropReason::SourcePort),
        (with(26, &[192, 168, 7, 7]), DropReason::SourceNotAllowed),
    ] {
        let before = w.dropped(reason);
        w.send(&bytes);
        w.settle();
        assert_eq!(w.dropped(reason), before + 1, "{}", reason.name());
    }
    assert!(w.received(0).is_empty());
    w.end();
}

#[test]
fn connections_are_ended_when_the_service_stops() {
    let mut w = World::streaming(4, |q, _| q);
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    client.say(&mut w, c, "mn\r\n", "MN\r\n");
    std::thread::scope(|scope| {
        let mut worker = w.workers.pop().unwrap();
        let draining = scope.spawn(move || (worker.drain(), worker).1);
        let begun = Instant::now();
        while !draining.is_finished() {
            client.exchange(&mut w);
            if client.socket(c).state() == tcp::State::CloseWait {
                client.socket(c).close();
            }
        }
        assert!(begun.elapsed() < Duration::from_millis(900), "both sides have ended it");
        w.workers.push(draining.join().unwrap());
    });
    // The last acknowledgement lies on the wire still.
    client.step(&mut w);
    assert_eq!(client.socket(c).state(), tcp::State::Closed);
    w.end();
}

#[test]
fn no_segment_ends_the_worker() {
    let mut w = World::streaming(64, |q, _| q);
    let mut random = noise(400_000, 77).into_iter().cycle();
    let mut byte = move || random.next().unwrap();
    for round in 0_u16..300 {
        let from = 5000 + round % 60;
        w.send(&segment(from, "S", 100, 0, b""));
        w.settle();
        let seq = w.received(0).last().map(|f| f.bytes()[38..42].to_vec()).unwrap_or_default();
        let seq = seq.first_chunk().map_or(0, |seq| u32::from_be_bytes(*seq)).wrapping_add(1);
        w.send(&segment(from, "A", 101, seq, b""));
        w.settle();
        for _ in 0..60 {
            let flags: String = "SAFR".chars().filter(|_| byte() % 3 == 0).chain(['A']).collect();
            let text = &b"set k 0 0 9\r\n012345678\r\nget k\r\nquit\r\n\x80\x01"
                [usize::from(byte() % 40)..];
            let near = |at: u32, by: u8| at.wrapping_add(u32::from(by) / 16).wrapping_sub(4);
            let mut bytes = segment(from, &flags, near(101, byte()), near(seq, byte()), text);
            // Options, windows and lengths of any kind, under checksums that are right.
            for _ in 0..byte() % 4 {
                let at = 34 + usize::from(byte() % 24);
                if ![2, 3].contains(&(at - 34)) && at < bytes.len() {
                    bytes[at] = byte();
                }
            }
            wire::tcp::seal(&mut bytes[14..], 20, false);
            w.send(&bytes);
        }
        w.settle();
        w.received(0);
    }
    assert!(w.server.totals().total_connections > 0);
    w.end();
}

/// Buffers for long requests and replies that a worker has for items of a megabyte.
const BUFFERS: u16 = 64;

/// Opens so many connections that have a part of a long request each.
fn hangers(w: &mut World) -> Vec<u32> {
    (0..BUFFERS)
        .map(|n| {
            let next = open(w, 20_000 + n);
            w.send(&segment(20_000 + n, "A", 101, next, b"set long 0 0 100000\r\n"));
            replies(w);
            next
        })
        .collect()
}

#[test]
fn small_requests_do_not_wait_for_the_buffers_of_long_ones() {
    let mut w = World::streaming(100, |q, _| q);
    let next = open(&mut w, 5000);
    let mut at = 101;
    for part in set("k", &noise(1_200, 3)).chunks(1000) {
        w.send(&segment(5000, "A", at, next, part));
        at += u32::try_from(part.len()).unwrap();
    }
    replies(&mut w);
    let next = next.wrapping_add(8);
    hangers(&mut w);
    w.send(&segment(5000, "A", at, next, b"mn\r\nget k\r\nstats\r\n"));
    let got: Vec<u8> = replies(&mut w).into_iter().flat_map(|(.., data)| data).collect();
    let want = [b"MN\r\n", &found("k", &noise(1_200, 3))[..]].concat();
    assert!(got.starts_with(&want), "{} bytes", got.len());
    w.end();
}

#[test]
fn who_drips_does_not_keep_the_buffers() {
    let mut w = World::streaming(100, |q, _| q);
    let nexts = hangers(&mut w);
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    let value = noise(50_000, 9);
    let request = set("k", &value);
    let (mut sent, mut got, mut drops) = (0, Vec::new(), 0);
    let begun = Instant::now();
    let mut dripped = begun - Duration::from_secs(1);
    client.until(&mut w, |client| {
        assert!(begun.elapsed() < Duration::from_secs(10), "it waits for those who drip");
        if dripped.elapsed() > Duration::from_millis(500) {
            for (port, next) in (20_000..).zip(&nexts) {
                client.far.gone.push_back(segment(port, "A", 122 + drops, *next, b"x"));
            }
            (dripped, drops) = (Instant::now(), drops + 1);
        }
        // The client's stack knows nothing of those, and would reset them.
        client
            .far
            .come
            .retain(|f| f.get(36).is_none_or(|port| *port != 20_000_u16.to_be_bytes()[0]));
        let socket = client.socket(c);
        if sent < request.len() && socket.may_send() {
            sent += socket.send_slice(&request[sent..]).unwrap();
        }
        while socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), got.extend_from_slice(bytes))).unwrap();
        }
        got == b"STORED\r\n"
    });
    w.end();
}

#[test]
fn what_came_before_the_stop_is_answered_and_who_does_not_end_is_reset() {
    let mut w = World::streaming(100, |q, _| q);
    let next = open(&mut w, 5000);
    let others: Vec<_> = (5001..5060).map(|port| (port, open(&mut w, port))).collect();
    w.send(&segment(5000, "A", 101, next, &b"mn\r\n".repeat(300)));
    for &(port, next) in &others {
        w.send(&segment(port, "A", 101, next, b"mn\r\n"));
    }
    // Those lie in the queue, and more than one burst of them.
    w.workers[0].drain();
    let frames: Vec<_> = w.received(0).iter().map(|f| f.bytes().to_vec()).collect();
    let of = |port: u16| {
        let to = move |f: &&Vec<u8>| f[36..38] == port.to_be_bytes();
        let parts = frames.iter().filter(to).map(|f| {
            let (head, data) = TcpHeader::from_slice(&f[34..]).unwrap();
            let len = usize::from(u16::from_be_bytes([f[16], f[17]])) - 40;
            (head.fin, head.rst, data[..len.min(data.len())].to_vec())
        });
        parts.collect::<Vec<_>>()
    };
    for (port, requests) in [(5000, 300)].into_iter().chain(others.iter().map(|o| (o.0, 1))) {
        let parts = of(port);
        let data: Vec<u8> = parts.iter().flat_map(|(.., data)| data.clone()).collect();
        // Nothing is acknowledged, so parts may come twice.
        assert!(data.starts_with(&b"MN\r\n".repeat(requests)), "{port}: {} bytes", data.len());
        assert!(parts.iter().any(|(fin, ..)| *fin), "{port}");
        assert!(parts.last().is_some_and(|(_, rst, _)| *rst), "{port}: not reset");
    }
    w.end();
}

/// Only who could say something and does not is idle: a client that watches never says anything.
#[test]
fn a_client_that_watches_is_not_idle() {
    const IDLE: Duration = Duration::from_millis(300);
    let mut w = World::impatient(4, IDLE);
    let mut client = Client::new();
    let [watcher, silent] = [(); 2].map(|()| client.connect(ip(SERVER4)));
    client.say(&mut w, watcher, "watch evictions\r\n", "OK\r\n");
    client.say(&mut w, silent, "get k\r\n", "END\r\n");
    client.until(&mut w, |c| !c.socket(silent).may_recv());
    let begun = Instant::now();
    client.until(&mut w, |_| begun.elapsed() > 2 * IDLE);
    assert!(client.socket(watcher).may_recv(), "the watcher was ended");
    client.close(&mut w, watcher);
    w.end();
}

#[test]
fn what_came_behind_a_gap_outlives_a_rest() {
    let mut w = World::streaming(4, |q, _| q);
    let (gap, whole) = (open(&mut w, 5000), open(&mut w, 5001));
    let text = b"set k 0 0 10\r\n0123456789\r\nget k\r\n";
    let want = b"STORED\r\nVALUE k 0 10\r\n0123456789\r\nEND\r\n";
    w.send(&segment(5000, "A", 111, gap, &text[10..]));
    w.send(&segment(5001, "A", 101, whole, text));
    let data =
        |w: &mut World| -> Vec<u8> { replies(w).into_iter().flat_map(|(.., data)| data).collect() };
    assert_eq!(data(&mut w), want);
    let next = whole.wrapping_add(u32::try_from(want.len()).unwrap());
    w.send(&segment(5001, "A", 101 + u32::try_from(text.len()).unwrap(), next, b""));
    // Longer than a connection's buffers keep their memory.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_500) {
        w.settle();
        std::thread::sleep(Duration::from_millis(5));
    }
    w.received(0);
    w.send(&segment(5000, "A", 101, gap, &text[..10]));
    assert_eq!(data(&mut w), want);
    w.send(&segment(5001, "A", 101 + u32::try_from(text.len()).unwrap(), next, text));
    assert_eq!(data(&mut w), want);
    w.end();
}
