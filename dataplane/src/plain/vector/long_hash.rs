//! SipHash-1-3 of four keys of any length at once, by AVX2: a word of each at a time.
//!
//! In: blocks that begin with keys, and their lengths. Out: their hashes. Nothing fails.

use crate::plain::window::part;
use std::arch::x86_64::*;
use store::hash_lanes::{finish, round};

/// The hashes of the first `lens[n]` bytes of `keys[n]`; `state` is that before the first word.
#[inline]
#[target_feature(enable = "avx2,bmi2")]
pub(super) fn hash<const N: usize>(
    state: [u64; 4],
    keys: [&[u8; N]; 4],
    lens: [u8; 4],
) -> [u64; 4] {
    let [a, b, c, d] = keys;
    let whole = lens.map(|len| len >> 3);
    let [first, ..] = whole;
    let (same, longest) = (whole == [first; 4], whole.into_iter().fold(0, u8::max));
    let lens = u32::from_le_bytes(lens).cast_signed();
    let lens = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(lens));
    let (length, last) = (_mm256_slli_epi64::<56>(lens), _mm256_srli_epi64::<3>(lens));
    // Of the last word the bytes that are the key's.
    let bits = _mm256_slli_epi64::<3>(_mm256_and_si256(lens, _mm256_set1_epi64x(7)));
    let one = _mm256_set1_epi64x(1);
    let rest = _mm256_sub_epi64(_mm256_sllv_epi64(one, bits), one);
    let mut v = state.map(|word| _mm256_set1_epi64x(word.cast_signed()));
    for n in 0..=longest {
        let word = |key| i64::from_le_bytes(*part(key, 8 * usize::from(n)));
        let word = _mm256_set_epi64x(word(d), word(c), word(b), word(a));
        let n = _mm256_set1_epi64x(n.into());
        let is_last = _mm256_cmpeq_epi64(n, last);
        let word = _mm256_andnot_si256(_mm256_andnot_si256(rest, is_last), word);
        let word = _mm256_or_si256(word, _mm256_and_si256(length, is_last));
        let mut next = v;
        next[3] = _mm256_xor_si256(next[3], word);
        round(&mut next);
        next[0] = _mm256_xor_si256(next[0], word);
        if same {
            v = next;
            continue;
        }
        // A key that has ended stays as it is.
        let ended = _mm256_cmpgt_epi64(n, last);
        for (v, next) in v.iter_mut().zip(next) {
            *v = _mm256_blendv_epi8(next, *v, ended);
        }
    }
    finish(v)
}
