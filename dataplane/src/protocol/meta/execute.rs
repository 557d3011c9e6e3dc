//! Meta commands: carried out on the store, and answered.
//!
//! In: a [`Request`] that the parser passed. Out: its reply, flags in the order they were asked
//! for. Every change is one verb of the store, so one step. Never fails: what the store refuses is
//! a reply.

use super::{Flags, Key, Request, Verb, decode};
use crate::protocol::Flow;
use crate::protocol::command::{Arith, Refusal, Store, StoreMode};
use crate::protocol::executor::{
    count_delete, count_get, count_key, store_counted, tell_created, tell_get, tell_look_up,
    tell_too_large,
};
use crate::protocol::sink::Sink;
use crate::protocol::stats::{OpCounters, Server};
use crate::store::Session;
use crate::store::verbs::{
    self, ArithFailure, Claim, Fetch, Found, NotDeleted, NotStored, Recache, TooLong,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Most bytes of a key in base64.
const BASE64_MAX_BYTES: usize = super::KEY_MAX_BYTES.div_ceil(3) * 4;

/// Carries out `request` and appends the reply to `out`.
pub fn execute<'a>(
    request: &Request<'_>,
    session: &mut Session,
    ops: &OpCounters,
    server: &Server,
    out: &mut impl Sink,
) -> Flow<'a> {
    let ends = Ends { ops, server };
    let flags = &request.flags;
    // The parser has done the same: there is a key.
    let key = &decode(request.key, flags.base64_key).unwrap_or_default();
    match request.verb {
        Verb::Get => {
            let done = get(key, flags, session, ends, out);
            ops.count_dead(session);
            if !done {
                return Flow::NoRoom;
            }
        }
        Verb::Set { mode, value } => set(key, flags, mode, value, session, ends, out),
        Verb::SetTooLarge => {
            ops.store_too_large.inc();
            tell_too_large(session, ops, server, key);
            verbs::delete(session, key);
            out.put(Refusal::TooLarge.line());
        }
        Verb::SetUnread => {
            ops.store_no_memory.inc();
            tell_too_large(session, ops, server, key);
            verbs::delete(session, key);
            out.put(Refusal::OutOfMemoryReading.line());
        }
        Verb::Delete => delete(key, flags, session, ends, out),
        Verb::Arith { decrement } => arith(key, flags, decrement, session, ends, out),
        Verb::Debug => debug(key, session, ends, out),
        Verb::Noop => out.put(b"MN\r\n"),
    }
    Flow::Continue
}

/// Where requests are counted.
#[derive(Clone, Copy)]
struct Ends<'a> {
    ops: &'a OpCounters,
    server: &'a Server,
}

/// False when there is no room for the value, and nothing was done.
fn get(
    key: &Key,
    flags: &Flags<'_>,
    session: &mut Session,
    ends: Ends<'_>,
    out: &mut impl Sink,
) -> bool {
    let Ends { ops, server } = ends;
    let clock = session.store().clock();
    let (now, expiry) = (clock.now(), |exptime| clock.expiry(exptime));
    let (touch, create) = (flags.exptime.map(expiry), flags.create.map(expiry));
    let recache = flags.recache.map(expiry);
    let recache = recache.map(|before| Recache { before, touched: flags.is_before(b'T', b'R') });
    // A new item has the exptime that was said last.
    let last = if flags.is_before(b'N', b'T') { touch } else { create };
    let room = if flags.value { out.room() } else { usize::MAX };
    let made = create.and(last);
    let unnoticed = flags.unnoticed;
    let what = Fetch { key, touch, recache, create: made, unnoticed, room };
    let told = verbs::fetch(session, &what, |found| match found {
        Some(found) => {
            count_key(ops, server, key, Some(found.class), touch.is_some());
            let before = (!found.created).then_some((found.class, found.value.len()));
            tell_get(ops, server, key, before);
            if touch.is_some() {
                ops.cmd_touch.inc();
                ops.touch_hits.inc();
            } else {
                ops.cmd_get.inc();
                ops.get_hits.inc();
            }
            let mut expiry = found.expiry;
            begin(flags.value.then_some(found.value.len()), out);
            for (letter, word) in flags.iter() {
                match letter {
                    b'T' => expiry = touch.unwrap_or(expiry),
                    b'N' if found.created => expiry = create.unwrap_or(expiry),
                    b't' => put_ttl(expiry, now, out),
                    b'k' => put_key(key, found.base64_key, out),
                    _ => put_of_item(letter, word, &found, now, out),
                }
            }
            put_claim(&found, out);
            out.put(b"\r\n");
            if flags.value {
                found.value.pieces().for_each(|piece| out.put(piece));
                out.put(b"\r\n");
            }
        }
        None => {
            count_get(ops, server, key, None, false);
            ops.cmd_get.inc();
            ops.get_misses.inc();
            if !flags.quiet {
                answer(b"EN", key, flags, None, out);
            }
        }
    });
    match told {
        Ok(()) => true,
        Err(TooLong(bytes)) => out.admits(bytes),
    }
}

