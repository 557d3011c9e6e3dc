//! Which frames are plain `set`s, and what is in them.
//!
//! In: frames as they came; they are only looked at. Out: where key and value stand, the numbers, and
//! what is known of the source. What a frame must have to be taken is what a plain `get` must have, and a
//! line of one blank between its words. Checksums are verified here, unless the port has.

use super::long_key::long_word_len;
use crate::plain::datagram::sums_hold;
use crate::plain::family::{FRAME, V4, window};
use crate::plain::requests::RequestMatcher;
use crate::plain::sum::fold32;
use crate::plain::vector::{KEY_BLOCK, LONG_BLOCK, Vector};
use crate::plain::window::{ADDRESSES, L4, TEXT, WINDOW, part};
use driver_shim::Frame;
use store::SUM_KEPT_MIN_BYTES;
use wire::udp_frame::TEXT_AFTER_UDP;

/// From the third byte of the memcached frame header on: whole, reserved bytes, verb.
const SET: u64 = u64::from_le_bytes(*b"\0\x01\0\0set ");
/// First byte of the key.
pub(super) const KEY: usize = TEXT + b"set ".len();
/// Most digits of a number: any that has no more fits what it is for.
const DIGITS_MAX: usize = 9;
/// Bytes that a sum looks at at a time.
const SUM_BLOCK: usize = 32;

/// The request in a frame.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Set {
    /// The key's hash.
    pub(super) hash: u64,
    /// The item's flags, as the client names them.
    pub(super) flags: u32,
    /// The exptime, as the client names it.
    pub(super) exptime: u32,
    /// Where in the frame the value begins.
    pub(super) value_at: u16,
    /// Bytes of the value.
    pub(super) value_len: u16,
    /// The value's sum, where items keep it.
    pub(super) value_sum: Option<u16>,
    /// Bytes of the request's text.
    pub(super) text_len: u16,
    /// The sum of the reply's IPv4 header, but for its length.
    pub(super) ip_sum: u16,
    /// Number of the request's frame in the burst.
    pub(super) frame: u8,
    /// Bytes of the key.
    pub(super) key_len: u8,
    /// No answer is wanted.
    pub(super) noreply: bool,
}

impl Set {
    /// Bytes of key and value.
    #[inline(always)]
    pub(super) fn lens(&self) -> (usize, usize) {
        (self.key_len.into(), self.value_len.into())
    }
}

/// Whether the frame may hold a `set`.
#[inline(always)]
pub(super) fn may_be(frame: &Frame) -> bool {
    window_of(frame).is_some_and(is_set)
}

/// What is looked at, if all that an answer is written to is there, too.
#[inline(always)]
fn window_of(frame: &Frame) -> Option<&[u8; WINDOW]> {
    window(frame.window::<FRAME>()?, V4)
}

#[inline(always)]
fn is_set(window: &[u8; WINDOW]) -> bool {
    u64::from_le_bytes(*part(window, TEXT - 4)) == SET
}

