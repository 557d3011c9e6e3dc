use super::*;
use crate::workload::{Key, Op};
use memcache::binary::{Header, RESPONSE_MAGIC, opcode};

const ALL: [Protocol; 3] = [Protocol::Ascii, Protocol::Meta, Protocol::Binary];

/// How many values came, all of which were checked.
fn get(protocol: Protocol, asked: &[u8], reply: &[u8]) -> Result<u32, Wrong> {
    let found = super::get(protocol, asked, reply)?;
    assert_eq!(found.unchecked, 0);
    Ok(found.values)
}

fn key(i: u64) -> String {
    let mut k = [0; 8];
    keys::write(i, &mut k);
    String::from_utf8(k.to_vec()).unwrap()
}

fn packet(opcode: u8, status: u16, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let header = Header { magic: RESPONSE_MAGIC, status, cas: 7, ..Header::request(opcode) };
    header.packet(extras, key, value).unwrap()
}

/// A value as stored, with the flags and the data given.
fn stored(protocol: Protocol, i: u64, flags: u32, data: &[u8], single: bool) -> Vec<u8> {
    let (key, len) = (key(i), data.len());
    let head = match protocol {
        Protocol::Ascii => format!("VALUE {key} {flags} {len}\r\n"),
        Protocol::Meta => format!("VA {len} k{key} f{flags}\r\n"),
        Protocol::Binary => {
            let op = if single { opcode::GETK } else { opcode::GETKQ };
            return packet(op, 0, &flags.to_be_bytes(), key.as_bytes(), data);
        }
    };
    [head.as_bytes(), data, b"\r\n"].concat()
}

fn value(protocol: Protocol, i: u64, single: bool) -> Vec<u8> {
    let mut data = Vec::new();
    values::append(i, 3, 40, &mut data);
    stored(protocol, i, values::flags(i), &data, single)
}

fn end(protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Ascii => b"END\r\n".to_vec(),
        Protocol::Meta => b"MN\r\n".to_vec(),
        Protocol::Binary => packet(opcode::NOOP, 0, &[], &[], &[]),
    }
}

/// The reply to a get of several keys with the values of `is`.
fn reply(protocol: Protocol, is: &[u64]) -> Vec<u8> {
    let mut r: Vec<u8> = is.iter().flat_map(|i| value(protocol, *i, false)).collect();
    r.extend(end(protocol));
    r
}

fn asked(is: &[u64]) -> Vec<u8> {
    is.iter().map(|i| key(*i)).collect::<Vec<_>>().join(" ").into_bytes()
}

#[test]
fn hits_misses_and_any_order() {
    let a = asked(&[1, 2, 3, 2]);
    for p in ALL {
        for (r, n) in [(&[][..], 0), (&[1, 2, 3, 2], 4), (&[3], 1), (&[3, 1], 2), (&[2, 2, 1], 3)] {
            assert_eq!(get(p, &a, &reply(p, r)), Ok(n), "{p:?} {r:?}");
        }
    }
}

#[test]
fn one_key_is_answered_its_own_way() {
    let a = asked(&[1]);
    let whole = |p| match p {
        Protocol::Ascii => reply(p, &[1]),
        _ => value(p, 1, true),
    };
    for p in ALL {
        assert_eq!(get(p, &a, &whole(p)), Ok(1));
        let mut twice = whole(p);
        twice.extend(whole(p));
        assert_eq!(get(p, &a, &twice), Err(Wrong::Malformed), "{p:?}");
        for len in 0..whole(p).len() {
            assert_eq!(get(p, &a, &whole(p)[..len]), Err(Wrong::Malformed), "{p:?} {len}");
        }
    }
    let miss = packet(opcode::GETK, 1, &[], &a, b"");
    let misses =
        [(Protocol::Binary, miss), (Protocol::Binary, packet(opcode::GETK, 1, &[], &[], b"no"))];
    for (p, r) in misses {
        assert_eq!(get(p, &a, &r), Ok(0));
    }
    for r in [&b"EN\r\n"[..], b"EN k00000001\r\n"] {
        assert_eq!(get(Protocol::Meta, &a, r), Ok(0));
    }
    for r in [&b"EN\r\nEN\r\n"[..], b"ENx\r\n", b"MN\r\n"] {
        assert_eq!(get(Protocol::Meta, &a, r), Err(Wrong::Malformed));
    }
}

