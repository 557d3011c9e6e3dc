//! Engines over a device that makes its users wait as a device does: few queues, few places for
//! blocks, memory calls that wait for kernels, and times in which nothing moves.
#![cfg(feature = "simt")]
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, reason = "tests")]

#[cfg(feature = "cuda")]
#[allow(dead_code, reason = "shared with the GPU's own tests, which use more of it")]
mod driver;

use gpu::card::Card;
use gpu::host::HostMemory;
use gpu::index::{IndexConfig, IndexKind, SHARES_DEFAULT};
use gpu::offload::{Fault, GpuEngine, Mode, Offload, OffloadConfig};
use gpu::params::HashKey;
use gpu::simt::{Hostile, SimtCard};
use gpu::{Batch, Engine, Entry, EntryFlags, Outcome, PacketMemory, Verdict};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MODES: [Mode; 3] = [Mode::Launch, Mode::Graph, Mode::Persistent];
const SLOT_BYTES: usize = 128;
const SLOTS: usize = 8;
/// More than anything takes on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing of a device's own.
const KIND: Hostile = Hostile { queues: 0, places: 0, wait_max: None };

fn config(mode: Mode) -> OffloadConfig {
    OffloadConfig {
        mode,
        index: IndexConfig {
            kind: IndexKind::Cuckoo,
            memory_bytes: 1 << 16,
            shares: SHARES_DEFAULT,
        },
        hash_key: HashKey { k0: 0, k1: 0 },
        engines: 64,
        batch_max: 4096,
        in_flight_max: 2,
        deadline: PATIENCE,
        start_deadline: PATIENCE,
        multiprocessors: u32::MAX,
        heads: false,
    }
}

/// An offload over `card`, with the same request in every slot.
fn offload(card: &Arc<dyn Card>, config: OffloadConfig) -> Arc<Offload> {
    let memory = Arc::new(HostMemory::new(SLOTS * SLOT_BYTES));
    for slot in 0..SLOTS {
        // SAFETY: a slot of ours.
        let at = unsafe { memory.start().add(slot * SLOT_BYTES) };
        let frame = frame();
        // SAFETY: no kernel looks at it yet, and the frame is shorter than the slot.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), at.as_ptr(), frame.len()) };
    }
    // SAFETY: the memory is kept by the argument after this one.
    let packets = unsafe { PacketMemory::new(memory.start(), SLOT_BYTES, SLOTS) };
    Offload::new(Arc::clone(card), packets, Box::new(memory), config).unwrap()
}

fn frame() -> Vec<u8> {
    let text = b"get key\r\n";
    let mut frame = vec![0; 42];
    frame[38..40].copy_from_slice(&u16::try_from(16 + text.len()).unwrap().to_be_bytes());
    frame.extend([0, 0, 0, 0, 0, 1, 0, 0]);
    frame.extend(text);
    frame
}

/// An engine with a batch that is sent again and again, as a worker has it.
struct Worker {
    // In this order: kernels end before the memory that they use is unmapped.
    engine: GpuEngine,
    /// `None`: on its way.
    batch: Option<Box<Batch>>,
    requests: usize,
}

impl Worker {
    /// For batches of `requests`.
    fn new(offload: &Arc<Offload>, requests: usize) -> Result<Self, Fault> {
        let engine = GpuEngine::new(offload, requests)?;
        let mut new = Self { engine, batch: None, requests };
        new.batch = Some(new.fill());
        Ok(new)
    }

