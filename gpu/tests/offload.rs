//! The engine over a device and the index's updater, with the SIMT executor for a device: every mode,
//! both indexes, and every fault.
#![cfg(feature = "simt")]
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::multiple_unsafe_ops_per_block, reason = "tests")]

use gpu::card::{Card, CardError};
use gpu::faulty::{FaultyCard, Switches};
use gpu::host::HostMemory;
use gpu::index::{
    Feed, Form, Found, IndexConfig, IndexKind, SHARES_DEFAULT, Schedule, Source, Stale, Updater,
    UpdaterCounters, signature,
};
use gpu::offload::{Fault, GpuEngine, Mode, Offload, OffloadConfig};
use gpu::params::HashKey;
use gpu::simt::SimtCard;
use gpu::{Batch, Engine, Entry, EntryFlags, Hint, Outcome, PacketMemory, Verdict};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SLOT_BYTES: usize = 2048;
const SLOTS: usize = 512;
const MODES: [Mode; 3] = [Mode::Launch, Mode::Graph, Mode::Persistent];
const KINDS: [IndexKind; 2] = [IndexKind::SetAssoc, IndexKind::Cuckoo];
/// More than anything takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the store would say: by hash, an item.
type Items = Arc<Mutex<HashMap<u64, (Vec<u8>, u32)>>>;

struct StubSource(Items);

impl Source for StubSource {
    fn look(&mut self, hashes: &[u64], tell: &mut dyn FnMut(u64, Option<Found<'_>>)) {
        let items = self.0.lock().unwrap();
        for hash in hashes {
            let Some((key, location)) = items.get(hash) else {
                tell(*hash, None);
                continue;
            };
            let (flags, value_len) = (location + 1, location + 2);
            let value = vec![b'v'; value_len as usize];
            let (location, value) = (*location, &value[..]);
            tell(*hash, Some(Found { location, flags, value_len, key, value, ..Found::default() }));
        }
    }

    fn now(&self) -> u32 {
        1000
    }
}

/// The standard library's own SipHash-1-3 has the key 0.
fn hash(key: &[u8]) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

struct World {
    memory: Arc<HostMemory>,
    offload: Arc<Offload>,
    switches: Arc<Switches>,
    items: Items,
    feed: Arc<Feed>,
}

fn config(mode: Mode, kind: IndexKind) -> OffloadConfig {
    OffloadConfig {
        mode,
        index: IndexConfig { kind, memory_bytes: 1 << 20, shares: SHARES_DEFAULT },
        hash_key: HashKey { k0: 0, k1: 0 },
        engines: 2,
        batch_max: 200,
        in_flight_max: 3,
        deadline: PATIENCE,
        start_deadline: PATIENCE,
        multiprocessors: u32::MAX,
        heads: true,
    }
}

impl World {
    fn try_new(config: OffloadConfig, turn: impl FnOnce(&Switches)) -> Result<Self, CardError> {
        let memory = Arc::new(HostMemory::new(SLOTS * SLOT_BYTES));
        let (card, switches) = FaultyCard::new(Arc::new(SimtCard::default()));
        turn(&switches);
        // SAFETY: the memory is kept by whoever uses it: the last argument below.
        let packets = unsafe { PacketMemory::new(memory.start(), SLOT_BYTES, SLOTS) };
        let keep = Box::new(Arc::clone(&memory));
        let offload = Offload::new(Arc::new(card), packets, keep, config)?;
        let feed = Arc::new(Feed::filtered(64, offload.filter().cloned()));
        Ok(Self { memory, offload, switches, items: Items::default(), feed })
    }

    fn new(mode: Mode, kind: IndexKind) -> Self {
        Self::try_new(config(mode, kind), |_| ()).unwrap()
    }

    fn engine(&self) -> GpuEngine {
        GpuEngine::new(&self.offload, 200).unwrap()
    }

    fn updater(&self) -> Updater {
        let source = Box::new(StubSource(Arc::clone(&self.items)));
        let schedule = Schedule::default();
        Updater::new(&self.offload, Arc::clone(&self.feed), source, schedule).unwrap()
    }

    fn put(&self, key: &[u8], location: u32) {
        self.items.lock().unwrap().insert(hash(key), (key.to_vec(), location));
        self.feed.note(hash(key), Some(Form::GET));
    }

