//! The golden vectors (`gpu/golden.txt`), against the CPU's code and the kernels.

use crate::{BATCH, SETASSOC, SLOT_BYTES};
use base::checksum;
use dataplane::stages::engine::cpu_engine;
use gpu::bench::{Bench, Sizes};
use gpu::params::HashKey;
use gpu::{BadReason, Entry, EntryFlags, ReqDesc, Verb, Verdict};
use store::{Store, StoreConfig};

const VECTORS: &str = include_str!("../../../gpu/golden.txt");

/// The fields of the lines of one kind.
fn vectors(kind: &str) -> Vec<Vec<&'static str>> {
    let lines = VECTORS.lines().filter(|line| !line.starts_with('#'));
    let fields = lines.map(|line| line.split('\t').collect::<Vec<_>>());
    let found: Vec<_> = fields.filter(|f| f[0] == kind).map(|f| f[1..].to_vec()).collect();
    assert!(found.len() > 4, "{kind}");
    found
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|d| std::str::from_utf8(d).unwrap());
    digits.map(|d| u8::from_str_radix(d, 16).unwrap()).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next().unwrap() {
            b'r' => out.push(b'\r'),
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'x' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                out.extend(hex(std::str::from_utf8(&digits).unwrap()));
            }
            other => panic!("\\{other}"),
        }
    }
    out
}

fn bench(seed: u64) -> Bench {
    let card = crate::card(seed);
    let sizes = Sizes { slots: 512, slot_bytes: SLOT_BYTES, batch: BATCH };
    Bench::new(&card, SETASSOC, HashKey::default(), sizes).unwrap()
}

#[test]
fn hashes_and_sums() {
    let config =
        StoreConfig { memory_bytes: 4 << 20, hash_key: Some([0; 16]), ..Default::default() };
    let store = Store::new(config).unwrap();
    let mut bench = bench(1);
    let (mut lengths, mut wants) = (Vec::new(), Vec::new());
    for (slot, vector) in (0..).zip(vectors("digest")) {
        let bytes = hex(vector[0]);
        let hash = u64::from_str_radix(vector[1], 16).unwrap();
        let sum = u16::from_str_radix(vector[2], 16).unwrap();
        assert_eq!(store.hash(&bytes).0, hash, "{bytes:x?}");
        assert_eq!(checksum::sum(&bytes), sum, "{bytes:x?}");
        bench.slot(slot)[..bytes.len()].copy_from_slice(&bytes);
        lengths.push(u32::try_from(bytes.len()).unwrap());
        wants.push((hash, u32::from(sum)));
    }
    assert_eq!(bench.digest(&lengths).unwrap(), wants);
}

struct Want {
    verdict: Verdict,
    reason: BadReason,
    verb: Verb,
    keys: Vec<Vec<u8>>,
}

fn check(name: &str, desc: &ReqDesc, frame: &[u8], want: &Want) {
    assert_eq!((desc.verdict, desc.reason), (want.verdict, want.reason), "{name}");
    let keys: Vec<&[u8]> = cpu_engine::keys(desc, frame).collect();
    assert_eq!(keys, want.keys, "{name}");
    assert!(want.verdict != Verdict::READY || desc.verb == want.verb, "{name}");
}

#[test]
fn requests() {
    let mut cases = Vec::new();
    for vector in vectors("request") {
        let (verdict, verb) = match vector[0] {
            "ready get" => (Verdict::READY, Verb::GET),
            "ready gets" => (Verdict::READY, Verb::GETS),
            "hinted" => (Verdict::STRICT_HINTED, Verb::GET),
            "slow" => (Verdict::SLOW, Verb::GET),
            other => panic!("{other}"),
        };
        let keys = vector[1].split(' ').filter(|k| !k.is_empty()).map(unescape).collect();
        let datagram = [&[0, 7, 0, 0, 0, 1, 0, 0], &unescape(vector[2])[..]].concat();
        let want = Want { verdict, reason: BadReason::NONE, verb, keys };
        cases.push((vector[2], datagram, want));
    }
    for vector in vectors("bad") {
        let reason = match vector[0] {
            "frame-short" => BadReason::FRAME_SHORT,
            "frame-multipart" => BadReason::FRAME_MULTIPART,
            other => panic!("{other}"),
        };
        let want = Want { verdict: Verdict::BAD, reason, verb: Verb::GET, keys: Vec::new() };
        cases.push((vector[1], unescape(vector[1]), want));
    }
    // The UDP header at every alignment.
    for l4 in 0..20 {
        let mut bench = bench(u64::from(l4));
        let mut entries = Vec::new();
        let frames: Vec<Vec<u8>> = cases
            .iter()
            .map(|(_, datagram, _)| {
                let len = u16::try_from(8 + datagram.len()).unwrap().to_be_bytes();
                let head = [0, 0, 0, 0, len[0], len[1], 0, 0];
                [&vec![0xee; usize::from(l4)], &head[..], datagram].concat()
            })
            .collect();
        for (slot, frame) in (0..).zip(&frames) {
            bench.slot(slot)[..frame.len()].copy_from_slice(frame);
            let flags = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
            let len = u16::try_from(frame.len()).unwrap();
            entries.push(Entry { slot, len, l4, flags, ..Entry::default() });
        }
        bench.get(&entries, 1, false, 1).unwrap();
        for (i, (name, _, want)) in cases.iter().enumerate() {
            check(name, &cpu_engine::read(&frames[i], &entries[i]), &frames[i], want);
            check(name, &bench.descs()[i], &frames[i], want);
        }
    }
}
