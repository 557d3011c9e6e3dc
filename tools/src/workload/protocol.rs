//! Requests as memcached reads them: ASCII, meta or binary (protocol.txt).
//!
//! In: an [`Op`]. Out: its bytes, appended to a buffer. Nothing fails: sizes were checked when the
//! workload was made.
//!
//! | | ASCII | meta | binary |
//! |---|---|---|---|
//! | get, one key | `get` | `mg KEY k f v` | GETK |
//! | get, several | `get` | `mg KEY k f v q` each, then `mn` | GETKQ each, then NOOP |
//! | set | `set` | `ms` | SET |
//! | delete | `delete` | `md` | DELETE |

use super::requests::{Key, Op};
use super::{keys, values};
use dataplane::protocol::binary::{HEADER_BYTES, Header, REQUEST_MAGIC, opcode};
use dataplane::protocol::udp_frame;
use std::io::Write as _;

/// Bytes of a binary set's extras: flags and expiry.
const SET_EXTRAS_BYTES: usize = 8;
/// Most digits of a TTL and of client flags.
const TTL_DIGITS: usize = 7;
const FLAGS_DIGITS: usize = 1;

/// What requests are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Protocol {
    /// The classic text protocol.
    #[default]
    Ascii,
    /// Meta commands.
    Meta,
    /// The binary protocol.
    Binary,
}

fn name(key: Key, out: &mut Vec<u8>) {
    let at = out.len();
    out.resize(at + key.bytes, 0);
    keys::write(key.index, &mut out[at..]);
}

impl Protocol {
    /// Appends a request, as on a connection.
    pub fn append(self, op: Op<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Ascii => ascii(op, out),
            Self::Meta => meta(op, out),
            Self::Binary => binary(op, out),
        }
    }

    /// Appends a request as one UDP payload, behind its frame header.
    pub fn append_payload(self, id: u16, op: Op<'_>, out: &mut Vec<u8>) {
        let [hi, lo] = id.to_be_bytes();
        out.extend_from_slice(&[hi, lo, 0, 0, 0, 1, 0, 0]);
        self.append(op, out);
    }

    /// Bytes of a UDP payload that gets `keys` keys of `key` bytes, at most.
    pub fn get_bytes(self, keys: usize, key: usize) -> usize {
        let text = match self {
            Self::Ascii => "get\r\n".len() + keys * (1 + key),
            Self::Meta => "mn\r\n".len() + keys * ("mg  k f v q\r\n".len() + key),
            Self::Binary => HEADER_BYTES + keys * (HEADER_BYTES + key),
        };
        udp_frame::HEADER_BYTES + text
    }

    /// Bytes of a UDP payload that sets a value of `value` bytes, at most.
    pub fn set_bytes(self, key: usize, value: usize) -> usize {
        let digits = value.checked_ilog10().unwrap_or(0) as usize + 1;
        let numbers = digits + TTL_DIGITS + FLAGS_DIGITS;
        let text = match self {
            Self::Ascii => "set    \r\n\r\n".len() + numbers,
            Self::Meta => "ms   F T\r\n\r\n".len() + numbers,
            Self::Binary => HEADER_BYTES + SET_EXTRAS_BYTES,
        };
        udp_frame::HEADER_BYTES + text + key + value
    }
}

// Writing to a vector cannot fail, so that the results of `write!` say nothing.

