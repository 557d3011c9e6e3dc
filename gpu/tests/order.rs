//! What kernels must do for the host to see what they stored, and to see what the host did: over an
//! executor whose host memory is in no other order (`gpu/simt/late.h`), and by counting what it costs.
#![cfg(feature = "simt")]
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, reason = "tests")]

use gpu::bench::{Bench, Sizes};
use gpu::card::Card;
use gpu::host::HostMemory;
use gpu::index::{
    Feed, Form, Found, IndexConfig, IndexKind, SHARES_DEFAULT, Schedule, Source, Updater,
};
use gpu::offload::{GpuEngine, Mode, Offload, OffloadConfig};
use gpu::params::{HashKey, Op};
use gpu::simt::SimtCard;
use gpu::{Batch, Engine, Entry, EntryFlags, Hint, Outcome, PacketMemory, Verdict};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SLOT_BYTES: usize = 128;
/// Of each engine; a block takes 128 requests.
const BATCH: usize = 200;
const ENGINES: usize = 4;
const KEYS: u32 = 300;
/// More than anything takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);
const HASH_KEY: HashKey = HashKey { k0: 0, k1: 0 };

fn key(n: u32) -> String {
    format!("key-{n:06}")
}

fn hash(n: u32) -> u64 {
    use std::hash::Hasher as _;
    // The standard library's own SipHash-1-3 has the key 0.
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(key(n).as_bytes());
    hasher.finish()
}

/// Has every key, at the location of its number.
struct AllKeys;

impl Source for AllKeys {
    fn look(&mut self, hashes: &[u64], tell: &mut dyn FnMut(u64, Option<Found<'_>>)) {
        for &wanted in hashes {
            let n = (0..KEYS).find(|&n| hash(n) == wanted).unwrap();
            let key = key(n);
            let found = Found {
                location: n,
                flags: 0,
                value_len: 8,
                key: key.as_bytes(),
                ..Found::default()
            };
            tell(wanted, Some(found));
        }
    }

    fn now(&self) -> u32 {
        1
    }
}

/// An offload with packets, and an index that has all keys.
struct World {
    memory: Arc<HostMemory>,
    offload: Arc<Offload>,
    /// Launches that it took to fill the index.
    updates: u64,
}

impl World {
    fn new(card: &Arc<dyn Card>, mode: Mode, kind: IndexKind) -> Self {
        let memory = Arc::new(HostMemory::new(ENGINES * BATCH * SLOT_BYTES));
        // SAFETY: the memory is kept by the offload.
        let packets = unsafe { PacketMemory::new(memory.start(), SLOT_BYTES, ENGINES * BATCH) };
        let config = OffloadConfig {
            mode,
            index: IndexConfig { kind, memory_bytes: 1 << 18, shares: SHARES_DEFAULT },
            hash_key: HASH_KEY,
            engines: ENGINES,
            batch_max: BATCH,
            in_flight_max: 1,
            deadline: Duration::from_secs(5),
            start_deadline: PATIENCE,
            multiprocessors: u32::MAX,
            heads: kind == IndexKind::SetAssoc,
        };
        let keep = Box::new(Arc::clone(&memory));
        let offload = Offload::new(Arc::clone(card), packets, keep, config).unwrap();
        let feed = Arc::new(Feed::new(512));
        (0..KEYS).for_each(|n| feed.note(hash(n), Some(Form::GET)));
        let mut updater =
            Updater::new(&offload, feed, Box::new(AllKeys), Schedule::default()).unwrap();
        let mut looked = 0;
        while looked < KEYS as usize {
            looked += updater.turn();
        }
        let updates = updater.counters().updates.load(Ordering::Relaxed);
        Self { memory, offload, updates }
    }

    /// Writes a request for the key `n`.
    fn entry(&self, slot: usize, n: u32) -> Entry {
        let text = format!("get {}\r\n", key(n));
        let mut frame = vec![0; 42];
        frame[38..40].copy_from_slice(&u16::try_from(16 + text.len()).unwrap().to_be_bytes());
        frame.extend([0, 0, 0, 0, 0, 1, 0, 0]);
        frame.extend(text.as_bytes());
        // SAFETY: a slot of ours.
        let at = unsafe { self.memory.start().add(slot * SLOT_BYTES) };
        // SAFETY: no kernel looks at it yet, and the frame is shorter than the slot.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), at.as_ptr(), frame.len()) };
        Entry {
            slot: u32::try_from(slot).unwrap(),
            len: u16::try_from(frame.len()).unwrap(),
            l3: 14,
            l4: 34,
            flags: EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD),
            ..Entry::default()
        }
    }
}

