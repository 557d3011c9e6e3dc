//! The offline study: the whole path of a worker, from frames in memory to replies in memory.
//!
//! As MemcachedGPU's limit study (section 5.5) and MICA's offline test: no NIC, no kernel, one
//! worker on one thread. Requests are uniform over all items, so that nearly every look-up misses
//! the caches. The port copies each request into a slot, as a NIC would write it, and takes each
//! reply back; what that alone costs is measured in the same run and shown beside the rest, and so
//! is what the look-ups alone cost.

use super::load::{Load, SERVER, Shape};
use super::{per, thread_cpu};
use dataplane::batcher::BatchPolicy;
use dataplane::pipeline::{Worker, WorkerConfig, WorkerPort};
use dataplane::policy::Policy;
use dataplane::protocol::{Server, Store as SetRequest};
use dataplane::store::Session;
use dataplane::store::verbs;
use dataplane::store::{Store, StoreConfig};
use dataplane::wire::Local;
use driver_shim::ports::memory::{Inspect, LoopingConfig, MAC, looping};
use driver_shim::{Burst, Frame, Pages, Port, Region, RxChecksum, TxCaps};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::error::Error;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Frames that circulate in the looping port: a NIC's receive ring.
const RING_FRAMES: usize = 1024;
/// Every how many replies one is kept, to be checked to the byte when the clock has stopped. A
/// prime, so that checks do not fall in step with bursts.
const CHECK_EVERY: NonZeroU64 = NonZeroU64::MIN.saturating_add(96);
/// Room for kept replies; what comes when it is full is not kept.
const KEPT_MAX_BYTES: usize = 16 << 20;
/// The hash key, so that a run can be repeated to the instruction.
const HASH_KEY: [u8; 16] = *b"gnomon's offline";

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Items in the store.
    pub items: u64,
    /// Lengths of their keys and values.
    pub shape: Shape,
    /// Requests per measurement.
    pub requests: u64,
    /// Distinct request frames prepared.
    pub frames: u64,
    /// Of the random keys.
    pub seed: u64,
}

/// What one measurement gave.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// CPU time of the thread per request, in nanoseconds, the port's part included.
    pub cpu_ns: f64,
    /// Elapsed time per request, in nanoseconds.
    pub wall_ns: f64,
    /// Requests answered, those before the clock started included.
    pub answered: u64,
    /// Replies checked to the byte.
    pub checked: u64,
    /// Replies that were not what they must be.
    pub wrong: u64,
}

/// A filled store, ready to be measured.
pub struct Bench {
    config: Config,
    store: Arc<Store>,
    server: Arc<Server>,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Replies that were kept: their bytes end to end, and where each ends.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Kept {
    fn keep(&mut self, reply: &[u8]) {
        let room = self.bytes.capacity() - self.bytes.len();
        if reply.len() <= room && self.ends.len() < self.ends.capacity() {
            self.bytes.extend_from_slice(reply);
            self.ends.push(self.bytes.len());
        }
    }

    fn replies(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, to)| self.bytes.get(from..*to).unwrap_or_default())
    }
}

