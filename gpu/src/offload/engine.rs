//! The engine over a device: batches in a ring, results in the order of submission, a deadline.
//!
//! In: batches made by [`Engine::new_batch`]. Out: the same with descriptors (and heads), or as
//! lost. Each engine has one owner, shares no lock with others, and never waits once it runs. A batch
//! past its deadline goes back at once, as lost and in memory that the device does not see; what
//! the device has of it stays reserved until the device is done with it, and until the device has
//! shown that it works again it gets probes only ([`super::recovery`]). A batch that is not done
//! [`UNFINISHED_MAX`] after that, an error of the device's or a wrong descriptor ends its use for good.

use super::recovery::Admit;
use super::ring::Ring;
use super::{Fault, Offload};
use crate::engine::{Batch, Engine, Outcome};
use crate::host::Column;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two looks for the first batch of all.
const START_PAUSE: Duration = Duration::from_micros(50);
/// What is not done so long after it was given up never will be.
const UNFINISHED_MAX: Duration = Duration::from_secs(1);
/// Polls from one sign of life to the next. Workers that sleep between polls do so for
/// milliseconds, and the kernel ends itself only after seconds.
const POLLS_PER_BEAT: u32 = 32;

/// An engine over a device.
#[derive(Debug)]
#[expect(clippy::vec_box, reason = "batches come and go in boxes, and none is made on the way")]
pub struct GpuEngine {
    ring: Ring,
    offload: Arc<Offload>,
    /// The batches in flight, oldest first, and when each began.
    in_flight: VecDeque<(u32, Instant)>,
    /// Batches that were given up and that the device still has, and since when.
    late: Vec<(u32, Instant)>,
    /// The one in flight that shows whether a device that was late works again.
    probe: Option<u32>,
    /// Batches that the device does not see, for the requests of late ones.
    spares: Vec<Box<Batch>>,
    /// Batches that it sees: late ones that it has done since.
    returned: Vec<Box<Batch>>,
    batch_max: usize,
    polls: u32,
}

impl GpuEngine {
    /// An engine for batches of up to `batch_max` requests. Sends an empty one through, and waits
    /// for it.
    ///
    /// # Errors
    /// What is wrong with the device or its kernels. It is not a fault yet: the device is as it
    /// was, unless a kernel hangs.
    pub fn new(offload: &Arc<Offload>, batch_max: usize) -> Result<Self, Fault> {
        if let Some(fault) = offload.fault() {
            return Err(fault.clone());
        }
        let config = offload.config();
        let batch_max = batch_max.clamp(1, config.batch_max);
        let mut engine = Self {
            ring: Ring::new(offload, batch_max)?,
            offload: Arc::clone(offload),
            in_flight: VecDeque::with_capacity(config.in_flight_max),
            late: Vec::with_capacity(config.ring_slots()),
            probe: None,
            spares: Vec::with_capacity(config.ring_slots()),
            returned: Vec::with_capacity(config.ring_slots()),
            batch_max,
            polls: 0,
        };
        engine.try_out()?;
        Ok(engine)
    }

    fn try_out(&mut self) -> Result<(), Fault> {
        let limit = self.offload.config().start_deadline;
        let began = Instant::now();
        let mut batch = Box::new(self.mapped(0, 1)?);
        let number = loop {
            match self.ring.put(batch) {
                Ok(number) => break number,
                Err((_, Some(error))) => return Err(error.into()),
                Err((back, None)) => batch = back,
            }
            std::thread::sleep(START_PAUSE);
        };
        while self.ring.take_done(number).is_none() {
            self.ring.keep_running()?;
            self.ring.check()?;
            if began.elapsed() > limit {
                let fault = unfinished(0, limit);
                self.offload.fail(fault.clone());
                return Err(fault);
            }
            std::thread::sleep(START_PAUSE);
        }
        Ok(())
    }

    /// A batch that the device sees.
    fn mapped(&self, id: u32, capacity: usize) -> Result<Batch, Fault> {
        let card = self.offload.card();
        let replies = if self.offload.filter().is_some() { capacity } else { 0 };
        let heads = if self.offload.config().heads && replies == 0 { capacity } else { 0 };
        Ok(Batch {
            entries: Column::mapped(card, capacity)?,
            descs: Column::mapped(card, capacity)?,
            heads: Column::mapped(card, heads)?,
            replies: Column::mapped(card, replies)?,
            ..Batch::new(id, 0)
        })
    }

    /// The batch in memory that the device sees. One that was lost once may not be; then its
    /// requests take the memory of one that came back late.
    fn in_sight(&mut self, mut batch: Box<Batch>) -> Result<Box<Batch>, Box<Batch>> {
        if self.ring.sees(&batch) {
            return Ok(batch);
        }
        let Some(mut seen) = self.returned.pop() else { return Err(batch) };
        seen.take_requests(&batch);
        batch.clear();
        self.spares.push(batch);
        Ok(seen)
    }

