//! Carries out one request on the store and writes the answer.
//!
//! Enters: a parsed request. Leaves: its effect, a packet or none, and whether the connection
//! stays. What goes wrong is answered even if the request was a quiet one.

use super::header::{Header, REQUEST_MAGIC, RESPONSE_MAGIC, opcode};
use super::{Action, Request, Send, Status, stat};
use crate::protocol::command::{Arith, Refusal, Store, StoreMode};
use crate::protocol::executor::{
    count_delete, count_get, count_store, tell_created, tell_look_up, tell_too_large,
};
use crate::protocol::stats::{OpCounters, Server};
use crate::protocol::{Flow, Sink};
use crate::store::verbs::{self, ArithFailure, NotDeleted, NotStored};
use crate::store::{ItemRef, Session, Value};

/// What goes back beside what the request itself says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer<'a> {
    pub(super) status: Status,
    pub(super) cas: u64,
    pub(super) extras: &'a [u8],
    pub(super) key: &'a [u8],
    pub(super) value: Value<'a>,
}

impl Default for Answer<'_> {
    fn default() -> Self {
        Self { status: Status::Success, cas: 0, extras: &[], key: &[], value: Value::Whole(&[]) }
    }
}

impl Answer<'_> {
    /// The status and its text.
    pub(super) fn of(status: Status) -> Self {
        Self { status, value: status.text().into(), ..Self::default() }
    }
}

/// Writes the packet that answers `request`.
pub(super) fn answer(request: &Request<'_>, what: &Answer<'_>, out: &mut impl Sink) {
    put(&request.header, what, out);
}

fn put(request: &Header, what: &Answer<'_>, out: &mut impl Sink) {
    let Answer { status, cas, extras, key, value } = *what;
    let lengths = (
        u8::try_from(extras.len()),
        u16::try_from(key.len()),
        u32::try_from(extras.len() + key.len() + value.len()),
    );
    // None of our answers has parts that do not fit their fields.
    let (Ok(extras_bytes), Ok(key_bytes), Ok(body_bytes)) = lengths else { return };
    let header = Header {
        magic: RESPONSE_MAGIC,
        key_bytes,
        extras_bytes,
        status: status as u16,
        body_bytes,
        cas,
        ..*request
    };
    out.put(&header.bytes());
    out.put(extras);
    out.put(key);
    value.pieces().for_each(|piece| out.put(piece));
}

/// Refuses the request that `request` begins with for a reason that its parser does not know.
/// Without a request's header there is nobody to answer.
pub fn refuse(request: &[u8], why: Refusal, out: &mut impl Sink) {
    if let Some((header, _)) = Header::split(request)
        && header.magic == REQUEST_MAGIC
    {
        put(&header, &Answer::of(why.into()), out);
    }
}

/// Carries out `request` and appends the answer to `out`.
pub fn execute<'a>(
    request: &Request<'a>,
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    out: &mut impl Sink,
) -> Flow<'a> {
    let done = match request.action {
        Action::Get { key, touch, send } => {
            let guard = session.pin();
            let item = match touch {
                Some(exptime) => verbs::touch(&guard, key, exptime),
                None => verbs::get(&guard, key),
            };
            if let (Some(item), true) = (&item, send != Send::Flags)
                && !out.admits(item.value().len())
            {
                return Flow::NoRoom;
            }
            count_look_up(ops, item.is_some(), touch.is_some());
            let class = item.map(|item| (guard.store().class_of(&item), item.value().len()));
            count_get(ops, server, key, class, touch.is_some());
            found(request, item, server, key, send, out);
            drop(guard);
            ops.count_dead(session);
            return Flow::Continue;
        }
        Action::Store(ref what) => store(request, session, ops, server, what),
        Action::Delete { key, cas } => {
            delete(session, ops, server, key, cas.map(|cas| server.cas_expected(cas)))
        }
        Action::Arith(ref what) => match arith(session, ops, server, what) {
            Ok((number, cas)) => {
                let value = Value::Whole(&number.to_be_bytes());
                unless_quiet(request, &Answer { cas, value, ..Answer::default() }, out);
                return Flow::Continue;
            }
            Err(status) => Err(status),
        },
        Action::Flush { .. } if !server.flush_allowed => Err(Status::NotAllowed),
        Action::Flush { delay } => {
            ops.cmd_flush.inc();
            session.store().flush(delay);
            Ok(0)
        }
        Action::Noop | Action::Quit => Ok(0),
        Action::Version => {
            let value = server.version.as_bytes().into();
            answer(request, &Answer { value, ..Answer::default() }, out);
            return Flow::Continue;
        }
        Action::Stat(what) => {
            stat::write(request, what, server, session, out);
            return Flow::Continue;
        }
        Action::Refused { status, forget, .. } => {
            match status {
                Status::TooLarge => ops.store_too_large.inc(),
                Status::OutOfMemory => ops.store_no_memory.inc(),
                _ => {}
            }
            if let Some(key) = forget {
                tell_too_large(session, ops, server, key);
                verbs::delete(session, key);
            }
            Err(status)
        }
    };
    match done {
        Ok(cas) => unless_quiet(request, &Answer { cas, ..Answer::default() }, out),
        Err(status) => answer(request, &Answer::of(status), out),
    }
    match request.action {
        Action::Quit | Action::Refused { close: true, .. } => Flow::Close,
        _ => Flow::Continue,
    }
}

