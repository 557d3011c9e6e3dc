//! SipHash-1-3 of several messages side by side, one in each 64-bit lane of a register.
//!
//! In: states and words side by side. Out: the same. Nothing fails.

use std::arch::x86_64::*;

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
