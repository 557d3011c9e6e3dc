//! How a store is built, and why it cannot be.
//!
//! In: a [`StoreConfig`], as the flags set it. Out: how item memory is cut, or a
//! [`StoreError`] that says what to change.

use super::layout::{PAGE_BYTES, PAGES_MAX};
use super::restart::MemoryFileError;
use super::sizes::{SizeClass, given_classes, size_classes};
use super::slab_pages::SlabPages;
use driver_shim::Pages;
use std::io;

/// Fewest pages that a store works with: one in use, one for the next size that turns up.
pub(super) const PAGES_MIN: usize = 2;

/// Smallest item limit, as in memcached.
const ITEM_MAX_BYTES_LEAST: usize = 1 << 10;

/// Largest item limit, as in memcached.
const ITEM_MAX_BYTES_MOST: usize = 1 << 30;

/// Which item of a size class makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eviction {
    /// One that was not read lately, by a hand that goes round (`evict.rs`).
    #[default]
    Clock,
    /// The next one, read or not (`round_robin.rs`).
    RoundRobin,
}

impl Eviction {
    /// The word that `--evict` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::RoundRobin => "round-robin",
        }
    }
}

/// How to build a store.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreConfig {
    /// Memory for items, rounded down to whole pages of 2 MB. The index comes on top.
    pub memory_bytes: usize,
    /// Largest item, counted as memcached counts: 48 bytes more than key and value, and some.
    pub item_max_bytes: usize,
    /// Each size class's chunks are this much larger than the one's before. 2.0 gives powers
    /// of two.
    pub growth_factor: f64,
    /// Space for key, value and flags that the smallest chunk has at least.
    pub chunk_min_bytes: usize,
    /// Make room by evicting; otherwise a full store refuses.
    pub evict: bool,
    /// Whom to evict.
    pub eviction: Eviction,
    /// The size classes and their pages, which never move; instead of a growth factor.
    pub slab_pages: Option<SlabPages>,
    /// Which memory pages to request.
    pub pages: Pages,
    /// NUMA nodes that items and index come from, in turn. None: where the process has its memory.
    pub nodes: Vec<u32>,
    /// Key of the hash function; `None` for a random one.
    pub hash_key: Option<[u8; 16]>,
    /// Most sessions at a time.
    pub sessions_max: usize,
    /// What ends a prefix in a key.
    pub prefix_delimiter: u8,
    /// Clients read items in the memory file, where there is one.
    pub shared_reads: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            item_max_bytes: 1 << 20,
            growth_factor: 1.25,
            chunk_min_bytes: 0,
            evict: true,
            eviction: Eviction::Clock,
            slab_pages: None,
            pages: Pages::Prefer,
            nodes: Vec::new(),
            hash_key: None,
            sessions_max: 64,
            prefix_delimiter: b':',
            shared_reads: false,
        }
    }
}

/// Why there is no store, or no session.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum StoreError {
    #[error("{asked} bytes of item memory are too few: give at least {} (4 MiB)", PAGES_MIN * PAGE_BYTES)]
    MemoryTooSmall { asked: usize },
    #[error("{pages} pages of 2 MB for size classes are more than {asked} bytes of item memory")]
    SlabPages { pages: u64, asked: usize },
    /// Locations have 32 bits.
    #[error("{asked} bytes of item memory are too many: give at most {}", PAGES_MAX * PAGE_BYTES)]
    MemoryTooLarge { asked: usize },
    #[error(
        "an item limit of {asked} bytes is out of range: give {ITEM_MAX_BYTES_LEAST} to {ITEM_MAX_BYTES_MOST}"
    )]
    ItemMax { asked: usize },
    #[error("a growth factor of {asked} makes no usable set of chunk sizes: give 1.05 to 100")]
    GrowthFactor { asked: f64 },
    #[error(
        "cannot map {bytes} bytes for the {what}: {source}; lower the memory limit, or reserve huge pages (vm.nr_hugepages)"
    )]
    Map { what: &'static str, bytes: usize, source: io::Error },
    /// The file that items should lie in.
    #[error(transparent)]
    MemoryFile(#[from] MemoryFileError),
    #[error("all {max} sessions of the store are in use: raise sessions_max")]
    Sessions { max: usize },
}

/// What follows from a [`StoreConfig`]: how item memory is cut.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) n_pages: usize,
    pub(super) sizes: Box<[SizeClass]>,
}

impl Shape {
    pub(super) fn new(config: &StoreConfig) -> Result<Self, StoreError> {
        let asked = config.memory_bytes;
        let mut n_pages = asked / PAGE_BYTES;
        if let Some(slab_pages) = &config.slab_pages {
            let pages = slab_pages.pages();
            n_pages = usize::try_from(pages)
                .ok()
                .filter(|pages| *pages <= n_pages)
                .ok_or(StoreError::SlabPages { pages, asked })?;
        } else if n_pages < PAGES_MIN {
            return Err(StoreError::MemoryTooSmall { asked });
        }
        if n_pages > PAGES_MAX {
            return Err(StoreError::MemoryTooLarge { asked });
        }
        if !(ITEM_MAX_BYTES_LEAST..=ITEM_MAX_BYTES_MOST).contains(&config.item_max_bytes) {
            return Err(StoreError::ItemMax { asked: config.item_max_bytes });
        }
        if let Some(slab_pages) = &config.slab_pages {
            return Ok(Self { n_pages, sizes: given_classes(slab_pages) });
        }
        let growth = config.growth_factor;
        let sizes = (1.05..=100.0)
            .contains(&growth)
            .then(|| {
                let largest = config.item_max_bytes.min(PAGE_BYTES);
                size_classes(growth, config.chunk_min_bytes, largest)
            })
            .flatten()
            .ok_or(StoreError::GrowthFactor { asked: growth })?;
        Ok(Self { n_pages, sizes })
    }
}