fn unless_quiet(request: &Request<'_>, what: &Answer<'_>, out: &mut impl Sink) {
    if !request.quiet {
        answer(request, what, out);
    }
}

/// Counts a `get`, or a look-up with a new exptime.
fn count_look_up(ops: &OpCounters, found: bool, touched: bool) {
    let (asked, hits, misses) = match touched {
        true => (&ops.cmd_touch, &ops.touch_hits, &ops.touch_misses),
        false => (&ops.cmd_get, &ops.get_hits, &ops.get_misses),
    };
    asked.inc();
    if found { hits } else { misses }.inc();
}

/// Answers with what was found, or that nothing was.
fn found(
    request: &Request<'_>,
    item: Option<ItemRef<'_>>,
    server: &Server,
    key: &[u8],
    send: Send,
    out: &mut impl Sink,
) {
    let key = if send == Send::KeyAndValue { key } else { &[] };
    match item {
        Some(item) => {
            let extras = &item.flags().to_be_bytes();
            let value = if send == Send::Flags { Value::Whole(&[]) } else { item.value() };
            let cas = server.cas_shown(item.cas());
            let found = Answer { status: Status::Success, cas, extras, key, value };
            answer(request, &found, out);
        }
        None if request.quiet => {}
        None if send == Send::KeyAndValue => {
            let missed = Answer { status: Status::NotFound, key, ..Answer::default() };
            answer(request, &missed, out);
        }
        None => answer(request, &Answer::of(Status::NotFound), out),
    }
}

/// Stores, and returns the CAS id.
fn store(
    request: &Request<'_>,
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    what: &Store<'_>,
) -> Result<u64, Status> {
    // As memcached: without CAS ids none is looked at, and with one, `add` and `replace` are `set`.
    let cas = what.cas.filter(|_| server.cas_enabled);
    let mode = match what.mode {
        StoreMode::Add | StoreMode::Replace if cas.is_some() => StoreMode::Set,
        mode => mode,
    };
    let what = &Store { mode, cas, ..*what };
    tell_look_up(session, ops, server, what.key);
    let result = if session.store().fits(what.key.len(), what.flags, what.value.len()) {
        verbs::store(session, what).map_err(|why| (why, failure(mode, why)))
    } else {
        Err((NotStored::TooLarge, Status::TooLarge))
    };
    if let Err((NotStored::TooLarge | NotStored::OutOfMemory, _)) = result
        && opcode::loud(request.header.opcode).0 == opcode::SET
    {
        verbs::delete(session, what.key);
    }
    if !matches!(result, Err((_, Status::TooLarge | Status::OutOfMemory))) {
        ops.cmd_set.inc();
    }
    // Only a `set` with a CAS id is counted as one.
    let counted = Store { cas: cas.filter(|_| mode == StoreMode::Set), ..*what };
    count_store(session, ops, server, &counted, result.map_err(|(why, _)| why));
    result.map(|cas| server.cas_shown(cas)).map_err(|(_, status)| status)
}

