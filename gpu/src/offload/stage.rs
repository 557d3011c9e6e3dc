//! What kernels that answer batches work on, and how they are told to.
//!
//! In: batches in memory that the card sees. Out: the same, with descriptors, in whatever order
//! they get done. The stage owns everything that its kernels touch and is not the [`Offload`]'s:
//! places, doorbells, and the batches while they are at a place. It ends only when its kernels
//! have, or makes that a fault, so that none of it is ever freed. Fails with what the card says.
#![allow(unsafe_code)]

use super::{Fault, Mode, Offload};
use crate::card::{CardError, CardMemory, Kernel, Recorded, Stream};
use crate::engine::Batch;
use crate::host::HostMemory;
use crate::params::{Control, DevAddr, GetParams, Order, Place, ServeParams};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Streams in the launching modes: so many kernels may run beside each other.
const STREAMS_MAX: usize = 4;
/// Time without a sign of life after which a kernel that stays takes this process for dead. Above
/// anything that keeps a worker from its loop.
const PATIENCE_MS: u32 = 10_000;
/// Longest wait for kernels to end.
const END_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks whether they have.
const END_PAUSE: Duration = Duration::from_micros(50);

/// Places for batches in flight, and the kernels that serve them.
#[derive(Debug)]
pub(super) struct Stage {
    offload: Arc<Offload>,
    streams: Vec<Box<dyn Stream>>,
    how: How,
    kernel: Kernel,
    /// By place; `None`: free.
    batches: Vec<Option<Box<Batch>>>,
    /// The number that each place was last rung with.
    rung: Vec<u32>,
    places: HostMemory,
    control: HostMemory,
    /// A word of the card's own for each place. Kernels use it, nobody here.
    _arrived: CardMemory,
}

#[derive(Debug)]
enum How {
    /// Parameters by place.
    Launch(Vec<GetParams>),
    /// Recorded launches by place.
    Graph(Vec<Recorded>),
    /// Blocks and parameters, and whether the kernel runs. A batch starts it.
    Persistent { blocks: u32, params: ServeParams, runs: bool },
}

impl Stage {
    /// Takes memory for `offload`'s number of places, and starts or records kernels for batches of
    /// up to `batch_max` requests.
    pub(super) fn new(offload: &Arc<Offload>, batch_max: usize) -> Result<Self, CardError> {
        let config = offload.config();
        let card = offload.card();
        let n = config.places;
        let mut stage = Self {
            streams: Vec::new(),
            how: How::Launch(Vec::new()),
            kernel: offload.kernel(),
            batches: (0..n).map(|_| None).collect(),
            rung: vec![0; n],
            places: HostMemory::mapped(card, n * size_of::<Place>())?,
            control: HostMemory::mapped(card, size_of::<Control>())?,
            _arrived: CardMemory::new(card, n * size_of::<u32>())?,
            offload: Arc::clone(offload),
        };
        let streams = if config.mode == Mode::Persistent { 1 } else { n.min(STREAMS_MAX) };
        for _ in 0..streams {
            stage.streams.push(card.stream()?);
        }
        let arrived = stage._arrived.at();
        let params = |place: usize| GetParams {
            packets: offload.region.region(),
            index: offload.index.params(),
            place: stage.places.at().plus(place * size_of::<Place>()),
            arrived: arrived.plus(place * size_of::<u32>()),
        };
        let all: Vec<GetParams> = (0..n).map(params).collect();
        match config.mode {
            Mode::Launch => stage.how = How::Launch(all),
            Mode::Graph => {
                let blocks = blocks_for(stage.kernel, batch_max);
                let mut recorded = Vec::with_capacity(n);
                for (place, params) in all.iter().enumerate() {
                    let Some(stream) = stream_of(&mut stage.streams, place) else { continue };
                    let params: *const GetParams = params;
                    // SAFETY: the kernel's own structure; the addresses are the stage's and the
                    // offload's, which stay until the kernels have ended (`drop`).
                    recorded.push(unsafe { stream.record(stage.kernel, blocks, params.cast()) }?);
                }
                stage.how = How::Graph(recorded);
            }
            Mode::Persistent => {
                let (blocks, params) = stage.kernel_that_stays(arrived, batch_max);
                stage.how = How::Persistent { blocks, params, runs: false };
            }
        }
        Ok(stage)
    }

