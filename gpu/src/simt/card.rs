//! The executor as a card: its memory is the host's, each stream is a thread.
#![allow(unsafe_code)]

use super::ffi::{self, Blocks, Region, Watch, WatchCounts};
use crate::card::{Card, CardError, CardFacts, Kernel, Recorded, Stream};
use crate::host::HostMemory;
use crate::params::DevAddr;
use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Largest structure of parameters.
const PARAMS_BYTES_MAX: usize = 512;
/// Launches that one stream may hold.
const LAUNCHES_MAX: usize = 64;
/// Blocks that stay at once: each has a thread, and fibers with stacks of their own.
const RESIDENT_MAX: u32 = 6;
/// Longest wait for the work of a stream that is dropped.
const DROP_WAIT_MAX: Duration = Duration::from_secs(1);

/// A CPU that runs kernels.
#[derive(Debug, Default)]
pub struct SimtCard {
    seed: u64,
    taken: Mutex<HashMap<u64, HostMemory>>,
    watcher: Option<Arc<Watcher>>,
}

/// What a watching card knows.
#[derive(Debug, Default)]
struct Watcher {
    /// First byte and size of all memory that is taken or mapped.
    regions: Mutex<BTreeMap<u64, u64>>,
    counts: Mutex<WatchCounts>,
}

/// What a lock guards, whoever panicked holding it.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimtCard {
    /// Threads of a block take turns in order, or in an order drawn from `seed` if that is not 0.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// As [`Self::new`], with the instrumented build of the kernels. An access to memory that was
    /// neither taken nor mapped when the kernel was started ends it with an error. Some hundred
    /// times slower.
    pub fn watching(seed: u64) -> Self {
        Self { seed, watcher: Some(Arc::default()), ..Self::default() }
    }

    /// What watched kernels did so far.
    pub fn counts(&self) -> WatchCounts {
        self.watcher.as_ref().map(|w| *held(&w.counts)).unwrap_or_default()
    }

    fn note(&self, start: u64, bytes: usize) {
        if let Some(watcher) = &self.watcher {
            held(&watcher.regions).insert(start, bytes as u64);
        }
    }

    fn forget(&self, start: u64) {
        if let Some(watcher) = &self.watcher {
            held(&watcher.regions).remove(&start);
        }
    }
}

impl Card for SimtCard {
    fn facts(&self) -> CardFacts {
        let multiprocessors = thread::available_parallelism().map_or(1, |n| n.get() as u64);
        CardFacts {
            name: "SIMT executor".to_owned(),
            multiprocessors: u32::try_from(multiprocessors).unwrap_or(1),
            memory_bytes: u64::MAX,
        }
    }

    fn resident_max(&self, _: Kernel) -> u32 {
        RESIDENT_MAX
    }

    fn take(&self, bytes: usize) -> Result<DevAddr, CardError> {
        let memory = HostMemory::new(bytes);
        let at = memory.start().expose_provenance().get() as u64;
        held(&self.taken).insert(at, memory);
        self.note(at, bytes);
        Ok(DevAddr(at))
    }

    unsafe fn give_back(&self, at: DevAddr) {
        self.forget(at.0);
        held(&self.taken).remove(&at.0);
    }

    unsafe fn map(&self, start: NonNull<u8>, bytes: usize) -> Result<DevAddr, CardError> {
        let at = start.expose_provenance().get() as u64;
        self.note(at, bytes);
        Ok(DevAddr(at))
    }

    unsafe fn unmap(&self, start: NonNull<u8>) -> bool {
        self.forget(start.addr().get() as u64);
        true
    }

