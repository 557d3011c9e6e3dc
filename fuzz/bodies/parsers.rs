//! The CPU engine and the kernel read the same from any frame, and a key that either of them found
//! is one that the strict parser looks for. Run by the fuzzer, and over the committed corpus by
//! `cargo test`.

use dataplane::stages::engine::cpu_engine::{keys, read};
use gpu::bench::{Bench, IndexKind, Sizes};
use gpu::card::Card;
use gpu::params::HashKey;
use gpu::simt::SimtCard;
use gpu::{Entry, EntryFlags, Verdict};
use memcache::{Dialects, Parsed, Verb};
use std::sync::{Arc, LazyLock, Mutex};

const SLOT_BYTES: u32 = 2048;
const ITEM_MAX_BYTES: usize = 4096;

static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| {
    let card: Arc<dyn Card> = Arc::new(SimtCard::new(1));
    let kind = IndexKind::Cuckoo { n_buckets: 4, kicks_max: 4 };
    let sizes = Sizes { slots: 1, slot_bytes: SLOT_BYTES, batch: 1 };
    Mutex::new(Bench::new(&card, kind, HashKey { k0: 1, k1: 2 }, sizes).unwrap())
});

/// Four bytes say where the frame stands, where its headers are and what is known of them; the
/// rest is the frame.
pub(crate) fn run(data: &[u8]) {
    let Some((&[off, l3, l4, flags], frame)) = data.split_first_chunk::<4>() else { return };
    let off = u16::from(off);
    let Ok(len) = u16::try_from(frame.len()) else { return };
    if u32::from(off) + u32::from(len) > SLOT_BYTES {
        return;
    }
    let entry = Entry { off, len, l3, l4, flags: EntryFlags(flags & 15), ..Entry::default() };
    let cpu = read(frame, &entry);
    let mut bench = BENCH.lock().unwrap();
    bench.slot(0)[usize::from(off)..][..frame.len()].copy_from_slice(frame);
    bench.get(&[entry], 1, true, 1).unwrap();
    let kernel = bench.descs()[0];
    assert_eq!((cpu.verdict, cpu.reason), (kernel.verdict, kernel.reason));
    assert_eq!((cpu.verb, cpu.n_keys), (kernel.verb, kernel.n_keys));
    assert_eq!((cpu.payload_off, cpu.payload_len), (kernel.payload_off, kernel.payload_len));
    assert!(keys(&cpu, frame).eq(keys(&kernel, frame)));
    let start = usize::from(cpu.payload_off);
    let text = &frame[start..start + usize::from(cpu.payload_len)];
    if [Verdict::READY, Verdict::STRICT_HINTED].contains(&cpu.verdict) {
        let found: Vec<&[u8]> = keys(&cpu, frame).collect();
        assert_eq!(found, strict(text), "{:?}", text.escape_ascii().to_string());
    }
}

/// The keys that the strict parser looks for in a datagram; none of a refused command.
fn strict(text: &[u8]) -> Vec<&[u8]> {
    let dialect = Dialects::Auto.of(text[0]);
    let (command, used) = match dialect.parse(text, ITEM_MAX_BYTES) {
        Parsed::Command { command, used } => (command, used),
        other => panic!("{other:?}"),
    };
    assert_eq!(used, text.len());
    match command.verb {
        Verb::Get(_) | Verb::Fetch(_) => command.keys().iter().collect(),
        // Its key is found all the same; nobody looks for it.
        Verb::Refused(_) if text.starts_with(b"mg ") => {
            let line = text.strip_prefix(b"mg ").unwrap_or_default();
            vec![line.split(|b| *b <= b' ').next().unwrap_or_default()]
        }
        other => panic!("{other:?}"),
    }
}
