//! What a GET costs on PCIe: the watched kernels, through the stage that workers use.
#![allow(unsafe_code)]

use crate::{BATCH, HASH_KEY, SLOT_BYTES, hash};
use driver_shim::MacAddr;
use gpu::card::Card;
use gpu::host::HostMemory;
use gpu::index::{Feed, Found, IndexConfig, IndexKind, SHARES_DEFAULT, Schedule, Source, Updater};
use gpu::offload::{GpuEngine, Mode, Offload, OffloadConfig};
use gpu::simt::SimtCard;
use gpu::{Engine, Entry, EntryFlags, Hint, Outcome, PacketMemory};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::build::UdpFrame;

/// Where ports put frames in their slots.
const HEADROOM: usize = 128;
const PATIENCE: Duration = Duration::from_secs(60);

/// Most of each for a plain GET: a frame of 72 bytes with a key of 16, its checksums known to be
/// good, a hit, no reply headers.
const READS_MAX: f64 = 1.2;
const READ_BYTES_MAX: f64 = 128.0;
const WRITTEN_BYTES_MAX: f64 = 112.0;

fn key(n: usize) -> Vec<u8> {
    format!("{n:016}").into_bytes()
}

/// Has every key, at the location of its number.
struct AllKeys;

impl Source for AllKeys {
    fn look(&mut self, hashes: &[u64], tell: &mut dyn FnMut(u64, Option<Found<'_>>)) {
        for &wanted in hashes {
            let n = (0..BATCH).find(|n| hash(&key(*n)) == wanted).unwrap();
            let (key, location) = (key(n), u32::try_from(n).unwrap());
            tell(
                wanted,
                Some(Found { location, flags: 0, value_len: 64, key: &key, ..Found::default() }),
            );
        }
    }

    fn now(&self) -> u32 {
        1
    }
}

fn frame(n: usize) -> Vec<u8> {
    let text = [&[0, 1, 0, 0, 0, 1, 0, 0], &b"get "[..], &key(n), b"\r\n"].concat();
    let frame = UdpFrame {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        vlans: &[],
        src: "10.0.0.1:40000".parse().unwrap(),
        dst: "10.0.0.2:11211".parse().unwrap(),
        payload: &text,
    };
    frame.to_vec().unwrap()
}

/// Reads, bytes read and bytes written for each GET of a full batch.
fn of_a_get(mode: Mode, kind: IndexKind) -> [f64; 3] {
    let slot_bytes = SLOT_BYTES as usize;
    let memory = Arc::new(HostMemory::new(BATCH * slot_bytes));
    // SAFETY: the memory is kept by the offload.
    let packets = unsafe { PacketMemory::new(memory.start(), slot_bytes, BATCH) };
    let watched = Arc::new(SimtCard::watching(5));
    let config = OffloadConfig {
        mode,
        index: IndexConfig { kind, memory_bytes: 1 << 20, shares: SHARES_DEFAULT },
        hash_key: HASH_KEY,
        engines: 1,
        batch_max: BATCH,
        in_flight_max: 1,
        deadline: PATIENCE,
        start_deadline: PATIENCE,
        multiprocessors: u32::MAX,
        heads: false,
    };
    let card = Arc::clone(&watched) as Arc<dyn Card>;
    let offload = Offload::new(card, packets, Box::new(Arc::clone(&memory)), config).unwrap();
    let feed = Arc::new(Feed::new(BATCH));
    (0..BATCH).for_each(|n| feed.note(hash(&key(n)), None));
    let mut updater = Updater::new(&offload, feed, Box::new(AllKeys), Schedule::default()).unwrap();
    assert_eq!(updater.turn(), BATCH);

    let mut engine = GpuEngine::new(&offload, BATCH).unwrap();
    let mut batch = engine.new_batch(0, BATCH);
    for n in 0..BATCH {
        let frame = frame(n);
        assert_eq!(frame.len(), 72);
        // SAFETY: a slot of ours.
        let at = unsafe { memory.start().add(n * slot_bytes + HEADROOM) };
        // SAFETY: no kernel looks at it yet, and the frame is shorter than the slot.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), at.as_ptr(), frame.len()) };
        let entry = Entry {
            slot: u32::try_from(n).unwrap(),
            off: u16::try_from(HEADROOM).unwrap(),
            len: 72,
            l3: 14,
            l4: 34,
            flags: EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD),
            mark: 0,
        };
        batch.entries.push(entry).unwrap();
    }
    // An empty batch has been there, which costs next to nothing.
    let before = watched.counts();
    assert!(engine.submit(batch).is_ok());
    let begun = Instant::now();
    let batch = loop {
        if let Some((batch, outcome)) = engine.poll() {
            assert_eq!(outcome, Outcome::Replica);
            break batch;
        }
        assert!(begun.elapsed() < PATIENCE);
        std::thread::yield_now();
    };
    for (n, desc) in batch.descs.iter().enumerate() {
        let found = (desc.keys[0].hint, desc.keys[0].location as usize);
        assert_eq!(found, (Hint::HIT, n));
    }
    // Kernels are counted when they have ended.
    drop((engine, updater));
    drop(offload);
    let after = watched.counts();
    let each = |after: u64, before: u64| (after - before) as f64 / BATCH as f64;
    let read_bytes = each(after.host_read_bytes, before.host_read_bytes);
    let written_bytes = each(after.host_write_bytes, before.host_write_bytes);
    [each(after.host_reads, before.host_reads), read_bytes, written_bytes]
}

/// The resident kernel's polls of the doorbells are counted apart; its empty batch counts here.
#[test]
fn a_get_keeps_to_its_budget() {
    for mode in [Mode::Launch, Mode::Persistent] {
        for kind in [IndexKind::SetAssoc, IndexKind::Cuckoo] {
            let [reads, read_bytes, written_bytes] = of_a_get(mode, kind);
            let what = format!(
                "{mode:?}, {kind:?}: {reads:.3} reads, {read_bytes:.1} B read, \
                 {written_bytes:.1} B written"
            );
            println!("{what}");
            // The packets and entries at least: the counts count.
            assert!(reads >= 1.0 && read_bytes >= 72.0 + 12.0 && written_bytes >= 16.0, "{what}");
            assert!(reads <= READS_MAX, "{what}");
            assert!(read_bytes <= READ_BYTES_MAX, "{what}");
            assert!(written_bytes <= WRITTEN_BYTES_MAX, "{what}");
        }
    }
}
