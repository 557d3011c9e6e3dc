//! The engine over a card: places in a ring, results in the order of submission, a deadline.
//!
//! In: batches made by [`Engine::new_batch`]. Out: the same with descriptors (and heads), or as
//! lost. Each engine has one owner, shares no lock with others, and never waits once it runs. It
//! fails once: a late batch, an error of the card's or of another engine on the same card, and
//! from then on it refuses; what was in flight comes back as lost, out of the card's reach.

use super::stage::Stage;
use super::{Fault, Offload};
use crate::engine::{Batch, Engine, Outcome};
use crate::host::Column;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two looks for the first batch of all.
const START_PAUSE: Duration = Duration::from_micros(50);

/// An engine over a card.
#[derive(Debug)]
pub struct GpuEngine {
    stage: Stage,
    offload: Arc<Offload>,
    /// When the batches in flight began, oldest first. Each has the place behind the one before.
    in_flight: VecDeque<Instant>,
    /// Place of the oldest.
    oldest: usize,
    batch_max: usize,
}

impl GpuEngine {
    /// An engine for batches of up to `batch_max` requests. Sends an empty one through, and waits
    /// for it.
    ///
    /// # Errors
    /// What is wrong with the card or its kernels. It is not a fault yet: the card is as it was,
    /// unless a kernel hangs.
    pub fn new(offload: &Arc<Offload>, batch_max: usize) -> Result<Self, Fault> {
        let places = offload.config().places;
        let mut engine = Self {
            stage: Stage::new(offload, batch_max.max(1))?,
            offload: Arc::clone(offload),
            in_flight: VecDeque::with_capacity(places),
            oldest: 0,
            batch_max: batch_max.max(1),
        };
        engine.try_out()?;
        engine.stage.rest()?;
        Ok(engine)
    }

    fn try_out(&mut self) -> Result<(), Fault> {
        let begun = Instant::now();
        let limit = self.offload.config().start_deadline;
        for place in 0..self.offload.config().places {
            let batch = self.mapped(0, 1)?;
            self.stage.put(place, Box::new(batch)).map_err(|(_, error)| error)?;
            while self.stage.take_done(place).is_none() {
                self.stage.beat();
                self.stage.is_idle()?;
                if begun.elapsed() > limit {
                    let fault = late(0, limit);
                    self.offload.fail(fault.clone());
                    return Err(fault);
                }
                std::thread::sleep(START_PAUSE);
            }
        }
        Ok(())
    }

    /// A batch that the card sees.
    fn mapped(&self, id: u32, capacity: usize) -> Result<Batch, Fault> {
        let card = self.offload.card();
        let heads = if self.offload.config().heads { capacity } else { 0 };
        Ok(Batch {
            id,
            entries: Column::mapped(card, capacity)?,
            descs: Column::mapped(card, capacity)?,
            heads: Column::mapped(card, heads)?,
        })
    }

    fn place(&self, nth: usize) -> usize {
        (self.oldest + nth) % self.offload.config().places
    }
}

fn late(requests: usize, limit: Duration) -> Fault {
    Fault::Late { requests, waited_us: u64::try_from(limit.as_micros()).unwrap_or(u64::MAX) }
}

impl Engine for GpuEngine {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn new_batch(&mut self, id: u32, capacity: usize) -> Box<Batch> {
        // One batch out of the card's sight is one that cannot be sent there.
        let batch = self.mapped(id, capacity).unwrap_or_else(|fault| {
            self.offload.fail(fault);
            Batch::new(id, capacity)
        });
        Box::new(batch)
    }

    fn submit(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>> {
        let n = self.in_flight.len();
        if n >= self.offload.config().places
            || batch.entries.len() > self.batch_max
            || self.offload.fault().is_some()
        {
            return Err(batch);
        }
        match self.stage.put(self.place(n), batch) {
            Ok(()) => {
                self.in_flight.push_back(Instant::now());
                Ok(())
            }
            Err((mut batch, error)) => {
                self.offload.fail(error.into());
                batch.rescue();
                Err(batch)
            }
        }
    }

    fn poll(&mut self) -> Option<(Box<Batch>, Outcome)> {
        self.stage.beat();
        let begun = *self.in_flight.front()?;
        let (batch, outcome) = match self.stage.take_done(self.oldest) {
            Some(batch) => (batch, Outcome::Replica),
            None => {
                if self.offload.fault().is_none() {
                    let deadline = self.offload.config().deadline;
                    let waited = begun.elapsed();
                    if waited < deadline {
                        return None;
                    }
                    let fault = match self.stage.is_idle() {
                        Err(error) => error.into(),
                        Ok(_) => late(self.stage.requests(self.oldest), waited),
                    };
                    self.offload.fail(fault);
                }
                (self.stage.rescue(self.oldest)?, Outcome::Lost)
            }
        };
        self.in_flight.pop_front();
        self.oldest = self.place(1);
        Some((batch, outcome))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn has_failed(&self) -> bool {
        self.offload.fault().is_some()
    }

    fn distrust(&mut self) {
        self.offload.fail(Fault::Wrong);
    }
}
