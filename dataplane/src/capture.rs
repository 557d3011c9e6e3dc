//! Captures: copies of the frames that a capture client requests, on their way through a worker.
//!
//! ```text
//!  control ── orders ──► worker's Recorder ── full records ──► control, which writes them down
//!                            ▲────────── free records ────┘
//! ```
//!
//! In: frames as they are received, sent or dropped. Out: [`Record`]s. The capturing thread makes a
//! [`Capture`] with all memory that it will use, orders it through the worker's [`Channel`], takes
//! records out, gives them back empty, and keeps its own handle until the worker has dropped its own, so that
//! the worker never frees anything. The worker never waits: with no free record a frame is counted
//! as lost to the capture, and goes its way. Without a capture a turn looks at its orders, and each
//! burst at nothing but whether there is one.
//!
//! A frame that the [`Filter`] selects is marked when it is received. The mark goes with it, and with
//! the reply in its place, so that a request and what becomes of it are captured or left out together.
#![deny(clippy::indexing_slicing)]

mod filter;

pub use filter::{Filter, KeyPattern, PatternError, What};

use crate::counters::Counter;
use crossbeam_queue::ArrayQueue;
use driver_shim::{Burst, Frame, SLOT_BYTES};
use std::collections::TryReserveError;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Instant;
use wire::DropReason;

/// Orders that a worker may have before it: an end, and the next beginning.
const ORDERS_MAX: usize = 2;

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It came from the queue.
    Received,
    /// It was handed to the driver.
    Sent,
    /// It was dropped.
    Dropped(DropReason),
}

/// A frame's copy, or an empty buffer for one.
#[derive(Debug)]
pub struct Record {
    /// When, in nanoseconds of the worker's clock.
    pub at_ns: u64,
    /// What became of it.
    pub seen: Seen,
    /// The worker's number for the port.
    pub port: u8,
    /// Bytes of the whole frame.
    pub len: usize,
    /// The port fills in its checksums.
    pub is_unsummed: bool,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// What one port of a worker had for a capture. Frames.
#[derive(Debug, Default)]
pub struct Tally {
    /// Received while it ran.
    pub received: Counter,
    /// Selected by the filter.
    pub wanted: Counter,
    /// Of these, those that found no free record.
    pub lost: Counter,
}

/// One worker's part of a capture.
#[derive(Debug)]
pub struct Capture {
    /// Marks its frames.
    id: NonZeroU8,
    filter: Filter,
    free: ArrayQueue<Record>,
    full: ArrayQueue<Record>,
    ports: Vec<Tally>,
}

impl Capture {
    /// Takes all memory: buffers for `records` frames, at least one, from a worker with so many ports.
    ///
    /// # Errors
    /// There is not as much memory.
    pub fn new(
        id: NonZeroU8,
        filter: Filter,
        ports: usize,
        records: usize,
    ) -> Result<Self, TryReserveError> {
        let (free, full) = (ArrayQueue::new(records.max(1)), ArrayQueue::new(records.max(1)));
        for _ in 0..records {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(filter.snap_bytes.min(SLOT_BYTES))?;
            let (at_ns, seen, port, len) = (0, Seen::Received, 0, 0);
            let record = Record { at_ns, seen, port, len, is_unsummed: false, bytes };
            // The queue's capacity is that of all records.
            let _ = free.push(record);
        }
        let ports = (0..ports).map(|_| Tally::default()).collect();
        Ok(Self { id, filter, free, full, ports })
    }

    /// The next frame, oldest first.
    pub fn take(&self) -> Option<Record> {
        self.full.pop()
    }

    /// Takes a record back.
    pub fn give_back(&self, record: Record) {
        // The queue's capacity is that of all records.
        let _ = self.free.push(record);
    }

    /// Counts by port.
    pub fn tallies(&self) -> &[Tally] {
        &self.ports
    }

    fn is_marked(&self, frame: &Frame) -> bool {
        frame.watched == self.id.get()
    }

    fn copy(&self, frame: &Frame, port: usize, at_ns: u64, seen: Seen) {
        let Some(tally) = self.ports.get(port) else { return };
        tally.wanted.inc();
        let Some(mut record) = self.free.pop() else { return tally.lost.inc() };
        let bytes = frame.bytes();
        record.bytes.clear();
        // Never beyond what was reserved.
        let most = record.bytes.capacity().min(self.filter.snap_bytes);
        record.bytes.extend_from_slice(bytes.get(..most).unwrap_or(bytes));
        (record.at_ns, record.seen, record.len) = (at_ns, seen, bytes.len());
        record.port = u8::try_from(port).unwrap_or(u8::MAX);
        record.is_unsummed = frame.tx.ip.is_set() || frame.tx.udp.is_set();
        // The queue's capacity is that of all records.
        let _ = self.full.push(record);
    }
}

/// From the capturing thread to one worker.
#[derive(Debug)]
pub struct Channel {
    orders: ArrayQueue<Option<Arc<Capture>>>,
    started: Instant,
    ports: Vec<String>,
}

/// The worker has not looked at its orders for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotHeeded;

impl Channel {
    /// To a worker whose clock began then, with ports of these names.
    pub(crate) fn new(started: Instant, ports: Vec<String>) -> Self {
        Self { orders: ArrayQueue::new(ORDERS_MAX), started, ports }
    }

