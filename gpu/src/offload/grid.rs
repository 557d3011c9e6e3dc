//! The one resident grid of a device: which serves the submission rings of all engines.
//!
//! In: rings, leased to engines, and their doorbells. Out: the kernel that polls them, started by
//! the engine that needs it, and stopped around every call that the driver may hold back until all kernels
//! have ended ([`Resident::pause`]): so no memory is mapped, unmapped or freed beside a kernel that
//! stays. Owns the slots of all rings, the doorbells and the work queue. A lock is taken to start
//! and to stop, never to send a batch. Fails with a [`Fault`] when the kernel does not end.
#![allow(unsafe_code)]

use super::config::OffloadConfig;
use super::custody::{Custody, Fault, Paused, Resident};
use crate::card::{Card, CardError, CardMemory, Kernel, Stream};
use crate::host::HostMemory;
use crate::params::{
    Doorbells, Index, PacketRegion, RINGS_MAX, RingSlot, ServeParams, Work, WorkQueue,
};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time without a sign of life after which the kernel takes this process for dead. Above anything
/// that keeps all workers from their loops.
const PATIENCE_MS: u32 = 10_000;
/// Longest wait for the kernel to end: what it was given takes microseconds, a stall of the device
/// tens of milliseconds.
const END_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks whether it has.
const END_PAUSE: Duration = Duration::from_micros(50);

/// The grid.
pub(super) struct Grid {
    run: Mutex<Run>,
    /// The kernel was launched and not seen to end.
    runs: AtomicBool,
    custody: Arc<Custody>,
    kernel: Kernel,
    blocks: u32,
    params: ServeParams,
    doorbells: HostMemory,
    ring_slots: HostMemory,
    /// Used by kernels only, not by the host.
    _arrived: CardMemory,
    _queue: CardMemory,
}

struct Run {
    stream: Box<dyn Stream>,
    /// Rings that no engine has, and the number of the last batch of each.
    free: Vec<(usize, u32)>,
}

/// A ring of the grid's, while an engine has it.
#[derive(Debug)]
pub(super) struct Lease {
    grid: Arc<Grid>,
    ring: usize,
    /// The number of the newest batch.
    last: u32,
}

