//! What changes in an item while it is linked: when it expires, when it was read, its marks.
//!
//! In: an item that its reader keeps from being reused. Out: small atomics, each right by
//! itself; what has to fit together is changed under the locks of the item's buckets. Never fails.

use super::ItemRef;
use crate::item_flags::{Inherits, Marks};
use std::sync::atomic::Ordering;

/// Recency bit: read since the hand came by.
const VISITED: u8 = 1;
/// Recency bit: read at least once.
const FETCHED: u8 = 2;
/// Recency bit: a new value is being made of it, or in its place.
const HELD: u8 = 4;

/// An access time this many seconds old is brought up to date by a plain look-up.
pub(super) const ACCESS_GRAIN_SECONDS: u32 = 60;

impl ItemRef<'_> {
    /// When the item expires, on the store's clock; 0 for never.
    #[inline]
    pub fn expiry(&self) -> u32 {
        self.header.exptime.load(Ordering::Relaxed)
    }

    /// Moves the expiry time.
    pub(crate) fn set_expiry(&self, expiry: u32) {
        self.header.exptime.store(expiry, Ordering::Relaxed);
    }

    /// Marks for the evicting hand that the item was read at `now`. Writes only what is not set yet;
    /// the time only when it is a minute off.
    #[inline]
    pub fn mark_visited(&self, now: u32) {
        // Not by the first bit alone: an item may be expected to be read before it ever was.
        const BOTH: u8 = VISITED | FETCHED;
        if self.header.recency.load(Ordering::Relaxed) & BOTH != BOTH {
            self.header.recency.store(BOTH, Ordering::Relaxed);
        }
        if self.accessed() < now.saturating_sub(ACCESS_GRAIN_SECONDS - 1) {
            self.header.access.store(now, Ordering::Relaxed);
        }
    }

    /// When the item was last read, or else stored, on the store's clock.
    #[inline]
    pub fn accessed(&self) -> u32 {
        self.header.access.load(Ordering::Relaxed)
    }

    #[inline]
    fn marks(&self) -> Marks {
        Marks(self.header.marks.load(Ordering::Relaxed))
    }

    /// Whether the value is out of date, to be served until a client replaces it.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.marks().has(Marks::STALE)
    }

    /// Whether a client has won the right to fetch the value anew.
    #[inline]
    pub fn is_won(&self) -> bool {
        self.marks().has(Marks::WON)
    }

    /// Whether the key came in base64, and is to be given in base64.
    #[inline]
    pub fn has_base64_key(&self) -> bool {
        self.marks().has(Marks::BASE64_KEY)
    }

    /// Whether meta commands say more of the item than its key, value and numbers: it is out of date, or won, or its
    /// key came in base64.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.marks().0 & (Marks::STALE.0 | Marks::WON.0 | Marks::BASE64_KEY.0) != 0
    }

    /// Whether a client has given the item a CAS id.
    #[inline]
    pub(super) fn has_own_cas(&self) -> bool {
        self.marks().has(Marks::OWN_CAS)
    }

    /// Notes that a client has won the right to fetch the value anew. Only under the locks of the item's
    /// buckets, so that an item that replaces it takes the mark over.
    pub(crate) fn mark_won(&self) {
        self.header.marks.fetch_or(Marks::WON.0, Ordering::Relaxed);
    }

    /// Takes over what `inherits` says from the item before, under the same locks.
    pub(crate) fn take_over(&self, before: &ItemRef<'_>, inherits: Inherits) {
        if inherits.expiry {
            self.set_expiry(before.expiry());
        }
        let marks = before.marks().0 & inherits.marks.0;
        if marks != 0 {
            self.header.marks.fetch_or(marks, Ordering::Relaxed);
        }
        if inherits.history {
            let recency = before.header.recency.load(Ordering::Relaxed);
            self.header.recency.store(recency & !HELD, Ordering::Relaxed);
            self.header.access.store(before.accessed(), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_visited(&self) -> bool {
        self.header.recency.load(Ordering::Relaxed) & VISITED != 0
    }

    /// Whether a client ever read the item.
    pub fn was_fetched(&self) -> bool {
        self.header.recency.load(Ordering::Relaxed) & FETCHED != 0
    }

    pub(crate) fn clear_visited(&self) {
        self.header.recency.fetch_and(!VISITED, Ordering::Relaxed);
    }

    /// Keeps the item from being evicted for the memory of what is to take its place. A hint: the first reader
    /// since the hand came by undoes it, and then it is an item that was read; and of two who hold it the first to
    /// end that ends it for both.
    pub(crate) fn hold(&self) {
        self.header.recency.fetch_or(HELD, Ordering::Relaxed);
    }

    pub(crate) fn release(&self) {
        self.header.recency.fetch_and(!HELD, Ordering::Relaxed);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.header.recency.load(Ordering::Relaxed) & HELD != 0
    }

    /// Has the item count as visited, though no client has read it yet.
    pub(crate) fn expect_visit(&self) {
        self.header.recency.fetch_or(VISITED, Ordering::Relaxed);
    }

    /// What the chunk was given when it was given out (`probation.rs`).
    pub(crate) fn ticket(&self) -> u32 {
        self.header.link.load(Ordering::Relaxed)
    }
}
