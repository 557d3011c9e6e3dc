//! Replies whose text is always the same.
//!
//! In: a window with a request. Out: the reply in its place, with its headers, made of what the
//! request's have. Nothing fails.

use crate::plain::family::{FRAME, Headers, V4};
use crate::plain::seal::LESS_FIXED;
use crate::plain::sum::of;
use crate::plain::vector::{PROTOCOL, Vector};
use crate::plain::window::{L4, REQUEST_ID, TEXT, part, put};
use wire::udp_frame::TEXT_AFTER_UDP;

/// A text, and the sum of what goes with it.
#[derive(Debug)]
pub(super) struct Fixed<const N: usize> {
    /// The reply's text.
    text: [u8; N],
    /// The reply's UDP length.
    udp_len: u16,
    /// What is known of the sum that UDP's checksum is made of: its length twice, the protocol, the memcached header's
    /// count of datagrams and the text.
    sum: u32,
}

impl<const N: usize> Fixed<N> {
    #[expect(clippy::cast_possible_truncation, reason = "some tens of bytes")]
    pub(super) const fn new(text: &[u8; N]) -> Self {
        let udp_len = (TEXT_AFTER_UDP + N) as u16;
        let sum = beside(udp_len) + of(text) as u32;
        Self { text: *text, udp_len, sum }
    }

    /// Writes it over the request in a frame with these headers, and returns its UDP length. `ip_sum` is the sum of the
    /// reply's IPv4 header, but for its length.
    #[inline(always)]
    pub(super) fn write<const CSUM_OFFLOAD: bool>(
        &self,
        bytes: &mut [u8; FRAME],
        headers: impl Headers,
        ip_sum: u16,
        vector: impl Vector,
    ) -> u16 {
        if let Some(window) = headers.window(bytes) {
            put(window, TEXT, self.text);
        }
        finish::<CSUM_OFFLOAD>((bytes, headers), self.udp_len, ip_sum, self.sum, vector);
        self.udp_len
    }
}

/// Writes a text of a line over the request in a plain frame, and returns its UDP length.
#[cold]
#[inline(never)]
pub(super) fn write_line<const CSUM_OFFLOAD: bool>(
    bytes: &mut [u8; FRAME],
    line: &[u8],
    ip_sum: u16,
    vector: impl Vector,
) -> u16 {
    for (to, from) in bytes.iter_mut().skip(TEXT).zip(line) {
        *to = *from;
    }
    let udp_len = u16::try_from(TEXT_AFTER_UDP + line.len()).unwrap_or(0);
    let sum = beside(udp_len) + u32::from(of(line));
    finish::<CSUM_OFFLOAD>((bytes, V4), udp_len, ip_sum, sum, vector);
    udp_len
}

const fn beside(udp_len: u16) -> u32 {
    2 * udp_len.swap_bytes() as u32 + PROTOCOL + 1u16.swap_bytes() as u32
}

#[inline(always)]
fn finish<const CSUM_OFFLOAD: bool>(
    (bytes, headers): (&mut [u8; FRAME], impl Headers),
    udp_len: u16,
    ip_sum: u16,
    sum: u32,
    vector: impl Vector,
) {
    let Some(window) = headers.window(bytes) else { return };
    let word = |at| u64::from(u32::from_le_bytes(*part(window, at)));
    // Ports, and the request's number.
    let sum = u64::from(u32::from(ip_sum) + LESS_FIXED + sum) + word(L4) + word(REQUEST_ID);
    headers.turn::<CSUM_OFFLOAD>(bytes, udp_len, ip_sum, sum, vector);
}