fn ascii(op: Op<'_>, out: &mut Vec<u8>) {
    match op {
        Op::Get(keys) => {
            out.extend_from_slice(b"get");
            for key in keys {
                out.push(b' ');
                name(*key, out);
            }
            out.extend_from_slice(b"\r\n");
        }
        Op::Set { key, version, value_bytes, ttl_s } => {
            out.extend_from_slice(b"set ");
            name(key, out);
            let _ = write!(out, " {} {ttl_s} {value_bytes}\r\n", values::flags(key.index));
            values::append(key.index, version, value_bytes, out);
            out.extend_from_slice(b"\r\n");
        }
        Op::Delete(key) => {
            out.extend_from_slice(b"delete ");
            name(key, out);
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn meta(op: Op<'_>, out: &mut Vec<u8>) {
    match op {
        Op::Get(keys) => {
            let one = keys.len() == 1;
            for key in keys {
                out.extend_from_slice(b"mg ");
                name(*key, out);
                out.extend_from_slice(if one { b" k f v\r\n" } else { b" k f v q\r\n" });
            }
            if !one {
                out.extend_from_slice(b"mn\r\n");
            }
        }
        Op::Set { key, version, value_bytes, ttl_s } => {
            out.extend_from_slice(b"ms ");
            name(key, out);
            let _ = write!(out, " {value_bytes} F{} T{ttl_s}\r\n", values::flags(key.index));
            values::append(key.index, version, value_bytes, out);
            out.extend_from_slice(b"\r\n");
        }
        Op::Delete(key) => {
            out.extend_from_slice(b"md ");
            name(key, out);
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn binary(op: Op<'_>, out: &mut Vec<u8>) {
    let head = |opcode, key: usize, extras: usize, value: usize, out: &mut Vec<u8>| {
        let header = Header {
            magic: REQUEST_MAGIC,
            opcode,
            key_bytes: u16::try_from(key).unwrap_or(u16::MAX),
            extras_bytes: u8::try_from(extras).unwrap_or(u8::MAX),
            status: 0,
            body_bytes: u32::try_from(key + extras + value).unwrap_or(u32::MAX),
            opaque: [0; 4],
            cas: 0,
        };
        out.extend_from_slice(&header.bytes());
    };
    match op {
        Op::Get(keys) => {
            let one = keys.len() == 1;
            for key in keys {
                head(if one { opcode::GETK } else { opcode::GETKQ }, key.bytes, 0, 0, out);
                name(*key, out);
            }
            if !one {
                head(opcode::NOOP, 0, 0, 0, out);
            }
        }
        Op::Set { key, version, value_bytes, ttl_s } => {
            head(opcode::SET, key.bytes, SET_EXTRAS_BYTES, value_bytes, out);
            out.extend_from_slice(&values::flags(key.index).to_be_bytes());
            out.extend_from_slice(&ttl_s.to_be_bytes());
            name(key, out);
            values::append(key.index, version, value_bytes, out);
        }
        Op::Delete(key) => {
            head(opcode::DELETE, key.bytes, 0, 0, out);
            name(key, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { index: 5, bytes: 16 };
    const ALL: [Protocol; 3] = [Protocol::Ascii, Protocol::Meta, Protocol::Binary];

    fn bytes(protocol: Protocol, op: Op<'_>) -> Vec<u8> {
        let mut p = Vec::new();
        protocol.append(op, &mut p);
        p
    }

    #[test]
    fn the_papers_request_is_a_72_byte_frame() {
        let mut p = Vec::new();
        Protocol::Ascii.append_payload(0x0102, Op::Get(&[KEY]), &mut p);
        assert_eq!(p, b"\x01\x02\0\0\0\x01\0\0get kkkkk00000000005\r\n");
        assert_eq!(14 + 20 + 8 + p.len(), 72);
    }

    #[test]
    fn each_protocol_says_it_its_way() {
        const OTHER: Key = Key { index: 6, bytes: 11 };
        let set = Op::Set { key: KEY, version: 1, value_bytes: 2, ttl_s: 60 };
        let text = |p, op| String::from_utf8_lossy(&bytes(p, op)).into_owned();
        let name = "kkkkk00000000005";
        assert_eq!(
            text(Protocol::Meta, Op::Get(&[KEY, OTHER])),
            format!("mg {name} k f v q\r\nmg 00000000006 k f v q\r\nmn\r\n")
        );
        assert_eq!(text(Protocol::Meta, Op::Get(&[KEY])), format!("mg {name} k f v\r\n"));
        assert!(text(Protocol::Meta, set).starts_with(&format!("ms {name} 2 F5 T60\r\n")));
        assert!(text(Protocol::Ascii, set).starts_with(&format!("set {name} 5 60 2\r\n")));
        assert_eq!(text(Protocol::Ascii, Op::Delete(KEY)), format!("delete {name}\r\n"));
        assert_eq!(text(Protocol::Meta, Op::Delete(KEY)), format!("md {name}\r\n"));
        for (op, opcodes) in [
            (Op::Get(&[KEY]), &[opcode::GETK][..]),
            (Op::Get(&[KEY, OTHER]), &[opcode::GETKQ, opcode::GETKQ, opcode::NOOP]),
            (set, &[opcode::SET]),
            (Op::Delete(KEY), &[opcode::DELETE]),
        ] {
            let all = bytes(Protocol::Binary, op);
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
                let row: Vec<Key> = (0..keys).map(|index| Key { index, bytes }).collect();
                let mut p = Vec::new();
                protocol.append_payload(0, Op::Get(&row), &mut p);
                let promised = protocol.get_bytes(row.len(), bytes);
                assert!(p.len() <= promised && promised - p.len() <= 40, "{protocol:?}");
                p.clear();
                let key = Key { index: 9, bytes };
                let ttl_s = 30 * 24 * 3600;
                protocol.append_payload(0, Op::Set { key, version: 1, value_bytes, ttl_s }, &mut p);
                let promised = protocol.set_bytes(bytes, value_bytes);
                assert!(p.len() <= promised && promised - p.len() <= 12, "{protocol:?}");
            }
        }
    }
}
