//! Which connection a segment belongs to.
//!
//! In: the NIC that a segment came by, its addresses and ports. Out: the number of their connection. The hash
//! is keyed, so that no client can choose addresses and ports that collide. Open addressing
//! over twice as many buckets as there can be connections, or more, so that there is a bucket for every
//! connection from the start and nothing grows; a connection that is removed leaves no trace. Eight buckets lie in
//! a cache line; these themselves stand with the connections, which the caller reads anyway.

use driver_shim::prefetch_read;
use std::net::IpAddr;
use store::{Hasher, KeyHash};

/// The addresses and ports of a connection, and the NIC that it came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FourTuple {
    /// The worker's number of the NIC.
    pub(super) nic: u8,
    /// Our address.
    pub(super) ours: IpAddr,
    /// The client's address.
    pub(super) theirs: IpAddr,
    /// The client's TCP port. Ours is the service's.
    pub(super) their_port: u16,
}

impl FourTuple {
    /// Whether the client's address is one that one host has.
    pub(super) fn is_of_one_host(&self) -> bool {
        let broadcast = matches!(self.theirs, IpAddr::V4(v4) if v4.is_broadcast());
        !broadcast && !self.theirs.is_unspecified() && !self.theirs.is_multicast()
    }
}

/// The keyed hash of a [`FourTuple`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TupleHash(u32);

/// No connection.
const NONE: u32 = u32::MAX;
const EMPTY: Bucket = Bucket { hash: 0, connection: NONE };

#[derive(Debug, Clone, Copy)]
struct Bucket {
    hash: u32,
    connection: u32,
}

/// Connections by their 4-tuples.
#[derive(Debug)]
pub(super) struct Table {
    buckets: Box<[Bucket]>,
    key: Hasher,
}

/// Two addresses, then the number of the NIC and the client's port.
#[inline]
fn joined<const A: usize, const N: usize>(
    ours: [u8; A],
    theirs: [u8; A],
    others: [u8; 3],
) -> [u8; N] {
    let mut all = [0; N];
    for (to, byte) in all.iter_mut().zip(ours.into_iter().chain(theirs).chain(others)) {
        *to = byte;
    }
    all
}

impl Table {
    /// A table for so many connections.
    pub(super) fn new(connections: usize) -> Self {
        let buckets = (2 * connections).next_power_of_two();
        Self { buckets: vec![EMPTY; buckets].into(), key: Hasher::new(None) }
    }

