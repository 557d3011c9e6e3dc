//! The binary forms of the verbs: statuses, counters, CAS ids.

use super::{Ctx, execute};
use crate::observe::{OpCounters, OpTotals, Server};
use driver_shim::Pages;
use memcache::binary::{Header, RESPONSE_MAGIC, Status, opcode, parse};
use memcache::sink::Buffer;
use memcache::{Command, Form, Parsed, Verb};
use std::sync::Arc;
use store::{Session, StoreConfig};

struct World {
    session: Session,
    server: Server,
    ops: Arc<OpCounters>,
}

impl World {
    fn new() -> Self {
        let config = StoreConfig {
            memory_bytes: 8 << 20,
            item_max_bytes: 2000,
            pages: Pages::Small,
            ..StoreConfig::default()
        };
        let store = store::Store::new(config).unwrap();
        let server = Server::new(Arc::clone(&store), "test".to_owned());
        Self { session: store.session().unwrap(), ops: server.ops(), server }
    }

    /// Status, CAS id and body of the answer, if there is one.
    fn ask(
        &mut self,
        opcode: u8,
        cas: u64,
        extras: &[u8],
        key: &[u8],
        value: &[u8],
    ) -> Option<(u16, u64, Vec<u8>)> {
        let header = Header { opaque: *b"mark", cas, ..Header::request(opcode) };
        let packet = header.packet(extras, key, value).unwrap();
        let Parsed::Command { command, .. } = parse(&packet, 4096) else { panic!() };
        let mut bytes = Vec::new();
        let mut ctx = Ctx::new(&mut self.session, &self.ops, &self.server);
        execute(&mut ctx, &command, &mut Buffer::new(&mut bytes, 1 << 20));
        let (header, body) = Header::split(&bytes)?;
        assert_eq!((header.magic, header.opaque), (RESPONSE_MAGIC, *b"mark"));
        assert_eq!(header.body_bytes as usize, body.len());
        Some((header.status, header.cas, body.to_vec()))
    }

    /// What a command in text is answered.
    fn say(&mut self, text: &[u8]) -> Vec<u8> {
        let Parsed::Command { command, .. } = memcache::text::parse(text, 4096) else { panic!() };
        let mut bytes = Vec::new();
        let mut ctx = Ctx::new(&mut self.session, &self.ops, &self.server);
        execute(&mut ctx, &command, &mut Buffer::new(&mut bytes, 1 << 20));
        bytes
    }

    /// What a request adds to the counters.
    fn counted(&mut self, ask: impl FnOnce(&mut Self)) -> Vec<&'static str> {
        let before = self.server.totals();
        ask(self);
        let after = self.server.totals();
        let of = |t: &OpTotals| {
            [
                ("cmd_get", t.cmd_get),
                ("get_hits", t.get_hits),
                ("get_misses", t.get_misses),
                ("cmd_set", t.cmd_set),
                ("cas_hits", t.cas_hits),
                ("cas_misses", t.cas_misses),
                ("cas_badval", t.cas_badval),
                ("cmd_touch", t.cmd_touch),
                ("touch_hits", t.touch_hits),
                ("touch_misses", t.touch_misses),
                ("delete_hits", t.delete_hits),
                ("delete_misses", t.delete_misses),
                ("incr_hits", t.incr_hits),
                ("incr_misses", t.incr_misses),
                ("decr_hits", t.decr_hits),
                ("decr_misses", t.decr_misses),
                ("cmd_flush", t.cmd_flush),
            ]
        };
        let pairs = of(&before).into_iter().zip(of(&after));
        pairs.filter(|((_, a), (_, b))| a != b).map(|((name, _), _)| name).collect()
    }
}

