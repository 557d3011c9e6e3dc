//! Carries out one [`Command`] on the store and writes the reply (D3).
//!
//! Every transport and every engine ends here: there is no other way to answer a request. (Room
//! 6 answers plain hits by itself, with [`put_value`] from this file.)

use super::binary;
use super::command::{Arith, Command, Keys, Refusal, Store, StoreMode};
use super::meta;
use super::sink::Sink;
use super::stats::{self, OpCounters, Server};
use crate::store::verbs::{self, ArithFailure, NotStored};
use crate::store::{Guard, PrefixRefused, Session, Value};

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow<'a> {
    /// Read the next request.
    Continue,
    /// The sink is full: carry this out, the rest of the command, when it has room again.
    Rest(Command<'a>),
    /// The client said `quit`.
    Close,
}

/// Carries out `command` and appends the reply to `out`.
pub fn execute<'a>(
    command: &Command<'a>,
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    out: &mut impl Sink,
) -> Flow<'a> {
    match *command {
        Command::Get { keys, with_cas, touch } => {
            if let Some(keys) = get(&session.pin(), ops, server, keys, with_cas, touch, out) {
                return Flow::Rest(Command::Get { keys, with_cas, touch });
            }
        }
        Command::Store { ref what, noreply } => {
            let cas = what.cas.map(|cas| server.cas_expected(cas));
            let reply = store(session, ops, &Store { cas, ..*what });
            if !noreply {
                out.put(reply);
            }
        }
        Command::Delete { key, noreply } => {
            let found = verbs::delete(session, key);
            if found { &ops.delete_hits } else { &ops.delete_misses }.inc();
            if !noreply {
                out.put(if found { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
            }
        }
        Command::Arith { ref what, noreply } => {
            let result = arith(session, ops, what);
            match result {
                _ if noreply => {}
                Ok(n) => {
                    out.put_decimal(n);
                    out.put(b"\r\n");
                }
                Err(line) => out.put(line),
            }
        }
        Command::Touch { key, exptime, noreply } => {
            let found = verbs::touch(&session.pin(), key, exptime).is_some();
            ops.cmd_touch.inc();
            if found { &ops.touch_hits } else { &ops.touch_misses }.inc();
            if !noreply {
                out.put(if found { b"TOUCHED\r\n" } else { b"NOT_FOUND\r\n" });
            }
        }
        Command::Flush { delay, noreply } => {
            ops.cmd_flush.inc();
            session.store().flush(delay);
            if !noreply {
                out.put(b"OK\r\n");
            }
        }
        Command::FlushPrefix { prefix, noreply } => {
            ops.cmd_flush.inc();
            let reply = match session.store().flush_prefix(prefix) {
                Ok(()) => &b"OK\r\n"[..],
                Err(PrefixRefused::Malformed) => Refusal::BadLineFormat.line(),
                Err(PrefixRefused::TooMany) => Refusal::TooManyPrefixes.line(),
            };
            if !noreply {
                out.put(reply);
            }
        }
        Command::Verbosity { noreply } => {
            if !noreply {
                out.put(b"OK\r\n");
            }
        }
        Command::Meta(ref request) => meta::execute(request, session, ops, out),
        Command::Version => {
            out.put(b"VERSION ");
            out.put(server.version.as_bytes());
            out.put(b"\r\n");
        }
        Command::Stats(what) => stats::write(what, server, out),
        Command::Quit => return Flow::Close,
        Command::Binary(ref request) => {
            return binary::execute(request, session, ops, server, out);
        }
        Command::Refused { reply, noreply, forget } => {
            if let Some(key) = forget {
                verbs::delete(session, key);
            }
            if !noreply {
                out.put(reply.line());
            }
        }
    }
    Flow::Continue
}

/// Stores, and says how it went.
fn store(session: &mut Session, ops: &OpCounters, what: &Store<'_>) -> &'static [u8] {
    match store_counted(session, ops, what) {
        Ok(_) => b"STORED\r\n",
        Err(NotStored::Exists) => b"EXISTS\r\n",
        Err(NotStored::NotFound) => b"NOT_FOUND\r\n",
        Err(NotStored::Condition) => b"NOT_STORED\r\n",
        Err(NotStored::TooLarge) => Refusal::TooLarge.line(),
        Err(NotStored::OutOfMemory) => Refusal::OutOfMemory.line(),
    }
}

/// Stores and counts it. As in memcached, what there is no room to join was not stored, and that
/// is all that the client is told.
pub(super) fn store_counted(
    session: &mut Session,
    ops: &OpCounters,
    what: &Store<'_>,
) -> Result<u64, NotStored> {
    ops.cmd_set.inc();
    let result = verbs::store(session, what);
    if what.cas.is_some() {
        ops.count_cas(result.map(|_| ()));
    }
    let joins = matches!(what.mode, StoreMode::Append | StoreMode::Prepend);
    match result {
        Err(NotStored::TooLarge | NotStored::OutOfMemory) if joins => Err(NotStored::Condition),
        result => result,
    }
}

/// The new number, or what to say instead.
fn arith(session: &mut Session, ops: &OpCounters, what: &Arith<'_>) -> Result<u64, &'static [u8]> {
    let result = verbs::arith(session, what);
    ops.count_arith(what.decrement, &result);
    result.map(|done| done.number).map_err(|why| match why {
        ArithFailure::NotFound => &b"NOT_FOUND\r\n"[..],
        ArithFailure::Exists => b"EXISTS\r\n",
        ArithFailure::NonNumeric => Refusal::NonNumeric.line(),
        ArithFailure::TooLarge | ArithFailure::OutOfMemory => Refusal::OutOfMemoryArith.line(),
    })
}

/// Answers keys until none is left, or the sink is full: then the keys that are left.
fn get<'a>(
    guard: &Guard<'_>,
    ops: &OpCounters,
    server: &Server,
    mut keys: Keys<'a>,
    with_cas: bool,
    touch: Option<i64>,
    out: &mut impl Sink,
) -> Option<Keys<'a>> {
    let (mut hits, mut misses) = (0, 0);
    let mut rest = None;
    while let Some((key, others)) = keys.split_first() {
        if out.is_full() {
            rest = Some(keys);
            break;
        }
        let item = match touch {
            Some(exptime) => verbs::touch(guard, key, exptime),
            None => verbs::get(guard, key),
        };
        match item {
            Some(item) => {
                hits += 1;
                let cas = with_cas.then(|| server.cas_shown(item.cas()));
                put_value(key, item.flags(), cas, item.value(), out);
            }
            None => misses += 1,
        }
        keys = others;
    }
    if rest.is_none() {
        out.put(b"END\r\n");
    }
    ops.cmd_get.add(hits + misses);
    if touch.is_some() {
        ops.cmd_touch.add(hits + misses);
        ops.touch_hits.add(hits);
        ops.touch_misses.add(misses);
    } else {
        ops.get_hits.add(hits);
        ops.get_misses.add(misses);
    }
    rest
}

/// Writes `VALUE <key> <flags> <bytes> [<cas>]\r\n<data>\r\n`.
pub fn put_value(key: &[u8], flags: u32, cas: Option<u64>, value: Value<'_>, out: &mut impl Sink) {
    out.put(b"VALUE ");
    out.put(key);
    out.put(b" ");
    out.put_decimal(u64::from(flags));
    out.put(b" ");
    out.put_decimal(value.len() as u64);
    if let Some(cas) = cas {
        out.put(b" ");
        out.put_decimal(cas);
    }
    out.put(b"\r\n");
    value.pieces().for_each(|piece| out.put(piece));
    out.put(b"\r\n");
}
