//! Compares all tags of a bucket at once.
//!
//! In: two words of four 16-bit lanes, lowest first, and a tag. Out: one bit for each lane that
//! holds it. Nothing fails.
#![allow(unsafe_code)]

/// Which lanes hold `tag`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn equal(words: [u64; 2], tag: u16) -> u8 {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { equal_sse2(words, tag) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn equal_sse2([low, high]: [u64; 2], tag: u16) -> u8 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi64x, _mm_set1_epi16,
    };
    let lanes = _mm_set_epi64x(high.cast_signed(), low.cast_signed());
    let equal = _mm_cmpeq_epi16(lanes, _mm_set1_epi16(tag.cast_signed()));
    // A byte for each lane, twice.
    let [mask, ..] = _mm_movemask_epi8(_mm_packs_epi16(equal, equal)).to_le_bytes();
    mask
}

/// Which lanes hold `tag`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn equal(words: [u64; 2], tag: u16) -> u8 {
    equal_in_words(words, tag)
}

/// [`equal`] of two buckets, the first one's lanes first.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn equal_in_both(buckets: [[u64; 2]; 2], tag: u16) -> u16 {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { equal_in_both_sse2(buckets, tag) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn equal_in_both_sse2(buckets: [[u64; 2]; 2], tag: u16) -> u16 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi64x, _mm_set1_epi16,
    };
    let [first, second] = buckets.map(|[low, high]| {
        let lanes = _mm_set_epi64x(high.cast_signed(), low.cast_signed());
        _mm_cmpeq_epi16(lanes, _mm_set1_epi16(tag.cast_signed()))
    });
    let [low, high, ..] = _mm_movemask_epi8(_mm_packs_epi16(first, second)).to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// [`equal`] of two buckets, the first one's lanes first.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn equal_in_both(buckets: [[u64; 2]; 2], tag: u16) -> u16 {
    u16::from_le_bytes(buckets.map(|words| equal_in_words(words, tag)))
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn equal_in_words(words: [u64; 2], tag: u16) -> u8 {
    const LANES_LOW: u64 = 0x0001_0001_0001_0001;
    const LANES_REST: u64 = 0x7fff_7fff_7fff_7fff;
    let [low, high] = words.map(|word| {
        let x = word ^ (LANES_LOW * u64::from(tag));
        // The top bit of each lane that is zero; exact, nothing carries across lanes.
        let zero = !(((x & LANES_REST) + LANES_REST) | x | LANES_REST);
        // Gathers the four top bits in bits 48 to 51.
        ((zero >> 15).wrapping_mul(0x0001_0002_0004_0008) >> 48) & 0xf
    });
    u8::try_from(low | high << 4).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_say_what_a_look_at_each_lane_says() {
        let tags = [0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff];
        let mut lanes = tags;
        // Every tag in every lane, beside different neighbours.
        for step in 1..200usize {
            lanes.rotate_left(step % 7);
            lanes[step % 8] = tags[step / 8 % 8];
            let wide = lanes.iter().rev().fold(0u128, |w, lane| w << 16 | u128::from(*lane));
            let [low, high] = [wide, wide >> 64].map(|w| u64::try_from(w & u128::from(u64::MAX)));
            let words = [low.unwrap(), high.unwrap()];
            for tag in tags {
                let want = (0..8).fold(0, |mask, n| mask | u8::from(lanes[n] == tag) << n);
                assert_eq!(
                    (equal(words, tag), equal_in_words(words, tag)),
                    (want, want),
                    "{lanes:x?}"
                );
                let (other, both) = ([words[1], words[0]], [words, [words[1], words[0]]]);
                let want = [want, equal_in_words(other, tag)];
                assert_eq!(equal_in_both(both, tag), u16::from_le_bytes(want), "{lanes:x?}");
            }
        }
    }
}
