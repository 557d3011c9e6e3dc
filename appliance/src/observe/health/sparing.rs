//! Lines for the log, not too many: a link that flaps must not fill a disk.

use std::time::{Duration, Instant};

/// Least time between two lines.
const PAUSE: Duration = Duration::from_secs(1);

/// Lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct Sparing {
    next: Option<Instant>,
    held_back: u64,
}

impl Sparing {
    /// Whether there may be a line now; and if so, how many there were not since the last one.
    pub(crate) fn allows(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_some_and(|next| now < next) {
            self.held_back += 1;
            return None;
        }
        self.next = Some(now + PAUSE);
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_and_the_count_of_the_others() {
        let (begun, mut lines) = (Instant::now(), Sparing::default());
        let said: Vec<_> =
            (0..25).map(|n| lines.allows(begun + Duration::from_millis(100 * n))).collect();
        let at: Vec<_> = said.iter().enumerate().filter(|(_, s)| s.is_some()).collect();
        assert_eq!(at, [(0, &Some(0)), (10, &Some(9)), (20, &Some(9))]);
    }
}
