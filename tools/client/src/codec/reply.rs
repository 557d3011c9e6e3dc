//! Replies, read one by one from what has come: the same for all tools and all protocols.
//!
//! In: bytes that begin with a reply. Out: the reply and what follows it, or nothing while it is not
//! whole. Fails: what no server writes. A get is answered by several replies: its values, and what
//! ends them.

use super::request::Field;
use super::{Malformed, Place, Protocol, Read, Stag, line, number, place};
use memcache::binary::{Header, RESPONSE_MAGIC, opcode};
use std::io::Write as _;

/// Longest value of any server: what is said to be longer is not waited for.
const VALUE_MAX_BYTES: u32 = 1 << 30;
/// Statuses of binary replies (protocol_binary.txt).
const STATUS_OK: u16 = 0;
const STATUS_NOT_FOUND: u16 = 1;
const STATUS_EXISTS: u16 = 2;
const STATUS_NOT_STORED: u16 = 5;

/// A value that was found. What a reply does not report is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Value<'a> {
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// The client's flags.
    pub flags: Option<u32>,
    /// The item's CAS id.
    pub cas: Option<u64>,
    /// What it is read by over the network.
    pub stag: Option<Stag>,
    /// What it is read by in the memory file.
    pub place: Option<Place>,
    /// The value itself.
    pub data: &'a [u8],
    /// Binary: one of several, which another reply ends.
    pub quiet: bool,
}

/// What a server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A value of a get.
    Value(Value<'a>),
    /// There are no more: `END`, `MN`, NOOP.
    End,
    /// The only key requested is not there: `EN`, or GETK's status.
    Miss,
    /// `STORED`, or SET's status.
    Stored,
    /// `DELETED`, or DELETE's status.
    Deleted,
    /// `TOUCHED`.
    Touched,
    /// `HD`: a meta command's word for all three. `OK`, of a flush.
    Done,
    /// The same with the stag of what was stored, or is there.
    Named(Stag),
    /// The same with the place of what was stored, or is there.
    Placed(Place),
    /// `NOT_STORED`, `NS`, or SET's status.
    NotStored,
    /// `EXISTS`, `EX`, or SET's status.
    Exists,
    /// `NOT_FOUND`, `NF`, or DELETE's status.
    NotFound,
    /// The number after counting.
    Number(u64),
    /// One line of `stats`: a name and its value.
    Stat(&'a [u8], &'a [u8]),
    /// `VERSION`, and which.
    Version(&'a [u8]),
    /// An error line, or the text of a status.
    Refused(&'a [u8]),
}

/// The reply that `bytes` begin with, and what follows it; `None` while it is not whole.
///
/// # Errors
/// [`Malformed`].
pub fn parse(protocol: Protocol, bytes: &[u8]) -> Result<Option<(Reply<'_>, &[u8])>, Malformed> {
    if protocol == Protocol::Binary {
        return binary(bytes);
    }
    let Some((line, after)) = line(bytes)? else { return Ok(None) };
    let mut words = line.split(|b| *b == b' ');
    let first = words.next().unwrap_or_default();
    let reply = match (protocol, first, line.len() - first.len()) {
        (Protocol::Ascii, b"VALUE", _) => return classic(words, after),
        (Protocol::Meta, b"VA", _) => return meta(words, after),
        (Protocol::Meta, b"EN", _) => Reply::Miss,
        (Protocol::Ascii, b"STAT", _) => {
            let name = words.next().ok_or(Malformed)?;
            Reply::Stat(name, line.get("STAT ".len() + name.len() + 1..).unwrap_or_default())
        }
        (_, b"VERSION", _) => Reply::Version(line.get("VERSION ".len()..).unwrap_or_default()),
        (_, b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR", _) => Reply::Refused(line),
        (Protocol::Ascii, b"END", 0) | (Protocol::Meta, b"MN", 0) => Reply::End,
        (Protocol::Ascii, b"STORED", 0) => Reply::Stored,
        (Protocol::Ascii, b"DELETED", 0) => Reply::Deleted,
        (Protocol::Ascii, b"TOUCHED", 0) => Reply::Touched,
        (Protocol::Meta, b"HD", 0) | (Protocol::Ascii, b"OK", 0) => Reply::Done,
        (Protocol::Meta, b"HD", _) => match (words.next(), words.next()) {
            (Some([b'g', stag @ ..]), None) => Reply::Named(Stag::parse(stag)?),
            (Some([b'p', word @ ..]), None) => Reply::Placed(place::parse(word)?),
            _ => return Err(Malformed),
        },
        (Protocol::Ascii, b"NOT_STORED", 0) | (Protocol::Meta, b"NS", 0) => Reply::NotStored,
        (Protocol::Ascii, b"EXISTS", 0) | (Protocol::Meta, b"EX", 0) => Reply::Exists,
        (Protocol::Ascii, b"NOT_FOUND", 0) | (Protocol::Meta, b"NF", 0) => Reply::NotFound,
        (Protocol::Ascii, digits, 0) => Reply::Number(number(digits).ok_or(Malformed)?),
        _ => return Err(Malformed),
    };
    Ok(Some((reply, after)))
}

/// `VALUE <key> <flags> <bytes> [<cas>]` and the data.
fn classic<'a>(mut words: impl Iterator<Item = &'a [u8]>, after: &'a [u8]) -> Read<'a, Reply<'a>> {
    let key = words.next();
    let flags = Some(words.next().and_then(number).ok_or(Malformed)?);
    let bytes = words.next().and_then(number).ok_or(Malformed)?;
    let cas = words.next().map(|id| number(id).ok_or(Malformed)).transpose()?;
    if words.next().is_some() {
        return Err(Malformed);
    }
    let value = |data| Reply::Value(Value { key, flags, cas, data, ..Value::default() });
    Ok(block(after, bytes)?.map(|(data, rest)| (value(data), rest)))
}

/// `VA <bytes> [k<key>] [f<flags>] [c<cas>] [g<stag>,<length>] [p<place>] [W] [X] [Z]` and the data.
fn meta<'a>(mut words: impl Iterator<Item = &'a [u8]>, after: &'a [u8]) -> Read<'a, Reply<'a>> {
    let bytes = words.next().and_then(number).ok_or(Malformed)?;
    let mut value = Value::default();
    for word in words {
        match word.split_first() {
            Some((b'k', key)) if value.key.is_none() => value.key = Some(key),
            Some((b'f', n)) if value.flags.is_none() => {
                value.flags = Some(number(n).ok_or(Malformed)?);
            }
            Some((b'c', n)) if value.cas.is_none() => value.cas = Some(number(n).ok_or(Malformed)?),
            Some((b'g', stag)) if value.stag.is_none() => value.stag = Some(Stag::parse(stag)?),
            Some((b'p', word)) if value.place.is_none() => value.place = Some(place::parse(word)?),
            // It is out of date, or to be fetched anew, by this client or another.
            Some((b'W' | b'X' | b'Z', [])) => {}
            _ => return Err(Malformed),
        }
    }
    Ok(block(after, bytes)?.map(|(data, rest)| (Reply::Value(Value { data, ..value }), rest)))
}

/// So many bytes with a line end behind them.
fn block(text: &[u8], bytes: u32) -> Read<'_, &[u8]> {
    if bytes > VALUE_MAX_BYTES {
        return Err(Malformed);
    }
    let Some((data, rest)) = text.split_at_checked(bytes as usize) else { return Ok(None) };
    match rest {
        [b'\r', b'\n', rest @ ..] => Ok(Some((data, rest))),
        [] | [b'\r'] => Ok(None),
        _ => Err(Malformed),
    }
}

