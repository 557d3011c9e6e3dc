//! The store: the truth, as far as clients can tell (D1).
//!
//! ```text
//!              propose(hash)                 ┌────────── index ──────────┐  hash → location
//! engine ────────────────────────────────────►  buckets, seqlocks        │
//! execute ── session.pin() ── guard.verify ──►───────── slabs ───────────┤  location → item
//!                          └─ guard.find ────►  pages, classes, limbo    │
//! verbs::set, delete ── make, link, retire ──►  epochs, hand, sweeper ───┘
//! ```
//!
//! Enters: keys, values, and locations from anywhere, each of them possibly wrong. Leaves: items,
//! borrowed for as long as their reader is pinned. The store owns all item memory. A look-up takes
//! no lock, allocates nothing and writes nothing shared but an item's recency bit, when that is
//! not set yet. Writers lock a size class and two index buckets for some dozens of instructions.
//! Fails: at start-up with a [`StoreError`]; later only by refusing an item that is too large or
//! for which no memory can be found.
//!
//! To read on: `item` (layout and life of a chunk), `epoch`, `slab`, `index`, then `session` (how
//! a look-up and a hint check are put together), `write` and `verbs` (how a command is), `evict`,
//! `probation` and `mover` (where memory comes from when it is all in use).

mod sync;

pub mod clock;
pub mod admin;
pub mod dump;
pub mod epoch;
mod drain;
mod evict;
mod flush;
mod hash;
mod index;
mod item;
mod session;
mod marks;
mod mover;
mod observer;
mod prefix;
mod probation;
mod replica;
mod renew;
pub mod restart;
mod returns;
mod sizes;
mod slab;
mod value;
pub mod stats;
pub mod verbs;
mod write;

pub use clock::Clock;
pub use dump::Cursor;
pub(crate) use flush::Horizon;
pub use hash::KeyHash;
pub(crate) use item::SUM_KEPT_MIN_BYTES;
pub use item::{ItemRef, Location};
pub use mover::{Automove, NotMoved};
pub use observer::Evictions;
pub use prefix::{PREFIX_DEPTH_MAX, PrefixRefused};
pub use replica::{StoreSource, Supposed};
pub use session::{Guard, Session};
pub use stats::StoreStats;
pub use value::Value;

use driver_shim::Pages;
use epoch::Epochs;
use evict::Sweeper;
use flush::Flushed;
use hash::Hasher;
use index::Index;
use item::{Arena, UNIT_BYTES};
use mover::Mover;
use observer::Observer;
use parking_lot::Mutex;
use prefix::Prefixes;
use probation::Ghosts;
use replica::Replica;
use restart::{MemoryFile, MemoryFileError};
use returns::Returns;
pub(crate) use sizes::PAGE_BYTES;
use sizes::{SizeClass, size_classes};
pub(crate) use slab::Fetched;
use slab::{PAGES_MAX, Slabs};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Fewest pages that a store works with: one in use, one for the next size that turns up.
const PAGES_MIN: usize = 2;

/// Smallest item limit, as in memcached.
const ITEM_MAX_BYTES_LEAST: usize = 1 << 10;

/// Largest item limit, as in memcached.
const ITEM_MAX_BYTES_MOST: usize = 1 << 30;

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
    /// Which memory pages to ask for.
    pub pages: Pages,
    /// Key of the hash function; `None` for a random one.
    pub hash_key: Option<[u8; 16]>,
    /// Most sessions at a time.
    pub sessions_max: usize,
    /// What ends a prefix in a key.
    pub prefix_delimiter: u8,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            item_max_bytes: 1 << 20,
            growth_factor: 1.25,
            chunk_min_bytes: 0,
            evict: true,
            pages: Pages::Prefer,
            hash_key: None,
            sessions_max: 64,
            prefix_delimiter: b':',
        }
    }
}

