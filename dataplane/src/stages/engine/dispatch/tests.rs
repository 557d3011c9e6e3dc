//! Which engine gets what, with an offload that does as ordered.

use super::*;
use driver_shim::{Pages, Region, SLOT_BYTES};
use gpu::{Entry, PacketMemory, ReqDesc};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use store::{Store, StoreConfig};

const BATCH_MAX: usize = 512;

/// What the offload does.
#[derive(Default)]
struct Orders {
    /// So many of what it has may come out.
    done: AtomicUsize,
    failed: AtomicBool,
    /// It leaves descriptors that no frame can have.
    lies: AtomicBool,
    /// It takes nothing, though it is open.
    refuses: AtomicBool,
    got: Mutex<Vec<u32>>,
}

struct Told {
    orders: Arc<Orders>,
    has: VecDeque<Box<Batch>>,
}

impl Engine for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn submit(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>> {
        let refuses = self.orders.refuses.load(Ordering::Relaxed);
        if self.has.len() == 2 || refuses || !self.is_open() {
            return Err(batch);
        }
        self.orders.got.lock().unwrap().push(batch.id);
        self.has.push_back(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<(Box<Batch>, Outcome)> {
        if !self.is_open() {
            return Some((self.has.pop_front()?, Outcome::Lost));
        }
        if self.orders.done.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut batch = self.has.pop_front()?;
        self.orders.done.fetch_sub(1, Ordering::Relaxed);
        let lies = self.orders.lies.load(Ordering::Relaxed);
        let desc = if lies { ReqDesc::UNREAD } else { ReqDesc::bad(gpu::BadReason::UDP_CHECKSUM) };
        for _ in 0..batch.entries.len() {
            batch.descs.push(desc).unwrap();
        }
        Some((batch, Outcome::Replica))
    }

    fn in_flight(&self) -> usize {
        self.has.len()
    }

    fn is_open(&self) -> bool {
        !self.orders.failed.load(Ordering::Relaxed)
    }

    fn mark_faulty(&mut self) {
        self.orders.failed.store(true, Ordering::Relaxed);
    }
}

struct World {
    dispatch: Dispatch,
    orders: Arc<Orders>,
    counters: Arc<WorkerCounters>,
    _region: Region,
}

fn world(forced: bool) -> World {
    let region = Region::new(4, Pages::Small).unwrap();
    let config =
        StoreConfig { pages: Pages::Small, memory_bytes: 4 << 20, ..StoreConfig::default() };
    // SAFETY: the region is in the same world.
    let packets = unsafe { PacketMemory::new(region.base(), SLOT_BYTES, region.capacity()) };
    // SAFETY: no thread writes to a slot here.
    let cpu = unsafe { CpuEngine::new(Store::new(config).unwrap(), packets, 8) };
    let (orders, counters) = (Arc::<Orders>::default(), Arc::<WorkerCounters>::default());
    let engine = Box::new(Told { orders: Arc::clone(&orders), has: VecDeque::new() });
    let offloading = Offloading { engine, forced, verify_one_in: NonZeroU32::MAX, filter: None };
    let dispatch = Dispatch::new(cpu, Some(offloading), BATCH_MAX, Arc::clone(&counters));
    World { dispatch, orders, counters, _region: region }
}

impl World {
    /// A batch of `n` requests whose frames are no frames: bad ones for any engine.
    fn batch(&mut self, id: u32, n: usize) -> Box<Batch> {
        let mut batch = self.dispatch.new_batch(id, BATCH_MAX);
        for _ in 0..n {
            batch
                .entries
                .push(Entry { slot: 9, flags: gpu::EntryFlags::IP_GOOD, ..Entry::default() })
                .unwrap();
        }
        batch
    }

    fn send(&mut self, id: u32, n: usize) -> bool {
        let batch = self.batch(id, n);
        self.dispatch.submit(batch).is_ok()
    }

    /// Costs as if many batches had been measured: nanoseconds a batch and a request over there,
    /// and a request here.
    fn costs(&mut self, start: f64, each: f64, here: f64) {
        let offload = self.dispatch.offload.as_mut().unwrap();
        offload.last_sent = Instant::now();
        for n in [8.0, 100.0, 500.0] {
            for _ in 0..40 {
                offload.offloaded.add(n, start + each * n);
                offload.on_cpu.add(here);
                offload.handing.add(100.0);
            }
        }
    }

    fn got(&self) -> Vec<u32> {
        std::mem::take(&mut self.orders.got.lock().unwrap())
    }

    /// The next batch that is done, which the CPU engine did, at once.
    fn by_cpu(&mut self) -> Box<Batch> {
        let Complete { batch, from_replica } = {
            let done = self.dispatch.poll().expect("at once");
            self.dispatch.complete(done)
        };
        assert!(!from_replica);
        batch
    }

    fn finish(&mut self) {
        self.orders.done.store(usize::MAX / 2, Ordering::Relaxed);
        while self.dispatch.poll().is_some() {}
        self.orders.done.store(0, Ordering::Relaxed);
        assert_eq!(self.dispatch.offload.as_ref().unwrap().engine.in_flight(), 0);
    }
}

#[test]
fn few_requests_and_an_idle_gpu_are_the_cpus() {
    let mut w = world(false);
    w.costs(6000.0, 4.0, 44.0);
    // The break-even is at 150 requests.
    for n in [1, 10, 100, 200] {
        w.costs(6000.0, 4.0, 44.0);
        assert!(w.send(1, n));
        assert_eq!(w.by_cpu().descs.len(), n);
    }
    assert_eq!(w.got(), []);
    w.costs(6000.0, 4.0, 44.0);
    assert!(w.send(2, 300));
    assert_eq!(w.got(), [2]);
    // A place is free, and the GPU at work: it takes whatever is worth the trouble.
    assert!(w.send(3, 10));
    assert_eq!(w.got(), [3]);
    w.finish();
    // It goes on being the GPU's down to half of the break-even.
    w.costs(6000.0, 4.0, 44.0);
    assert!(w.send(4, 100));
    assert_eq!(w.got(), [4]);
    w.finish();
    w.costs(6000.0, 4.0, 44.0);
    assert!(w.send(5, 60));
    assert_eq!(w.got(), []);
    w.finish();
    assert_eq!((w.counters.gpu_batches.get(), w.counters.gpu_batched.get()), (3, 410));
}

#[test]
fn without_a_place_requests_gather_until_the_batch_is_full_or_the_wait_is_long() {
    let mut w = world(false);
    for id in [1, 2] {
        // Each time: a test that is kept from its CPU finds it dear to hand over a batch.
        w.costs(1000.0, 1.0, 100.0);
        assert!(w.send(id, 300));
    }
    assert_eq!(w.got(), [1, 2]);
    assert!(!w.send(3, 300), "wait");
    assert!(w.send(4, BATCH_MAX), "full");
    w.by_cpu();
    assert!(!w.send(5, 20));
    let begun = Instant::now();
    while !w.send(6, 20) {
        assert!(begun.elapsed() < Duration::from_secs(20), "never");
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(w.got(), []);
    w.finish();
}

#[test]
fn a_gpu_that_is_slower_gets_nothing_but_a_probe_now_and_then() {
    let mut w = world(false);
    w.costs(6000.0, 400.0, 44.0);
    let begun = Instant::now();
    let mut probes = 0;
    while begun.elapsed() < PROBE_AFTER * 5 {
        assert!(w.send(1, 512));
        probes += w.got().len();
        w.finish();
        let last = w.dispatch.offload.as_ref().unwrap().last_sent;
        w.costs(6000.0, 400.0, 44.0);
        w.dispatch.offload.as_mut().unwrap().last_sent = last;
    }
    let longest = u32::try_from(begun.elapsed().as_micros() / PROBE_AFTER.as_micros()).unwrap();
    assert!(probes >= 1 && probes <= longest as usize + 1, "{probes}");
}

#[test]
fn a_forced_gpu_gets_everything_while_it_works() {
    let mut w = world(true);
    assert!(w.send(1, 1) && w.send(2, 1));
    assert!(!w.send(3, BATCH_MAX), "even when there is no place");
    assert_eq!(w.got(), [1, 2]);
    w.orders.failed.store(true, Ordering::Relaxed);
    // What was lost comes back as the CPU engine's.
    for id in [1, 2] {
        let batch = w.by_cpu();
        assert_eq!((batch.id, batch.descs.len()), (id, 1));
    }
    assert!(w.send(4, 9));
    w.by_cpu();
    assert_eq!((w.counters.gpu_lost.get(), w.got().len()), (2, 0));
}

/// It may wait for memory of late batches: what it refuses with nothing in flight is the CPU's.
#[test]
fn an_idle_gpu_that_refuses_is_not_waited_for() {
    for forced in [true, false] {
        let mut w = world(forced);
        w.costs(1000.0, 1.0, 100.0);
        w.orders.refuses.store(true, Ordering::Relaxed);
        assert!(w.send(1, 400));
        w.by_cpu();
    }
}

#[test]
fn an_engine_that_lies_is_found_out_and_its_batch_done_again() {
    let mut w = world(true);
    w.orders.lies.store(true, Ordering::Relaxed);
    w.orders.done.store(1, Ordering::Relaxed);
    assert!(w.send(1, 5));
    let batch = w.by_cpu();
    assert_eq!(batch.descs.len(), 5);
    assert!(batch.descs.iter().all(|d| d.verdict == gpu::Verdict::BAD));
    assert!(w.orders.failed.load(Ordering::Relaxed));
    assert_eq!((w.counters.gpu_checked.get(), w.counters.gpu_lost.get()), (1, 1));
}