const INCR: [u8; 20] = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn counters_move_as_those_of_memcached_do() {
    let mut w = World::new();
    let never = [&INCR[..16], &[0xFF; 4]].concat();
    w.ask(opcode::SET, 0, &[0; 8], b"n", b"5");
    w.ask(opcode::SET, 0, &[0; 8], b"w", b"word");
    let large = vec![b'x'; 3000];
    type Case<'a> = (u8, u64, &'a [u8], &'a [u8], &'a [u8], &'a [&'a str]);
    let cases: [Case<'_>; 25] = [
        (opcode::GET, 0, &[], b"n", b"", &["cmd_get", "get_hits"]),
        (opcode::GETKQ, 0, &[], b"no", b"", &["cmd_get", "get_misses"]),
        (opcode::TOUCH, 0, &[0; 4], b"n", b"", &["cmd_touch", "touch_hits"]),
        (opcode::GATK, 0, &[0; 4], b"n", b"", &["cmd_touch", "touch_hits"]),
        (opcode::GATQ, 0, &[0; 4], b"no", b"", &["cmd_touch", "touch_misses"]),
        (opcode::SET, 0, &[0; 8], b"n", b"5", &["cmd_set"]),
        (opcode::SET, 1 << 60, &[0; 8], b"n", b"5", &["cmd_set", "cas_badval"]),
        (opcode::SET, 1, &[0; 8], b"no", b"5", &["cmd_set", "cas_misses"]),
        (opcode::ADD, 0, &[0; 8], b"n", b"5", &["cmd_set"]),
        (opcode::SET, 0, &[0; 8], b"l", &large, &[]),
        (opcode::APPEND, 0, &[], b"w", &large, &[]),
        (opcode::APPEND, 0, &[], b"w", b"s", &["cmd_set"]),
        (opcode::APPEND, 0, &[], b"no", b"s", &["cmd_set"]),
        (opcode::APPEND, 1 << 60, &[], b"w", b"s", &["cmd_set"]),
        (opcode::INCREMENT, 0, &INCR, b"n", b"", &["incr_hits"]),
        (opcode::DECREMENTQ, 0, &INCR, b"n", b"", &["decr_hits"]),
        (opcode::INCREMENT, 0, &never, b"no", b"", &["incr_misses"]),
        (opcode::DECREMENT, 0, &never, b"no", b"", &["decr_misses"]),
        (opcode::INCREMENT, 0, &INCR, b"new", b"", &[]),
        (opcode::INCREMENT, 0, &INCR, b"w", b"", &[]),
        (opcode::INCREMENT, 1 << 60, &INCR, b"n", b"", &[]),
        (opcode::DELETE, 1 << 60, &[], b"n", b"", &[]),
        (opcode::DELETE, 0, &[], b"n", b"", &["delete_hits"]),
        (opcode::DELETEQ, 0, &[], b"n", b"", &["delete_misses"]),
        (opcode::FLUSHQ, 0, &[], b"", b"", &["cmd_flush"]),
    ];
    for (opcode, cas, extras, key, value, want) in cases {
        let counted = w.counted(|w| {
            w.ask(opcode, cas, extras, key, value);
        });
        assert_eq!(counted, want, "{opcode:#x} {}", String::from_utf8_lossy(key));
    }
}

#[test]
fn a_cas_id_that_was_given_is_taken() {
    let mut w = World::new();
    for opcode in [opcode::SET, opcode::ADD, opcode::REPLACE] {
        let (_, cas, _) = w.ask(opcode::SET, 0, &[0; 8], b"k", b"old").unwrap();
        assert_ne!(cas, 0);
        assert_eq!(w.ask(opcode::GET, 0, &[], b"k", b""), Some((0, cas, b"\0\0\0\0old".to_vec())));
        let counted = w.counted(|w| {
            let (status, new, _) = w.ask(opcode, cas, &[0; 8], b"k", b"new").unwrap();
            assert!(status == 0 && new > cas);
        });
        assert_eq!(counted, ["cmd_set", "cas_hits"]);
    }
    let (_, cas, _) = w.ask(opcode::INCREMENT, 0, &INCR, b"n", b"").unwrap();
    let (_, cas, body) = w.ask(opcode::INCREMENT, cas, &INCR, b"n", b"").unwrap();
    assert_eq!(body, 1u64.to_be_bytes());
    let (_, cas, _) = w.ask(opcode::APPEND, cas, &[], b"n", b"0").unwrap();
    assert_eq!(w.ask(opcode::DELETE, cas, &[], b"n", b""), Some((0, 0, vec![])));
}

