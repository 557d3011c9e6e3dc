//! Prefetches what the next requests over TCP will read in the store, for all of them together.
//!
//! In: the input of one connection, or of several that are about to be answered. Out: their items' lines on the way to
//! the caches, as stage 5 has it for datagrams: first all buckets are prefetched, then all items, and only then
//! is the first request answered. So a thousand connections with a request each wait for
//! memory about as long as one does. Nothing but the time that a request takes depends on what is seen here: a
//! key's hash is kept beside the key, and the request that names it is compared with that. Nothing fails.

use base::small_bytes;
use memcache::{Glance, PlainSet, glance, plain_get, plain_set};
use store::{KeyHash, Store};

/// From so many keys on there are enough: a third of what the first-level cache holds.
const ENOUGH: usize = 48;
/// Requests of one connection that are looked at, at most, and keys: the usual turn.
const EACH: usize = 20;
/// Longest key whose hash is kept.
const KEPT_BYTES: usize = 32;

/// The keys of requests that come next.
#[derive(Debug)]
pub struct Ahead {
    keys: Vec<HashedKey>,
    /// The first whose hash was not asked for yet.
    next: usize,
    /// Hashes of keys that are to be looked for in their second bucket.
    far: Vec<KeyHash>,
    item_max_bytes: usize,
    /// Requests of one connection that are looked at.
    requests_each: usize,
}

#[derive(Debug)]
struct HashedKey {
    hash: KeyHash,
    len: usize,
    /// The key, if it is not too long.
    bytes: [u8; KEPT_BYTES],
}

impl Ahead {
    /// For items of so many bytes, where so many requests of a connection are answered in a turn.
    pub fn new(item_max_bytes: usize, requests_per_turn: usize) -> Self {
        Self {
            keys: Vec::with_capacity(ENOUGH + EACH),
            next: 0,
            far: Vec::with_capacity(ENOUGH + EACH),
            item_max_bytes,
            requests_each: requests_per_turn.min(EACH),
        }
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.next = 0;
    }

    /// Whether another connection's requests are for later.
    pub(crate) fn has_enough(&self) -> bool {
        self.keys.len() >= ENOUGH
    }

    /// Looks at the next requests of a connection that is answered by itself.
    #[inline]
    pub fn look(&mut self, store: &Store, input: &[u8]) {
        self.clear();
        self.read(store, input);
        self.look_up(store);
    }

    /// Adds the keys in the first requests of `input`, and prefetches their index buckets.
    #[inline]
    pub(crate) fn read(&mut self, store: &Store, mut input: &[u8]) {
        let most = self.keys.len() + EACH;
        let mut requests = 0;
        while self.keys.len() < most && requests < self.requests_each {
            requests += 1;
            let used = if let Some((key, used)) = plain_get(input) {
                store.prefetch_near(self.add(store, key));
                used
            } else if let Some(PlainSet { what, used, .. }) = plain_set(input, self.item_max_bytes)
            {
                store.prefetch_change(self.add(store, what.key));
                used
            } else {
                match self.add_others(store, input, most) {
                    Some(used) => used,
                    None => return,
                }
            };
            input = input.get(used..).unwrap_or_default();
        }
    }

    /// Adds the keys of a request that is not plain, until there are `most`: how many bytes it has.
    #[inline(never)]
    fn add_others(&mut self, store: &Store, input: &[u8], most: usize) -> Option<usize> {
        let Glance { keys, changes, used } = glance(input)?;
        for key in keys.iter().take(most - self.keys.len()) {
            let hash = self.add(store, key);
            if changes {
                store.prefetch_change(hash);
            } else {
                store.prefetch_near(hash);
            }
        }
        Some(used)
    }

    #[inline(always)]
    fn add(&mut self, store: &Store, key: &[u8]) -> KeyHash {
        let hash = store.hash(key);
        let mut bytes = [0; KEPT_BYTES];
        small_bytes::copy(&mut bytes, key);
        self.keys.push(HashedKey { hash, len: key.len(), bytes });
        hash
    }

