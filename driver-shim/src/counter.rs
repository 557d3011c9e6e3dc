//! A counter that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writing thread, so that counting is a plain load, add and store: no locked
/// instruction on the data path. Readers may be a moment behind, never wrong by more than that.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread may call this; from two threads, counts would be lost
    /// (nothing worse).
    pub fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds one; see [`Self::add`].
    pub fn inc(&self) {
        self.add(1);
    }

    /// Sets it, for gauges; see [`Self::add`].
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The count now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
