//! Peers that send anything: numbers, windows, options and bytes by chance, around what is right.

use crate::world::{Peer, SECOND, World, head, len};
use etherparse::TcpOptionElement as Opt;

const VALUE: u32 = 60_000;

/// Numbers that follow from a seed alone.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(n)).unwrap()
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(len_of(of)) as usize]
    }

    /// About 0, on either side.
    fn off(&mut self) -> i32 {
        let most = self.one_of(&[1, 2, 10, 1500, 20_000, 300_000]);
        let off = i32::try_from(self.below(most)).unwrap();
        if self.below(2) == 0 { off } else { -off }
    }
}

fn len_of<T>(of: &[T]) -> u32 {
    u32::try_from(of.len()).unwrap()
}

/// What every client says, over and over.
fn said() -> Vec<u8> {
    let long =
        [format!("set k 0 0 {VALUE}\r\n").as_bytes(), &[b'v'; VALUE as usize], b"\r\n"].concat();
    [&long[..], b"get k\r\n", b"mn\r\n", b"get k k k\r\n", b"set a 0 0 1\r\nb\r\n"].concat()
}

/// A client: the number that it began with, what was taken of it, and what it was sent.
#[derive(Clone, Copy)]
struct Them {
    peer: Peer,
    isn: u32,
    una: u32,
}

/// So many steps; then the slots come back, and who follows the rules is served.
fn run(seed: u64, steps: usize) {
    let mut chance = Chance(seed);
    // How seldom a client does other than it must.
    let wild = chance.one_of(&[3, 10, 40, 200]);
    let mut w = World::new(8);
    let said = said();
    let mut all: Vec<Them> = Vec::new();
    for _ in 0..steps {
        if all.len() < 6 || chance.below(500) == 0 {
            let port = 5000 + u16::try_from(chance.below(8)).unwrap();
            let isn = chance.one_of(&[100, u32::MAX - 1000, 0x7fff_ff00]);
            let p = Peer { port, seq: isn, ack: 0 };
            let mut syn = head(p, "S");
            let scale = Opt::WindowScale(chance.one_of(&[0, 3, 7, 14, 200]));
            let sack = Opt::SelectiveAcknowledgementPermitted;
            let mss = Opt::MaximumSegmentSize(chance.one_of(&[0, 1, 536, 1460, 65_535]));
            let some: &[Opt] = match chance.below(4) {
                0 => &[],
                1 => &[sack, scale],
                2 => &[mss, scale],
                _ => &[mss, sack, scale],
            };
            syn.set_options(some).unwrap();
            let _ = w.put(syn, b"");
            for h in w.hear() {
                if h.to == port && h.flags == "SA" {
                    all.retain(|t| t.peer.port != port);
                    let seq = isn.wrapping_add(1);
                    let peer = Peer { port, seq, ack: h.seq.wrapping_add(1) };
                    let _ = w.send(peer, "A", b"");
                    all.push(Them { peer, isn: seq, una: peer.ack });
                }
            }
            continue;
        }
        let at = chance.below(len_of(&all)) as usize;
        let Some(&them) = all.get(at) else { continue };
        let mut p = them.peer;
        w.now_ns += chance.one_of(&[0, 0, 0, 0, SECOND / 1000, SECOND / 10, 3 * SECOND]);
        if chance.below(300) == 0 {
            w.now_ns += 70 * SECOND;
        }
        for _ in 0..chance.one_of(&[1, 1, 3, 12]) {
            let mut segment = p;
            if chance.below(wild) == 0 {
                segment.seq = segment.seq.wrapping_add_signed(chance.off());
            }
            if chance.below(wild) == 0 {
                segment.ack = segment.ack.wrapping_add_signed(chance.off());
            }
            let flags = match chance.below(70 * wild) {
                0 => "R",
                1 => "RA",
                2 => "S",
                3 => "SA",
                4 | 5 => "FA",
                6 => "",
                7 => "F",
                _ => "A",
            };
            let from = segment.seq.wrapping_sub(them.isn) as usize % said.len();
            let most = chance.one_of(&[0, 1, 100, 1400, 1400, 1400]);
            let payload = said.get(from..).unwrap_or_default();
            let payload = payload.get(..most).unwrap_or(payload);
            let mut head = head(segment, flags);
            head.window_size = 65_535;
            if chance.below(wild) == 0 {
                head.window_size = chance.one_of(&[0, 1, 7, 100, 1000]);
            }
            if chance.below(wild) == 0 {
                let sent = p.ack.wrapping_sub(them.una).max(1);
                let start = them.una.wrapping_add(chance.below(sent));
                let end = start.wrapping_add(chance.below(3000));
                let other = (
                    start.wrapping_add_signed(chance.off()),
                    end.wrapping_add_signed(chance.off()),
                );
                let _ = head.set_options(&[Opt::SelectiveAcknowledgement(
                    (start, end),
                    [Some(other), None, None],
                )]);
            }
            let _ = w.put(head, payload);
            if segment.seq == p.seq {
                p.seq = p.seq.wrapping_add(len(payload));
            }
        }
        let kept: Vec<_> = match chance.below(10) {
            0 => std::iter::from_fn(|| w.region.alloc()).collect(),
            _ => Vec::new(),
        };
        let mut heard = w.hear();
        if !kept.is_empty() {
            w.now_ns += SECOND / 500;
            heard.extend(w.hear());
            w.now_ns += SECOND / 500;
            heard.extend(w.hear());
        }
        drop(kept);
        if let Some(of) = all.get_mut(at) {
            of.peer = p;
        }
        for h in heard {
            let Some(of) = all.iter_mut().find(|t| t.peer.port == h.to) else { continue };
            if h.flags.contains('R') {
                all.retain(|t| t.peer.port != h.to);
                continue;
            }
            let ahead = h.seq.wrapping_add(len(&h.payload));
            if ahead.wrapping_sub(of.peer.ack).cast_signed() > 0 && chance.below(wild) > 0 {
                of.peer.ack = ahead;
            }
            // What is missing is sent again.
            if chance.below(4) > 0 {
                of.peer.seq = h.ack;
            }
            of.una = of.peer.ack;
        }
    }
    w.pass(400);
    for n in 0..8 {
        let p = w.open(9000 + n);
        w.is_alive(p);
    }
}

