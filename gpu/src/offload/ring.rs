//! A submission ring: slots for batches, and how each gets to a kernel.
//!
//! In: batches in memory that the device sees. Out: the same, with descriptors, in whatever order
//! they get done. A batch's number says which slot it has, and the device writes the number there
//! when it is done; until then the slot and the batch's memory are the device's, however late it
//! is. Fails with what the device says. It ends only when its kernels have done their work, or
//! makes that a fault, so that none of its memory is ever freed.
#![allow(unsafe_code)]

use super::grid::Lease;
use super::{Fault, Mode, Offload};
use crate::card::{CardError, CardMemory, Kernel, Recorded, Stream};
use crate::engine::Batch;
use crate::host::HostMemory;
use crate::params::{DevAddr, GetParams, Order, RingSlot};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Streams in the launching modes: so many kernels may run beside each other.
const STREAMS_MAX: usize = 4;
/// Longest wait for batches that are out, when the ring ends.
const END_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks whether they are done.
const END_PAUSE: Duration = Duration::from_micros(50);

/// A ring and the batches in it.
#[derive(Debug)]
pub(super) struct Ring {
    offload: Arc<Offload>,
    submission: Submission,
    /// By slot; `None`: free.
    batches: Vec<Option<Box<Batch>>>,
    /// The number of the newest batch.
    last: u32,
}

/// How batches get to a kernel.
#[derive(Debug)]
enum Submission {
    Launch(Launcher),
    Grid(Lease),
}

/// A launch for each batch.
#[derive(Debug)]
struct Launcher {
    streams: Vec<Box<dyn Stream>>,
    kernel: Kernel,
    /// By slot.
    params: Vec<GetParams>,
    /// Recorded launches by slot, in [`Mode::Graph`].
    recorded: Vec<Recorded>,
    slots: HostMemory,
    /// A word of the device's own for each slot. Used by kernels only, not by the host.
    _arrived: CardMemory,
}

impl Launcher {
    fn new(offload: &Arc<Offload>, n: usize, batch_max: usize) -> Result<Self, CardError> {
        let (config, card) = (offload.config(), offload.card());
        let kernel = config.index.kind.batch_kernel(false);
        let slots = HostMemory::mapped(card, n * size_of::<RingSlot>())?;
        let arrived = CardMemory::new(card, n * size_of::<u32>())?;
        let params = |slot: usize| GetParams {
            packets: offload.region.region(),
            index: offload.index.params(),
            ring_slot: slots.at().plus(slot * size_of::<RingSlot>()),
            arrived: arrived.at().plus(slot * size_of::<u32>()),
        };
        let params: Vec<GetParams> = (0..n).map(params).collect();
        let streams: Result<Vec<_>, _> =
            (0..config.in_flight_max.min(STREAMS_MAX)).map(|_| card.stream()).collect();
        let (mut streams, mut recorded) = (streams?, Vec::new());
        if config.mode == Mode::Graph {
            let blocks = blocks_for(kernel, batch_max);
            for (slot, params) in params.iter().enumerate() {
                let Some(stream) = stream_of(&mut streams, slot) else { continue };
                let params: *const GetParams = params;
                // SAFETY: the kernel's own structure; the addresses are the ring's and the
                // offload's, which stay until the kernels have ended (`Ring::drop`).
                recorded.push(unsafe { stream.record(kernel, blocks, params.cast()) }?);
            }
        }
        Ok(Self { streams, kernel, params, recorded, slots, _arrived: arrived })
    }

    fn launch(&mut self, slot: usize, requests: usize) -> Result<(), CardError> {
        let Some(stream) = stream_of(&mut self.streams, slot) else {
            return Err(refused("no stream"));
        };
        match (self.recorded.get(slot), self.params.get(slot)) {
            (Some(recorded), _) => stream.replay(*recorded),
            (None, Some(params)) => {
                let blocks = blocks_for(self.kernel, requests);
                let params: *const GetParams = params;
                // SAFETY: as for `record` above, and the batch stays in its slot until it is done.
                unsafe { stream.launch(self.kernel, blocks, params.cast()) }
            }
            (None, None) => Err(refused("no such slot")),
        }
    }

