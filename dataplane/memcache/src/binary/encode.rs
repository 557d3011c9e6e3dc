//! Answers of the binary protocol: packets.
//!
//! In: the header of a request, and what became of it. Out: a packet or none. What goes wrong is
//! answered even if the request was a quiet one. Never fails.

use super::header::{Header, REQUEST_MAGIC, RESPONSE_MAGIC, opcode};
use super::status::Status;
use crate::outcome::{Body, Hit, Outcome, Unstored};
use crate::refusal::Refusal;
use crate::sink::{Sink, Tail};

/// What goes back beside what the request itself says.
#[derive(Debug, Clone, Copy)]
struct Answer<'a, B> {
    status: Status,
    cas: u64,
    extras: &'a [u8],
    key: &'a [u8],
    value: B,
}

const EMPTY: Answer<'_, &[u8]> =
    Answer { status: Status::Success, cas: 0, extras: &[], key: &[], value: &[] };

fn put_packet(request: &Header, what: &Answer<'_, impl Body>, out: &mut impl Sink) {
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
    value.put(Tail { bytes: b"", last: true }, out);
}

/// The status and its text.
pub(crate) fn put_status(request: &Header, status: Status, out: &mut impl Sink) {
    put_text(request, status, status.text(), out);
}

/// The status and a text.
pub(super) fn put_text(request: &Header, status: Status, text: &[u8], out: &mut impl Sink) {
    put_packet(request, &Answer { status, value: text, ..EMPTY }, out);
}

/// Refuses the request that `request` begins with for a reason that is not the parser's.
/// Without a request's header there is nothing to answer.
pub fn refuse(request: &[u8], why: Refusal, out: &mut impl Sink) {
    if let Some((header, _)) = Header::split(request)
        && header.magic == REQUEST_MAGIC
    {
        put_status(&header, why.into(), out);
    }
}

/// Whether the key is sent, found or not.
fn sends_key(request: &Header) -> bool {
    matches!(opcode::loud(request.opcode).0, opcode::GETK | opcode::GATK)
}

/// What was found under a key: the client's flags, and the key and value as the command requests them.
pub(crate) fn put_hit(request: &Header, hit: &Hit<'_, impl Body>, out: &mut impl Sink) {
    let (extras, key) = (&hit.flags.to_be_bytes(), if sends_key(request) { hit.key } else { &[] });
    let cas = hit.cas.unwrap_or(0);
    let found = Answer { status: Status::Success, cas, extras, key, value: hit.value };
    if request.is_touch() {
        put_packet(request, &Answer { extras, cas, ..EMPTY }, out);
    } else {
        put_packet(request, &found, out);
    }
}

/// Nothing was found.
pub(crate) fn put_miss(request: &Header, key: &[u8], out: &mut impl Sink) {
    if sends_key(request) {
        put_packet(request, &Answer { status: Status::NotFound, key, ..EMPTY }, out);
    } else {
        put_status(request, Status::NotFound, out);
    }
}

/// One row of statistics. The last is empty.
pub(crate) fn put_row(request: &Header, key: &[u8], value: &[u8], out: &mut impl Sink) {
    put_packet(request, &Answer { key, value, ..EMPTY }, out);
}

/// Writes what became of a request.
pub(crate) fn put(request: &Header, quiet: bool, outcome: Outcome<'_>, out: &mut impl Sink) {
    let status = match outcome {
        Outcome::Version(version) => {
            let value = version.as_bytes();
            return put_packet(request, &Answer { value, ..EMPTY }, out);
        }
        Outcome::Lines(_) => return,
        // All went well.
        Outcome::Done
        | Outcome::Bye
        | Outcome::Deleted
        | Outcome::Touched
        | Outcome::Stored(_)
        | Outcome::Number(_)
            if quiet =>
        {
            return;
        }
        Outcome::Done | Outcome::Bye | Outcome::Deleted | Outcome::Touched => {
            return put_packet(request, &EMPTY, out);
        }
        Outcome::Stored(cas) => return put_packet(request, &Answer { cas, ..EMPTY }, out),
        Outcome::Number(number) => {
            let value = &number.number.to_be_bytes()[..];
            return put_packet(request, &Answer { cas: number.cas, value, ..EMPTY }, out);
        }
        Outcome::NotStored(Unstored::Condition) => match opcode::loud(request.opcode).0 {
            opcode::ADD => Status::Exists,
            opcode::REPLACE => Status::NotFound,
            _ => Status::NotStored,
        },
        Outcome::Exists | Outcome::NotStored(Unstored::Exists) => Status::Exists,
        Outcome::NotFound | Outcome::NotStored(Unstored::NotFound) => Status::NotFound,
        Outcome::Refused(why) => why.into(),
    };
    put_status(request, status, out);
}
