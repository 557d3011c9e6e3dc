//! What a memory file says of itself, at its start, before the pages of items.
//!
//! ```text
//!  0  magic                8      44 state: the clock             u32
//!  8  version              u32    48 state: Unix time, in seconds u64
//! 12  clean                u32    56 state: last CAS id           u64
//! 16  generation           u64    64 state: flushed up to CAS id  u64
//! 24  settings: pages      u32    72 state: when to flush         u32
//! 28  settings: item limit u32    76 one entry a page: its word u32, CRC-32 of what is carved u32
//! 32  settings: growth     f64    -- CRC-32 of everything before  u32
//! 40  settings: sizes' sum u32    2 MB  the pages, 2 MB each
//! ```
//!
//! Behind all that, still before the pages, lie the words that clients with a mapping of the file
//! look at while it is in use (`published.rs`). They are no part of what is saved.
//!
//! All numbers are little-endian. While a process uses the file, `clean` is 0 and nothing behind
//! the generation counts. The generation is another at each start, so that the state before it
//! cannot come back by `clean` alone. In: untrusted bytes. Out: [`Saved`], all
//! of it as some store wrote it, or [`Unusable`].

use crate::config::{Shape, StoreConfig};
use crate::layout::{PAGE_BYTES, PAGES_MAX};
pub(super) use base::memory_file::LEAD_BYTES;
use base::memory_file::{LIVE_AT, MAGIC, VERSION, VERSION_AT};
use std::fmt;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

// The lead is a huge page's length, so that the pages can be mapped on huge pages.
const _: () = assert!(LEAD_BYTES == driver_shim::mapping::HUGE_PAGE_BYTES);

const CLEAN: u32 = 1;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    clean: U32,
    generation: U64,
    settings: Settings,
    state: State,
}

const HEADER_BYTES: usize = size_of::<Header>();
const ENTRY_BYTES: usize = size_of::<Entry>();

const _: () = assert!(std::mem::offset_of!(Header, version) == VERSION_AT);
// Enough for the entries of all pages that locations reach.
const _: () = assert!(HEADER_BYTES + PAGES_MAX * ENTRY_BYTES + size_of::<U32>() <= LIVE_AT);

/// What must be as it was, for the pages to mean what they meant.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct Settings {
    n_pages: U32,
    item_max_bytes: U32,
    /// The bits of an `f64`.
    growth_factor: U64,
    /// CRC-32 of the chunk sizes, should another release make others of the same flags; and of the pages of each,
    /// where these were set.
    sizes_sum: U32,
}

impl Settings {
    pub(super) fn new(config: &StoreConfig, shape: &Shape) -> Self {
        let mut sum = crc32fast::Hasher::new();
        shape.sizes.iter().for_each(|s| sum.update(&s.units.to_le_bytes()));
        let pages = config.slab_pages.iter().flat_map(|of| of.classes());
        pages.for_each(|(_, pages)| sum.update(&pages.to_le_bytes()));
        // Both lie far below 2^32, or there would be no shape.
        let number = |n| U32::new(u32::try_from(n).unwrap_or(u32::MAX));
        Self {
            n_pages: number(shape.n_pages),
            item_max_bytes: number(config.item_max_bytes),
            growth_factor: config.growth_factor.to_bits().into(),
            sizes_sum: sum.finalize().into(),
        }
    }

    pub(super) fn n_pages(&self) -> usize {
        self.n_pages.get() as usize
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = (self.n_pages() * PAGE_BYTES) >> 20;
        let (item_max, growth) = (self.item_max_bytes, self.growth_factor.get());
        let (growth, sum) = (f64::from_bits(growth), self.sizes_sum.get());
        write!(f, "-m {megabytes} -I {item_max} -f {growth} (-n, --slab-pages: {sum:08x})")
    }
}

/// What the store knew besides the items.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct State {
    /// The store's clock, and the system's at the same moment.
    pub(super) clock: U32,
    pub(super) unix_seconds: U64,
    pub(super) cas: U64,
    /// Items up to this CAS id are dead.
    pub(super) flushed: U64,
    /// When all are to be, on the store's clock; 0 for never.
    pub(super) flush_due: U32,
}

/// A page.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Entry {
    /// As `Slabs::page_word`: 0 for a page that no class has.
    pub(super) word: U32,
    /// CRC-32 of the carved bytes.
    pub(super) sum: U32,
}

/// A file as it was closed.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) generation: u64,
    pub(super) settings: Settings,
    pub(super) state: State,
    pub(super) pages: Vec<Entry>,
}

/// Why the items of a memory file are not recovered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message says it")]
pub enum Unusable {
    #[error(
        "its last user did not close it: end gnomon with SIGUSR1, and wait for it, to keep the items"
    )]
    Unclean,
    #[error(
        "it has format {0} and this release has format {VERSION}: items do not outlive this update"
    )]
    Version(u32),
    #[error(
        "it was made with {was}, and this is {now}: give the same -m, -I, -f, -n and --slab-pages to keep the items"
    )]
    Settings { was: String, now: String },
    #[error("it has {is} bytes instead of {should}: if it is a copy, copy all of it")]
    Length { is: u64, should: u64 },
    /// A checksum that does not match, or what no store would write.
    #[error(
        "it was changed since it was closed ({0}): see who writes to it, or test the memory or disk that it is in"
    )]
    Damaged(String),
    #[error("it was closed more than 60 years ago, by the system's clock: set the clock right")]
    Clock,
}

/// Whether the file is one of ours, of any version.
pub(super) fn is_ours(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

/// The start of a file in use.
pub(super) fn in_use(generation: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    if let Ok((header, _)) = Header::mut_from_prefix(&mut bytes) {
        header.magic = MAGIC;
        header.version = VERSION.into();
        header.generation = generation.into();
    }
    bytes
}

/// The generation that the file was last used in.
pub(super) fn generation(start: &[u8]) -> u64 {
    Header::ref_from_prefix(start).map_or(0, |(header, _)| header.generation.get())
}

impl Saved {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let header = Header {
            magic: MAGIC,
            version: VERSION.into(),
            clean: CLEAN.into(),
            generation: self.generation.into(),
            settings: self.settings,
            state: self.state,
        };
        let mut bytes = [header.as_bytes(), self.pages.as_bytes()].concat();
        let sum = crc32fast::hash(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// From the start of a file of ours.
    pub(super) fn parse(start: &[u8]) -> Result<Self, Unusable> {
        let cut = || Unusable::Damaged("its metadata are cut".to_owned());
        let (header, _) = Header::ref_from_prefix(start).map_err(|_| cut())?;
        if header.version != VERSION {
            return Err(Unusable::Version(header.version.get()));
        }
        if header.clean != CLEAN {
            return Err(Unusable::Unclean);
        }
        let entries_bytes = header.settings.n_pages().checked_mul(ENTRY_BYTES).ok_or_else(cut)?;
        let end = HEADER_BYTES.checked_add(entries_bytes).ok_or_else(cut)?;
        let (summed, rest) = start.split_at_checked(end).ok_or_else(cut)?;
        let (sum, _) = U32::ref_from_prefix(rest).map_err(|_| cut())?;
        if *sum != crc32fast::hash(summed) {
            return Err(Unusable::Damaged("the checksum of its metadata".to_owned()));
        }
        let entries = summed.get(HEADER_BYTES..).unwrap_or_default();
        let pages = <[Entry]>::ref_from_bytes(entries).map_err(|_| cut())?.to_vec();
        Ok(Self {
            generation: header.generation.get(),
            settings: header.settings,
            state: header.state,
            pages,
        })
    }
}