fn binary(bytes: &[u8]) -> Read<'_, Reply<'_>> {
    let Some((head, rest)) = Header::split(bytes) else { return Ok(None) };
    if head.magic != RESPONSE_MAGIC {
        return Err(Malformed);
    }
    let Some((body, rest)) = rest.split_at_checked(head.body_bytes as usize) else {
        return Ok(None);
    };
    let reply = match (head.opcode, head.status) {
        (opcode::GETK | opcode::GETKQ, STATUS_OK) => {
            let (flags, text) = body.split_first_chunk::<4>().ok_or(Malformed)?;
            let (key, data) = text
                .split_at_checked(usize::from(head.key_bytes))
                .filter(|_| head.extras_bytes == 4)
                .ok_or(Malformed)?;
            let (flags, cas) = (Some(u32::from_be_bytes(*flags)), Some(head.cas));
            let quiet = head.opcode == opcode::GETKQ;
            Reply::Value(Value { key: Some(key), flags, cas, data, quiet, ..Value::default() })
        }
        (opcode::NOOP, STATUS_OK) => Reply::End,
        (opcode::SET, STATUS_OK) => Reply::Stored,
        (opcode::DELETE, STATUS_OK) => Reply::Deleted,
        (opcode::GETK, STATUS_NOT_FOUND) => Reply::Miss,
        (opcode::SET | opcode::DELETE, STATUS_NOT_FOUND) => Reply::NotFound,
        (opcode::SET | opcode::DELETE, STATUS_EXISTS) => Reply::Exists,
        (opcode::SET, STATUS_NOT_STORED) => Reply::NotStored,
        (_, STATUS_OK | STATUS_NOT_FOUND) => return Err(Malformed),
        _ => Reply::Refused(body),
    };
    Ok(Some((reply, rest)))
}

