//! Stags: names of keys that are good for a READ, the same before and after any `set`.
//!
//! In: the hash of a key. Out: 64 bits that say nothing of it, and back. A stag is the 48 bits of the
//! hash that the index uses and 16 zero bits, under a keyed permutation of 64 bits: bare hashes would help
//! to fill one bucket, and of stags that were never given out, one in 65,536 is well formed. The key is this
//! process's, so a restart changes all stags. Never fails.

use store::{Hasher, KeyHash, LANES, last_word};

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

    /// The stag of the key with this hash.
    pub fn of(&self, hash: KeyHash) -> u64 {
        let KeyHash(hash) = hash.place();
        let (mut left, mut right) = (hash >> 32, hash & LOW);
        for round in 0..ROUNDS {
            let [mixed, ..] = self.prf.hash_eight(&[[message(round, right); LANES]]);
            (left, right) = (right, left ^ mixed >> 32);
        }
        left << 32 | right
    }

    /// Where in the index the keys with these stags are. `None`: it is no stag.
    #[inline]
    pub fn places(&self, stags: [u64; LANES]) -> [Option<KeyHash>; LANES] {
        let mut left = stags.map(|stag| stag >> 32);
        let mut right = stags.map(|stag| stag & LOW);
        for round in (0..ROUNDS).rev() {
            let mut mixed = self.prf.hash_eight(&[left.map(|half| message(round, half))]);
            mixed.iter_mut().zip(right).for_each(|(mixed, right)| *mixed = *mixed >> 32 ^ right);
            (left, right) = (mixed, left);
        }
        let mut places = [None; LANES];
        for ((place, left), right) in places.iter_mut().zip(left).zip(right) {
            let hash = KeyHash(left << 32 | right);
            *place = (hash == hash.place()).then_some(hash);
        }
        places
    }
}

/// The lower half of a number.
const LOW: u64 = 0xffff_ffff;

/// What is hashed in a round: a half, and which round it is. The hash is SipHash-1-3's.
#[inline(always)]
fn message(round: u8, half: u64) -> u64 {
    half | u64::from(round) << 32 | last_word(&[], size_of::<u32>() + size_of::<u8>())
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
            // Round by round, each hash by itself.
            let [mut left, mut right] = [hashes[1].place().0 >> 32, hashes[1].place().0 & LOW];
            for round in 0..ROUNDS {
                let [a, b, c, d, ..] = right.to_le_bytes();
                (left, right) = (right, left ^ stags.prf.hash(&[a, b, c, d, round]).0 >> 32);
            }
            assert_eq!(named[1], left << 32 | right);
            taken += others.places(named).iter().flatten().count();
        }
        // One in 65,536 is well formed: 1.5 are to be expected, and never 20.
        assert!(taken < 20, "{taken}");
    }
}
