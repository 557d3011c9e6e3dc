//! The side door: frames that are not ours, to the kernel and back (D9).
//!
//! ```text
//!  worker ── offer ──► rate ──► queue ──► write ──► kernel
//!  worker ◄─ take_outgoing ─── queue ◄── rate ◄── read
//! ```
//!
//! Workers never wait: a frame above the rate, or one that finds the queue full, comes back to be
//! dropped by name. The other direction never loses a frame: what is above the rate, has no slot
//! or finds the queue full stays with the kernel, which slows its senders down. One thread of its
//! own, in [`SideDoor::run`], makes the system calls. Memory is fixed by the two queues.
//!
//! Frames belong to whoever holds them; those left in the queues go home when the door is
//! dropped. What fails is counted: [`SideDoorCounters`].
#![deny(clippy::indexing_slicing)]

use crate::counters::Counter;
use crate::drop_reason::DropReason;
use crate::wire::eth;
use crossbeam_queue::ArrayQueue;
use driver_shim::ports::tap::Tap;
use driver_shim::{BURST_MAX, Burst, Frame, Region};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Frames per second each way, unless said otherwise: plenty for SETs over TCP and for ARP, little
/// beside what a worker serves.
pub const RATE_PPS_DEFAULT: NonZeroU32 = NonZeroU32::new(10_000).unwrap();

/// Frames that may come at once after a pause: two full bursts of a worker.
const RATE_BURST: u32 = 128;
const _: () = assert!(RATE_BURST as usize == 2 * BURST_MAX);
/// Places in each queue: what the rate lets through at once always fits.
const QUEUE_FRAMES: usize = 2 * RATE_BURST as usize;
/// First sleep after work: a TCP peer on the same network answers in this time.
const IDLE_MIN: Duration = Duration::from_micros(20);
/// Longest sleep, and so the longest that a punted frame or a stop waits.
const IDLE_MAX: Duration = Duration::from_millis(1);

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

    /// Sleeps until a frame can be read, at most `at_most`.
    fn wait(&self, at_most: Duration);
}

impl KernelLink for Tap {
    fn read(&mut self, frame: &mut Frame) -> io::Result<bool> {
        Self::read(self, frame)
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        Self::write(self, frame)
    }

    fn wait(&self, at_most: Duration) {
        Self::wait(self, at_most);
    }
}

/// What went through. When nothing moves, `punted = written + write_errors + to_write` and
/// `read = sent_on + runts + to_send`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SideDoorCounters {
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
}

/// A way to the kernel for one port. Shared by its workers and the door's own thread.
pub struct SideDoor {
    link: Mutex<Box<dyn KernelLink>>,
    region: Region,
    to_kernel: ArrayQueue<Frame>,
    to_wire: ArrayQueue<Frame>,
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
}

