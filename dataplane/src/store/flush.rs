//! Forgetting everything at once, now or later.
//!
//! Enters: a moment. Leaves: items that are dead from then on. CAS ids rise, so one number tells
//! items stored before the moment from later ones, to the very item; nothing is visited. The memory
//! comes back as the sweeper and the evicting hand find it. Never fails.

use super::{ItemRef, Store};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What was flushed, and what is to be.
#[derive(Debug, Default)]
pub(super) struct Flushed {
    /// Items with this CAS id or a lower one are dead.
    up_to: AtomicU64,
    /// The same, of those that the sweeper has removed.
    swept: AtomicU64,
    /// When to flush, on the store's clock; 0 for never.
    due: AtomicU32,
}

impl Flushed {
    /// As it was in the store before a restart.
    pub(super) fn new(up_to: u64, due: u32) -> Self {
        Self { up_to: AtomicU64::new(up_to), swept: AtomicU64::new(0), due: AtomicU32::new(due) }
    }

    /// Whether items may be there that were flushed.
    pub(super) fn is_unswept(&self) -> bool {
        self.up_to.load(Ordering::Relaxed) != self.swept.load(Ordering::Relaxed)
    }

    /// The sweeper has been everywhere since the items up to this CAS id were flushed.
    pub(super) fn swept(&self, up_to: u64) {
        self.swept.fetch_max(up_to, Ordering::Relaxed);
    }

    /// The CAS id up to which items are dead, and when everything is to be.
    pub(super) fn parts(&self) -> (u64, u32) {
        (self.up_to.load(Ordering::Acquire), self.due.load(Ordering::Relaxed))
    }
}

/// A moment at which items are alive or dead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Horizon {
    /// On the store's clock.
    pub(crate) now: u32,
    flushed_up_to: u64,
}

impl Horizon {
    /// [`Store::is_live`] at that moment.
    #[inline(always)]
    pub(crate) fn is_live(self, item: &ItemRef<'_>) -> bool {
        let expiry = item.expiry();
        // 0, for never, wraps to the latest time.
        expiry.wrapping_sub(1) >= self.now && item.cas() > self.flushed_up_to
    }
}

impl Store {
    /// Forgets everything that is stored when `delay` has passed: as an exptime, but at once when
    /// it is 0 or less. A later call takes the place of one that is still to come.
    pub fn flush(&self, delay: i64) {
        if delay > 0 {
            let due = self.clock.expiry(delay);
            self.flushed.due.store(due, Ordering::Relaxed);
        } else {
            self.flushed.due.store(0, Ordering::Relaxed);
            self.flush_now();
        }
    }

    /// Whether the item has neither expired nor been flushed, with all others or with its prefix.
    #[inline]
    pub fn is_live(&self, item: &ItemRef<'_>) -> bool {
        !self.clock.has_passed(item.expiry())
            && item.cas() > self.flushed.up_to.load(Ordering::Acquire)
            && !self.prefix_flushed(item)
    }

    /// What tells live items from dead ones at this moment. `None` while prefixes are flushed, which
    /// is told by the key.
    #[inline]
    pub(crate) fn horizon(&self) -> Option<Horizon> {
        let flushed_up_to = self.flushed.up_to.load(Ordering::Acquire);
        (!self.prefixes.in_use()).then(|| Horizon { now: self.now(), flushed_up_to })
    }

    /// Housekeeping's turn.
    pub(super) fn flush_when_due(&self) {
        let due = self.flushed.due.load(Ordering::Relaxed);
        let taken = self.clock.has_passed(due)
            && self
                .flushed
                .due
                .compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if taken {
            self.flush_now();
        }
    }

    fn flush_now(&self) {
        let last = self.cas.load(Ordering::Acquire);
        self.flushed.up_to.fetch_max(last, Ordering::AcqRel);
        self.expiring.store(true, Ordering::Relaxed);
    }
}
