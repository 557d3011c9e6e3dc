//! What is not in use: chunks in limbo, and pages that belong to no class.
//!
//! In and out: chunks and pages, each chained through words of its own. Owned by a class, or by
//! the slabs. Never fails.

use crate::epoch::Stamp;
use crate::layout::NIL;
use crate::published::Published;
use std::sync::Arc;

/// Chunks taken out of sight, chained through their headers.
#[derive(Debug)]
pub(super) struct Limbo {
    /// The last that came, or [`NIL`].
    pub(super) head: u32,
    pub(super) count: u32,
    /// The newest of their stamps.
    pub(super) stamp: Option<Stamp>,
}

impl Default for Limbo {
    fn default() -> Self {
        Self { head: NIL, count: 0, stamp: None }
    }
}

/// The pages that belong to no class.
#[derive(Debug)]
pub(super) struct Pool {
    /// Pages from here on have never been used.
    pub(super) fresh: u32,
    /// Pages that came back, chained through `ring_next`.
    pub(super) head: u32,
    pub(super) recycled: u32,
    /// Pages that came back but may still be looked at: newcomers, and those that wait for one epoch.
    pub(super) open: Waiting,
    pub(super) closed: Waiting,
    /// Pages that are to stay unused: the memory limit is that much below what is mapped.
    pub(super) withheld: u32,
    /// Is notified of pages that leave a class.
    pub(super) published: Option<Arc<Published>>,
}

/// Pages that came back, chained through `ring_next`.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) head: u32,
    pub(super) count: u32,
    /// The newest of their stamps.
    pub(super) stamp: Option<Stamp>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { head: NIL, count: 0, stamp: None }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            fresh: 0,
            head: NIL,
            recycled: 0,
            open: Waiting::default(),
            closed: Waiting::default(),
            withheld: 0,
            published: None,
        }
    }
}
