//! Answers of the meta commands.
//!
//! In: what of the command is repeated, and what became of it. Out: a line, and a value where one
//! is requested, flags in the order of the request. Never fails.

use crate::command::{Echo, KEY_MAX_BYTES};
use crate::outcome::{Body, Claim, Facts, Fetched, Number, Outcome, ReadBy, Stag, Ttl, Unstored};
use crate::sink::{Sink, Tail};
use base::memory_file::Place;
use base::small_bytes::word_len;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt::Write;

/// Most bytes of a key in base64.
const BASE64_MAX_BYTES: usize = KEY_MAX_BYTES.div_ceil(3) * 4;

/// Writes what became of a command, how long the value is that it was about, and what it can be
/// read by.
pub(crate) fn put_sized(
    echo: &Echo<'_>,
    outcome: Outcome<'_>,
    len: Option<usize>,
    by: ReadBy,
    out: &mut impl Sink,
) {
    let (code, cas): (&[u8], _) = match outcome {
        Outcome::Stored(_) | Outcome::Deleted | Outcome::Touched if echo.quiet => return,
        Outcome::Stored(cas) => (b"HD", Some(cas)),
        Outcome::NotStored(Unstored::Condition) => (b"NS", Some(0)),
        Outcome::NotStored(Unstored::Exists) => (b"EX", Some(0)),
        Outcome::NotStored(Unstored::NotFound) => (b"NF", Some(0)),
        Outcome::Deleted | Outcome::Touched => (b"HD", None),
        Outcome::Exists => (b"EX", None),
        Outcome::NotFound => (b"NF", None),
        Outcome::Number(number) => return put_number_of(echo, &number, out),
        Outcome::Done => return out.put(b"MN\r\n"),
        Outcome::Refused(why) => return out.put(why.line()),
        Outcome::Version(_) | Outcome::Bye => return,
        Outcome::Lines(lines) => return out.put(lines),
    };
    let by = if matches!(outcome, Outcome::Stored(_)) { by } else { ReadBy::default() };
    put_code(code, echo, (cas, len, by), out);
}

/// The answer of which only the code, the key and what the client brought are sent; the CAS id, the
/// length of the value and what it can be read by where there are any to send.
fn put_code(
    code: &[u8],
    echo: &Echo<'_>,
    (cas, len, by): (Option<u64>, Option<usize>, ReadBy),
    out: &mut impl Sink,
) {
    out.put(code);
    for (letter, word) in echo.flags() {
        match letter {
            b'k' => put_key_as_asked(echo, out),
            b'O' => put_word(word, out),
            b'c' if let Some(cas) = cas => put_number(b" c", cas, out),
            b's' if let Some(len) = len => put_number(b" s", len as u64, out),
            b'g' => put_stag(by.stag, out),
            b'p' => put_place(by.place, out),
            _ => {}
        }
    }
    out.put(b"\r\n");
}

/// `mg` has found nothing.
pub(crate) fn put_miss(echo: &Echo<'_>, out: &mut impl Sink) {
    put_code(b"EN", echo, (None, None, ReadBy::default()), out);
}

/// `mg` has found something.
pub(crate) fn put_fetched(echo: &Echo<'_>, found: &Fetched<'_, impl Body>, out: &mut impl Sink) {
    let mut ttl = found.ttls.found;
    let value = echo.value && !found.known;
    begin(value.then_some(found.value.len()), out);
    for (letter, word) in echo.flags() {
        ttl = found.ttls.behind(letter, ttl);
        match letter {
            b't' => put_ttl(ttl, out),
            b'k' => put_key(found.key, found.base64_key, out),
            b's' => put_number(b" s", found.value.len() as u64, out),
            b'c' => put_number(b" c", found.cas, out),
            b'f' => put_number(b" f", u64::from(found.flags), out),
            b'h' => put_number(b" h", u64::from(found.fetched), out),
            b'l' => put_number(b" l", u64::from(found.idle_s), out),
            b'O' => put_word(word, out),
            b'g' => put_stag(found.by.stag, out),
            b'p' => put_place(found.by.place, out),
            _ => {}
        }
    }
    // Z: another client is fetching it anew. X: it is out of date. W: it is for the client to fetch anew.
    for (said, flag) in [
        (found.claim == Claim::Taken, b" Z"),
        (found.stale, b" X"),
        (found.claim == Claim::Won, b" W"),
    ] {
        if said {
            out.put(flag);
        }
    }
    out.put(b"\r\n");
    if value {
        found.value.put(Tail { bytes: b"\r\n", last: true }, out);
    }
}

