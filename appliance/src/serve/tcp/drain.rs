//! How connections end when the service stops: what clients have sent is answered first.
//!
//! ```text
//!  stop ──► read and answer ──► nothing comes ──► FIN ──► read until the client's FIN ──► close
//!               └──► the bound: cut off ───────────┘
//! ```
//!
//! In: when the service was ordered to stop, and how long draining may take. Out: how long a
//! connection waits for more, and what became of all of them. The FIN leaves when all that came is
//! answered, so what has no reply before it was not carried out. Nothing that comes behind it is
//! looked at; it is read all the same, because closing with bytes unread resets a connection.

use dataplane::commands::{DRAIN_QUIET_NS, DRAIN_REST_MAX_NS};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nothing has come for so long: the client has nothing on its way.
pub(super) const QUIET: Duration = Duration::from_nanos(DRAIN_QUIET_NS);
/// How long the rest of a request is waited for. A client that goes on asking is closed from then on as soon as it
/// has been answered.
const REST_MAX: Duration = Duration::from_nanos(DRAIN_REST_MAX_NS);
/// How long the FIN of a client is waited for that has sent something since the stop.
const FIN_MAX: Duration = Duration::from_secs(1);

/// A stop, and its bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    begun: Instant,
    until: Instant,
}

impl Drain {
    pub(super) fn new(most: Duration) -> Self {
        let begun = Instant::now();
        Self { begun, until: begun.checked_add(most).unwrap_or(begun) }
    }

    /// Its bound.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether its bound has passed.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// How long to wait for more of a client, which has sent a part of a request or has not.
    pub(super) fn time_allowed(&self, in_request: bool) -> Duration {
        let now = Instant::now();
        let wait = match now.duration_since(self.begun) {
            _ if in_request => REST_MAX,
            since if since < REST_MAX => QUIET,
            _ => Duration::ZERO,
        };
        wait.min(self.until.saturating_duration_since(now))
    }
}

/// How long the client's FIN is waited for behind ours.
pub(super) fn fin_max(heard: bool) -> Duration {
    if heard { FIN_MAX } else { QUIET }
}

/// Connections that were open when the service was ordered to stop.
#[derive(Debug, Default)]
pub(super) struct Ended {
    drained: AtomicU64,
    cut: AtomicU64,
}

impl Ended {
    /// One ended after all that it sent was answered and had left.
    pub(super) fn count_drained(&self) {
        self.drained.fetch_add(1, Ordering::Relaxed);
    }

    /// So many ended at the bound.
    pub(super) fn count_cut(&self, connections: usize) {
        self.cut.fetch_add(connections as u64, Ordering::Relaxed);
    }

    pub(super) fn totals(&self) -> Drained {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Drained { answered: get(&self.drained), cut: get(&self.cut) }
    }
}

/// What became of the connections that were open when the service was ordered to stop.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Closed, with all that had come as a whole answered.
    pub answered: u64,
    /// Cut off at the bound, with requests unanswered or replies not taken.
    pub cut: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_with_the_bound_and_is_short_for_who_goes_on_asking() {
        let second = Duration::from_secs(1);
        let began_ago = |ago: Duration, most: Duration| {
            let begun = Instant::now().checked_sub(ago).unwrap();
            Drain { begun, until: begun + most }
        };
        let fresh = began_ago(Duration::ZERO, 60 * second);
        assert_eq!((fresh.time_allowed(false), fresh.time_allowed(true)), (QUIET, REST_MAX));
        let late = began_ago(2 * second, 60 * second);
        assert_eq!((late.time_allowed(false), late.time_allowed(true)), (Duration::ZERO, REST_MAX));
        let nearly_over = began_ago(2 * second, 2 * second + second / 10);
        assert!(nearly_over.time_allowed(true) <= second / 10 && !nearly_over.is_over());
        let over = began_ago(2 * second, second);
        assert!(over.is_over());
        assert_eq!(over.time_allowed(true), Duration::ZERO);
        assert!(Drain::new(Duration::ZERO).is_over());
    }
}
