//! A port whose requests come when they are due, whatever became of those before them (open loop),
//! or as soon as the window allows (closed loop); and how long each took.
//!
//! In: request frames, a rate. Out: the port's queues for one worker, and a histogram of the time from
//! when a request was due to when its reply left, in nanoseconds: a request that had to wait for the window
//! is not forgiven. Both halves are used by one thread. Replies must fit the request's own slot, as
//! those of short values do: the slot shows which request it was.

use driver_shim::ports::memory::MAC;
use driver_shim::{
    Burst, Frame, PortInfo, QueuePair, Region, RxChecksum, RxQueue, TxCaps, TxOffload, TxQueue,
};
use hdrhistogram::{CreationError, Histogram};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Times above this are counted as this: 100 s.
const LATENCY_MAX_NS: u64 = 100_000_000_000;

/// When requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// As soon as a frame is idle.
    Closed,
    /// So many a second on average, at random times (Poisson).
    Open(f64),
}

/// The gaps between requests.
#[derive(Debug)]
pub struct Schedule {
    mean_ns: f64,
    due_ns: f64,
    rng: Xoshiro256PlusPlus,
}

impl Schedule {
    /// `per_s` requests a second from now, with exponential gaps.
    pub fn new(per_s: f64, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { mean_ns: 1e9 / per_s.max(1e-3), due_ns: 0.0, rng }
    }

    /// When the next request is due, if that is not after `now_ns`.
    pub fn due(&mut self, now_ns: u64) -> Option<u64> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "nanoseconds from 0 up; far in the future saturates"
        )]
        let due = self.due_ns as u64;
        if due > now_ns {
            return None;
        }
        let uniform: f64 = self.rng.random();
        self.due_ns -= self.mean_ns * (1.0 - uniform).ln();
        Some(due)
    }
}

/// A histogram of nanoseconds.
///
/// # Errors
/// None: the bounds are fit.
pub fn histogram() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_max(LATENCY_MAX_NS, 3)
}

#[derive(Debug)]
struct State {
    templates: Vec<Vec<u8>>,
    next: usize,
    idle: VecDeque<Frame>,
    /// When the request in each slot was due.
    due_ns: Vec<u64>,
    schedule: Option<Schedule>,
    begun: Instant,
    latency: Histogram<u64>,
    answered: u64,
}

/// The port's far end: what its clients saw.
#[derive(Debug, Clone)]
pub struct Paced(Arc<Mutex<State>>);

impl Paced {
    /// A port with `frames` frames of the region: no more requests are under way at once.
    ///
    /// # Errors
    /// No template, or too few free slots.
    pub fn new(
        region: &Region,
        templates: Vec<Vec<u8>>,
        frames: usize,
        pace: Pace,
        seed: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let idle: VecDeque<Frame> = std::iter::from_fn(|| region.alloc()).take(frames).collect();
        if templates.is_empty() || idle.len() < frames {
            return Err("a paced port needs requests, and free slots for all its frames".into());
        }
        let schedule = match pace {
            Pace::Closed => None,
            Pace::Open(per_s) => Some(Schedule::new(per_s, seed)),
        };
        Ok(Self(Arc::new(Mutex::new(State {
            templates,
            next: 0,
            idle,
            due_ns: vec![0; region.capacity()],
            schedule,
            begun: Instant::now(),
            latency: histogram()?,
            answered: 0,
        }))))
    }

    /// The worker's end.
    pub fn queues(&self) -> QueuePair {
        QueuePair { rx: Box::new(Rx(self.clone())), tx: Box::new(Tx(self.clone())) }
    }

    /// Facts about the port.
    pub fn info(&self) -> PortInfo {
        PortInfo {
            name: "memory:paced".to_owned(),
            mac: MAC,
            mtu: 1500,
            tx_caps: TxCaps::default(),
            any_destination: false,
            busy_poll: true,
            flows_stray: false,
        }
    }

    /// Forgets what was measured; the schedule begins anew.
    pub fn restart(&self) {
        let mut state = self.state();
        state.latency.reset();
        state.answered = 0;
        state.begun = Instant::now();
        if let Some(schedule) = &mut state.schedule {
            schedule.due_ns = 0.0;
        }
        // What is under way is taken as if it had begun now.
        state.due_ns.fill(0);
    }

    /// Replies since then.
    pub fn answered(&self) -> u64 {
        self.state().answered
    }

    /// Their times, in nanoseconds.
    pub fn latency(&self) -> Histogram<u64> {
        self.state().latency.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No other thread holds it: all is done by one thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

struct Rx(Paced);

impl RxQueue for Rx {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let mut guard = self.0.state();
        let state = &mut *guard;
        let (before, now) = (into.len(), state.now_ns());
        while !into.is_full() {
            let Some(mut frame) = state.idle.pop_front() else { break };
            let due = match &mut state.schedule {
                None => Some(now),
                Some(schedule) => schedule.due(now),
            };
            let Some(due) = due else {
                state.idle.push_front(frame);
                break;
            };
            if let Some(place) = state.due_ns.get_mut(frame.slot() as usize) {
                *place = due;
            }
            let template = state.templates.get(state.next).map_or(&[][..], Vec::as_slice);
            state.next = if state.next + 1 < state.templates.len() { state.next + 1 } else { 0 };
            // Fits: requests are made by `UdpFrame`, for a slot.
            let filled = frame.fill(template);
            debug_assert!(filled.is_ok());
            frame.rx = RxChecksum::default();
            frame.tx = TxOffload::default();
            into.push(frame);
        }
        into.len() - before
    }
}

struct Tx(Paced);

impl TxQueue for Tx {
    fn burst(&mut self, from: &mut Burst) -> usize {
        let mut guard = self.0.state();
        let state = &mut *guard;
        let (n, now) = (from.len(), state.now_ns());
        for frame in from.drain(..) {
            let due = state.due_ns.get(frame.slot() as usize).copied().unwrap_or(now);
            state.latency.saturating_record(now.saturating_sub(due));
            state.idle.push_back(frame);
        }
        state.answered += n as u64;
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_shim::Pages;

    #[test]
    fn requests_come_when_they_are_due() {
        let mut schedule = Schedule::new(1_000_000.0, 1);
        let mut last = 0;
        let mut n = 0;
        while let Some(due) = schedule.due(100_000_000) {
            assert!(due >= last);
            (last, n) = (due, n + 1);
        }
        // 100 ms at a million a second.
        assert!((99_000..101_000).contains(&n), "{n}");
        assert_eq!(schedule.due(last), None);
    }

    #[test]
    fn a_frame_goes_round_and_its_time_is_counted() {
        let region = Region::new(64, Pages::Small).unwrap();
        let paced =
            Paced::new(&region, vec![vec![1; 60], vec![2; 60]], 3, Pace::Closed, 1).unwrap();
        let mut queues = paced.queues();
        let mut burst = Burst::new();
        assert_eq!(queues.rx.burst(&mut burst), 3);
        assert_eq!(burst.iter().map(|f| f.bytes()[0]).collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!(queues.tx.burst(&mut burst), 3);
        assert_eq!((paced.answered(), paced.latency().len()), (3, 3));
        paced.restart();
        assert_eq!((paced.answered(), paced.latency().len()), (0, 0));
        let many = Paced::new(&region, vec![vec![1; 60]], 62, Pace::Open(1.0), 1);
        assert!(many.is_err(), "61 slots are free");
    }
}