impl RequestMatcher {
    /// Whether frame `n` is a plain `set` of a value of at most `item_max_bytes`: writes what it is, but for the
    /// hash, and returns a block that begins with its key.
    #[inline(always)]
    pub(super) fn set<'f>(
        &mut self,
        (n, frame): (usize, &'f Frame),
        item_max_bytes: usize,
        vector: impl Vector,
        set: &mut Set,
    ) -> Option<&'f [u8; LONG_BLOCK]> {
        let Some(window) = window_of(frame).filter(|window| is_set(window)) else {
            return other();
        };
        let Some(udp_len) = self.head(frame, part(window, 0), vector) else { return other() };
        let end = L4 + udp_len;
        let key = part(window, KEY);
        let key_len = match vector.word_len(part(window, KEY)) {
            KEY_BLOCK => long_word_len(window, KEY, vector),
            len => len,
        };
        let Some(line) = Numbers::read(window, KEY + key_len, vector) else { return other() };
        let value_at = line.end;
        let fits = key_len > 0
            && line.value_len <= item_max_bytes
            && value_at + line.value_len + 2 == end
            // A sum of the value looks at whole blocks.
            && end <= WINDOW - SUM_BLOCK
            && *part(window, end.wrapping_sub(2)) == *b"\r\n";
        if !fits {
            return other();
        }
        let value_sum = if line.value_len < SUM_KEPT_MIN_BYTES {
            None
        } else {
            Some(fold32(vector.sum(window.get(value_at..)?, line.value_len)))
        };
        let verified = frame.rx.ip_good.is_set() && frame.rx.udp_good.is_set();
        if !verified && !sums_hold(window, end, value_sum.map(|sum| (value_at, sum)), vector) {
            return other();
        }
        let ip_sum = self.trusted(u64::from_le_bytes(*part(window, ADDRESSES)));
        let Some(ip_sum) = ip_sum else { return other() };
        #[expect(clippy::cast_possible_truncation, reason = "lengths of a window and of a burst")]
        let read = Set {
            hash: 0,
            flags: line.flags,
            exptime: line.exptime,
            value_at: value_at as u16,
            value_len: line.value_len as u16,
            // Items keep it as numbers whose most significant byte comes first.
            value_sum: value_sum.map(u16::swap_bytes),
            text_len: (udp_len - TEXT_AFTER_UDP) as u16,
            ip_sum,
            frame: n as u8,
            key_len: key_len as u8,
            noreply: line.noreply,
        };
        *set = read;
        Some(key)
    }
}

/// No plain `set`: seldom, so that the compiler lays out the code for those that are one.
#[cold]
#[inline(never)]
fn other<'f>() -> Option<&'f [u8; LONG_BLOCK]> {
    None
}

/// What stands behind the key in the line of a `set`.
struct Numbers {
    flags: u32,
    exptime: u32,
    value_len: usize,
    noreply: bool,
    /// Where the line ends, and the value begins.
    end: usize,
}

impl Numbers {
    /// Reads ` <flags> <exptime> <bytes>[ noreply]\r\n`, which begins `at` there.
    #[inline(always)]
    fn read(window: &[u8; WINDOW], at: usize, vector: impl Vector) -> Option<Self> {
        let block: &[u8; KEY_BLOCK] = part(window, at);
        let (blanks, digits) = vector.blanks_and_digits(block);
        // What is neither.
        let end = (!(blanks | digits)).trailing_zeros();
        #[expect(clippy::cast_possible_truncation, reason = "of 32 bits at most")]
        let blanks = blanks & ((1u64 << end) - 1) as u32;
        let line_end = at + end as usize;
        // By far the most usual: a digit, a digit, and the length.
        if blanks != 0b10101 || *part(window, line_end) != *b"\r\n" {
            return Self::read_other(window, at, (blanks, end));
        }
        Some(Self {
            flags: u32::from(block[1] & 0xf),
            exptime: u32::from(block[3] & 0xf),
            value_len: number(window, at, 4, end)? as usize,
            noreply: false,
            end: line_end + b"\r\n".len(),
        })
    }

    /// [`Self::read`] of a line with these blanks before `end`, and digits between them.
    #[inline(never)]
    fn read_other(window: &[u8; WINDOW], at: usize, (blanks, mut end): (u32, u32)) -> Option<Self> {
        let second = blanks & blanks.wrapping_sub(1);
        let third = second & second.wrapping_sub(1);
        let fourth = third & third.wrapping_sub(1);
        if blanks & 1 == 0 || third == 0 {
            return None;
        }
        let line_end = at + end as usize;
        let noreply = fourth != 0;
        let behind = if noreply {
            let fits =
                fourth.trailing_zeros() + 1 == end && *part(window, line_end) == *b"noreply\r\n";
            end -= 1;
            fits.then_some(b"noreply\r\n".len())?
        } else {
            (*part(window, line_end) == *b"\r\n").then_some(b"\r\n".len())?
        };
        let (second, third) = (second.trailing_zeros(), third.trailing_zeros());
        Some(Self {
            flags: number(window, at, 0, second)?,
            exptime: number(window, at, second, third)?,
            value_len: number(window, at, third, end)? as usize,
            noreply,
            end: line_end + behind,
        })
    }
}

