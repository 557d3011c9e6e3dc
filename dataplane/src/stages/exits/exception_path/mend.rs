//! When to make the other side anew: at once, then at growing distances.
//!
//! In: what was seen of it. Out: whether a try is due. Owns nothing, never waits, cannot fail.

use std::time::{Duration, Instant};

/// First pause after a try that failed, and the longest: an administrator may be setting things up, which may
/// take long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What is known of the other side.
#[derive(Debug, Default)]
pub(super) enum Mend {
    /// It is there.
    #[default]
    Whole,
    /// It is gone.
    Broken {
        /// When it is tried next.
        at: Instant,
        /// The pause after that, if it fails.
        pause: Duration,
    },
}

impl Mend {
    /// It was seen to be gone. The first try is due at once.
    pub(super) fn broke(&mut self, now: Instant) {
        if !self.is_broken() {
            *self = Self::Broken { at: now, pause: PAUSE_MIN };
        }
    }

    /// It is gone.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }

    /// Now is the time to try.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        matches!(*self, Self::Broken { at, .. } if now >= at)
    }

    /// What became of the try.
    pub(super) fn tried(&mut self, made: bool, now: Instant) {
        *self = match *self {
            Self::Broken { pause, .. } if !made => {
                Self::Broken { at: now + pause, pause: (pause * 2).min(PAUSE_MAX) }
            }
            _ => Self::Whole,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_come_at_once_and_then_ever_more_seldom() {
        let begun = Instant::now();
        let mut m = Mend::default();
        assert!(!m.is_broken() && !m.is_due(begun));
        m.broke(begun);
        let (mut now, mut tries) = (begun, Vec::new());
        while now < begun + Duration::from_secs(30) {
            m.broke(now);
            if m.is_due(now) {
                tries.push((now - begun).as_millis());
                m.tried(false, now);
            }
            now += Duration::from_millis(10);
        }
        assert_eq!(tries[..8], [0, 50, 150, 350, 750, 1_550, 3_150, 6_350]);
        assert_eq!(tries[8..11], [11_350, 16_350, 21_350]);
        m.tried(true, now);
        assert!(!m.is_broken() && !m.is_due(now));
        m.broke(now);
        assert!(m.is_due(now), "at once again");
    }
}
