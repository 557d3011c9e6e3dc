//! What the store says to whoever keeps a replica of its index: look at this hash again.
//!
//! In: hashes of keys whose index entry has changed, from any thread. Out: the same, in some order,
//! to one reader. Bounded and without locks. A hash says nothing of the change: the reader asks the
//! store for what is there when it reads, so that neither order nor repetition matters. Fails when
//! full: the hash is counted and forgotten, which leaves a hint stale until somebody trips over it.

use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bounded queue of hashes.
#[derive(Debug)]
pub struct Feed {
    hashes: ArrayQueue<u64>,
    lost: AtomicU64,
}

impl Feed {
    /// Room for `capacity` hashes.
    pub fn new(capacity: usize) -> Self {
        Self { hashes: ArrayQueue::new(capacity.max(1)), lost: AtomicU64::new(0) }
    }

    /// Asks for another look at this hash.
    #[inline]
    pub fn note(&self, hash: u64) {
        if self.hashes.push(hash).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hashes for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Hashes that wait.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Most hashes that wait.
    pub fn capacity(&self) -> usize {
        self.hashes.capacity()
    }

    pub(super) fn take(&self) -> Option<u64> {
        self.hashes.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let feed = Feed::new(2);
        for hash in 1..=5 {
            feed.note(hash);
        }
        assert_eq!((feed.len(), feed.lost()), (2, 3));
        assert_eq!((feed.take(), feed.take(), feed.take()), (Some(1), Some(2), None));
    }
}
