//! Which connection a segment belongs to.
//!
//! In: the two ends that a segment names. Out: the number of the connection between them. The hash
//! is keyed, so that nobody outside can choose addresses and ports that collide. There is room for
//! every connection from the start and nothing grows: the map has twice the places that are used
//! at most, and then puts right what deletions have left without taking memory.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::IpAddr;

/// The two ends of a connection, and the port that it came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    /// The worker's number of the port.
    pub(super) port: u8,
    /// Our address.
    pub(super) ours: IpAddr,
    /// The client's address.
    pub(super) theirs: IpAddr,
    /// The client's TCP port. Ours is the service's.
    pub(super) their_port: u16,
}

/// Connections by their ends.
#[derive(Debug)]
pub(super) struct Table(HashMap<Ends, u32, RandomState>);

impl Table {
    /// Room for so many connections.
    pub(super) fn new(connections: usize) -> Self {
        Self(HashMap::with_capacity_and_hasher(2 * connections, RandomState::new()))
    }

    /// The connection between these ends.
    #[inline]
    pub(super) fn find(&self, ends: &Ends) -> Option<u32> {
        self.0.get(ends).copied()
    }

    /// Enters a connection. The caller has no more than there is room for.
    pub(super) fn enter(&mut self, ends: Ends, connection: u32) {
        self.0.insert(ends, connection);
    }

    /// Strikes the connection between these ends.
    pub(super) fn strike(&mut self, ends: &Ends) {
        self.0.remove(ends);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_come_and_go_without_memory() {
        let ends = |n: u32| {
            let [_, a, b, c] = n.to_be_bytes();
            let theirs = [10, a, b, c].into();
            Ends { port: 0, ours: [10, 0, 0, 2].into(), theirs, their_port: u16::from(c) + 7 }
        };
        let mut table = Table::new(100);
        let room = table.0.capacity();
        for n in 0..50_000 {
            table.enter(ends(n), n);
            // What deletions leave takes of it until it is put right; growth would add.
            assert!(table.0.capacity() <= room);
            assert_eq!(table.find(&ends(n)), Some(n));
            if n >= 99 {
                table.strike(&ends(n - 99));
                assert_eq!(table.find(&ends(n - 99)), None);
            }
        }
        assert_eq!(table.find(&Ends { port: 1, ..ends(49_999) }), None);
    }
}
