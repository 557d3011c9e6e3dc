//! Threads that stall: a worker, seen by the control plane; the control plane, seen by itself.
//!
//! In: how far a thread has come, and the time. Out: what has changed. A worker that has nothing to
//! do goes round all the same, fifty times a second at least.

use std::time::{Duration, Instant};

/// A worker that has not gone round for so long stalls.
const WORKER_MAX: Duration = Duration::from_secs(1);
/// The same for the control plane, which is due a hundred times a second.
const CONTROL_MAX: Duration = Duration::from_millis(500);

/// What is counted of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StallCounts {
    /// It stalls now.
    pub stalled: bool,
    /// Times that it stalled.
    pub stalls: u64,
    /// The longest of them that is over.
    pub longest: Duration,
}

/// News of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It stalls.
    Stands,
    /// It moves again, after so long.
    Moves(Duration),
}

/// A worker's turns.
#[derive(Debug)]
pub(super) struct Stall {
    turns: u64,
    since: Instant,
    counts: StallCounts,
}

impl Stall {
    /// A worker that has just begun.
    pub(super) fn new(now: Instant) -> Self {
        Self { turns: 0, since: now, counts: StallCounts::default() }
    }

    /// So many turns by now.
    pub(super) fn look(&mut self, turns: u64, now: Instant) -> Option<Change> {
        let still = now.saturating_duration_since(self.since);
        let counts = &mut self.counts;
        if turns != self.turns {
            (self.turns, self.since) = (turns, now);
            let was = std::mem::take(&mut counts.stalled);
            return was.then(|| {
                counts.longest = counts.longest.max(still);
                Change::Moves(still)
            });
        }
        let stands = still >= WORKER_MAX && !counts.stalled;
        counts.stalled |= stands;
        counts.stalls += u64::from(stands);
        stands.then_some(Change::Stands)
    }

    /// No check was possible: the time till now does not count against it.
    pub(super) fn excuse(&mut self, now: Instant) {
        if !self.counts.stalled {
            self.since = now;
        }
    }

    pub(super) fn counts(&self) -> StallCounts {
        self.counts
    }
}

/// The control plane's turns.
#[derive(Debug)]
pub(super) struct Pulse {
    last: Instant,
    counts: StallCounts,
}

impl Pulse {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, counts: StallCounts::default() }
    }

    /// A turn. How long the one before took, where that was too long.
    pub(super) fn beat(&mut self, now: Instant) -> Option<Duration> {
        let gap = now.saturating_duration_since(self.last);
        self.last = now;
        if gap < CONTROL_MAX {
            return None;
        }
        self.counts.stalls += 1;
        self.counts.longest = self.counts.longest.max(gap);
        Some(gap)
    }

    pub(super) fn counts(&self) -> StallCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_worker_stands_still_and_moves_again() {
        let begun = Instant::now();
        let mut s = Stall::new(begun);
        assert_eq!(s.look(5, begun + ms(200)), None);
        assert_eq!(s.look(5, begun + ms(1_100)), None);
        assert_eq!(s.look(5, begun + ms(1_200)), Some(Change::Stands));
        assert_eq!(s.look(5, begun + ms(1_400)), None, "told once");
        assert!(s.counts().stalled);
        assert_eq!(s.look(6, begun + ms(3_200)), Some(Change::Moves(ms(3_000))));
        assert_eq!(s.look(6, begun + ms(3_400)), None);
        let counts = StallCounts { stalled: false, stalls: 1, longest: ms(3_000) };
        assert_eq!(s.counts(), counts);
    }

    #[test]
    fn time_in_which_nobody_could_look_does_not_count() {
        let begun = Instant::now();
        let mut s = Stall::new(begun);
        assert_eq!(s.look(5, begun + ms(200)), None);
        s.excuse(begun + ms(9_000));
        assert_eq!(s.look(5, begun + ms(9_000)), None);
        assert_eq!(s.look(5, begun + ms(10_000)), Some(Change::Stands));
        s.excuse(begun + ms(20_000));
        assert_eq!(s.look(6, begun + ms(20_000)), Some(Change::Moves(ms(11_000))));
    }

    #[test]
    fn the_control_plane_notices_its_own_pauses() {
        let begun = Instant::now();
        let mut p = Pulse::new(begun);
        assert_eq!(p.beat(begun + ms(10)), None);
        assert_eq!(p.beat(begun + ms(1_010)), Some(ms(1_000)));
        assert_eq!(p.beat(begun + ms(1_020)), None);
        assert_eq!(p.beat(begun + ms(1_620)), Some(ms(600)));
        let counts = StallCounts { stalled: false, stalls: 2, longest: ms(1_000) };
        assert_eq!(p.counts(), counts);
    }
}