/// One flag of an item that `mg` found.
fn put_of_item(letter: u8, word: &[u8], found: &Found<'_>, now: u32, out: &mut impl Sink) {
    match letter {
        b's' => put_number(b" s", found.value.len() as u64, out),
        b'c' => put_number(b" c", found.cas, out),
        b'f' => put_number(b" f", u64::from(found.flags), out),
        b'h' => put_number(b" h", u64::from(found.fetched), out),
        b'l' => put_number(b" l", u64::from(now.saturating_sub(found.accessed)), out),
        b'O' => put_word(word, out),
        _ => {}
    }
}

/// Z: somebody is fetching it anew. X: it is out of date. W: it is for the client to fetch anew.
fn put_claim(found: &Found<'_>, out: &mut impl Sink) {
    if found.claim == Claim::Taken {
        out.put(b" Z");
    }
    if found.stale {
        out.put(b" X");
    }
    if found.claim == Claim::Won {
        out.put(b" W");
    }
}

fn set(
    key: &Key,
    flags: &Flags<'_>,
    mode: StoreMode,
    value: &[u8],
    session: &mut Session,
    Ends { ops, server }: Ends<'_>,
    out: &mut impl Sink,
) {
    let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    let what = Store {
        mode,
        // 0 is never an item's, and so never too old; who joins may give it for none.
        cas: flags.cas.filter(|&cas| cas != 0 || !joins),
        or_stale: flags.invalidate && flags.cas != Some(0),
        base64_key: flags.base64_key,
        ..Store::set(key, flags.client_flags, flags.exptime.unwrap_or(0), value)
    };
    let (code, cas): (&[u8], _) = match store_counted(session, ops, server, &what) {
        Ok(_) if flags.quiet => return,
        Ok(cas) => (b"HD", cas),
        Err(NotStored::Condition) => (b"NS", 0),
        Err(NotStored::Exists) => (b"EX", 0),
        Err(NotStored::NotFound) => (b"NF", 0),
        // Nobody is to read a value that its writer believes replaced. One that was to be longer stays.
        Err(NotStored::TooLarge) => {
            verbs::delete(session, key);
            return out.put(Refusal::TooLarge.line());
        }
        Err(NotStored::OutOfMemory) => {
            if !joins {
                verbs::delete(session, key);
            }
            return out.put(Refusal::OutOfMemory.line());
        }
    };
    answer(code, key, flags, Some(cas), out);
}

fn delete(
    key: &Key,
    flags: &Flags<'_>,
    session: &mut Session,
    Ends { ops, server }: Ends<'_>,
    out: &mut impl Sink,
) {
    tell_look_up(session, ops, server, key);
    let result = match flags.cas {
        cas if flags.invalidate => verbs::invalidate(session, key, cas, flags.exptime),
        Some(cas) => verbs::delete_if(session, key, cas),
        None if verbs::delete(session, key) => Ok(()),
        None => Err(NotDeleted::NotFound),
    };
    count_delete(session, ops, server, key, result.is_ok() && !flags.invalidate);
    match result {
        Ok(()) if flags.invalidate => {}
        Ok(()) => ops.delete_hits.inc(),
        Err(NotDeleted::NotFound | NotDeleted::Exists) => ops.delete_misses.inc(),
        Err(NotDeleted::OutOfMemory) => {}
    }
    match result {
        Ok(()) if flags.quiet => {}
        Ok(()) => answer(b"HD", key, flags, None, out),
        Err(NotDeleted::NotFound) => answer(b"NF", key, flags, None, out),
        Err(NotDeleted::Exists) => answer(b"EX", key, flags, None, out),
        Err(NotDeleted::OutOfMemory) => out.put(Refusal::OutOfMemory.line()),
    }
}