/// What the requests of a batch ask for: other keys in each round, from other slots.
fn wanted(engine: usize, round: usize, i: usize) -> (usize, u32) {
    let slot = engine * BATCH + (i + 3 * round) % BATCH;
    (slot, u32::try_from((7 * i + 31 * round + engine) % KEYS as usize).unwrap())
}

/// Every engine's batches come back with the answers to what they ask, and not to what an earlier
/// batch at the same place asked; whether one block or two have a part in them.
fn every_answer_is_its_batchs(mode: Mode, kind: IndexKind) {
    let card: Arc<dyn Card> = Arc::new(SimtCard::late(11));
    let world = World::new(&card, mode, kind);
    let mut engines: Vec<_> =
        (0..ENGINES).map(|_| GpuEngine::new(&world.offload, BATCH).unwrap()).collect();
    let mut batches: Vec<Option<Box<Batch>>> =
        engines.iter_mut().map(|engine| Some(engine.new_batch(0, BATCH))).collect();
    for round in 0..9 {
        // At last one alone: of the warp that polls, lanes that have seen no doorbell give out parts.
        let n = if round < 5 { ENGINES } else { 1 };
        for (e, engine) in engines.iter_mut().enumerate().take(n) {
            let mut batch = batches[e].take().unwrap();
            batch.clear();
            let requests = if n == 1 || (e + round).is_multiple_of(2) { BATCH } else { 60 };
            for i in 0..requests {
                let (slot, n) = wanted(e, round, i);
                batch.entries.push(world.entry(slot, n)).unwrap();
            }
            assert!(engine.submit(batch).is_ok(), "{:?}", world.offload.fault());
        }
        for (e, engine) in engines.iter_mut().enumerate().take(n) {
            let begun = Instant::now();
            let (batch, outcome) = loop {
                if let Some(done) = engine.poll() {
                    break done;
                }
                assert!(begun.elapsed() < PATIENCE, "nothing comes back");
                std::hint::spin_loop();
            };
            let who = format!("{mode:?}, {kind:?}, round {round}, engine {e}");
            assert_eq!(outcome, Outcome::Replica, "{who}: {:?}", world.offload.fault());
            for (i, desc) in batch.descs.iter().enumerate() {
                let got = (desc.verdict, desc.keys[0].hint, desc.keys[0].location);
                let want = (Verdict::READY, Hint::HIT, wanted(e, round, i).1);
                assert_eq!(got, want, "{who}, request {i}");
            }
            batches[e] = Some(batch);
        }
    }
}

#[test]
fn what_a_launch_stored_is_there_before_its_word() {
    every_answer_is_its_batchs(Mode::Launch, IndexKind::SetAssoc);
    every_answer_is_its_batchs(Mode::Launch, IndexKind::Cuckoo);
}

#[test]
fn what_the_grid_stored_is_there_before_its_word_and_it_sees_what_was_rung_for() {
    every_answer_is_its_batchs(Mode::Persistent, IndexKind::SetAssoc);
    every_answer_is_its_batchs(Mode::Persistent, IndexKind::Cuckoo);
}