impl fmt::Debug for SideDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SideDoor").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl SideDoor {
    /// A door to `link` that lets `rate_pps` frames per second through each way. Frames from the
    /// kernel take slots of `region`.
    pub fn new(link: impl KernelLink + 'static, rate_pps: NonZeroU32, region: Region) -> Self {
        Self {
            link: Mutex::new(Box::new(link)),
            region,
            to_kernel: ArrayQueue::new(QUEUE_FRAMES),
            to_wire: ArrayQueue::new(QUEUE_FRAMES),
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
        }
    }

    /// Takes a frame for the kernel. Called by workers; never waits.
    ///
    /// # Errors
    /// The frame, and [`DropReason::SideDoorRate`] or [`DropReason::SideDoorFull`].
    pub fn offer(&self, frame: Frame) -> Result<(), (Frame, DropReason)> {
        self.offer_at(frame, self.now_ns())
    }

    fn offer_at(&self, frame: Frame, now_ns: u64) -> Result<(), (Frame, DropReason)> {
        if !self.rate_in.take(now_ns) {
            return Err((frame, DropReason::SideDoorRate));
        }
        self.to_kernel.push(frame).map_err(|frame| (frame, DropReason::SideDoorFull))?;
        self.punted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Appends frames that the kernel wants sent to `into`, as many as it has room for. Called
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
    pub fn counters(&self) -> SideDoorCounters {
        SideDoorCounters {
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
        }
    }

    /// Moves frames both ways until `stop` is set, then writes what workers have punted so far.
    /// For a thread of its own: sleeps at most a millisecond when there is nothing to do, less
    /// right after work. A second caller returns at once.
    pub fn run(&self, stop: &AtomicBool) {
        let Some(mut link) = self.link.try_lock() else { return };
        let mut idle = IDLE_MIN;
        while !stop.load(Ordering::Relaxed) {
            let written = self.write_some(link.as_mut());
            let (read, then) = self.read_some(link.as_mut(), self.now_ns());
            idle = if written + read > 0 { IDLE_MIN } else { (idle * 2).min(IDLE_MAX) };
            match then {
                Then::Again => {}
                Then::Wait if written == BURST_MAX => {}
                Then::Wait => link.wait(idle),
                // A frame or an error waits there: the link would not let us sleep.
                Then::Pause(at_most) => std::thread::sleep(at_most.min(IDLE_MAX)),
            }
        }
        // Once what the queue holds, and no longer: a worker that did not stop may go on punting.
        for _ in 0..=QUEUE_FRAMES / BURST_MAX {
            if self.write_some(link.as_mut()) == 0 {
                break;
            }
        }
    }

    /// Writes a burst at most, and says how many frames that was.
    fn write_some(&self, link: &mut dyn KernelLink) -> usize {
        for n in 0..BURST_MAX {
            let Some(frame) = self.to_kernel.pop() else { return n };
            match link.write(frame.bytes()) {
                Ok(()) => self.written.inc(),
                Err(_) => self.write_errors.inc(),
            }
        }
        BURST_MAX
    }

    /// Reads a burst at most, and says how many frames that was and what to do after it.
    fn read_some(&self, link: &mut dyn KernelLink, now_ns: u64) -> (usize, Then) {
        for n in 0..BURST_MAX {
            let wait_ns = self.rate_out.wait_ns(now_ns);
            if wait_ns > 0 {
                self.held_back.inc();
                return (n, Then::Pause(Duration::from_nanos(wait_ns)));
            }
            let slot = if self.to_wire.is_full() { None } else { self.region.alloc() };
            let Some(mut frame) = slot else {
                self.held_back.inc();
                return (n, Then::Pause(IDLE_MIN));
            };
            match link.read(&mut frame) {
                Ok(true) => {}
                Ok(false) => return (n, Then::Wait),
                Err(_) => {
                    self.read_errors.inc();
                    return (n, Then::Pause(IDLE_MAX));
                }
            }
            self.read.inc();
            self.rate_out.take(now_ns);
            // Nobody else pushes, so there is still a place.
            if frame.len() < eth::HEADER_BYTES || self.to_wire.push(frame).is_err() {
                self.runts.inc();
            }
        }
        (BURST_MAX, Then::Again)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What the door's thread does after a round.
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
mod tests {
    use super::*;
    use driver_shim::Pages;
    use std::collections::VecDeque;
    use std::sync::Arc;

    #[derive(Default)]
    struct Kernel {
        wrote: Vec<Vec<u8>>,
        to_read: VecDeque<io::Result<Vec<u8>>>,
        refuse: bool,
    }

    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<Kernel>>);

    impl KernelLink for Fake {
        fn read(&mut self, frame: &mut Frame) -> io::Result<bool> {
            match self.0.lock().to_read.pop_front() {
                None => Ok(false),
                Some(bytes) => {
                    frame.fill(&bytes?).unwrap();
                    Ok(true)
                }
            }
        }

        fn write(&mut self, frame: &[u8]) -> io::Result<()> {
            let mut k = self.0.lock();
            if k.refuse {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            k.wrote.push(frame.to_vec());
            Ok(())
        }

        fn wait(&self, at_most: Duration) {
            assert!(at_most <= IDLE_MAX);
            std::thread::sleep(at_most);
        }
    }

    fn door(rate: u32, slots: u32) -> (SideDoor, Fake, Region) {
        let (fake, region) = (Fake::default(), Region::new(slots, Pages::Small).unwrap());
        let rate = NonZeroU32::new(rate).unwrap();
        (SideDoor::new(fake.clone(), rate, region.clone()), fake, region)
    }

    fn frame(region: &Region, n: usize) -> Frame {
        let mut f = region.alloc().unwrap();
        f.fill(&bytes(n)).unwrap();
        f
    }

    fn bytes(n: usize) -> Vec<u8> {
        [&[0; 14], n.to_be_bytes().as_slice()].concat()
    }

    fn assert_balanced(c: SideDoorCounters) {
        assert_eq!(c.punted, c.written + c.write_errors + c.to_write, "{c:?}");
        assert_eq!(c.read, c.sent_on + c.runts + c.to_send, "{c:?}");
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let r = Rate::new(NonZeroU32::new(1000).unwrap());
        let at_once = |now| (0..1000).filter(|_| r.take(now)).count();
        assert_eq!(at_once(0), RATE_BURST as usize);
        assert_eq!(at_once(0), 0);
        assert_eq!(at_once(5_000_000_000), RATE_BURST as usize);
        let start = 10_000_000_000;
        let all = (0..2000).filter(|i| r.take(start + i * 500_000)).count();
        // A second at 1000 per second, and the burst.
        assert!(all.abs_diff(1000 + RATE_BURST as usize) <= 1, "{all}");
    }

    #[test]
    fn a_bucket_says_how_long_to_wait() {
        let r = Rate::new(NonZeroU32::new(1000).unwrap());
        while r.take(0) {}
        let wait = r.wait_ns(0);
        assert!(wait > 0 && wait <= 1_000_000);
        assert!(!r.take(wait - 1));
        assert_eq!(r.wait_ns(wait), 0);
        assert!(r.take(wait));
    }

    #[test]
    fn frames_above_the_rate_or_the_queue_come_back_by_name() {
        let (door, mut fake, region) = door(1000, 2048);
        let mut refused = Vec::new();
        // Time stands still: the burst passes, no more.
        for n in 0..RATE_BURST as usize + 3 {
            refused.extend(door.offer_at(frame(&region, n), 1).err().map(|(_, r)| r));
        }
        assert_eq!(refused, [DropReason::SideDoorRate; 3]);
        // A second is a burst: the queue takes two.
        for n in 0..RATE_BURST as usize + 2 {
            let sent = door.offer_at(frame(&region, n), 1_000_000_000);
            let full = sent.err().map(|(_, r)| r);
            assert_eq!(full, (n >= RATE_BURST as usize).then_some(DropReason::SideDoorRate));
        }
        let late = door.offer_at(frame(&region, 0), 2_000_000_000).unwrap_err();
        assert_eq!(late.1, DropReason::SideDoorFull);
        drop(late);
        let queued = door.counters();
        assert_eq!((queued.punted, queued.to_write), (256, 256));
        assert_balanced(queued);
        while door.write_some(&mut fake) > 0 {}
        assert_eq!(door.counters().written, 256);
        assert_balanced(door.counters());
        let order: Vec<_> = (0..128).chain(0..128).map(bytes).collect();
        assert_eq!(fake.0.lock().wrote, order);
        assert_eq!(region.available(), region.capacity());
    }

    #[test]
    fn frames_that_the_kernel_refuses_are_counted_and_go_home() {
        let (door, mut fake, region) = door(1000, 8);
        fake.0.lock().refuse = true;
        door.offer(frame(&region, 1)).unwrap();
        assert_eq!(door.write_some(&mut fake), 1);
        assert_eq!(door.counters().write_errors, 1);
        assert_balanced(door.counters());
        assert_eq!(region.available(), 8);
    }

    #[test]
    fn the_kernels_frames_wait_for_the_rate_a_slot_or_the_queue_and_none_is_lost() {
        let (door, mut fake, region) = door(1000, 400);
        fake.0.lock().to_read = (0..600).map(|n| Ok(bytes(n))).collect();
        let mut now = 0;
        let mut read_all = |now: u64| {
            loop {
                match door.read_some(&mut fake, now) {
                    (_, Then::Again) => {}
                    (_, then) => return then,
                }
            }
        };
        // The rate.
        assert!(matches!(read_all(now), Then::Pause(d) if d <= Duration::from_millis(1)));
        assert_eq!(door.counters().read, u64::from(RATE_BURST));
        // The queue.
        for _ in 0..2 {
            now += 1_000_000_000;
            read_all(now);
        }
        assert_eq!(door.counters().to_send, QUEUE_FRAMES as u64);
        assert_eq!(read_all(now), Then::Pause(IDLE_MIN));
        // A slot.
        let mut burst = Burst::new();
        door.take_outgoing(&mut burst);
        assert_eq!(burst.len(), BURST_MAX);
        let hold: Vec<Frame> = std::iter::from_fn(|| region.alloc()).collect();
        assert_eq!(read_all(now), Then::Pause(IDLE_MIN));
        drop(hold);
        assert_balanced(door.counters());
        let mut sent: Vec<_> = burst.drain(..).map(|f| f.bytes().to_vec()).collect();
        while sent.len() < 600 {
            now += 1_000_000_000;
            read_all(now);
            door.take_outgoing(&mut burst);
            sent.extend(burst.drain(..).map(|f| f.bytes().to_vec()));
        }
        assert_eq!(sent, (0..600).map(bytes).collect::<Vec<_>>());
        let c = door.counters();
        assert_eq!((c.read, c.sent_on, c.to_send), (600, 600, 0));
        assert!(c.held_back >= 4);
        assert_balanced(c);
        assert_eq!(region.available(), region.capacity());
    }

    #[test]
    fn runts_and_failed_reads_are_counted() {
        let (door, mut fake, region) = door(1000, 8);
        fake.0.lock().to_read = [Ok(vec![0; 13]), Err(io::ErrorKind::Other.into())].into();
        assert_eq!(door.read_some(&mut fake, 0), (1, Then::Pause(IDLE_MAX)));
        let c = door.counters();
        assert_eq!((c.read, c.runts, c.read_errors), (1, 1, 1));
        assert_balanced(c);
        assert_eq!(region.available(), 8);
    }

    #[test]
    fn the_thread_moves_frames_both_ways_and_ends_with_an_empty_queue() {
        let (door, fake, region) = door(1_000_000, 64);
        fake.0.lock().to_read = (0..50).map(|n| Ok(bytes(n))).collect();
        let stop = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(10);
        std::thread::scope(|s| {
            s.spawn(|| door.run(&stop));
            let (mut got, mut n) = (Burst::new(), 0);
            while got.len() < 50 || fake.0.lock().wrote.len() < 200 {
                if n < 200
                    && let Some(mut f) = region.alloc()
                {
                    f.fill(&bytes(n)).unwrap();
                    n += usize::from(door.offer(f).is_ok());
                }
                door.take_outgoing(&mut got);
                assert!(Instant::now() < deadline, "{door:?}");
            }
            // A second caller has nothing to do.
            door.run(&AtomicBool::new(false));
            for n in 0..10 {
                door.offer(frame(&region, n)).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let c = door.counters();
        assert_eq!((c.written, c.to_write, c.read, c.sent_on), (210, 0, 50, 50));
        assert_balanced(c);
        drop(door);
        assert_eq!(region.available(), region.capacity());
    }

    #[test]
    fn frames_left_in_a_door_go_home_with_it() {
        let (door, _, region) = door(1000, 8);
        door.offer(frame(&region, 1)).unwrap();
        assert_eq!(region.available(), 7);
        drop(door);
        assert_eq!(region.available(), 8);
    }
}
