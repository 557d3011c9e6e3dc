//! Which connections there are, of all workers: for ports that may bring a segment to a worker that does not have
//! its connection, and must not reset it.
//!
//! In: connections as they begin and end. Out: whether a worker may have the connection of a 4-tuple. A
//! filter of counters under a keyed hash: it never misses a connection that there is, and takes one in eight
//! strangers for one when all connections are taken. Cannot fail.

use super::table::FourTuple;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

/// Counters for each connection that there may be.
const PER_CONNECTION: usize = 8;

/// Shared by the workers where a port's flows may stray.
#[derive(Debug)]
pub struct ConnFilter {
    counts: Box<[AtomicU32]>,
    key: RandomState,
}

impl ConnFilter {
    /// For so many connections of all workers together.
    pub fn new(connections: usize) -> Self {
        let counts = connections.saturating_mul(PER_CONNECTION).next_power_of_two();
        Self { counts: (0..counts).map(|_| AtomicU32::new(0)).collect(), key: RandomState::new() }
    }

    fn count(&self, tuple: &FourTuple) -> Option<&AtomicU32> {
        let hash = self.key.hash_one((tuple.ours, tuple.theirs, tuple.their_port));
        let at = hash & (self.counts.len() as u64).wrapping_sub(1);
        self.counts.get(usize::try_from(at).ok()?)
    }

    /// A connection begins.
    pub(super) fn enter(&self, tuple: &FourTuple) {
        if let Some(count) = self.count(tuple) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One that began is no more.
    pub(super) fn leave(&self, tuple: &FourTuple) {
        if let Some(count) = self.count(tuple) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a worker may have it.
    pub(super) fn may_have(&self, tuple: &FourTuple) -> bool {
        self.count(tuple).is_some_and(|count| count.load(Ordering::Relaxed) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn tuple(n: u16) -> FourTuple {
        let of = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        FourTuple { nic: 0, ours: of(2), theirs: of(1), their_port: n }
    }

    #[test]
    fn what_is_there_is_never_missed_and_few_strangers_are_taken_for_it() {
        let filter = ConnFilter::new(1000);
        let here = 1..=1000;
        here.clone().for_each(|n| filter.enter(&tuple(n)));
        assert!(here.clone().all(|n| filter.may_have(&tuple(n))));
        // By the worker's number of the port it makes no difference.
        assert!(filter.may_have(&FourTuple { nic: 7, ..tuple(1) }));
        let taken = (2001..=12_000).filter(|&n| filter.may_have(&tuple(n))).count();
        assert!(taken < 2_000, "{taken} of 10,000");
        here.for_each(|n| filter.leave(&tuple(n)));
        assert!((1..=12_000).all(|n| !filter.may_have(&tuple(n))));
    }
}
