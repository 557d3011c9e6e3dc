//! Texts of replies that are summed as a whole.
//!
//! In: a window with a reply's text, or the beginning of it. Out: more of it, or its headers. Nothing fails: what
//! does not fit is not written, and the caller has seen that it fits.

use crate::plain::family::{FRAME, Headers};
use crate::plain::seal::LESS_FIXED;
use crate::plain::sum::SHORT;
use crate::plain::vector::{PROTOCOL, Vector};
use crate::plain::window::{L4, REQUEST_ID, TEXT, WINDOW, part};
use base::small_bytes;
use wire::udp_frame::TEXT_AFTER_UDP;

/// Writes a value, and returns where it ends.
#[inline(always)]
pub(super) fn put_value(window: &mut [u8; WINDOW], at: usize, value: &[u8]) -> usize {
    let end = at + value.len();
    if let Some(to) = window.get_mut(at..end) {
        small_bytes::copy(to, value);
    }
    end
}

/// Completes the reply whose text ends here in the window, but for the frame's length. Returns its UDP length. `ip_sum` is
/// the sum of its IPv4 header, but for its length.
#[inline(always)]
pub(super) fn seal<const CSUM_OFFLOAD: bool>(
    bytes: &mut [u8; FRAME],
    headers: impl Headers,
    end: usize,
    ip_sum: u16,
    vector: impl Vector,
) -> u16 {
    let Some(window) = headers.window(bytes) else { return 0 };
    let text_len = end - TEXT;
    let udp_len = u16::try_from(TEXT_AFTER_UDP + text_len).unwrap_or(0);
    let sum = if CSUM_OFFLOAD {
        0
    } else {
        let word = |at| u64::from(u32::from_le_bytes(*part(window, at)));
        let text_sum = match text_len {
            ..=SHORT => vector.sum_block::<SHORT>(part(window, TEXT), text_len),
            _ => vector.sum(window.get(TEXT..).unwrap_or_default(), text_len),
        };
        // Ports, and the request's number.
        u64::from(text_sum) + word(L4) + word(REQUEST_ID) + covered(ip_sum, udp_len)
    };
    headers.turn::<CSUM_OFFLOAD>(bytes, udp_len, ip_sum, sum, vector);
    udp_len
}

/// What of a whole reply's UDP checksum follows from IPv4's header and the length: the addresses,
/// the length twice, the protocol, and the memcached header's count of datagrams.
#[inline(always)]
fn covered(ip_sum: u16, udp_len: u16) -> u64 {
    const SAME: u32 = PROTOCOL + 1u16.swap_bytes() as u32;
    u64::from(u32::from(ip_sum) + LESS_FIXED + SAME + 2 * u32::from(udp_len.swap_bytes()))
}