    unsafe fn read(&self, from: DevAddr, to: &mut [u8]) -> Result<(), CardError> {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(pointer(from), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn stream(&self) -> Result<Box<dyn Stream>, CardError> {
        let (work, jobs) = sync_channel::<Work>(LAUNCHES_MAX);
        let shared = Arc::new(Shared::default());
        let (mine, seed, watcher) = (Arc::clone(&shared), self.seed, self.watcher.clone());
        thread::Builder::new()
            .name("simt".to_owned())
            .spawn(move || {
                while let Ok(work) = jobs.recv() {
                    mine.work(&work, seed, watcher.as_deref());
                }
            })
            .map_err(|why| refused("a thread for a stream", &why))?;
        Ok(Box::new(SimtStream { work, shared, recorded: Vec::new() }))
    }
}

fn refused(call: &'static str, why: &std::io::Error) -> CardError {
    CardError::Refused { call, why: why.to_string() }
}

/// What a stream was given.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "a queue of them is made once, and then none is taken"
)]
enum Work {
    Launch(Job),
    Copy { to: DevAddr, from: DevAddr, bytes: usize },
}

/// A launch, with its parameters as they were then.
#[derive(Clone)]
struct Job {
    kernel: Kernel,
    blocks: u32,
    params: [u64; PARAMS_BYTES_MAX / 8],
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Shared {
    pending: AtomicUsize,
    failed: Mutex<Option<String>>,
}

impl Shared {
    fn work(&self, work: &Work, seed: u64, watcher: Option<&Watcher>) {
        match work {
            Work::Launch(job) => self.run(job, seed, watcher),
            Work::Copy { to, from, bytes } => {
                let (to, from) = (pointer(*to), pointer(*from));
                // SAFETY: whoever asked for the copy promised it (`Stream::copy`), until its end.
                unsafe { std::ptr::copy_nonoverlapping(from, to, *bytes) };
            }
        }
        self.pending.fetch_sub(1, Ordering::Release);
    }

    fn run(&self, job: &Job, seed: u64, watcher: Option<&Watcher>) {
        let whole = Blocks { blocks: job.blocks, first: 0, count: job.blocks };
        if !job.kernel.facts().resident {
            return self.note(job.run(whole, seed, watcher));
        }
        // Its blocks wait for the host: each needs a thread of its own. What goes wrong is told at
        // once, as the others end only when the host sees that.
        thread::scope(|scope| {
            let mut runs = Vec::new();
            for first in 0..job.blocks {
                let blocks = Blocks { first, count: 1, ..whole };
                let run = move || self.note(job.run(blocks, seed, watcher));
                match thread::Builder::new().spawn_scoped(scope, run) {
                    Ok(run) => runs.push(run),
                    Err(why) => {
                        self.note(Err(format!("a thread for a block: {why}")));
                        break;
                    }
                }
            }
            for run in runs {
                self.note(run.join().map_err(|_| "a block's thread panicked".to_owned()));
            }
        });
    }

    fn note(&self, done: Result<(), String>) {
        if let Err(why) = done {
            *held(&self.failed) = Some(why);
        }
    }
}

/// The card's memory is the host's.
fn pointer(at: DevAddr) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(at.0).unwrap_or(0))
}

impl Job {
    fn run(&self, blocks: Blocks, seed: u64, watcher: Option<&Watcher>) -> Result<(), String> {
        let regions: Vec<Region> = watcher
            .iter()
            .flat_map(|w| held(&w.regions).clone())
            .map(|(start, bytes)| Region { start, bytes })
            .collect();
        let mut counts = WatchCounts::default();
        let watch = watcher.map(|_| Watch { regions: &regions, counts: &mut counts });
        // SAFETY: whoever launched this promised it (`Stream::launch`), until the kernel ends.
        let done =
            unsafe { ffi::run(self.kernel, blocks, self.params.as_ptr().cast(), seed, watch) };
        if let Some(watcher) = watcher {
            held(&watcher.counts).add(counts);
        }
        done
    }
}

#[derive(Debug)]
struct SimtStream {
    work: SyncSender<Work>,
    shared: Arc<Shared>,
    recorded: Vec<Job>,
}