/// `ma` has counted. As in memcached: that a number was made is said in any case.
fn put_number_of(echo: &Echo<'_>, number: &Number, out: &mut impl Sink) {
    if echo.quiet && !number.created {
        return;
    }
    let mut ttl = number.ttls.found;
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number.number).as_bytes();
    begin(echo.value.then_some(digits.len()), out);
    for (letter, word) in echo.flags() {
        ttl = number.ttls.behind(letter, ttl);
        match letter {
            b't' => put_ttl(ttl, out),
            b'c' => put_number(b" c", number.cas, out),
            b'k' => put_key_as_asked(echo, out),
            b'O' => put_word(word, out),
            _ => {}
        }
    }
    out.put(b"\r\n");
    if echo.value {
        out.put(digits);
        out.put(b"\r\n");
    }
}

/// `me` has found something, or not.
pub(crate) fn put_facts(facts: Option<&Facts<'_>>, out: &mut impl Sink) {
    let Some(facts) = facts else { return out.put(b"EN\r\n") };
    let Facts { expired_s, idle_s, cas, fetched, class, bytes, .. } = *facts;
    out.put(b"ME ");
    put_key_text(facts.key, facts.base64_key, out);
    let fetched = if fetched { "yes" } else { "no" };
    let mut text = arrayvec::ArrayString::<160>::new();
    // Six numbers of at most 20 digits and the words between them fit.
    let _ = write!(
        text,
        " exp={expired_s} la={idle_s} cas={cas} fetch={fetched} cls={class} size={bytes}\r\n"
    );
    out.put(text.as_bytes());
}

/// The command that reads the item with this key.
pub fn put_get(key: &[u8], base64: bool, out: &mut impl Sink) {
    out.put(b"mg ");
    let end: &[u8] = if put_key_text(key, base64, out) { b" b\r\n" } else { b"\r\n" };
    out.put(end);
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

/// Sixteen hexadecimal digits and how many bytes to read; nothing of an item that cannot be read.
fn put_stag(stag: Option<Stag>, out: &mut impl Sink) {
    let Some(Stag { stag, read_len }) = stag else { return };
    let mut text = arrayvec::ArrayString::<32>::new();
    // Two letters, 16 digits and a comma fit.
    let _ = write!(text, " g{stag:016x},");
    put_number(text.as_bytes(), read_len as u64, out);
}

/// Four hexadecimal numbers; nothing of an item that has no place.
fn put_place(place: Option<Place>, out: &mut impl Sink) {
    let Some(Place { generation, offset, left, number }) = place else { return };
    let mut text = arrayvec::ArrayString::<64>::new();
    // Two letters, three commas, and digits of three times eight bytes and of four fit.
    let _ = write!(text, " p{generation:x},{offset:x},{left:x},{number:x}");
    out.put(text.as_bytes());
}

fn put_word(word: &[u8], out: &mut impl Sink) {
    out.put(b" ");
    out.put(word);
}

/// Seconds left, or -1 for ever.
fn put_ttl(ttl: Ttl, out: &mut impl Sink) {
    match ttl {
        None => out.put(b" t-1"),
        Some(seconds) => put_number(b" t", u64::from(seconds), out),
    }
}

/// The key as the client wrote it. (There is one way only to write a key in base64.)
fn put_key_as_asked(echo: &Echo<'_>, out: &mut impl Sink) {
    out.put(b" k");
    out.put(echo.key);
    if echo.base64_key {
        out.put(b" b");
    }
}

fn put_key(key: &[u8], base64: bool, out: &mut impl Sink) {
    out.put(b" k");
    if put_key_text(key, base64, out) {
        out.put(b" b");
    }
}

/// Writes the key, in base64 if it is to be, or if it would not be one word of one line. True when
/// it was.
fn put_key_text(key: &[u8], base64: bool, out: &mut impl Sink) -> bool {
    let one_word = || key.len() == word_len(key) || !key.iter().any(|b| matches!(b, b' ' | b'\n'));
    if !base64 && one_word() {
        out.put(key);
        return false;
    }
    let mut text = [0; BASE64_MAX_BYTES];
    // It fits: four bytes for any three.
    let len = BASE64_STANDARD.encode_slice(key, &mut text).unwrap_or(0);
    out.put(text.get(..len).unwrap_or_default());
    true
}
