//! Long requests and replies: windows that grow for them, and shrink again.

use crate::world::{Heard, Peer, SECOND, World, head, len, moved};
use etherparse::TcpOptionElement as Opt;
use store::verbs;

const VALUE: usize = 200_000;
/// Units of a window, where the client scales windows.
const SCALE: usize = 8;

fn opened(w: &mut World, port: u16) -> Peer {
    let options = [
        Opt::MaximumSegmentSize(1460),
        Opt::SelectiveAcknowledgementPermitted,
        Opt::Noop,
        Opt::WindowScale(7),
    ];
    w.open_with(port, 100, &options)
}

fn payload(heard: &[Heard]) -> Vec<u8> {
    heard.iter().flat_map(|h| h.payload.clone()).collect()
}

/// Sends the whole of a long `set`, and says what windows were announced meanwhile.
fn sets(w: &mut World, p: &mut Peer) -> Vec<usize> {
    let mut windows = Vec::new();
    let request = [format!("set k 0 0 {VALUE}\r\n").as_bytes(), &[b'v'; VALUE], b"\r\n"].concat();
    let mut replies = Vec::new();
    for part in request.chunks(1400) {
        w.send(*p, "A", part).unwrap();
        *p = moved(*p, i32::try_from(part.len()).unwrap());
        let heard = w.hear();
        windows.extend(heard.iter().map(|h| usize::from(h.window) * SCALE));
        replies.extend(payload(&heard));
    }
    assert_eq!(replies, b"STORED\r\n");
    p.ack = p.ack.wrapping_add(8);
    windows
}

/// Acknowledges all of it, and says what comes then.
fn acknowledge(w: &mut World, p: &mut Peer, heard: &[Heard]) -> Vec<Heard> {
    p.ack = heard.iter().map(|h| h.seq.wrapping_add(len(&h.payload))).max().unwrap_or(p.ack);
    w.send(*p, "A", b"").unwrap();
    w.hear()
}

/// Whether a short request's reply announces no more than short buffers hold.
fn short_window(w: &mut World, p: &mut Peer) -> bool {
    w.send(*p, "A", b"mn\r\n").unwrap();
    *p = moved(*p, 4);
    let heard = w.hear();
    assert_eq!(payload(&heard), b"MN\r\n");
    acknowledge(w, p, &heard);
    heard.iter().all(|h| usize::from(h.window) * SCALE <= 16 << 10)
}

#[test]
fn windows_grow_for_long_requests_and_replies_and_shrink_at_rest() {
    let mut w = World::new(4);
    let mut p = opened(&mut w, 5000);
    assert!(short_window(&mut w, &mut p), "nothing was long yet");
    let windows = sets(&mut w, &mut p);
    assert!(windows.iter().any(|&window| window > 200 << 10), "{windows:?}");

    // The reply: as much is under way as its window allows, and that grows with what is acknowledged.
    w.send(p, "A", b"get k\r\n").unwrap();
    p = moved(p, 7);
    let (mut heard, mut reply, mut most) = (w.hear(), Vec::new(), 0);
    while !heard.is_empty() {
        let bytes = payload(&heard);
        most = most.max(bytes.len());
        reply.extend(bytes);
        heard = acknowledge(&mut w, &mut p, &heard);
    }
    let want =
        [format!("VALUE k 0 {VALUE}\r\n").as_bytes(), &[b'v'; VALUE], b"\r\nEND\r\n"].concat();
    assert!(reply == want, "{} bytes of {}", reply.len(), want.len());
    assert!(most > 90_000, "at most {most} bytes under way");

    // At rest the long buffers are given back: what is announced then fits the short one.
    assert!(!short_window(&mut w, &mut p));
    w.pass(5);
    assert!(short_window(&mut w, &mut p));
}

/// Where as many connections have long buffers as may, the next has short ones, and is served.
#[test]
fn long_buffers_are_bounded_and_pass_to_the_next() {
    let mut w = World::new(64);
    let mut peers: Vec<_> = (0..40).map(|n| opened(&mut w, 6000 + n)).collect();
    let long = |w: &mut World, peers: &mut [Peer]| {
        peers
            .iter_mut()
            .filter_map(|p| sets(w, p).into_iter().max())
            .filter(|&most| most > 32 << 10)
            .count()
    };
    assert_eq!(long(&mut w, &mut peers), 32);
    w.pass(5);
    assert_eq!(long(&mut w, &mut peers[32..]), 8, "those of others at rest");
    // A connection that ends gives its own back.
    for p in &peers {
        w.put(head(*p, "R"), b"").unwrap();
    }
    let mut peers: Vec<_> = (0..40).map(|n| opened(&mut w, 7000 + n)).collect();
    assert_eq!(long(&mut w, &mut peers), 32);
}

/// Where no slot is free to acknowledge with, more may have come than short buffers would offer.
#[test]
fn windows_shrink_with_bytes_unacknowledged() {
    const COME: usize = 10_000;
    let mut w = World::new(4);
    let mut p = opened(&mut w, 5000);
    sets(&mut w, &mut p);
    w.send(p, "A", b"").unwrap();
    w.hear();
    w.now_ns += 3 * SECOND;
    let request = [b"set k 0 0 12000\r\n", &[b'v'; 12_000][..], b"\r\n"].concat();
    let (come, rest) = request.split_at(COME);
    for part in come.chunks(1400) {
        w.send(p, "A", part).unwrap();
        p = moved(p, i32::try_from(part.len()).unwrap());
    }
    let slots: Vec<_> = std::iter::from_fn(|| w.region.alloc()).collect();
    assert_eq!(w.pass(1), []);
    drop(slots);
    let heard = w.pass(1);
    assert!(
        heard.iter().all(|h| h.ack == p.seq && usize::from(h.window) * SCALE <= 6384),
        "{heard:?}"
    );
    for part in rest.chunks(1400) {
        w.send(p, "A", part).unwrap();
        p = moved(p, i32::try_from(part.len()).unwrap());
    }
    assert_eq!(payload(&w.hear()), b"STORED\r\n");
}