impl SimtStream {
    fn add(&self, work: Work) -> Result<(), CardError> {
        self.check()?;
        self.shared.pending.fetch_add(1, Ordering::Relaxed);
        self.work.try_send(work).map_err(|why| {
            self.shared.pending.fetch_sub(1, Ordering::Relaxed);
            let why = match why {
                TrySendError::Full(_) => "too many launches are waiting",
                TrySendError::Disconnected(_) => "the stream's thread is gone",
            };
            CardError::Refused { call: "launch", why: why.to_owned() }
        })
    }

    fn check(&self) -> Result<(), CardError> {
        match &*held(&self.shared.failed) {
            Some(why) => Err(CardError::Sticky { call: "launch", why: why.clone() }),
            None => Ok(()),
        }
    }
}

/// A job of what the caller of [`Stream::launch`] gave.
///
/// # Safety
/// `params` points to the kernel's structure.
unsafe fn job(kernel: Kernel, blocks: u32, params: *const u8) -> Job {
    let mut job = Job { kernel, blocks, params: [0; PARAMS_BYTES_MAX / 8] };
    let bytes = kernel.facts().params_bytes.min(PARAMS_BYTES_MAX);
    // SAFETY: the structure has that many bytes, and so has the array.
    unsafe { std::ptr::copy_nonoverlapping(params, job.params.as_mut_ptr().cast(), bytes) };
    job
}

impl Stream for SimtStream {
    unsafe fn launch(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<(), CardError> {
        // SAFETY: the caller's promise.
        self.add(Work::Launch(unsafe { job(kernel, blocks, params) }))
    }

    unsafe fn record(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<Recorded, CardError> {
        // SAFETY: the caller's promise.
        self.recorded.push(unsafe { job(kernel, blocks, params) });
        Ok(Recorded(self.recorded.len() - 1))
    }

    fn replay(&mut self, what: Recorded) -> Result<(), CardError> {
        match self.recorded.get(what.0) {
            Some(job) => self.add(Work::Launch(job.clone())),
            None => Err(CardError::Refused { call: "replay", why: "no such record".to_owned() }),
        }
    }

    unsafe fn copy(&mut self, to: DevAddr, from: DevAddr, bytes: usize) -> Result<(), CardError> {
        self.add(Work::Copy { to, from, bytes })
    }

    fn is_idle(&mut self) -> Result<bool, CardError> {
        let idle = self.shared.pending.load(Ordering::Acquire) == 0;
        self.check()?;
        Ok(idle)
    }
}

impl Drop for SimtStream {
    fn drop(&mut self) {
        let begun = Instant::now();
        while self.shared.pending.load(Ordering::Acquire) > 0 && begun.elapsed() < DROP_WAIT_MAX {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, IndexKind, Sizes};
    use crate::params::HashKey;

    fn digest(seed: u64) -> Vec<(u64, u32)> {
        let key = HashKey { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 };
        let card: Arc<dyn Card> = Arc::new(SimtCard::new(seed));
        let kind = IndexKind::Cuckoo { n_buckets: 1, kicks_max: 0 };
        let sizes = Sizes { slots: 200, slot_bytes: 256, batch: 1 };
        let mut bench = Bench::new(&card, kind, key, sizes).unwrap();
        for slot in 0..200 {
            bench.slot(slot).iter_mut().zip(0..=255).for_each(|(b, n)| *b = n);
        }
        bench.digest(&(0..200).collect::<Vec<u32>>()).unwrap()
    }

    /// SipHash-1-3 of the bytes 0, 1, 2, … under the key 0, 1, … 15: from the reference
    /// implementation's `vectors_siphash` rule, computed with its 1-3 variant.
    #[test]
    fn kernels_run() {
        let plain = digest(0);
        assert_eq!(plain[0].0, 0xabac_0158_050f_c4dc);
        assert_eq!(plain[..4].iter().map(|d| d.1).collect::<Vec<_>>(), [0, 0, 1, 0x0201]);
        assert_eq!(plain, digest(7));
    }
}
