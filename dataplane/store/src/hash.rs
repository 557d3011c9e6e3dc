//! The keyed hash of a key: SipHash-1-3 (Aumasson and Bernstein, 2012), so that no client can
//! choose keys that collide.
//!
//! In: bytes. Out: hashes. Nothing fails.

#[cfg(target_arch = "x86_64")]
pub mod lanes;

use gpu::params::HashKey;
use std::hash::{BuildHasher, RandomState};

/// The hash of a key under one store's hash key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The bits that the index looks at: bucket and tag.
    #[inline]
    #[must_use]
    pub fn place(self) -> Self {
        Self(self.0 & 0xffff_0000_ffff_ffff)
    }
}

/// What the two 64-bit halves of the key are mixed with, twice, to begin with.
const BEGINNING: [u64; 4] =
    [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];

/// A hash function of its own, by a key of 128 bits.
#[derive(Debug, Clone, Copy)]
pub struct Hasher {
    /// The state before the first word.
    begun: [u64; 4],
}

impl Hasher {
    /// With the given key, or a random one.
    pub fn new(key: Option<[u8; 16]>) -> Self {
        let (k0, k1) = match key {
            Some(key) => {
                let key = u128::from_le_bytes(key);
                (low(key), low(key >> 64))
            }
            // The standard library seeds each RandomState from the system's random source.
            None => {
                let random = RandomState::new();
                (random.hash_one(0u64), random.hash_one(1u64))
            }
        };
        let [a, b, c, d] = BEGINNING;
        Self { begun: [a ^ k0, b ^ k1, c ^ k0, d ^ k1] }
    }

    /// Its key.
    pub(super) fn key(self) -> HashKey {
        let ([a, b, ..], [k0, k1, ..]) = (BEGINNING, self.begun);
        HashKey { k0: a ^ k0, k1: b ^ k1 }
    }

    /// The state before the first word, for callers that hash several keys at once.
    pub(super) fn state(self) -> [u64; 4] {
        self.begun
    }

    /// The hash of `bytes`.
    #[inline]
    #[must_use]
    pub fn hash(self, bytes: &[u8]) -> KeyHash {
        let mut v = self.begun;
        let (words, rest) = bytes.as_chunks::<8>();
        // Two at a time: a usual key is a pair.
        let (pairs, odd) = words.as_chunks::<2>();
        for [a, b] in pairs {
            absorb(&mut v, u64::from_le_bytes(*a));
            absorb(&mut v, u64::from_le_bytes(*b));
        }
        if let [word] = odd {
            absorb(&mut v, u64::from_le_bytes(*word));
        }
        let last = match (rest, bytes.last_chunk()) {
            ([], _) => with_len(0, bytes.len()),
            // The last eight bytes have all of the rest: less work than byte by byte.
            (_, Some(last)) => {
                with_len(u64::from_le_bytes(*last) >> (64 - 8 * rest.len()), bytes.len())
            }
            (_, None) => last_word(rest, bytes.len()),
        };
        absorb(&mut v, last);
        KeyHash(finish(v))
    }
}

/// The last word of a message of `len` bytes, of which `rest`, fewer than eight, are behind the last whole
/// word.
#[inline]
fn last_word(rest: &[u8], len: usize) -> u64 {
    let last = rest.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b));
    with_len(last, len)
}

/// The last word with the length in it.
#[inline]
fn with_len(last: u64, len: usize) -> u64 {
    last | (len as u64) << 56
}

#[inline]
fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    v[0] ^= word;
}

#[inline]
fn finish(mut v: [u64; 4]) -> u64 {
    v[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low(x: u128) -> u64 {
    x as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard library's DefaultHasher is SipHash-1-3 with a zero key; `write` adds nothing
    /// of its own to the bytes.
    #[test]
    fn agrees_with_the_standard_library() {
        use std::hash::Hasher as _;
        let ours = Hasher::new(Some([0; 16]));
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..=250 {
            let mut theirs = std::hash::DefaultHasher::new();
            theirs.write(&bytes[..len]);
            assert_eq!(ours.hash(&bytes[..len]).0, theirs.finish(), "{len} bytes");
        }
    }

    #[test]
    fn keys_matter() {
        let (a, b) = (Hasher::new(None), Hasher::new(None));
        assert_ne!(a.hash(b"key"), b.hash(b"key"));
        let fixed = Hasher::new(Some(*b"0123456789abcdef"));
        assert_eq!(fixed.hash(b"key"), Hasher::new(Some(*b"0123456789abcdef")).hash(b"key"));
        assert_ne!(fixed.hash(b"key"), Hasher::new(Some(*b"0123456789abcdeg")).hash(b"key"));
    }
}
