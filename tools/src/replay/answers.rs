//! The values in the reply to a get, one by one, in any of the protocols.
//!
//! In: the text of a whole reply. Out: its values, then its end. Nothing may stand behind the
//! end. What does not follow the protocol is [`Wrong::Malformed`], an error line or status
//! [`Wrong::Refused`].

use super::verify::{STATUS_NOT_FOUND, STATUS_OK, Wrong, refused};
use crate::workload::Protocol;
use dataplane::protocol::binary::{Header, RESPONSE_MAGIC, opcode};

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value<'a> {
    pub(super) key: &'a [u8],
    pub(super) flags: u32,
    pub(super) data: &'a [u8],
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next<'a> {
    Value(Value<'a>),
    End,
}

/// A reply being read.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    protocol: Protocol,
    /// One key was asked for: in meta and binary its answer, or a miss, is all.
    single: bool,
    rest: &'a [u8],
    seen: u32,
}

impl<'a> Answers<'a> {
    pub(super) fn new(protocol: Protocol, single: bool, reply: &'a [u8]) -> Self {
        Self { protocol, single, rest: reply, seen: 0 }
    }

    pub(super) fn next(&mut self) -> Result<Next<'a>, Wrong> {
        let next = match self.protocol {
            Protocol::Ascii if self.rest == b"END\r\n" => Some(Next::End),
            Protocol::Ascii => ascii(&mut self.rest).map(Next::Value),
            Protocol::Meta if self.ends_single() => Some(Next::End),
            Protocol::Meta if self.single && self.seen == 0 && is_miss(self.rest) => {
                Some(Next::End)
            }
            Protocol::Meta if !self.single && self.rest == b"MN\r\n" => Some(Next::End),
            Protocol::Meta if self.single && self.seen > 0 => None,
            Protocol::Meta => meta(&mut self.rest).map(Next::Value),
            Protocol::Binary if self.ends_single() => Some(Next::End),
            Protocol::Binary => return self.binary(),
        };
        self.seen += 1;
        match next {
            Some(next) => Ok(next),
            None if refused(self.rest) => Err(Wrong::Refused),
            None => Err(Wrong::Malformed),
        }
    }

    fn ends_single(&self) -> bool {
        self.single && self.seen == 1 && self.rest.is_empty()
    }

    fn binary(&mut self) -> Result<Next<'a>, Wrong> {
        let (head, rest) = Header::split(self.rest).ok_or(Wrong::Malformed)?;
        let (body, rest) = usize::try_from(head.body_bytes)
            .ok()
            .and_then(|len| rest.split_at_checked(len))
            .ok_or(Wrong::Malformed)?;
        let value = if self.single { opcode::GETK } else { opcode::GETKQ };
        self.seen += 1;
        self.rest = rest;
        match (head.magic, head.opcode, head.status) {
            (RESPONSE_MAGIC, opcode::NOOP, STATUS_OK) if !self.single && rest.is_empty() => {
                Ok(Next::End)
            }
            (RESPONSE_MAGIC, op, STATUS_OK) if op == value && (self.seen == 1 || !self.single) => {
                let (flags, text) = body.split_first_chunk::<4>().ok_or(Wrong::Malformed)?;
                let (key, data) = text
                    .split_at_checked(usize::from(head.key_bytes))
                    .filter(|_| head.extras_bytes == 4)
                    .ok_or(Wrong::Malformed)?;
                Ok(Next::Value(Value { key, flags: u32::from_be_bytes(*flags), data }))
            }
            (RESPONSE_MAGIC, op, STATUS_NOT_FOUND)
                if op == value && self.single && self.seen == 1 && rest.is_empty() =>
            {
                Ok(Next::End)
            }
            (RESPONSE_MAGIC, op, status) if op == value && status > STATUS_NOT_FOUND => {
                Err(Wrong::Refused)
            }
            _ => Err(Wrong::Malformed),
        }
    }
}

/// `EN`, with whatever flags were asked for, and nothing behind it.
fn is_miss(reply: &[u8]) -> bool {
    reply
        .strip_suffix(b"\r\n")
        .is_some_and(|line| (line == b"EN" || line.starts_with(b"EN ")) && !line.contains(&b'\n'))
}

/// `VALUE <key> <flags> <bytes> [<cas>]` and the data.
fn ascii<'a>(rest: &mut &'a [u8]) -> Option<Value<'a>> {
    let (line, after) = line(rest.strip_prefix(b"VALUE ")?)?;
    let mut words = line.split(|b| *b == b' ');
    let key = words.next()?;
    let flags = number(words.next()?)?;
    let bytes = number(words.next()?)?;
    if let Some(cas) = words.next() {
        std::str::from_utf8(cas).ok()?.parse::<u64>().ok()?;
    }
    if words.next().is_some() {
        return None;
    }
    let (data, after) = data(after, bytes)?;
    *rest = after;
    Some(Value { key, flags, data })
}

/// `VA <bytes> k<key> f<flags>` and the data.
fn meta<'a>(rest: &mut &'a [u8]) -> Option<Value<'a>> {
    let (line, after) = line(rest.strip_prefix(b"VA ")?)?;
    let mut words = line.split(|b| *b == b' ');
    let bytes = number(words.next()?)?;
    let key = words.next()?.strip_prefix(b"k")?;
    let flags = number(words.next()?.strip_prefix(b"f")?)?;
    if words.next().is_some() {
        return None;
    }
    let (data, after) = data(after, bytes)?;
    *rest = after;
    Some(Value { key, flags, data })
}

/// A line without its end, and what follows.
fn line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|b| *b == b'\n')?;
    Some((text.get(..end)?.strip_suffix(b"\r")?, text.get(end + 1..)?))
}

/// So many bytes, a line end behind them, and what follows.
fn data(text: &[u8], bytes: u32) -> Option<(&[u8], &[u8])> {
    let (data, after) = text.split_at_checked(usize::try_from(bytes).ok()?)?;
    Some((data, after.strip_prefix(b"\r\n")?))
}

/// Digits and nothing else, as a server writes them.
fn number(word: &[u8]) -> Option<u32> {
    if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}
