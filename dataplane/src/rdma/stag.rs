//! Stags: names of keys that are good for a READ, the same before and after any `set`.
//!
//! In: the hash of a key. Out: 64 bits that say nothing of it, and back. A stag is the 48 bits of the
//! hash that the index uses and 16 zero bits, under a block cipher of 64 bits: bare hashes would help
//! to fill one bucket, and of stags that were never given out, one in 65,536 is well formed. The key is this
//! process's, so a restart changes all stags. Never fails.

use base::speck::{LANES, Speck};
use std::hash::{BuildHasher, RandomState};
use store::KeyHash;

/// The keyed permutation.
#[derive(Debug, Clone)]
pub struct Stags {
    cipher: Speck,
}

impl Stags {
    /// With a random key.
    pub(super) fn new() -> Self {
        // The standard library seeds each RandomState from the system's random source.
        let random = RandomState::new();
        let key = [0u64, 1].map(|half| random.hash_one(half));
        let word = |n: usize| u32::try_from(key[n / 2] >> (n % 2 * 32) & 0xffff_ffff).unwrap_or(0);
        Self { cipher: Speck::new([word(0), word(1), word(2), word(3)]) }
    }

    /// The stag of the key with this hash.
    pub fn of(&self, hash: KeyHash) -> u64 {
        self.cipher.encrypt(hash.place().0)
    }

    /// Where in the index the keys with these stags are. `None`: it is no stag.
    #[inline]
    pub fn places(&self, stags: [u64; LANES]) -> [Option<KeyHash>; LANES] {
        let hashes = self.cipher.decrypt(stags).map(KeyHash);
        hashes.map(|hash| (hash == hash.place()).then_some(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stags_lead_back_and_others_are_none() {
        let (stags, others) = (Stags::new(), Stags::new());
        let mut taken = 0;
        for n in 0..12_500_u64 {
            let hashes = [0, 1, 2, 3, 4, 5, 6, 7]
                .map(|k| KeyHash((8 * n + k).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            let named = hashes.map(|hash| stags.of(hash));
            assert_eq!(stags.places(named), hashes.map(|hash| Some(hash.place())));
            taken += others.places(named).iter().flatten().count();
        }
        // One in 65,536 is well formed: 1.5 are to be expected, and never 20.
        assert!(taken < 20, "{taken}");
    }
}