/// What memcached answers with `-C` and `-F`.
#[test]
fn without_cas_ids_and_flushes() {
    let mut w = World::new();
    w.server.cas_enabled = false;
    w.server.flush_allowed = false;
    let text = |status: Status| Some((status as u16, 0, status.text().to_vec()));
    let stored = Some((0, 0, vec![]));
    assert_eq!(w.ask(opcode::SET, 0, &[0; 8], b"k", b"v"), stored);
    assert_eq!(w.ask(opcode::SET, 5, &[0; 8], b"k", b"v"), stored);
    assert_eq!(w.ask(opcode::ADD, 5, &[0; 8], b"new", b"v"), stored);
    assert_eq!(w.ask(opcode::REPLACE, 5, &[0; 8], b"no", b"v"), text(Status::NotFound));
    assert_eq!(w.ask(opcode::APPEND, 5, &[], b"k", b"v"), stored);
    assert_eq!(w.ask(opcode::GET, 0, &[], b"k", b""), Some((0, 0, b"\0\0\0\0vv".to_vec())));
    let zero = Some((0, 0, vec![0; 8]));
    assert_eq!(w.ask(opcode::INCREMENT, 5, &INCR, b"n", b""), zero);
    assert_eq!(w.ask(opcode::INCREMENT, 5, &INCR, b"n", b""), text(Status::Exists));
    assert_eq!(w.ask(opcode::DELETE, 5, &[], b"k", b""), text(Status::Exists));
    // Nor does a client's own CAS id count.
    let last = u64::MAX;
    assert_eq!(w.say(format!("ms own 1 E{last}\r\nx\r\n").as_bytes()), b"HD\r\n");
    assert_eq!(w.say(b"cas own 0 0 1 7\r\ny\r\n"), b"EXISTS\r\n");
    assert_eq!(w.ask(opcode::DELETE, 7, &[], b"own", b""), text(Status::Exists));
    assert_eq!(w.ask(opcode::FLUSHQ, 0, &[], b"", b""), text(Status::NotAllowed));
    assert_eq!(w.ask(opcode::DELETE, 0, &[], b"k", b""), stored);
}

/// Sizes between what the parser lets through and what an item may have, header and all.
#[test]
fn what_is_too_large_with_its_header_takes_what_a_set_would_replace() {
    let text = |status: Status| Some((status as u16, 0, status.text().to_vec()));
    for (opcode, cas, survives) in [
        (opcode::SET, 0, false),
        (opcode::SETQ, 1 << 60, false),
        (opcode::ADD, 0, true),
        (opcode::REPLACEQ, 0, true),
        (opcode::APPEND, 0, true),
    ] {
        let mut w = World::new();
        w.ask(opcode::SET, 0, &[0; 8], b"k", b"old");
        let extras: &[u8] = if opcode == opcode::APPEND { &[] } else { &[0; 8] };
        let answer = w.ask(opcode, cas, extras, b"k", &[b'x'; 1990]);
        assert_eq!(answer, text(Status::TooLarge));
        let found = w.ask(opcode::GET, 0, &[], b"k", b"").unwrap().0 == 0;
        assert_eq!(found, survives, "{opcode:#x}");
    }
    // Each fits, both together do not.
    let mut w = World::new();
    w.ask(opcode::SET, 0, &[0; 8], b"k", &[b'x'; 1500]);
    assert_eq!(w.ask(opcode::APPENDQ, 0, &[], b"k", &[b'x'; 1500]), text(Status::NotStored));
}

#[test]
fn statistics_end_in_an_empty_packet() {
    let mut w = World::new();
    let mut bytes = Vec::new();
    let header = Header { opaque: *b"mark", ..Header::request(opcode::STAT) };
    let command = Command { verb: Verb::Stats(None), form: Form::Binary { header, quiet: false } };
    let mut ctx = Ctx::new(&mut w.session, &w.ops, &w.server);
    execute(&mut ctx, &command, &mut Buffer::new(&mut bytes, 1 << 20));
    let (mut rest, mut names, mut last) = (&bytes[..], Vec::new(), None);
    while let Some((header, body)) = Header::split(rest) {
        assert_eq!((header.opcode, header.status, header.opaque), (opcode::STAT, 0, *b"mark"));
        let (body, more) = body.split_at(header.body_bytes as usize);
        let (name, value) = body.split_at(usize::from(header.key_bytes));
        names.push(String::from_utf8(name.to_vec()).unwrap());
        if name == b"version" {
            assert_eq!(value, b"test");
        }
        last = Some(body.len());
        rest = more;
    }
    assert!(rest.is_empty());
    assert_eq!(last, Some(0));
    assert!(names.iter().any(|n| n == "curr_items") && names.iter().any(|n| n == "version"));
}
