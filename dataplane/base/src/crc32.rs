//! CRC-32 (IEEE 802.3) of short messages that do not lie in memory as they are counted: one that
//! begins under a mask, and one that stands behind eight bytes of another place. Of long ones, in pieces:
//! [`pieces`].
//!
//! In: bytes. Out: the CRC. Carry-less multiplication folds 64 bytes at a time into the 64 behind them
//! (Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel 2009).
//! Where the processor has none `crc32fast` does it. Nothing fails.
#![allow(unsafe_code)]
#![deny(clippy::indexing_slicing)]

#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod pieces;

use crc32fast::Hasher;

/// Bytes that a mask covers.
pub const MASK_BYTES: usize = 64;

/// The CRC of `bytes`, of which the bits that are set in `mask` count as ones.
#[inline]
pub fn masked(bytes: &[u8], mask: &[u8; MASK_BYTES]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(here) = Pclmul::detect() {
        return here.masked(bytes, mask);
    }
    masked_portable(bytes, mask)
}

/// A processor with carry-less multiplication and AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub struct Pclmul(());

#[cfg(target_arch = "x86_64")]
impl Pclmul {
    /// `Some` on such a processor.
    #[inline]
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("pclmulqdq");
        has.then_some(Self(()))
    }

    /// [`masked`].
    #[inline(always)]
    pub fn masked(self, bytes: &[u8], mask: &[u8; MASK_BYTES]) -> u32 {
        if bytes.len() < MASK_BYTES {
            let (head, len) = (under(bytes, mask), bytes.len());
            let (first, rest) = head.split_first_chunk().unwrap_or((&[0; 8], &[]));
            return match len.checked_sub(8).and_then(|len| rest.get(..len)) {
                Some(rest) => self.behind(*first, rest),
                None => masked_portable(bytes, mask),
            };
        }
        // SAFETY: `self` exists, so the processor has the instructions (`detect`).
        unsafe { pclmul::masked(bytes, mask) }
    }

    /// The product of two remainders.
    #[inline(always)]
    fn product(self, a: u32, b: u32) -> u32 {
        // SAFETY: as in `masked`.
        unsafe { pclmul::product(a, b) }
    }

    /// [`behind`].
    #[inline(always)]
    pub fn behind(self, first: [u8; 8], bytes: &[u8]) -> u32 {
        if bytes.len() < 16 {
            return behind_portable(first, bytes);
        }
        // SAFETY: as in `masked`.
        unsafe { pclmul::behind(first, bytes) }
    }
}

/// The mask, with what begins under it.
fn under(bytes: &[u8], mask: &[u8; MASK_BYTES]) -> [u8; MASK_BYTES] {
    let mut head = *mask;
    head.iter_mut().zip(bytes).for_each(|(to, from)| *to |= from);
    head
}

fn masked_portable(bytes: &[u8], mask: &[u8; MASK_BYTES]) -> u32 {
    let (begin, rest) = bytes.split_at(bytes.len().min(MASK_BYTES));
    let mut crc = Hasher::new();
    crc.update(under(begin, mask).get(..begin.len()).unwrap_or_default());
    crc.update(rest);
    crc.finalize()
}

/// The CRC of `first` and of `bytes` behind it.
#[inline]
pub fn behind(first: [u8; 8], bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(here) = Pclmul::detect() {
        return here.behind(first, bytes);
    }
    behind_portable(first, bytes)
}

fn behind_portable(first: [u8; 8], bytes: &[u8]) -> u32 {
    let mut crc = Hasher::new();
    crc.update(&first);
    crc.update(bytes);
    crc.finalize()
}

#[cfg(target_arch = "x86_64")]
mod pclmul {
    use super::MASK_BYTES;
    use super::pieces::power;
    use std::arch::x86_64::*;

    /// What bits are multiplied by to count as far as so many bytes further on: for n bits, x^(n + 32) and
    /// x^(n - 32) modulo the polynomial, turned round.
    pub(super) const fn by(bytes: u32) -> [i64; 2] {
        [(power(8 * bytes + 32) as i64) << 1, (power(8 * bytes - 32) as i64) << 1]
    }
    const FOLD_16: [i64; 2] = by(16);
    const FOLD_32: [i64; 2] = by(32);
    const FOLD_48: [i64; 2] = by(48);
    const FOLD_64: [i64; 2] = by(64);
    /// The same for 32 bits of 64: x^64.
    const FOLD_LAST: i64 = (power(64) as i64) << 1;
    /// The polynomial, and x^64 divided by it, turned round.
    const BARRETT: [i64; 2] = [0x1_db71_0641, 0x1_f701_1641];

    /// Places of bytes to shuffle: the 16 from `n` on move the first `n` bytes to the end, the 16 from
    /// `16 + n` on those behind them to the beginning. The others become zeros.
    #[rustfmt::skip]
    static MOVES: [u8; 48] = [
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    ];

    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(super) fn masked(bytes: &[u8], mask: &[u8; MASK_BYTES]) -> u32 {
        let Some((head, rest)) = bytes.split_first_chunk::<MASK_BYTES>() else { return 0 };
        let [mut a, b, c, d] = four(head);
        let [m, n, o, p] = four(mask);
        a = _mm_xor_si128(_mm_or_si128(a, m), _mm_cvtsi32_si128(-1));
        let lanes = [a, _mm_or_si128(b, n), _mm_or_si128(c, o), _mm_or_si128(d, p)];
        let (x, rest) = side_by_side(lanes, rest);
        end(x, rest, bytes)
    }

    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(super) fn behind(first: [u8; 8], bytes: &[u8]) -> u32 {
        let (second, rest) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let [first, second] = [first, *second].map(i64::from_le_bytes);
        let x = _mm_xor_si128(_mm_set_epi64x(second, first), _mm_cvtsi32_si128(-1));
        let (x, rest) = match rest.as_chunks().0 {
            [b, c, d, ..] => {
                side_by_side([x, load(b), load(c), load(d)], rest.get(48..).unwrap_or_default())
            }
            _ => (x, rest),
        };
        end(x, rest, bytes)
    }