    /// Blocks and parameters of the kernel that stays.
    fn kernel_that_stays(&self, arrived: DevAddr, batch_max: usize) -> (u32, ServeParams) {
        let control = Control { patience: PATIENCE_MS, ..Control::default() };
        // SAFETY: memory of that size and alignment, which nobody else has seen yet.
        unsafe { self.control.start().cast::<Control>().write(control) };
        let blocks_per_place = blocks_for(self.kernel, batch_max);
        let n_places = u32::try_from(self.batches.len()).unwrap_or(u32::MAX);
        let params = ServeParams {
            packets: self.offload.region.region(),
            index: self.offload.index.params(),
            places: self.places.at(),
            arrived,
            control: self.control.at(),
            n_places,
            blocks_per_place,
        };
        (n_places.saturating_mul(blocks_per_place), params)
    }

    /// Puts a batch at a free place and tells the card. The batch comes back when that fails.
    pub(super) fn put(
        &mut self,
        place: usize,
        batch: Box<Batch>,
    ) -> Result<(), (Box<Batch>, CardError)> {
        let requests = batch.entries.len();
        let (Some(at), Some(slot), Some(rung)) =
            (self.at(place), self.batches.get_mut(place), self.rung.get_mut(place))
        else {
            return Err((batch, refused("no such place")));
        };
        let card = self.offload.card();
        let fits = batch.entries.is_mapped_to(card)
            && batch.descs.is_mapped_to(card)
            && batch.descs.capacity() >= requests
            && (batch.heads.capacity() == 0
                || batch.heads.is_mapped_to(card) && batch.heads.capacity() >= requests);
        if slot.is_some() || !fits {
            return Err((batch, refused("the batch is not in the card's sight")));
        }
        let heads = if batch.heads.capacity() == 0 { DevAddr(0) } else { batch.heads.at() };
        let order = Order {
            entries: batch.entries.at(),
            descs: batch.descs.at(),
            heads,
            n: u32::try_from(requests).unwrap_or(0),
            now: self.offload.now(),
        };
        // SAFETY: the place is free: its kernel looks at nothing but the doorbell.
        unsafe { at.cast::<Order>().write(order) };
        *rung = rung.wrapping_add(1);
        let number = *rung;
        *slot = Some(batch);
        // SAFETY: a place of ours.
        unsafe { word(at, offset_of!(Place, rung)) }.store(number, Ordering::Release);
        let told = match &mut self.how {
            How::Persistent { runs: true, .. } => Ok(()),
            How::Persistent { blocks, params, runs } => match self.streams.first_mut() {
                Some(stream) => {
                    *runs = true;
                    let params: *const ServeParams = params;
                    // SAFETY: the kernel's own structure; the addresses are the stage's and the
                    // offload's, which stay until the kernel has ended (`drop`).
                    unsafe { stream.launch(self.kernel, *blocks, params.cast()) }
                }
                None => Err(refused("no stream")),
            },
            How::Graph(recorded) => {
                let recorded = recorded.get(place).copied();
                match (stream_of(&mut self.streams, place), recorded) {
                    (Some(stream), Some(recorded)) => stream.replay(recorded),
                    _ => Err(refused("no such place")),
                }
            }
            How::Launch(params) => {
                let blocks = blocks_for(self.kernel, requests);
                match (stream_of(&mut self.streams, place), params.get(place)) {
                    (Some(stream), Some(params)) => {
                        let params: *const GetParams = params;
                        // SAFETY: as for `record` above, and the batch stays at its place.
                        unsafe { stream.launch(self.kernel, blocks, params.cast()) }
                    }
                    _ => Err(refused("no such place")),
                }
            }
        };
        match (told, self.batches.get_mut(place).and_then(Option::take)) {
            (Err(error), Some(batch)) => Err((batch, error)),
            (_, batch) => {
                if let Some(slot) = self.batches.get_mut(place) {
                    *slot = batch;
                }
                Ok(())
            }
        }
    }

