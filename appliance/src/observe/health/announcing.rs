//! When a port's addresses are announced: when its link has come up, and again.
//!
//! In: whether it is up, and the time. Out: whether to announce now. A switch may not forward yet when
//! the link comes, and the first frame over a kernel's device may be lost to an error from before; so
//! there are several rounds, as RFC 5227, section 2.3, and RFC 4861, section 7.2.6, have it. A link
//! that flaps has no more than one round in a pause. Never waits, cannot fail.

use std::time::{Duration, Instant};

/// Rounds for a link that comes up. RFC 4861 allows three (MAX_NEIGHBOR_ADVERTISEMENT).
const ROUNDS: u32 = 3;
/// Least time between two of them (RFC 4861's RETRANS_TIMER).
const PAUSE: Duration = Duration::from_secs(1);

/// One port's announcements.
#[derive(Debug, Default)]
pub(super) struct Announcing {
    up: bool,
    left: u32,
    /// Not before then.
    next: Option<Instant>,
}

impl Announcing {
    /// A look at the port. Whether a round is due.
    pub(super) fn look(&mut self, up: bool, now: Instant) -> bool {
        if up != self.up {
            self.up = up;
            self.left = if up { ROUNDS } else { 0 };
        }
        let due = self.left > 0 && self.next.is_none_or(|next| now >= next);
        if due {
            self.left -= 1;
            self.next = Some(now + PAUSE);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When there were rounds, in ms, of a link that is up when `up` says so, looked at as the
    /// control plane looks.
    fn rounds(until_ms: u64, up: impl Fn(u64) -> bool) -> Vec<u64> {
        let (begun, mut announcing) = (Instant::now(), Announcing::default());
        let looks = (0..until_ms).step_by(200);
        looks.filter(|&ms| announcing.look(up(ms), begun + Duration::from_millis(ms))).collect()
    }

    #[test]
    fn at_the_start_and_when_the_link_comes_back() {
        assert_eq!(rounds(60_000, |_| true), [0, 1_000, 2_000]);
        assert!(rounds(60_000, |_| false).is_empty());
        assert_eq!(rounds(60_000, |ms| ms >= 5_000), [5_000, 6_000, 7_000]);
        let pulled = |ms| !(10_000..12_000).contains(&ms);
        assert_eq!(rounds(60_000, pulled), [0, 1_000, 2_000, 12_000, 13_000, 14_000]);
        let pulled_early = |ms| !(600..1_400).contains(&ms);
        assert_eq!(rounds(60_000, pulled_early), [0, 1_400, 2_400, 3_400]);
    }

    #[test]
    fn a_link_that_flaps_has_one_round_a_second() {
        let all = rounds(60_000, |ms| ms / 200 % 2 == 0 || ms >= 50_000);
        assert!(all.len() <= 53 && all.windows(2).all(|w| w[1] - w[0] >= 1_000), "{all:?}");
        assert!(all.iter().filter(|&&ms| ms >= 50_000).count() >= 2, "{all:?}");
    }
}
