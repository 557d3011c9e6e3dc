//! A request's command, as far as a reply can be checked against it.
//!
//! In: the text of a request. Out: its protocol, and command; its keys, if it is a get. `None`
//! for requests that call for no particular reply, or that only the server can judge.

use super::{Protocol, line, number};
use memcache::binary::{Header, REQUEST_MAGIC, opcode};
use memcache::command::KEY_MAX_BYTES;

/// First byte of keys in frames that were spoilt on purpose: no reply is held against them.
pub const SPOILT_MARK: u8 = b'!';

/// The reply that a request calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Some of the values of so many keys.
    Get(u32),
    /// That a value was stored.
    Set,
    /// That a key was deleted or was not there.
    Delete,
    /// Anything else: a reply may come or not. A spoilt frame counts here even when the damage
    /// lies where only the server can see it.
    Other,
}

impl Protocol {
    /// The protocol that a request begins in.
    pub fn of(request: &[u8]) -> Self {
        match request {
            [REQUEST_MAGIC, ..] => Self::Binary,
            [b'm', b'g' | b's' | b'd' | b'n', b' ' | b'\r', ..] => Self::Meta,
            _ => Self::Ascii,
        }
    }

    /// The request's command; `None`: nothing that a reply could be held against.
    pub fn asked(self, request: &[u8]) -> Option<Asked> {
        if let Some(count) = self.keys(request, &mut |_| ()) {
            return Some(Asked::Get(count));
        }
        if self != Self::Binary {
            return change(request);
        }
        let (op, extras, key, rest) = packet(request)?;
        let asked = match (op, extras) {
            (opcode::SET, 8) => Asked::Set,
            (opcode::DELETE, 0) => Asked::Delete,
            _ => return None,
        };
        (rest.is_empty() && is_key(key)).then_some(asked)
    }

    /// Gives each key of a get to `each`, and says how many there are. `None`: it is no get, or
    /// none that a reply can be held against.
    pub fn keys(self, request: &[u8], each: &mut dyn FnMut(&[u8])) -> Option<u32> {
        let mut count = 0;
        let mut one = |key: &[u8]| {
            count += 1;
            is_key(key).then(|| each(key))
        };
        let mut rest = request;
        match self {
            Self::Ascii => {
                let line = rest.strip_suffix(b"\r\n")?;
                let list = line.strip_prefix(b"get ").or_else(|| line.strip_prefix(b"gets "))?;
                list.split(|b| *b == b' ').try_for_each(one)?;
                Some(count)
            }
            Self::Meta => {
                let mut alone = true;
                while let Some(after) = rest.strip_prefix(b"mg ") {
                    let (key, flags) = after.split_at(after.iter().position(|b| *b == b' ')?);
                    one(key)?;
                    if alone && flags == b" k f v\r\n" {
                        return Some(1);
                    }
                    alone = false;
                    rest = flags.strip_prefix(b" k f v q\r\n")?;
                }
                (rest == b"mn\r\n" && count > 0).then_some(count)
            }
            Self::Binary => loop {
                let (op, extras, key, after) = packet(rest)?;
                let first = rest.len() == request.len();
                rest = after;
                match op {
                    opcode::GETK if first && extras == 0 && rest.is_empty() => {
                        one(key)?;
                        return Some(1);
                    }
                    opcode::GETKQ if extras == 0 => one(key)?,
                    opcode::NOOP if !first && rest.is_empty() => return Some(count),
                    _ => return None,
                }
            },
        }
    }
}

fn is_key(k: &[u8]) -> bool {
    !k.is_empty()
        && k.len() <= KEY_MAX_BYTES
        && k.iter().all(|b| *b > b' ' && *b != 0x7f)
        && k.first() != Some(&SPOILT_MARK)
}

/// A binary request: its opcode, bytes of extras, key, and what follows it.
fn packet(text: &[u8]) -> Option<(u8, u8, &[u8], &[u8])> {
    let (header, rest) = Header::split(text)?;
    let (body, rest) = rest.split_at_checked(usize::try_from(header.body_bytes).ok()?)?;
    let extras = usize::from(header.extras_bytes);
    let key = body.get(extras..extras + usize::from(header.key_bytes))?;
    let plain = header.magic == REQUEST_MAGIC && header.status == 0;
    plain.then_some((header.opcode, header.extras_bytes, key, rest))
}

/// Sets and deletes in text, with the flags that we write: others change what comes back.
fn change(text: &[u8]) -> Option<Asked> {
    let (line, data) = line(text).ok()??;
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let is_number = |word: &[u8]| number::<u32>(word).is_some();
    let flag =
        |word: &[u8], letter| word.split_first().is_some_and(|(l, n)| *l == letter && is_number(n));
    let bytes = match words[..] {
        [b"delete" | b"md", key] if is_key(key) && data.is_empty() => return Some(Asked::Delete),
        [b"set", key, flags, exptime, bytes]
            if is_key(key) && is_number(flags) && is_number(exptime) =>
        {
            bytes
        }
        [b"ms", key, bytes, f, t] if is_key(key) && flag(f, b'F') && flag(t, b'T') => bytes,
        _ => return None,
    };
    let bytes = usize::try_from(number::<u32>(bytes)?).ok()?.checked_add(2)?;
    (data.len() == bytes && data.ends_with(b"\r\n")).then_some(Asked::Set)
}