/// What is asked behind a long request waits in the receive buffer, and the client with it, however much it has
/// to say.
#[test]
fn what_comes_behind_a_long_request_is_taken_no_faster_than_it_is_answered() {
    const QUIET: &[u8; 8] = b"mg a q\r\n";
    const PART: usize = 175 * QUIET.len();
    let mut w = World::new(4);
    let mut p = opened(&mut w, 5000);
    let value = [b'v'; 15 * PART];
    let set = [format!("set k 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let mut says = set.iter().chain(QUIET.iter().cycle()).copied();
    let (begin, mut sent, mut most) = (p.seq, 0, 0);
    let mut window = 0..16 << 10;
    for _ in 0..400 {
        for _ in 0..64 {
            if sent + PART > window.end {
                break;
            }
            let part: Vec<u8> = says.by_ref().take(PART).collect();
            w.send(p, "A", &part).unwrap();
            p = moved(p, i32::try_from(PART).unwrap());
            sent += PART;
        }
        w.streams.turn(&mut w.gate, w.now_ns);
        let frames: Vec<_> =
            w.streams.frames().map(|(_, frame)| crate::world::open(frame.bytes())).collect();
        for h in frames {
            let taken = h.ack.wrapping_sub(begin) as usize;
            window.end = window.end.max(taken + usize::from(h.window) * SCALE);
        }
        let answered = usize::try_from(w.server.totals().cmd_get).unwrap() * QUIET.len();
        most = most.max(sent.saturating_sub(set.len() + answered));
        w.now_ns += SECOND / 1000;
    }
    assert!((100_000..700_000).contains(&most), "{most} bytes wait");
}

/// The buffer of a long request is for the next that needs one when that is answered, though its client
/// goes on without a pause.
#[test]
fn what_follows_a_long_request_holds_no_buffer() {
    let mut w = World::new(100);
    let set = [&b"set k 0 0 20000\r\n"[..], &[b'v'; 20_000], b"\r\nm"].concat();
    for n in 0..70 {
        let mut p = w.open(5000 + n);
        let mut replies = Vec::new();
        for part in set.chunks(1400) {
            w.send(p, "A", part).unwrap();
            p = moved(p, i32::try_from(part.len()).unwrap());
            replies.extend(payload(&w.hear()));
        }
        assert_eq!(replies, b"STORED\r\n", "connection {n}");
        w.send(Peer { ack: p.ack.wrapping_add(8), ..p }, "A", b"").unwrap();
    }
}

/// A get in turns lies round the end of the receive buffer, and nothing more comes: it is answered all the same.
#[test]
fn keys_that_lie_round_the_end_of_the_buffer_are_all_answered() {
    let mut w = World::new(4);
    let mut p = w.open(5000);
    for _ in 0..15 {
        w.say(
            &mut p,
            &b"x".repeat(998).into_iter().chain(*b"\r\n").collect::<Vec<_>>(),
            b"ERROR\r\n",
        );
    }
    let get = [&b"get"[..], &b" a".repeat(3000), b"\r\n"].concat();
    let mut replies = Vec::new();
    for part in get.chunks(1400) {
        w.send(p, "A", part).unwrap();
        p = moved(p, i32::try_from(part.len()).unwrap());
        replies.extend(payload(&w.hear()));
    }
    assert_eq!(replies, b"END\r\n");
}

/// The line begins at each place of the last bytes of the receive buffer in turn.
#[test]
fn a_dump_whose_line_lies_round_the_end_of_the_buffer_ends() {
    const LINE: &[u8] = b"lru_crawler metadump all\r\n";
    let mut w = World::new(4);
    let mut session = w.server.store.session().unwrap();
    for n in 0..500 {
        let key = format!("{n:0100}");
        verbs::store(&mut session, None, &base::Store::set(key.as_bytes(), 0, 0, b"v")).unwrap();
    }
    let mut p = w.open(5000);
    for n in 0..40_usize {
        w.send(p, "A", LINE).unwrap();
        p.seq = p.seq.wrapping_add(len(LINE));
        let mut text = Vec::new();
        for _ in 0..20 {
            let heard = payload(&w.hear());
            text.extend(&heard);
            p.ack = p.ack.wrapping_add(len(&heard));
            w.send(p, "A", b"").unwrap();
        }
        assert!(text.ends_with(b"END\r\n"), "dump {n}: {} bytes", text.len());
        assert_eq!(text.split(|b| *b == b'\n').count(), 502, "dump {n}");
        // The rest of 16 KB, and one byte less.
        let mut filling = (16 << 10) - LINE.len() - 1;
        while filling > 0 {
            let part = filling.min(1002);
            let part = if filling - part == 1 { part - 1 } else { part };
            w.say(&mut p, &[&b"x".repeat(part - 2), &b"\r\n"[..]].concat(), b"ERROR\r\n");
            filling -= part;
        }
    }
}
