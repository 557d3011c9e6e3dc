//! The Internet checksum (RFC 1071): sums of 16-bit big-endian words in ones' complement.
//!
//! A *sum* is folded to 16 bits and not complemented, so sums of pieces can be added. What
//! stands in a header is the complement, made by [`field`] or [`udp_field`].

/// The sum of `bytes`, an odd last byte padded with zero.
///
/// Works on whole 64-bit words of the other byte order: the ones' complement sum does not depend
/// on it (RFC 1071, section 2(B)), so one swap at the end is enough.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    fold(total(bytes)).swap_bytes()
}

/// A sum that is still being made: it takes pieces and is folded once, at the end. Holds the words
/// of the other byte order in a number wide enough for millions of pieces.
#[derive(Debug, Clone, Copy)]
pub struct Pieces(u64);

impl Pieces {
    /// Any bytes.
    #[inline(always)]
    pub fn of(bytes: &[u8]) -> Self {
        let word = total(bytes);
        Self((word >> 32) + (word & u64::from(u32::MAX)))
    }

    /// A header, or a part of one: few bytes, and the caller knows how many.
    #[inline(always)]
    pub fn of_header(header: &[u8]) -> Self {
        let (words, rest) = header.as_chunks::<4>();
        let sum: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
        Self(sum + tail(header, rest))
    }

    /// Little-endian words that were added up.
    #[inline(always)]
    pub fn added(words: u32) -> Self {
        Self(words.into())
    }

    /// One word, or the sum of others.
    #[inline(always)]
    pub fn word(word: u16) -> Self {
        Self(word.swap_bytes().into())
    }

    /// The sum.
    #[inline(always)]
    pub fn sum(self) -> u16 {
        fold(self.0).swap_bytes()
    }
}

impl std::ops::Add for Pieces {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// The words of `bytes` added up, carries going round.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "each step keeps one half on purpose")]
fn total(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    // Two chains of add-with-carry.
    let (mut even, mut odd) = (0u128, 0u128);
    for block in blocks {
        if let ([a, b, c, d], _) = block.as_chunks::<8>() {
            even += u128::from(u64::from_le_bytes(*a));
            odd += u128::from(u64::from_le_bytes(*b));
            even += u128::from(u64::from_le_bytes(*c));
            odd += u128::from(u64::from_le_bytes(*d));
        }
    }
    // What is left of a block, without a loop: 16 bytes, 8, and the last few.
    let mut rest = rest;
    if let Some((&two, behind)) = rest.split_first_chunk::<16>() {
        let two = u128::from_le_bytes(two);
        even += two >> 64;
        odd += two & u128::from(u64::MAX);
        rest = behind;
    }
    if let Some((&word, behind)) = rest.split_first_chunk::<8>() {
        even += u128::from(u64::from_le_bytes(word));
        rest = behind;
    }
    let wide = even + odd + u128::from(tail(bytes, rest));
    // Few carries were counted, so that taking them in makes at most one more and no further.
    let (word, carry) = (wide as u64).overflowing_add((wide >> 64) as u64);
    word + u64::from(carry)
}

/// The last bytes of `bytes`, fewer than a word, as a word with zeros behind.
#[inline(always)]
fn tail(bytes: &[u8], mut rest: &[u8]) -> u64 {
    if rest.is_empty() {
        return 0;
    }
    if let Some(last) = bytes.last_chunk::<8>() {
        // Without the bytes before `rest`, which are counted already.
        return u64::from_le_bytes(*last) >> (64 - 8 * rest.len());
    }
    let mut word = 0;
    if let Some((&four, behind)) = rest.split_first_chunk::<4>() {
        word += u64::from(u32::from_le_bytes(four));
        rest = behind;
    }
    if let Some((&two, behind)) = rest.split_first_chunk::<2>() {
        word += u64::from(u16::from_le_bytes(two));
        rest = behind;
    }
    word + rest.first().map_or(0, |&last| u64::from(last))
}

/// Folds a wide sum to 16 bits, carries going round.
#[inline(always)]
fn fold(word: u64) -> u16 {
    // A number and itself turned round by half: the upper half of that is both halves added, the
    // carry from below taken in.
    let half = (word.wrapping_add(word.rotate_left(32)) >> 32) as u32;
    (half.wrapping_add(half.rotate_left(16)) >> 16) as u16
}

/// Adds two sums of pieces that both begin at an even offset.
#[inline]
pub fn add(a: u16, b: u16) -> u16 {
    let (s, carry) = a.overflowing_add(b);
    // After a carry `s` is at most 0xfffe.
    s + u16::from(carry)
}

/// Adds the sum `b` of a piece that begins at an odd offset of what `a` sums.
#[inline]
pub fn add_swapped(a: u16, b: u16) -> u16 {
    add(a, b.swap_bytes())
}

/// The sum of the pseudo-header before UDP, TCP and ICMPv6 (RFC 768; RFC 8200, section 8.1).
/// `addresses` are source and destination as they stand in the IP header, 8 or 32 bytes;
/// `len` is that of the upper protocol's header and data, in bytes.
#[inline]
pub fn pseudo(addresses: &[u8], protocol: u8, len: u16) -> u16 {
    pseudo_pieces(addresses, protocol, len).sum()
}

/// As [`pseudo`], for a sum that goes on.
#[inline(always)]
pub fn pseudo_pieces(addresses: &[u8], protocol: u8, len: u16) -> Pieces {
    Pieces::of_header(addresses) + Pieces::word(protocol.into()) + Pieces::word(len)
}

/// What stands in a checksum field over bytes of this sum.
#[inline]
pub fn field(sum: u16) -> u16 {
    !sum
}

/// What stands in UDP's checksum field over bytes of this sum: never 0, which would mean that
/// there is no checksum (RFC 768).
#[inline]
pub fn udp_field(sum: u16) -> u16 {
    match !sum {
        0 => 0xffff,
        c => c,
    }
}

/// The new checksum field after a 16-bit word under it changed (RFC 1624, equation 3).
#[inline]
pub fn replace(field: u16, old: u16, new: u16) -> u16 {
    !add(add(!field, !old), new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 word by word, the slow way.
    fn plain(bytes: &[u8]) -> u16 {
        let mut s = 0u32;
        for pair in bytes.chunks(2) {
            s += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| u32::from(b));
            s = (s & 0xffff) + (s >> 16);
        }
        u16::try_from(s).unwrap()
    }

    fn noise(n: usize) -> Vec<u8> {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        std::iter::repeat_with(|| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            x.to_be_bytes()[0]
        })
        .take(n)
        .collect()
    }