    /// What stands for four blocks and as many fours as there are in `rest`, and what is left of it: chains that
    /// do not wait for each other.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn side_by_side(mut lanes: [__m128i; 4], rest: &[u8]) -> (__m128i, &[u8]) {
        let (fours, rest) = rest.as_chunks::<64>();
        for blocks in fours {
            for (lane, block) in lanes.iter_mut().zip(four(blocks)) {
                *lane = _mm_xor_si128(moved(*lane, FOLD_64), block);
            }
        }
        let [a, b, c, d] = lanes;
        let (a, b) = (moved(a, FOLD_48), moved(b, FOLD_32));
        (_mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(moved(c, FOLD_16), d)), rest)
    }

    /// The CRC of a message of which `x` stands for all that comes before `rest`; the end of `bytes` is
    /// the end of `rest`.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn end(x: __m128i, rest: &[u8], bytes: &[u8]) -> u32 {
        let (blocks, rest) = rest.as_chunks();
        let mut x = x;
        // No more are left of the fours; a loop that says so is unrolled.
        for block in blocks.iter().take(3) {
            x = fold(x, load(block));
        }
        if let (false, Some(last)) = (rest.is_empty(), bytes.last_chunk()) {
            let place =
                |n| MOVES.get(n..).and_then(<[u8]>::first_chunk).map_or(x, |place| load(place));
            let (to_end, to_begin) = (place(rest.len()), place(16 + rest.len()));
            // What is moved to the beginning, and the rest of the message behind it.
            let block = _mm_blendv_epi8(_mm_shuffle_epi8(x, to_begin), load(last), to_begin);
            x = fold(_mm_shuffle_epi8(x, to_end), block);
        }
        !remainder(x)
    }

    /// The register behind what stands for a message.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(super) fn remainder(x: __m128i) -> u32 {
        let [_, by] = FOLD_16;
        let x = _mm_xor_si128(product_low(x, by), _mm_srli_si128::<8>(x));
        let last = product_low(_mm_and_si128(x, low()), FOLD_LAST);
        barrett(_mm_xor_si128(last, _mm_srli_si128::<4>(x)))
    }

    /// Modulo the polynomial, of 64 bits.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn barrett(x: __m128i) -> u32 {
        let [polynomial, inverse] = BARRETT;
        let quotient = product_low(_mm_and_si128(x, low()), inverse);
        let product = product_low(_mm_and_si128(quotient, low()), polynomial);
        _mm_extract_epi32::<1>(_mm_xor_si128(x, product)).cast_unsigned()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn low() -> __m128i {
        _mm_set_epi32(0, 0, 0, -1)
    }

    /// The product of two remainders.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    pub(super) fn product(a: u32, b: u32) -> u32 {
        // Turned round, a product of 63 bits is one bit short of its place.
        barrett(product_low(_mm_cvtsi64_si128(i64::from(a)), i64::from(b) << 1))
    }

    /// What stands for `x` and the block behind it.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn fold(x: __m128i, block: __m128i) -> __m128i {
        _mm_xor_si128(moved(x, FOLD_16), block)
    }

    /// What stands for `x` so far further on.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn moved(x: __m128i, [by_low, by_high]: [i64; 2]) -> __m128i {
        let high = _mm_clmulepi64_si128::<0x11>(x, _mm_set_epi64x(by_high, 0));
        _mm_xor_si128(product_low(x, by_low), high)
    }

    /// The product of the lower half. The number is an upper half, which the instruction takes from memory: a lower
    /// one the compiler makes in a register first.
    #[inline]
    #[target_feature(enable = "avx2,pclmulqdq")]
    fn product_low(x: __m128i, by: i64) -> __m128i {
        _mm_clmulepi64_si128::<0x10>(x, _mm_set_epi64x(by, 0))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn four(blocks: &[u8; 64]) -> [__m128i; 4] {
        match blocks.as_chunks().0 {
            [a, b, c, d] => [load(a), load(b), load(c), load(d)],
            _ => [_mm_setzero_si128(); 4],
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes that can be read; the instruction needs no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_one_pass_over_one_piece() {
        let bytes: Vec<u8> = (0..1500_u32).map(|n| (n * n % 251).to_le_bytes()[0]).collect();
        let mut mask = [0; MASK_BYTES];
        for (n, byte) in mask.iter_mut().enumerate().step_by(3) {
            *byte = n.to_le_bytes()[0] | 1;
        }
        for len in (0..700).chain([1024, 1499]) {
            for at in [0, 1] {
                let message = &bytes[at..at + len];
                let mut whole = message.to_vec();
                whole.iter_mut().zip(mask).for_each(|(byte, ones)| *byte |= ones);
                let right = crc32fast::hash(&whole);
                assert_eq!(masked(message, &mask), right, "{len}");
                assert_eq!(masked_portable(message, &mask), right, "{len}");
                let first = *b"\x00\xff\x01abcd\x80";
                let right = crc32fast::hash(&[&first, message].concat());
                assert_eq!(behind(first, message), right, "{len}");
                assert_eq!(behind_portable(first, message), right, "{len}");
            }
        }
    }
}
