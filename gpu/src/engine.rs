//! What an engine is: something that takes a batch of entries and gives back descriptors.

use crate::host::Column;
use crate::layout::{Entry, ReplyHead, ReqDesc};

/// A batch on its way through an engine. Reused for ever; its columns never grow.
#[derive(Debug)]
pub struct Batch {
    /// The owner's name for it; engines carry it along.
    pub id: u32,
    /// The frames to look at.
    pub entries: Column<Entry>,
    /// One per entry once the engine is done, in the same order.
    pub descs: Column<ReqDesc>,
    /// One per entry, or none at all: whether the engine prepares heads is its own choice.
    pub heads: Column<ReplyHead>,
}

impl Batch {
    /// An empty batch with room for `capacity` requests, in memory that no card sees.
    pub fn new(id: u32, capacity: usize) -> Self {
        let heads = Column::new(0);
        Self { id, entries: Column::new(capacity), descs: Column::new(capacity), heads }
    }

    /// Forgets the requests and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.descs.clear();
        self.heads.clear();
    }
}

/// Room 5. Finds out what was asked and where it probably is; answers nothing itself.
///
/// Never blocks: `submit` refuses when no place is free, `poll` returns at once.
pub trait Engine: Send {
    /// Name for people and counters.
    fn name(&self) -> &'static str;

    /// Makes a batch of the kind that this engine likes best. Start-up only.
    fn new_batch(&mut self, id: u32, capacity: usize) -> Box<Batch> {
        Box::new(Batch::new(id, capacity))
    }

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
