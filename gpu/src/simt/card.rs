//! The executor as a card: its memory is the host's, each stream is a thread.
#![allow(unsafe_code)]

use super::ffi::{self, Blocks};
use crate::card::{Card, CardError, CardFacts, Kernel, Recorded, Stream};
use crate::host::HostMemory;
use crate::params::DevAddr;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Largest structure of parameters.
const PARAMS_BYTES_MAX: usize = 512;
/// Launches that one stream may hold.
const LAUNCHES_MAX: usize = 64;
/// Longest wait for the work of a stream that is dropped.
const DROP_WAIT_MAX: Duration = Duration::from_secs(1);

/// A CPU that runs kernels.
#[derive(Debug, Default)]
pub struct SimtCard {
    seed: u64,
    taken: Mutex<HashMap<u64, HostMemory>>,
}

impl SimtCard {
    /// Threads of a block take turns in order, or in an order drawn from `seed` if that is not 0.
    pub fn new(seed: u64) -> Self {
        Self { seed, taken: Mutex::default() }
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

    fn take(&self, bytes: usize) -> Result<DevAddr, CardError> {
        let memory = HostMemory::new(bytes);
        let at = memory.start().addr().get() as u64;
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(at, memory);
        Ok(DevAddr(at))
    }

    unsafe fn give_back(&self, at: DevAddr) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&at.0);
    }

    unsafe fn map(&self, start: NonNull<u8>, _bytes: usize) -> Result<DevAddr, CardError> {
        Ok(DevAddr(start.expose_provenance().get() as u64))
    }

    unsafe fn unmap(&self, _start: NonNull<u8>) {}

    unsafe fn read(&self, from: DevAddr, to: &mut [u8]) -> Result<(), CardError> {
        let from = std::ptr::with_exposed_provenance::<u8>(usize::try_from(from.0).unwrap_or(0));
        // SAFETY: the caller's promise; the card's memory is the host's.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn stream(&self) -> Result<Box<dyn Stream>, CardError> {
        let (work, jobs) = sync_channel::<Job>(LAUNCHES_MAX);
        let shared = Arc::new(Shared::default());
        let (mine, seed) = (Arc::clone(&shared), self.seed);
        thread::Builder::new()
            .name("simt".to_owned())
            .spawn(move || {
                while let Ok(job) = jobs.recv() {
                    mine.run(&job, seed);
                }
            })
            .map_err(|why| refused("a thread for a stream", &why))?;
        Ok(Box::new(SimtStream { work, shared, recorded: Vec::new() }))
    }
}

fn refused(call: &'static str, why: &std::io::Error) -> CardError {
    CardError::Refused { call, why: why.to_string() }
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
    fn run(&self, job: &Job, seed: u64) {
        let whole = Blocks { blocks: job.blocks, first: 0, count: job.blocks };
        let done = if job.kernel.facts().resident {
            // Its blocks wait for the host: each needs a thread of its own.
            thread::scope(|scope| {
                let runs: Vec<_> = (0..job.blocks)
                    .map(|first| {
                        scope.spawn(move || job.run(Blocks { first, count: 1, ..whole }, seed))
                    })
                    .collect();
                let joined = runs.into_iter().map(|run| match run.join() {
                    Ok(done) => done,
                    Err(_) => Err("a block's thread panicked".to_owned()),
                });
                joined.collect()
            })
        } else {
            job.run(whole, seed)
        };
        if let Err(why) = done {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        self.pending.fetch_sub(1, Ordering::Release);
    }
}

impl Job {
    fn run(&self, blocks: Blocks, seed: u64) -> Result<(), String> {
        // SAFETY: whoever launched this promised it (`Stream::launch`), until the kernel ends.
        unsafe { ffi::run(self.kernel, blocks, self.params.as_ptr().cast(), seed) }
    }
}

#[derive(Debug)]
struct SimtStream {
    work: SyncSender<Job>,
    shared: Arc<Shared>,
    recorded: Vec<Job>,
}

impl SimtStream {
    fn add(&self, job: Job) -> Result<(), CardError> {
        self.check()?;
        self.shared.pending.fetch_add(1, Ordering::Relaxed);
        self.work.try_send(job).map_err(|why| {
            self.shared.pending.fetch_sub(1, Ordering::Relaxed);
            let why = match why {
                TrySendError::Full(_) => "too many launches are waiting",
                TrySendError::Disconnected(_) => "the stream's thread is gone",
            };
            CardError::Refused { call: "launch", why: why.to_owned() }
        })
    }

    fn check(&self) -> Result<(), CardError> {
        match &*self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner) {
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
        self.add(unsafe { job(kernel, blocks, params) })
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
            Some(job) => self.add(job.clone()),
            None => Err(CardError::Refused { call: "replay", why: "no such record".to_owned() }),
        }
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
    use crate::host::Column;
    use crate::params::{DigestParams, HashKey};

    fn digest(key: HashKey, strings: &[&[u8]], seed: u64) -> Vec<(u64, u32)> {
        const STRIDE: usize = 256;
        let card: Arc<dyn Card> = Arc::new(SimtCard::new(seed));
        let n = strings.len();
        let mut bytes = Column::<u8>::mapped(&card, n * STRIDE).unwrap();
        let mut lengths = Column::<u32>::mapped(&card, n).unwrap();
        let mut hashes = Column::<u64>::mapped(&card, n).unwrap();
        let mut sums = Column::<u32>::mapped(&card, n).unwrap();
        bytes.set_len(n * STRIDE);
        for (i, string) in strings.iter().enumerate() {
            bytes[i * STRIDE..][..string.len()].copy_from_slice(string);
            lengths.push(u32::try_from(string.len()).unwrap()).unwrap();
        }
        let params = DigestParams {
            key,
            bytes: bytes.at(),
            lengths: lengths.at(),
            hashes: hashes.at(),
            sums: sums.at(),
            n: u32::try_from(n).unwrap(),
            stride: 256,
        };
        let mut stream = card.stream().unwrap();
        let blocks = u32::try_from(n.div_ceil(128)).unwrap();
        // SAFETY: the columns outlive the stream's work, which ends below.
        unsafe { stream.launch(Kernel::Digest, blocks, (&raw const params).cast()) }.unwrap();
        let begun = Instant::now();
        while !stream.is_idle().unwrap() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
        hashes.set_len(n);
        sums.set_len(n);
        hashes.iter().copied().zip(sums.iter().copied()).collect()
    }

    /// SipHash-1-3 of the bytes 0, 1, 2, … under the key 0, 1, … 15: from the reference
    /// implementation's `vectors_siphash` rule, computed with its 1-3 variant.
    #[test]
    fn kernels_run() {
        let key = HashKey { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 };
        let strings: Vec<Vec<u8>> = (0..200).map(|n| (0..n).collect()).collect();
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        let plain = digest(key, &strings, 0);
        assert_eq!(plain[0].0, 0xabac_0158_050f_c4dc);
        assert_eq!(plain[..4].iter().map(|d| d.1).collect::<Vec<_>>(), [0, 0, 1, 0x0201]);
        assert_eq!(plain, digest(key, &strings, 7));
    }
}
