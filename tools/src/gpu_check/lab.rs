//! What the steps with an engine share: a filled store, packet memory, and a device over them.
//!
//! In: a GPU, how many items. Out: engines, for one way of use after the other. The device's index is
//! kept for as long as the way stays the same. Owns the store and the region. Fails as the device
//! does; after a fault the memory that it may still use is left alone, and new memory is taken.

use super::{Extent, Result};
use crate::study::engine::{Beside, Replicated, Way};
use crate::study::load::{Load, Shape};
use crate::workload::{Popularity, Sampler};
use dataplane::observe::Server;
use dataplane::stages::engine::dispatch::Offloading;
use driver_shim::{Pages, Region};
use gpu::card::Card;
use gpu::index::{IndexKind, Updater};
use gpu::offload::{Mode, Offload};
use memcache::Store as SetRequest;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use store::{Store, StoreConfig, verbs};

/// Keys and values.
pub(super) const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 64 };
/// Longest time for a batch: any figure above it would be worth nothing.
const DEADLINE: Duration = Duration::from_millis(500);
/// The same where a processor runs the kernels.
const DEADLINE_TINY: Duration = Duration::from_secs(20);
/// Most workers: what a node's cores give beside the updater and the measurement.
const WORKERS_MAX: usize = 14;
/// Largest batch.
pub(super) const BATCH_MAX: usize = 4096;

/// A way to use a device.
pub(super) type How = (Mode, IndexKind);

/// All of them. Last those whose kernels stay: one that hangs takes what comes after it along.
pub(super) const HOW: [How; 6] = [
    (Mode::Graph, IndexKind::SetAssoc),
    (Mode::Graph, IndexKind::Cuckoo),
    (Mode::Launch, IndexKind::SetAssoc),
    (Mode::Launch, IndexKind::Cuckoo),
    (Mode::Persistent, IndexKind::SetAssoc),
    (Mode::Persistent, IndexKind::Cuckoo),
];

/// Those in which the device has whole replies. Each needs a [`Lab`] of its own: the store notifies one
/// filter.
pub(super) const WHOLE: [How; 2] =
    [(Mode::Graph, IndexKind::Rows), (Mode::Persistent, IndexKind::Rows)];

/// How many requests there are, of a hundred how many for keys that are there, and by Zipf's law.
type Asked = (usize, u32, bool);

/// Its name.
pub(super) fn name((mode, kind): How) -> String {
    format!("{} {}", mode.name(), kind.name())
}

/// A filled store and a device.
pub struct Lab {
    card: Arc<dyn Card>,
    replicated: Replicated,
    pub(super) server: Arc<Server>,
    pub(super) items: u64,
    tiny: bool,
    /// Longest time for a batch.
    deadline: Duration,
    /// What of the device a kernel that stays may fill.
    grid: u32,
    /// Made when needed.
    region: Option<Region>,
    /// The device in use, how, and whether it prepares reply headers.
    open: Option<((How, bool), Beside)>,
    /// The requests that were made last, and of which kind they are.
    requests: Option<(Asked, Vec<Vec<u8>>)>,
}

base::opaque!(Lab, |it| items: it.items);