    /// Prefetches the items in those buckets.
    #[inline]
    pub(crate) fn look_up(&mut self, store: &Store) {
        for HashedKey { hash, .. } in &self.keys {
            if let Some(location) = store.propose_near(*hash) {
                store.prefetch_item(location);
            } else {
                store.prefetch_far(*hash);
                self.far.push(*hash);
            }
        }
        for hash in self.far.drain(..) {
            if let Some(location) = store.propose(hash) {
                store.prefetch_item(location);
            }
        }
    }

    /// The hash of `key`, which is most likely the next one. `None`: that is another one, or longer than what is
    /// compared.
    #[inline]
    pub(super) fn hash(&mut self, key: &[u8]) -> Option<KeyHash> {
        let next = self.keys.get(self.next).filter(|next| next.len == key.len())?;
        let is_it = next.bytes.get(..next.len).map(|bytes| small_bytes::equal(bytes, key));
        // One that was not seen leaves the next where it is: of many keys of a request the first were.
        self.next += usize::from(is_it != Some(false));
        (is_it == Some(true)).then_some(next.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use store::StoreConfig;

    fn store() -> Arc<Store> {
        Store::new(StoreConfig { memory_bytes: 8 << 20, ..StoreConfig::default() }).unwrap()
    }

    #[test]
    fn sees_requests_one_after_the_other() {
        let store = store();
        let mut ahead = Ahead::new(1000, 100);
        let mut sees = |input: &[u8], want: &[&str]| {
            ahead.look(&store, input);
            let want = want.iter().map(|key| store.hash(key.as_bytes()));
            let seen = ahead.keys.iter().map(|key| key.hash);
            assert!(seen.eq(want), "{}", String::from_utf8_lossy(input));
        };
        let all =
            b"get a\r\nset bc 0 0 3\r\nxyz\r\nmg d v\r\nget e f\r\nms g 1\r\nx\r\nget h\r\nget i";
        sees(all, &["a", "bc", "d", "e", "f", "g", "h"]);
        for none in [&b"get"[..], b"get ", b"get \r\n", b"gets a", b"quit\r\n"] {
            sees(none, &[]);
        }
        // Of more than a turn has, the first.
        let many = format!("get {}\r\n", ["k"; 90].join(" "));
        sees(many.as_bytes(), &["k"; EACH]);
        assert!(!ahead.has_enough());
        ahead.read(&store, many.as_bytes());
        ahead.read(&store, many.as_bytes());
        assert!(ahead.has_enough());
        // Of a turn of two requests no more than it answers.
        let mut ahead = Ahead::new(1000, 2);
        ahead.look(&store, b"get a\r\nmg b v\r\nget c\r\n");
        assert_eq!(ahead.keys.len(), 2);
    }

    #[test]
    fn gives_a_hash_to_the_very_key_only() {
        let store = store();
        let long = "l".repeat(KEPT_BYTES + 1);
        let mut ahead = Ahead::new(1000, 100);
        let requests = format!("get first second {long} {} last\r\n", &long[1..]);
        ahead.look(&store, requests.as_bytes());
        let mut asks = |key: &str| {
            let hash = ahead.hash(key.as_bytes());
            assert!(hash.is_none_or(|hash| hash == store.hash(key.as_bytes())));
            hash.is_some()
        };
        assert!(asks("first"));
        assert!(!asks("not it"), "another of its length, which skips nothing");
        assert!(asks("second"));
        assert!(!asks(&long), "too long to be compared");
        assert!(!asks("other"), "of another length, which skips nothing");
        assert!(asks(&long[1..]));
        assert!(asks("last"));
        assert!(!asks("last"), "there are no more");
        ahead.look(&store, b"get last\r\n");
        assert!(ahead.hash(b"last").is_some());
    }
}
