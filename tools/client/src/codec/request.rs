//! Requests as memcached reads them: ASCII, meta or binary (protocol.txt).
//!
//! In: a command. Out: its bytes, appended to a buffer. Nothing fails: the caller has checked the
//! sizes.
//!
//! | | ASCII | meta | binary |
//! |---|---|---|---|
//! | get, one key | `get` | `mg KEY k f v` | GETK |
//! | get, several | `get` | `mg KEY k f v q` each, then `mn` | GETKQ each, then NOOP |
//! | set | `set` | `ms` | SET |
//! | set, quiet | `set … noreply` | `ms … q` | SETQ |
//! | delete | `delete` | `md` | DELETE |

use super::{Protocol, udp};
use memcache::binary::{HEADER_BYTES, Header, opcode};
use std::io::Write as _;

/// Bytes of a binary set's extras: flags and expiry.
const SET_EXTRAS_BYTES: usize = 8;
/// Most digits of a TTL and of client flags.
const TTL_DIGITS: usize = 7;
const FLAGS_DIGITS: usize = 1;

/// A key or a value: bytes at hand, or what writes itself into the request.
pub trait Field {
    /// How many bytes it has.
    fn bytes(&self) -> usize;
    /// Appends them.
    fn append(&self, out: &mut Vec<u8>);
}

impl<T: AsRef<[u8]>> Field for T {
    fn bytes(&self) -> usize {
        self.as_ref().len()
    }

    fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_ref());
    }
}

/// The set of one key.
#[derive(Debug, Clone, Copy)]
pub struct Set<K, V> {
    /// The key.
    pub key: K,
    /// The client's flags.
    pub flags: u32,
    /// Seconds after which it expires; 0 is never.
    pub ttl_s: u32,
    /// The value.
    pub value: V,
    /// No reply is wanted if all goes well.
    pub quiet: bool,
}

// Writing to a vector cannot fail, so that the results of `write!` say nothing.

fn words(parts: &[&dyn Field], out: &mut Vec<u8>) {
    for part in parts {
        part.append(out);
    }
}

/// Appends a line, and a value behind it where there is one.
pub fn text(line: &str, value: Option<&[u8]>, out: &mut Vec<u8>) {
    words(&[&line, &"\r\n"], out);
    if let Some(value) = value {
        words(&[&value, &"\r\n"], out);
    }
}

/// Appends the header of a binary request.
fn head(opcode: u8, extras: usize, key: usize, value: usize, out: &mut Vec<u8>) {
    let header = Header {
        key_bytes: u16::try_from(key).unwrap_or(u16::MAX),
        extras_bytes: u8::try_from(extras).unwrap_or(u8::MAX),
        body_bytes: u32::try_from(extras + key + value).unwrap_or(u32::MAX),
        ..Header::request(opcode)
    };
    out.extend_from_slice(&header.bytes());
}

impl Protocol {
    /// Appends a get of these keys.
    pub fn get<K: Field>(self, keys: impl ExactSizeIterator<Item = K>, out: &mut Vec<u8>) {
        let one = keys.len() == 1;
        if self == Self::Ascii {
            out.extend_from_slice(b"get");
        }
        for key in keys {
            match self {
                Self::Ascii => words(&[&" ", &key], out),
                Self::Meta if one => words(&[&"mg ", &key, &" k f v\r\n"], out),
                Self::Meta => words(&[&"mg ", &key, &" k f v q\r\n"], out),
                Self::Binary => {
                    head(if one { opcode::GETK } else { opcode::GETKQ }, 0, key.bytes(), 0, out);
                    key.append(out);
                }
            }
        }
        match self {
            Self::Ascii => out.extend_from_slice(b"\r\n"),
            Self::Meta if !one => out.extend_from_slice(b"mn\r\n"),
            Self::Binary if !one => head(opcode::NOOP, 0, 0, 0, out),
            _ => {}
        }
    }

    /// Appends a set.
    pub fn set<K: Field, V: Field>(self, set: &Set<K, V>, out: &mut Vec<u8>) {
        let Set { key, flags, ttl_s, value, quiet } = set;
        let bytes = value.bytes();
        match self {
            Self::Ascii => {
                words(&[&"set ", key], out);
                let quiet = if *quiet { " noreply" } else { "" };
                let _ = write!(out, " {flags} {ttl_s} {bytes}{quiet}\r\n");
                words(&[value, &"\r\n"], out);
            }
            Self::Meta => {
                words(&[&"ms ", key], out);
                let _ =
                    write!(out, " {bytes} F{flags} T{ttl_s}{}\r\n", if *quiet { " q" } else { "" });
                words(&[value, &"\r\n"], out);
            }
            Self::Binary => {
                let opcode = if *quiet { opcode::SETQ } else { opcode::SET };
                head(opcode, SET_EXTRAS_BYTES, key.bytes(), bytes, out);
                words(&[&flags.to_be_bytes(), &ttl_s.to_be_bytes(), key, value], out);
            }
        }
    }

