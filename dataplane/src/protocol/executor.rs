//! Carries out one [`Command`] on the store and writes the reply (D3).
//!
//! Every transport and every engine ends here: there is no other way to answer a request. (Room
//! 6 answers plain hits by itself, with [`put_value`] from this file.)

use super::admin;
use super::binary;
use super::command::{Arith, Command, Keys, Refusal, Store, StoreMode};
use super::meta;
use super::sink::Sink;
use super::stats::detail::Act;
use super::stats::{self, Kind, OpCounters, Server};
use super::watch::{Events, Stored};
use crate::store::verbs::{self, ArithFailure, NotStored};
use crate::store::{Guard, ItemRef, PrefixRefused, Session, Value};
use arrayvec::ArrayVec;

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow<'a> {
    /// Read the next request.
    Continue,
    /// The sink is full: carry this out, the rest of the command, when it has room again.
    Rest(Command<'a>),
    /// The sink has no room for the value: nothing was done, and all is to be done when there is.
    NoRoom,
    /// From now on the client wants nothing but to be told of events of these kinds.
    Watch(Events),
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
    let flow = carry_out(command, session, ops, server, out);
    if !matches!(flow, Flow::Rest(_) | Flow::NoRoom) {
        ops.latency.note(command.kind());
    }
    flow
}

/// As [`execute`], for a plain `set`. Returns the line to answer: none if `noreply`. The session is
/// to be settled after the last of several.
#[inline(always)]
pub fn set(
    what: &Store<'_>,
    noreply: bool,
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
) -> &'static [u8] {
    ops.cmd_set.inc();
    tell_look_up(session, ops, server, what.key);
    let result = verbs::set(session, what);
    count_store(session, ops, server, what, result);
    ops.latency.note(Kind::Store);
    if noreply { b"" } else { said(result) }
}