    /// The hash of a connection's 4-tuple.
    #[inline]
    pub(super) fn hash(&self, tuple: &FourTuple) -> TupleHash {
        let [a, b] = tuple.their_port.to_be_bytes();
        let others = [tuple.nic, a, b];
        let KeyHash(hash) = match (tuple.ours, tuple.theirs) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                self.key.hash(&joined::<4, 11>(ours.octets(), theirs.octets(), others))
            }
            (ours, theirs) => {
                let octets = |ip: IpAddr| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                self.key.hash(&joined::<16, 35>(octets(ours), octets(theirs), others))
            }
        };
        #[expect(clippy::cast_possible_truncation, reason = "one half is enough")]
        TupleHash(hash as u32)
    }

    /// Prefetches the line that [`Self::find`] reads first.
    #[inline]
    pub(super) fn prefetch(&self, hash: TupleHash) {
        if let Some(bucket) = self.buckets.get(self.home(hash.0)) {
            prefetch_read(std::ptr::from_ref(bucket));
        }
    }

    /// The connection with this hash that `is_it` says is the one.
    #[inline]
    pub(super) fn find(&self, hash: TupleHash, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash.0);
        loop {
            let bucket = self.buckets.get(at).filter(|bucket| bucket.connection != NONE)?;
            if bucket.hash == hash.0 && is_it(bucket.connection) {
                return Some(bucket.connection);
            }
            at = self.behind(at);
        }
    }

    /// Adds a connection. The caller has no more than the table was made for.
    pub(super) fn enter(&mut self, hash: TupleHash, connection: u32) {
        let mut at = self.home(hash.0);
        // At least half of the buckets are empty.
        while self.buckets.get(at).is_some_and(|bucket| bucket.connection != NONE) {
            at = self.behind(at);
        }
        self.set(at, Bucket { hash: hash.0, connection });
    }

    /// Removes a connection. Those behind it that it kept from their buckets move up.
    pub(super) fn remove(&mut self, hash: TupleHash, connection: u32) {
        let mut at = self.home(hash.0);
        loop {
            match self.buckets.get(at) {
                Some(bucket) if bucket.connection == connection => break,
                Some(bucket) if bucket.connection != NONE => at = self.behind(at),
                _ => return,
            }
        }
        let mut hole = at;
        loop {
            at = self.behind(at);
            let Some(&bucket) = self.buckets.get(at).filter(|bucket| bucket.connection != NONE)
            else {
                break;
            };
            // Whether its search begins at the hole or before it.
            let from_home = at.wrapping_sub(self.home(bucket.hash)) & self.mask();
            if from_home >= at.wrapping_sub(hole) & self.mask() {
                self.set(hole, bucket);
                hole = at;
            }
        }
        self.set(hole, EMPTY);
    }

    fn mask(&self) -> usize {
        self.buckets.len() - 1
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & self.mask()
    }

    #[inline]
    fn behind(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    fn set(&mut self, at: usize, to: Bucket) {
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn tuple(n: u32) -> FourTuple {
        let [_, a, b, c] = n.to_be_bytes();
        let theirs = [10, a, b, c].into();
        FourTuple { nic: 0, ours: [10, 0, 0, 2].into(), theirs, their_port: u16::from(c) + 7 }
    }

    /// Few enough that they come again, more than the table was made for.
    fn some_tuple() -> impl Strategy<Value = FourTuple> {
        (any::<bool>(), 0_u8..2, 1_u8..4, 1_u8..5, 0_u16..6).prop_map(|(ipv6, nic, a, b, of)| {
            let address = |n: u8| match ipv6 {
                true => [0xfd, 0, 0, 0, 0, 0, 0, u16::from(n)].into(),
                false => [10, 0, 0, n].into(),
            };
            FourTuple { nic, ours: address(a), theirs: address(b), their_port: 40_000 + of }
        })
    }

    #[test]
    fn every_field_is_hashed() {
        let (table, of) = (Table::new(4), tuple(1));
        let v6 = |n: u16| [0xfd, 0, 0, 0, 0, 0, 0, n].into();
        for other in [
            FourTuple { nic: 1, ..of },
            FourTuple { ours: [10, 0, 0, 3].into(), ..of },
            FourTuple { theirs: [10, 0, 0, 3].into(), ..of },
            FourTuple { their_port: 1, ..of },
            FourTuple { ours: v6(2), theirs: v6(1), ..of },
            FourTuple { ours: v6(1), theirs: v6(2), ..of },
        ] {
            assert_ne!(table.hash(&of), table.hash(&other));
            assert_eq!(table.hash(&other), table.hash(&other));
        }
    }

    proptest! {
        /// As a map, with hashes that collide, and whatever is removed meanwhile.
        #[test]
        fn is_a_map(steps in prop::collection::vec((0_u32..16, 28_u32..36), 1..400)) {
            let (mut table, mut model) = (Table::new(16), HashMap::new());
            for (connection, hash) in steps {
                match model.remove(&connection) {
                    Some(hash) => table.remove(TupleHash(hash), connection),
                    None => {
                        table.enter(TupleHash(hash), connection);
                        model.insert(connection, hash);
                    }
                }
                for connection in 0..16 {
                    for hash in 28..36 {
                        let found = table.find(TupleHash(hash), |c| c == connection);
                        let want = (model.get(&connection) == Some(&hash)).then_some(connection);
                        prop_assert_eq!(found, want);
                    }
                }
            }
            let used = table.buckets.iter().filter(|bucket| bucket.connection != NONE).count();
            prop_assert_eq!(used, model.len());
        }

        /// As a map from 4-tuples to connections, up to as many as it was made for, and with nothing of what
        /// was removed; where `bits` are few, different ones have one hash.
        #[test]
        fn is_a_map_from_tuples(
            bits in 0_u32..7,
            steps in prop::collection::vec((any::<bool>(), some_tuple()), 1..600),
        ) {
            const MOST: u32 = 64;
            let mut table = Table::new(MOST as usize);
            let hash = |table: &Table, tuple: &FourTuple| TupleHash(table.hash(tuple).0 & ((1 << bits) - 1));
            let mut of = vec![None; MOST as usize];
            let mut free: Vec<u32> = (0..MOST).collect();
            let mut model = HashMap::new();
            for (enters, tuple) in steps {
                let hash = hash(&table, &tuple);
                let found = table.find(hash, |c| of[c as usize] == Some(tuple));
                prop_assert_eq!(found, model.get(&tuple).copied());
                match (found, free.last()) {
                    (None, Some(&connection)) if enters => {
                        free.pop();
                        of[connection as usize] = Some(tuple);
                        table.enter(hash, connection);
                        model.insert(tuple, connection);
                    }
                    (Some(connection), _) if !enters => {
                        table.remove(hash, connection);
                        of[connection as usize] = None;
                        free.push(connection);
                        model.remove(&tuple);
                    }
                    _ => {}
                }
            }
            for (tuple, &connection) in &model {
                let found = table.find(hash(&table, tuple), |c| of[c as usize] == Some(*tuple));
                prop_assert_eq!(found, Some(connection));
            }
            let used = table.buckets.iter().filter(|bucket| bucket.connection != NONE).count();
            prop_assert_eq!(used, model.len());
        }
    }
}