    fn remove(&self, key: &[u8]) {
        self.items.lock().unwrap().remove(&hash(key));
        self.feed.note(hash(key), Some(Form::GET));
    }

    /// Writes the request in a slot: a UDP header at 34 whose checksum nobody looks at.
    fn request(&self, slot: usize, text: &[u8]) -> Entry {
        let mut frame = vec![0; 50];
        frame[38..40].copy_from_slice(&u16::try_from(16 + text.len()).unwrap().to_be_bytes());
        frame[46..48].copy_from_slice(&[0, 1]);
        frame.extend_from_slice(text);
        // SAFETY: a slot of ours.
        let at = unsafe { self.memory.start().add(slot * SLOT_BYTES) };
        // SAFETY: no kernel looks at it yet, and the frame is shorter than the slot.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), at.as_ptr(), frame.len()) };
        Entry {
            slot: u32::try_from(slot).unwrap(),
            off: 0,
            len: u16::try_from(frame.len()).unwrap(),
            l3: 14,
            l4: 34,
            flags: EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD),
            mark: 0,
        }
    }

    /// A batch of a `get` each.
    fn fill(&self, batch: &mut Batch, keys: &[&[u8]]) {
        for (slot, key) in keys.iter().enumerate() {
            let text = [b"get ", *key, b"\r\n"].concat();
            batch.entries.push(self.request(slot, &text)).unwrap();
        }
    }

    fn ask(&self, engine: &mut GpuEngine, keys: &[&[u8]]) -> Vec<(Hint, u32)> {
        let mut batch = engine.new_batch(1, 200);
        self.fill(&mut batch, keys);
        engine.submit(batch).unwrap();
        let (batch, outcome) = wait(engine);
        assert_eq!(outcome, Outcome::Replica, "{:?}", self.offload.fault());
        assert_eq!(batch.descs.len(), keys.len());
        let hints = batch.descs.iter().map(|desc| {
            assert_eq!((desc.verdict, desc.n_keys), (Verdict::READY, 1));
            (desc.keys[0].hint, desc.keys[0].location)
        });
        hints.collect()
    }
}

fn wait(engine: &mut GpuEngine) -> (Box<Batch>, Outcome) {
    let begun = Instant::now();
    loop {
        if let Some(done) = engine.poll() {
            return done;
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "nothing comes back");
        std::thread::yield_now();
    }
}

#[test]
fn the_index_follows_and_batches_are_answered_in_every_mode() {
    for kind in KINDS {
        for mode in MODES {
            let world = World::new(mode, kind);
            let (mut engine, mut updater) = (world.engine(), world.updater());
            let long = [b'k'; 250];
            let keys: [&[u8]; 4] = [b"a", b"another-key-of-two-dozen", b"none", &long];
            let miss = (Hint::MISS, 0);
            assert_eq!(world.ask(&mut engine, &keys), [miss; 4], "{kind:?} {mode:?}");
            world.put(keys[0], 7);
            world.put(keys[1], 8);
            world.put(keys[3], 9);
            assert_eq!(updater.turn(), 3);
            let hit = |at| (Hint::HIT, at);
            assert_eq!(world.ask(&mut engine, &keys), [hit(7), hit(8), miss, hit(9)]);
            world.put(keys[0], 70);
            world.remove(keys[1]);
            world.remove(keys[2]);
            world.remove(keys[3]);
            world.feed.note(hash(keys[0]), Some(Form::GET));
            assert_eq!(updater.turn(), 5);
            assert_eq!(world.ask(&mut engine, &keys), [hit(70), miss, miss, miss]);
            let counters = updater.counters();
            let get = |name| counters.rows().iter().find(|(n, _)| *n == name).unwrap().1;
            assert_eq!(["looks", "looks_saved", "updates", "changes"].map(get), [8, 1, 2, 7]);
            assert_eq!(["inserted", "replaced", "removed", "absent"].map(get), [3, 1, 2, 1]);
            assert_eq!(counters.filled(), 1);
            assert!(world.offload.fault().is_none());
        }
    }
}

