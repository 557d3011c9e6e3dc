//! Sums of 16-bit words as the processor reads them, least significant byte first: the Internet
//! checksum (RFC 1071, section 2(B)) without a byte turned.
//!
//! In: words, and sums of pieces that begin at even or odd places. Out: folded sums. Nothing fails.

/// What adding it takes away `x`, modulo 2^16 - 1.
pub(crate) const fn less(x: u16) -> u32 {
    (0xffff - x) as u32
}

/// Most bytes that are summed without a loop.
pub(crate) const SHORT: usize = 128;

/// The sum of a line end.
pub(crate) const LINE_END: u16 = of(b"\r\n");

/// The sum of `bytes`, folded.
pub(crate) const fn of(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    let mut n = 0;
    while n < bytes.len() {
        sum += (bytes[n] as u32) << (8 * (n % 2));
        n += 1;
    }
    fold32(sum)
}

/// Folds a sum of up to 65,537 words.
#[inline(always)]
pub(crate) const fn fold32(sum: u32) -> u16 {
    // A number and itself turned round by half: the upper half of that is both halves added, the
    // carry from below taken in.
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Folds a sum of 32-bit words.
#[inline(always)]
pub(crate) const fn fold64(sum: u64) -> u16 {
    fold32((sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32)
}

/// The sum of a piece that begins `at` bytes into the whole.
#[inline(always)]
pub(crate) const fn turned(sum: u16, at: usize) -> u32 {
    (if at.is_multiple_of(2) { sum } else { sum.swap_bytes() }) as u32
}

/// A sum of a piece that begins `at` bytes into the whole: turned by a byte it is that of the
/// bytes changed about, whatever its length (RFC 1071, section 2(B)).
#[inline(always)]
pub(crate) fn at(sum: u64, at: usize) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "0 or 8")]
    let bits = (8 * at as u32) & 8;
    sum.rotate_left(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::checksum;

    #[test]
    fn agrees_with_the_sums_of_the_general_stages() {
        let bytes: Vec<u8> = (0..=255).cycle().take(700).collect();
        for len in 0..bytes.len() {
            assert_eq!(of(&bytes[..len]).swap_bytes(), checksum::sum(&bytes[..len]));
        }
        let (a, b) = bytes.split_at(333);
        let whole = fold32(u32::from(of(a)) + turned(of(b), a.len()));
        assert_eq!(whole.swap_bytes(), checksum::sum(&bytes));
        let b_at = at(u64::from(of(b)) + 0xffff, a.len());
        assert_eq!(fold64(u64::from(of(a)) + b_at).swap_bytes(), checksum::sum(&bytes));
        assert_eq!(at(0x1234, 0), 0x1234);
        assert_eq!((fold64(0xffff_ffff_0001), fold64(0xffff_ffff_0000)), (1, 0xffff));
        assert_eq!(fold32(u32::from(of(b"abcd")) + less(of(b"cd"))), of(b"ab"));
    }
}
