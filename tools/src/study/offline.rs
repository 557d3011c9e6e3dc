//! The offline study: the whole path of a worker, from frames in memory to replies in memory.
//!
//! As MemcachedGPU's limit study (section 5.5) and MICA's offline test: no NIC, no kernel, one
//! worker on one thread. Requests are uniform over all items, so that nearly every look-up misses
//! the caches. The port copies each request into a slot, as a NIC would write it, and takes each
//! reply back; what that alone costs is measured in the same run and shown beside the rest.

use dataplane::batcher::BatchPolicy;
use dataplane::pipeline::{Worker, WorkerConfig, WorkerPort};
use dataplane::policy::Policy;
use dataplane::protocol::{Server, Store as SetRequest};
use dataplane::store::Session;
use dataplane::store::verbs;
use dataplane::store::{Store, StoreConfig};
use dataplane::wire::Local;
use dataplane::wire::build::UdpFrame;
use driver_shim::ports::memory::{Inspect, LoopingConfig, MAC, PEER_MAC, looping};
use driver_shim::{Burst, Frame, Pages, Port, Region, RxChecksum, TxCaps};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Frames that circulate in the looping port: a NIC's receive ring.
const RING_FRAMES: usize = 1024;
/// Every how many replies one is checked to the byte. A prime, so that checks do not fall in step
/// with bursts.
const CHECK_EVERY: NonZeroU64 = NonZeroU64::MIN.saturating_add(96);
/// The worker's address.
pub(crate) const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 2), 11_211);
/// The client's.
const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 40_000);
/// Where the text of a reply begins: Ethernet, IPv4, UDP and memcached headers.
pub(crate) const TEXT_AT: usize = 14 + 20 + 8 + 8;

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Items in the store.
    pub items: u64,
    /// Bytes of every key.
    pub key_bytes: usize,
    /// Bytes of every value.
    pub value_bytes: usize,
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
    /// Requests whose memory accesses overlap.
    pub group: usize,
    /// Whether checksums were verified and made in software.
    pub software_checksums: bool,
    /// CPU time of the thread per request, in nanoseconds, the port's part included.
    pub cpu_ns: f64,
    /// Elapsed time per request, in nanoseconds.
    pub wall_ns: f64,
    /// Requests answered.
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
    templates: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The key of item `i`, of exactly `bytes` bytes (at least its decimal digits).
pub fn key(i: u64, bytes: usize) -> Vec<u8> {
    format!("{i:0bytes$}").into_bytes()
}

/// The value of item `i`: its number over and over, so that a reply can be checked from its key.
pub fn value(i: u64, bytes: usize) -> Vec<u8> {
    i.to_string().bytes().cycle().take(bytes).collect()
}

impl Bench {
    /// Fills a store and prepares the request frames.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(config: Config) -> Result<Self, Box<dyn Error>> {
        let per_item = (config.key_bytes + config.value_bytes + 64).next_multiple_of(64) + 16;
        let memory_bytes = usize::try_from(config.items)? * per_item * 5 / 4 + (64 << 20);
        let store = Store::new(StoreConfig { memory_bytes, ..StoreConfig::default() })?;
        let mut session = store.session()?;
        for i in 0..config.items {
            let (key, value) = (key(i, config.key_bytes), value(i, config.value_bytes));
            if verbs::store(&mut session, &SetRequest::set(&key, 0, 0, &value)).is_err() {
                return Err(format!("item {i} did not fit in {memory_bytes} bytes").into());
            }
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(config.seed);
        let templates = (0..config.frames)
            .map(|_| request(&key(rng.random_range(0..config.items), config.key_bytes), 0))
            .collect::<Option<Vec<_>>>()
            .ok_or("a request does not fit a frame")?;
        let server = Arc::new(Server::new(Arc::clone(&store), "study".to_owned()));
        Ok(Self { config, store, server, templates })
    }

    /// The store, for its report of pages and sizes.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    fn port(
        &self,
        region: &Region,
        software: bool,
        inspect: Option<Inspect>,
    ) -> Result<Port, Box<dyn Error>> {
        let hardware = !software;
        Ok(looping(
            region,
            &LoopingConfig {
                templates: self.templates.clone(),
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
    pub fn port_alone(&self) -> Result<f64, Box<dyn Error>> {
        let region = region()?;
        let mut port = self.port(&region, true, None)?;
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

    /// Runs the whole path with the given group size.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn whole_path(
        &self,
        group: usize,
        software_checksums: bool,
    ) -> Result<Run, Box<dyn Error>> {
        let region = region()?;
        let checked = Arc::new(AtomicU64::new(0));
        let wrong = Arc::new(AtomicU64::new(0));
        let Config { key_bytes, value_bytes, .. } = self.config;
        let look = {
            let (checked, wrong) = (Arc::clone(&checked), Arc::clone(&wrong));
            move |_queue: usize, frame: &Frame| {
                checked.fetch_add(1, Ordering::Relaxed);
                if !is_right(frame.bytes(), key_bytes, value_bytes) {
                    wrong.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let inspect = Inspect { every: CHECK_EVERY, look: Arc::new(look) };
        let mut port = self.port(&region, software_checksums, Some(inspect))?;
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
        let answered = counters.answered.get() - before;
        if !counters.ledger().balances() {
            return Err(format!("frames are unaccounted for: {:?}", counters.ledger()).into());
        }
        Ok(Run {
            group,
            software_checksums,
            cpu_ns: per(cpu, answered),
            wall_ns: per(wall, answered),
            answered,
            checked: checked.load(Ordering::Relaxed),
            wrong: wrong.load(Ordering::Relaxed),
        })
    }
}

fn region() -> Result<Region, Box<dyn Error>> {
    Ok(Region::new(2 * 1024, Pages::Prefer)?)
}

/// The frame that asks for `key`, as the request of number `id`.
pub(crate) fn request(key: &[u8], id: u16) -> Option<Vec<u8>> {
    let payload = [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0], &b"get "[..], key, b"\r\n"].concat();
    UdpFrame {
        src_mac: PEER_MAC,
        dst_mac: MAC,
        vlans: &[],
        src: SocketAddr::from(CLIENT),
        dst: SocketAddr::from(SERVER),
        payload: &payload,
    }
    .to_vec()
}

/// Whether a reply frame holds exactly one value, the one that belongs to its key.
pub(crate) fn is_right(frame: &[u8], key_bytes: usize, value_bytes: usize) -> bool {
    let text = frame.get(TEXT_AT..).unwrap_or_default();
    let Some(key) = text.get(6..6 + key_bytes) else { return false };
    let Some(i) = std::str::from_utf8(key).ok().and_then(|k| k.parse().ok()) else { return false };
    let want = format!(
        "VALUE {} 0 {value_bytes}\r\n{}\r\nEND\r\n",
        String::from_utf8_lossy(key),
        String::from_utf8_lossy(&value(i, value_bytes))
    );
    text == want.as_bytes()
}

fn per(time: Duration, requests: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count below 2^52")]
    let n = requests.max(1) as f64;
    time.as_secs_f64() * 1e9 / n
}

fn thread_cpu() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}