/// Why there is no store, or no session.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not enough memory asked for.
    #[error("{asked} bytes of item memory are too few: give at least {} (4 MiB)", PAGES_MIN * PAGE_BYTES)]
    MemoryTooSmall {
        /// What was asked for.
        asked: usize,
    },
    /// Locations have 32 bits.
    #[error("{asked} bytes of item memory are too many: give at most {}", PAGES_MAX * PAGE_BYTES)]
    MemoryTooLarge {
        /// What was asked for.
        asked: usize,
    },
    /// Too small for any item, or too large.
    #[error(
        "an item limit of {asked} bytes is out of range: give {ITEM_MAX_BYTES_LEAST} to {ITEM_MAX_BYTES_MOST}"
    )]
    ItemMax {
        /// What was asked for.
        asked: usize,
    },
    /// No sizes, or too many.
    #[error("a growth factor of {asked} makes no usable set of chunk sizes: give 1.05 to 100")]
    GrowthFactor {
        /// What was asked for.
        asked: f64,
    },
    /// The system gave no memory.
    #[error(
        "cannot map {bytes} bytes for the {what}: {source}; lower the memory limit, or reserve huge pages (vm.nr_hugepages)"
    )]
    Map {
        /// Items or index.
        what: &'static str,
        /// What was asked for.
        bytes: usize,
        /// What the system says.
        source: io::Error,
    },
    /// The file that items should lie in.
    #[error(transparent)]
    MemoryFile(#[from] MemoryFileError),
    /// All places are taken.
    #[error("all {max} sessions of the store are in use: raise sessions_max")]
    Sessions {
        /// The limit.
        max: usize,
    },
}

/// The store. Shared by all workers and TCP threads, each with a [`Session`] of its own.
pub struct Store {
    slabs: Slabs,
    index: Index,
    epochs: Epochs,
    hasher: Hasher,
    clock: Clock,
    /// The last CAS id given.
    cas: AtomicU64,
    flushed: Flushed,
    ghosts: Ghosts,
    returns: Returns,
    prefixes: Prefixes,
    mover: Mutex<Mover>,
    sweeper: Mutex<Sweeper>,
    /// Who takes chunks for a large item: one at a time, so that two do not each wait for the other's.
    large: Mutex<()>,
    /// The horizon at which a writer waited for memory to the end; `u64::MAX` before that.
    waited_in_vain: AtomicU64,
    /// Some item was stored with an expiry time, or all were flushed; before that there is nothing
    /// to sweep.
    expiring: AtomicBool,
    /// Somebody has switched the sweeper off.
    sweeper_off: AtomicBool,
    /// Turns of housekeeping.
    turns: AtomicU64,
    observer: Observer,
    replica: Replica,
    config: StoreConfig,
    /// What the items lie in, if they are to outlive the process.
    file: Option<MemoryFile>,
}

