//! The exception path: frames that are not ours, to the kernel and back (D9).
//!
//! ```text
//!  worker ── offer ──► rate ──► queue ──► write ──► kernel
//!  worker ◄─ take_outgoing ─── queue ◄── rate ◄── read
//! ```
//!
//! Workers never wait: a frame above the rate, or one that finds the queue full, comes back to be
//! dropped by name. The other direction never loses a frame: what is above the rate, has no slot
//! or finds the queue full stays with the kernel, which slows its senders down. One thread of its
//! own, in [`ExceptionPath::run`], makes the system calls. Memory is fixed by the two queues.
//!
//! When the device behind it is taken away, the exception path tries to make it anew, now and then; until
//! it is there again, what workers punt is refused and counted.
//!
//! Frames belong to the thread that holds them; those left in the queues return to the pool when the
//! [`ExceptionPath`] is dropped. What fails is counted: [`ExceptionPathCounters`].
#![deny(clippy::indexing_slicing)]

mod mend;

use crate::counters::Counter;
use crossbeam_queue::ArrayQueue;
use driver_shim::ports::Waker;
use driver_shim::ports::tap::{self, Tap};
use driver_shim::{BURST_MAX, Burst, Frame, Region};
use mend::Mend;
use parking_lot::Mutex;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::DropReason;
use wire::eth;

/// Frames per second each way, unless said otherwise: plenty for ARP and ssh and for SETs over TCP of a
/// cache that is read over UDP, little beside what a worker serves.
pub const RATE_PPS_DEFAULT: NonZeroU32 = NonZeroU32::new(10_000).unwrap();

/// Frames that may come at once after a pause: two full bursts of a worker.
const RATE_BURST: u32 = 128;
const _: () = assert!(RATE_BURST as usize == 2 * BURST_MAX);
/// Places in each queue: what the rate lets through at once always fits.
const QUEUE_FRAMES: usize = 2 * RATE_BURST as usize;
/// Pause for a slot, or a place in the queue to the workers.
const FULL_PAUSE: Duration = Duration::from_micros(20);
/// Pause after an error, and longest pause for the rate.
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Longest sleep where frames both ways end it, and so the longest that a stop waits.
const IDLE_MAX: Duration = Duration::from_millis(20);

/// How often the other side is looked at for what others have changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The kernel's end: a TAP device, or a fake of one.
pub trait KernelLink: Send {
    /// Reads the next frame from the kernel into `frame`; `false` when none waits. Never blocks.
    ///
    /// # Errors
    /// The kernel's.
    fn read(&mut self, frame: &mut Frame) -> io::Result<bool>;

    /// Hands one Ethernet frame to the kernel. Never blocks.
    ///
    /// # Errors
    /// The kernel's; the frame was not taken.
    fn write(&mut self, frame: &[u8]) -> io::Result<()>;

    /// Sleeps until a frame can be read or `or` is readable, at most `at_most`.
    fn wait(&self, or: BorrowedFd<'_>, at_most: Duration);

    /// Whether this error says that there is nothing on the other side any more.
    fn is_gone(&self, error: &io::Error) -> bool;

    /// Makes the other side anew.
    ///
    /// # Errors
    /// Why that cannot be; nothing has changed.
    fn reopen(&mut self) -> io::Result<()>;

    /// Restores settings of the other side that an administrator or a program has changed. Called now and then.
    fn put_right(&mut self);
}

impl KernelLink for Tap {
    fn read(&mut self, frame: &mut Frame) -> io::Result<bool> {
        Self::read(self, frame)
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        Self::write(self, frame)
    }

    fn wait(&self, or: BorrowedFd<'_>, at_most: Duration) {
        Self::wait(self, Some(or), at_most);
    }

    fn is_gone(&self, error: &io::Error) -> bool {
        tap::is_gone(error)
    }

    fn reopen(&mut self) -> io::Result<()> {
        Self::reopen(self).map_err(io::Error::other)
    }

    fn put_right(&mut self) {
        // Fails when the device is gone, which reading shows, or without the right to; what it did, and what
        // it could not, is in the log.
        let _ = self.keep_mac();
    }
}

/// What went through. When nothing moves, `punted = written + write_errors + to_write` and
/// `read = sent_on + runts + to_send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExceptionPathCounters {
    /// Frames taken from workers.
    pub punted: u64,
    /// Frames that the kernel took.
    pub written: u64,
    /// Frames that the kernel refused; they are lost.
    pub write_errors: u64,
    /// Frames that wait for the kernel now.
    pub to_write: u64,
    /// Frames read from the kernel.
    pub read: u64,
    /// Frames given to a worker to transmit.
    pub sent_on: u64,
    /// Frames from the kernel that are shorter than an Ethernet header; they are lost.
    pub runts: u64,
    /// Frames that wait for a worker now.
    pub to_send: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Rounds that left the kernel waiting: above the rate, no slot, or the queue full.
    pub held_back: u64,
    /// There is something on the other side: 1, or 0.
    pub up: u64,
    /// Times that the other side was made anew.
    pub reopened: u64,
}

