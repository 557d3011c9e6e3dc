//! A GPU beside the CPU engine, with every item of a store in its index.
//!
//! In: a GPU, how to use it, a region, a filled store. Out: what engines are made of, and what keeps
//! the index up to date. Fails as the GPU does.

use super::load::Shape;
use dataplane::stages::engine::dispatch::Offloading;
use dataplane::worker;
use driver_shim::Region;
use gpu::card::Card;
use gpu::index::{Feed, Filter, Form, IndexConfig, IndexKind, Schedule, Updater};
use gpu::offload::{GpuEngine, Mode, Offload, OffloadConfig};
use gpu::params::TABLE_KEY_MAX;
use gpu::tables::Row;
use std::error::Error;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{Store, StoreSource};

/// Hashes that wait for the index's updater.
const FEED: usize = 1 << 16;
/// Items that a turn of the updater is asked for at most: as many as have room in the queue of rows.
const ROWS_AT_ONCE: u64 = 1 << 11;
/// Every how many batches one is read again by the CPU engine.
pub const VERIFY_EVERY: NonZeroU32 = NonZeroU32::MIN.saturating_add(1022);
/// Most workers of a study, and most requests of their batches.
const ENGINES_MAX: usize = 64;
const BATCH_MAX: usize = 8192;
/// Longest time for the first batch, in deadlines.
const START_DEADLINES: u32 = 30;

/// How a GPU is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// How batches get there.
    pub mode: Mode,
    /// Its index.
    pub kind: IndexKind,
    /// Most batches of each worker in flight.
    pub in_flight_max: usize,
    /// Longest time for a batch.
    pub deadline: Duration,
    /// It gets everything.
    pub forced: bool,
    /// It prepares reply headers.
    pub heads: bool,
    /// What of it a kernel that stays may fill.
    pub multiprocessors: u32,
}

impl Way {
    /// For people.
    pub fn name(self) -> String {
        format!("{} {}", self.mode.name(), self.kind.name())
    }
}

/// A store that has one replica, on a GPU, and the queue to it: made with the first GPU, whose filter
/// it raises if that has rows.
#[derive(Debug)]
pub struct Replicated {
    pub(crate) store: Arc<Store>,
    /// And the filter that it raises.
    feed: OnceLock<(Option<Arc<Filter>>, Arc<Feed>)>,
}

impl Replicated {
    /// This store, which has none yet.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, feed: OnceLock::new() }
    }

    fn feed(&self, offload: &Offload) -> Result<&Arc<Feed>, String> {
        let filter = offload.filter();
        let (raised, feed) = self.feed.get_or_init(|| {
            let feed = Arc::new(Feed::filtered(FEED, filter.cloned()));
            self.store.feed_replicas([Arc::clone(&feed)]);
            (filter.cloned(), feed)
        });
        if raised.as_ref().map(Arc::as_ptr) != filter.map(Arc::as_ptr) {
            return Err("rows need a store without another replica".to_owned());
        }
        Ok(feed)
    }
}

/// A GPU in use.
pub struct Beside {
    offload: Arc<Offload>,
    /// To be run by a thread of its own, where items change.
    pub updater: Option<Updater>,
    forced: bool,
}

base::opaque!(Beside, |it| offload: it.offload);

impl Beside {
    /// Puts the store's first `items` items into the index, or the rows, of a GPU over this region.
    ///
    /// # Errors
    /// What is wrong with the GPU.
    pub fn open(
        card: &Arc<dyn Card>,
        way: Way,
        region: &Region,
        replicated: &Replicated,
        (items, shape): (u64, Shape),
    ) -> Result<Self, Box<dyn Error>> {
        let config = OffloadConfig {
            mode: way.mode,
            index: index_for(way.kind, items, shape.key_bytes)?,
            hash_key: replicated.store.hash_key(),
            engines: ENGINES_MAX,
            batch_max: BATCH_MAX,
            in_flight_max: way.in_flight_max,
            deadline: way.deadline,
            start_deadline: START_DEADLINES * way.deadline,
            multiprocessors: way.multiprocessors,
            heads: way.heads,
        };
        let offload = worker::offload(Arc::clone(card), region, config)?;
        let mut updater = updater(&offload, replicated)?;
        let store = &replicated.store;
        let at_once = if offload.filter().is_some() { ROWS_AT_ONCE } else { FEED as u64 / 2 };
        let mut next = 0;
        while next < items {
            let end = (next + at_once).min(items);
            (next..end)
                .for_each(|i| store.invalidate(store.hash(&shape.key(i)), Some((Form::GET, 0))));
            next = end;
            while updater.turn() > 0 {}
        }
        let beside = Self { offload, updater: Some(updater), forced: way.forced };
        beside.is_well().map(|()| beside)
    }

    /// An engine for one worker, for batches of up to `batch` requests.
    ///
    /// # Errors
    /// What is wrong with the GPU.
    pub fn engine(&self, batch: usize) -> Result<Offloading, Box<dyn Error>> {
        Ok(Offloading {
            engine: Box::new(GpuEngine::new(&self.offload, batch)?),
            forced: self.forced,
            verify_one_in: VERIFY_EVERY,
            filter: self.offload.filter().cloned(),
        })
    }

    /// What engines share.
    pub fn offload(&self) -> &Arc<Offload> {
        &self.offload
    }

    /// Whether it was in use all the time.
    ///
    /// # Errors
    /// What ended its use.
    pub fn is_well(&self) -> Result<(), Box<dyn Error>> {
        self.offload.fault().map_or(Ok(()), |fault| Err(fault.to_string().into()))
    }
}

fn updater(offload: &Arc<Offload>, replicated: &Replicated) -> Result<Updater, Box<dyn Error>> {
    let feed = Arc::clone(replicated.feed(offload)?);
    let source = Box::new(StoreSource::new(replicated.store.session()?, true));
    Ok(Updater::new(offload, feed, source, Schedule::default())?)
}

/// An index for so many items with keys of that length, with places to spare: 16 ways of a set fill
/// unevenly, and cuckoo cells are found slowly above four in five.
///
/// # Errors
/// No table takes such keys.
pub fn index_for(kind: IndexKind, items: u64, key_bytes: usize) -> Result<IndexConfig, String> {
    let table = TABLE_KEY_MAX.iter().position(|max| key_bytes <= *max as usize);
    let table = table.ok_or("keys are too long for the index")?;
    let memory_bytes = match kind {
        IndexKind::SetAssoc => items * (48 + TABLE_KEY_MAX.get(table).map_or(0, |max| *max as u64)),
        // A row and its signature, for half as many more.
        IndexKind::Rows => items * (size_of::<Row>() as u64 + 4) * 3 / 2,
        // A cell has 8 bytes, and there is a power of two of them.
        IndexKind::Cuckoo => (items * 10).next_power_of_two(),
    };
    let shares = std::array::from_fn(|i| if i == table { 1.0 } else { 0.0 });
    Ok(IndexConfig { kind, memory_bytes: memory_bytes + (1 << 20), shares })
}