/// What follows from a [`StoreConfig`]: how item memory is cut.
#[derive(Debug, Clone)]
struct Shape {
    n_pages: usize,
    sizes: Box<[SizeClass]>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Shape {
    fn new(config: &StoreConfig) -> Result<Self, StoreError> {
        let n_pages = config.memory_bytes / PAGE_BYTES;
        if n_pages < PAGES_MIN {
            return Err(StoreError::MemoryTooSmall { asked: config.memory_bytes });
        }
        if n_pages > PAGES_MAX {
            return Err(StoreError::MemoryTooLarge { asked: config.memory_bytes });
        }
        if !(ITEM_MAX_BYTES_LEAST..=ITEM_MAX_BYTES_MOST).contains(&config.item_max_bytes) {
            return Err(StoreError::ItemMax { asked: config.item_max_bytes });
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

impl Store {
    /// Maps the memory and builds an empty store.
    ///
    /// # Errors
    /// [`StoreError`], which says what to change.
    pub fn new(config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        let shape = Shape::new(&config)?;
        Self::build(config, shape, None).map(Arc::new)
    }

    /// An empty store, over the file's memory if there is one.
    fn build(
        config: StoreConfig,
        shape: Shape,
        file: Option<MemoryFile>,
    ) -> Result<Self, StoreError> {
        let bytes = shape.n_pages * PAGE_BYTES;
        let map = |what| move |source| StoreError::Map { what, bytes, source };
        let arena = match &file {
            Some(file) => file.map(bytes, config.pages),
            None => Arena::new(bytes, config.pages),
        };
        let arena = arena.map_err(map("items"))?;
        let index = Index::new(bytes / UNIT_BYTES, config.pages).map_err(map("index"))?;
        Ok(Self {
            ghosts: Ghosts::new(bytes),
            returns: Returns::new(bytes, shape.sizes.len()),
            mover: Mutex::new(Mover::new(shape.sizes.len())),
            slabs: Slabs::new(arena, shape.n_pages, shape.sizes),
            index,
            epochs: Epochs::new(config.sessions_max),
            hasher: Hasher::new(config.hash_key),
            clock: Clock::new(),
            cas: AtomicU64::new(0),
            flushed: Flushed::default(),
            prefixes: Prefixes::default(),
            sweeper: Mutex::new(Sweeper::default()),
            large: Mutex::new(()),
            waited_in_vain: AtomicU64::new(u64::MAX),
            expiring: AtomicBool::new(false),
            sweeper_off: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            observer: Observer::default(),
            replica: Replica::default(),
            config,
            file,
        })
    }

    /// A session for one thread.
    ///
    /// # Errors
    /// [`StoreError::Sessions`].
    pub fn session(self: &Arc<Self>) -> Result<Session, StoreError> {
        let max = self.config.sessions_max;
        let place = self.epochs.join().ok_or(StoreError::Sessions { max })?;
        Ok(Session::new(Arc::clone(self), place))
    }

    /// How the store was built.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// The hash that the other calls take.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// The state of the hash function before a key's first word.
    #[inline]
    pub(crate) fn hash_state(&self) -> [u64; 4] {
        self.hasher.state()
    }

    /// Asks the CPU for the index line that a look-up of this hash reads first, and mostly alone.
    #[inline]
    pub fn prefetch_near(&self, hash: KeyHash) {
        self.index.prefetch_first(hash);
    }

    /// Asks the CPU for the index line that is read when [`Self::propose_near`] finds nothing.
    #[inline]
    pub fn prefetch_far(&self, hash: KeyHash) {
        self.index.prefetch_second(hash);
    }

    /// Asks the CPU for both.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.index.prefetch(hash);
    }

    /// Asks the CPU for the lines of this hash that a change reads first, and mostly alone, beside the
    /// item's.
    #[inline]
    pub fn prefetch_change(&self, hash: KeyHash) {
        self.index.prefetch_first(hash);
        self.ghosts.prefetch(hash);
        self.returns.prefetch(hash);
    }

    /// As [`Self::propose`], in the first index line alone: `None` means that it may be in the other.
    #[inline]
    pub fn propose_near(&self, hash: KeyHash) -> Option<Location> {
        self.index.near(hash)
    }

    /// Where the key with this hash probably is, by its tag alone: items are not looked at, and
    /// no pin is needed. `None` means that it was not in the index at the time.
    #[inline]
    pub fn propose(&self, hash: KeyHash) -> Option<Location> {
        self.index.first(hash)
    }

    /// Asks the CPU for the lines of the item there. Harmless for any number.
    #[inline]
    pub fn prefetch_item(&self, loc: Location) {
        self.slabs.prefetch(loc);
    }

    /// The store's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Seconds on the store's clock, which item times are told in.
    #[inline]
    pub fn now(&self) -> u32 {
        self.clock.now()
    }

    /// Seconds since start-up.
    pub fn uptime_seconds(&self) -> u32 {
        self.clock.uptime_seconds()
    }
}

#[cfg(test)]
mod tests;
