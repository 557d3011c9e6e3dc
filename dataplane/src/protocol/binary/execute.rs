//! Carries out one request on the store and writes the answer.
//!
//! Enters: a parsed request. Leaves: its effect, a packet or none, and whether the connection
//! stays. What goes wrong is answered even if the request was a quiet one.

use super::header::{Header, REQUEST_MAGIC, RESPONSE_MAGIC, opcode};
use super::{Action, Request, Send, Status, stat};
use crate::protocol::command::{Arith, Refusal, Store, StoreMode};
use crate::protocol::stats::{OpCounters, Server};
use crate::protocol::{Flow, Sink};
use crate::store::verbs::{self, ArithFailure, NotDeleted, NotStored};
use crate::store::{Guard, Session, Value};

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
            get(request, &session.pin(), ops, key, touch, send, out);
            return Flow::Continue;
        }
        Action::Store(ref what) => store(request, session, ops, what),
        Action::Delete { key, cas } => delete(session, ops, key, cas),
        Action::Arith(ref what) => match arith(session, ops, what) {
            Ok((number, cas)) => {
                let value = Value::Whole(&number.to_be_bytes());
                unless_quiet(request, &Answer { cas, value, ..Answer::default() }, out);
                return Flow::Continue;
            }
            Err(status) => Err(status),
        },
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
            stat::write(request, what, server, out);
            return Flow::Continue;
        }
        Action::Refused { status, forget, .. } => {
            if let Some(key) = forget {
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

/// Looks up, touches, and answers.
fn get(
    request: &Request<'_>,
    guard: &Guard<'_>,
    ops: &OpCounters,
    key: &[u8],
    touch: Option<i64>,
    send: Send,
    out: &mut impl Sink,
) {
    let item = match touch {
        Some(exptime) => verbs::touch(guard, key, exptime),
        None => verbs::get(guard, key),
    };
    let (asked, hits, misses) = match touch {
        Some(_) => (&ops.cmd_touch, &ops.touch_hits, &ops.touch_misses),
        None => (&ops.cmd_get, &ops.get_hits, &ops.get_misses),
    };
    asked.inc();
    if item.is_some() { hits } else { misses }.inc();
    let key = if send == Send::KeyAndValue { key } else { &[] };
    match item {
        Some(item) => {
            let extras = &item.flags().to_be_bytes();
            let value = if send == Send::Flags { Value::Whole(&[]) } else { item.value() };
            let found = Answer { status: Status::Success, cas: item.cas(), extras, key, value };
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
    what: &Store<'_>,
) -> Result<u64, Status> {
    let result = if session.store().fits(what.key.len(), what.flags, what.value.len()) {
        verbs::store(session, what).map_err(|why| (why, failure(what.mode, why)))
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
    if what.cas.is_some() && what.mode == StoreMode::Set {
        ops.count_cas(result.map(|_| ()).map_err(|(why, _)| why));
    }
    result.map_err(|(_, status)| status)
}

/// What memcached says to a value that fits and was not stored.
fn failure(mode: StoreMode, why: NotStored) -> Status {
    let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    match (why, mode) {
        (NotStored::Exists, _) => Status::Exists,
        (NotStored::NotFound, _) => Status::NotFound,
        (NotStored::Condition, StoreMode::Add) => Status::Exists,
        (NotStored::Condition, StoreMode::Replace) => Status::NotFound,
        (NotStored::OutOfMemory, _) if !joins => Status::OutOfMemory,
        (NotStored::TooLarge, _) if !joins => Status::TooLarge,
        _ => Status::NotStored,
    }
}

fn delete(
    session: &mut Session,
    ops: &OpCounters,
    key: &[u8],
    cas: Option<u64>,
) -> Result<u64, Status> {
    let result = match cas {
        Some(cas) => verbs::delete_if(session, key, cas),
        None => verbs::delete(session, key).then_some(()).ok_or(NotDeleted::NotFound),
    };
    match result {
        Ok(()) => ops.delete_hits.inc(),
        Err(NotDeleted::NotFound) => ops.delete_misses.inc(),
        Err(NotDeleted::Exists | NotDeleted::OutOfMemory) => {}
    }
    Ok(result.map(|()| 0)?)
}

/// The new number and its CAS id.
fn arith(session: &mut Session, ops: &OpCounters, what: &Arith<'_>) -> Result<(u64, u64), Status> {
    let result = verbs::arith(session, what);
    // As memcached: to begin a number is neither hit nor miss.
    if !result.is_ok_and(|counted| counted.created) {
        ops.count_arith(what.decrement, result.map(|_| ()));
    }
    let counted = result.map_err(|why: ArithFailure| Status::from(why))?;
    Ok((counted.number, counted.cas))
}
