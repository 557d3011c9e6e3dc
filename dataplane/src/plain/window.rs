//! The beginning of a frame, of a length known at compile time, and where a plain frame has what.
//!
//! In: places in it. Out: bytes read there, or written. What is not there is zeros, or not written.

use wire::ipv4::PLAIN_L4;
use wire::udp_frame::TEXT_AFTER_UDP;

/// Bytes from a frame's start that a request and the longest reply to it lie in.
pub(crate) const WINDOW: usize = 1792;
/// IPv4's header, its length, its checksum, and its addresses.
pub(crate) const IP: usize = 14;
pub(super) const IP_LEN: usize = 16;
pub(super) const IP_SUM: usize = 24;
pub(crate) const ADDRESSES: usize = 26;
/// UDP's header, which begins with the ports, its length, and its checksum.
pub(crate) const L4: usize = PLAIN_L4 as usize;
pub(crate) const UDP_LEN: usize = L4 + 4;
pub(crate) const UDP_SUM: usize = L4 + 6;
/// The request's number in the memcached frame header, and the datagram's.
pub(crate) const REQUEST_ID: usize = L4 + 8;
pub(super) const SEQUENCE: usize = REQUEST_ID + 2;
/// First byte of the text.
pub(crate) const TEXT: usize = L4 + TEXT_AFTER_UDP;

/// `N` bytes of `bytes` from `at` on; zeros, if they are not there.
#[inline(always)]
pub(crate) fn part<const N: usize, const M: usize>(bytes: &[u8; M], at: usize) -> &[u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).unwrap_or(const { &[0; N] })
}

/// Writes bytes where they fit.
#[inline(always)]
pub(crate) fn put<const N: usize, const M: usize>(window: &mut [u8; M], at: usize, bytes: [u8; N]) {
    if let Some(to) = window.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *to = bytes;
    }
}
