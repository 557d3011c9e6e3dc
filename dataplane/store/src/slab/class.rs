//! A class's books: how many chunks it has, where its lists begin, and what it counts.
//!
//! In and out: numbers, under the lock of the class. Never fails.

use super::idle::Limbo;
use super::tally::Tally;
use crate::layout::{NIL, PAGE_UNITS};
use crate::probation::Queue;
use crate::sizes::SizeClass;

/// Chunks kept free ahead of need in a class that has 16 times as many; fewer in smaller ones.
pub(crate) const SPARE_CHUNKS: u32 = 64;

/// The number of a size class, smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(pub(crate) u8);

/// A class's books.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) id: ClassId,
    pub(crate) size: SizeClass,
    pub(crate) pages: u32,
    /// Of these, pages that are being emptied.
    pub(super) draining: u32,
    /// Chunks on the free lists of pages that are not draining.
    pub(crate) free: u32,
    /// Chunks in use: being written, or linked; of these, further parts of large items.
    pub(crate) used: u32,
    pub(crate) parts: u32,
    /// A change has the chunk that is kept for changes.
    pub(crate) kept_is_out: bool,
    pub(super) avail_head: u32,
    /// The page that is not carved to its end, or [`NIL`].
    pub(super) carving: u32,
    pub(super) open: Limbo,
    pub(super) closed: Limbo,
    pub(crate) hand_page: u32,
    pub(crate) hand_chunk: u32,
    /// Chunks that the hand has judged so far.
    pub(crate) hand_steps: u64,
    /// Chunks given out last, for [`Slabs::newcomer`](super::Slabs::newcomer).
    pub(super) queue: Queue,
    pub(crate) tally: Tally,
    /// Of [`Tally::stored`], what was there when counting began again.
    pub(crate) stored_before: u64,
    /// The same when pages were last given back.
    pub(super) stored_before_release: u64,
    /// Chunks that are free and given out in turn, so on no list (`in_turn.rs`).
    pub(crate) free_in_turn: u32,
    /// Units of chunks that other classes lent its items since it had a page last (`allocate.rs`).
    pub(crate) borrowed_units: u32,
}

impl Class {
    /// A class without a page.
    pub(super) fn new(id: ClassId, size: SizeClass, queue: Queue) -> Self {
        Self {
            id,
            size,
            pages: 0,
            draining: 0,
            free: 0,
            used: 0,
            parts: 0,
            kept_is_out: false,
            avail_head: NIL,
            carving: NIL,
            open: Limbo::default(),
            closed: Limbo::default(),
            hand_page: NIL,
            hand_chunk: 0,
            hand_steps: 0,
            queue,
            tally: Tally::default(),
            stored_before: 0,
            stored_before_release: 0,
            free_in_turn: 0,
            borrowed_units: 0,
        }
    }

    /// Chunks waiting for their epoch.
    pub(crate) fn in_limbo(&self) -> u32 {
        self.open.count + self.closed.count
    }

    /// Chunks in all.
    pub(crate) fn chunks(&self) -> u32 {
        self.pages * self.size.per_page
    }

    /// Chunks in pages that are not being emptied.
    pub(crate) fn chunks_to_keep(&self) -> u32 {
        (self.pages - self.draining) * self.size.per_page
    }

    /// Chunks that the class keeps free ahead of need.
    pub(crate) fn spare_wanted(&self) -> u32 {
        (self.chunks() / 16).min(SPARE_CHUNKS)
    }

    /// Whether other classes lent it as much memory as a page is.
    pub(crate) fn is_due_a_page(&self) -> bool {
        self.borrowed_units >= PAGE_UNITS
    }

    /// Whether a chunk with this ticket was given out lately: one of as many as are kept free, and one more.
    pub(crate) fn is_new(&self, ticket: u32) -> bool {
        self.queue.age(ticket) <= self.spare_wanted()
    }

    /// Chunks in the queue of the newest.
    pub(crate) fn newcomers(&self) -> u32 {
        self.queue.len()
    }
}
