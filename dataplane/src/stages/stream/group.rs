//! Prefetches what the requests of several connections will read in the store, for all of them together.
//!
//! In: the input of connections that are about to be answered. Out: their items' lines on the way to the caches,
//! as stage 5 has it for datagrams: first all buckets are prefetched, then all items, and only then
//! does the first conversation begin. So a thousand connections with a request each wait for
//! memory about as long as one does. Only plain `get`s and `set`s are looked for; nothing but the time
//! that a request takes depends on what is seen here: a key's hash is kept beside the key, and the request that names it is compared with that. Nothing fails.

use crate::commands::{HashedKeys, plain_get};
use memcache::{PlainSet, plain_set};
use store::{KeyHash, Store};

/// Connections that are answered as one group, at most.
pub(super) const CONNECTIONS: usize = 32;
/// From so many requests on a group is full: a third of what the first-level cache holds.
const REQUESTS: usize = 48;
/// Requests of one connection that are looked at: the usual turn.
const REQUESTS_EACH: usize = 20;

/// What prefetches.
#[derive(Debug)]
pub(super) struct Group {
    /// Hashes of keys that are to be looked for in their second bucket.
    far: Vec<KeyHash>,
    item_max_bytes: usize,
}

/// Place for the keys of a group.
pub(super) fn keys() -> HashedKeys {
    HashedKeys::new(REQUESTS + REQUESTS_EACH)
}

/// Whether another connection's requests are for the next group.
pub(super) fn is_full(keys: &HashedKeys) -> bool {
    keys.count() >= REQUESTS
}

impl Group {
    /// For items of so many bytes.
    pub(super) fn new(item_max_bytes: usize) -> Self {
        Self { far: Vec::with_capacity(REQUESTS + REQUESTS_EACH), item_max_bytes }
    }

    /// Adds the keys in the first requests of `input`, and prefetches their index buckets.
    #[inline]
    pub(super) fn read(&mut self, keys: &mut HashedKeys, store: &Store, mut input: &[u8]) {
        let most = keys.count() + REQUESTS_EACH;
        while keys.count() < most {
            let Some((key, used, changes)) = first(input, self.item_max_bytes) else { return };
            let hash = store.hash(key);
            if changes {
                store.prefetch_change(hash);
            } else {
                store.prefetch_near(hash);
            }
            keys.push(key, hash);
            input = input.get(used..).unwrap_or_default();
        }
    }

    /// Prefetches the items in those buckets.
    #[inline]
    pub(super) fn look_up(&mut self, keys: &HashedKeys, store: &Store) {
        for hash in keys.hashes() {
            if let Some(location) = store.propose_near(hash) {
                store.prefetch_item(location);
            } else {
                store.prefetch_far(hash);
                self.far.push(hash);
            }
        }
        for hash in self.far.drain(..) {
            if let Some(location) = store.propose(hash) {
                store.prefetch_item(location);
            }
        }
    }
}

/// The key of the first request, its length, and whether it changes the item; if it is a plain one.
#[inline]
fn first(input: &[u8], item_max_bytes: usize) -> Option<(&[u8], usize, bool)> {
    if let Some((key, used)) = plain_get(input) {
        return Some((key, used, false));
    }
    let PlainSet { what, used, .. } = plain_set(input, item_max_bytes)?;
    Some((what.key, used, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_plain_requests_one_after_the_other() {
        let keys = |mut input: &'static [u8]| {
            let mut keys = Vec::new();
            while let Some((key, used, changes)) = first(input, 1000) {
                keys.push((std::str::from_utf8(key).unwrap(), changes));
                input = &input[used..];
            }
            keys
        };
        let all = b"get a\r\nset bc 0 0 3\r\nxyz\r\nget d\r\nget e f\r\nget g\r\n";
        assert_eq!(keys(all), [("a", false), ("bc", true), ("d", false)]);
        assert_eq!(keys(b"get a\r\nget b"), [("a", false)]);
        for none in [&b"get"[..], b"get ", b"get \r\n", b"gets a\r\n", b"set a 0 0 3\r\nxy"] {
            assert_eq!(keys(none), []);
        }
    }
}
