//! The reply to a get of one key.
//!
//! In: a frame with the request, and the item that was found. Out: the reply in its place. The item is verified as stage 6
//! verifies it; where that fails, or the reply is none for the fast path, the frame is left as it was. Nothing is summed
//! twice: addresses, ports, request id and key stand in the reply as in the request, so its checksum follows from the
//! request's by what is other in it (RFC 1624).

use super::fixed_replies::Fixed;
use super::form::GetForm;
use super::line::{Digit, Line};
use super::seal_text::put_value;
use super::{binary, meta};
use crate::observe::Server;
use crate::plain::family::{FRAME, Headers};
use crate::plain::sum;
use crate::plain::vector::{KEY_BLOCK, Portable, Vector};
use crate::plain::window::{TEXT, UDP_SUM, WINDOW, part, put};
use base::small_bytes;
use memcache::text::{END, TAIL, VALUE_OVERHEAD_BYTES};
use store::{ItemRef, SUM_KEPT_MIN_BYTES};
use wire::udp_frame::PAYLOAD_MAX_BYTES;

/// The reply to a `get` that misses.
const MISS: Fixed<5> = Fixed::new(END);

/// What is known of a request that is answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<H> {
    pub(super) headers: H,
    pub(super) form: GetForm,
    pub(super) key_len: u8,
    /// What the reply's checksums are made of ([`Headers::turn`]).
    pub(super) ip_sum: u16,
}

impl<H: Headers> Request<H> {
    /// Writes the reply to a hit over the request, and returns its UDP length. `None`: the frame is as it was.
    #[inline(always)]
    pub(super) fn hit<const CSUM_OFFLOAD: bool>(
        self,
        bytes: &mut [u8; FRAME],
        item: &ItemRef<'_>,
        (server, now): (&Server, u32),
        vector: impl Vector,
    ) -> Option<u16> {
        let Self { headers, form, key_len, ip_sum } = self;
        if !is_key(headers.window(bytes)?, item, form, key_len, vector) {
            return None;
        }
        match form {
            GetForm::Text => {
                hit::<CSUM_OFFLOAD, false>(bytes, headers, item, key_len, ip_sum, vector)
            }
            GetForm::Long => {
                hit::<CSUM_OFFLOAD, true>(bytes, headers, item, key_len, ip_sum, vector)
            }
            GetForm::Meta => {
                meta::hit::<CSUM_OFFLOAD>(bytes, headers, item, ip_sum, (server, now), vector)
            }
            GetForm::Binary => {
                let cas = server.cas_shown(item.cas());
                binary::hit::<CSUM_OFFLOAD>(bytes, headers, item, cas, ip_sum, vector)
            }
        }
    }

    /// Writes the reply to a miss over the request, and returns its UDP length; 0: there is to be none.
    #[inline(always)]
    pub(super) fn miss<const CSUM_OFFLOAD: bool>(
        self,
        bytes: &mut [u8; FRAME],
        vector: impl Vector,
    ) -> u16 {
        let Self { headers, form, key_len, ip_sum } = self;
        match form {
            GetForm::Text | GetForm::Long => {
                MISS.write::<CSUM_OFFLOAD>(bytes, headers, ip_sum, vector)
            }
            GetForm::Meta => meta::miss::<CSUM_OFFLOAD>(bytes, headers, key_len, ip_sum, vector),
            GetForm::Binary => {
                binary::miss::<CSUM_OFFLOAD>(bytes, headers, key_len, ip_sum, vector)
            }
        }
    }
}

/// [`Request::hit`] for a `get`, whose key is the item's.
#[inline(always)]
fn hit<const CSUM_OFFLOAD: bool, const LONG: bool>(
    bytes: &mut [u8; FRAME],
    headers: impl Headers,
    item: &ItemRef<'_>,
    key_len: u8,
    ip_sum: u16,
    vector: impl Vector,
) -> Option<u16> {
    let value = item.value().whole()?;
    let key_len = usize::from(key_len);
    // As stage 6 has it, which does not look at the numbers.
    if VALUE_OVERHEAD_BYTES + key_len + value.len() + END.len() > PAYLOAD_MAX_BYTES {
        return None;
    }
    let line = Line::plain(value.len())?;
    if item.flags() >= 10 {
        return with_flags::<CSUM_OFFLOAD, LONG>(bytes, headers, item, value, ip_sum);
    }
    let line = line.with_digit(item.flags());
    Some(write::<CSUM_OFFLOAD, LONG>(bytes, headers, (item, value), line, ip_sum, vector))
}

