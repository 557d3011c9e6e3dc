//! One capture over all workers: ordered, gathered, put in order of time, ended.
//!
//! In: a request and the workers' lines. Out: the bytes of the file, round by round. Owns the
//! rings that workers copy into until each has released its own; what a worker that stalls
//! has not released yet is kept, and no other capture begins meanwhile.

use super::file::{CaptureFile, Statistics};
use super::request::Request;
use super::sums;
use crate::startup::flags::LONG_VERSION;
use dataplane::capture::{Capture, Channel, Record};
use pcap_file::PcapResult;
use std::cell::{Cell, RefCell};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Records that a worker has: 4 ms of a million a second, 8 MB.
const RECORDS: usize = 4096;
/// Frames in a round, at most.
const ROUND_MAX: usize = 4096;

/// What there is to capture from, and who does.
#[derive(Debug)]
pub(crate) struct Captures {
    lines: Vec<Arc<Channel>>,
    running: Cell<bool>,
    last_id: Cell<u8>,
    /// Of workers that have not released them.
    held: RefCell<Vec<Part>>,
}

/// Why a capture does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotBegun {
    #[error("another capture is running, and there is one at a time")]
    Busy,
    #[error("a worker is stalled and has not dropped the last capture")]
    Held,
    #[error("there are no frames to capture: UDP is off")]
    NoWorkers,
    #[error("there is no memory for it")]
    NoMemory,
    #[error("a worker is stalled and does not take orders")]
    NotHeeded,
}

/// A worker and its part of a capture.
#[derive(Debug)]
struct Part {
    line: Arc<Channel>,
    capture: Arc<Capture>,
    /// The number of its first port's interface.
    interface: u32,
    /// When the worker's clock was 0, since 1970.
    zero: Duration,
}

/// A capture that runs. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    captures: &'a Captures,
    parts: Vec<Part>,
    file: CaptureFile,
    began: Duration,
    /// Frames in the file, by interface.
    written: Vec<u64>,
    /// Frames until it is done.
    left: u64,
}

impl Captures {
    /// From workers at the other ends of these lines.
    pub(crate) fn new(lines: Vec<Arc<Channel>>) -> Self {
        Self { lines, running: Cell::default(), last_id: Cell::default(), held: RefCell::default() }
    }

    /// Whether there is a capture.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Whether a worker has not dropped the last capture.
    pub(super) fn is_held(&self) -> bool {
        self.tidy();
        !self.held.borrow().is_empty()
    }

    /// Frees what workers have released.
    pub(crate) fn tidy(&self) {
        self.held.borrow_mut().retain(|part| {
            let held = Arc::strong_count(&part.capture) > 1;
            if held && part.line.is_acknowledged() {
                // The end, for which the order queue was full before.
                let _ = part.line.order(None);
            }
            held
        });
    }

    /// Takes the memory for a capture and orders it.
    pub(super) fn begin(&self, request: &Request) -> Result<Session<'_>, NotBegun> {
        if self.is_running() {
            return Err(NotBegun::Busy);
        }
        if self.is_held() {
            return Err(NotBegun::Held);
        }
        let id = NonZeroU8::new(self.last_id.get().wrapping_add(1)).unwrap_or(NonZeroU8::MIN);
        self.last_id.set(id.get());
        let now = (Instant::now(), since_1970());
        let mut parts = Vec::new();
        let mut interface = 0;
        for line in &self.lines {
            let ports = line.ports().len();
            let capture = Capture::new(id, request.filter.clone(), ports, RECORDS);
            let capture = Arc::new(capture.map_err(|_| NotBegun::NoMemory)?);
            let age = now.0.saturating_duration_since(line.started());
            let zero = now.1.saturating_sub(age);
            parts.push(Part { line: Arc::clone(line), capture, interface, zero });
            interface += u32::try_from(ports).unwrap_or(0);
        }
        if parts.is_empty() {
            return Err(NotBegun::NoWorkers);
        }
        let file = CaptureFile::new(concat!("gnomon ", env!("CARGO_PKG_VERSION")));
        let mut session = Session {
            captures: self,
            parts,
            file: file.map_err(|_| NotBegun::NoMemory)?,
            began: now.1,
            written: vec![0; interface as usize],
            left: request.count.map_or(u64::MAX, Into::into),
        };
        self.running.set(true);
        session.describe(request.filter.snap_bytes).map_err(|_| NotBegun::NoMemory)?;
        for part in &session.parts {
            let order = Some(Arc::clone(&part.capture));
            part.line.order(order).map_err(|_| NotBegun::NotHeeded)?;
        }
        Ok(session)
    }
}