/// A new updater does not know which key has which row: replies of the rows of one before it are not taken,
/// and its first turn takes the rows out. The first of all finds none, and takes none out.
#[test]
fn an_updater_after_another_begins_with_no_rows() {
    let world = World::new(Mode::Launch, IndexKind::Rows);
    let (filter, mut engine) = (world.offload.filter().unwrap(), world.engine());
    let accepted = || filter.accepts(signature(hash(b"key")), filter.stamp());
    let mut has_row = || {
        let mut batch = engine.new_batch(1, 200);
        world.fill(&mut batch, &[b"key"]);
        engine.submit(batch).unwrap();
        let (batch, _) = wait(&mut engine);
        batch.requests().all(|(_, _, prepared)| prepared.reply.is_some())
    };
    let mut first = world.updater();
    world.put(b"key", 3);
    while first.turn() > 0 {}
    assert_eq!((accepted(), has_row()), (Ok(()), true));
    assert_eq!(first.counters().cleared.load(Ordering::Relaxed), 0);
    drop(first);
    let mut second = world.updater();
    assert_eq!((accepted(), has_row()), (Err(Stale::Cleared), true));
    second.turn();
    assert_eq!((accepted(), has_row()), (Ok(()), false));
    assert_eq!(second.counters().cleared.load(Ordering::Relaxed), 1);
}

#[test]
fn results_come_in_the_order_of_submission_and_places_are_bounded() {
    for mode in MODES {
        let world = World::new(mode, IndexKind::SetAssoc);
        let mut engine = world.engine();
        let mut batches: Vec<_> = (0..4).map(|id| engine.new_batch(id, 200)).collect();
        for round in 0..20 {
            let mut refused = Vec::new();
            for mut batch in batches.drain(..) {
                let keys: Vec<&[u8]> = vec![b"key"; 1 + 60 * (round + batch.id as usize) % 200];
                world.fill(&mut batch, &keys);
                refused.extend(engine.submit(batch).err());
            }
            assert_eq!((engine.in_flight(), refused.len()), (3, 1), "one place too few");
            let mut ids = Vec::new();
            for _ in 0..3 {
                let (mut batch, outcome) = wait(&mut engine);
                assert_eq!((outcome, batch.descs.len()), (Outcome::Replica, batch.entries.len()));
                ids.push(batch.id);
                batch.clear();
                batches.push(batch);
            }
            assert_eq!(ids, [0, 1, 2]);
            assert!(engine.poll().is_none());
            refused[0].clear();
            batches.append(&mut refused);
        }
    }
}

#[test]
fn a_batch_that_the_card_does_not_see_is_refused() {
    let world = World::new(Mode::Launch, IndexKind::SetAssoc);
    let mut engine = world.engine();
    let mut batch = Box::new(Batch::new(5, 200));
    world.fill(&mut batch, &[b"key"]);
    let batch = engine.submit(batch).unwrap_err();
    assert_eq!((batch.id, batch.entries.len()), (5, 1));
    assert!(engine.is_open());
}

#[test]
fn a_card_that_cannot_is_an_error_at_start_up() {
    let memory = |s: &Switches| s.no_memory.store(true, Ordering::Relaxed);
    let config = config(Mode::Launch, IndexKind::SetAssoc);
    let error = World::try_new(config, memory).err().unwrap();
    assert!(matches!(error, CardError::OutOfMemory { .. }), "{error}");
    let mapping = |s: &Switches| s.no_mapping.store(true, Ordering::Relaxed);
    let error = World::try_new(config, mapping).err().unwrap();
    assert!(matches!(error, CardError::NotMapped { .. }), "{error}");
    for mode in MODES {
        // The grid's stream is the offload's, others are the engines'.
        let kernels = |s: &Switches| s.no_kernels.store(true, Ordering::Relaxed);
        let error = match World::try_new(self::config(mode, IndexKind::SetAssoc), kernels) {
            Ok(world) => GpuEngine::new(&world.offload, 200).unwrap_err(),
            Err(error) => Fault::Card(error),
        };
        assert!(matches!(error, Fault::Card(CardError::NotLoaded(_))), "{error}");
        let world = World::new(mode, IndexKind::SetAssoc);
        world.switches.refuse_launches.store(true, Ordering::Relaxed);
        let error = GpuEngine::new(&world.offload, 200).unwrap_err();
        assert!(matches!(error, Fault::Card(CardError::Refused { .. })), "{error}");
    }
}