#[test]
fn nothing_that_comes_ends_the_worker() {
    for seed in 0..8 {
        run(seed, 4000);
    }
}

/// Of 20 segments under way the first is late and the third is lost; in the moment in which that is seen no slot is
/// free to send with; the first arrives; and the rest is lost.
#[test]
fn what_is_lost_while_no_slot_is_free_is_sent_again_all_the_same() {
    let mut w = World::new(4);
    w.keep(b"k", 200_000);
    let permitted = Opt::SelectiveAcknowledgementPermitted;
    let options = [Opt::MaximumSegmentSize(1000), permitted, Opt::Noop, Opt::WindowScale(7)];
    let mut p = w.open_with(5000, 100, &options);
    w.send(p, "A", b"get k\r\n").unwrap();
    p.seq = p.seq.wrapping_add(7);
    assert_eq!(w.hear().len(), 10);
    w.now_ns += SECOND / 100;
    // All of it: the window doubles.
    p.ack = p.ack.wrapping_add(10_000);
    w.send(p, "A", b"").unwrap();
    assert_eq!(w.hear().len(), 20);
    w.now_ns += SECOND / 100;
    let at = |n: u32| p.ack.wrapping_add(1000 * n);
    let has = |upto, more| {
        let mut ack = head(Peer { ack: upto, ..p }, "A");
        let blocks = Opt::SelectiveAcknowledgement((at(3), at(6)), [more, None, None]);
        ack.set_options(&[Opt::Noop, Opt::Noop, blocks]).unwrap();
        ack
    };
    w.put(has(at(0), Some((at(1), at(2)))), b"").unwrap();
    let slots: Vec<_> = std::iter::from_fn(|| w.region.alloc()).collect();
    w.streams.turn(&mut w.gate, w.now_ns);
    assert_eq!(w.streams.frames().count(), 0);
    drop(slots);
    // What was late is there.
    w.put(has(at(2), None), b"").unwrap();
    let mut heard = w.hear();
    heard.extend(w.pass(59));
    assert!(heard.iter().any(|h| h.seq == at(2) && h.payload.len() == 1000), "{}", heard.len());
}