/// Whether a port of this name makes its frames from a kernel socket's datagrams.
fn is_of_kernel(port: &str) -> bool {
    port.starts_with("udp:")
}

impl Session<'_> {
    fn describe(&mut self, snap_bytes: usize) -> PcapResult<()> {
        for (n, part) in self.parts.iter().enumerate() {
            for port in part.line.ports() {
                let name = format!("{port} queue {n}");
                let made = if is_of_kernel(port) {
                    ", frames made from a kernel socket's datagrams"
                } else {
                    ""
                };
                let description = format!("worker {n} of gnomon {LONG_VERSION}{made}");
                self.file.interface(&name, &description, snap_bytes)?;
            }
        }
        Ok(())
    }

    /// Whether all workers do as ordered.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.parts.iter().all(|part| part.line.is_acknowledged())
    }

    /// Whether as many frames are in the file as were requested.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Puts frames that wait into the file, in order of time. Gives the bytes, and whether more
    /// frames wait.
    pub(super) fn round(&mut self) -> PcapResult<(Vec<u8>, bool)> {
        let mut all: Vec<(Duration, usize, Record)> = Vec::new();
        let share = ROUND_MAX.div_ceil(self.parts.len());
        let mut more = false;
        for (n, part) in self.parts.iter().enumerate() {
            let taken = all.len();
            all.extend(std::iter::from_fn(|| part.capture.take()).take(share).map(|record| {
                let at = part.zero.saturating_add(Duration::from_nanos(record.at_ns));
                (at, n, record)
            }));
            more |= all.len() - taken == share;
        }
        all.sort_by_key(|(at, ..)| *at);
        for (at, n, mut record) in all {
            let Some(part) = self.parts.get(n) else { continue };
            let interface = part.interface + u32::from(record.port);
            if self.left > 0 {
                self.left -= 1;
                let port = part.line.ports().get(usize::from(record.port));
                if record.is_unsummed || port.is_some_and(|port| is_of_kernel(port)) {
                    sums::fill_in(&mut record);
                }
                self.file.frame(interface, at, &record)?;
                if let Some(written) = self.written.get_mut(interface as usize) {
                    *written += 1;
                }
            }
            part.capture.give_back(record);
        }
        Ok((self.file.take(), more))
    }

    /// Orders the end. Frames may still come until all workers have acknowledged it.
    pub(super) fn order_end(&self) {
        for part in &self.parts {
            // A worker whose order queue is full gets it when the session is dropped (`tidy`).
            let _ = part.line.order(None);
        }
    }

    /// The end of the file: what was counted.
    pub(super) fn close(mut self) -> PcapResult<Vec<u8>> {
        let ended = since_1970();
        for part in &self.parts {
            for (interface, tally) in (part.interface..).zip(part.capture.tallies()) {
                let counted = Statistics {
                    began: self.began,
                    ended,
                    received: tally.received.get(),
                    wanted: tally.wanted.get(),
                    lost: tally.lost.get(),
                    written: self.written.get(interface as usize).copied().unwrap_or(0),
                };
                self.file.statistics(interface, &counted)?;
            }
        }
        Ok(self.file.take())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.captures.held.borrow_mut().append(&mut self.parts);
        self.captures.running.set(false);
        self.captures.tidy();
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
