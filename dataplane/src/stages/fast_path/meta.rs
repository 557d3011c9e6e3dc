//! Replies to `mg`.
//!
//! In: a frame with a request, its flags, and the item that was found, verified. Out: the reply over the request.
//! What the fast path leaves: items that are out of date or won, or whose key came in base64, and what may not fit
//! one datagram.

use super::fixed_replies::Fixed;
use super::flags::Flags;
use super::form::GetForm;
use super::line::Line;
use super::seal_text::{put_value, seal};
use crate::observe::Server;
use crate::plain::family::{FRAME, Headers};
use crate::plain::vector::{KEY_BLOCK, Vector};
use crate::plain::window::{TEXT, WINDOW, part, put};
use base::small_bytes;
use store::ItemRef;
use wire::udp_frame::PAYLOAD_MAX_BYTES;

/// The reply to a miss, unless it shows the key.
const MISS: Fixed<4> = Fixed::new(b"EN\r\n");
/// Most bytes of a reply beside key and value: its beginning, each flag once, and the line ends.
const AROUND_MAX: usize = b"VA 1392".len()
    + b" f4294967295".len()
    + b" c18446744073709551615".len()
    + b" t4294967295".len()
    + b" s1392".len()
    + b" k".len()
    + 2 * b"\r\n".len();

/// Writes the reply to a hit over the request. Returns its UDP length; `None`: the frame is as it was.
#[inline(always)]
pub(super) fn hit<const CSUM_OFFLOAD: bool>(
    bytes: &mut [u8; FRAME],
    headers: impl Headers,
    item: &ItemRef<'_>,
    ip_sum: u16,
    (server, now): (&Server, u32),
    vector: impl Vector,
) -> Option<u16> {
    let value = item.value().whole()?;
    let length = Line::plain(value.len())?;
    let key_len = usize::from(item.key_len());
    if item.is_marked() || AROUND_MAX + key_len + value.len() > PAYLOAD_MAX_BYTES {
        return None;
    }
    let window = headers.window(bytes)?;
    let flags = flags(window, key_len)?;
    let shows_value = flags.has(b'v');
    let mut at = if shows_value {
        put(window, TEXT, *b"VA ");
        length.put_digits(window, TEXT + b"VA ".len())
    } else {
        put(window, TEXT, *b"HD");
        TEXT + b"HD".len()
    };
    let mut letters = flags.letters();
    while letters != 0 {
        let [letter, ..] = letters.to_le_bytes();
        letters >>= 16;
        put(window, at, [b' ', letter]);
        let behind = at + 2;
        at = match letter {
            b'k' => {
                put(window, behind, *item.key_block());
                behind + key_len
            }
            b'f' => put_number(window, behind, item.flags().into()),
            b's' => length.put_digits(window, behind),
            b'c' => put_number(window, behind, server.cas_shown(item.cas())),
            b't' => match item.expiry() {
                0 => {
                    put(window, behind, *b"-1");
                    behind + 2
                }
                expiry => put_number(window, behind, expiry.saturating_sub(now).into()),
            },
            // They say what is to be sent, and nothing is sent of them.
            _ => at,
        };
    }
    put(window, at, *b"\r\n");
    at += b"\r\n".len();
    if shows_value {
        at = put_value(window, at, value);
        put(window, at, *b"\r\n");
        at += b"\r\n".len();
    }
    Some(seal::<CSUM_OFFLOAD>(bytes, headers, at, ip_sum, vector))
}

/// The flags of a request with a key of this length, of which is known that they are usual.
#[inline(always)]
fn flags(window: &[u8; WINDOW], key_len: usize) -> Option<Flags> {
    let end = (TEXT + GetForm::text_len(window)).wrapping_sub(b"\r\n".len());
    Flags::between(window, GetForm::Meta.key_at() + key_len, end)
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
    let flags = flags(window, key_len.into());
    if flags.is_some_and(|flags| flags.has(b'q')) {
        return 0;
    }
    if !flags.is_some_and(|flags| flags.has(b'k')) {
        return MISS.write::<CSUM_OFFLOAD>(bytes, headers, ip_sum, vector);
    }
    // The key stands behind `mg `, and will behind `EN k`.
    let from = TEXT + b"mg ".len();
    let key: [u8; KEY_BLOCK] = *part(window, from);
    put(window, TEXT, *b"EN k");
    let at = TEXT + b"EN k".len();
    put(window, at, key);
    let at = at + usize::from(key_len);
    put(window, at, *b"\r\n");
    seal::<CSUM_OFFLOAD>(bytes, headers, at + b"\r\n".len(), ip_sum, vector)
}

/// Writes a number, and returns where it ends.
#[inline(always)]
fn put_number(window: &mut [u8; WINDOW], at: usize, number: u64) -> usize {
    match u8::try_from(number) {
        Ok(digit @ 0..10) => {
            put(window, at, [b'0' + digit]);
            at + 1
        }
        _ => put_long(window, at, number),
    }
}

#[inline(never)]
fn put_long(window: &mut [u8; WINDOW], at: usize, number: u64) -> usize {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    if let Some(to) = window.get_mut(at..at + digits.len()) {
        small_bytes::copy(to, digits);
    }
    at + digits.len()
}
