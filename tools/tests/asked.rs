//! Requests read back from what workloads write, in every protocol.

use gnomon_client::codec::{Asked, Protocol};
use tools::workload::{Key, Op};

fn asked_of(text: &[u8]) -> Option<Asked> {
    Protocol::of(text).asked(text)
}

#[test]
fn plain_requests_can_be_held_against_a_reply() {
    assert_eq!(asked_of(b"get a bc\r\n"), Some(Asked::Get(2)));
    assert_eq!(asked_of(b"gets abc\r\n"), Some(Asked::Get(1)));
    assert_eq!(asked_of(b"set k 0 0 4\r\n\r\n\r\n\r\n"), Some(Asked::Set));
    assert_eq!(asked_of(b"delete k\r\n"), Some(Asked::Delete));
}

#[test]
fn what_is_written_is_read_in_every_protocol() {
    let row: Vec<Key> = (0..7).map(|index| Key { index, bytes: 12 }).collect();
    let set = Op::Set { key: row[0], version: 9, value_bytes: 40, ttl_s: 5 };
    for protocol in [Protocol::Ascii, Protocol::Meta, Protocol::Binary] {
        for (op, want) in [
            (Op::Get(&row[..1]), Asked::Get(1)),
            (Op::Get(&row), Asked::Get(7)),
            (set, Asked::Set),
            (Op::Delete(row[3]), Asked::Delete),
        ] {
            let mut text = Vec::new();
            op.append(protocol, &mut text);
            assert_eq!((Protocol::of(&text), protocol.asked(&text)), (protocol, Some(want)));
            for cut in 0..text.len() {
                assert_eq!(asked_of(&text[..cut]), None, "{protocol:?} {want:?} cut to {cut}");
            }
            text.push(b'x');
            assert_eq!(asked_of(&text), None, "{protocol:?} {want:?} and more");
        }
        let mut text = Vec::new();
        Op::Get(&row).append(protocol, &mut text);
        let mut all = Vec::new();
        protocol.keys(&text, &mut |k| all.push(String::from_utf8(k.to_vec()).unwrap()));
        assert_eq!((all.len(), &*all[6]), (7, "k00000000006"));
    }
}

#[test]
fn odd_ones_cannot() {
    let long = [b"get ", &[b'k'; 251][..], b"\r\n"].concat();
    for t in [
        &b""[..],
        b"get",
        b"get a",
        b"get \r\n",
        b"get  a\r\n",
        b"get a\r\nget b\r\n",
        b"get a\x01\r\n",
        b"get !udp-checksum\r\n",
        b"set k 0 0 4\r\nabc\r\n",
        b"set k 0 0 4\r\nabcdef",
        b"set k 0 0 x\r\nabcd\r\n",
        b"set k 0 0 1 noreply\r\na\r\n",
        b"set k 0 0 4294967295\r\na\r\n",
        b"delete k noreply\r\n",
        b"mg k v\r\n",
        b"mg k k f v q\r\n",
        b"mg k k f v\r\nmn\r\n",
        b"mn\r\n",
        b"ms k 1 F1 T0 MA\r\na\r\n",
        b"ms k 1 T0\r\na\r\n",
        b"md k q\r\n",
        b"touch k 0\r\n",
        &long,
    ] {
        assert_eq!(asked_of(t), None, "{}", t.escape_ascii());
    }
}

#[test]
fn damaged_binary_requests_are_never_a_panic() {
    let mut text = Vec::new();
    Op::Delete(Key { index: 1, bytes: 12 }).append(Protocol::Binary, &mut text);
    for at in 0..24 {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut t = text.clone();
            t[at] = byte;
            let _ = asked_of(&t);
        }
    }
}