/// The number between a blank and `end`, both counted from `at`. `None`: it has no digits, or more than are
/// read.
#[inline(always)]
fn number(window: &[u8; WINDOW], at: usize, blank: u32, end: u32) -> Option<u32> {
    let n = end.wrapping_sub(blank + 1);
    let end = at + end as usize;
    if n.wrapping_sub(1) >= 4 {
        return long_number(window.get(at + blank as usize + 1..end)?);
    }
    // The last digit is the most significant byte; what is before the first is made zeros.
    let digits = u32::from_le_bytes(*part(window, end.wrapping_sub(4)));
    let digits = digits & 0x0f0f_0f0f & (u32::MAX << (8 * (4 - n)));
    // Two digits each, in the first byte and in the third.
    let pairs = digits * 10 + (digits >> 8);
    Some((pairs & 0xff) * 100 + (pairs >> 16 & 0xff))
}

#[cold]
#[inline(never)]
fn long_number(digits: &[u8]) -> Option<u32> {
    let fits = (1..=DIGITS_MAX).contains(&digits.len());
    fits.then(|| digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit & 0xf)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::vector::Portable;

    fn read(line: &[u8]) -> Option<(u32, u32, usize, bool, usize)> {
        let mut window = [b'7'; WINDOW];
        window[60..60 + line.len()].copy_from_slice(line);
        let read = Numbers::read(&window, 60, Portable)?;
        Some((read.flags, read.exptime, read.value_len, read.noreply, read.end - 60))
    }

    #[test]
    fn every_number_is_read() {
        let numbers =
            [0, 1, 9, 10, 12, 99, 100, 123, 999, 1000, 9999, 10_000, 123_456, 999_999_999];
        for flags in numbers {
            for exptime in numbers {
                for len in [0usize, 7, 10, 64, 100, 999, 1000, 1300] {
                    let line = format!(" {flags} {exptime} {len}\r\n");
                    let want = (flags, exptime, len, false, line.len());
                    assert_eq!(read(line.as_bytes()), Some(want), "{line}");
                    let line = format!(" {flags} {exptime} {len} noreply\r\n");
                    let want = (flags, exptime, len, true, line.len());
                    assert_eq!(read(line.as_bytes()), Some(want), "{line}");
                }
            }
        }
        assert_eq!(read(b" 007 0000 00064\r\n"), Some((7, 0, 64, false, 17)));
    }

    #[test]
    fn other_lines_are_left() {
        for line in [
            &b" 0 0\r\n"[..],
            b" 0 0 \r\n",
            b"  0 0 1\r\n",
            b" 0  0 1\r\n",
            b" 0 0  1\r\n",
            b" 0 0 1 \r\n",
            b" 0 0 1 5\r\n",
            b" 0 0 1 noreply \r\n",
            b" 0 0 1 noreply\n",
            b" 0 0 1  noreply\r\n",
            b" 0 0 1 nor eply\r\n",
            b" 0 0 1noreply\r\n",
            b" 0 -1 1\r\n",
            b" 0 +1 1\r\n",
            b" 0\t0 1\r\n",
            b" 0 0 1\n",
            b" 0 0 1\r",
            b"x0 0 1\r\n",
            b" 0 0 a\r\n",
            b" 1234567890 0 1\r\n",
            b" 0 1234567890 1\r\n",
            b" 0 0 0000000001\r\n",
            b" 111111111 222222222 333333333\r\n444",
            b" 0 0 1234567890123456789012345678901234567890",
        ] {
            assert_eq!(read(line).filter(|read| read.2 < 333_333_333), None, "{line:?}");
        }
    }
}