#[test]
fn every_lie_has_its_name() {
    let a = asked(&[1, 2]);
    for p in ALL {
        assert_eq!(get(p, &a, &reply(p, &[3])), Err(Wrong::Key));
        assert_eq!(get(p, &a, &reply(p, &[1, 1])), Err(Wrong::Extra));
        let refusal = match p {
            Protocol::Binary => packet(opcode::GETKQ, 0x82, &[], &[], b"Out of memory"),
            _ => b"SERVER_ERROR out of memory\r\n".to_vec(),
        };
        assert_eq!(get(p, &a, &refusal), Err(Wrong::Refused));
        let mut data = Vec::new();
        values::append(2, 3, 40, &mut data);
        let lie = |flags, data: &[u8]| [stored(p, 1, flags, data, false), end(p)].concat();
        assert_eq!(get(p, &a, &lie(1, &data)), Err(Wrong::Value), "another key's");
        data.clear();
        values::append(1, 3, 40, &mut data);
        assert_eq!(get(p, &a, &lie(2, &data)), Err(Wrong::Flags));
        assert_eq!(get(p, &a, &lie(1, &data)), Ok(1));
        let good = reply(p, &[1, 2]);
        for len in 0..good.len() {
            assert_eq!(get(p, &a, &good[..len]), Err(Wrong::Malformed), "{p:?} cut to {len}");
        }
        assert_eq!(get(p, &a, &[&good[..], b"x"].concat()), Err(Wrong::Malformed));
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
        assert_eq!(get(Protocol::Ascii, &a, r), Err(Wrong::Malformed), "{}", r.escape_ascii());
    }
}

#[test]
fn the_value_of_a_strange_key_is_counted_and_not_checked() {
    let r = b"VALUE not-ours! 5 1\r\nx\r\nEND\r\n";
    let found = Found { values: 1, unchecked: 1 };
    assert_eq!(super::get(Protocol::Ascii, b"not-ours! another", r), Ok(found));
    let strange = super::get(Protocol::Ascii, b"another", r);
    assert_eq!(strange, Err(Wrong::Key), "it was not asked for");
    let twice = [&r[..r.len() - 5], &r[..]].concat();
    assert_eq!(super::get(Protocol::Ascii, b"not-ours!", &twice), Err(Wrong::Extra));
}

#[test]
fn sets_and_deletes() {
    let (ascii, meta, binary) = (Protocol::Ascii, Protocol::Meta, Protocol::Binary);
    let status = |op, status| packet(op, status, &[], &[], b"");
    for (p, r, want) in [
        (ascii, b"STORED\r\n".to_vec(), Ok(())),
        (meta, b"HD\r\n".to_vec(), Ok(())),
        (binary, status(opcode::SET, 0), Ok(())),
        (ascii, b"NOT_STORED\r\n".to_vec(), Err(Wrong::NotStored)),
        (meta, b"NS\r\n".to_vec(), Err(Wrong::NotStored)),
        (binary, status(opcode::SET, 5), Err(Wrong::NotStored)),
        (binary, status(opcode::SET, 0x82), Err(Wrong::Refused)),
        (binary, status(opcode::DELETE, 0), Err(Wrong::Malformed)),
        (ascii, b"SERVER_ERROR out of memory storing object\r\n".to_vec(), Err(Wrong::Refused)),
        (ascii, b"STORED".to_vec(), Err(Wrong::Malformed)),
        (meta, b"STORED\r\n".to_vec(), Err(Wrong::Malformed)),
    ] {
        assert_eq!(set(p, &r), want, "{p:?} {}", r.escape_ascii());
    }
    for (p, r, want) in [
        (ascii, b"DELETED\r\n".to_vec(), Ok(())),
        (ascii, b"NOT_FOUND\r\n".to_vec(), Ok(())),
        (meta, b"NF\r\n".to_vec(), Ok(())),
        (binary, status(opcode::DELETE, 1), Ok(())),
        (binary, status(opcode::DELETE, 0x81), Err(Wrong::Refused)),
        (ascii, b"ERROR\r\n".to_vec(), Err(Wrong::Refused)),
        (ascii, b"HD\r\n".to_vec(), Err(Wrong::Malformed)),
    ] {
        assert_eq!(delete(p, &r), want, "{p:?} {}", r.escape_ascii());
    }
}

#[test]
fn damage_is_never_a_panic() {
    let set = Op::Set { key: Key { index: 1, bytes: 8 }, version: 1, value_bytes: 9, ttl_s: 0 };
    for p in ALL {
        let mut echo = Vec::new();
        set.append(p, &mut echo);
        for text in [reply(p, &[1, 2]), echo] {
            for at in 0..text.len() {
                for byte in [0, 0x81, b'\n', 0xff] {
                    let mut t = text.clone();
                    t[at] = byte;
                    let _ = (get(p, &asked(&[1, 2]), &t), set_and_delete(p, &t));
                }
            }
        }
    }
}

fn set_and_delete(p: Protocol, text: &[u8]) -> bool {
    set(p, text).is_ok() || delete(p, text).is_ok()
}