    #[test]
    fn agrees_with_the_plain_sum_at_every_length_and_alignment() {
        let bytes = noise(300);
        for at in 0..9 {
            for len in 0..bytes.len() - at {
                assert_eq!(sum(&bytes[at..at + len]), plain(&bytes[at..at + len]), "{at}+{len}");
            }
        }
    }

    #[test]
    fn carries_go_round_at_the_extremes() {
        for len in [1, 2, 7, 8, 31, 32, 33, 64, 1500, 65_535] {
            let ones = vec![0xff; len];
            assert_eq!(sum(&ones), plain(&ones), "{len}");
            assert_eq!(sum(&vec![0; len]), 0);
        }
    }

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn pieces_add_up_wherever_the_cut_is() {
        let bytes = noise(97);
        for cut in 0..bytes.len() {
            let (a, b) = bytes.split_at(cut);
            let whole =
                if cut % 2 == 0 { add(sum(a), sum(b)) } else { add_swapped(sum(a), sum(b)) };
            assert_eq!(whole, sum(&bytes), "cut at {cut}");
        }
    }

    #[test]
    fn replacing_a_word_is_summing_again() {
        let mut bytes = noise(40);
        let before = field(sum(&bytes));
        let old = u16::from_be_bytes([bytes[6], bytes[7]]);
        for new in [0, 1, 0x1234, 0xffff] {
            bytes[6..8].copy_from_slice(&u16::to_be_bytes(new));
            assert_eq!(replace(before, old, new), field(sum(&bytes)));
        }
    }

    #[test]
    fn udp_never_says_no_checksum() {
        assert_eq!(udp_field(0xffff), 0xffff);
        assert_eq!(udp_field(0x1234), 0xedcb);
        assert_eq!(udp_field(0), 0xffff);
    }
}
