//! What a size class counts, under its lock: what was stored, and why items went.
//!
//! Enters: items as they come and go. Leaves: numbers, for `stats` and for whoever balances the
//! classes. Never fails.

use crate::store::item::Location;

/// Why an item went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Gone {
    /// A client replaced or deleted it, or it never came to be linked.
    ByClient,
    /// It is in another chunk now.
    Moved,
    /// To make room.
    Evicted {
        /// Somebody had asked for it.
        fetched: bool,
        /// Since the hand last came by.
        active: bool,
    },
    /// It had expired.
    Expired {
        /// Somebody had asked for it.
        fetched: bool,
    },
}

/// A chunk whose item has been taken out of the index and hidden, and is to be retired, once.
#[derive(Debug)]
#[must_use]
pub(in crate::store) struct Unlinked {
    pub(in crate::store) loc: Location,
    pub(in crate::store) why: Gone,
}

/// What a class counts, under its lock.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::store) struct Tally {
    pub(in crate::store) stored: u64,
    pub(in crate::store) bytes: u64,
    pub(in crate::store) evicted: u64,
    pub(in crate::store) evicted_unfetched: u64,
    pub(in crate::store) evicted_active: u64,
    /// Of the evicted, those that would have expired one day.
    pub(in crate::store) evicted_expiring: u64,
    /// Seconds for which the item evicted last had not been asked for.
    pub(in crate::store) evicted_idle_seconds: u64,
    /// Of the evicted, those that lay in a page that was taken from the class.
    pub(in crate::store) evicted_by_mover: u64,
    /// Items that lay in such a page and went to another chunk of the class.
    pub(in crate::store) rescued: u64,
    /// Items that the hand left for another round, because they had been asked for.
    pub(in crate::store) spared: u64,
    /// Items that the sweeper looked at.
    pub(in crate::store) swept: u64,
    /// Of these, dead ones, which it removed.
    pub(in crate::store) swept_out: u64,
    pub(in crate::store) expired: u64,
    pub(in crate::store) expired_unfetched: u64,
    pub(in crate::store) out_of_memory: u64,
}
