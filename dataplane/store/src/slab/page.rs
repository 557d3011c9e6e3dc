//! A page's part of its class's books.
//!
//! In and out: numbers, changed under the lock of the class that owns the page. Never fails.

use crate::layout::NIL;
use std::sync::atomic::{AtomicU32, Ordering};

/// In the place of 0 in [`Page::draining`]: the page's free chunks are not on a list.
pub(super) const IN_TURN: u32 = 2;

/// A page's part of its class's books. Changed under the lock of the class that owns the page;
/// atomics only to be in one shared array.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) free_head: AtomicU32,
    pub(super) free_count: AtomicU32,
    /// The list of the class's pages with free chunks.
    pub(super) next_avail: AtomicU32,
    pub(super) prev_avail: AtomicU32,
    /// The ring of the class's pages.
    pub(super) ring_next: AtomicU32,
    pub(super) ring_prev: AtomicU32,
    /// 1 while the page is being emptied: its chunks are not given out. [`IN_TURN`] where they are given out in
    /// turn. Otherwise 0.
    pub(super) draining: AtomicU32,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            free_head: AtomicU32::new(NIL),
            free_count: AtomicU32::new(0),
            next_avail: AtomicU32::new(NIL),
            prev_avail: AtomicU32::new(NIL),
            ring_next: AtomicU32::new(NIL),
            ring_prev: AtomicU32::new(NIL),
            draining: AtomicU32::new(0),
        }
    }
}

pub(super) fn get(cell: &AtomicU32) -> u32 {
    cell.load(Ordering::Relaxed)
}

pub(super) fn put(cell: &AtomicU32, value: u32) {
    cell.store(value, Ordering::Relaxed);
}
