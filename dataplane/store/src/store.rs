//! What the store is made of.
//!
//! In: a [`StoreConfig`]. Out: an empty [`Store`], and small questions answered from one of its
//! parts. What needs several of them stands in files of its own, above this one.

use super::clock::Clock;
use super::config::{Eviction, Shape, StoreConfig, StoreError};
use super::epoch::Epochs;
use super::evicted_then_stored::Returns;
use super::flush::Flushed;
use super::hash::{Hasher, KeyHash};
use super::index::Index;
use super::item::{Arena, Location};
use super::layout::{PAGE_BYTES, UNIT_BYTES, len_bytes};
use super::moving::Mover;
use super::observer::{Evictions, Observer, Replicas};
use super::prefix::Prefixes;
use super::probation::Ghosts;
use super::published::Published;
use super::restart::MemoryFile;
use super::slab::Slabs;
use super::sweeper::Sweeper;
use gpu::index::Feed;
use gpu::params::HashKey;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The store. Shared by all workers and TCP threads, each with a [`Session`](crate::Session) of its own.
pub struct Store {
    pub(super) slabs: Slabs,
    pub(super) index: Index,
    pub(super) epochs: Epochs,
    pub(super) hasher: Hasher,
    pub(super) clock: Clock,
    /// The last CAS id given.
    pub(super) cas: AtomicU64,
    pub(super) flushed: Flushed,
    pub(super) ghosts: Ghosts,
    pub(super) returns: Returns,
    pub(super) prefixes: Prefixes,
    pub(super) mover: Mutex<Mover>,
    pub(super) sweeper: Mutex<Sweeper>,
    /// Who takes chunks for a large item: one at a time, so that two do not each wait for the other's.
    pub(super) large: Mutex<()>,
    /// The safe epoch at which a writer waited for memory to the end; `u64::MAX` before that.
    pub(super) waited_in_vain: AtomicU64,
    /// Some item was stored with an expiry time, or all were flushed; before that there is nothing
    /// to sweep.
    pub(super) expiring: AtomicBool,
    /// An administrator has switched the sweeper off.
    pub(super) sweeper_off: AtomicBool,
    /// Turns of housekeeping.
    pub(super) turns: AtomicU64,
    pub(super) observer: Observer,
    pub(super) replicas: Replicas,
    pub(super) config: StoreConfig,
    /// What the items lie in, if they are to outlive the process.
    pub(super) file: Option<MemoryFile>,
    /// What clients see who read items there.
    pub(super) published: Option<Arc<Published>>,
}

base::opaque!(Store, |it| config: it.config);

impl Store {
    /// Maps the memory and builds an empty store.
    ///
    /// # Errors
    /// [`StoreError`], which says what to change.
    pub fn new(config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        let shape = Shape::new(&config)?;
        let store = Self::build(config, shape, None)?;
        store.assign_pages();
        Ok(Arc::new(store))
    }

    /// An empty store, over the file's memory if there is one.
    pub(super) fn build(
        config: StoreConfig,
        shape: Shape,
        file: Option<MemoryFile>,
    ) -> Result<Self, StoreError> {
        let bytes = shape.n_pages * PAGE_BYTES;
        let map = |what| move |source| StoreError::Map { what, bytes, source };
        let arena = match &file {
            Some(file) => file.map(bytes, config.pages, &config.nodes),
            None => Arena::new(bytes, config.pages, &config.nodes),
        };
        let arena = arena.map_err(map("items"))?;
        let published = match &file {
            Some(file) if config.shared_reads => Some(Arc::new(file.published()?)),
            _ => None,
        };
        let index = Index::new(bytes / UNIT_BYTES, config.pages, &config.nodes);
        let index = index.map_err(map("index"))?;
        let in_turn = config.evict && config.eviction == Eviction::RoundRobin;
        let slabs =
            Slabs::new(arena, shape.n_pages, shape.sizes, in_turn, config.slab_pages.is_some());
        if let Some(published) = &published {
            slabs.notify(Arc::clone(published));
        }
        Ok(Self {
            ghosts: Ghosts::new(bytes),
            returns: Returns::new(bytes, slabs.sizes().len()),
            mover: Mutex::new(Mover::new(slabs.sizes().len())),
            slabs,
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
            replicas: Replicas::default(),
            config,
            file,
            published,
        })
    }

    /// How the store was built.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// The hash of a key, if its caller has not made it already.
    #[inline]
    pub fn hash_of(&self, key: &[u8], known: Option<KeyHash>) -> KeyHash {
        let hash = known.unwrap_or_else(|| self.hash(key));
        debug_assert_eq!(hash, self.hash(key), "of another key");
        hash
    }

    /// The hash that the other calls take.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// The state of the hash function before a key's first word.
    #[inline]
    pub fn hash_state(&self) -> [u64; 4] {
        self.hasher.state()
    }

    /// Prefetches the index line that a look-up of this hash reads first, and mostly alone.
    #[inline]
    pub fn prefetch_near(&self, hash: KeyHash) {
        self.index.prefetch_first(hash);
    }

    /// Prefetches the index line that is read when [`Self::propose_near`] finds nothing.
    #[inline]
    pub fn prefetch_far(&self, hash: KeyHash) {
        self.index.prefetch_second(hash);
    }

    /// Prefetches both.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.index.prefetch(hash);
    }

    /// Prefetches the lines of this hash that a change reads first, and mostly alone, beside the
    /// item's.
    #[inline]
    pub fn prefetch_change(&self, hash: KeyHash) {
        self.index.prefetch_first(hash);
        self.ghosts.prefetch(hash);
        self.returns.prefetch(hash);
    }

    /// Prefetches the item that one with these lengths of key and value will probably take the place of: as much
    /// as that will have, because its chunk is soon written to again.
    #[inline(always)]
    pub fn prefetch_replaced(&self, hash: KeyHash, (key_len, value_len): (usize, usize)) {
        if let Some(loc) = self.index.near(hash) {
            self.slabs.prefetch_bytes(loc, len_bytes(key_len, value_len));
        }
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

    /// Prefetches the lines of the item there. Harmless for any number.
    #[inline]
    pub fn prefetch_item(&self, loc: Location) {
        self.slabs.prefetch(loc);
    }

    /// The store's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Seconds on the store's clock, which item times are given in.
    #[inline]
    pub fn now(&self) -> u32 {
        self.clock.now()
    }

    /// What keys are hashed with, for an engine that does the same. It leaves this process by no
    /// way: who knows it can choose keys that collide.
    pub fn hash_key(&self) -> HashKey {
        self.hasher.key()
    }

    /// Sets the listener for evictions. The first call counts.
    pub fn observe_evictions(&self, listener: Arc<dyn Evictions>) {
        self.observer.set(listener);
    }

    /// Names the feeds of the replicas of the index. The first call counts.
    pub fn feed_replicas(&self, feeds: impl IntoIterator<Item = Arc<Feed>>) {
        self.replicas.set(feeds.into_iter().collect());
    }
}