    /// The requests of the batch of this number, in memory that the device does not see.
    fn out_of_reach(&mut self, number: u32) -> Option<Box<Batch>> {
        let held = self.ring.batch(number)?;
        // There is one for each batch that was made; memory is taken only if none was made.
        let mut batch = self
            .spares
            .pop()
            .unwrap_or_else(|| Box::new(Batch::new(held.id, held.entries.capacity())));
        batch.take_requests(held);
        Some(batch)
    }

    /// Takes back what the device has done late, and sees what it will never do.
    #[cold]
    fn look_at_late(&mut self) {
        let Self { ring, late, returned, offload, .. } = self;
        // A kernel that has ended meanwhile is started again: they are its first work.
        if let Err(error) = ring.keep_running() {
            offload.fail(error.into());
        }
        late.retain(|&(number, since)| {
            if let Some(mut batch) = ring.take_done(number) {
                batch.clear();
                returned.push(batch);
                return false;
            }
            let waited = since.elapsed();
            if waited > UNFINISHED_MAX {
                let requests = ring.batch(number).map_or(0, |batch| batch.entries.len());
                offload.fail(unfinished(requests, waited));
            }
            true
        });
    }

    /// A batch past its deadline.
    #[cold]
    fn note_late(&mut self, number: u32) {
        match self.ring.check() {
            Ok(()) => self.offload.recovery.late(self.probe == Some(number)),
            Err(error) => self.offload.fail(error.into()),
        }
        if self.probe == Some(number) {
            self.probe = None;
        }
    }
}

fn unfinished(requests: usize, waited: Duration) -> Fault {
    Fault::Late { requests, waited_us: u64::try_from(waited.as_micros()).unwrap_or(u64::MAX) }
}

impl Engine for GpuEngine {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn new_batch(&mut self, id: u32, capacity: usize) -> Box<Batch> {
        self.spares.push(Box::new(Batch::new(id, capacity)));
        self.late.reserve(1);
        // One batch out of the device's sight is one that cannot be sent there.
        let batch = self.mapped(id, capacity).unwrap_or_else(|fault| {
            self.offload.fail(fault);
            Batch::new(id, capacity)
        });
        Box::new(batch)
    }

    fn submit(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>> {
        if self.in_flight.len() >= self.offload.config().in_flight_max
            || !self.ring.has_room()
            || batch.entries.len() > self.batch_max
            || self.offload.fault().is_some()
        {
            return Err(batch);
        }
        let mut batch = self.in_sight(batch)?;
        let admit = self.offload.recovery.admit();
        if admit == Admit::None {
            return Err(batch);
        }
        if let Some(filter) = self.offload.filter() {
            batch.stamp = filter.stamp();
        }
        match self.ring.put(batch) {
            Ok(number) => {
                if admit == Admit::Probe {
                    self.probe = Some(number);
                }
                self.in_flight.push_back((number, Instant::now()));
                Ok(())
            }
            Err((batch, None)) => Err(batch),
            Err((batch, Some(error))) => {
                self.offload.fail(error.into());
                let mut spare = self
                    .spares
                    .pop()
                    .unwrap_or_else(|| Box::new(Batch::new(batch.id, batch.entries.capacity())));
                spare.take_requests(&batch);
                Err(spare)
            }
        }
    }

    fn poll(&mut self) -> Option<(Box<Batch>, Outcome)> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_BEAT) {
            self.ring.beat();
        }
        if !self.late.is_empty() {
            self.look_at_late();
        }
        let (number, began) = *self.in_flight.front()?;
        if let Some(batch) = self.ring.take_done(number) {
            self.in_flight.pop_front();
            if self.probe == Some(number) {
                self.probe = None;
                self.offload.recovery.works();
            }
            return Some((batch, Outcome::Replica));
        }
        if self.offload.fault().is_none() {
            if began.elapsed() < self.offload.config().deadline {
                // It may have been stopped for another thread's call.
                if let Err(error) = self.ring.keep_running() {
                    self.offload.fail(error.into());
                }
                return None;
            }
            self.note_late(number);
        }
        let batch = self.out_of_reach(number)?;
        self.in_flight.pop_front();
        self.late.push((number, Instant::now()));
        Some((batch, Outcome::Lost))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn is_open(&self) -> bool {
        self.offload.fault().is_none() && self.offload.recovery.is_open()
    }

    fn mark_faulty(&mut self) {
        self.offload.fail(Fault::Wrong);
    }
}
