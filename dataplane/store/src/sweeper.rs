//! How far the sweeper is, which removes items that have expired or were flushed.
//!
//! In and out: numbers; `evict.rs` has the work. Never fails.

/// Where the sweeper is.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    pub(super) page: u32,
    pub(super) chunk: u32,
    /// Rounds begun.
    pub(super) rounds: u64,
    /// When the last one did or might have, on the store's clock; 0: the next may at once.
    pub(super) began: u32,
    /// Prefixes flushed when this round began.
    pub(super) prefixes: u64,
    /// The CAS id up to which items were flushed when this round began.
    pub(super) flushed_up_to: u64,
    /// The round that was requested.
    pub(super) asked: Asked,
}

/// Whether a round was requested, and is still owed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    #[default]
    No,
    /// The next one to begin.
    Next,
    /// The one under way.
    Now,
}