fn carry_out<'a>(
    command: &Command<'a>,
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    out: &mut impl Sink,
) -> Flow<'a> {
    match *command {
        Command::Get { keys, with_cas, touch } => {
            let rest = get(&session.pin(), ops, server, (keys, with_cas, touch), out);
            ops.count_dead(session);
            if let Some(keys) = rest {
                return Flow::Rest(Command::Get { keys, with_cas, touch });
            }
        }
        Command::Store { ref what, noreply } => {
            let reply = match what.cas.map(|cas| server.cas_expected(cas)) {
                None => store(session, ops, server, what),
                cas => store(session, ops, server, &Store { cas, ..*what }),
            };
            if !noreply {
                out.put(reply);
            }
        }
        Command::Delete { key, noreply } => {
            tell_look_up(session, ops, server, key);
            let found = verbs::delete(session, key);
            if found { &ops.delete_hits } else { &ops.delete_misses }.inc();
            count_delete(session, ops, server, key, found);
            if !noreply {
                out.put(if found { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
            }
        }
        Command::Arith { ref what, noreply } => {
            let result = arith(session, ops, server, what);
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
            tell_look_up(session, ops, server, key);
            let guard = session.pin();
            let item = verbs::touch(&guard, key, exptime);
            let found = item.is_some();
            if let Some(item) = &item {
                ops.classes.touch_hits(guard.store().class_of(item));
            }
            drop(guard);
            ops.hot_keys.see(key);
            ops.cmd_touch.inc();
            if found { &ops.touch_hits } else { &ops.touch_misses }.inc();
            if !noreply {
                out.put(if found { b"TOUCHED\r\n" } else { b"NOT_FOUND\r\n" });
            }
        }
        Command::Flush { delay, noreply } => {
            if server.flush_allowed {
                ops.cmd_flush.inc();
                session.store().flush(delay);
            }
            if !noreply {
                out.put(match server.flush_allowed {
                    true => b"OK\r\n",
                    false => Refusal::FlushNotAllowed.line(),
                });
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
        Command::Meta(ref request) => return meta::execute(request, session, ops, server, out),
        Command::Version => {
            out.put(b"VERSION ");
            out.put(server.version.as_bytes());
            out.put(b"\r\n");
        }
        Command::Stats(what) => stats::write(what, server, session, out),
        Command::Admin { what, noreply } => {
            return admin::execute(what, noreply, session, server, out);
        }
        Command::Quit => return Flow::Close,
        Command::Binary(ref request) => {
            return binary::execute(request, session, ops, server, out);
        }
        Command::Refused { reply, noreply, forget } => {
            match reply {
                Refusal::TooLarge => ops.store_too_large.inc(),
                Refusal::OutOfMemoryReading => ops.store_no_memory.inc(),
                // It was a storage command, and had all of its data.
                Refusal::BadDataChunk => ops.cmd_set.inc(),
                _ => {}
            }
            if let Some(key) = forget {
                tell_too_large(session, ops, server, key);
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
#[inline(always)]
fn store(
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    what: &Store<'_>,
) -> &'static [u8] {
    said(store_counted(session, ops, server, what))
}

/// The line for the outcome of a storage command.
#[inline(always)]
fn said(result: Result<u64, NotStored>) -> &'static [u8] {
    match result {
        Ok(_) => b"STORED\r\n",
        Err(NotStored::Exists) => b"EXISTS\r\n",
        Err(NotStored::NotFound) => b"NOT_FOUND\r\n",
        Err(NotStored::Condition) => b"NOT_STORED\r\n",
        Err(NotStored::TooLarge) => Refusal::TooLarge.line(),
        Err(NotStored::OutOfMemory) => Refusal::OutOfMemory.line(),
    }
}

/// Counts a storage command beside `cmd_set`, and tells watchers of it.
#[inline(always)]
pub(super) fn count_store(
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    what: &Store<'_>,
    result: Result<u64, NotStored>,
) {
    ops.hot_keys.see(what.key);
    server.detail.count(what.key, Act::Set);
    let class = session.store().class_for(what.key.len(), what.value.len());
    if let Some(class) = class {
        ops.classes.cmd_set(class);
    }
    if what.cas.is_some() {
        ops.count_cas(result.map(|_| ()), session.changed_class());
    }
    match result {
        Err(NotStored::TooLarge) => ops.store_too_large.inc(),
        Err(NotStored::OutOfMemory) => ops.store_no_memory.inc(),
        _ => {}
    }
    if server.watchers.want(Events::MUTATIONS) {
        tell_stored(session, ops, server, what, result);
    }
}

/// Tells watchers of a storage command.
#[cold]
fn tell_stored(
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    what: &Store<'_>,
    result: Result<u64, NotStored>,
) {
    let guard = session.pin();
    let (store, clock) = (guard.store(), guard.store().clock());
    // Of what was joined, all of it is told.
    let item = (joins(what.mode) && result.is_ok()).then(|| find(&guard, what.key)).flatten();
    let (expiry, class, size) = match item {
        Some(item) => (item.expiry(), Some(store.class_of(&item)), item.value().len()),
        None => {
            let class = store.class_for(what.key.len(), what.value.len());
            (clock.expiry(what.exptime), class, what.value.len())
        }
    };
    let stored = Stored {
        key: what.key,
        status: status(&result),
        command: if what.cas.is_some() { "cas" } else { what.mode.name() },
        ttl: expiry.saturating_sub(clock.now()),
        class: class.map_or(0, |class| class + 1),
        size,
    };
    server.watchers.stored(&stored, ops.client.get());
}

/// The item under this key.
fn find<'g>(guard: &'g Guard<'_>, key: &[u8]) -> Option<ItemRef<'g>> {
    guard.find(guard.store().hash(key), key)
}

/// Tells watchers of the look-up with which memcached begins every change of an item.
#[inline]
pub(super) fn tell_look_up(session: &mut Session, ops: &OpCounters, server: &Server, key: &[u8]) {
    if server.watchers.want(Events::FETCHERS) {
        look_up_and_tell(session, ops, server, key);
    }
}

#[cold]
fn look_up_and_tell(session: &mut Session, ops: &OpCounters, server: &Server, key: &[u8]) {
    let guard = session.pin();
    let found = find(&guard, key);
    let found = found.map(|item| (guard.store().class_of(&item), item.value().len()));
    tell_get(ops, server, key, found);
}

/// Tells watchers of a `set` that was refused before its value was read, and of the look-up for
/// what must not survive it.
pub(super) fn tell_too_large(session: &mut Session, ops: &OpCounters, server: &Server, key: &[u8]) {
    if server.watchers.want(Events::MUTATIONS) {
        let status = status(&Err(NotStored::TooLarge));
        let refused = Stored { key, status, command: "set", ttl: 0, class: 0, size: 0 };
        server.watchers.stored(&refused, ops.client.get());
    }
    tell_look_up(session, ops, server, key);
}

/// Tells watchers of a number that was not there before counting: memcached looks again, and adds
/// it.
pub(super) fn tell_created(
    session: &Session,
    ops: &OpCounters,
    server: &Server,
    (key, number, exptime): (&[u8], u64, i64),
) {
    tell_get(ops, server, key, None);
    if server.watchers.want(Events::MUTATIONS) {
        let (store, size) = (session.store(), itoa::Buffer::new().format(number).len());
        let ttl = store.clock().expiry(exptime).saturating_sub(store.clock().now());
        let class = store.class_for(key.len(), size).map_or(0, |class| class + 1);
        let added = Stored { key, status: "stored", command: "add", ttl, class, size };
        server.watchers.stored(&added, ops.client.get());
    }
}

/// Whether the new value is put before or behind the old one.
fn joins(mode: StoreMode) -> bool {
    matches!(mode, StoreMode::Append | StoreMode::Prepend)
}

/// Counts a delete beside its hits and misses.
pub(super) fn count_delete(
    session: &Session,
    ops: &OpCounters,
    server: &Server,
    key: &[u8],
    found: bool,
) {
    ops.hot_keys.see(key);
    server.detail.count(key, Act::Delete);
    if let Some(class) = session.changed_class().filter(|_| found) {
        ops.classes.delete_hits(class);
    }
}

/// What watchers are told became of a storage command.
fn status(result: &Result<u64, NotStored>) -> &'static str {
    match result {
        Ok(_) => "stored",
        Err(NotStored::Exists) => "exists",
        Err(NotStored::NotFound) => "not_found",
        Err(NotStored::Condition) => "not_stored",
        Err(NotStored::TooLarge) => "too_large",
        Err(NotStored::OutOfMemory) => "no_memory",
    }
}

/// Stores and counts it. As in memcached, what would be too long when joined was not stored, and that
/// is all that the client is told.
#[inline(always)]
pub(super) fn store_counted(
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    what: &Store<'_>,
) -> Result<u64, NotStored> {
    ops.cmd_set.inc();
    tell_look_up(session, ops, server, what.key);
    let result = verbs::store(session, what);
    count_store(session, ops, server, what, result);
    match result {
        Err(NotStored::TooLarge) if joins(what.mode) => Err(NotStored::Condition),
        result => result,
    }
}

/// The new number, or what to say instead.
fn arith(
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    what: &Arith<'_>,
) -> Result<u64, &'static [u8]> {
    tell_look_up(session, ops, server, what.key);
    let result = verbs::arith(session, what);
    ops.hot_keys.see(what.key);
    ops.count_arith(what.decrement, &result, session.changed_class());
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
    (mut keys, with_cas, touch): (Keys<'a>, bool, Option<i64>),
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
            Some(item) if !out.admits(item.value().len()) => {
                rest = Some(keys);
                break;
            }
            Some(item) => {
                hits += 1;
                let cas = with_cas.then(|| server.cas_shown(item.cas()));
                put_value(key, item.flags(), cas, item.value(), out);
            }
            None => misses += 1,
        }
        let found = item.map(|item| (guard.store().class_of(&item), item.value().len()));
        count_get(ops, server, key, found, touch.is_some());
        keys = others;
    }
    if rest.is_none() {
        out.put(b"END\r\n");
    }
    if touch.is_some() {
        ops.cmd_touch.add(hits + misses);
        ops.touch_hits.add(hits);
        ops.touch_misses.add(misses);
    } else {
        ops.cmd_get.add(hits + misses);
        ops.get_hits.add(hits);
        ops.get_misses.add(misses);
    }
    rest
}

/// Counts one key of a get wherever gets are counted by key or by item. `found` is the class of
/// what was found, from 0, and the bytes of its value.
#[inline]
pub(crate) fn count_get(
    ops: &OpCounters,
    server: &Server,
    key: &[u8],
    found: Option<(usize, usize)>,
    touched: bool,
) {
    count_key(ops, server, key, found.map(|(class, _)| class), touched);
    tell_get(ops, server, key, found);
}

/// Tells watchers of a get.
#[inline]
pub(super) fn tell_get(
    ops: &OpCounters,
    server: &Server,
    key: &[u8],
    found: Option<(usize, usize)>,
) {
    if server.watchers.want(Events::FETCHERS) {
        server.watchers.fetched(key, found, ops.client.get());
    }
}

/// [`count_get`], but that watchers are not told.
#[inline]
pub(super) fn count_key(
    ops: &OpCounters,
    server: &Server,
    key: &[u8],
    found: Option<usize>,
    touched: bool,
) {
    ops.hot_keys.see(key);
    server.detail.count(key, if found.is_some() { Act::Hit } else { Act::Miss });
    match found {
        Some(class) if touched => ops.classes.touch_hits(class),
        Some(class) => ops.classes.get_hits(class),
        None => {}
    }
}

/// Most bytes of a `VALUE` line and its line ends beside key and value: the words and blanks, two
/// 32-bit numbers and a 64-bit one in decimal.
pub(crate) const VALUE_OVERHEAD_BYTES: usize = 6 + 1 + 10 + 1 + 10 + 1 + 20 + 2 + 2;

/// Most bytes of [`numbers`]: three with a blank before each, the first of 32 bits.
const NUMBERS_MAX_BYTES: usize = 1 + 10 + 1 + 20 + 1 + 20 + 2;

/// ` <flags> <bytes>\r\n`, of one digit and two: made in a register, because bytes that were written
/// one by one are slow to read in one piece.
#[inline(always)]
fn usual_numbers([flags, tens, ones]: [u64; 3]) -> [u8; 7] {
    let line = u64::from_le_bytes(*b" 0 00\r\n\0") + (flags << 8) + (tens << 24) + (ones << 32);
    let [line @ .., _] = line.to_le_bytes();
    line
}

/// ` <flags> <bytes> [<cas>]\r\n`, whatever the numbers.
#[inline(never)]
fn numbers(flags: u32, len: usize, cas: Option<u64>) -> ArrayVec<u8, NUMBERS_MAX_BYTES> {
    let mut line = ArrayVec::new();
    for number in [Some(flags.into()), Some(len as u64), cas].into_iter().flatten() {
        line.put(b" ");
        line.put_decimal(number);
    }
    line.put(b"\r\n");
    line
}

/// Writes `VALUE <key> <flags> <bytes> [<cas>]\r\n<data>\r\n`.
#[inline(always)]
pub fn put_value(key: &[u8], flags: u32, cas: Option<u64>, value: Value<'_>, out: &mut impl Sink) {
    out.put(b"VALUE ");
    out.put(key);
    match (u8::try_from(flags), u8::try_from(value.len()), cas) {
        // The usual line, at one stroke.
        (Ok(flags @ 0..10), Ok(len @ 10..100), None) => {
            let digits = [flags, len / 10, len % 10].map(u64::from);
            out.put(&usual_numbers(digits));
        }
        _ => out.put(&numbers(flags, value.len(), cas)),
    }
    match value.whole() {
        Some(bytes) => out.put(bytes),
        None => value.pieces().for_each(|piece| out.put(piece)),
    }
    out.put(b"\r\n");
}
