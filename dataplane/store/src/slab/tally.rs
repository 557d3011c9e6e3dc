//! What a size class counts, under its lock: what was stored, and why items went.
//!
//! In: items as they come and go. Out: numbers, for `stats` and for the balance of the
//! classes. Never fails.

use crate::item::Location;

/// Why an item went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    /// A client replaced or deleted it, or it never came to be linked.
    ByClient,
    /// It is in another chunk now.
    Moved,
    /// To make room.
    Evicted {
        /// A client had read it.
        fetched: bool,
        /// Since the hand last came by.
        active: bool,
    },
    /// It had expired.
    Expired {
        /// A client had read it.
        fetched: bool,
    },
}

/// A chunk whose item has been taken out of the index and hidden, and is to be retired, once.
#[derive(Debug)]
#[must_use]
pub(crate) struct Unlinked {
    pub(crate) loc: Location,
    pub(crate) why: Gone,
}

/// What a class counts, under its lock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) stored: u64,
    pub(crate) bytes: u64,
    pub(crate) evicted: u64,
    pub(crate) evicted_unfetched: u64,
    pub(crate) evicted_active: u64,
    /// Of the evicted, those that would have expired one day.
    pub(crate) evicted_expiring: u64,
    /// Seconds for which the item evicted last had not been read.
    pub(crate) evicted_idle_seconds: u64,
    /// Of the evicted, those that lay in a page that was taken from the class, or made room for those that did.
    pub(crate) evicted_by_mover: u64,
    /// Items that lay in such a page and went to another chunk.
    pub(crate) rescued: u64,
    /// Items that the hand left for another round, because they had been read.
    pub(crate) spared: u64,
    /// Items that the sweeper looked at.
    pub(crate) swept: u64,
    /// Of these, dead ones, which it removed.
    pub(crate) swept_out: u64,
    pub(crate) expired: u64,
    pub(crate) expired_unfetched: u64,
    pub(crate) out_of_memory: u64,
}

impl Tally {
    /// Counts why an item went.
    #[inline(always)]
    pub(super) fn count(&mut self, why: Gone) {
        if why != Gone::ByClient {
            self.count_other(why);
        }
    }

    #[cold]
    fn count_other(&mut self, why: Gone) {
        match why {
            Gone::ByClient | Gone::Moved => {}
            Gone::Evicted { fetched, active } => {
                self.evicted += 1;
                self.evicted_unfetched += u64::from(!fetched);
                self.evicted_active += u64::from(active);
            }
            Gone::Expired { fetched } => {
                self.expired += 1;
                self.expired_unfetched += u64::from(!fetched);
            }
        }
    }
}
