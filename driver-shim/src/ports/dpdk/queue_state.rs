//! What a queue of a DPDK port shares with the port's control: whether a burst is running, and what
//! was refused.
//!
//! In: a burst that announces itself. Out: a guard while the port is open, nothing once it is
//! closed. Nothing here can fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a queue shares with its port's control. A line pair of its own: both directions write it
/// on every burst.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct QueueState {
    /// A burst is running.
    pub(super) busy: AtomicBool,
    /// Frames refused: several segments, or of a foreign region.
    pub(super) refused: AtomicU64,
}

/// A burst in progress on an open port.
pub(super) struct Inside<'a>(&'a AtomicBool);

impl QueueState {
    /// Announces a burst, unless the port is closed.
    ///
    /// `busy` is written before `closed` is read, and `PortShared::close` does it the other way
    /// round, both sequentially consistent: one of the two sees the other.
    pub(super) fn enter(&self, closed: &AtomicBool) -> Option<Inside<'_>> {
        self.busy.store(true, Ordering::SeqCst);
        let inside = Inside(&self.busy);
        (!closed.load(Ordering::SeqCst)).then_some(inside)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
