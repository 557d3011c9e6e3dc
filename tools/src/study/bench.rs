//! A filled store, and workers over it.
//!
//! In: how many items of which shape. Out: request frames, workers on ports of one's choice, and what
//! a look-up alone costs. Fails when there is not enough memory.

use super::engine::{Beside, Replicated, Way};
use super::load::{Load, SERVER, SERVER6, Shape};
use super::one_sided::Reader;
use super::{per, thread_cpu};
use crate::workload::{Popularity, Sampler};
use dataplane::observe::Server;
use dataplane::stages::batch::BatchPolicy;
use dataplane::stages::engine::dispatch::Offloading;
use dataplane::stages::fast_path::FastPathMode as FastPath;
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use driver_shim::ports::memory::MAC;
use driver_shim::{PortInfo, QueuePair, Region};
use gpu::card::Card;
use memcache::Store as SetRequest;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use store::{Store, StoreConfig, verbs};
use wire::Local;

/// The hash key, so that a run can be repeated to the instruction.
const HASH_KEY: [u8; 16] = *b"gnomon's offline";

/// What is in the store.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Items.
    pub items: u64,
    /// Lengths of their keys and values.
    pub shape: Shape,
    /// Of the random keys.
    pub seed: u64,
}

/// A filled store, ready to be measured.
pub struct Bench {
    config: Config,
    replicated: Replicated,
    server: Arc<Server>,
    reader: Option<Mutex<Reader>>,
}

base::opaque!(Bench, |it| config: it.config);

/// How a worker works.
#[derive(Debug)]
pub struct Manner {
    /// Requests whose memory accesses overlap in the CPU engine.
    pub group: usize,
    /// How batches are made.
    pub batch: BatchPolicy,
    /// An engine beside the CPU's.
    pub offload: Option<Offloading>,
}