/// A block that stalls keeps its part of the work queue, however often the others go round it.
#[test]
fn a_part_that_no_block_has_read_is_not_overwritten() {
    let card = Arc::new(SimtCard::new(0));
    let world =
        World::new(&(Arc::clone(&card) as Arc<dyn Card>), Mode::Persistent, IndexKind::Cuckoo);
    let mut engines: Vec<_> =
        (0..ENGINES).map(|_| GpuEngine::new(&world.offload, BATCH).unwrap()).collect();
    let mut batches: Vec<Option<Box<Batch>>> =
        engines.iter_mut().map(|engine| Some(engine.new_batch(0, BATCH))).collect();
    let send = |e: usize, engine: &mut GpuEngine, batch: &mut Option<Box<Batch>>| {
        let mut batch = batch.take().unwrap();
        batch.clear();
        batch.entries.push(world.entry(e, 5)).unwrap();
        assert!(engine.submit(batch).is_ok(), "{:?}", world.offload.fault());
    };
    let took = |(batch, outcome): (Box<Batch>, Outcome)| {
        assert_eq!((outcome, batch.descs[0].keys[0].location), (Outcome::Replica, 5));
        batch
    };
    let within = |most: Duration, engine: &mut GpuEngine| {
        let begun = Instant::now();
        while begun.elapsed() < most {
            if let Some(done) = engine.poll() {
                return Some(took(done));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        None
    };
    // A block that waits has a ticket, and all have one of the next. So one of a few batches is for the
    // block that stalls, if it has begun; else it is let begin.
    let begun = Instant::now();
    let stuck = loop {
        card.hold(Some(1));
        let stuck = (0..2 * ENGINES).map(|n| n % ENGINES).find(|&e| {
            send(e, &mut engines[e], &mut batches[e]);
            batches[e] = within(Duration::from_millis(100), &mut engines[e]);
            batches[e].is_none()
        });
        if let Some(stuck) = stuck {
            break stuck;
        }
        card.hold(None);
        assert!(begun.elapsed() < PATIENCE, "the block never begins");
        std::thread::sleep(Duration::from_millis(1));
    };
    // The others go on for as long as there is room in the queue; then they wait, too.
    let mut waits = None;
    for n in 0..64 {
        let e = (stuck + 1 + n % (ENGINES - 1)) % ENGINES;
        send(e, &mut engines[e], &mut batches[e]);
        batches[e] = within(Duration::from_millis(100), &mut engines[e]);
        if batches[e].is_none() {
            waits = Some(e);
            break;
        }
    }
    card.hold(None);
    for e in [Some(stuck), waits].into_iter().flatten() {
        assert!(within(PATIENCE, &mut engines[e]).is_some(), "engine {e}");
    }
    assert!(waits.is_some(), "the queue has no end");
}

/// Changes are counted in the device's memory: a launch writes all its counts at once, in two stores.
#[test]
fn a_launch_of_changes_writes_its_counts_to_the_host_once() {
    for kind in [IndexKind::SetAssoc, IndexKind::Cuckoo] {
        let watched = Arc::new(SimtCard::watching(7));
        let world = World::new(&(Arc::clone(&watched) as Arc<dyn Card>), Mode::Launch, kind);
        // A launch is over for the host before what it did is added.
        let (begun, all) = (Instant::now(), 2 * world.updates);
        while watched.counts().host_writes < all && begun.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let counts = watched.counts();
        assert!(world.updates > 0 && counts.host_writes == 2 * world.updates, "{counts:?}");
        assert_eq!(counts.host_write_bytes, 2 * 32 * world.updates);
    }
}

/// What a batch costs beside its loads and stores: a fence of a thread for each block that shares it,
/// one of the polling warp, and one word to the host.
#[test]
fn a_batch_has_few_fences_for_the_whole_system() {
    let watched = Arc::new(SimtCard::watching(3));
    let card = Arc::clone(&watched) as Arc<dyn Card>;
    let sizes = Sizes { slots: 512, slot_bytes: 128, batch: 512 };
    let kinds = [
        gpu::bench::IndexKind::Cuckoo { n_buckets: 2, kicks_max: 0 },
        gpu::bench::IndexKind::Setassoc { n_sets: [2; 5] },
    ];
    for kind in kinds {
        let mut bench = Bench::new(&card, kind, HASH_KEY, sizes).unwrap();
        let entry = |slot| Entry { slot, len: 64, l3: 14, l4: 34, ..Entry::default() };
        let mut counted = watched.counts();
        let mut since = || {
            let now = watched.counts();
            let fences = now.system_fences - counted.system_fences;
            let words = now.system_releases - counted.system_releases;
            counted = now;
            (fences, words)
        };
        for (requests, blocks) in [(100, 1), (256, 2), (512, 4)] {
            let entries: Vec<Entry> = (0..requests).map(entry).collect();
            bench.get(&entries, 1, true, blocks).unwrap();
            let (fences, words) = since();
            let shared = if blocks > 1 { u64::from(blocks) } else { 0 };
            assert!(fences <= shared, "{fences} fences, launched, {blocks} blocks");
            assert_eq!(words, 1, "launched, {blocks} blocks");
            bench.start_serving(4, 1, 0).unwrap();
            bench.serve(&entries, 1, true).unwrap();
            bench.end_serving(false).unwrap();
            let (fences, words) = since();
            assert!(fences <= shared + 1, "{fences} fences, served, {blocks} parts");
            assert_eq!(words, 1, "served, {blocks} parts");
        }
        bench.update(&[(Op { hash: 1, ..Op::default() }, b"key")], 1, 1).unwrap();
        assert_eq!(since(), (0, 0), "changes");
    }
}