    /// When the worker's clock was 0.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The worker's ports, by number.
    pub fn ports(&self) -> &[String] {
        &self.ports
    }

    /// Orders a capture, or with `None` the end of one.
    ///
    /// # Errors
    /// [`NotHeeded`]: nothing was ordered.
    pub fn order(&self, capture: Option<Arc<Capture>>) -> Result<(), NotHeeded> {
        self.orders.push(capture).map_err(|_| NotHeeded)
    }

    /// Whether the worker does as ordered.
    pub fn is_acknowledged(&self) -> bool {
        self.orders.is_empty()
    }
}

/// The worker's end.
#[derive(Debug)]
pub(crate) struct Recorder {
    line: Arc<Channel>,
    running: Option<Arc<Capture>>,
}

impl Recorder {
    pub(crate) fn new(line: Arc<Channel>) -> Self {
        Self { line, running: None }
    }

    pub(crate) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&self.line)
    }

    /// Whether a capture is running.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Begins or ends a capture where that was ordered.
    #[inline]
    pub(crate) fn check_orders(&mut self) {
        if !self.line.is_acknowledged() {
            self.take_order();
        }
    }

    #[cold]
    fn take_order(&mut self) {
        if let Some(order) = self.line.orders.pop() {
            self.running = order;
        }
    }

    /// Marks what the capture selects of a burst that came from a port's queue, and copies it.
    #[inline]
    pub(crate) fn received(&self, burst: &mut Burst, port: usize, service_port: u16, now_ns: u64) {
        if let Some(capture) = &self.running {
            capture.mark_received(burst, port, service_port, now_ns);
        }
    }

    /// Marks what the capture selects of a burst that answers no request: the kernel's frames and announcements.
    #[inline]
    pub(crate) fn unasked(&self, burst: &mut Burst) {
        if let Some(capture) = &self.running {
            capture.mark_unasked(burst);
        }
    }

    /// Copies what the capture selects of frames on their way to a port's driver.
    #[inline]
    pub(crate) fn sent(&self, burst: &Burst, port: usize) {
        if let Some(capture) = &self.running {
            capture.copy_sent(burst, port, self.now_ns());
        }
    }

    /// Copies a frame that is dropped, if the capture selects it.
    #[inline]
    pub(crate) fn dropped(&self, frame: &Frame, port: usize, reason: DropReason) {
        if let Some(capture) = &self.running {
            capture.copy_dropped(frame, port, reason, self.now_ns());
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.line.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

// What happens while there is a capture: kept out of the way that frames take without one.
impl Capture {
    #[cold]
    fn mark_received(&self, burst: &mut Burst, port: usize, service_port: u16, now_ns: u64) {
        if let Some(tally) = self.ports.get(port) {
            tally.received.add(burst.len() as u64);
        }
        for frame in burst {
            if self.filter.wants_received(frame.bytes(), service_port) {
                frame.watched = self.id.get();
                if self.filter.what == What::Traffic {
                    self.copy(frame, port, now_ns, Seen::Received);
                }
            }
        }
    }

    #[cold]
    fn mark_unasked(&self, burst: &mut Burst) {
        for frame in burst {
            if self.filter.wants_unasked(frame.bytes()) {
                frame.watched = self.id.get();
            }
        }
    }

    #[cold]
    fn copy_sent(&self, burst: &Burst, port: usize, now_ns: u64) {
        if matches!(self.filter.what, What::Traffic | What::Replies) {
            for frame in burst.iter().filter(|frame| self.is_marked(frame)) {
                self.copy(frame, port, now_ns, Seen::Sent);
            }
        }
    }

    #[cold]
    fn copy_dropped(&self, frame: &Frame, port: usize, reason: DropReason, now_ns: u64) {
        let wanted = match self.filter.what {
            What::Drops(only) => only.is_none_or(|only| only == reason),
            What::Traffic | What::Replies => false,
        };
        if wanted && self.is_marked(frame) {
            self.copy(frame, port, now_ns, Seen::Dropped(reason));
        }
    }
}
