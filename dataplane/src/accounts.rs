//! A worker's own end of its books: its counters, and the tap through which captures see frames.
//!
//! In: what happens to frames. Out: counts, and copies where somebody captures. Nothing fails.

use crate::capture::{Line, Tap};
use crate::counters::WorkerCounters;
use crate::drop_reason::DropReason;
use driver_shim::Frame;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

/// Where a worker notes what becomes of its frames.
#[derive(Debug)]
pub struct Accounts {
    counters: Arc<WorkerCounters>,
    /// For whoever captures.
    pub(crate) tap: Tap,
}

impl Accounts {
    /// The books of a worker with ports of these names, whose clock began then.
    pub fn new(counters: Arc<WorkerCounters>, started: Instant, ports: Vec<String>) -> Self {
        Self { counters, tap: Tap::new(Arc::new(Line::new(started, ports))) }
    }

    pub(crate) fn counters(&self) -> Arc<WorkerCounters> {
        Arc::clone(&self.counters)
    }

    /// Lets a frame of a port's go, by name. The only place where a received frame ends without an
    /// answer.
    pub fn drop_frame(&self, frame: Frame, port: usize, reason: DropReason) {
        self.tap.dropped(&frame, port, reason);
        drop(frame);
        self.counters.count_drop(reason);
    }
}

impl Deref for Accounts {
    type Target = WorkerCounters;

    fn deref(&self) -> &WorkerCounters {
        &self.counters
    }
}
