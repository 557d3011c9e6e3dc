//! The usual `get` of one key and the usual `set`, read at one go: one blank between words, numbers of a few digits, and
//! all of the value there.
//!
//! In: bytes from a connection or a datagram. Out: the key or the command, where they begin with one of
//! that shape. `None` says nothing about them: the strict parser reads everything, these commands
//! too, and to the same end (tests, fuzzing).

use crate::command::{KEY_MAX_BYTES, Store};
use base::small_bytes;

/// Bytes behind a number's first digit among which its end is looked for: any number that ends there
/// fits what it is for.
const END_WITHIN_BYTES: usize = 9;

/// The key of a `get` of one key, and the bytes that the request is.
#[inline(always)]
pub fn plain_get(input: &[u8]) -> Option<(&[u8], usize)> {
    let rest = input.strip_prefix(b"get ")?;
    let len = small_bytes::word_len(rest.get(..KEY_MAX_BYTES + 1).unwrap_or(rest));
    let key = rest.get(..len).filter(|key| (1..=KEY_MAX_BYTES).contains(&key.len()))?;
    let end = rest.get(len..)?;
    end.starts_with(b"\r\n").then_some((key, b"get \r\n".len() + len))
}

/// A `set`, and the bytes that it takes.
#[derive(Debug)]
pub struct PlainSet<'a> {
    /// What to store.
    pub what: Store<'a>,
    /// Send no answer.
    pub noreply: bool,
    /// Bytes of the input that it is.
    pub used: usize,
}

/// Reads `set KEY FLAGS EXPTIME BYTES [noreply]` and its value, of at most `item_max_bytes`.
#[inline(always)]
pub fn plain_set(input: &[u8], item_max_bytes: usize) -> Option<PlainSet<'_>> {
    let line = input.strip_prefix(b"set ")?;
    let (key, rest) = line.split_at_checked(small_bytes::word_len(line))?;
    if !(1..=KEY_MAX_BYTES).contains(&key.len()) {
        return None;
    }
    let (flags, rest) = number(rest)?;
    let (exptime, rest) = number(rest)?;
    let (len, rest) = number(rest)?;
    let (noreply, rest) = match rest {
        [b'\r', b'\n', block @ ..] => (false, block),
        _ => (true, rest.strip_prefix(b" noreply\r\n")?),
    };
    let len = usize::try_from(len).ok().filter(|&len| len <= item_max_bytes)?;
    let (value, rest) = rest.split_at_checked(len)?;
    let [b'\r', b'\n', rest @ ..] = rest else { return None };
    let what = Store::set(key, flags, i64::from(exptime), value);
    Some(PlainSet { what, noreply, used: input.len() - rest.len() })
}

/// A blank and a number, and what stands behind its last digit.
#[inline(always)]
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let [b' ', first @ b'0'..=b'9', rest @ ..] = text else { return None };
    let (mut number, mut rest) = (u32::from(first - b'0'), rest);
    for _ in 0..END_WITHIN_BYTES {
        let [digit @ b'0'..=b'9', behind @ ..] = rest else { return Some((number, rest)) };
        // What a tenth digit makes of it is not used.
        number = number.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'));
        rest = behind;
    }
    None
}
