//! The strict parser of the ASCII protocol (protocol.txt).
//!
//! In: bytes from a connection or a datagram. Out: one [`Command`] and how many bytes it took.
//! Accepts and refuses what memcached 1.6 accepts and refuses, in the same words: tokens are
//! separated by blanks, a line ends in `\n` with or without `\r`, a data block in `\r\n`.

mod encode;
mod plain;

use super::admin;
use super::command::{
    Arith, Command, Delete, Get, KEY_MAX_BYTES, Keys, Refused, Store, StoreMode, Touch, Verb,
    Words, first_word,
};
use super::far_end::FarEnd;
use super::meta;
use super::parsed::Parsed;
use super::refusal::Refusal;
use arrayvec::ArrayVec;
pub(super) use encode::put;
pub use encode::{END, LAST, MORE, TAIL, VALUE_OVERHEAD_BYTES, line, put_value};
use memchr::memchr;
pub use plain::{PlainSet, plain_get, plain_set};
use std::str::FromStr;

/// Longest command line that is not a `get` or `gets`, in bytes; without an end by then, the
/// connection is closed. memcached's own figure.
pub const LINE_MAX_BYTES: usize = 2048;

/// Longest `get` or `gets` line. memcached has no limit; a bound keeps one connection from
/// taking all memory, and this one holds more than 4,000 keys of full length.
const GET_LINE_MAX_BYTES: usize = 1 << 20;

/// Tokens of a line that mean anything: a command and its most arguments, and one to notice
/// that there are more.
const TOKENS_MAX: usize = 8;

/// Parses the first request of `input`. `item_max_bytes` is the item size limit (`-I`).
pub fn parse(input: &[u8], item_max_bytes: usize) -> Parsed<'_> {
    match plain_set(input, item_max_bytes) {
        Some(PlainSet { what, noreply, used }) => {
            Parsed::Command { command: Command::text(Verb::Store(what), noreply), used }
        }
        None => strict(input, item_max_bytes),
    }
}

/// Parses whatever there is.
#[inline(never)]
fn strict(input: &[u8], item_max_bytes: usize) -> Parsed<'_> {
    let Some(end) = memchr(b'\n', input) else {
        return unfinished_line(input);
    };
    let used = end + 1;
    let line = input.get(..end).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (verb, rest) = first_word(line);
    let done = |command| Parsed::Command { command, used };
    let loud = |verb| done(Command::text(verb, false));
    match verb {
        b"get" | b"bget" if !is_blank(rest) => return done(get(rest, false, None)),
        b"gets" if !is_blank(rest) => return done(get(rest, true, None)),
        [b'm', verb] => return meta::parse(*verb, rest, input, used, item_max_bytes),
        _ => {}
    }
    let tokens = tokenize(verb, rest);
    if let Some(line) = StorageLine::of(&tokens) {
        return storage(input, used, &line, item_max_bytes);
    }
    match tokens.as_slice() {
        // Without its CAS id, as 1.6.45: what follows the line is a block all the same.
        [b"cas", _, _, _, len] if let Some(len) = block_len(len) => {
            Parsed::Swallow { command: refused(Refusal::BadLineFormat, false), used, skip: len + 2 }
        }
        [b"gat", exptime, ..] => done(gat(exptime, rest, false)),
        [b"gats", exptime, ..] => done(gat(exptime, rest, true)),
        [b"delete", key, more @ ..] if more.len() <= 2 => done(delete(key, more)),
        [verb @ (b"incr" | b"decr"), key, delta, more @ ..] if more.len() <= 1 => {
            done(arith(*verb == b"decr", key, delta, *more.last().unwrap_or(delta) == b"noreply"))
        }
        [b"touch", key, exptime, more @ ..] if more.len() <= 1 => {
            done(touch(key, exptime, *more.last().unwrap_or(exptime) == b"noreply"))
        }
        [b"flush_all", more @ ..] if more.len() <= 2 => done(flush_all(more)),
        [b"flush_prefix", prefix, more @ ..] if more.len() <= 1 => {
            done(Command::text(Verb::FlushPrefix { prefix }, more == [b"noreply"]))
        }
        [b"verbosity", level, more @ ..] if more.len() <= 1 => {
            let noreply = *more.last().unwrap_or(level) == b"noreply";
            done(match number::<u64>(level) {
                Some(_) => Command::text(Verb::Verbosity, noreply),
                None => refused(Refusal::BadLineFormat, noreply),
            })
        }
        [b"version", ..] => loud(Verb::Version),
        [b"stats", ..] => loud(Verb::Stats(Some(rest.trim_ascii()).filter(|r| !r.is_empty()))),
        [b"quit", ..] => loud(Verb::Quit),
        [b"rdma", words @ ..] => loud(Verb::Rdma(FarEnd::of(words))),
        [verb, ..] if let Some((what, noreply)) = admin::parse(verb, rest) => {
            done(Command::text(Verb::Admin(what), noreply))
        }
        // A web page made a browser connect to us: nothing in what follows may be obeyed.
        // (A single letter is never a command, nor a method.)
        [[_, _, ..], ..] if tokens.last().is_some_and(|t| t.starts_with(b"HTTP/")) => {
            Parsed::Hopeless
        }
        _ => done(refused(Refusal::Error, false)),
    }
}