/// Whether the key of a request is the item's.
#[inline(always)]
fn is_key(
    window: &[u8; WINDOW],
    item: &ItemRef<'_>,
    form: GetForm,
    key_len: u8,
    vector: impl Vector,
) -> bool {
    if item.key_len() != key_len {
        return false;
    }
    let (at, len) = (form.key_at(), usize::from(key_len));
    if form != GetForm::Long {
        return vector.same(item.key_block(), part(window, at), len);
    }
    let key = item.key();
    // Whole blocks, and one that ends where the key does.
    let mut from = 0;
    while let Some(block) = key.get(from..).and_then(<[u8]>::first_chunk) {
        if !vector.same(block, part(window, at + from), KEY_BLOCK) {
            return false;
        }
        from += KEY_BLOCK;
    }
    key.last_chunk()
        .is_some_and(|last| vector.same(last, part(window, at + len - KEY_BLOCK), KEY_BLOCK))
}

/// [`write`] for an item that has flags.
#[cold]
#[inline(never)]
fn with_flags<const CSUM_OFFLOAD: bool, const LONG: bool>(
    bytes: &mut [u8; FRAME],
    headers: impl Headers,
    item: &ItemRef<'_>,
    value: &[u8],
    ip_sum: u16,
) -> Option<u16> {
    let line = Line::with_flags(item.flags(), value.len());
    let line = line.with_digit(0);
    Some(write::<CSUM_OFFLOAD, LONG>(bytes, headers, (item, value), line, ip_sum, Portable))
}

/// Writes the reply to a hit over the request.
#[inline(always)]
fn write<const CSUM_OFFLOAD: bool, const LONG: bool>(
    bytes: &mut [u8; FRAME],
    headers: impl Headers,
    (item, value): (&ItemRef<'_>, &[u8]),
    line: Digit<'_>,
    ip_sum: u16,
    vector: impl Vector,
) -> u16 {
    let Some(window) = headers.window(bytes) else { return 0 };
    let key_len = item.key_len();
    let at = TEXT + b"VALUE ".len() + usize::from(key_len);
    put(window, TEXT, *b"VALUE ");
    if LONG {
        put_value(window, TEXT + b"VALUE ".len(), item.key());
    } else {
        put(window, TEXT + b"VALUE ".len(), *item.key_block());
    }
    let (text, text_end) = line.text();
    let line_sum = line.sum();
    put(window, at, text);
    put(window, at + text.len(), text_end);
    let line = line.line;
    let at = at + usize::from(line.len);
    let mut value_sum = 0;
    // Both fit: the reply's length was checked against a datagram's.
    if let Some(to) = window.get_mut(at..at + value.len()) {
        if CSUM_OFFLOAD {
            small_bytes::copy(to, value);
        } else if value.len() >= SUM_KEPT_MIN_BYTES {
            small_bytes::copy(to, value);
            value_sum = item.value_sum().swap_bytes().into();
        } else {
            value_sum = vector.copy_and_sum(to, value);
        }
    }
    put(window, at + value.len(), *TAIL);
    let sum = if CSUM_OFFLOAD {
        0
    } else {
        let request_sum = u16::from_le_bytes(*part(window, UDP_SUM));
        let behind = sum::at(value_sum.into(), line.len.into()) + line_sum;
        sum::at(behind, key_len.into()) + line.more() - u64::from(request_sum)
    };
    let udp_len = line.around_key + u16::from(key_len);
    headers.turn::<CSUM_OFFLOAD>(bytes, udp_len, ip_sum, sum, vector);
    udp_len
}
