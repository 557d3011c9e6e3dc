//! Limbo: where chunks wait that are out of the index but that a pinned reader may still read.
//!
//! In: chunks of a locked class, out of the index. Out: free chunks, when every participant has moved
//! past the newest epoch in which one of them could be found. Owned by their class. Never fails.

use super::pages::KEEP_CHUNKS;
use super::{Class, Slabs};
use crate::epoch::Epochs;
use crate::item::Location;
use crate::layout::{NIL, PAGE_SHIFT};

/// Chunks taken from limbo in one go, so that a lock is not held for long.
const COLLECT_CHUNKS: u32 = 256;

/// Chunks that clients released between two looks at the epochs.
const LIMBO_CHUNKS: u32 = 64;

impl Slabs {
    /// Puts a chunk that was hidden into limbo.
    #[inline(always)]
    pub(super) fn bury(&self, class: &mut Class, loc: Location) {
        self.chunk(loc).set_next(class.open.head);
        class.open.head = loc.0;
        class.open.count += 1;
    }

    /// Whether to [`Self::collect`]: now and then, so that chunks come back while they are still in the cache.
    #[inline]
    pub(super) fn is_time_to_collect(&self, class: &Class) -> bool {
        // Large ones are many bytes each.
        class.open.count.is_multiple_of(LIMBO_CHUNKS) || class.size.per_page < LIMBO_CHUNKS
    }

    /// Moves chunks whose epoch has passed from limbo to the free lists.
    pub(crate) fn collect(&self, class: &mut Class, epochs: &Epochs) {
        for _ in 0..2 {
            if class.closed.count == 0 {
                if class.open.count == 0 {
                    return;
                }
                class.closed = std::mem::take(&mut class.open);
                epochs.advance();
            }
            let past = class.closed.stamp.is_none_or(|s| epochs.safe_epoch().is_past(s));
            if !past {
                return;
            }
            for _ in 0..COLLECT_CHUNKS {
                if class.closed.head == NIL {
                    break;
                }
                let loc = Location(class.closed.head);
                class.closed.head = self.chunk(loc).next();
                class.closed.count -= 1;
                if self.push(class, loc) {
                    self.release(class, loc.0 >> PAGE_SHIFT, epochs, KEEP_CHUNKS);
                }
            }
        }
    }
}
