//! What lies in the tables of a device's index, and how large they are.
//!
//! ```text
//! Set, 128 bytes = one line: all that a look-up needs before it looks at keys
//! 0 tags 16 x u8   16 lock u32   20 -   32 locations 16 x u32   96 stamps 16 x u16
//!
//! Way, [`way_bytes`] bytes: 16 of them for each set, in another part of memory
//! 0 flags u32   4 value_len u32   8 key_len u32   12 key
//!
//! Bucket, 64 bytes: 8 cells of signature << 32 | location
//!
//! Row, 256 bytes: one for each way; its signature, 0 when it is empty, lies in another part of memory
//! 0 facts 16 bytes, of the item   16 text of the reply, to one verb
//!                                    behind that of a packet, two bytes behind a multiple of 4, the key
//! ```
//!
//! Only kernels read and write them. A table of zeros is empty; any other bytes are safe, and mean
//! what they happen to mean (D1).

use crate::layout::{ROW_TEXT_MAX, RowFacts};
use crate::params::{CELLS, WAYS};

/// A set of the set-associative index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(128))]
pub struct Set {
    /// Of each way, 8 bits of its key's hash; 0 when it is empty.
    pub tags: [u8; WAYS],
    /// The number of the update's launch while one of its warps is at work here.
    pub lock: u32,
    /// Zero.
    pub reserved: [u32; 3],
    /// Where each way's item is.
    pub locations: [u32; WAYS],
    /// When each was last found: the low 16 bits of the store's clock.
    pub stamps: [u16; WAYS],
}

/// What stands before a way's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Way {
    /// The item's flags.
    pub flags: u32,
    /// Bytes of its value.
    pub value_len: u32,
    /// Bytes of its key.
    pub key_len: u32,
}

/// A bucket of the cuckoo index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub struct Bucket {
    /// Its cells; 0 is an empty one.
    pub cells: [u64; CELLS],
}

/// Bytes from one way to the next in a table of keys of up to `key_max` bytes: whole sectors of
/// memory.
pub const fn way_bytes(key_max: u32) -> usize {
    (size_of::<Way>() + key_max as usize).next_multiple_of(32)
}

/// A row.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub struct Row {
    /// What the host gets to know of the reply.
    pub facts: RowFacts,
    /// The text.
    pub text: [u8; ROW_TEXT_MAX],
}
