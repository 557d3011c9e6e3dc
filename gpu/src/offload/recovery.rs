//! When a device that was late is used again.
//!
//! Late is not dead: another process's time slice, a tenant's long kernel or a paused machine delays
//! a batch by milliseconds. After one the device rests, and then gets one batch as a probe. Pauses
//! grow while probes are late too, and begin anew with the first that is not. In: what became of
//! batches, from every engine. Out: whether to send one. Atomics only; nothing here waits or fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// First pause, at least: and twice the deadline, so that a probe is late before the next one goes.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause: a device that works again is in use within a second.
const PAUSE_MAX: Duration = Duration::from_millis(320);

/// What may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admit {
    /// Any batch.
    All,
    /// This one batch, as a probe.
    Probe,
    /// None for now.
    None,
}

/// One device's state, shared by its engines.
#[derive(Debug)]
pub(super) struct Recovery {
    began: Instant,
    /// Nanoseconds since `began` until which nothing is sent; 0: the device is in use.
    rests_until: AtomicU64,
    /// The first pause, in nanoseconds.
    first: u64,
    /// The next one.
    pause: AtomicU64,
    /// Times that the device was late.
    rests: AtomicU64,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Recovery {
    /// Of a device whose batches have until `deadline`.
    pub(super) fn new(deadline: Duration) -> Self {
        let first = nanos(PAUSE_MIN.max(deadline.saturating_mul(2)));
        Self {
            began: Instant::now(),
            rests_until: AtomicU64::new(0),
            first,
            pause: AtomicU64::new(first),
            rests: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        nanos(self.began.elapsed()).max(1)
    }

    /// Whether a batch may be sent; a probe is promised to this caller alone.
    #[inline]
    pub(super) fn admit(&self) -> Admit {
        match self.rests_until.load(Ordering::Relaxed) {
            0 => Admit::All,
            until => self.admit_probe(until),
        }
    }

    #[cold]
    fn admit_probe(&self, until: u64) -> Admit {
        let now = self.now();
        if now < until {
            return Admit::None;
        }
        // The thread that sets the end of the next pause sends the probe.
        let next = now.saturating_add(self.pause.load(Ordering::Relaxed));
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        match self.rests_until.compare_exchange(until, next, order.0, order.1) {
            Ok(_) => Admit::Probe,
            Err(_) => Admit::None,
        }
    }

    /// Whether the device is in use, or may be probed.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        match self.rests_until.load(Ordering::Relaxed) {
            0 => true,
            until => self.now() >= until,
        }
    }

    /// A batch was late; `probe`: it was the one that [`Admit::Probe`] let through.
    pub(super) fn late(&self, probe: bool) {
        let until = self.rests_until.load(Ordering::Relaxed);
        // Of several batches that one stall made late, the first begins the rest.
        if until != 0 && !probe {
            return;
        }
        let pause = self.pause.load(Ordering::Relaxed);
        let next = self.now().saturating_add(pause).max(until);
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        if self.rests_until.compare_exchange(until, next, order.0, order.1).is_ok() {
            let longest = nanos(PAUSE_MAX).max(self.first);
            self.pause.store((2 * pause).min(longest), Ordering::Relaxed);
            self.rests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The probe came back in time.
    pub(super) fn works(&self) {
        self.pause.store(self.first, Ordering::Relaxed);
        self.rests_until.store(0, Ordering::Relaxed);
    }

    /// Times that the device was late.
    pub(super) fn rests(&self) -> u64 {
        self.rests.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stall_is_one_rest_and_ends_with_one_probe() {
        let recovery = Recovery::new(Duration::from_millis(5));
        assert_eq!(recovery.admit(), Admit::All);
        (0..5).for_each(|_| recovery.late(false));
        assert_eq!((recovery.admit(), recovery.rests()), (Admit::None, 1));
        assert!(!recovery.is_open());
        std::thread::sleep(PAUSE_MIN);
        assert!(recovery.is_open());
        assert_eq!([recovery.admit(), recovery.admit()], [Admit::Probe, Admit::None]);
        recovery.late(true);
        assert_eq!((recovery.admit(), recovery.rests()), (Admit::None, 2));
        while recovery.admit() != Admit::Probe {
            std::thread::sleep(Duration::from_millis(1));
        }
        recovery.works();
        assert_eq!(recovery.admit(), Admit::All);
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let recovery = Recovery::new(Duration::from_millis(5));
        for _ in 0..20 {
            recovery.late(true);
        }
        assert_eq!(recovery.pause.load(Ordering::Relaxed), nanos(PAUSE_MAX));
        let slow = Recovery::new(Duration::from_secs(1));
        (0..20).for_each(|_| slow.late(true));
        assert_eq!(slow.pause.load(Ordering::Relaxed), 2_000_000_000);
    }
}