fn arith(
    key: &Key,
    flags: &Flags<'_>,
    decrement: bool,
    session: &mut Session,
    Ends { ops, server }: Ends<'_>,
    out: &mut impl Sink,
) {
    let exptime = flags.exptime;
    // As for `mg`: what was said last.
    let last = if flags.is_before(b'N', b'T') { exptime } else { flags.create };
    let what = Arith {
        key,
        delta: flags.delta,
        decrement,
        // To memcached 0 is no CAS id here, though it is one to `ms` and `md`.
        cas: flags.cas.filter(|&cas| cas != 0),
        initial: flags.create.and(last).map(|exptime| (flags.initial, exptime)),
        exptime,
    };
    tell_look_up(session, ops, server, key);
    let result = verbs::arith(session, &what);
    ops.hot_keys.see(key);
    ops.count_arith(decrement, &result, session.changed_class());
    let done = match result {
        Ok(done) => done,
        Err(ArithFailure::NotFound) => return answer(b"NF", key, flags, None, out),
        Err(ArithFailure::Exists) => return answer(b"EX", key, flags, None, out),
        Err(ArithFailure::NonNumeric) => return out.put(Refusal::NonNumeric.line()),
        Err(ArithFailure::TooLarge | ArithFailure::OutOfMemory) => {
            return out.put(Refusal::OutOfMemoryArith.line());
        }
    };
    if let Some((number, exptime)) = what.initial.filter(|_| done.created) {
        tell_created(session, ops, server, (key, number, exptime));
    }
    // As in memcached: that a number was made is told in any case.
    if flags.quiet && !done.created {
        return;
    }
    let clock = session.store().clock();
    let mut expiry = done.expiry;
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(done.number).as_bytes();
    begin(flags.value.then_some(digits.len()), out);
    for (letter, word) in flags.iter() {
        match letter {
            b'T' => expiry = exptime.map_or(expiry, |e| clock.expiry(e)),
            b'N' if done.created => expiry = flags.create.map_or(expiry, |e| clock.expiry(e)),
            b't' => put_ttl(expiry, clock.now(), out),
            b'c' => put_number(b" c", done.cas, out),
            b'k' => put_key(key, flags.base64_key, out),
            b'O' => put_word(word, out),
            _ => {}
        }
    }
    out.put(b"\r\n");
    if flags.value {
        out.put(digits);
        out.put(b"\r\n");
    }
}

fn debug(key: &Key, session: &mut Session, Ends { ops, server }: Ends<'_>, out: &mut impl Sink) {
    ops.cmd_meta.inc();
    tell_look_up(session, ops, server, key);
    let guard = session.pin();
    let store = guard.store();
    let Some(item) = guard.find(store.hash(key), key) else { return out.put(b"EN\r\n") };
    let now = i64::from(store.now());
    let expires = match item.expiry() {
        0 => -1,
        expiry => now - i64::from(expiry),
    };
    out.put(b"ME ");
    put_key_text(key, item.has_base64_key(), out);
    let line = format_args!(
        " exp={expires} la={} cas={} fetch={} cls={} size={}\r\n",
        now - i64::from(item.accessed()),
        item.cas(),
        if item.was_fetched() { "yes" } else { "no" },
        store.class_of(&item) + 1,
        item.len_bytes(),
    );
    let mut text = arrayvec::ArrayString::<160>::new();
    // Six numbers of at most 20 digits and the words between them fit.
    let _ = std::fmt::Write::write_fmt(&mut text, line);
    out.put(text.as_bytes());
}

/// The answer of which only the code, the key and what the client brought are told; the CAS id
/// where there is one to tell.
fn answer(code: &[u8], key: &Key, flags: &Flags<'_>, cas: Option<u64>, out: &mut impl Sink) {
    out.put(code);
    for (letter, word) in flags.iter() {
        match (letter, cas) {
            (b'k', _) => put_key(key, flags.base64_key, out),
            (b'O', _) => put_word(word, out),
            (b'c', Some(cas)) => put_number(b" c", cas, out),
            _ => {}
        }
    }
    out.put(b"\r\n");
}

/// How the line of something found begins, with a value of this length or none.
fn begin(value_len: Option<usize>, out: &mut impl Sink) {
    match value_len {
        Some(len) => put_number(b"VA ", len as u64, out),
        None => out.put(b"HD"),
    }
}

fn put_number(name: &[u8], n: u64, out: &mut impl Sink) {
    out.put(name);
    out.put_decimal(n);
}

fn put_word(word: &[u8], out: &mut impl Sink) {
    out.put(b" ");
    out.put(word);
}

/// Seconds left until `expiry`, or -1 for never.
fn put_ttl(expiry: u32, now: u32, out: &mut impl Sink) {
    match expiry {
        0 => out.put(b" t-1"),
        _ => put_number(b" t", u64::from(expiry.saturating_sub(now)), out),
    }
}

fn put_key(key: &Key, base64: bool, out: &mut impl Sink) {
    out.put(b" k");
    if put_key_text(key, base64, out) {
        out.put(b" b");
    }
}

/// Writes the key, in base64 if it is to be, or if it would not be one word of one line. True when
/// it was.
fn put_key_text(key: &Key, base64: bool, out: &mut impl Sink) -> bool {
    if !base64 && !key.iter().any(|b| matches!(b, b' ' | b'\n')) {
        out.put(key);
        return false;
    }
    let mut text = [0; BASE64_MAX_BYTES];
    // It fits: four bytes for any three.
    let len = BASE64_STANDARD.encode_slice(key, &mut text).unwrap_or(0);
    out.put(text.get(..len).unwrap_or_default());
    true
}