/// What memcached says to a value that fits and was not stored.
fn failure(mode: StoreMode, why: NotStored) -> Status {
    let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    match (why, mode) {
        (NotStored::Exists, _) => Status::Exists,
        (NotStored::NotFound, _) => Status::NotFound,
        (NotStored::Condition, StoreMode::Add) => Status::Exists,
        (NotStored::Condition, StoreMode::Replace) => Status::NotFound,
        (NotStored::OutOfMemory, _) => Status::OutOfMemory,
        (NotStored::TooLarge, _) if !joins => Status::TooLarge,
        _ => Status::NotStored,
    }
}

fn delete(
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    key: &[u8],
    cas: Option<u64>,
) -> Result<u64, Status> {
    tell_look_up(session, ops, server, key);
    let result = match cas {
        Some(cas) => verbs::delete_if(session, key, cas),
        None => verbs::delete(session, key).then_some(()).ok_or(NotDeleted::NotFound),
    };
    count_delete(session, ops, server, key, result.is_ok());
    match result {
        Ok(()) => ops.delete_hits.inc(),
        Err(NotDeleted::NotFound) => ops.delete_misses.inc(),
        Err(NotDeleted::Exists | NotDeleted::OutOfMemory) => {}
    }
    Ok(result.map(|()| 0)?)
}

/// The new number and its CAS id.
fn arith(
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    what: &Arith<'_>,
) -> Result<(u64, u64), Status> {
    let cas = what.cas.map(|cas| server.cas_expected(cas));
    tell_look_up(session, ops, server, what.key);
    let result = verbs::arith(session, &Arith { cas, ..*what });
    ops.hot_keys.see(what.key);
    ops.count_arith(what.decrement, &result, session.changed_class());
    let counted = result.map_err(|why: ArithFailure| Status::from(why))?;
    if let Some((number, exptime)) = what.initial.filter(|_| counted.created) {
        tell_created(session, ops, server, (what.key, number, exptime));
    }
    Ok((counted.number, server.cas_shown(counted.cas)))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use crate::protocol::stats::OpTotals;
    use crate::protocol::{Command, Parsed};
    use crate::store::StoreConfig;
    use driver_shim::Pages;
    use std::sync::Arc;

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
            let store = crate::store::Store::new(config).unwrap();
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
            let header = Header {
                magic: REQUEST_MAGIC,
                opcode,
                key_bytes: key.len().try_into().unwrap(),
                extras_bytes: extras.len().try_into().unwrap(),
                status: 0,
                body_bytes: (extras.len() + key.len() + value.len()).try_into().unwrap(),
                opaque: *b"mark",
                cas,
            };
            let packet = [&header.bytes()[..], extras, key, value].concat();
            let Parsed::Command { command: Command::Binary(request), .. } = parse(&packet, 4096)
            else {
                panic!()
            };
            let mut bytes = Vec::new();
            let mut out = crate::protocol::sink::Buffer::new(&mut bytes, 1 << 20);
            execute(&request, &mut self.session, &self.ops, &self.server, &mut out);
            let (header, body) = Header::split(&bytes)?;
            assert_eq!((header.magic, header.opaque), (RESPONSE_MAGIC, *b"mark"));
            assert_eq!(header.body_bytes as usize, body.len());
            Some((header.status, header.cas, body.to_vec()))
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
            assert_eq!(
                w.ask(opcode::GET, 0, &[], b"k", b""),
                Some((0, cas, b"\0\0\0\0old".to_vec()))
            );
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
        let header = Header {
            magic: REQUEST_MAGIC,
            opcode: opcode::STAT,
            key_bytes: 0,
            extras_bytes: 0,
            status: 0,
            body_bytes: 0,
            opaque: *b"mark",
            cas: 0,
        };
        let request = Request { header, quiet: false, action: Action::Stat(b"") };
        let mut out = crate::protocol::sink::Buffer::new(&mut bytes, 1 << 20);
        execute(&request, &mut w.session, &w.ops, &w.server, &mut out);
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
}
