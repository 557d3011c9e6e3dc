//! Answers of the classic commands.
//!
//! In: what became of a command, or what was found. Out: lines. Never fails.

use crate::outcome::{Body, Hit, Outcome, Unstored};
use crate::sink::{Sink, Tail};
use arrayvec::ArrayVec;

/// What comes behind the last hit, and the last row of statistics.
pub const END: &[u8; 5] = b"END\r\n";
/// The bytes of [`LAST`].
pub const TAIL: &[u8; 7] = b"\r\nEND\r\n";

/// What comes behind the value of the last key.
pub const LAST: Tail = Tail { bytes: TAIL, last: true };
/// What comes behind the value of another one.
pub const MORE: Tail = Tail { bytes: b"\r\n", last: false };

/// The line for what became of a storage command.
#[inline(always)]
pub fn line(outcome: &Outcome<'_>) -> &'static [u8] {
    match outcome {
        Outcome::Done => b"OK\r\n",
        Outcome::Stored(_) => b"STORED\r\n",
        Outcome::NotStored(Unstored::Condition) => b"NOT_STORED\r\n",
        Outcome::Exists | Outcome::NotStored(Unstored::Exists) => b"EXISTS\r\n",
        Outcome::NotFound | Outcome::NotStored(Unstored::NotFound) => b"NOT_FOUND\r\n",
        Outcome::Deleted => b"DELETED\r\n",
        Outcome::Touched => b"TOUCHED\r\n",
        Outcome::Refused(why) => why.line(),
        Outcome::Number(_) | Outcome::Version(_) | Outcome::Lines(_) | Outcome::Bye => b"",
    }
}

/// Writes what became of a command.
#[inline]
pub(crate) fn put(outcome: Outcome<'_>, out: &mut impl Sink) {
    match outcome {
        Outcome::Number(number) => {
            out.put_decimal(number.number);
            out.put(b"\r\n");
        }
        Outcome::Version(version) => {
            out.put(b"VERSION ");
            out.put(version.as_bytes());
            out.put(b"\r\n");
        }
        Outcome::Lines(lines) => out.put(lines),
        Outcome::Bye => {}
        outcome => out.put(line(&outcome)),
    }
}

/// Most bytes of a `VALUE` line and its line ends beside key and value: the words and blanks, two
/// 32-bit numbers and a 64-bit one in decimal.
pub const VALUE_OVERHEAD_BYTES: usize = 6 + 1 + 10 + 1 + 10 + 1 + 20 + 2 + 2;

/// Most bytes of [`numbers`]: three with a blank before each, the first of 32 bits.
const NUMBERS_MAX_BYTES: usize = 1 + 10 + 1 + 20 + 1 + 20 + 2;

/// ` <flags> <bytes>\r\n`, of one digit and two: made in a register, because bytes that were written
/// one by one are slow to read in one piece.
#[inline(always)]
fn usual_numbers([flags, tens, ones]: [u64; 3]) -> [u8; 7] {
    let line = u64::from_le_bytes(*b" 0 00\r\n\0") + (flags << 8) + (tens << 24) + (ones << 32);
    let [line @ .., _] = line.to_le_bytes();
    line
}

/// ` <flags> <bytes> [<cas>]\r\n`, whatever the numbers.
#[inline(never)]
fn numbers(flags: u32, len: usize, cas: Option<u64>) -> ArrayVec<u8, NUMBERS_MAX_BYTES> {
    let mut line = ArrayVec::new();
    for number in [Some(flags.into()), Some(len as u64), cas].into_iter().flatten() {
        line.put(b" ");
        line.put_decimal(number);
    }
    line.put(b"\r\n");
    line
}

/// Writes `VALUE <key> <flags> <bytes> [<cas>]\r\n<data>`, and what comes behind it.
#[inline(always)]
pub fn put_value(hit: &Hit<'_, impl Body>, tail: Tail, out: &mut impl Sink) {
    let Hit { key, flags, cas, value } = *hit;
    out.put(b"VALUE ");
    out.put(key);
    match (u8::try_from(flags), u8::try_from(value.len()), cas) {
        // The usual line, at one stroke.
        (Ok(flags @ 0..10), Ok(len @ 10..100), None) => {
            let digits = [flags, len / 10, len % 10].map(u64::from);
            out.put(&usual_numbers(digits));
        }
        _ => out.put(&numbers(flags, value.len(), cas)),
    }
    value.put(tail, out);
}