impl Bench {
    /// Fills a store.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(config: Config) -> Result<Self, Box<dyn Error>> {
        Self::with_shapes(config, &[config.shape])
    }

    /// Fills a store with as many items of each of these shapes; requests are of the first one.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn with_shapes(config: Config, shapes: &[Shape]) -> Result<Self, Box<dyn Error>> {
        for Shape { key_bytes, .. } in shapes {
            if u32::try_from(*key_bytes)
                .is_ok_and(|n| 10_u64.checked_pow(n).is_some_and(|names| names < 2 * config.items))
            {
                return Err(format!("{key_bytes} B keys cannot name as many items").into());
            }
        }
        let item_bytes: usize = shapes.iter().map(|shape| shape.item_bytes()).sum();
        let memory_bytes = usize::try_from(config.items)? * item_bytes * 5 / 4 + (64 << 20);
        let hash_key = Some(HASH_KEY);
        let store = Store::new(StoreConfig { memory_bytes, hash_key, ..StoreConfig::default() })?;
        let mut session = store.session()?;
        for (shape, i) in shapes.iter().flat_map(|shape| (0..config.items).map(move |i| (shape, i)))
        {
            let (key, value) = (shape.key(i), shape.value(i));
            if verbs::store(&mut session, None, &SetRequest::set(&key, 0, 0, &value)).is_err() {
                return Err(format!("item {i} did not fit in {memory_bytes} bytes").into());
            }
        }
        drop(session);
        let server = Arc::new(Server::new(Arc::clone(&store), "study".to_owned()));
        Ok(Self { config, replicated: Replicated::new(store), server, reader: None })
    }

    /// The same, with one-sided reads.
    ///
    /// # Errors
    /// No queue pair can be had.
    pub fn one_sided(self) -> Result<Self, Box<dyn Error>> {
        let rdma = Arc::default();
        let reader = Some(Mutex::new(Reader::new(&rdma, self.store())?));
        let mut server = Server::new(Arc::clone(self.store()), "study".to_owned());
        server.rdma = Some(rdma);
        Ok(Self { server: Arc::new(server), reader, ..self })
    }

    /// What is in the store.
    pub fn config(&self) -> Config {
        self.config
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.replicated.store
    }

    /// What `stats` shows.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// `n` request frames of these loads by weight, for keys of this popularity.
    ///
    /// # Errors
    /// A request that does not fit a frame, or no weight at all.
    pub fn requests(
        &self,
        loads: &[(Load, u32)],
        popularity: Popularity,
        n: u64,
    ) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
        let Config { items, shape, seed } = self.config;
        let mut sampler = Sampler::new(items, popularity).ok_or("no such popularity")?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let weights: u32 = loads.iter().map(|(_, weight)| weight).sum();
        let mut asked = Vec::new();
        let frames = (0..n).map(|_| {
            let mut at = if loads.len() > 1 { rng.random_range(0..weights.max(1)) } else { 0 };
            let (load, _) = loads.iter().find(|(_, weight)| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            })?;
            asked.clear();
            asked.extend((0..load.keys()).map(|_| sampler.read(&mut rng)));
            match (load, &self.reader, asked.first()) {
                (Load::Read, Some(reader), Some(item)) => {
                    reader.lock().unwrap_or_else(PoisonError::into_inner).request(shape, *item)
                }
                _ => load.request(shape, &asked, items),
            }
        });
        Ok(frames.collect::<Option<Vec<_>>>().ok_or("a request does not fit a frame")?)
    }

    /// A worker on one pair of queues.
    ///
    /// # Errors
    /// No place for a session.
    pub fn worker(
        &self,
        info: &PortInfo,
        queues: QueuePair,
        region: &Region,
        manner: Manner,
    ) -> Result<Worker, Box<dyn Error>> {
        let own = Local::new(MAC, &[(SERVER.0.into(), 24), (SERVER6.0.into(), 64)], SERVER.1)?;
        let local = Arc::new(Local { rdma: self.reader.is_some(), ..own });
        let ports = vec![WorkerPort::new(queues, info.clone(), local)];
        let (session, server) = (self.store().session()?, Arc::clone(&self.server));
        Ok(Worker::new(WorkerConfig {
            group: manner.group,
            batch: manner.batch,
            offload: manner.offload,
            // One by one is one by one.
            fast_path: if manner.group > 1 { FastPath::from_env() } else { FastPath::Off },
            ..WorkerConfig::new(ports, region.clone(), session, server)
        }))
    }

    /// A GPU beside workers on this region.
    ///
    /// # Errors
    /// What is wrong with the GPU.
    pub fn beside(
        &self,
        card: &Arc<dyn Card>,
        way: Way,
        region: &Region,
    ) -> Result<Beside, Box<dyn Error>> {
        let Config { items, shape, .. } = self.config;
        Beside::open(card, way, region, &self.replicated, (items, shape))
    }

    /// What a look-up alone costs, in nanoseconds of CPU time: hash, index, item, key compared and
    /// the value's first byte read, for `group` keys at a time, `requests` in all among so many
    /// different ones.
    ///
    /// # Errors
    /// No place for a session, or a key that was not found.
    pub fn lookups(
        &self,
        group: usize,
        requests: u64,
        different: u64,
    ) -> Result<f64, Box<dyn Error>> {
        let Config { items, shape, seed } = self.config;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let keys = usize::try_from(requests.min(different))?;
        let keys: Vec<u8> = (0..keys).flat_map(|_| shape.key(rng.random_range(0..items))).collect();
        let mut session = self.store().session()?;
        let mut hashes = Vec::with_capacity(group);
        let mut places = Vec::with_capacity(group);
        let (mut done, mut found, mut first) = (0, 0u64, 0u8);
        let begun = thread_cpu();
        while done < requests {
            for keys in keys.chunks(shape.key_bytes * group) {
                hashes.clear();
                places.clear();
                for key in keys.chunks_exact(shape.key_bytes) {
                    let hash = self.store().hash(key);
                    if group > 1 {
                        self.store().prefetch(hash);
                    }
                    hashes.push(hash);
                }
                for &hash in &hashes {
                    let place = self.store().propose(hash);
                    if group > 1
                        && let Some(place) = place
                    {
                        self.store().prefetch_item(place);
                    }
                    places.push(place);
                }
                let guard = session.pin();
                for (key, place) in keys.chunks_exact(shape.key_bytes).zip(&places) {
                    if let Some(item) = place.and_then(|place| guard.verify(place, key)) {
                        found += 1;
                        let value = item.value().whole().unwrap_or_default();
                        first ^= value.first().copied().unwrap_or_default();
                    }
                }
                done += places.len() as u64;
            }
        }
        let ns = per(thread_cpu() - begun, done);
        std::hint::black_box(first);
        // A tag that two keys share costs the worker a second look; here it only must be rare.
        if found < done - done / 100 {
            return Err(format!("{found} of {done} keys were found").into());
        }
        Ok(ns)
    }
}
