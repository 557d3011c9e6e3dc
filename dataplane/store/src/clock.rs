//! The store's clock: whole seconds, moved on by housekeeping, so that no look-up makes a system call.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest exptime that counts from now; a larger one is absolute Unix time (protocol.txt).
const RELATIVE_MAX_SECONDS: i64 = 60 * 60 * 24 * 30;

/// The clock's reading at start-up: above [`ALREADY`], so that there is a past.
const START_SECONDS: u32 = 2;

/// An expiry time that has always passed.
const ALREADY: u32 = 1;

/// Seconds since the store was first made; a store that is recovered again goes on with the clock
/// that its items' times are given on.
#[derive(Debug)]
pub struct Clock {
    now: AtomicU32,
    /// It moves on by `skip_ahead` alone.
    held: AtomicBool,
    started: Instant,
    /// The reading at start-up.
    started_at: u32,
    /// What Unix time was when the reading was 0, or would have been.
    zero_unix: i64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self::starting_at(START_SECONDS)
    }

    /// A clock that goes on from this reading. It moves on when Unix time did when it began, so that a reading and the
    /// second of Unix time said all of one another then, and clocks that go on from one another lose no part of a second.
    pub(super) fn starting_at(reading: u32) -> Self {
        let reading = reading.max(START_SECONDS);
        let (unix, started) = (unix_time(), Instant::now());
        let into_second = Duration::from_nanos(unix.subsec_nanos().into());
        Self {
            now: AtomicU32::new(reading),
            held: AtomicBool::new(false),
            started: started.checked_sub(into_second).unwrap_or(started),
            started_at: reading,
            zero_unix: i64::try_from(unix.as_secs()).unwrap_or(i64::MAX) - i64::from(reading),
        }
    }

    /// Reads the system's clock. Called by housekeeping.
    pub(super) fn tick(&self) {
        self.set(self.reading());
    }

    /// What the system's clock says.
    pub(super) fn reading(&self) -> u32 {
        if self.held.load(Ordering::Relaxed) {
            return self.now();
        }
        let elapsed = u32::try_from(self.started.elapsed().as_secs()).unwrap_or(u32::MAX);
        self.started_at.saturating_add(elapsed)
    }

    /// How long the system's clock says what it says now.
    pub fn until_next_second(&self) -> Duration {
        Duration::from_secs(1) - Duration::from_nanos(self.started.elapsed().subsec_nanos().into())
    }

    /// From here on it is this time.
    pub(super) fn set(&self, reading: u32) {
        self.now.store(reading, Ordering::Relaxed);
    }

    /// From now on it moves on by [`Self::skip_ahead`] alone: for tests, whatever second they run in.
    #[cfg(any(test, feature = "testing"))]
    pub fn hold(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    /// Holds the clock, so many seconds ahead.
    #[cfg(any(test, feature = "testing"))]
    pub fn skip_ahead(&self, seconds: u32) {
        self.hold();
        self.set(self.now().saturating_add(seconds));
    }

    /// Seconds on the clock that item times are given in. Never 0.
    #[inline]
    pub fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// A client's exptime on this clock: 0 stays "never", a negative one has passed already, up
    /// to 30 days count from now, and anything above is absolute Unix time (protocol.txt).
    pub fn expiry(&self, exptime: i64) -> u32 {
        match exptime {
            0 => 0,
            ..0 => ALREADY,
            1..=RELATIVE_MAX_SECONDS => {
                self.now().saturating_add(u32::try_from(exptime).unwrap_or(u32::MAX))
            }
            _ => {
                let on_clock = exptime.saturating_sub(self.zero_unix);
                if on_clock <= i64::from(ALREADY) {
                    ALREADY
                } else {
                    u32::try_from(on_clock).unwrap_or(u32::MAX)
                }
            }
        }
    }

    /// A reading of this clock as Unix time, in seconds.
    pub fn unix(&self, seconds: u32) -> i64 {
        self.zero_unix.saturating_add(i64::from(seconds))
    }

    /// Whether an item with this expiry time (as from [`Self::expiry`]) is gone.
    #[inline]
    pub fn has_passed(&self, expiry: u32) -> bool {
        expiry != 0 && expiry <= self.now()
    }
}

/// The system's time of day, since 1970.
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The same in whole seconds.
pub(super) fn unix_seconds() -> u64 {
    unix_time().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exptimes_mean_what_memcached_means() {
        let c = Clock::new();
        assert!(!c.has_passed(c.expiry(0)));
        assert!(c.has_passed(c.expiry(-1)));
        assert!(c.has_passed(c.expiry(i64::MIN)));
        assert!(!c.has_passed(c.expiry(i64::MAX)));
        let (soon, month) = (c.expiry(2), c.expiry(RELATIVE_MAX_SECONDS));
        let absolute = c.expiry(c.zero_unix + i64::from(c.now()) + 5);
        assert!(c.has_passed(c.expiry(RELATIVE_MAX_SECONDS + 1)), "a second of 1970");
        assert!(!c.has_passed(soon) && !c.has_passed(absolute));
        c.skip_ahead(2);
        assert!(c.has_passed(soon) && !c.has_passed(absolute));
        c.skip_ahead(3);
        assert!(c.has_passed(absolute) && !c.has_passed(month));
        assert_eq!(c.now(), START_SECONDS + 5);
        c.tick();
        assert_eq!(c.now(), START_SECONDS + 5, "it is held");
    }

    #[test]
    fn the_next_second_begins_when_it_says() {
        let clock = Clock::new();
        let before = clock.reading();
        std::thread::sleep(clock.until_next_second());
        assert!(clock.reading() > before);
    }

    #[test]
    fn a_clock_goes_on_from_any_reading() {
        let c = Clock::starting_at(1000);
        assert_eq!(c.now(), 1000);
        assert!(c.has_passed(1000) && !c.has_passed(1001));
        let in_five = i64::try_from(unix_seconds()).unwrap() + 5;
        assert!((1005..=1006).contains(&c.expiry(in_five)), "absolute times are today's");
        assert_eq!(Clock::starting_at(0).now(), START_SECONDS);
    }

    /// Over starts that each have a part of a second.
    #[test]
    fn no_time_is_lost_from_one_clock_to_the_next() {
        let begun = unix_seconds();
        let mut c = Clock::starting_at(1000);
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(150));
            c.tick();
            let closed_at = unix_seconds();
            std::thread::sleep(Duration::from_millis(150));
            let down = u32::try_from(unix_seconds() - closed_at).unwrap();
            c = Clock::starting_at(c.now() + down);
        }
        let passed = u32::try_from(unix_seconds() - begun).unwrap();
        assert!(c.now().abs_diff(1000 + passed) <= 1, "{} {passed}", c.now());
    }
}