impl Lab {
    /// Fills a store with `items` items.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(card: &Arc<dyn Card>, items: u64, extent: Extent) -> Result<Self> {
        let per_item = SHAPE.item_bytes() + 16;
        let memory_bytes = usize::try_from(items)? * per_item * 5 / 4 + (64 << 20);
        let store = Store::new(StoreConfig { memory_bytes, ..StoreConfig::default() })?;
        let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64).min(8);
        let all: std::result::Result<Vec<()>, String> = thread::scope(|scope| {
            let parts: Vec<_> = (0..threads)
                .map(|part| {
                    let store = &store;
                    scope.spawn(move || {
                        let mut session = store.session().map_err(|e| e.to_string())?;
                        for i in (part..items).step_by(usize::try_from(threads).unwrap_or(1)) {
                            let (key, value) = (SHAPE.key(i), SHAPE.value(i));
                            verbs::store(&mut session, None, &SetRequest::set(&key, 0, 0, &value))
                                .map_err(|_| format!("item {i} does not fit"))?;
                        }
                        Ok(())
                    })
                })
                .collect();
            let died = |_| Err("a thread died".to_owned());
            parts.into_iter().map(|part| part.join().unwrap_or_else(died)).collect()
        });
        all?;
        let server = Arc::new(Server::new(Arc::clone(&store), "study".to_owned()));
        Ok(Self {
            card: Arc::clone(card),
            replicated: Replicated::new(store),
            server,
            items,
            tiny: extent.tiny,
            deadline: extent.pick(DEADLINE, DEADLINE_TINY),
            grid: u32::MAX,
            region: None,
            open: None,
            requests: None,
        })
    }

    /// What engines look into.
    pub(super) fn store(&self) -> &Arc<Store> {
        &self.replicated.store
    }

    /// With the least memory for packets.
    #[must_use]
    pub fn small(self) -> Self {
        Self { tiny: true, ..self }
    }

    /// From the next engines on, a kernel that stays fills no more than so many multiprocessors.
    pub(super) fn hold_grid_to(&mut self, multiprocessors: u32) {
        (self.grid, self.open) = (multiprocessors, None);
    }

    /// Of the device.
    pub(super) fn multiprocessors(&self) -> u32 {
        self.card.facts().multiprocessors
    }

    /// Workers of a full machine.
    pub(super) fn workers(&self) -> usize {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        cores.saturating_sub(2).clamp(1, WORKERS_MAX)
    }

    /// Batches in flight, of each engine.
    pub(super) fn in_flight(&self) -> usize {
        if self.tiny { 2 } else { 8 }
    }

    /// Memory for the packets of every measurement.
    ///
    /// # Errors
    /// There is not as much.
    pub(super) fn region(&mut self) -> Result<Region> {
        if let Some(region) = &self.region {
            return Ok(region.clone());
        }
        let frames = (self.in_flight() + 2) * if self.tiny { 128 } else { BATCH_MAX };
        let slots = u32::try_from(self.workers() * frames + 4096)?;
        let region = Region::new(slots, Pages::Prefer)?;
        Ok(self.region.insert(region).clone())
    }

    /// Engines for batches of up to `batch` requests over the device, used in this way, with every
    /// item in its index. All engines of one measurement are made here and used after it.
    ///
    /// # Errors
    /// As the device does.
    pub(super) fn engines(
        &mut self,
        (how, heads): (How, bool),
        workers: usize,
        batch: usize,
    ) -> Result<Vec<Offloading>> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != (how, heads)) {
            // The region can be mapped once.
            self.open = None;
            let region = self.region()?;
            let (mode, kind) = how;
            let (in_flight_max, deadline) = (self.in_flight(), self.deadline);
            let way = Way {
                mode,
                kind,
                in_flight_max,
                deadline,
                forced: true,
                heads,
                multiprocessors: self.grid,
            };
            let items = (self.items, SHAPE);
            let opened = Beside::open(&self.card, way, &region, &self.replicated, items);
            self.open = Some(((how, heads), opened.inspect_err(|_| self.region = None)?));
        }
        let Some((_, beside)) = &self.open else { return Err("no device".into()) };
        let engines: Result<Vec<_>> = (0..workers).map(|_| beside.engine(batch)).collect();
        engines.inspect_err(|_| self.look_for_faults())
    }

    /// What keeps the index up to date, for a thread of its own; where it is kept otherwise.
    ///
    /// # Errors
    /// None is in use.
    pub(super) fn updater(&mut self) -> Result<&mut Option<Updater>> {
        let (_, beside) = self.open.as_mut().ok_or("no device")?;
        Ok(&mut beside.updater)
    }

    /// The device in use.
    ///
    /// # Errors
    /// None is.
    pub(super) fn offload(&self) -> Result<Arc<Offload>> {
        let (_, beside) = self.open.as_ref().ok_or("no device")?;
        Ok(Arc::clone(beside.offload()))
    }

    /// To be called when all that a measurement needs is made, engines, batches and updaters: from
    /// here on nothing is taken or mapped until they are gone.
    ///
    /// # Errors
    /// The device's fault, if making them was one.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.is_well()
    }

    /// Whether the device did its work in the measurement that has just ended.
    ///
    /// # Errors
    /// Its fault. It is not used again; the next measurement opens it anew.
    pub(super) fn is_well(&mut self) -> Result<()> {
        let Some((_, beside)) = &self.open else { return Ok(()) };
        beside.is_well().inspect_err(|_| self.look_for_faults())
    }

    fn look_for_faults(&mut self) {
        if self.open.as_ref().is_some_and(|(_, beside)| beside.is_well().is_err()) {
            // It stays mapped, for kernels that may still use it.
            (self.open, self.region) = (None, None);
        }
    }

    /// Frames that get an item each; of a hundred, `hits` for one that is there.
    ///
    /// # Errors
    /// None: requests of this shape fit a frame.
    pub(super) fn requests(&mut self, n: usize, hits: u32, zipf: bool) -> Result<Vec<Vec<u8>>> {
        if let Some((kind, frames)) = &self.requests
            && *kind == (n, hits, zipf)
        {
            return Ok(frames.clone());
        }
        let popularity = if zipf { Popularity::Zipf(0.99) } else { Popularity::Uniform };
        let mut sampler = Sampler::new(self.items, popularity).ok_or("no such popularity")?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let frames = (0..n).map(|_| {
            let hit = rng.random_range(0..100) < hits;
            let load = if hit { Load::Get } else { Load::Miss };
            load.request(SHAPE, &[sampler.read(&mut rng)], self.items)
        });
        let frames: Option<Vec<_>> = frames.collect();
        let frames = frames.ok_or("a request does not fit a frame")?;
        self.requests = Some(((n, hits, zipf), frames.clone()));
        Ok(frames)
    }
}