impl fmt::Debug for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grid").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl Grid {
    /// Takes memory for all rings. Nothing runs yet.
    pub(super) fn new(
        custody: &Arc<Custody>,
        config: &OffloadConfig,
        packets: PacketRegion,
        index: Index,
    ) -> Result<Self, CardError> {
        let card: Arc<dyn Card> = Arc::clone(custody) as _;
        let kernel = config.index.kind.batch_kernel(true);
        let rings = config.engines.clamp(1, RINGS_MAX);
        let slots_per_ring = config.ring_slots();
        let slots = rings * slots_per_ring;
        let per_block = kernel.facts().per_block.max(1) as usize;
        let parts = slots * config.batch_max.div_ceil(per_block).max(1);
        let clip = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let allowed = config.multiprocessors.saturating_mul(card.per_multiprocessor(kernel));
        // One more polls.
        let blocks = clip(parts + 1).min(card.resident_max(kernel)).min(allowed).max(2);
        let queued = (parts + blocks as usize).next_power_of_two();
        let doorbells = HostMemory::mapped(&card, size_of::<Doorbells>())?;
        let memory = HostMemory::mapped(&card, slots * size_of::<RingSlot>())?;
        let arrived = CardMemory::new(&card, slots * size_of::<u32>())?;
        let queue = CardMemory::new(&card, size_of::<WorkQueue>() + queued * size_of::<Work>())?;
        let params = ServeParams {
            packets,
            index,
            doorbells: doorbells.at(),
            ring_slots: memory.at(),
            arrived: arrived.at(),
            queue: queue.at(),
            slots_per_ring: clip(slots_per_ring),
            queue_mask: clip(queued - 1),
            patience_ms: PATIENCE_MS,
            batches_max: 0,
        };
        let free = (0..rings).rev().map(|ring| (ring, 0)).collect();
        Ok(Self {
            run: Mutex::new(Run { stream: card.stream()?, free }),
            runs: AtomicBool::new(false),
            custody: Arc::clone(custody),
            kernel,
            blocks,
            params,
            doorbells,
            ring_slots: memory,
            _arrived: arrived,
            _queue: queue,
        })
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doorbells(&self) -> &Doorbells {
        // SAFETY: zeroed memory of that size and more, on a page, ours until drop. All of it is
        // atomic, and kernels only read it.
        unsafe { self.doorbells.start().cast::<Doorbells>().as_ref() }
    }

    /// Sees to it that the kernel runs. False: another thread is about to start or stop it; try again.
    ///
    /// # Errors
    /// What the device says of the launch.
    pub(super) fn start(&self) -> Result<bool, CardError> {
        if self.runs.load(Ordering::Acquire) {
            return Ok(true);
        }
        let Ok(mut run) = self.run.try_lock() else { return Ok(false) };
        if self.runs.load(Ordering::Acquire) {
            return Ok(true);
        }
        self.doorbells().stop.store(0, Ordering::Release);
        let params: *const ServeParams = &raw const self.params;
        // SAFETY: the kernel's own structure; its memory is the grid's and the offload's, which
        // stay until the kernel has ended (`drop`, `Custody`).
        unsafe { run.stream.launch(self.kernel, self.blocks, params.cast()) }?;
        self.runs.store(true, Ordering::Release);
        Ok(true)
    }

    /// Looks whether the kernel has ended by itself; if so, the next [`Self::start`] starts it.
    ///
    /// # Errors
    /// What went wrong in it.
    pub(super) fn check(&self) -> Result<(), CardError> {
        let Ok(mut run) = self.run.try_lock() else { return Ok(()) };
        if run.stream.is_idle()? {
            self.runs.store(false, Ordering::Release);
        }
        Ok(())
    }

    fn stop(&self, run: &mut Run) -> Result<(), Fault> {
        if !self.runs.load(Ordering::Acquire) {
            return Ok(());
        }
        self.doorbells().stop.store(1, Ordering::Release);
        let began = Instant::now();
        while !run.stream.is_idle()? {
            if began.elapsed() > END_MAX {
                return Err(Fault::Unstoppable);
            }
            std::thread::sleep(END_PAUSE);
        }
        self.runs.store(false, Ordering::Release);
        Ok(())
    }

    /// A ring that no engine has.
    ///
    /// # Errors
    /// [`CardError::Refused`]: there are no more.
    pub(super) fn lease(self: &Arc<Self>) -> Result<Lease, CardError> {
        let Some((ring, last)) = self.run().free.pop() else {
            let why = "more engines than the offload was made for".to_owned();
            return Err(CardError::Refused { call: "ring", why });
        };
        Ok(Lease { grid: Arc::clone(self), ring, last })
    }
}

impl Resident for Grid {
    fn pause(&self) -> Result<Box<dyn Paused + '_>, Fault> {
        let mut run = self.run();
        self.stop(&mut run).inspect_err(|fault| self.custody.fail(fault.clone()))?;
        Ok(Box::new(run))
    }
}

impl Paused for MutexGuard<'_, Run> {}

impl Drop for Grid {
    fn drop(&mut self) {
        if let Err(fault) = self.stop(&mut self.run()) {
            self.custody.fail(fault);
        }
    }
}

impl Lease {
    /// The grid.
    pub(super) fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The number of the newest batch.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// The first of the ring's slots.
    pub(super) fn first_slot(&self) -> NonNull<RingSlot> {
        let first = self.ring * self.grid.params.slots_per_ring as usize;
        // SAFETY: the grid's memory has so many slots for each ring.
        unsafe { self.grid.ring_slots.start().cast::<RingSlot>().add(first) }
    }

    /// Announces the batch of this number, whose order is written.
    #[inline]
    pub(super) fn ring_doorbell(&mut self, number: u32) {
        self.last = number;
        if let Some(doorbell) = self.grid.doorbells().rung.get(self.ring) {
            let [low, ..] = number.to_le_bytes();
            doorbell.store(low, Ordering::Release);
        }
    }

    /// A sign of life.
    pub(super) fn beat(&self) {
        self.grid.doorbells().beat.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.grid.run().free.push((self.ring, self.last));
    }
}
