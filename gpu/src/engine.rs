//! What an engine is: something that takes a batch of entries and gives back descriptors.

use crate::layout::{Entry, ReqDesc};

/// A batch on its way through an engine. Reused for ever; its vectors keep their capacity.
#[derive(Debug, Default)]
pub struct Batch {
    /// The owner's name for it; engines carry it along.
    pub id: u32,
    /// The frames to look at.
    pub entries: Vec<Entry>,
    /// One per entry once the engine is done, in the same order.
    pub descs: Vec<ReqDesc>,
}

impl Batch {
    /// An empty batch with room for `capacity` requests.
    pub fn with_capacity(id: u32, capacity: usize) -> Self {
        Self { id, entries: Vec::with_capacity(capacity), descs: Vec::with_capacity(capacity) }
    }

    /// Forgets the requests and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.descs.clear();
    }
}

/// Room 5. Finds out what was asked and where it probably is; answers nothing itself.
///
/// Never blocks: `submit` refuses when no place is free, `poll` returns at once.
pub trait Engine: Send {
    /// Name for people and counters.
    fn name(&self) -> &'static str;

    /// Takes the batch, or gives it back when all places are taken.
    ///
    /// # Errors
    /// The batch itself, untouched: try again after a `poll`.
    fn submit(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>>;

    /// A finished batch, oldest first.
    fn poll(&mut self) -> Option<Box<Batch>>;

    /// Batches submitted and not yet polled.
    fn in_flight(&self) -> usize;

    /// True when `Miss` means that the host index had no such key at the time of asking, so
    /// that nobody needs to look again.
    fn misses_are_final(&self) -> bool;
}
