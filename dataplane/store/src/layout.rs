//! Sizes: of a page, a unit and a header, and what an item needs with its key and its value.
//!
//! In: lengths in bytes. Out: lengths in bytes, or numbers of chunks. Never fails.

/// Bytes of a slab page.
pub const PAGE_BYTES: usize = 2 << 20;

/// Units in a page.
pub(crate) const PAGE_UNITS: u32 = 1 << PAGE_SHIFT;
pub(crate) const PAGE_SHIFT: u32 = 15;
const _: () = assert!(PAGE_UNITS as usize * UNIT_BYTES == PAGE_BYTES);

const _: () = assert!(base::memory_file::PAGE_BYTES == PAGE_BYTES);
const _: () = assert!(base::memory_file::UNIT_BYTES == UNIT_BYTES);
const _: () = assert!(base::memory_file::PAGES_MAX == PAGES_MAX);

/// Pages that 32-bit locations reach, but for the last: its last chunk would be [`NIL`].
pub(crate) const PAGES_MAX: usize = (1 << (32 - PAGE_SHIFT)) - 1;

/// Size classes that a page word has room for, with some to spare.
pub(crate) const CLASSES_MAX: usize = 200;

/// What a [`Location`](crate::Location) counts in: a cache line, and the smallest chunk.
pub(crate) const UNIT_BYTES: usize = 64;

/// Bytes before the key.
pub(crate) const HEADER_BYTES: usize = 32;

/// Bytes behind the header that every chunk has.
pub(crate) const KEY_BLOCK_BYTES: usize = UNIT_BYTES - HEADER_BYTES;

/// Bytes behind the value: its sum, if that is kept.
pub(crate) const TRAILER_BYTES: usize = size_of::<u16>();

/// Bytes of a CAS id of the client's own, behind all else, if the item has one.
pub(crate) const OWN_CAS_BYTES: usize = size_of::<u64>();

/// Sums of shorter values are not kept: they are as soon made as read and put together with those of
/// the pieces around.
pub const SUM_KEPT_MIN_BYTES: usize = 192;

/// Longest value whose sum is kept: no reply of one datagram in an Ethernet frame has a longer one, and others are summed up
/// as they are written. The space behind it is there all the same.
pub(crate) const SUM_KEPT_MAX_BYTES: usize = 1472;

/// Longest value that lies in one chunk, whatever its key. A longer one is large.
pub(crate) const WHOLE_MAX_BYTES: usize =
    PAGE_BYTES - HEADER_BYTES - base::KEY_MAX_BYTES - TRAILER_BYTES - OWN_CAS_BYTES;

/// Bytes of a number in a large item's list of parts.
pub(crate) const PLACE_BYTES: usize = size_of::<u32>();

/// No chunk, no page.
pub(crate) const NIL: u32 = u32::MAX;

/// Parts that a value of this length needs beside the item's own chunk, when each chunk has `chunk`
/// bytes.
pub(crate) fn n_parts(key_len: usize, value_len: usize, chunk: usize) -> usize {
    if value_len <= WHOLE_MAX_BYTES {
        return 0;
    }
    let first = chunk - HEADER_BYTES - key_len - 2 * PLACE_BYTES - OWN_CAS_BYTES;
    // Each further part takes a place in the list from the first.
    value_len.saturating_sub(first).div_ceil(chunk - HEADER_BYTES - PLACE_BYTES)
}

/// Bytes of slab memory that an item with a key and a value of these lengths needs, but for a CAS id of
/// the client's own.
#[inline]
pub(crate) fn len_bytes(key_len: usize, value_len: usize) -> usize {
    HEADER_BYTES + key_len + value_len + TRAILER_BYTES
}
