//! SipHash-1-3 of several messages side by side, one in each 64-bit lane of a register.
//!
//! In: states and words side by side. Out: the same. Nothing fails.

use super::LANES;
use std::arch::x86_64::*;

/// The hashes of eight messages, whose words stand side by side: two registers, since the rounds of one
/// wait for each other and leave the processor the time for another's.
#[target_feature(enable = "avx2")]
pub(super) fn eight(begun: [u64; 4], words: &[[u64; LANES]]) -> [u64; LANES] {
    let begun = begun.map(|word| _mm256_set1_epi64x(word.cast_signed()));
    let (mut v, mut w) = (begun, begun);
    for &[a, b, c, d, e, f, g, h] in words {
        let of_v = lanes([a, b, c, d]);
        let of_w = lanes([e, f, g, h]);
        v[3] = _mm256_xor_si256(v[3], of_v);
        w[3] = _mm256_xor_si256(w[3], of_w);
        round(&mut v);
        round(&mut w);
        v[0] = _mm256_xor_si256(v[0], of_v);
        w[0] = _mm256_xor_si256(w[0], of_w);
    }
    let ([a, b, c, d], [e, f, g, h]) = (finish(v), finish(w));
    [a, b, c, d, e, f, g, h]
}

#[inline]
#[target_feature(enable = "avx2")]
fn lanes(words: [u64; 4]) -> __m256i {
    let [a, b, c, d] = words.map(u64::cast_signed);
    _mm256_setr_epi64x(a, b, c, d)
}

/// The hashes, when all words have been taken in.
///
/// # Safety
/// The processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub fn finish(mut v: [__m256i; 4]) -> [u64; 4] {
    v[2] = _mm256_xor_si256(v[2], _mm256_set1_epi64x(0xff));
    for _ in 0..3 {
        round(&mut v);
    }
    let all = _mm256_xor_si256(_mm256_xor_si256(v[0], v[1]), _mm256_xor_si256(v[2], v[3]));
    [
        _mm256_extract_epi64::<0>(all),
        _mm256_extract_epi64::<1>(all),
        _mm256_extract_epi64::<2>(all),
        _mm256_extract_epi64::<3>(all),
    ]
    .map(i64::cast_unsigned)
}

/// A round.
///
/// # Safety
/// The processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub fn round(v: &mut [__m256i; 4]) {
    let by_16 = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13,
    ));
    v[0] = _mm256_add_epi64(v[0], v[1]);
    v[2] = _mm256_add_epi64(v[2], v[3]);
    v[1] = _mm256_xor_si256(rotated::<13, 51>(v[1]), v[0]);
    v[3] = _mm256_xor_si256(_mm256_shuffle_epi8(v[3], by_16), v[2]);
    v[0] = _mm256_shuffle_epi32::<0b_10_11_00_01>(v[0]);
    v[2] = _mm256_add_epi64(v[2], v[1]);
    v[0] = _mm256_add_epi64(v[0], v[3]);
    v[1] = _mm256_xor_si256(rotated::<17, 47>(v[1]), v[2]);
    v[3] = _mm256_xor_si256(rotated::<21, 43>(v[3]), v[0]);
    v[2] = _mm256_shuffle_epi32::<0b_10_11_00_01>(v[2]);
}

/// Words turned left by `LEFT` bits, which is 64 less `RIGHT`.
#[inline]
#[target_feature(enable = "avx2")]
fn rotated<const LEFT: i32, const RIGHT: i32>(x: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi64::<LEFT>(x), _mm256_srli_epi64::<RIGHT>(x))
}
