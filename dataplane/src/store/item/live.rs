//! What changes in an item while it is linked: when it expires, when it was asked for, its marks.
//!
//! Enters: an item that its reader keeps from being reused. Leaves: small atomics, each right by
//! itself; what has to fit together is changed under the locks of the item's buckets. Never fails.

use super::ItemRef;
use crate::store::marks::{Inherits, Marks};
use std::sync::atomic::Ordering;

/// Recency bit: asked for since the hand came by.
const VISITED: u8 = 1;
/// Recency bit: asked for at least once.
const FETCHED: u8 = 2;

/// An access time this many seconds old is brought up to date by a plain look-up.
pub(super) const ACCESS_GRAIN_SECONDS: u32 = 60;

impl ItemRef<'_> {
    /// When the item expires, on the store's clock; 0 for never.
    #[inline]
    pub fn expiry(&self) -> u32 {
        self.header.exptime.load(Ordering::Relaxed)
    }

    /// Moves the expiry time.
    pub(in crate::store) fn set_expiry(&self, expiry: u32) {
        self.header.exptime.store(expiry, Ordering::Relaxed);
    }

    /// Tells the evicting hand that the item was asked for at `now`. Writes only what it does not
    /// know yet; the time only when it is a minute off.
    #[inline]
    pub fn mark_visited(&self, now: u32) {
        // Not by the first bit alone: an item may be expected to be asked for before it ever was.
        if self.header.recency.load(Ordering::Relaxed) != VISITED | FETCHED {
            self.header.recency.store(VISITED | FETCHED, Ordering::Relaxed);
        }
        if now >= self.accessed().saturating_add(ACCESS_GRAIN_SECONDS) {
            self.header.access.store(now, Ordering::Relaxed);
        }
    }

    /// When the item was last asked for, or else stored, on the store's clock.
    #[inline]
    pub fn accessed(&self) -> u32 {
        self.header.access.load(Ordering::Relaxed)
    }

    #[inline]
    fn marks(&self) -> Marks {
        Marks(self.header.marks.load(Ordering::Relaxed))
    }

    /// Whether the value is out of date, to be served until somebody replaces it.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.marks().has(Marks::STALE)
    }

    /// Whether somebody was told to fetch the value anew.
    #[inline]
    pub fn is_won(&self) -> bool {
        self.marks().has(Marks::WON)
    }

    /// Whether the key came in base64, and is to be told in base64.
    #[inline]
    pub fn has_base64_key(&self) -> bool {
        self.marks().has(Marks::BASE64_KEY)
    }

    /// Notes that somebody was told to fetch the value anew. Only under the locks of the item's
    /// buckets, so that what comes in its place knows.
    pub(in crate::store) fn mark_won(&self) {
        self.header.marks.fetch_or(Marks::WON.0, Ordering::Relaxed);
    }

    /// Takes over what `inherits` says from the item before, under the same locks.
    pub(in crate::store) fn take_over(&self, before: &ItemRef<'_>, inherits: Inherits) {
        if inherits.expiry {
            self.set_expiry(before.expiry());
        }
        let marks = before.marks().0 & inherits.marks.0;
        if marks != 0 {
            self.header.marks.fetch_or(marks, Ordering::Relaxed);
        }
        if inherits.history {
            let recency = before.header.recency.load(Ordering::Relaxed);
            self.header.recency.store(recency, Ordering::Relaxed);
            self.header.access.store(before.accessed(), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(in crate::store) fn is_visited(&self) -> bool {
        self.header.recency.load(Ordering::Relaxed) & VISITED != 0
    }

    /// Whether anybody ever asked for the item.
    pub fn was_fetched(&self) -> bool {
        self.header.recency.load(Ordering::Relaxed) & FETCHED != 0
    }

    pub(in crate::store) fn clear_visited(&self) {
        self.header.recency.fetch_and(!VISITED, Ordering::Relaxed);
    }

    /// Has the item count as visited, though nobody has asked for it yet.
    pub(in crate::store) fn expect_visit(&self) {
        self.header.recency.fetch_or(VISITED, Ordering::Relaxed);
    }

    /// What the chunk was given when it was given out (`probation.rs`).
    pub(in crate::store) fn ticket(&self) -> u32 {
        self.header.link.load(Ordering::Relaxed)
    }
}