    fn fill(&mut self) -> Box<Batch> {
        let mut batch = self.engine.new_batch(0, self.requests);
        let entry = Entry {
            len: u16::try_from(frame().len()).unwrap(),
            l3: 14,
            l4: 34,
            flags: EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD),
            ..Entry::default()
        };
        for _ in 0..self.requests {
            batch.entries.push(entry).unwrap();
        }
        batch
    }

    /// Whether the engine took the batch.
    fn send(&mut self) -> bool {
        let batch = self.batch.take().unwrap();
        self.batch = self.engine.submit(batch).err();
        self.batch.is_none()
    }

    /// What became of the batch, which the engine gives back soon.
    fn receive(&mut self) -> Outcome {
        let begun = Instant::now();
        loop {
            if let Some((mut batch, outcome)) = self.engine.poll() {
                if outcome == Outcome::Replica {
                    assert_eq!(batch.descs.len(), self.requests);
                    assert!(batch.descs.iter().all(|desc| desc.verdict == Verdict::READY));
                    batch.descs.clear();
                } else {
                    // That one is out of the device's sight.
                    batch = self.fill();
                }
                self.batch = Some(batch);
                return outcome;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing comes back");
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn workers(offload: &Arc<Offload>, n: usize, requests: usize) -> Vec<Worker> {
    (0..n).map(|_| Worker::new(offload, requests).unwrap()).collect()
}

/// Each worker has a batch answered, while all have one on the device.
fn all_are_answered(workers: &mut [Worker]) {
    assert!(workers.iter_mut().all(Worker::send));
    for (n, worker) in workers.iter_mut().enumerate() {
        assert_eq!(worker.receive(), Outcome::Replica, "worker {n}");
    }
}

#[test]
fn launches_of_many_workers_share_queues_and_places() {
    for mode in [Mode::Launch, Mode::Graph] {
        let card: Arc<dyn Card> = Arc::new(SimtCard::hostile(3, Hostile::default()));
        let offload = offload(&card, config(mode));
        all_are_answered(&mut workers(&offload, 9, 4096));
        assert!(offload.fault().is_none());
    }
}

/// Grids that are held to two multiprocessors each leave the others to whoever needs them. The largest that there may
/// be has six of these eight.
#[test]
fn grids_of_few_blocks_leave_room_for_others() {
    let card: Arc<dyn Card> = Arc::new(SimtCard::hostile(3, Hostile { places: 8, ..KIND }));
    let few = OffloadConfig {
        multiprocessors: 2,
        deadline: Duration::from_secs(10),
        ..config(Mode::Persistent)
    };
    let offloads: Vec<_> = (0..4).map(|_| offload(&card, few)).collect();
    let mut each: Vec<_> = offloads.iter().map(|offload| workers(offload, 1, 4096)).collect();
    for _ in 0..3 {
        each.iter_mut().for_each(|workers| all_are_answered(workers));
    }
    assert!(offloads.iter().all(|offload| offload.fault().is_none()));
}

/// 64 workers with blocks that stay, on as few processors as there are.
#[test]
fn many_blocks_that_stay_fit_this_machine() {
    let card: Arc<dyn Card> = Arc::new(SimtCard::hostile(0, KIND));
    let offload = offload(&card, config(Mode::Persistent));
    all_are_answered(&mut workers(&offload, 64, 1024));
    assert!(offload.fault().is_none());
}

#[test]
fn a_card_that_stops_for_good_loses_its_batch_and_is_not_used_again() {
    for mode in MODES {
        let card = Arc::new(SimtCard::new(0));
        let shared: Arc<dyn Card> = Arc::clone(&card) as _;
        let config = OffloadConfig { deadline: Duration::from_millis(5), ..config(mode) };
        let offload = offload(&shared, config);
        let mut worker = Worker::new(&offload, 10).unwrap();
        card.stall(Duration::MAX);
        assert!(worker.send());
        assert_eq!(worker.receive(), Outcome::Lost);
        let begun = Instant::now();
        while offload.fault().is_none() {
            assert!(worker.engine.poll().is_none() && begun.elapsed() < PATIENCE);
        }
        drop(worker);
        assert!(begun.elapsed() < Duration::from_secs(10), "the end waits for the GPU");
        // What the kernel was given stays, now that it goes on.
        card.stall(Duration::ZERO);
    }
}

// What one grid for all workers of a device is for: with a kernel for each worker none of these holds.

/// A wait for memory is a wait for all kernels.
#[test]
fn workers_start_where_memory_waits_for_kernels_that_stay() {
    let how = Hostile { wait_max: Some(Duration::from_secs(20)), ..KIND };
    let card: Arc<dyn Card> = Arc::new(SimtCard::hostile(0, how));
    let start_deadline = Duration::from_secs(5);
    let offload = offload(&card, OffloadConfig { start_deadline, ..config(Mode::Persistent) });
    let begun = Instant::now();
    let mut workers = workers(&offload, 3, 64);
    assert!(begun.elapsed() < start_deadline);
    all_are_answered(&mut workers);
}

#[test]
fn nine_workers_share_eight_queues() {
    let card: Arc<dyn Card> = Arc::new(SimtCard::hostile(0, Hostile { queues: 8, ..KIND }));
    let deadline = Duration::from_secs(5);
    let offload = offload(&card, OffloadConfig { deadline, ..config(Mode::Persistent) });
    all_are_answered(&mut workers(&offload, 9, 64));
}

#[test]
fn workers_with_large_batches_share_the_places() {
    let card: Arc<dyn Card> = Arc::new(SimtCard::hostile(0, Hostile { places: 128, ..KIND }));
    let deadline = Duration::from_secs(5);
    let offload = offload(&card, OffloadConfig { deadline, ..config(Mode::Persistent) });
    all_are_answered(&mut workers(&offload, 3, 4096));
}

/// One grid, whose blocks never need more places than a small device has; batches of any size; and a
/// stop and a new start for each time that somebody maps memory.
#[test]
fn sixty_four_workers_share_one_grid_that_stops_and_starts() {
    let card: Arc<dyn Card> = Arc::new(SimtCard::hostile(0, Hostile::default()));
    let offload = offload(&card, OffloadConfig { in_flight_max: 1, ..config(Mode::Persistent) });
    let mut all = Vec::new();
    for requests in [32, 512, 4096] {
        let n = if requests == 32 { 62 } else { 1 };
        all.append(&mut workers(&offload, n, requests));
    }
    assert_eq!(all.len(), 64);
    assert!(Worker::new(&offload, 32).is_err(), "there are 64 rings");
    all_are_answered(&mut all);
    let began = Instant::now();
    for round in 0..100 {
        // The grid is stopped for the mapping while these are on their way, and started again.
        let some = [round % 64, (round + 21) % 64, (round + 42) % 64];
        assert!(some.iter().all(|&n| all[n].send()), "round {round}");
        drop(all[some[0]].engine.new_batch(9, 1));
        for n in some {
            assert_eq!(all[n].receive(), Outcome::Replica, "round {round}, worker {n}");
        }
    }
    assert!(offload.fault().is_none() && offload.rests() == 0);
    println!("100 stops and starts in {:?}", began.elapsed());
}

/// Another process's time slice, a paused virtual machine: late is not dead.
#[test]
fn a_card_that_stops_for_a_moment_is_used_again() {
    for mode in MODES {
        for pause in [2, 15, 32].map(Duration::from_millis) {
            let card = Arc::new(SimtCard::new(0));
            let shared: Arc<dyn Card> = Arc::clone(&card) as _;
            let config = OffloadConfig { deadline: Duration::from_millis(5), ..config(mode) };
            let offload = offload(&shared, config);
            let mut worker = Worker::new(&offload, 10).unwrap();
            let begun = Instant::now();
            card.stall(pause);
            // Batches are late, and some may be refused for a while.
            let mut answered = false;
            while !answered || begun.elapsed() < pause {
                answered = worker.send() && worker.receive() == Outcome::Replica;
                let fault = offload.fault();
                assert!(fault.is_none(), "{mode:?}, {pause:?}: {fault:?}");
                assert!(begun.elapsed() < PATIENCE, "{mode:?}, {pause:?}: not used again");
                worker.engine.poll();
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}

/// The first launch of the kernel with the most local memory waits for all others.
#[cfg(feature = "cuda")]
#[test]
fn changes_of_the_index_come_beside_kernels_that_stay() {
    use gpu::index::{Feed, Found, Schedule, Source, Updater};
    struct Nothing;
    impl Source for Nothing {
        fn look(&mut self, hashes: &[u64], tell: &mut dyn FnMut(u64, Option<Found<'_>>)) {
            hashes.iter().for_each(|hash| tell(*hash, None));
        }
        fn now(&self) -> u32 {
            1
        }
    }
    let (_turn, _fake) = driver::driver();
    let card: Arc<dyn Card> = Arc::new(gpu::cuda::CudaCard::open(0).unwrap());
    // One place: what is mapped beside a kernel that runs is another test's matter.
    let offload = offload(&card, OffloadConfig { in_flight_max: 1, ..config(Mode::Persistent) });
    let feed = Arc::new(Feed::new(64));
    let (source, schedule) = (Box::new(Nothing), Schedule::default());
    let mut updater = Updater::new(&offload, Arc::clone(&feed), source, schedule).unwrap();
    let mut worker = Worker::new(&offload, 64).unwrap();
    all_are_answered(std::slice::from_mut(&mut worker));
    feed.note(7, None);
    let begun = Instant::now();
    assert_eq!(updater.turn(), 1);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(offload.fault().is_none());
}

/// A kernel that cannot be stopped may go on writing: after a fault nothing is freed or unmapped.
#[cfg(feature = "cuda")]
#[test]
fn nothing_is_taken_from_a_card_that_failed() {
    let (_turn, fake) = driver::driver();
    for mode in MODES {
        let card: Arc<dyn Card> = Arc::new(gpu::cuda::CudaCard::open(0).unwrap());
        for fails in [false, true] {
            let before = fake.held();
            let offload = offload(&card, config(mode));
            let mut worker = Worker::new(&offload, 64).unwrap();
            all_are_answered(std::slice::from_mut(&mut worker));
            let held = fake.held();
            assert!(held > before);
            if fails {
                offload.fail(Fault::Unstoppable);
            }
            drop((worker, offload));
            assert_eq!(fake.held(), if fails { held } else { before }, "{mode:?}");
        }
    }
}

/// Polls over PCIe do not grow with blocks: all but one wait in the device's memory.
#[test]
fn one_block_of_an_idle_grid_touches_host_memory() {
    let watched = Arc::new(SimtCard::watching(0));
    let card = Arc::clone(&watched) as Arc<dyn Card>;
    let kind = gpu::bench::IndexKind::Cuckoo { n_buckets: 2, kicks_max: 0 };
    let sizes = gpu::bench::Sizes { slots: 1, slot_bytes: 128, batch: 1 };
    let mut bench = gpu::bench::Bench::new(&card, kind, HashKey { k0: 0, k1: 0 }, sizes).unwrap();
    // It ends because nobody gives a sign of life.
    bench.start_serving(5, 0, 20).unwrap();
    bench.end_serving(false).unwrap();
    let counts = watched.counts();
    assert_eq!((counts.host_blocks, counts.host_reads, counts.host_writes), (1, 0, 0));
    assert!(counts.host_polls > 0);
}

/// The process was stopped for longer than the kernel's patience, and the kernel has ended: it is
/// started again, and what it was sent before that is done late.
#[test]
fn a_kernel_that_took_its_host_for_dead_is_started_again() {
    let card: Arc<dyn Card> = Arc::new(SimtCard::new(0));
    let deadline = Duration::from_millis(20);
    let offload = offload(&card, OffloadConfig { deadline, ..config(Mode::Persistent) });
    let mut worker = Worker::new(&offload, 10).unwrap();
    all_are_answered(std::slice::from_mut(&mut worker));
    std::thread::sleep(Duration::from_millis(10_500));
    let began = Instant::now();
    assert!(worker.send());
    // Not by `receive`, whose new memory would have the kernel stopped, and so started again.
    let outcome = loop {
        if let Some((_, outcome)) = worker.engine.poll() {
            break outcome;
        }
        assert!(began.elapsed() < PATIENCE, "nothing comes back");
    };
    assert_eq!(outcome, Outcome::Lost);
    while began.elapsed() < Duration::from_millis(1500) {
        assert!(worker.engine.poll().is_none());
        assert!(offload.fault().is_none(), "{:?} after {:?}", offload.fault(), began.elapsed());
        std::thread::sleep(Duration::from_micros(500));
    }
    worker.batch = Some(worker.fill());
    assert!(worker.send());
    assert_eq!(worker.receive(), Outcome::Replica);
}

/// A deadline above a second: a batch has a second more once it is late.
#[test]
fn a_long_deadline_is_no_fault() {
    let card = Arc::new(SimtCard::new(0));
    let shared: Arc<dyn Card> = Arc::clone(&card) as _;
    let deadline = Duration::from_millis(1100);
    let offload = offload(&shared, OffloadConfig { deadline, ..config(Mode::Persistent) });
    let mut worker = Worker::new(&offload, 10).unwrap();
    card.stall(Duration::from_millis(1300));
    assert!(worker.send());
    assert_eq!(worker.receive(), Outcome::Lost);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(700) {
        worker.engine.poll();
        assert!(offload.fault().is_none(), "{:?}", offload.fault());
        std::thread::sleep(Duration::from_micros(500));
    }
}
