//! A worker's accounting of frames: its counters, and the recorder through which captures see frames.
//!
//! In: what happens to frames. Out: counts, and copies where a capture is running. Nothing fails.

use crate::capture::{Channel, Recorder};
use crate::counters::WorkerCounters;
use driver_shim::Frame;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;
use wire::DropReason;

/// Where a worker notes what becomes of its frames.
#[derive(Debug)]
pub struct Accounts {
    counters: Arc<WorkerCounters>,
    /// For captures.
    pub(crate) recorder: Recorder,
}

impl Accounts {
    /// The books of a worker with ports of these names, whose clock began then.
    pub fn new(counters: Arc<WorkerCounters>, started: Instant, ports: Vec<String>) -> Self {
        Self { counters, recorder: Recorder::new(Arc::new(Channel::new(started, ports))) }
    }

    pub(crate) fn counters(&self) -> Arc<WorkerCounters> {
        Arc::clone(&self.counters)
    }

    /// Drops a port's frame, by name. The only place where a received frame ends without an
    /// answer.
    pub fn drop_frame(&self, frame: Frame, port: usize, reason: DropReason) {
        self.recorder.dropped(&frame, port, reason);
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
