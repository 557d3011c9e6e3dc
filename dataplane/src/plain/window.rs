//! The beginning of a frame, of a length known at compile time.
//!
//! In: places in it. Out: bytes read there, or written. What is not there is zeros, or not written.

/// Bytes from a frame's start that a request and the longest reply to it lie in.
pub(crate) const WINDOW: usize = 1792;
/// The sequence number of the memcached frame header.
pub(super) const SEQUENCE: usize = 44;
/// First byte of the text.
pub(crate) const TEXT: usize = 50;

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