/// The words of a storage command.
struct StorageLine<'a> {
    mode: StoreMode,
    key: &'a [u8],
    flags: &'a [u8],
    exptime: &'a [u8],
    len: &'a [u8],
    cas: Option<&'a [u8]>,
    noreply: bool,
}

impl<'a> StorageLine<'a> {
    fn of(tokens: &[&'a [u8]]) -> Option<Self> {
        let [verb, key, flags, exptime, len, more @ ..] = tokens else { return None };
        let mode = match *verb {
            b"set" | b"cas" => StoreMode::Set,
            b"add" => StoreMode::Add,
            b"replace" => StoreMode::Replace,
            b"append" => StoreMode::Append,
            b"prepend" => StoreMode::Prepend,
            _ => return None,
        };
        let (cas, more) = match more {
            [cas, more @ ..] if *verb == b"cas" => (Some(*cas), more),
            _ if *verb == b"cas" => return None,
            _ => (None, more),
        };
        // The last word counts wherever it stands, so that a line one word short is quiet too.
        let noreply = tokens.last().is_some_and(|last| *last == b"noreply");
        (more.len() <= 1).then_some(Self { mode, key, flags, exptime, len, cas, noreply })
    }
}

/// A refusal that leaves the connection usable.
pub(super) fn refused<'a>(why: Refusal, noreply: bool) -> Command<'a> {
    Command::text(Verb::Refused(Refused { why, forget: None, close: false }), noreply)
}

fn unfinished_line(input: &[u8]) -> Parsed<'_> {
    let at_least = input.len() + 1;
    if input.len() <= LINE_MAX_BYTES {
        return Parsed::Incomplete { at_least };
    }
    let blanks = input.iter().take_while(|&&b| b == b' ').count();
    let text = input.get(blanks..).unwrap_or_default();
    let is_get = text.starts_with(b"get ") || text.starts_with(b"gets ");
    if is_get && blanks <= 100 && input.len() <= GET_LINE_MAX_BYTES {
        Parsed::Incomplete { at_least }
    } else {
        Parsed::Hopeless
    }
}

/// Whether `input`, which is unfinished, has no line end and is longer than [`LINE_MAX_BYTES`]: only a get may be.
pub fn is_long_line(input: &[u8]) -> bool {
    input.len() > LINE_MAX_BYTES && memchr(b'\n', input).is_none()
}

/// Whether it is so still: no end in what has come behind the first `searched` bytes, and no longer than
/// a get may be.
pub fn is_same_line(input: &[u8], searched: usize) -> bool {
    let come = input.get(searched..).unwrap_or_default();
    input.len() <= GET_LINE_MAX_BYTES && memchr(b'\n', come).is_none()
}

fn is_blank(text: &[u8]) -> bool {
    text.iter().all(|&b| b == b' ')
}

/// The first words of a line that begins with `verb`.
fn tokenize<'a>(verb: &'a [u8], rest: &'a [u8]) -> ArrayVec<&'a [u8], TOKENS_MAX> {
    let (mut word, mut rest) = (verb, rest);
    let mut tokens = ArrayVec::new();
    while !word.is_empty() && tokens.try_push(word).is_ok() {
        (word, rest) = first_word(rest);
    }
    tokens
}

fn get(keys: &[u8], with_cas: bool, touch: Option<i64>) -> Command<'_> {
    let words = Words(keys);
    // A short line has no long key.
    if keys.len() > KEY_MAX_BYTES && words.iter().any(|k| k.len() > KEY_MAX_BYTES) {
        return refused(Refusal::BadLineFormat, false);
    }
    Command::text(Verb::Get(Get { keys: Keys::Words(words), with_cas, touch }), false)
}

/// `rest` is the exptime and the keys behind it.
fn gat<'a>(exptime: &[u8], rest: &'a [u8], with_cas: bool) -> Command<'a> {
    match (self::exptime(exptime), Words(rest).split_first()) {
        (Some(exptime), Some((_, keys))) => get(keys.0, with_cas, Some(exptime)),
        _ => refused(Refusal::InvalidExptime, false),
    }
}