#[test]
fn a_kernel_that_never_starts_is_noticed_at_start_up() {
    for mode in MODES {
        let short = Duration::from_millis(50);
        let config = OffloadConfig { start_deadline: short, ..config(mode, IndexKind::SetAssoc) };
        let world = World::try_new(config, |_| ()).unwrap();
        world.switches.lose_launches.store(true, Ordering::Relaxed);
        let error = GpuEngine::new(&world.offload, 200).unwrap_err();
        assert!(matches!(error, Fault::Late { .. }), "{error}");
        assert_eq!(world.offload.fault(), Some(&error));
    }
}

/// Turns a switch and sends batches until that ends the device's use: each one that does not come back
/// with descriptors comes back with its entries, in memory that the device does not see, and the
/// reason is kept.
fn all_are_lost(mode: Mode, deadline: Duration, turn: impl Fn(&Switches)) -> Fault {
    let config = OffloadConfig { deadline, ..config(mode, IndexKind::SetAssoc) };
    let world = World::try_new(config, |_| ()).unwrap();
    let mut engine = world.engine();
    let mut batches: Vec<_> = (0..4).map(|id| engine.new_batch(id, 200)).collect();
    // What stays runs from the first batch on.
    engine.submit(batches.remove(0)).unwrap();
    batches.push(wait(&mut engine).0);
    turn(&world.switches);
    let (mut lost, began) = (0, Instant::now());
    while world.offload.fault().is_none() {
        assert!(began.elapsed() < PATIENCE);
        let mut refused = Vec::new();
        for mut batch in batches.drain(..) {
            batch.clear();
            world.fill(&mut batch, &[b"one", b"two"]);
            refused.extend(engine.submit(batch).err());
        }
        assert!(!refused.is_empty(), "three are in flight");
        while engine.in_flight() > 0 {
            let (batch, outcome) = wait(&mut engine);
            assert_eq!((batch.entries.len(), batch.entries[1].slot), (2, 1));
            if outcome == Outcome::Lost {
                assert_eq!(batch.descs.len(), 0);
                assert_eq!(batch.entries.at().0, 0, "out of the GPU's reach");
                lost += 1;
            }
            batches.push(batch);
        }
        batches.append(&mut refused);
        let mut ids: Vec<u32> = batches.iter().map(|batch| batch.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3]);
        // For late ones to be looked at.
        engine.poll();
    }
    let mut batch = batches.remove(0);
    batch.clear();
    world.fill(&mut batch, &[b"one", b"two"]);
    let batch = engine.submit(batch).unwrap_err();
    assert_eq!(batch.entries.len(), 2, "a failed engine takes nothing");
    assert!(!engine.is_open() && engine.poll().is_none());
    let fault = world.offload.fault().unwrap().clone();
    assert!(lost > 0 || !matches!(fault, Fault::Late { .. }));
    fault
}

#[test]
fn late_kernels_lose_their_batches_and_no_more() {
    let deadline = Duration::from_millis(5);
    for mode in [Mode::Launch, Mode::Graph] {
        let lose = |s: &Switches| s.lose_launches.store(true, Ordering::Relaxed);
        let fault = all_are_lost(mode, deadline, lose);
        assert!(matches!(fault, Fault::Late { requests: 2, .. }), "{fault}");
    }
    // SAFETY: the engine is there, and the executor's addresses are the host's.
    let kill = |s: &Switches| unsafe { s.kill_serving() };
    let fault = all_are_lost(Mode::Persistent, deadline, kill);
    assert!(matches!(fault, Fault::Late { requests: 2, .. }), "{fault}");
}

#[test]
fn refused_launches_and_sticky_errors_lose_batches_and_no_more() {
    for mode in [Mode::Launch, Mode::Graph] {
        let refuse = |s: &Switches| s.refuse_launches.store(true, Ordering::Relaxed);
        let fault = all_are_lost(mode, PATIENCE, refuse);
        assert!(matches!(fault, Fault::Card(CardError::Refused { .. })), "{fault}");
        let stick = |s: &Switches| s.sticky.store(true, Ordering::Relaxed);
        let fault = all_are_lost(mode, PATIENCE, stick);
        assert!(matches!(fault, Fault::Card(CardError::Sticky { .. })), "{fault}");
    }
    // A kernel that stays is asked when it is late.
    let stick = |s: &Switches| {
        s.sticky.store(true, Ordering::Relaxed);
        // SAFETY: the engine is there, and the executor's addresses are the host's.
        unsafe { s.kill_serving() }
    };
    let fault = all_are_lost(Mode::Persistent, Duration::from_millis(5), stick);
    assert!(matches!(fault, Fault::Card(CardError::Sticky { .. })), "{fault}");
}

