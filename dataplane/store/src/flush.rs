//! Forgetting everything at once, now or later.
//!
//! In: a moment. Out: items that are dead from then on. They are numbered as they are made, so one number separates
//! items stored before the moment from later ones, to the very item; nothing is visited. The memory
//! comes back as the sweeper and the evicting hand find it. Never fails.

use super::item::ItemRef;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What was flushed, and what is to be.
#[derive(Debug, Default)]
pub(super) struct Flushed {
    /// Items with this number (`ItemRef::sequence`) or a lower one are dead.
    pub(super) up_to: AtomicU64,
    /// The same, of those that the sweeper has removed.
    swept: AtomicU64,
    /// The same, of those whose memory housekeeping has given back since.
    released: AtomicU64,
    /// When to flush, on the store's clock; 0 for never.
    pub(super) due: AtomicU32,
    /// Flushes, of prefixes too, between the reading of their number and its publication.
    under_way: AtomicU32,
}

impl Flushed {
    /// As it was in the store before a restart, which takes up nothing that was flushed.
    pub(super) fn new(up_to: u64, due: u32) -> Self {
        let [up_to, swept, released] = [up_to; 3].map(AtomicU64::new);
        Self { up_to, swept, released, due: AtomicU32::new(due), under_way: AtomicU32::new(0) }
    }

    /// Flushes what has a number up to the last one. `publish` reads that number and says so to all.
    pub(super) fn flush<T>(&self, publish: impl FnOnce() -> T) -> T {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let published = publish();
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        published
    }

    /// Whether a flush may be reading its number. When it was not, an item whose number was taken before is
    /// flushed by each flush that is published later; and each that was published shows.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) != 0
    }

    /// Whether items may be there that were flushed.
    pub(super) fn is_unswept(&self) -> bool {
        self.up_to.load(Ordering::Relaxed) != self.swept.load(Ordering::Relaxed)
    }

    /// The sweeper has been everywhere since the items up to this number were flushed.
    pub(super) fn swept(&self, up_to: u64) {
        self.swept.fetch_max(up_to, Ordering::Relaxed);
    }

    /// Whether memory of items that were flushed may be on its way back.
    pub(super) fn is_unreleased(&self) -> bool {
        self.up_to.load(Ordering::Relaxed) != self.released.load(Ordering::Relaxed)
    }

    /// The memory of the items up to this number that were swept is given back.
    pub(super) fn released(&self, up_to: u64) {
        self.released.fetch_max(up_to, Ordering::Relaxed);
    }

    /// The number up to which flushed items are swept.
    pub(super) fn swept_up_to(&self) -> u64 {
        self.swept.load(Ordering::Relaxed)
    }

    /// The number up to which items are dead, and when everything is to be.
    pub(super) fn parts(&self) -> (u64, u32) {
        (self.up_to.load(Ordering::Acquire), self.due.load(Ordering::Relaxed))
    }
}

/// A moment at which items are alive or dead.
#[derive(Debug, Clone, Copy)]
pub struct Liveness {
    /// On the store's clock.
    pub now: u32,
    pub(super) flushed_up_to: u64,
}

impl Liveness {
    /// [`Store::is_live`](crate::Store::is_live) at that moment.
    #[inline(always)]
    pub fn is_live(self, item: &ItemRef<'_>) -> bool {
        let expiry = item.expiry();
        // 0, for never, wraps to the latest time.
        expiry.wrapping_sub(1) >= self.now && item.sequence() > self.flushed_up_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_after_a_flush() {
        let flushed = Flushed::new(7, 0);
        assert!(
            !flushed.is_unswept() && !flushed.is_unreleased(),
            "a restart takes up no dead items"
        );
        flushed.up_to.store(9, Ordering::Relaxed);
        flushed.swept(9);
        assert!(!flushed.is_unswept() && flushed.is_unreleased());
        flushed.released(flushed.swept_up_to());
        assert!(!flushed.is_unreleased());
    }
}
