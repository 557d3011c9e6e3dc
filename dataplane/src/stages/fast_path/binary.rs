//! Replies to the binary protocol's gets.
//!
//! In: a frame with a request, and the item that was found, verified. Out: the reply over the request. What may not
//! fit one datagram is left. Opcode and opaque stand in the reply as in the request.

use super::seal_text::{put_value, seal};
use crate::plain::family::{FRAME, Headers};
use crate::plain::vector::Vector;
use crate::plain::window::{TEXT, WINDOW, part, put};
use memcache::binary::{HEADER_BYTES, RESPONSE_MAGIC, Status, opcode};
use store::ItemRef;
use wire::udp_frame::PAYLOAD_MAX_BYTES;

/// Bytes of the client's flags.
const EXTRAS: u8 = 4;
/// Behind the header, where a reply has them.
const BODY: usize = TEXT + HEADER_BYTES;

/// Writes the reply to a hit over the request. Returns its UDP length; `None`: the frame is as it was.
#[inline(always)]
pub(super) fn hit<const CSUM_OFFLOAD: bool>(
    bytes: &mut [u8; FRAME],
    headers: impl Headers,
    item: &ItemRef<'_>,
    cas: u64,
    ip_sum: u16,
    vector: impl Vector,
) -> Option<u16> {
    let value = item.value().whole()?;
    let (with_key, _) = asked(headers.window(bytes)?);
    let key_len = if with_key { item.key_len() } else { 0 };
    let body = usize::from(EXTRAS) + usize::from(key_len) + value.len();
    let body = u32::try_from(body).ok().filter(|_| HEADER_BYTES + body <= PAYLOAD_MAX_BYTES)?;
    let window = headers.window(bytes)?;
    put_header(window, (key_len, EXTRAS), Status::Success, body, cas);
    put(window, BODY, item.flags().to_be_bytes());
    let mut at = BODY + usize::from(EXTRAS);
    if with_key {
        put(window, at, *item.key_block());
        at += usize::from(key_len);
    }
    let end = put_value(window, at, value);
    Some(seal::<CSUM_OFFLOAD>(bytes, headers, end, ip_sum, vector))
}

/// Whether the key is to be sent, and no miss.
#[inline(always)]
fn asked(window: &[u8; WINDOW]) -> (bool, bool) {
    let [op] = *part(window, TEXT + 1);
    let (loud, quiet) = match op {
        opcode::GETQ => (opcode::GET, true),
        opcode::GETKQ => (opcode::GETK, true),
        _ => (op, false),
    };
    (loud == opcode::GETK, quiet)
}

/// Writes the reply to a miss over the request, and returns its UDP length; 0: there is to be none.
#[inline(always)]
pub(super) fn miss<const CSUM_OFFLOAD: bool>(
    bytes: &mut [u8; FRAME],
    headers: impl Headers,
    key_len: u8,
    ip_sum: u16,
    vector: impl Vector,
) -> u16 {
    let Some(window) = headers.window(bytes) else { return 0 };
    let (with_key, quiet) = asked(window);
    if quiet {
        return 0;
    }
    let end = if with_key {
        // It stands where it is to stand.
        put_header(window, (key_len, 0), Status::NotFound, key_len.into(), 0);
        BODY + usize::from(key_len)
    } else {
        let text = *b"Not found";
        let [len, ..] = text.len().to_le_bytes();
        put_header(window, (0, 0), Status::NotFound, len.into(), 0);
        put(window, BODY, text);
        BODY + text.len()
    };
    seal::<CSUM_OFFLOAD>(bytes, headers, end, ip_sum, vector)
}

/// Writes the header of a reply, but for opcode and opaque.
#[inline(always)]
fn put_header(
    window: &mut [u8; WINDOW],
    (key_len, extras_len): (u8, u8),
    status: Status,
    body_len: u32,
    cas: u64,
) {
    put(window, TEXT, [RESPONSE_MAGIC]);
    let [s1, s0] = (status as u16).to_be_bytes();
    put(window, TEXT + 2, [0, key_len, extras_len, 0, s1, s0]);
    put(window, TEXT + 8, body_len.to_be_bytes());
    put(window, TEXT + 16, cas.to_be_bytes());
}