#[test]
fn one_engines_fault_is_every_engines() {
    let world = World::new(Mode::Launch, IndexKind::Cuckoo);
    let (mut one, two) = (world.engine(), world.engine());
    one.mark_faulty();
    assert!(!one.is_open() && !two.is_open());
    assert_eq!(world.offload.fault(), Some(&Fault::Wrong));
    world.offload.fail(Fault::Unstoppable);
    assert_eq!(world.offload.fault(), Some(&Fault::Wrong), "the first one counts");
}

#[test]
fn an_updater_without_a_card_goes_on_emptying_the_feed() {
    let world = World::new(Mode::Launch, IndexKind::SetAssoc);
    let mut updater = world.updater();
    world.switches.sticky.store(true, Ordering::Relaxed);
    for key in 0..200u32 {
        world.put(&key.to_be_bytes(), key);
    }
    assert_eq!((world.feed.len(), world.feed.lost()), (64, 136), "what does not fit is counted");
    assert_eq!(updater.turn(), 64);
    assert!(matches!(world.offload.fault(), Some(Fault::Card(CardError::Sticky { .. }))));
    world.put(b"more", 1);
    assert_eq!((updater.turn(), updater.turn()), (1, 0));
}

#[test]
fn an_updater_on_a_thread_of_its_own_keeps_up_and_stops() {
    let world = World::new(Mode::Persistent, IndexKind::SetAssoc);
    let mut engine = world.engine();
    let updater = world.updater();
    let counters: Arc<UpdaterCounters> = updater.counters();
    let stop = Arc::new(AtomicBool::new(false));
    let mine = Arc::clone(&stop);
    let thread = std::thread::spawn(move || updater.run(&mine));
    let begun = Instant::now();
    for location in 1..=50 {
        world.put(b"key", location);
        while world.ask(&mut engine, &[b"key"]) != [(Hint::HIT, location)] {
            assert!(begun.elapsed() < PATIENCE, "{:?}", counters.rows());
        }
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}

/// A shared device, whose engines come and go.
#[test]
fn memory_goes_back_when_all_is_well() {
    let card: Arc<dyn Card> = Arc::new(SimtCard::default());
    let memory = Arc::new(HostMemory::new(SLOTS * SLOT_BYTES));
    for mode in MODES {
        // SAFETY: kept by the last argument below.
        let packets = unsafe { PacketMemory::new(memory.start(), SLOT_BYTES, SLOTS) };
        let keep = Box::new(Arc::clone(&memory));
        let config = config(mode, IndexKind::SetAssoc);
        let offload = Offload::new(Arc::clone(&card), packets, keep, config).unwrap();
        let engine = GpuEngine::new(&offload, 64).unwrap();
        assert_eq!(Arc::strong_count(&memory), 2);
        drop((engine, offload));
        assert_eq!(Arc::strong_count(&memory), 1, "{mode:?}");
    }
}

/// The first change after a pause waits for its batch to gather, and for nothing else.
#[test]
fn an_idle_updater_wakes_at_the_first_change() {
    let world = World::new(Mode::Launch, IndexKind::SetAssoc);
    let schedule = Schedule { every: 20, ..Schedule::default() };
    let source = Box::new(StubSource(Arc::clone(&world.items)));
    let updater = Updater::new(&world.offload, Arc::clone(&world.feed), source, schedule).unwrap();
    let counters = updater.counters();
    let stop = Arc::new(AtomicBool::new(false));
    let mine = Arc::clone(&stop);
    let thread = std::thread::spawn(move || updater.run(&mine));
    let mut late = Vec::new();
    for n in 1..=9_u8 {
        // Long enough for whatever an updater does about having nothing to do.
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        world.put(&[n], u32::from(n));
        while counters.changes.load(Ordering::Relaxed) < u64::from(n) {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_micros(100));
        }
        late.push(begun.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    late.sort();
    // A batch gathers for 4 ms; the rest is what a busy machine may take, half of the times.
    assert!(late[4] < Duration::from_millis(25), "{late:?}");
}
