//! Copies, comparisons and ends of short byte strings: keys, small values.
//!
//! Most are of 8 to 128 bytes, where a call into the C library and its choice by length cost
//! more than the bytes. Two pieces that overlap in the middle cover every length between a power
//! of two and the next, with no loop. Longer ones go the usual way. Nothing fails.
#![deny(clippy::indexing_slicing)]

/// Copies `from` over the first bytes of `to`. What does not fit is not copied: nothing, then.
#[inline]
pub fn copy(to: &mut [u8], from: &[u8]) {
    let Some(to) = to.get_mut(..from.len()) else { return };
    // Halves, so that two comparisons find a usual key, and a usual small value.
    if from.len() > 32 {
        match from.len() {
            ..=64 => both_ends::<32>(to, from),
            65..=128 => both_ends::<64>(to, from),
            _ => to.copy_from_slice(from),
        }
        return;
    }
    match from.len() {
        16.. => both_ends::<16>(to, from),
        8.. => both_ends::<8>(to, from),
        4.. => both_ends::<4>(to, from),
        2.. => both_ends::<2>(to, from),
        _ => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
    }
}

/// Copies the first `N` bytes and the last.
#[inline(always)]
fn both_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk::<N>()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk::<N>()) {
        *to = *from;
    }
}

/// Whether both are the same bytes.
#[inline]
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        8..16 => equal_ends::<8>(a, b),
        16..=32 => equal_ends::<16>(a, b),
        _ => a == b,
    }
}

/// Whether the first `N` bytes are the same, and the last.
#[inline(always)]
fn equal_ends<const N: usize>(a: &[u8], b: &[u8]) -> bool {
    a.first_chunk::<N>() == b.first_chunk::<N>() && a.last_chunk::<N>() == b.last_chunk::<N>()
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = ONES << 7;

/// Bytes before the first that no word holds: a blank or a control character.
#[inline(always)]
pub fn word_len(text: &[u8]) -> usize {
    // The top bit of each byte below '!'.
    len_until(text, |word| word.wrapping_sub(ONES * u64::from(b'!')) & !word, |byte| byte <= b' ')
}

/// Bytes before the first blank, or all.
#[inline(always)]
pub fn len_until_blank(text: &[u8]) -> usize {
    // The top bit of each byte that is 0 once the blanks are taken off.
    let blanks = |word: u64| {
        let word = word ^ (ONES * u64::from(b' '));
        word.wrapping_sub(ONES) & !word
    };
    len_until(text, blanks, |byte| byte == b' ')
}

/// Bytes before the first that `ends` a word. `ends_in` does the same for eight: it sets the top bit of the lowest
/// that does; those above it may be wrong (a borrow), and so may all other bits.
#[inline(always)]
fn len_until(text: &[u8], ends_in: impl Fn(u64) -> u64, ends: impl Fn(u8) -> bool) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    let mut len = 0;
    for word in words {
        let ends = ends_in(u64::from_le_bytes(*word)) & TOPS;
        if ends != 0 {
            return len + ends.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + rest.iter().take_while(|byte| !ends(**byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (1..=250).cycle().take(len).collect()
    }

    #[test]
    fn copies_every_length_and_nothing_beside_it() {
        for len in 0..300 {
            let from = bytes(len);
            let mut to = vec![0xff; len + 40];
            copy(&mut to, &from);
            assert_eq!(to[..len], from);
            assert_eq!(to[len..], [0xff; 40]);
        }
        let mut short = [7; 9];
        copy(&mut short, &bytes(10));
        assert_eq!(short, [7; 9]);
    }

    #[test]
    fn every_byte_counts() {
        for len in 0..150 {
            let a = bytes(len);
            assert!(equal(&a, &a.clone()));
            assert!(!equal(&a, &bytes(len + 1)));
            for at in 0..len {
                let mut b = a.clone();
                b[at] ^= 0x80;
                assert!(!equal(&a, &b), "{at} of {len}");
            }
        }
    }

    #[test]
    fn words_end_where_they_end() {
        for len in 0..40 {
            for at in 0..len {
                for end in 0..=255 {
                    let mut text = vec![b'k'; len];
                    text[at] = end;
                    assert_eq!(word_len(&text), if end <= b' ' { at } else { len }, "{at} {end}");
                    let blank = if end == b' ' { at } else { len };
                    assert_eq!(len_until_blank(&text), blank, "{at} {end}");
                    // What stands behind the first end does not count, however a borrow goes.
                    text[at + 1..].fill(b' ' + 1);
                    text[at] = b' ';
                    assert_eq!((word_len(&text), len_until_blank(&text)), (at, at));
                }
            }
        }
    }
}
