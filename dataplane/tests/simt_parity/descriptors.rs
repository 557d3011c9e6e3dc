//! The CPU engine and the kernels read the same from the same frames.

use crate::requests::{Packet, Source, corpus, keys};
use crate::rng::Rng;
use crate::{BATCH, CUCKOO, SETASSOC, SLOT_BYTES, bench, put, watched_bench};
use dataplane::stages::engine::cpu_engine;
use gpu::bench::{Bench, IndexKind};
use gpu::{Hint, KeyDesc, ReqDesc};
use std::collections::HashMap;

/// Packets compared by each of the two tests of random packets; `SIMT_PACKETS` is for both.
const PACKETS: usize = 40_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse().unwrap())
}

struct Pair {
    bench: Bench,
    source: Source,
    /// What the index holds.
    known: HashMap<Vec<u8>, u32>,
    verdicts: [usize; 4],
    hits: usize,
}

impl Pair {
    fn new(mut bench: Bench, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let keys = keys(&mut rng, 400);
        let known: HashMap<Vec<u8>, u32> =
            keys.iter().step_by(2).map(|k| (k.clone(), rng.number())).collect();
        let ops: Vec<_> = known.iter().map(|(k, &at)| put(k, at, 7, 9)).collect();
        let counts = bench.update(&ops, 1, 3).unwrap();
        assert_eq!(counts.inserted as usize, known.len());
        assert_eq!((counts.evicted, counts.overflowed), (0, 0));
        let source = Source { rng, keys, corpus: corpus() };
        Self { bench, source, known, verdicts: [0; 4], hits: 0 }
    }

    /// Compares a batch, run by `blocks` blocks.
    fn compare(&mut self, packets: &[Packet], blocks: u32, with_heads: bool) {
        for Packet { bytes, entry } in packets {
            let off = usize::from(entry.off);
            let slot = self.bench.slot(entry.slot);
            if let Some(to) = slot.get_mut(off..off + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        }
        let entries: Vec<_> = packets.iter().map(|p| p.entry).collect();
        self.bench.get(&entries, 2, with_heads, blocks).unwrap();
        assert_eq!(self.bench.descs().len(), packets.len());
        for (packet, got) in packets.iter().zip(self.bench.descs()) {
            let Packet { bytes, entry } = packet;
            let end = usize::from(entry.off) + usize::from(entry.len);
            let inside = entry.slot < 512 && end <= SLOT_BYTES as usize;
            let frame = if inside { &bytes[..] } else { &[] };
            let want = cpu_engine::read(frame, entry);
            same(&want, got).unwrap_or_else(|what| {
                panic!(
                    "{what}\n{entry:?}\n{:?}\nwant {want:?}\ngot {got:?}",
                    bytes.escape_ascii().to_string()
                )
            });
            self.verdicts[usize::from(got.verdict.0)] += 1;
            for (key, desc) in cpu_engine::keys(got, frame).zip(got.keys) {
                let want = match self.known.get(key) {
                    Some(&at) => (Hint::HIT, at),
                    None => (Hint::MISS, 0),
                };
                assert_eq!(
                    (desc.hint, desc.location),
                    want,
                    "{:?}",
                    key.escape_ascii().to_string()
                );
                self.hits += usize::from(desc.hint == Hint::HIT);
            }
        }
    }

    fn batch(&mut self) -> Vec<Packet> {
        let n = self.source.rng.one_of(&[1, 2, 31, 128, 129, 200, BATCH]);
        (0..n).map(|slot| self.source.packet(u32::try_from(slot).unwrap(), SLOT_BYTES)).collect()
    }
}

/// All but the hints.
fn same(want: &ReqDesc, got: &ReqDesc) -> Result<(), &'static str> {
    let check = |same: bool, what| if same { Ok(()) } else { Err(what) };
    check(want.verdict == got.verdict, "verdict")?;
    check(want.reason == got.reason, "reason")?;
    check((want.verb, want.n_keys) == (got.verb, got.n_keys), "verb or number of keys")?;
    let text = |d: &ReqDesc| (d.payload_off, d.payload_len);
    check(text(want) == text(got), "text")?;
    let used = |d: &ReqDesc| {
        d.keys.map(|k| (k.off, k.len)).into_iter().take(usize::from(d.n_keys)).collect::<Vec<_>>()
    };
    check(used(want) == used(got), "keys")?;
    let rest = got.keys.iter().skip(usize::from(got.n_keys));
    check(got.hash == 0, "hash")?;
    // A key that was read before the rest of the line said otherwise is no key.
    check(
        rest.into_iter().all(|k| *k == KeyDesc { off: k.off, len: k.len, ..KeyDesc::default() }),
        "no key",
    )
}

fn random_packets(kind: IndexKind, seed: u64) {
    let seed = number("SIMT_SEED").unwrap_or(seed);
    let packets = number("SIMT_PACKETS").map_or(PACKETS, |n| usize::try_from(n / 2).unwrap());
    let mut done = 0;
    // Each pair has keys, and an order of threads, of its own.
    for round in 0.. {
        let mut pair = Pair::new(bench(kind, seed + round), seed + round);
        for turn in 0..60 {
            let batch = pair.batch();
            let blocks = 1 + pair.source.rng.below(6);
            pair.compare(&batch, u32::try_from(blocks).unwrap(), turn % 3 == 0);
            done += batch.len();
        }
        assert!(pair.verdicts.iter().all(|&n| n > 10), "{:?}", pair.verdicts);
        assert!(pair.hits > 50, "{}", pair.hits);
        if done >= packets {
            break;
        }
    }
}