/// Appends the reply to an ASCII get that found this value, without its end; for callers that know what must
/// come back.
pub fn append_value(key: &impl Field, flags: u32, value: &impl Field, out: &mut Vec<u8>) {
    out.extend_from_slice(b"VALUE ");
    key.append(out);
    // Writing to a vector cannot fail.
    let _ = write!(out, " {flags} {}\r\n", value.bytes());
    value.append(out);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAG: Stag = Stag { id: 0xa1b2_c3d4_e5f6_0718, len: 48 };
    const PLACE: Place = Place { generation: 10, offset: 0x20_0000, left: 0, number: 1 };

    fn value<'a>(key: Option<&'a [u8]>, flags: Option<u32>, cas: Option<u64>) -> Reply<'a> {
        Reply::Value(Value { key, flags, cas, data: b"a\r\n", ..Value::default() })
    }

    #[test]
    fn replies_are_read_when_whole_and_not_before() {
        use Protocol::{Ascii, Meta};
        let (k, f) = (Some(&b"k"[..]), Some(3));
        for (protocol, text, reply) in [
            (Ascii, &b"VALUE k 3 3\r\na\r\n\r\n"[..], value(k, f, None)),
            (Ascii, b"VALUE k 3 3 12\r\na\r\n\r\n", value(k, f, Some(12))),
            (Meta, b"VA 3\r\na\r\n\r\n", value(None, None, None)),
            (Meta, b"VA 3 f3 c12 kk\r\na\r\n\r\n", value(k, f, Some(12))),
            (Meta, b"VA 3 f3 kk X W\r\na\r\n\r\n", value(k, f, None)),
            (Ascii, b"END\r\n", Reply::End),
            (Meta, b"MN\r\n", Reply::End),
            (
                Meta,
                b"VA 0 ga1b2c3d4e5f60718,48\r\n\r\n",
                Reply::Value(Value { stag: Some(STAG), ..Value::default() }),
            ),
            (Meta, b"HD ga1b2c3d4e5f60718,48\r\n", Reply::Named(STAG)),
            (Meta, b"HD pa,200000,0,1\r\n", Reply::Placed(PLACE)),
            (
                Meta,
                b"VA 0 pa,200000,0,1\r\n\r\n",
                Reply::Value(Value { place: Some(PLACE), ..Value::default() }),
            ),
            (Meta, b"EN\r\n", Reply::Miss),
            (Ascii, b"TOUCHED\r\n", Reply::Touched),
            (Meta, b"HD\r\n", Reply::Done),
            (Ascii, b"EXISTS\r\n", Reply::Exists),
            (Meta, b"EX\r\n", Reply::Exists),
            (Ascii, b"18446744073709551615\r\n", Reply::Number(u64::MAX)),
            (Ascii, b"STAT a b c\r\n", Reply::Stat(b"a", b"b c")),
            (Ascii, b"VERSION 1.6\r\n", Reply::Version(b"1.6")),
            (Meta, b"SERVER_ERROR no\r\n", Reply::Refused(b"SERVER_ERROR no")),
        ] {
            for n in 0..text.len() {
                assert_eq!(parse(protocol, &text[..n]), Ok(None), "{} {n}", text.escape_ascii());
            }
            let more = [text, b"more"].concat();
            assert_eq!(parse(protocol, &more), Ok(Some((reply, &b"more"[..]))));
        }
    }

    #[test]
    fn what_no_server_writes_is_malformed() {
        use Protocol::{Ascii, Binary, Meta};
        for (protocol, text) in [
            (Ascii, &b"VALUE k 3 1\r\nab"[..]),
            (Ascii, b"VALUE k 3\r\n"),
            (Ascii, b"VALUE k -3 1\r\na\r\n"),
            (Ascii, b"VALUE k 3 1 1 1\r\na\r\n"),
            (Ascii, b"STORED \r\n"),
            (Ascii, b"STORED\n"),
            (Ascii, b"HD\r\n"),
            (Ascii, b"18446744073709551616\r\n"),
            (Ascii, b"\r\n"),
            (Ascii, &[b'x'; super::super::LINE_MAX_BYTES]),
            (Ascii, b"VALUE k 3 1073741825\r\na"),
            (Meta, b"VA 1073741825\r\na"),
            (Meta, b"STORED\r\n"),
            (Meta, b"VA 1 x\r\na\r\n"),
            (Meta, b"HD x\r\n"),
            (Meta, b"HD ga1b2c3d4e5f60718,48 f1\r\n"),
            (Meta, b"VA 1 ka kb\r\na\r\n"),
            (Meta, b"17\r\n"),
            (Binary, &[0x80; 24]),
        ] {
            assert_eq!(parse(protocol, text), Err(Malformed), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn the_value_that_must_come_back() {
        let mut text = Vec::new();
        append_value(&"k", 3, &"a\r\n", &mut text);
        assert_eq!(
            parse(Protocol::Ascii, &text),
            Ok(Some((value(Some(b"k"), Some(3), None), &[][..])))
        );
    }
}