    /// Appends a delete.
    pub fn delete<K: Field>(self, key: &K, out: &mut Vec<u8>) {
        match self {
            Self::Ascii => words(&[&"delete ", key, &"\r\n"], out),
            Self::Meta => words(&[&"md ", key, &"\r\n"], out),
            Self::Binary => {
                head(opcode::DELETE, 0, key.bytes(), 0, out);
                key.append(out);
            }
        }
    }

    /// Bytes of a datagram that gets `keys` keys of `key` bytes, at most.
    pub fn get_bytes(self, keys: usize, key: usize) -> usize {
        let text = match self {
            Self::Ascii => "get\r\n".len() + keys * (1 + key),
            Self::Meta => "mn\r\n".len() + keys * ("mg  k f v q\r\n".len() + key),
            Self::Binary => HEADER_BYTES + keys * (HEADER_BYTES + key),
        };
        udp::HEADER_BYTES + text
    }

    /// Bytes of a datagram that sets a value of `value` bytes, at most.
    pub fn set_bytes(self, key: usize, value: usize) -> usize {
        let digits = value.checked_ilog10().unwrap_or(0) as usize + 1;
        let numbers = digits + TTL_DIGITS + FLAGS_DIGITS;
        let text = match self {
            Self::Ascii => "set    \r\n\r\n".len() + numbers,
            Self::Meta => "ms   F T\r\n\r\n".len() + numbers,
            Self::Binary => HEADER_BYTES + SET_EXTRAS_BYTES,
        };
        udp::HEADER_BYTES + text + key + value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memcache::binary::REQUEST_MAGIC;

    const ALL: [Protocol; 3] = [Protocol::Ascii, Protocol::Meta, Protocol::Binary];

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn set<V>(value: V, quiet: bool) -> Set<&'static str, V> {
        Set { key: "abc", flags: 5, ttl_s: 60, value, quiet }
    }

    #[test]
    fn each_protocol_says_it_its_way() {
        use Protocol::{Ascii, Binary, Meta};
        let get = |p: Protocol, keys: &[&str]| text(|out| p.get(keys.iter(), out));
        let put = |p: Protocol, quiet| text(|out| p.set(&set("xy", quiet), out));
        let gone = |p: Protocol| text(|out| p.delete(&"abc", out));
        assert_eq!(get(Ascii, &["abc"]), "get abc\r\n");
        assert_eq!(get(Ascii, &["abc", "d"]), "get abc d\r\n");
        assert_eq!(get(Meta, &["abc"]), "mg abc k f v\r\n");
        assert_eq!(get(Meta, &["abc", "d"]), "mg abc k f v q\r\nmg d k f v q\r\nmn\r\n");
        assert_eq!(put(Ascii, false), "set abc 5 60 2\r\nxy\r\n");
        assert_eq!(put(Ascii, true), "set abc 5 60 2 noreply\r\nxy\r\n");
        assert_eq!(put(Meta, false), "ms abc 2 F5 T60\r\nxy\r\n");
        assert_eq!(put(Meta, true), "ms abc 2 F5 T60 q\r\nxy\r\n");
        assert_eq!((&*gone(Ascii), &*gone(Meta)), ("delete abc\r\n", "md abc\r\n"));
        let bytes = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            out
        };
        for (all, opcodes) in [
            (bytes(&|out| Binary.get(["abc"].iter(), out)), &[opcode::GETK][..]),
            (
                bytes(&|out| Binary.get(["abc", "d"].iter(), out)),
                &[opcode::GETKQ, opcode::GETKQ, opcode::NOOP],
            ),
            (bytes(&|out| Binary.set(&set("xy", false), out)), &[opcode::SET]),
            (bytes(&|out| Binary.set(&set("xy", true), out)), &[opcode::SETQ]),
            (bytes(&|out| Binary.delete(&"abc", out)), &[opcode::DELETE]),
        ] {
            let mut rest = &all[..];
            for want in opcodes {
                let (head, body) = Header::split(rest).unwrap();
                assert_eq!((head.magic, head.opcode), (REQUEST_MAGIC, *want));
                rest = &body[head.body_bytes as usize..];
            }
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn no_request_is_longer_than_promised() {
        for protocol in ALL {
            for (bytes, keys, value_bytes) in [(1, 1, 0), (250, 2, 9), (16, 40, 1_000)] {
                let key = "k".repeat(bytes);
                let mut p = udp::header(0).to_vec();
                protocol.get(vec![&key; keys].iter(), &mut p);
                let promised = protocol.get_bytes(keys, bytes);
                assert!(p.len() <= promised && promised - p.len() <= 40, "{protocol:?}");
                let mut p = udp::header(0).to_vec();
                let (ttl_s, value) = (30 * 24 * 3600, vec![0; value_bytes]);
                let set = Set { key, flags: 7, ttl_s, value, quiet: false };
                protocol.set(&set, &mut p);
                let promised = protocol.set_bytes(bytes, value_bytes);
                assert!(p.len() <= promised && promised - p.len() <= 12, "{protocol:?}");
            }
        }
    }
}
