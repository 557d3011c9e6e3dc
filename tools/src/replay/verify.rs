//! Holds a whole reply against what was asked.
//!
//! In: the protocol, the keys asked for, the text of the reply. Out: how many values came, or the
//! first thing that is wrong.

#[cfg(test)]
mod tests;

use super::answers::{Answers, Next};
use crate::workload::{Protocol, keys, values};
use dataplane::protocol::binary::{Header, RESPONSE_MAGIC, opcode};

/// Most keys that a request datagram can hold: one-byte keys and blanks in 1,472 bytes.
const KEYS_MAX: usize = 768;
/// Statuses of binary replies.
pub(super) const STATUS_OK: u16 = 0;
pub(super) const STATUS_NOT_FOUND: u16 = 1;
const STATUS_NOT_STORED: u16 = 5;

/// What is wrong with a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Wrong {
    /// The text does not follow the protocol.
    Malformed,
    /// An error line instead of an answer.
    Refused,
    /// A value for a key that was not asked for.
    Key,
    /// More values for a key than it was asked for.
    Extra,
    /// Bytes that were never stored under the key.
    Value,
    /// Flags that were never stored with the key.
    Flags,
    /// A set that was not stored.
    NotStored,
    /// A miss where only hits are expected.
    Miss,
}

impl Wrong {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::Refused,
        Self::Key,
        Self::Extra,
        Self::Value,
        Self::Flags,
        Self::NotStored,
        Self::Miss,
    ];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::Key => "key",
            Self::Extra => "extra",
            Self::Value => "value",
            Self::Flags => "flags",
            Self::NotStored => "not_stored",
            Self::Miss => "miss",
        }
    }
}

pub(super) fn refused(reply: &[u8]) -> bool {
    [&b"ERROR"[..], b"CLIENT_ERROR", b"SERVER_ERROR"].iter().any(|e| reply.starts_with(e))
}

/// Checks the reply to a set.
///
/// # Errors
/// What is wrong with it.
pub fn set(protocol: Protocol, reply: &[u8]) -> Result<(), Wrong> {
    match (protocol, reply) {
        (Protocol::Ascii, b"STORED\r\n") | (Protocol::Meta, b"HD\r\n") => Ok(()),
        (Protocol::Ascii, b"NOT_STORED\r\n") | (Protocol::Meta, b"NS\r\n") => Err(Wrong::NotStored),
        (Protocol::Binary, _) => match status(reply, opcode::SET)? {
            STATUS_OK => Ok(()),
            STATUS_NOT_STORED => Err(Wrong::NotStored),
            _ => Err(Wrong::Refused),
        },
        _ if refused(reply) => Err(Wrong::Refused),
        _ => Err(Wrong::Malformed),
    }
}

/// Checks the reply to a delete.
///
/// # Errors
/// What is wrong with it.
pub fn delete(protocol: Protocol, reply: &[u8]) -> Result<(), Wrong> {
    match (protocol, reply) {
        (Protocol::Ascii, b"DELETED\r\n" | b"NOT_FOUND\r\n")
        | (Protocol::Meta, b"HD\r\n" | b"NF\r\n") => Ok(()),
        (Protocol::Binary, _) => match status(reply, opcode::DELETE)? {
            STATUS_OK | STATUS_NOT_FOUND => Ok(()),
            _ => Err(Wrong::Refused),
        },
        _ if refused(reply) => Err(Wrong::Refused),
        _ => Err(Wrong::Malformed),
    }
}

/// The status of a binary reply that is whole and answers `opcode`.
fn status(reply: &[u8], opcode: u8) -> Result<u16, Wrong> {
    match Header::split(reply) {
        Some((head, body))
            if head.magic == RESPONSE_MAGIC
                && head.opcode == opcode
                && body.len() as u64 == u64::from(head.body_bytes) =>
        {
            Ok(head.status)
        }
        _ => Err(Wrong::Malformed),
    }
}

/// Checks the reply to a get for `asked`, keys with one blank between them: each value must be
/// one that the workload makes for its key. Gives the number of values.
///
/// # Errors
/// The first thing that is wrong.
pub fn get(protocol: Protocol, asked: &[u8], reply: &[u8]) -> Result<u32, Wrong> {
    let mut used = [0u64; KEYS_MAX.div_ceil(64)];
    let mut answers = Answers::new(protocol, !asked.contains(&b' '), reply);
    // Servers answer in the order of the request: the search goes on behind the last hit.
    let mut at = Place { offset: 0, number: 0 };
    let mut found = 0;
    loop {
        let value = match answers.next()? {
            Next::End => return Ok(found),
            Next::Value(value) => value,
        };
        let (place, known) = search(asked, value.key, at, &used);
        at = place.ok_or(if known { Wrong::Extra } else { Wrong::Key })?;
        *used.get_mut(at.number / 64).ok_or(Wrong::Extra)? |= 1 << (at.number % 64);
        let index = keys::index(value.key).ok_or(Wrong::Key)?;
        if values::check(index, value.data).is_none() {
            return Err(Wrong::Value);
        }
        if value.flags != values::flags(index) {
            return Err(Wrong::Flags);
        }
        found += 1;
    }
}

/// A key among those asked for: where it begins, and how many stand before it.
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