    /// The batch at this place, if the card is done with it: with as many descriptors as entries.
    pub(super) fn take_done(&mut self, place: usize) -> Option<Box<Batch>> {
        let at = self.at(place)?;
        // SAFETY: a place of ours.
        let done = unsafe { word(at, offset_of!(Place, done)) }.load(Ordering::Acquire);
        if done != *self.rung.get(place)? {
            return None;
        }
        let mut batch = self.batches.get_mut(place)?.take()?;
        let n = batch.entries.len();
        batch.descs.set_len(n);
        batch.heads.set_len(n);
        Some(batch)
    }

    /// Requests of the batch at this place.
    pub(super) fn requests(&self, place: usize) -> usize {
        self.batches.get(place).and_then(Option::as_ref).map_or(0, |batch| batch.entries.len())
    }

    /// The batch at this place, in memory that the card does not see: the card may be at work on
    /// what it had. Only after a fault, and the place is not used again.
    pub(super) fn rescue(&mut self, place: usize) -> Option<Box<Batch>> {
        let mut batch = self.batches.get_mut(place)?.take()?;
        batch.rescue();
        Some(batch)
    }

    /// Tells a kernel that stays that somebody is there.
    pub(super) fn beat(&self) {
        if matches!(self.how, How::Persistent { .. }) {
            let at = self.control.start();
            // SAFETY: the control block is ours, and the card only reads it.
            unsafe { word(at, offset_of!(Control, beat)) }.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends a kernel that stays, until the next batch starts it again: a call that takes or maps
    /// memory may wait for every kernel that runs, and other engines are still to be made.
    pub(super) fn rest(&mut self) -> Result<(), Fault> {
        if !matches!(self.how, How::Persistent { .. }) {
            return Ok(());
        }
        self.tell_to_stop(1);
        let begun = Instant::now();
        while !self.is_idle()? {
            if begun.elapsed() > END_MAX {
                return Err(Fault::Unstoppable);
            }
            std::thread::sleep(END_PAUSE);
        }
        self.tell_to_stop(0);
        if let How::Persistent { runs, .. } = &mut self.how {
            *runs = false;
        }
        Ok(())
    }

    fn tell_to_stop(&self, stop: u32) {
        let at = self.control.start();
        // SAFETY: the control block is ours, and the card only reads it.
        unsafe { word(at, offset_of!(Control, stop)) }.store(stop, Ordering::Release);
    }

    /// Whether every kernel has ended.
    pub(super) fn is_idle(&mut self) -> Result<bool, CardError> {
        let mut idle = true;
        for stream in &mut self.streams {
            idle &= stream.is_idle()?;
        }
        Ok(idle)
    }

    fn at(&self, place: usize) -> Option<NonNull<u8>> {
        if place >= self.batches.len() {
            return None;
        }
        // SAFETY: the memory holds so many places.
        Some(unsafe { self.places.start().add(place * size_of::<Place>()) })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tell_to_stop(1);
        let begun = Instant::now();
        loop {
            match self.is_idle() {
                Ok(true) => return,
                Ok(false) if begun.elapsed() < END_MAX => {
                    std::thread::sleep(END_PAUSE);
                    continue;
                }
                Ok(false) => self.offload.fail(Fault::Unstoppable),
                Err(error) => self.offload.fail(error.into()),
            }
            // Dropping them would wait for each once more.
            return self.streams.drain(..).for_each(std::mem::forget);
        }
    }
}

/// A word that host and card share.
///
/// # Safety
/// The word lies in memory that outlives the result, and the host touches it only as an atomic.
unsafe fn word<'a>(at: NonNull<u8>, offset: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's promise.
    let at = unsafe { at.add(offset) }.cast::<AtomicU32>();
    // SAFETY: the caller's promise; places and control blocks are aligned to 64.
    unsafe { at.as_ref() }
}

fn stream_of(streams: &mut [Box<dyn Stream>], place: usize) -> Option<&mut Box<dyn Stream>> {
    let n = streams.len().max(1);
    streams.get_mut(place % n)
}

fn blocks_for(kernel: Kernel, requests: usize) -> u32 {
    let per_block = kernel.facts().per_block.max(1) as usize;
    u32::try_from(requests.div_ceil(per_block).max(1)).unwrap_or(u32::MAX)
}

fn refused(why: &str) -> CardError {
    CardError::Refused { call: "submit", why: why.to_owned() }
}
