//! The binary protocol over UDP.

use crate::world::{World, Wrap};
use memcache::binary::{HEADER_BYTES, Header, RESPONSE_MAGIC, opcode};
use memcache::{Store as SetRequest, binary::Status};
use store::verbs;

/// A request whose lengths are those of its parts.
fn request(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let header = Header { opaque: *b"mark", ..Header::request(opcode) };
    header.packet(extras, key, value).unwrap()
}

fn get(key: &[u8]) -> Vec<u8> {
    request(opcode::GET, b"", key, b"")
}

fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
    request(opcode::SET, &[0; 8], key, value)
}

/// Opcode, status and body of each packet of an answer.
fn packets(mut answer: &[u8]) -> Vec<(u8, u16, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((header, rest)) = Header::split(answer) {
        assert_eq!((header.magic, header.opaque), (RESPONSE_MAGIC, *b"mark"));
        let (body, more) = rest.split_at(header.body_bytes as usize);
        all.push((header.opcode, header.status, body.to_vec()));
        answer = more;
    }
    assert!(answer.is_empty());
    all
}

fn refused(opcode: u8, status: Status) -> (u8, u16, Vec<u8>) {
    (opcode, status as u16, status.text().to_vec())
}

#[test]
fn set_get_delete_over_every_wrapping() {
    for wrap in Wrap::ALL {
        let mut w = World::new();
        assert_eq!(packets(&w.ask_by(wrap, &get(b"k"))), [refused(opcode::GET, Status::NotFound)]);
        assert_eq!(packets(&w.ask_by(wrap, &set(b"k", b"abc"))), [(opcode::SET, 0, vec![])]);
        let found = (opcode::GET, 0, b"\0\0\0\0abc".to_vec());
        assert_eq!(packets(&w.ask_by(wrap, &get(b"k"))), [found]);
        let delete = request(opcode::DELETE, b"", b"k", b"");
        assert_eq!(packets(&w.ask_by(wrap, &delete)), [(opcode::DELETE, 0, vec![])]);
        assert_eq!(packets(&w.ask_by(wrap, &delete)), [refused(opcode::DELETE, Status::NotFound)]);
        assert_eq!(w.end().answered, 5);
    }
}

#[test]
fn several_requests_in_one_datagram_are_one_reply() {
    let mut w = World::new();
    let quiet = |opcode, key: &[u8]| request(opcode, b"", key, b"");
    let text = [
        request(opcode::SETQ, &[0; 8], b"k", b"1"),
        quiet(opcode::GETQ, b"nope"),
        quiet(opcode::GETKQ, b"k"),
        request(0x77, b"", b"", b"thrown away"),
        request(opcode::NOOP, b"", b"", b""),
    ];
    let want = [
        (opcode::GETKQ, 0, b"\0\0\0\0k1".to_vec()),
        refused(0x77, Status::UnknownCommand),
        (opcode::NOOP, 0, vec![]),
    ];
    assert_eq!(packets(&w.ask(&text.concat())), want);
    w.end();
}

#[test]
fn quiet_requests_are_answered_by_nothing() {
    let mut w = World::new();
    for quiet in [
        request(opcode::SETQ, &[0; 8], b"k", b"1"),
        request(opcode::GETQ, b"", b"nope", b""),
        request(opcode::QUITQ, b"", b"", b""),
    ] {
        assert!(w.ask_datagrams(Wrap::V4, &quiet).is_empty());
    }
    // `quit` ends the datagram, not the service.
    let quit = [request(opcode::QUIT, b"", b"", b""), get(b"k")].concat();
    assert_eq!(packets(&w.ask(&quit)), [(opcode::QUIT, 0, vec![])]);
    assert_eq!(packets(&w.ask(&get(b"k"))).len(), 1);
    assert_eq!(w.end().answered, 5);
}

#[test]
fn every_datagram_has_a_dialect_of_its_own() {
    let mut w = World::new();
    assert_eq!(packets(&w.ask(&set(b"k", b"abc"))), [(opcode::SET, 0, vec![])]);
    assert_eq!(w.ask(b"get k\r\n"), b"VALUE k 0 3\r\nabc\r\nEND\r\n");
    // What follows in another dialect is not read, whichever is first.
    assert_eq!(
        packets(&w.ask(&[&get(b"k")[..], b"get k\r\nget k\r\nget k\r\nget k\r\n"].concat())).len(),
        1
    );
    assert_eq!(
        w.ask(&[b"get k\r\n", &get(b"k")[..]].concat()),
        b"VALUE k 0 3\r\nabc\r\nEND\r\nERROR\r\n"
    );
    w.end();
}

#[test]
fn a_cut_off_request_hurts_nobody_else() {
    let mut w = World::new();
    assert_eq!(packets(&w.ask(&set(b"victim", b"safe"))), [(opcode::SET, 0, vec![])]);
    let whole = set(b"w", b"value");
    for len in 1..whole.len() {
        let text = w.ask(&whole[..len]);
        // Without a header there is nobody to answer.
        if len < HEADER_BYTES {
            assert!(text.is_empty());
        } else {
            assert_eq!(packets(&text), [refused(opcode::SET, Status::Invalid)]);
        }
        let found = (opcode::GET, 0, b"\0\0\0\0safe".to_vec());
        assert_eq!(packets(&w.ask(&get(b"victim"))), [found]);
    }
    assert_eq!(packets(&w.ask(&get(b"w"))), [refused(opcode::GET, Status::NotFound)]);
    w.end();
}

#[test]
fn what_udp_refuses() {
    let mut w = World::new();
    for opcode in [opcode::FLUSH, opcode::FLUSHQ] {
        let flush = request(opcode, b"", b"", b"");
        assert_eq!(packets(&w.ask(&flush)), [refused(opcode, Status::NotSupported)]);
    }
    let settings = request(opcode::STAT, b"", b"settings", b"");
    assert_eq!(packets(&w.ask(&settings)), [refused(opcode::STAT, Status::NotSupported)]);
    let stat = packets(&w.ask(&request(opcode::STAT, b"", b"", b"")));
    assert!(stat.iter().any(|(_, _, body)| body.starts_with(b"curr_items0")));
    assert_eq!(stat.last(), Some(&(opcode::STAT, 0, vec![])));
    w.end();
}

#[test]
fn large_replies_come_in_pieces_or_are_refused() {
    let mut w = World::new();
    let value: Vec<u8> = (0..=250).cycle().take(1_000_000).collect();
    let mut session = w.store.session().unwrap();
    verbs::store(&mut session, None, &SetRequest::set(b"big", 0, 0, &value)).unwrap();
    drop(session);
    let answer = packets(&w.ask(&get(b"big")));
    assert_eq!(answer, [(opcode::GET, 0, [&[0; 4][..], &value].concat())]);
    let twice = get(b"big").repeat(2);
    assert_eq!(packets(&w.ask(&twice)), [refused(opcode::GET, Status::TooLarge)]);
    w.end();
}