/// A way to the kernel for one port. Shared by its workers and the exception path's own thread.
pub struct ExceptionPath {
    link: Mutex<Box<dyn KernelLink>>,
    region: Region,
    to_kernel: ArrayQueue<Frame>,
    to_wire: ArrayQueue<Frame>,
    /// Wakes the thread of [`Self::run`] for what workers punt.
    waker: Waker,
    rate_in: Rate,
    rate_out: Rate,
    started: Instant,
    // Any worker counts in these two,
    punted: AtomicU64,
    sent_on: AtomicU64,
    // the thread that holds the link in the rest.
    written: Counter,
    write_errors: Counter,
    read: Counter,
    runts: Counter,
    read_errors: Counter,
    held_back: Counter,
    up: Counter,
    reopened: Counter,
}

base::opaque!(ExceptionPath, |it| counters: it.counters());

impl ExceptionPath {
    /// An exception path to `link` that passes `rate_pps` frames per second each way. Frames from the
    /// kernel take slots of `region`.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn new(
        link: impl KernelLink + 'static,
        rate_pps: NonZeroU32,
        region: Region,
    ) -> io::Result<Self> {
        let up = Counter::default();
        up.set(1);
        Ok(Self {
            link: Mutex::new(Box::new(link)),
            region,
            to_kernel: ArrayQueue::new(QUEUE_FRAMES),
            to_wire: ArrayQueue::new(QUEUE_FRAMES),
            waker: Waker::new()?,
            rate_in: Rate::new(rate_pps),
            rate_out: Rate::new(rate_pps),
            started: Instant::now(),
            punted: AtomicU64::new(0),
            sent_on: AtomicU64::new(0),
            written: Counter::default(),
            write_errors: Counter::default(),
            read: Counter::default(),
            runts: Counter::default(),
            read_errors: Counter::default(),
            held_back: Counter::default(),
            up,
            reopened: Counter::default(),
        })
    }

    /// Takes a frame for the kernel. Called by workers; never waits.
    ///
    /// # Errors
    /// The frame, and [`DropReason::ExceptionPathRate`] or [`DropReason::ExceptionPathFull`].
    pub fn offer(&self, frame: Frame) -> Result<(), (Frame, DropReason)> {
        self.offer_at(frame, self.now_ns())
    }

    fn offer_at(&self, frame: Frame, now_ns: u64) -> Result<(), (Frame, DropReason)> {
        if !self.rate_in.take(now_ns) {
            return Err((frame, DropReason::ExceptionPathRate));
        }
        self.to_kernel.push(frame).map_err(|frame| (frame, DropReason::ExceptionPathFull))?;
        self.punted.fetch_add(1, Ordering::Relaxed);
        self.waker.wake();
        Ok(())
    }

    /// Appends the kernel's outgoing frames to `into`, as many as fit. Called
    /// by workers; never waits.
    pub fn take_outgoing(&self, into: &mut Burst) {
        let before = into.len();
        while !into.is_full()
            && let Some(frame) = self.to_wire.pop()
        {
            into.push(frame);
        }
        let taken = into.len() - before;
        if taken > 0 {
            self.sent_on.fetch_add(taken as u64, Ordering::Relaxed);
        }
    }

    /// Counts as of now.
    pub fn counters(&self) -> ExceptionPathCounters {
        ExceptionPathCounters {
            punted: self.punted.load(Ordering::Relaxed),
            written: self.written.get(),
            write_errors: self.write_errors.get(),
            to_write: self.to_kernel.len() as u64,
            read: self.read.get(),
            sent_on: self.sent_on.load(Ordering::Relaxed),
            runts: self.runts.get(),
            to_send: self.to_wire.len() as u64,
            read_errors: self.read_errors.get(),
            held_back: self.held_back.get(),
            up: self.up.get(),
            reopened: self.reopened.get(),
        }
    }

    /// Restores what others have changed of the other side since it was made, as [`ExceptionPath::run`] does
    /// now and then. For who is about to give up the right to. Does nothing while that runs.
    pub fn put_right(&self) {
        if let Some(mut link) = self.link.try_lock() {
            link.put_right();
        }
    }

    /// Moves frames both ways until `stop` is set, then writes what workers have punted so far.
    /// For a thread of its own, which sleeps when there is nothing to do. A second caller returns at once.
    pub fn run(&self, stop: &AtomicBool) {
        let Some(mut link) = self.link.try_lock() else { return };
        let (mut mend, mut looked) = (Mend::default(), Instant::now());
        while !stop.load(Ordering::Relaxed) {
            self.keep_up(&mut mend, link.as_mut());
            if looked.elapsed() >= LOOK_EVERY {
                link.put_right();
                looked = Instant::now();
            }
            let written = self.write_some(link.as_mut(), &mut mend);
            let then = self.read_some(link.as_mut(), self.now_ns(), &mut mend);
            match then {
                Then::Again => {}
                Then::Wait if written == BURST_MAX => {}
                Then::Wait => self.waker.sleep_unless(
                    || !self.to_kernel.is_empty() || stop.load(Ordering::Relaxed),
                    |woken| link.wait(woken, IDLE_MAX),
                ),
                // A frame or an error waits there: the link would not let us sleep.
                Then::Pause(at_most) => std::thread::sleep(at_most.min(PAUSE_MAX)),
            }
        }
        // Once what the queue holds, and no longer: a worker that did not stop may go on punting.
        for _ in 0..=QUEUE_FRAMES / BURST_MAX {
            if self.write_some(link.as_mut(), &mut mend) == 0 {
                break;
            }
        }
    }

    /// Makes the other side anew when it is gone and a try is due.
    fn keep_up(&self, mend: &mut Mend, link: &mut dyn KernelLink) {
        if mend.is_due(Instant::now()) {
            let made = link.reopen().is_ok();
            mend.tried(made, Instant::now());
            if made {
                self.reopened.inc();
            }
        }
        self.up.set((!mend.is_broken()).into());
    }

    /// Writes a burst at most, and says how many frames that was.
    fn write_some(&self, link: &mut dyn KernelLink, mend: &mut Mend) -> usize {
        for n in 0..BURST_MAX {
            let Some(frame) = self.to_kernel.pop() else { return n };
            match link.write(frame.bytes()) {
                Ok(()) => self.written.inc(),
                Err(error) => {
                    self.write_errors.inc();
                    if link.is_gone(&error) {
                        mend.broke(Instant::now());
                    }
                }
            }
        }
        BURST_MAX
    }

    /// Reads a burst at most, and says what to do after it.
    fn read_some(&self, link: &mut dyn KernelLink, now_ns: u64, mend: &mut Mend) -> Then {
        for _ in 0..BURST_MAX {
            if mend.is_broken() {
                return Then::Pause(PAUSE_MAX);
            }
            let wait_ns = self.rate_out.wait_ns(now_ns);
            if wait_ns > 0 {
                self.held_back.inc();
                return Then::Pause(Duration::from_nanos(wait_ns));
            }
            let slot = if self.to_wire.is_full() { None } else { self.region.alloc() };
            let Some(mut frame) = slot else {
                self.held_back.inc();
                return Then::Pause(FULL_PAUSE);
            };
            match link.read(&mut frame) {
                Ok(true) => {}
                Ok(false) => return Then::Wait,
                Err(error) => {
                    self.read_errors.inc();
                    if link.is_gone(&error) {
                        mend.broke(Instant::now());
                    }
                    return Then::Pause(PAUSE_MAX);
                }
            }
            self.read.inc();
            self.rate_out.take(now_ns);
            // No other thread pushes, so there is still a free slot.
            if frame.len() < eth::HEADER_BYTES || self.to_wire.push(frame).is_err() {
                self.runts.inc();
            }
        }
        Then::Again
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What the exception path's thread does after a round.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    /// More may wait: go on.
    Again,
    /// The kernel has nothing: sleep on the link.
    Wait,
    /// The kernel has something that cannot be taken now: sleep without looking.
    Pause(Duration),
}

/// A token bucket as the time at which it will be full again (the "virtual scheduling" form of
/// ITU-T I.371's algorithm): one word, no lock, no timer.
#[derive(Debug)]
struct Rate {
    interval_ns: u64,
    burst_ns: u64,
    full_at_ns: AtomicU64,
}

impl Rate {
    fn new(per_second: NonZeroU32) -> Self {
        let interval_ns = (1_000_000_000 / u64::from(per_second.get())).max(1);
        let burst_ns = interval_ns * u64::from(RATE_BURST - 1);
        Self { interval_ns, burst_ns, full_at_ns: AtomicU64::new(0) }
    }

    /// Takes a token if there is one.
    fn take(&self, now_ns: u64) -> bool {
        let spend = |full_at: u64| {
            let from = full_at.max(now_ns);
            (from - now_ns <= self.burst_ns).then(|| from.saturating_add(self.interval_ns))
        };
        self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }

    /// Nanoseconds until there is a token; 0 if there is one.
    fn wait_ns(&self, now_ns: u64) -> u64 {
        let full_at = self.full_at_ns.load(Ordering::Relaxed);
        full_at.saturating_sub(now_ns).saturating_sub(self.burst_ns)
    }
}

#[cfg(test)]
mod tests;
