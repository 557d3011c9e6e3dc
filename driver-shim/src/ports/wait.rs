//! Sleeping until the kernel, or another thread, has something for us, with a bound.

use arrayvec::ArrayVec;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// Most descriptors that one wait looks at.
pub(crate) const WAIT_FDS_MAX: usize = 16;

/// Sleeps until one of the first [`WAIT_FDS_MAX`] of `fds` is readable, a signal comes, or
/// `at_most` is over.
pub(crate) fn until_readable<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>, at_most: Duration) {
    let mut polled: ArrayVec<PollFd<'_>, WAIT_FDS_MAX> =
        fds.take(WAIT_FDS_MAX).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    // Whatever it says, the caller looks next: an error here is a wait that was too short.
    let _ = ppoll(&mut polled, Some(TimeSpec::from_duration(at_most)), None);
}

/// Wakes one thread from its sleep. While that thread is awake, a wake-up is a read of memory and no call.
#[derive(Debug)]
pub struct Waker {
    event: EventFd,
    sleeping: AtomicBool,
}

impl Waker {
    /// One whose thread is awake.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let event = EventFd::from_value_and_flags(0, flags)?;
        Ok(Self { event, sleeping: AtomicBool::new(false) })
    }

    /// Ends the thread's sleep, if it sleeps. For any thread, after it has put where the sleeper looks what that is to
    /// see.
    pub fn wake(&self) {
        // With the one in `sleep_unless`: either this thread sees that the other sleeps, or the other sees what this
        // one has put there.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            // It fails only when the sum would overflow: then the descriptor is readable.
            let _ = self.event.write(1);
        }
    }

    /// Calls `sleep` with a descriptor that is readable as soon as [`Self::wake`] was called; not where `work` says,
    /// last of all, that there is something to do. For the one thread that sleeps.
    pub fn sleep_unless(&self, work: impl FnOnce() -> bool, sleep: impl FnOnce(BorrowedFd<'_>)) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !work() {
            sleep(self.event.as_fd());
            // A wake-up that is not written yet ends the next sleep at once, and no more than that.
            let _ = self.event.read();
        }
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scopeguard::defer;
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    fn sleep(waker: &Waker, work: impl FnOnce() -> bool, at_most: Duration) -> Duration {
        let begun = Instant::now();
        waker.sleep_unless(work, |woken| until_readable(std::iter::once(woken), at_most));
        begun.elapsed()
    }

    #[test]
    fn a_sleep_lasts_unless_there_is_work_or_a_call() {
        let (waker, short, long) =
            (Waker::new().unwrap(), Duration::from_millis(20), Duration::from_secs(30));
        assert!(sleep(&waker, || true, long) < long / 2);
        // The thread was awake: it is forgotten.
        waker.wake();
        assert!(sleep(&waker, || false, short) >= short);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The first calls may find it awake.
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(short / 4);
                    waker.wake();
                }
            });
            let slept = sleep(&waker, || false, long);
            over.store(true, Ordering::Relaxed);
            assert!(slept < long / 2, "{slept:?}");
        });
        // What the other thread may have called since.
        sleep(&waker, || false, Duration::ZERO);
        // Between the last look and the sleep.
        let called = || {
            waker.wake();
            false
        };
        assert!(sleep(&waker, called, long) < long / 2);
        assert!(sleep(&waker, || false, short) >= short);
    }

    #[test]
    fn nothing_that_was_put_there_is_slept_over() {
        let (waker, put, seen) = (Waker::new().unwrap(), AtomicU32::new(0), AtomicU32::new(0));
        let (rounds, long) = (5_000, Duration::from_secs(30));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=rounds {
                    put.store(n, Ordering::Relaxed);
                    waker.wake();
                    while seen.load(Ordering::Relaxed) < n {
                        std::thread::yield_now();
                    }
                }
            });
            // The other ends, too, when this fails.
            defer! { seen.store(rounds, Ordering::Relaxed) }
            let mut have = 0;
            while have < rounds {
                let slept = sleep(&waker, || put.load(Ordering::Relaxed) > have, long);
                assert!(slept < long, "over number {have}");
                have = put.load(Ordering::Relaxed);
                seen.store(have, Ordering::Relaxed);
            }
        });
    }
}