impl Bench {
    /// Fills a store.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(config: Config) -> Result<Self, Box<dyn Error>> {
        let shape = config.shape;
        let memory_bytes = usize::try_from(config.items)? * shape.item_bytes() * 5 / 4 + (64 << 20);
        let hash_key = Some(HASH_KEY);
        let store = Store::new(StoreConfig { memory_bytes, hash_key, ..StoreConfig::default() })?;
        let mut session = store.session()?;
        for i in 0..config.items {
            let (key, value) = (shape.key(i), shape.value(i));
            if verbs::store(&mut session, &SetRequest::set(&key, 0, 0, &value)).is_err() {
                return Err(format!("item {i} did not fit in {memory_bytes} bytes").into());
            }
        }
        let server = Arc::new(Server::new(Arc::clone(&store), "study".to_owned()));
        Ok(Self { config, store, server })
    }

    /// The store, for its report of pages and sizes.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The request frames of a load, uniform over the items.
    ///
    /// # Errors
    /// A request that does not fit a frame.
    pub fn requests(&self, load: Load) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
        let Config { items, shape, frames, seed, .. } = self.config;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut asked = vec![0; load.keys()];
        let frames = (0..frames).map(|_| {
            asked.fill_with(|| rng.random_range(0..items));
            load.request(shape, &asked, items)
        });
        Ok(frames.collect::<Option<Vec<_>>>().ok_or("a request does not fit a frame")?)
    }

    fn port(
        &self,
        region: &Region,
        templates: &[Vec<u8>],
        software: bool,
        inspect: Option<Inspect>,
    ) -> Result<Port, Box<dyn Error>> {
        let hardware = !software;
        Ok(looping(
            region,
            &LoopingConfig {
                templates: templates.to_vec(),
                queues: 1,
                frames_per_queue: RING_FRAMES,
                rx: RxChecksum { ip_good: hardware, udp_good: hardware },
                tx_caps: TxCaps { ip: hardware, udp: hardware },
                inspect,
            },
        )?)
    }

    /// What the looping port itself costs per request, in nanoseconds of CPU time.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn port_alone(&self, templates: &[Vec<u8>]) -> Result<f64, Box<dyn Error>> {
        let region = region()?;
        let mut port = self.port(&region, templates, true, None)?;
        let queues = port.queues.first_mut().ok_or("no queue")?;
        let mut burst = Burst::new();
        let mut done = 0;
        let begun = thread_cpu();
        while done < self.config.requests {
            done += queues.rx.burst(&mut burst) as u64;
            queues.tx.burst(&mut burst);
        }
        Ok(per(thread_cpu() - begun, done))
    }

    /// What a look-up alone costs, in nanoseconds of CPU time: hash, index, item, key compared and
    /// the value's first byte read, for `group` keys at a time.
    ///
    /// # Errors
    /// No place for a session, or a key that was not found.
    pub fn lookups(&self, group: usize) -> Result<f64, Box<dyn Error>> {
        let Config { items, shape, requests, frames, seed, .. } = self.config;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let keys = usize::try_from(requests.min(frames))?;
        let keys: Vec<u8> = (0..keys).flat_map(|_| shape.key(rng.random_range(0..items))).collect();
        let mut session = self.store.session()?;
        let mut hashes = Vec::with_capacity(group);
        let mut places = Vec::with_capacity(group);
        let (mut done, mut found, mut first) = (0, 0u64, 0u8);
        let begun = thread_cpu();
        while done < requests {
            for keys in keys.chunks(shape.key_bytes * group) {
                hashes.clear();
                places.clear();
                for key in keys.chunks_exact(shape.key_bytes) {
                    let hash = self.store.hash(key);
                    if group > 1 {
                        self.store.prefetch(hash);
                    }
                    hashes.push(hash);
                }
                for &hash in &hashes {
                    let place = self.store.propose(hash);
                    if group > 1
                        && let Some(place) = place
                    {
                        self.store.prefetch_item(place);
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

    /// Runs the whole path with the given group size.
    ///
    /// # Errors
    /// Not enough memory, or frames that are not accounted for.
    pub fn whole_path(
        &self,
        load: Load,
        templates: &[Vec<u8>],
        group: usize,
        software_checksums: bool,
    ) -> Result<Run, Box<dyn Error>> {
        let region = region()?;
        let kept = Kept {
            bytes: Vec::with_capacity(KEPT_MAX_BYTES),
            ends: Vec::with_capacity(KEPT_MAX_BYTES >> 6),
        };
        let kept = Arc::new(Mutex::new(kept));
        let look = {
            let kept = Arc::clone(&kept);
            move |_queue: usize, frame: &Frame| {
                kept.lock().unwrap_or_else(PoisonError::into_inner).keep(frame.bytes());
            }
        };
        let inspect = Inspect { every: CHECK_EVERY, look: Arc::new(look) };
        let mut port = self.port(&region, templates, software_checksums, Some(inspect))?;
        let session: Session = self.store.session()?;
        let mut worker = Worker::new(WorkerConfig {
            ports: vec![WorkerPort {
                queues: port.queues.pop().ok_or("no queue")?,
                info: port.info.clone(),
                local: Arc::new(Local::new(MAC, &[(SERVER.0.into(), 24)], SERVER.1)?),
                side_door: None,
                sends_for_kernel: false,
            }],
            region,
            session,
            server: Arc::clone(&self.server),
            group,
            batch: BatchPolicy::default(),
            policy: Policy::default(),
            offload: None,
        });
        let counters = worker.counters();
        // A tenth first, so that caches and branch predictors know the work.
        while counters.answered.get() < self.config.requests / 10 {
            worker.turn();
        }
        let before = counters.answered.get();
        let (cpu, wall) = (thread_cpu(), Instant::now());
        while counters.answered.get() - before < self.config.requests {
            worker.turn();
        }
        let (cpu, wall) = (thread_cpu() - cpu, wall.elapsed());
        let answered = counters.answered.get();
        if !counters.ledger().balances() {
            return Err(format!("frames are unaccounted for: {:?}", counters.ledger()).into());
        }
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = kept.replies().filter(|reply| !load.is_right(self.config.shape, reply));
        Ok(Run {
            cpu_ns: per(cpu, answered - before),
            wall_ns: per(wall, answered - before),
            answered,
            checked: kept.ends.len() as u64,
            wrong: wrong.count() as u64,
        })
    }
}

fn region() -> Result<Region, Box<dyn Error>> {
    Ok(Region::new(2 * 1024, Pages::Prefer)?)
}
