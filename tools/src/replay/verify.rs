//! Holds a whole reply against what was asked.
//!
//! In: the protocol, the keys requested, the text of the reply. Out: how many values came, or the
//! first thing that is wrong.

#[cfg(test)]
mod tests;

use crate::report::named;
use crate::workload::{keys, values};
use gnomon_client::codec::reply::parse;
use gnomon_client::codec::{Malformed, Protocol, Reply, Value};

/// Most keys that a request datagram can hold: one-byte keys and blanks in 1,472 bytes.
const KEYS_MAX: usize = 768;

named! {
    /// What is wrong with a reply.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[repr(usize)]
    pub enum Wrong {
        /// The text does not follow the protocol.
        Malformed = "malformed",
        /// An error line instead of an answer.
        Refused = "refused",
        /// A value for a key that was not requested.
        Key = "key",
        /// More values for a key than it was requested.
        Extra = "extra",
        /// Bytes that were never stored under the key.
        Value = "value",
        /// Flags that were never stored with the key.
        Flags = "flags",
        /// A set that was not stored.
        NotStored = "not_stored",
        /// A miss where only hits are expected.
        Miss = "miss",
    }
}

impl From<Malformed> for Wrong {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Takes the next reply from what has come; it must be whole.
fn next<'a>(protocol: Protocol, rest: &mut &'a [u8]) -> Result<Reply<'a>, Wrong> {
    let (reply, after) = parse(protocol, rest)?.ok_or(Wrong::Malformed)?;
    *rest = after;
    Ok(reply)
}

/// The only reply in what has come.
fn only(protocol: Protocol, mut reply: &[u8]) -> Result<Reply<'_>, Wrong> {
    match next(protocol, &mut reply)? {
        Reply::Refused(_) => Err(Wrong::Refused),
        only if reply.is_empty() => Ok(only),
        _ => Err(Wrong::Malformed),
    }
}

/// Checks the reply to a set.
///
/// # Errors
/// What is wrong with it.
pub fn set(protocol: Protocol, reply: &[u8]) -> Result<(), Wrong> {
    match only(protocol, reply)? {
        Reply::Stored | Reply::Done => Ok(()),
        Reply::NotStored => Err(Wrong::NotStored),
        _ => Err(Wrong::Malformed),
    }
}

/// Checks the reply to a delete.
///
/// # Errors
/// What is wrong with it.
pub fn delete(protocol: Protocol, reply: &[u8]) -> Result<(), Wrong> {
    match only(protocol, reply)? {
        Reply::Deleted | Reply::Done | Reply::NotFound => Ok(()),
        _ => Err(Wrong::Malformed),
    }
}

/// The next value in the reply to a get, or `None` behind the last. One key, requested in meta or
/// binary, is answered by its value or a miss; all others by values and what ends them.
fn next_value<'a>(
    protocol: Protocol,
    single: bool,
    found: u32,
    rest: &mut &'a [u8],
) -> Result<Option<Value<'a>>, Wrong> {
    let single = single && protocol != Protocol::Ascii;
    if single && found == 1 && rest.is_empty() {
        return Ok(None);
    }
    match next(protocol, rest)? {
        Reply::Value(value) if !single || found == 0 => {
            let as_asked = value.quiet == (protocol == Protocol::Binary && !single);
            as_asked.then_some(Some(value)).ok_or(Wrong::Malformed)
        }
        Reply::Miss if single && found == 0 && rest.is_empty() => Ok(None),
        Reply::End if !single && rest.is_empty() => Ok(None),
        Reply::Refused(_) => Err(Wrong::Refused),
        _ => Err(Wrong::Malformed),
    }
}

/// What a right reply to a get holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Values.
    pub values: u32,
    /// Those of keys that no workload makes, as in captures of real clients: what they should be is not known.
    pub unchecked: u32,
}

/// Checks the reply to a get for `asked`, keys with one blank between them: each value must be
/// one that the workload makes for its key, if it makes that key.
///
/// # Errors
/// The first thing that is wrong.
pub fn get(protocol: Protocol, asked: &[u8], reply: &[u8]) -> Result<Found, Wrong> {
    let mut used = [0u64; KEYS_MAX.div_ceil(64)];
    let (single, mut rest) = (!asked.contains(&b' '), reply);
    // Servers answer in the order of the request: the search goes on behind the last hit.
    let mut at = Place { offset: 0, number: 0 };
    let mut found = Found::default();
    while let Some(value) = next_value(protocol, single, found.values, &mut rest)? {
        let (key, flags) = value.key.zip(value.flags).ok_or(Wrong::Malformed)?;
        let (place, known) = search(asked, key, at, &used);
        at = place.ok_or(if known { Wrong::Extra } else { Wrong::Key })?;
        *used.get_mut(at.number / 64).ok_or(Wrong::Extra)? |= 1 << (at.number % 64);
        found.values += 1;
        let Some(index) = keys::index(key) else {
            found.unchecked += 1;
            continue;
        };
        if values::check(index, value.data).is_none() {
            return Err(Wrong::Value);
        }
        if flags != values::flags(index) {
            return Err(Wrong::Flags);
        }
    }
    Ok(found)
}

/// A key among those requested: where it begins, and how many stand before it.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: usize,
    number: usize,
}

/// Looks for an unused place of `key`, from `from` on and then from the start. Also says
/// whether the key stands there at all.
fn search(asked: &[u8], key: &[u8], from: Place, used: &[u64]) -> (Option<Place>, bool) {
    let mut known = false;
    for (start, end) in [(from, asked.len()), (Place { offset: 0, number: 0 }, from.offset)] {
        let mut place = start;
        while place.offset < end {
            let rest = asked.get(place.offset..).unwrap_or_default();
            let len = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
            if rest.get(..len) == Some(key) {
                known = true;
                let taken =
                    used.get(place.number / 64).is_none_or(|w| w >> (place.number % 64) & 1 == 1);
                if !taken {
                    return (Some(place), true);
                }
            }
            place = Place { offset: place.offset + len + 1, number: place.number + 1 };
        }
    }
    (None, known)
}
