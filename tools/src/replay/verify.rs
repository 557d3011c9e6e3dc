//! Holds a whole reply against what was asked.

use crate::workload::{keys, values};

/// Most keys that a request datagram can hold: one-byte keys and blanks in 1,472 bytes.
const KEYS_MAX: usize = 768;

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

fn refused(reply: &[u8]) -> bool {
    [&b"ERROR"[..], b"CLIENT_ERROR", b"SERVER_ERROR"].iter().any(|e| reply.starts_with(e))
}

/// Checks the reply to a set.
///
/// # Errors
/// What is wrong with it.
pub fn set(reply: &[u8]) -> Result<(), Wrong> {
    match reply {
        b"STORED\r\n" => Ok(()),
        b"NOT_STORED\r\n" => Err(Wrong::NotStored),
        _ if refused(reply) => Err(Wrong::Refused),
        _ => Err(Wrong::Malformed),
    }
}

/// Checks the reply to a get for `asked`, keys with one blank between them: each value must be
/// one that the workload makes for its key. Gives the number of values.
///
/// # Errors
/// The first thing that is wrong.
pub fn get(asked: &[u8], reply: &[u8]) -> Result<u32, Wrong> {
    if refused(reply) {
        return Err(Wrong::Refused);
    }
    let mut used = [0u64; KEYS_MAX.div_ceil(64)];
    let mut rest = reply;
    // Servers answer in the order of the request: the search goes on behind the last hit.
    let mut at = Place { offset: 0, number: 0 };
    let mut found = 0;
    loop {
        if rest == b"END\r\n" {
            return Ok(found);
        }
        let value = Value::parse(&mut rest).ok_or(Wrong::Malformed)?;
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
            let rest = &asked[place.offset..];
            let len = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
            if &rest[..len] == key {
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

/// One `VALUE` of a reply.
struct Value<'a> {
    key: &'a [u8],
    flags: u32,
    data: &'a [u8],
}

impl<'a> Value<'a> {
    /// Takes a value off the front of `rest`.
    fn parse(rest: &mut &'a [u8]) -> Option<Self> {
        let text = rest.strip_prefix(b"VALUE ")?;
        let end = text.iter().position(|b| *b == b'\n')?;
        let line = text[..end].strip_suffix(b"\r")?;
        let mut words = line.split(|b| *b == b' ');
        let key = words.next()?;
        let flags = number(words.next()?)?;
        let bytes = usize::try_from(number(words.next()?)?).ok()?;
        if let Some(cas) = words.next() {
            std::str::from_utf8(cas).ok()?.parse::<u64>().ok()?;
        }
        if words.next().is_some() {
            return None;
        }
        let (data, after) = text[end + 1..].split_at_checked(bytes)?;
        *rest = after.strip_prefix(b"\r\n")?;
        Some(Self { key, flags, data })
    }
}

/// Digits and nothing else, as a server writes them.
fn number(word: &[u8]) -> Option<u32> {
    if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u64) -> String {
        let mut k = [0; 8];
        keys::write(i, &mut k);
        String::from_utf8(k.to_vec()).unwrap()
    }

    fn value(i: u64) -> Vec<u8> {
        let mut data = Vec::new();
        values::append(i, 3, 40, &mut data);
        let head = format!("VALUE {} {} 40\r\n", key(i), values::flags(i));
        [head.as_bytes(), &data, b"\r\n"].concat()
    }

    fn reply(is: &[u64]) -> Vec<u8> {
        let mut r: Vec<u8> = is.iter().flat_map(|i| value(*i)).collect();
        r.extend_from_slice(b"END\r\n");
        r
    }

    fn asked(is: &[u64]) -> Vec<u8> {
        is.iter().map(|i| key(*i)).collect::<Vec<_>>().join(" ").into_bytes()
    }

    #[test]
    fn hits_misses_and_any_order() {
        let a = asked(&[1, 2, 3, 2]);
        for (r, n) in [(&[][..], 0), (&[1, 2, 3, 2], 4), (&[3], 1), (&[3, 1], 2), (&[2, 2, 1], 3)] {
            assert_eq!(get(&a, &reply(r)), Ok(n), "{r:?}");
        }
    }

    #[test]
    fn every_lie_has_its_name() {
        let a = asked(&[1, 2]);
        assert_eq!(get(&a, &reply(&[3])), Err(Wrong::Key));
        assert_eq!(get(&a, &reply(&[1, 1])), Err(Wrong::Extra));
        assert_eq!(get(&a, b"SERVER_ERROR out of memory\r\n"), Err(Wrong::Refused));
        let mut other = value(1);
        other.truncate(other.len() - 42);
        values::append(2, 3, 40, &mut other);
        other.extend_from_slice(b"\r\nEND\r\n");
        assert_eq!(get(&a, &other), Err(Wrong::Value));
        let flags = String::from_utf8_lossy(&value(1)[..20]).replace(" 1 40", " 2 40").into_bytes();
        let flags = [&flags[..20], &reply(&[1])[20..]].concat();
        assert_eq!(get(&a, &flags), Err(Wrong::Flags));
        let good = reply(&[1, 2]);
        for len in 0..good.len() {
            assert_eq!(get(&a, &good[..len]), Err(Wrong::Malformed), "cut to {len}");
        }
        for r in [
            &b"VALUE a 0\r\nEND\r\n"[..],
            b"VALUE a 0 99999999999\r\nEND\r\n",
            b"VALUE a 0 +1\r\nx\r\nEND\r\n",
            b"VALUE a 0 1 2 3\r\nx\r\nEND\r\n",
            b"VALUE a 0 1 x\r\nx\r\nEND\r\n",
            b"END\r\nEND\r\n",
            b"END",
        ] {
            assert_eq!(get(&a, r), Err(Wrong::Malformed), "{}", r.escape_ascii());
        }
    }

    #[test]
    fn a_strange_key_is_not_trusted_even_when_asked_for() {
        assert_eq!(get(b"not-ours!", b"VALUE not-ours! 0 1\r\nx\r\nEND\r\n"), Err(Wrong::Key));
    }

    #[test]
    fn sets() {
        assert_eq!(set(b"STORED\r\n"), Ok(()));
        assert_eq!(set(b"NOT_STORED\r\n"), Err(Wrong::NotStored));
        assert_eq!(set(b"SERVER_ERROR out of memory storing object\r\n"), Err(Wrong::Refused));
        assert_eq!(set(b"STORED"), Err(Wrong::Malformed));
    }
}