fn storage<'a>(
    input: &'a [u8],
    used: usize,
    line: &StorageLine<'a>,
    item_max_bytes: usize,
) -> Parsed<'a> {
    let StorageLine { mode, key, noreply, .. } = *line;
    let bad = refused(Refusal::BadLineFormat, noreply);
    // Without a length the end of the block is unknown: what follows is read as commands.
    let Some(len) = block_len(line.len) else { return Parsed::Command { command: bad, used } };
    let skip = len + 2;
    let (true, Some(flags), Some(exptime), Some(cas)) = (
        key.len() <= KEY_MAX_BYTES,
        number::<u32>(line.flags),
        exptime(line.exptime),
        line.cas.map_or(Some(None), |cas| number::<u64>(cas).map(Some)),
    ) else {
        return Parsed::Swallow { command: bad, used, skip };
    };
    if len > item_max_bytes {
        let forget = (mode == StoreMode::Set && cas.is_none()).then_some(key);
        let refused = Refused { why: Refusal::TooLarge, forget, close: false };
        let command = Command::text(Verb::Refused(refused), noreply);
        return Parsed::Swallow { command, used, skip };
    }
    let Some(block) = input.get(used..used + skip) else {
        return Parsed::Incomplete { at_least: used + skip };
    };
    let command = match block.strip_suffix(b"\r\n") {
        Some(value) => {
            let what = Store { mode, cas, ..Store::set(key, flags, exptime, value) };
            Command::text(Verb::Store(what), noreply)
        }
        None => refused(Refusal::BadDataChunk, noreply),
    };
    Parsed::Command { command, used: used + skip }
}

/// The length of a data block. As memcached: not negative, below INT_MAX with the line end added.
pub(super) fn block_len(text: &[u8]) -> Option<usize> {
    let len = usize::try_from(number::<i32>(text)?).ok()?;
    (len <= i32::MAX as usize - 2).then_some(len)
}

fn arith<'a>(decrement: bool, key: &'a [u8], delta: &[u8], noreply: bool) -> Command<'a> {
    if key.len() > KEY_MAX_BYTES {
        return refused(Refusal::BadLineFormat, noreply);
    }
    let Some(delta) = number(delta) else { return refused(Refusal::InvalidDelta, noreply) };
    let what =
        Arith { key, delta, decrement, cas: None, initial: None, own_cas: None, exptime: None };
    Command::text(Verb::Arith(what), noreply)
}

fn touch<'a>(key: &'a [u8], exptime: &[u8], noreply: bool) -> Command<'a> {
    if key.len() > KEY_MAX_BYTES {
        return refused(Refusal::BadLineFormat, noreply);
    }
    match self::exptime(exptime) {
        Some(exptime) => Command::text(Verb::Touch(Touch { key, exptime }), noreply),
        None => refused(Refusal::InvalidExptime, noreply),
    }
}

fn flush_all<'a>(more: &[&[u8]]) -> Command<'a> {
    let noreply = more.last() == Some(&&b"noreply"[..]);
    let delay = match more {
        [] | [b"noreply"] => Some(0),
        [delay, ..] => number(delay),
    };
    match delay {
        Some(delay) => Command::text(Verb::Flush { delay }, noreply),
        None => refused(Refusal::InvalidExptime, noreply),
    }
}

fn delete<'a>(key: &'a [u8], more: &[&[u8]]) -> Command<'a> {
    let noreply = match more {
        [] | [b"0"] => false,
        [b"noreply"] | [b"0", b"noreply"] => true,
        _ => return refused(Refusal::DeleteUsage, more.last() == Some(&&b"noreply"[..])),
    };
    if key.len() > KEY_MAX_BYTES {
        return refused(Refusal::BadLineFormat, noreply);
    }
    Command::text(Verb::Delete(Delete { key, cas: None, leave: None }), noreply)
}

/// An exptime. Clients that keep theirs in 32 bits without a sign (pylibmc, and so Django) write the largest such
/// numbers where they mean -1 and its like: what has passed. memcached reads all exptimes as 32 bits with a sign; here
/// the last 30 days of those before 2106 are read so, as many as an exptime counts from now, and all others are what they say.
pub(super) fn exptime(token: &[u8]) -> Option<i64> {
    const WRAPPED: i64 = 1 << 32;
    let seconds = number(token)?;
    let is_negative = (WRAPPED - 30 * 24 * 60 * 60..WRAPPED).contains(&seconds);
    Some(if is_negative { seconds - WRAPPED } else { seconds })
}

/// A decimal number, with a sign where the type has one.
#[inline]
pub(super) fn number<T: FromStr + TryFrom<u8>>(token: &[u8]) -> Option<T> {
    match *token {
        // Most flags, expiry times and lengths.
        [a @ b'0'..=b'9'] => T::try_from(a - b'0').ok(),
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => T::try_from((a - b'0') * 10 + b - b'0').ok(),
        _ => std::str::from_utf8(token).ok()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
