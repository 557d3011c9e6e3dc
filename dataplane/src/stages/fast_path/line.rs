//! What stands between key and value of a reply, for every length of value: text and sum.
//!
//! In: a value's length and its item's flags. Out: ` <flags> <bytes>\r\n`, from a table where there are no
//! flags.

use crate::plain::requests::UDP_AROUND_KEY;
use crate::plain::sum::{LINE_END, less, of};
use crate::plain::window::{WINDOW, put};
use memcache::text::TAIL;
use wire::udp_frame::{PAYLOAD_MAX_BYTES, TEXT_AFTER_UDP};

/// ` <flags> <bytes>\r\n`, and what follows from it.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(super) struct Line {
    /// Zeros behind its end.
    text: [u64; 2],
    text_end: u16,
    /// UDP length of the reply without the key.
    pub(super) around_key: u16,
    /// The sum of the line, and of [`TAIL`] where that stands, less the line end of the request.
    sum: u32,
    /// By how much the rest of the reply's sum is more than the request's, whatever the key.
    more: u32,
    /// Bytes of the line.
    pub(super) len: u8,
}

/// Bytes that a line may have: two blanks, ten digits, four, and its end.
const LEN_MAX: usize = 18;
/// UDP length of a reply beside key, line and value.
const AROUND: usize = TEXT_AFTER_UDP + b"VALUE ".len() + TAIL.len();

impl Line {
    /// The line for a value of this length and no flags. `None`: it does not fit a datagram.
    #[inline(always)]
    pub(super) fn plain(value_len: usize) -> Option<&'static Self> {
        LINES.get(value_len)
    }

    /// The line for a value of this length, which fits a datagram.
    #[cold]
    #[inline(never)]
    pub(super) fn with_flags(flags: u32, value_len: usize) -> Self {
        Self::made(flags, value_len)
    }

    /// The line with flags of one digit in the place of none.
    #[inline(always)]
    pub(super) fn with_digit(&self, flags: u32) -> Digit<'_> {
        Digit { line: self, more: flags << 8 }
    }

    /// Writes the digits of the value's length, and returns where they end.
    #[inline(always)]
    pub(super) fn put_digits(&self, window: &mut [u8; WINDOW], at: usize) -> usize {
        // They stand behind ` 0 `, and a line end behind them.
        let [first, _] = self.text;
        put(window, at, (first >> 24).to_le_bytes());
        at + usize::from(self.len) - b" 0 \r\n".len()
    }

    /// By what the reply's sum is more than the request's beside: its verb, and twice its length.
    /// 2^16 - 1, which is nothing, is in it, so that a sum can be taken from it.
    #[inline(always)]
    pub(super) fn more(&self) -> u64 {
        self.more.into()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "18 bytes of text, and a datagram's length"
    )]
    const fn made(flags: u32, value_len: usize) -> Self {
        let mut text = [0u8; LEN_MAX];
        let at = put_number(&mut text, 0, flags as usize);
        let at = put_number(&mut text, at, value_len);
        text[at] = b'\r';
        text[at + 1] = b'\n';
        let len = at + 2;
        let tail = of(TAIL);
        let tail = if (len + value_len).is_multiple_of(2) { tail } else { tail.swap_bytes() };
        let sum = of(&text) as u32 + tail as u32 + less(LINE_END);
        let mut words = [0; 2];
        let mut n = 0;
        while n < 16 {
            words[n / 8] |= (text[n] as u64) << (8 * (n % 8));
            n += 1;
        }
        let around_key = (AROUND + len + value_len) as u16;
        let longer = (2 * (around_key - UDP_AROUND_KEY as u16)).swap_bytes() as u32;
        Self {
            text: words,
            text_end: u16::from_le_bytes([text[16], text[17]]),
            around_key,
            sum,
            more: 0xffff + of(b"VALUE ") as u32 + less(of(b"get ")) + longer,
            len: len as u8,
        }
    }
}

/// A line, and what its digit for the flags is more than 0, in the second byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digit<'a> {
    pub(super) line: &'a Line,
    more: u32,
}

impl Digit<'_> {
    /// Its bytes, and further ones.
    #[inline(always)]
    pub(super) fn text(self) -> ([u8; 16], [u8; 2]) {
        let [first, second] = self.line.text;
        let first = first + u64::from(self.more);
        let text = u128::from(first) | u128::from(second) << 64;
        (text.to_le_bytes(), self.line.text_end.to_le_bytes())
    }

    /// Writes it, and returns where it ends.
    #[inline(always)]
    pub(super) fn put(self, window: &mut [u8; WINDOW], at: usize) -> usize {
        let (text, text_end) = self.text();
        put(window, at, text);
        put(window, at + text.len(), text_end);
        at + usize::from(self.line.len)
    }

    /// The sum of line and tail, as if the line began at an even place, less the request's line
    /// end at an even place.
    #[inline(always)]
    pub(super) fn sum(self) -> u64 {
        (self.line.sum + self.more).into()
    }
}

/// Writes a blank and a number, and says where they end.
#[expect(clippy::cast_possible_truncation, reason = "a digit")]
const fn put_number(text: &mut [u8; LEN_MAX], at: usize, number: usize) -> usize {
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
    let mut lines = [Line::made(0, 0); PAYLOAD_MAX_BYTES + 1];
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
    use crate::plain::sum::{fold32, fold64, turned};

    #[test]
    fn every_line_is_what_it_says() {
        for value_len in 0..=PAYLOAD_MAX_BYTES {
            for flags in [0, 1, 9, 10, 255, 65_535, u32::MAX] {
                let want = format!(" {flags} {value_len}\r\n");
                let line = Line::with_flags(flags, value_len);
                let (a, b) = line.with_digit(0).text();
                assert_eq!(&[&a[..], &b].concat()[..usize::from(line.len)], want.as_bytes());
                let tail = turned(of(TAIL), want.len() + value_len);
                let sum = fold32(u32::from(of(want.as_bytes())) + tail);
                assert_eq!(fold64(line.with_digit(0).sum() + u64::from(LINE_END)), sum);
                let len = 8 + 8 + 6 + want.len() + value_len + TAIL.len();
                assert_eq!(usize::from(line.around_key), len);
                let more = 2 * u16::try_from(len - 22).unwrap();
                let more = u32::from(of(b"VALUE ")) + u32::from(more.swap_bytes());
                assert_eq!(fold64(line.more() + u64::from(of(b"get "))), fold32(more));
            }
        }
        let (four, line) = (Line::plain(7).unwrap().with_digit(4), Line::with_flags(4, 7));
        assert_eq!(four.text(), line.with_digit(0).text());
        assert_eq!(four.sum(), line.with_digit(0).sum());
        assert!(Line::plain(PAYLOAD_MAX_BYTES + 1).is_none());
    }
}
