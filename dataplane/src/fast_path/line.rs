//! What stands between key and value of a reply, for every length of value: text and sum.
//!
//! In: a value's length and its item's flags. Out: ` <flags> <bytes>\r\n`, from a table where the flags
//! have one digit.

use super::sum::{less, of};
use crate::protocol::udp_frame::PAYLOAD_MAX_BYTES;

/// Behind the value.
pub(super) const TAIL: &[u8; 7] = b"\r\nEND\r\n";
/// Behind the key of a request.
const LINE_END: u16 = of(b"\r\n");

/// ` <flags> <bytes>\r\n`, and what follows from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    /// Zeros behind its end.
    text: [u64; WORDS],
    /// Of the line and of [`TAIL`] where that stands, less the line end of the request.
    sum: u32,
    /// Bytes of the line.
    pub(super) len: u8,
}

/// Words in which a line lies: two blanks, ten digits, four, and its end are 18 bytes.
const WORDS: usize = 3;

impl Line {
    /// The line for a value of this length. `None`: it does not fit a datagram.
    #[inline(always)]
    pub(super) fn new(flags: u32, value_len: usize) -> Option<Self> {
        let line = LINES.get(value_len)?;
        if flags >= 10 {
            return Some(Self::any(flags, value_len));
        }
        let [first, rest @ ..] = line.text;
        let [second, third] = rest;
        let text = [first + (u64::from(flags) << 8), second, third];
        Some(Self { text, sum: line.sum + (flags << 8), ..*line })
    }

    /// Its bytes.
    #[inline(always)]
    pub(super) fn text(&self) -> [[u8; 8]; WORDS] {
        self.text.map(u64::to_le_bytes)
    }

    /// The sum of line and tail, as if the line began at an even place, less the request's line
    /// end at an even place.
    #[inline(always)]
    pub(super) fn sum(&self) -> u32 {
        self.sum
    }

    #[cold]
    #[inline(never)]
    fn any(flags: u32, value_len: usize) -> Self {
        Self::made(flags, value_len)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a line has 18 bytes at most")]
    const fn made(flags: u32, value_len: usize) -> Self {
        let mut text = [0u8; 8 * WORDS];
        let at = put_number(&mut text, 0, flags as usize);
        let at = put_number(&mut text, at, value_len);
        text[at] = b'\r';
        text[at + 1] = b'\n';
        let len = at + 2;
        let tail = of(TAIL);
        let tail = if (len + value_len).is_multiple_of(2) { tail } else { tail.swap_bytes() };
        let sum = of(&text) as u32 + tail as u32 + less(LINE_END);
        let mut words = [0; WORDS];
        let mut n = 0;
        while n < text.len() {
            words[n / 8] |= (text[n] as u64) << (8 * (n % 8));
            n += 1;
        }
        Self { text: words, sum, len: len as u8 }
    }
}

/// Writes a blank and a number, and says where they end.
#[expect(clippy::cast_possible_truncation, reason = "a digit")]
const fn put_number(text: &mut [u8; 8 * WORDS], at: usize, number: usize) -> usize {
    text[at] = b' ';
    let (mut digits, mut left) = (1, number / 10);
    while left > 0 {
        digits += 1;
        left /= 10;
    }
    let (mut n, mut left) = (digits, number);
    while n > 0 {
        text[at + n] = b'0' + (left % 10) as u8;
        left /= 10;
        n -= 1;
    }
    at + 1 + digits
}

/// For values of every length that may fit a datagram, without flags.
static LINES: [Line; PAYLOAD_MAX_BYTES + 1] = {
    let mut lines = [Line { text: [0; WORDS], sum: 0, len: 0 }; PAYLOAD_MAX_BYTES + 1];
    let mut n = 0;
    while n < lines.len() {
        lines[n] = Line::made(0, n);
        n += 1;
    }
    lines
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast_path::sum::{fold32, turned};

    #[test]
    fn every_line_is_what_it_says() {
        for value_len in 0..=PAYLOAD_MAX_BYTES {
            for flags in (0..10).chain([10, 255, 65_535, u32::MAX]) {
                let want = format!(" {flags} {value_len}\r\n");
                let line = Line::new(flags, value_len).unwrap();
                assert_eq!(&line.text().concat()[..usize::from(line.len)], want.as_bytes());
                let tail = turned(of(TAIL), want.len() + value_len);
                let sum = fold32(u32::from(of(want.as_bytes())) + tail);
                assert_eq!(fold32(line.sum() + u32::from(LINE_END)), sum);
            }
        }
        assert!(Line::new(0, PAYLOAD_MAX_BYTES + 1).is_none());
    }
}