    fn is_idle(&mut self) -> Result<bool, CardError> {
        let mut idle = true;
        for stream in &mut self.streams {
            idle &= stream.is_idle()?;
        }
        Ok(idle)
    }
}

impl Ring {
    /// A ring of [`super::OffloadConfig::ring_slots`], for batches of up to `batch_max` requests.
    pub(super) fn new(offload: &Arc<Offload>, batch_max: usize) -> Result<Self, CardError> {
        let n = offload.config().ring_slots();
        let submission = match &offload.grid {
            Some(grid) => Submission::Grid(grid.lease()?),
            None => Submission::Launch(Launcher::new(offload, n, batch_max)?),
        };
        let last = match &submission {
            Submission::Grid(lease) => lease.last(),
            Submission::Launch(_) => 0,
        };
        Ok(Self {
            offload: Arc::clone(offload),
            submission,
            batches: (0..n).map(|_| None).collect(),
            last,
        })
    }

    fn index(&self, number: u32) -> usize {
        number as usize % self.batches.len().max(1)
    }

    /// Whether the slot of the next batch is free.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let next = self.index(self.last.wrapping_add(1));
        self.batches.get(next).is_some_and(Option::is_none)
    }

    /// Whether the device sees all of the batch.
    pub(super) fn sees(&self, batch: &Batch) -> bool {
        let (card, requests) = (self.offload.card(), batch.entries.len());
        batch.entries.is_mapped_to(card)
            && batch.descs.is_mapped_to(card)
            && batch.descs.capacity() >= requests
            && (batch.heads.capacity() == 0
                || batch.heads.is_mapped_to(card) && batch.heads.capacity() >= requests)
            && (batch.replies.capacity() == 0
                || batch.replies.is_mapped_to(card) && batch.replies.capacity() >= requests)
    }

    /// Sends a batch that the device sees, and returns its number. The batch comes back when that
    /// fails; without an error, when a kernel that stays is about to be started or stopped.
    pub(super) fn put(
        &mut self,
        batch: Box<Batch>,
    ) -> Result<u32, (Box<Batch>, Option<CardError>)> {
        let (number, requests) = (self.last.wrapping_add(1), batch.entries.len());
        let index = self.index(number);
        let (Some(at), true, true) = (self.at(index), self.has_room(), self.sees(&batch)) else {
            return Err((batch, Some(refused("no slot, or a batch out of the device's sight"))));
        };
        if let Submission::Grid(lease) = &self.submission {
            match lease.grid().start() {
                Ok(true) => {}
                Ok(false) => return Err((batch, None)),
                Err(error) => return Err((batch, Some(error))),
            }
        }
        let prebuilt = match (batch.heads.capacity(), batch.replies.capacity()) {
            (0, 0) => DevAddr(0),
            (_, 0) => batch.heads.at(),
            _ => batch.replies.at(),
        };
        let now = self.offload.now();
        let order = Order {
            entries: batch.entries.at(),
            descs: batch.descs.at(),
            prebuilt,
            n: u16::try_from(requests).unwrap_or(0),
            // The low half is what recency is stamped with.
            now: (now & 0xffff) as u16,
            number,
        };
        // SAFETY: the slot is free: no kernel looks at it before the doorbell or the launch.
        unsafe { at.cast::<Order>().write(order) };
        match &mut self.submission {
            Submission::Grid(lease) => lease.ring_doorbell(number),
            Submission::Launch(launcher) => {
                if let Err(error) = launcher.launch(index, requests) {
                    return Err((batch, Some(error)));
                }
            }
        }
        self.last = number;
        if let Some(slot) = self.batches.get_mut(index) {
            *slot = Some(batch);
        }
        Ok(number)
    }

    /// The batch of this number, if the device is done with it: with as many descriptors as entries.
    pub(super) fn take_done(&mut self, number: u32) -> Option<Box<Batch>> {
        let index = self.index(number);
        // SAFETY: inside a slot of ours.
        let done = unsafe { self.at(index)?.cast::<u8>().add(offset_of!(RingSlot, done)) };
        // SAFETY: aligned as the structure is; kernels and host touch this word only as an atomic.
        let done = unsafe { done.cast::<AtomicU32>().as_ref() };
        if done.load(Ordering::Acquire) != number {
            return None;
        }
        let mut batch = self.batches.get_mut(index)?.take()?;
        let n = batch.entries.len();
        batch.descs.set_len(n);
        batch.heads.set_len(n);
        batch.replies.set_len(n);
        Some(batch)
    }

    /// The batch of this number, which the device may be at work on: its entries may be read.
    pub(super) fn batch(&self, number: u32) -> Option<&Batch> {
        self.batches.get(self.index(number))?.as_deref()
    }

    /// A sign of life for a kernel that stays.
    pub(super) fn beat(&self) {
        if let Submission::Grid(lease) = &self.submission {
            lease.beat();
        }
    }

    /// Sees to it that a kernel that stays runs, while batches wait for it.
    ///
    /// # Errors
    /// What the device says.
    pub(super) fn keep_running(&self) -> Result<(), CardError> {
        match &self.submission {
            Submission::Grid(lease) => lease.grid().start().map(|_| ()),
            Submission::Launch(_) => Ok(()),
        }
    }

    /// Reads the device's error, when a batch is late.
    ///
    /// # Errors
    /// What it says.
    pub(super) fn check(&mut self) -> Result<(), CardError> {
        match &mut self.submission {
            Submission::Grid(lease) => lease.grid().check(),
            Submission::Launch(launcher) => launcher.is_idle().map(|_| ()),
        }
    }

    fn at(&self, index: usize) -> Option<NonNull<RingSlot>> {
        if index >= self.batches.len() {
            return None;
        }
        let first = match &self.submission {
            Submission::Grid(lease) => lease.first_slot(),
            Submission::Launch(launcher) => launcher.slots.start().cast(),
        };
        // SAFETY: there are so many slots.
        Some(unsafe { first.add(index) })
    }

    /// Whether every batch is done and every launch has ended.
    fn is_idle(&mut self) -> Result<bool, Fault> {
        let oldest = self.last.wrapping_sub(u32::try_from(self.batches.len()).unwrap_or(0));
        let mut number = oldest;
        while number != self.last {
            number = number.wrapping_add(1);
            self.take_done(number);
        }
        let idle = match &mut self.submission {
            Submission::Grid(_) => true,
            Submission::Launch(launcher) => launcher.is_idle()?,
        };
        Ok(idle && self.batches.iter().all(Option::is_none))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let began = Instant::now();
        let fault = loop {
            match self.is_idle() {
                Ok(true) => return,
                Err(fault) => break fault,
                Ok(false) if began.elapsed() > END_MAX => break Fault::Unstoppable,
                Ok(false) => std::thread::sleep(END_PAUSE),
            }
            if let Err(error) = self.keep_running().and_then(|()| self.check()) {
                break error.into();
            }
        };
        self.offload.fail(fault);
        if let Submission::Launch(launcher) = &mut self.submission {
            // Dropping them would wait for each once more.
            launcher.streams.drain(..).for_each(std::mem::forget);
        }
    }
}

fn stream_of(streams: &mut [Box<dyn Stream>], slot: usize) -> Option<&mut Box<dyn Stream>> {
    let n = streams.len().max(1);
    streams.get_mut(slot % n)
}

fn blocks_for(kernel: Kernel, requests: usize) -> u32 {
    let per_block = kernel.facts().per_block.max(1) as usize;
    u32::try_from(requests.div_ceil(per_block).max(1)).unwrap_or(u32::MAX)
}

fn refused(why: &str) -> CardError {
    CardError::Refused { call: "submit", why: why.to_owned() }
}