#[test]
fn random_packets_over_setassoc() {
    random_packets(SETASSOC, 1000);
}

#[test]
fn random_packets_over_cuckoo() {
    random_packets(CUCKOO, 2000);
}

/// What a request of each form is with this key: those that are common, and those that are nearly so.
fn forms(key: &[u8]) -> Vec<Vec<u8>> {
    let around = |before: &[u8], after: &[u8]| [before, key, after].concat();
    let len = u16::try_from(key.len()).unwrap();
    let binary = |op: u8, body: u16| {
        let [high, low] = len.to_be_bytes();
        let head = [0x80, op, high, low, 0, 0, 0, 0, 0, 0];
        [&head[..], &body.to_be_bytes(), b"opaquecaswhole12", key].concat()
    };
    vec![
        around(b"get ", b"\r\n"),
        around(b"get ", b"\n"),
        around(b"get ", b" \r\n"),
        around(b"get ", b"\t\r\n"),
        around(b"get !", b"\r\n"),
        around(b"get ", b" !b\r\n"),
        around(b"get a ", b"\r\n"),
        around(&[b"get ", &b"y".repeat(50)[..], b" "].concat(), b"\r\n"),
        around(b"get a  ", b"\r\n"),
        around(b"get a\r", b"\r\n"),
        around(b"get a b c d e ", b"\r\n"),
        around(b"get a b c d e ", b" \r\n"),
        around(b"get a b c d e f ", b"\r\n"),
        around(b"gets ", b"\r\n"),
        around(b"gets ", b" b\n"),
        around(b"mg ", b"\r\n"),
        around(b"mg ", b"\n"),
        around(b"mg ", b" Ox v b\r\n"),
        around(b"mg ", b"\0v\r\n"),
        around(b"mg ", b" v"),
        binary(0x00, len),
        binary(0x0d, len),
        binary(0x0a, len),
        binary(0x00, len + 1),
    ]
}

/// Around the ends of what a block stages of a frame, and of what it brings of a longer one, at
/// several places of a line of memory; whole, and cut in three ways.
#[test]
fn every_form_at_every_length() {
    for kind in [SETASSOC, CUCKOO] {
        let mut pair = Pair::new(bench(kind, 7), 7);
        for (turn, len) in (0..=130).chain(220..=252).enumerate() {
            let known = pair.source.keys.iter().find(|key| key.len() == len);
            let key = known.cloned().unwrap_or_else(|| vec![b'k'; len]);
            let mut packets = Vec::new();
            for text in forms(&key) {
                for cut in 0..4 {
                    let mut packet = Source::whole(&text);
                    let l4 = usize::from(packet.entry.l4);
                    let udp_len = u16::try_from(packet.bytes.len() - l4).unwrap();
                    let said = match cut {
                        1 => udp_len - 1,
                        2 => udp_len + 1,
                        _ => udp_len,
                    };
                    packet.bytes[l4 + 4..l4 + 6].copy_from_slice(&said.to_be_bytes());
                    if cut == 3 {
                        packet.bytes.pop();
                    }
                    let slot = packets.len();
                    packet.entry.slot = u32::try_from(slot).unwrap();
                    packet.entry.off = u16::try_from(128 + (turn + slot * 5) % 16).unwrap();
                    packet.entry.len = u16::try_from(packet.bytes.len()).unwrap();
                    packets.push(packet);
                }
            }
            pair.compare(&packets, 1, turn % 8 == 0);
        }
        assert!(pair.verdicts.iter().all(|&n| n > 500), "{:?}", pair.verdicts);
    }
}

/// Threads in order: seed 0 draws none.
#[test]
fn every_committed_fuzz_input() {
    for kind in [SETASSOC, CUCKOO] {
        let mut pair = Pair::new(bench(kind, 0), 0);
        let inputs = corpus();
        let mut packets: Vec<Packet> =
            inputs.iter().flat_map(|input| pair.source.of_corpus(input)).collect();
        let total = packets.len();
        while !packets.is_empty() {
            let n = packets.len().min(BATCH);
            let batch: Vec<Packet> = packets
                .drain(..n)
                .enumerate()
                .map(|(i, p)| pair.source.place(p, u32::try_from(i).unwrap(), SLOT_BYTES))
                .collect();
            pair.compare(&batch, 4, true);
        }
        assert_eq!(pair.verdicts.iter().sum::<usize>(), total);
    }
}

/// The same kernels under watch: no access but to the launch's memory, and counts that can be.
#[test]
fn kernels_touch_only_what_is_theirs() {
    for kind in [SETASSOC, CUCKOO] {
        let (bench, card) = watched_bench(kind, 3000);
        let mut pair = Pair::new(bench, 3000);
        for _ in 0..3 {
            let batch = pair.batch();
            pair.compare(&batch, 2, true);
        }
        let counts = card.counts();
        assert!(counts.steps > 0 && counts.accesses > 0, "{counts:?}");
        assert!((counts.steps..=32 * counts.steps).contains(&counts.lanes), "{counts:?}");
        assert!((counts.accesses..=64 * counts.accesses).contains(&counts.sectors), "{counts:?}");
    }
}
