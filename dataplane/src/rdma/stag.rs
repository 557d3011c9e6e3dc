//! Stags: names of keys that are good for a READ, the same before and after any `set`.
//!
//! In: the hash of a key. Out: 64 bits that say nothing of it, and back. A stag is the 48 bits of the
//! hash that the index uses and 16 zero bits, under a keyed permutation of 64 bits: bare hashes would help
//! to fill one bucket, and of stags that were never given out, one in 65,536 is well formed. The key is this
//! process's, so a restart changes all stags. Never fails.

use store::{Hasher, KeyHash};

/// Rounds that make a keyed pseudo-random function a permutation that stands up to adversaries who
/// may ask both ways (Luby and Rackoff, 1988).
const ROUNDS: u8 = 4;

/// The keyed permutation.
#[derive(Debug, Clone)]
pub struct Stags {
    prf: Hasher,
}

impl Stags {
    /// With a random key.
    pub(super) fn new() -> Self {
        Self { prf: Hasher::new(None) }
    }

    /// SipHash-1-3 of a half, another one in each round.
    #[inline]
    fn mix(&self, round: u8, half: u32) -> u32 {
        let [a, b, c, d] = half.to_le_bytes();
        let KeyHash(hash) = self.prf.hash(&[a, b, c, d, round]);
        u32::try_from(hash >> 32).unwrap_or(0)
    }

    /// The stag of the key with this hash.
    pub fn of(&self, hash: KeyHash) -> u64 {
        let [mut left, mut right] = halves(hash.place().0);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mix(round, right));
        }
        u64::from(left) << 32 | u64::from(right)
    }

    /// Where in the index the key with this stag is. `None`: it is no stag.
    #[inline]
    pub fn place(&self, stag: u64) -> Option<KeyHash> {
        let [mut left, mut right] = halves(stag);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.mix(round, left), left);
        }
        let hash = KeyHash(u64::from(left) << 32 | u64::from(right));
        (hash == hash.place()).then_some(hash)
    }
}

fn halves(n: u64) -> [u32; 2] {
    [n >> 32, n & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stags_lead_back_and_others_are_none() {
        let (stags, others) = (Stags::new(), Stags::new());
        let mut taken = 0;
        for n in 0..100_000_u64 {
            let hash = KeyHash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let stag = stags.of(hash);
            assert_eq!(stags.place(stag), Some(hash.place()));
            assert_ne!(stag, hash.place().0, "one in 2^64");
            taken += u32::from(others.place(stag).is_some());
        }
        // One in 65,536 is well formed: 1.5 are to be expected, and never 20.
        assert!(taken < 20, "{taken}");
    }
}
