//! What bytes make of a CRC register of zeros, 256 at a time, by AVX-512's carry-less multiplication.
#![allow(unsafe_code)]

use super::pclmul::{by, remainder};
use std::arch::x86_64::*;

const BLOCK: usize = 64;
/// Bytes of a copy before which those are prefetched that come next.
const AHEAD: usize = 2048;
/// What blocks of 64 bytes are multiplied by.
const BLOCKS: [[i64; 2]; 4] = [by(64), by(128), by(192), by(256)];
/// What those of 16 bytes in one of 64 are.
const PARTS: [[i64; 2]; 3] = [by(48), by(32), by(16)];

/// A processor with carry-less multiplication of 512 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// `Some` on such a processor.
    #[inline]
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("vpclmulqdq");
        has.then_some(Self(()))
    }

    /// Of these bytes.
    #[inline(always)]
    pub(super) fn register(self, bytes: &[u8]) -> u32 {
        // SAFETY: `self` exists, so the processor has the instructions (`detect`).
        unsafe { register::<false>(bytes, &mut []) }
    }

    /// Of these bytes, which are copied to `to`, as long as they are.
    #[inline(always)]
    pub(super) fn copy(self, from: &[u8], to: &mut [u8]) -> u32 {
        debug_assert_eq!(from.len(), to.len());
        // SAFETY: as in `register`.
        unsafe { register::<true>(from, to) }
    }
}

/// Zeros before a message make no difference: so the first block is what there is beyond whole blocks, behind zeros.
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512bw,pclmulqdq,vpclmulqdq")]
fn register<const COPY: bool>(from: &[u8], to: &mut [u8]) -> u32 {
    let first = from.len() % BLOCK;
    let (head, rest) = from.split_at(first);
    let (to_head, to_rest) = to.split_at_mut(first.min(to.len()));
    let mut last = load_end(head);
    if COPY {
        to_head.copy_from_slice(head);
    }
    let mut places = to_rest.as_chunks_mut::<BLOCK>().0.iter_mut();
    let mut take = |block: &[u8; BLOCK]| {
        let bytes = load(block);
        if let (true, Some(place)) = (COPY, places.next()) {
            prefetch(block.as_ptr().wrapping_add(AHEAD));
            store(place, bytes);
        }
        bytes
    };
    let (blocks, _) = rest.as_chunks::<BLOCK>();
    let (singles, fours) = blocks.split_at(blocks.len() % 4);
    let [by_64, by_128, by_192, by_256] = BLOCKS.map(|by| lanes(by));
    for block in singles {
        last = fold(last, by_64, take(block));
    }
    let none = _mm512_setzero_si512();
    let mut sums = [none, none, none, last];
    for four in fours.as_chunks::<4>().0 {
        for (sum, block) in sums.iter_mut().zip(four) {
            *sum = fold(*sum, by_256, take(block));
        }
    }
    let [a, b, c, d] = sums;
    let d = fold(c, by_64, fold(b, by_128, fold(a, by_192, d)));
    // Four blocks of 16 bytes; the last stays where it is.
    let [[a, b], [c, e], [f, g]] = PARTS;
    let places = _mm512_set_epi64(0, 0, g, f, e, c, b, a);
    let sum = fold(d, places, _mm512_maskz_mov_epi64(0b1100_0000, d));
    let half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
    let x = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
    remainder(x)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &[u8; BLOCK]) -> __m512i {
    // SAFETY: 64 bytes that can be read; the instruction needs no alignment.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

/// At most a block, behind zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_end(bytes: &[u8]) -> __m512i {
    let zeros = BLOCK.saturating_sub(bytes.len());
    // All are left out where there are none.
    let mask = u64::MAX.checked_shl(u32::try_from(zeros).unwrap_or(u32::MAX)).unwrap_or(0);
    // SAFETY: those that `mask` names can be read, and the instruction reads no other.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().wrapping_sub(zeros).cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(place: &mut [u8; BLOCK], bytes: __m512i) {
    // SAFETY: 64 bytes that can be written; the instruction needs no alignment.
    unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), bytes) }
}

#[inline(always)]
fn prefetch(at: *const u8) {
    // SAFETY: a prefetch reads nothing and never faults, wherever it points.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn lanes([low, high]: [i64; 2]) -> __m512i {
    _mm512_set_epi64(high, low, high, low, high, low, high, low)
}

/// What stands for `x` so far further on, and `block` there.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(x: __m512i, by: __m512i, block: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(x, by);
    let high = _mm512_clmulepi64_epi128::<0x11>(x, by);
    // The three of them, xor.
    _mm512_ternarylogic_epi64::<0x96>(low, high, block)
}
