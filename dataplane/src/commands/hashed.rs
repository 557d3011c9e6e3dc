//! Hashes of keys that were prefetched, kept for the requests that name them.
//!
//! In: the keys, in the order of their requests. Out: the hash of each, which is computed again where the next
//! key is another one, or longer than what is compared. Never fails.

use base::small_bytes;
use store::{KeyHash, Store};

/// Longest key whose hash is kept.
const KEPT_BYTES: usize = 32;

/// Hashes of keys whose requests come next.
#[derive(Debug)]
pub struct HashedKeys {
    keys: Vec<HashedKey>,
    /// The first that was not looked up yet.
    next: usize,
}

#[derive(Debug)]
struct HashedKey {
    hash: KeyHash,
    len: usize,
    /// The key, if it is not too long.
    bytes: [u8; KEPT_BYTES],
}

impl HashedKeys {
    /// With place for so many.
    pub fn new(most: usize) -> Self {
        Self { keys: Vec::with_capacity(most), next: 0 }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// The hashes, in order.
    pub fn hashes(&self) -> impl Iterator<Item = KeyHash> {
        self.keys.iter().map(|key| key.hash)
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.next = 0;
    }

    /// Adds a key.
    #[inline]
    pub fn push(&mut self, key: &[u8], hash: KeyHash) {
        let mut bytes = [0; KEPT_BYTES];
        small_bytes::copy(&mut bytes, key);
        self.keys.push(HashedKey { hash, len: key.len(), bytes });
    }

    /// The hash of `key`, which is most likely the next one.
    #[inline]
    pub(super) fn hash(&mut self, store: &Store, key: &[u8]) -> KeyHash {
        if let Some(next) = self.keys.get(self.next)
            && next.len == key.len()
        {
            self.next += 1;
            if next.bytes.get(..next.len).is_some_and(|bytes| small_bytes::equal(bytes, key)) {
                return next.hash;
            }
        }
        store.hash(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::StoreConfig;

    #[test]
    fn gives_a_hash_to_the_very_key_only() {
        let store =
            Store::new(StoreConfig { memory_bytes: 8 << 20, ..StoreConfig::default() }).unwrap();
        let long = [b'l'; KEPT_BYTES + 1];
        let mut keys = HashedKeys::new(8);
        // A hash that no computation gives shows where a kept one is used.
        let kept = KeyHash(7);
        for key in [&b"first"[..], b"second", &long, &long[1..], b"last"] {
            keys.push(key, kept);
        }
        let mut asks = |key: &[u8]| {
            let hash = keys.hash(&store, key);
            assert!(hash == kept || hash == store.hash(key));
            hash == kept
        };
        assert!(asks(b"first"));
        assert!(!asks(b"not it"), "another of its length");
        assert!(!asks(b"second"), "it was skipped");
        assert!(!asks(&long), "too long to be compared");
        assert!(!asks(b"other"), "of another length, which skips nothing");
        assert!(asks(&long[1..]));
        assert!(asks(b"last"));
        assert!(!asks(b"last"), "there are no more");
        keys.clear();
        keys.push(b"last", kept);
        assert_eq!(keys.hash(&store, b"last"), kept);
    }
}
