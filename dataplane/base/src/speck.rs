//! Speck64/128 (Beaulieu et al., The SIMON and SPECK Families of Lightweight Block Ciphers, IACR
//! ePrint 2013/404): a permutation of 64 bits by a key of 128.
//!
//! In: blocks, the left word in the upper half. Out: blocks; eight are decrypted side by side, each in a
//! lane of a register where the processor has AVX2. Nothing fails.
#![allow(unsafe_code)]
#![deny(clippy::indexing_slicing)]

/// Rounds, as the paper has them for a key of 128 bits.
const ROUNDS: usize = 27;
/// Blocks that are decrypted side by side.
pub const LANES: usize = 8;

/// The permutation by one key.
#[derive(Clone)]
pub struct Speck {
    keys: [u32; ROUNDS],
}

crate::opaque!(Speck);

impl Speck {
    /// By this key, its first word first.
    pub fn new([mut key, mut a, mut b, mut c]: [u32; 4]) -> Self {
        let mut keys = [0; ROUNDS];
        for (place, n) in keys.iter_mut().zip(0..) {
            *place = key;
            let (next, word) = round(a, key, n);
            (key, a, b, c) = (word, b, c, next);
        }
        Self { keys }
    }

    /// The block that stands for this one.
    pub fn encrypt(&self, block: u64) -> u64 {
        let (left, right) = self.keys.iter().fold(halves(block), |(x, y), key| round(x, y, *key));
        u64::from(left) << 32 | u64::from(right)
    }

    /// The blocks that these stand for.
    #[inline]
    pub fn decrypt(&self, blocks: [u64; LANES]) -> [u64; LANES] {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            return unsafe { avx2::decrypt(&self.keys, blocks) };
        }
        decrypt(&self.keys, blocks)
    }
}

fn decrypt(keys: &[u32; ROUNDS], blocks: [u64; LANES]) -> [u64; LANES] {
    blocks.map(|block| {
        let (left, right) = keys.iter().rfold(halves(block), |(x, y), key| {
            let y = (x ^ y).rotate_right(3);
            ((x ^ key).wrapping_sub(y).rotate_left(8), y)
        });
        u64::from(left) << 32 | u64::from(right)
    })
}

fn round(x: u32, y: u32, key: u32) -> (u32, u32) {
    let x = x.rotate_right(8).wrapping_add(y) ^ key;
    (x, y.rotate_left(3) ^ x)
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are what is asked for")]
fn halves(block: u64) -> (u32, u32) {
    ((block >> 32) as u32, block as u32)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{LANES, ROUNDS};
    use std::arch::x86_64::*;

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn decrypt(keys: &[u32; ROUNDS], blocks: [u64; LANES]) -> [u64; LANES] {
        let [a, b, c, d, e, f, g, h] = blocks.map(u64::cast_signed);
        let (low, high) = (_mm256_setr_epi64x(a, b, c, d), _mm256_setr_epi64x(e, f, g, h));
        let (low, high) = (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
        // All left words and all right ones.
        let mut x = _mm256_castps_si256(_mm256_shuffle_ps::<0b_11_01_11_01>(low, high));
        let mut y = _mm256_castps_si256(_mm256_shuffle_ps::<0b_10_00_10_00>(low, high));
        let by_8 = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14,
        ));
        for key in keys.iter().rev() {
            y = _mm256_xor_si256(x, y);
            y = _mm256_or_si256(_mm256_srli_epi32::<3>(y), _mm256_slli_epi32::<29>(y));
            x = _mm256_xor_si256(x, _mm256_set1_epi32(key.cast_signed()));
            x = _mm256_shuffle_epi8(_mm256_sub_epi32(x, y), by_8);
        }
        let (low, high) = (_mm256_unpacklo_epi32(y, x), _mm256_unpackhi_epi32(y, x));
        [
            _mm256_extract_epi64::<0>(low),
            _mm256_extract_epi64::<1>(low),
            _mm256_extract_epi64::<2>(low),
            _mm256_extract_epi64::<3>(low),
            _mm256_extract_epi64::<0>(high),
            _mm256_extract_epi64::<1>(high),
            _mm256_extract_epi64::<2>(high),
            _mm256_extract_epi64::<3>(high),
        ]
        .map(i64::cast_unsigned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_what_its_authors_publish() {
        // Appendix C.
        let speck = Speck::new([0x0302_0100, 0x0b0a_0908, 0x1312_1110, 0x1b1a_1918]);
        assert_eq!(speck.encrypt(0x3b72_6574_7475_432d), 0x8c6f_a548_454e_028b);
    }

    #[test]
    fn eight_are_decrypted_as_each_was_encrypted() {
        let mut n = 0_u64;
        let mut any = || {
            n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
            n ^ n.rotate_left(23).wrapping_mul(n | 1)
        };
        for _ in 0..1000 {
            let [(a, b), (c, d)] = [halves(any()), halves(any())];
            let speck = Speck::new([a, b, c, d]);
            let blocks = [(); LANES].map(|()| any());
            let encrypted = blocks.map(|block| speck.encrypt(block));
            assert_eq!(speck.decrypt(encrypted), blocks);
            assert_eq!(decrypt(&speck.keys, encrypted), blocks);
        }
    }
}
