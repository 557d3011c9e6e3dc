//! Memory files, as far as a client that reads items in one must know them (docs/shared-reads.md).
//!
//! ```text
//! 0                 "gnomonMF", the version u32, and what the store alone reads
//! LIVE_AT           words that change while it serves, u64 each: see below
//! LEFT_AT           one u32 a page: how often it has left a size class
//! LEAD_BYTES        the pages, of PAGE_BYTES each: items in chunks that begin at multiples of UNIT_BYTES
//!
//! item:  0 state u8, recency u8, key's length u8, marks u8, value's length u32    8 flags u32, expiry u32
//!       16 number u64    24 u32, u32    32 key, value
//! ```
//!
//! Numbers are the machine's own. In and out: numbers; nothing fails.

/// How a memory file begins.
pub const MAGIC: [u8; 8] = *b"gnomonMF";

/// Raised when pages or items are laid out differently, and when what is said here changes.
pub const VERSION: u32 = 2;

/// Where the version stands, a little-endian u32.
pub const VERSION_AT: usize = 8;

/// Bytes before the first page.
pub const LEAD_BYTES: usize = 2 << 20;

/// Bytes of a page. No item that has a place lies in two.
pub const PAGE_BYTES: usize = 2 << 20;

/// What chunks begin at multiples of.
pub const UNIT_BYTES: usize = 64;

/// Most pages of a file.
pub const PAGES_MAX: usize = (1 << 17) - 1;

/// Where the words that change are, a cache line of their own: a multiple of 64 behind all that is saved.
pub const LIVE_AT: usize = 0x14_0000;

/// The words at [`LIVE_AT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Live {
    /// The name of this start, a random number; 0 while no process serves the file, as far as one could say so.
    Generation = 0,
    /// The store's clock, in seconds: what expires then or earlier is gone.
    Clock = 1,
    /// Items with this number or a lower one were flushed.
    FlushedUpTo = 2,
    /// Of items with this number or a lower one some were flushed with their prefix: ask for them.
    AskUpTo = 3,
}

/// Where the pages' numbers are.
pub const LEFT_AT: usize = 0x18_0000;

const _: () = assert!(LIVE_AT.is_multiple_of(64) && LIVE_AT + 64 <= LEFT_AT);
const _: () = assert!(LEFT_AT + PAGES_MAX * 4 <= LEAD_BYTES);

/// Bytes of an item before its key.
pub const HEADER_BYTES: usize = 32;

/// The state of an item that can be had.
pub const LINKED: u8 = 2;

/// The only mark that an item may have which is read without asking: behind its value stands a CAS id.
pub const MARK_OWN_CAS: u8 = 8;

/// Where an item lies, and what it must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Of the start that said so. Not 0.
    pub generation: u64,
    /// Bytes from the file's first to the item's.
    pub offset: u64,
    /// How often the page had left a size class.
    pub left: u32,
    /// The item's number: no other has it.
    pub number: u64,
}
