//! The limit study: the whole pipeline, from requests in memory to replies in memory, on the
//! processor alone and with a card beside it, in one run.
//!
//! As MemcachedGPU's offline study, but with the real store, real values and real replies: every
//! reply's bytes leave the worker, and each so many-th is compared with what it must be. In: a card,
//! how many items. Out: rates, each beside the measured roof. Fails on a wrong reply, on frames that
//! are unaccounted for, and as the card does.

use super::Extent;
use crate::report::Report;
use crate::study::engine::{Beside, FEED, Way};
use crate::study::load::{Load, SERVER, Shape};
use crate::workload::{Popularity, Sampler};
use dataplane::batcher::{BatchMode, BatchPolicy};
use dataplane::pipeline::{Worker, WorkerConfig, WorkerPort};
use dataplane::policy::Policy;
use dataplane::protocol::{Server, Store as SetRequest};
use dataplane::store::{Store, StoreConfig, verbs};
use dataplane::wire::Local;
use driver_shim::ports::memory::{Inspect, LoopingConfig, MAC, looping};
use driver_shim::{Frame, Pages, Region, RxChecksum, TxCaps};
use gpu::card::Card;
use gpu::index::{Feed, IndexKind, Updater};
use gpu::offload::Mode;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use std::error::Error;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Keys and values.
const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 64 };
/// Every how many replies one is compared. A prime, so that it does not fall in step with bursts.
const CHECK_EVERY: NonZeroU64 = NonZeroU64::MIN.saturating_add(96);
/// Requests whose memory accesses overlap in the CPU engine.
const GROUP: usize = 32;
/// Longest time for a batch: any figure above it would be worth nothing.
const DEADLINE: Duration = Duration::from_secs(2);

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// `None`: the processor alone.
    card: Option<(Mode, IndexKind, usize)>,
    workers: usize,
    batch: usize,
    /// Of a hundred requests, how many are for keys that are there.
    hits: u32,
    zipf: bool,
    sets: bool,
}

/// What one measurement gave.
struct Outcome {
    per_s: f64,
    sets_per_s: f64,
    checked: u64,
    wrong: u64,
}

/// A filled store and a card.
pub struct Study {
    card: Arc<dyn Card>,
    store: Arc<Store>,
    server: Arc<Server>,
    feed: Arc<Feed>,
    items: u64,
    extent: Extent,
}

impl std::fmt::Debug for Study {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Study").field("items", &self.items).finish_non_exhaustive()
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

impl Study {
    /// Fills a store with `items` items.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(card: &Arc<dyn Card>, items: u64, extent: Extent) -> Result<Self> {
        let per_item = SHAPE.item_bytes() + 16;
        let memory_bytes = usize::try_from(items)? * per_item * 5 / 4 + (64 << 20);
        let store = Store::new(StoreConfig { memory_bytes, ..StoreConfig::default() })?;
        let feed = Arc::new(Feed::new(FEED));
        let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64).min(8);
        let all: std::result::Result<Vec<()>, String> = thread::scope(|scope| {
            let parts: Vec<_> = (0..threads)
                .map(|part| {
                    let store = &store;
                    scope.spawn(move || {
                        let mut session = store.session().map_err(|e| e.to_string())?;
                        for i in (part..items).step_by(usize::try_from(threads).unwrap_or(1)) {
                            let (key, value) = (SHAPE.key(i), SHAPE.value(i));
                            verbs::store(&mut session, &SetRequest::set(&key, 0, 0, &value))
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
        store.feed_replica(Arc::clone(&feed));
        let server = Arc::new(Server::new(Arc::clone(&store), "study".to_owned()));
        Ok(Self { card: Arc::clone(card), store, server, feed, items, extent })
    }

    /// Measures one thing after the other, the most telling first, as long as there is time.
    ///
    /// # Errors
    /// A wrong reply, or what the card says.
    pub fn run(&self, report: &mut Report) -> Result<()> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let most = cores.saturating_sub(2).clamp(1, 14);
        let places = self.extent.pick(8, 2);
        let full = Case {
            card: Some((Mode::Persistent, IndexKind::SetAssoc, places)),
            workers: most,
            batch: self.extent.pick(512, 64),
            hits: 100,
            zipf: false,
            sets: false,
        };
        let alone = Case { card: None, ..full };
        let mut cases = Vec::new();
        for mode in [Mode::Persistent, Mode::Graph, Mode::Launch] {
            for kind in [IndexKind::SetAssoc, IndexKind::Cuckoo] {
                cases.push(("modes", Case { card: Some((mode, kind, places)), ..full }));
            }
        }
        cases.push(("modes", alone));
        for case in [full, alone] {
            let mut workers = 1;
            while workers < most {
                cases.push(("workers", Case { workers, ..case }));
                workers *= 2;
            }
            cases.push(("workers", Case { workers: most, ..case }));
            for hits in [100, 85, 0] {
                for zipf in [false, true] {
                    cases.push(("load", Case { hits, zipf, ..case }));
                }
            }
            cases.push(("sets", Case { sets: true, ..case }));
        }
        for mode in [Mode::Persistent, Mode::Graph, Mode::Launch] {
            for places in self.extent.pick(&[1, 2, 4, 8, 16][..], &[1]) {
                let card = Some((mode, IndexKind::SetAssoc, *places));
                cases.push(("in_flight", Case { card, workers: 1, ..full }));
            }
        }
        for batch in self.extent.pick(&[32, 64, 128, 256, 512, 1024, 2048, 4096][..], &[32]) {
            cases.push(("batch", Case { batch: *batch, ..full }));
        }
        for (table, case) in cases {
            if !self.extent.goes_on() {
                break;
            }
            let roof = roof(report, case);
            let row = match self.measure(case) {
                Ok(outcome) => row(case, &outcome, roof),
                // A grid that does not fit the card, say, is no reason to stop.
                Err(why) if !why.to_string().contains("wrong") => {
                    json!({ "engine": engine(case), "refused": why.to_string() })
                }
                Err(why) => return Err(why),
            };
            report.row(table, row)?;
        }
        Ok(())
    }

    fn measure(&self, case: Case) -> Result<Outcome> {
        let in_flight = case.card.map_or(2, |(_, _, places)| places + 1);
        let frames = case.batch * (in_flight + 1) + 64;
        let region = Region::new(u32::try_from(case.workers * frames + 1024)?, Pages::Prefer)?;
        let checks = Arc::new(Checks::default());
        let look = Arc::clone(&checks);
        let mut port = looping(
            &region,
            &LoopingConfig {
                templates: self.requests(case)?,
                queues: case.workers,
                frames_per_queue: frames,
                rx: RxChecksum::default(),
                tx_caps: TxCaps::default(),
                inspect: Some(Inspect {
                    every: CHECK_EVERY,
                    look: Arc::new(move |_, frame: &Frame| look.look(frame.bytes())),
                }),
            },
        )?;
        let mut card = match case.card {
            Some((mode, kind, places)) => {
                let deadline = self.extent.pick(DEADLINE, 20 * DEADLINE);
                let way = Way { mode, kind, places, deadline, forced: true };
                let store = (&self.store, &self.feed);
                Some(Beside::open(&self.card, way, &region, store, (self.items, SHAPE))?)
            }
            None => None,
        };
        let local = Arc::new(Local::new(MAC, &[(SERVER.0.into(), 24)], SERVER.1)?);
        let mut workers = Vec::new();
        while let Some(queues) = port.queues.pop() {
            let offload = card.as_ref().map(|card| card.engine(case.batch)).transpose()?;
            workers.push(Worker::new(WorkerConfig {
                ports: vec![WorkerPort {
                    queues,
                    info: port.info.clone(),
                    local: Arc::clone(&local),
                    side_door: None,
                    sends_for_kernel: false,
                    announcer: None,
                }],
                region: region.clone(),
                session: self.store.session()?,
                server: Arc::clone(&self.server),
                group: GROUP,
                batch: BatchPolicy {
                    size: case.batch,
                    mode: BatchMode::Fixed,
                    in_flight_max: in_flight,
                },
                policy: Policy::default(),
                offload,
            }));
        }
        let updater = card.as_mut().and_then(|card| card.updater.take());
        let (per_s, sets_per_s) = self.drive(workers, updater, case.sets)?;
        card.map_or(Ok(()), |card| card.is_well())?;
        let (checked, wrong) =
            (checks.seen.load(Ordering::Relaxed), checks.wrong.load(Ordering::Relaxed));
        if wrong > 0 {
            return Err(format!("{wrong} wrong replies of {checked}").into());
        }
        Ok(Outcome { per_s, sets_per_s, checked, wrong })
    }

    /// Requests answered and items written a second, by workers that run for a while.
    fn drive(
        &self,
        workers: Vec<Worker>,
        updater: Option<Updater>,
        sets: bool,
    ) -> Result<(f64, f64)> {
        let stop = AtomicBool::new(false);
        let written = AtomicU64::new(0);
        let counters: Vec<_> = workers.iter().map(Worker::counters).collect();
        let answered = || counters.iter().map(|c| c.answered.get()).sum::<u64>();
        let length = self.extent.pick(Duration::from_millis(400), Duration::from_millis(20));
        let mut session = self.store.session()?;
        let measured = thread::scope(|scope| {
            if let Some(updater) = updater {
                scope.spawn(|| updater.run(&stop));
            }
            if sets {
                let (stop, written) = (&stop, &written);
                scope.spawn(move || {
                    let mut i = 0;
                    while !stop.load(Ordering::Relaxed) {
                        i = (i + 7919) % self.items;
                        let (key, value) = (SHAPE.key(i), SHAPE.value(i));
                        if verbs::store(&mut session, &SetRequest::set(&key, 0, 0, &value)).is_ok()
                        {
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for mut worker in workers {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        worker.turn();
                    }
                    worker.drain();
                });
            }
            // A quarter first, so that caches, branch predictors and clocks know the work; on a slow
            // machine at least until there is something to count.
            let begun = Instant::now();
            while begun.elapsed() < length / 4 || answered() == 0 && begun.elapsed() < 20 * length {
                thread::sleep(length / 16);
            }
            let (begun, from, set) = (Instant::now(), answered(), written.load(Ordering::Relaxed));
            while begun.elapsed() < length || answered() == from && begun.elapsed() < 100 * length {
                thread::sleep(length / 16);
            }
            let seconds = begun.elapsed().as_secs_f64();
            let done = answered() - from;
            let set = written.load(Ordering::Relaxed) - set;
            stop.store(true, Ordering::Relaxed);
            (done as f64 / seconds, set as f64 / seconds)
        });
        if let Some(off) = counters.iter().find(|c| !c.ledger().balances()) {
            return Err(format!("wrong: frames are unaccounted for: {:?}", off.ledger()).into());
        }
        Ok(measured)
    }

    /// The frames that ask.
    fn requests(&self, case: Case) -> Result<Vec<Vec<u8>>> {
        let popularity = if case.zipf { Popularity::Zipf(0.99) } else { Popularity::Uniform };
        let mut sampler = Sampler::new(self.items, popularity).ok_or("no such popularity")?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let frames = (0..self.extent.pick(1 << 20, 1 << 10)).map(|_| {
            let hit = rng.random_range(0..100) < case.hits;
            let load = if hit { Load::Get } else { Load::Miss };
            load.request(SHAPE, &[sampler.read(&mut rng)], self.items)
        });
        frames.collect::<Option<_>>().ok_or_else(|| "a request does not fit a frame".into())
    }
}

/// Compares replies.
#[derive(Debug, Default)]
struct Checks {
    seen: AtomicU64,
    wrong: AtomicU64,
}

impl Checks {
    fn look(&self, frame: &[u8]) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        if !SHAPE.is_right(frame) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reads of host memory that the card managed beside writes, a packet each: what bounds requests
/// that a card takes from there. For the processor: values that it filled, with as many threads.
fn roof(report: &Report, case: Case) -> Option<(&'static str, f64)> {
    let max = |rows: &[Value], field: &str, which: &dyn Fn(&Value) -> bool| {
        let rates = rows.iter().filter(|row| which(row)).filter_map(|row| row.get(field)?.as_f64());
        rates.reduce(f64::max)
    };
    if case.card.is_some() {
        let which =
            |row: &Value| row["writes"] == true && row["random"] == true && row["item_bytes"] == 96;
        let rate = max(report.rows("host_reads"), "reads_per_s", &which)?;
        return Some(("reads of packets with writes, by the card", rate));
    }
    let which = |row: &Value| row["what"] == "value fill, 64 B";
    let each = max(report.rows("cpu"), "per_s_and_thread", &which)?;
    Some(("value fill, by the processor", each * case.workers as f64))
}

fn engine(case: Case) -> String {
    match case.card {
        None => "cpu".to_owned(),
        Some((mode, kind, _)) => format!("{} {}", mode.name(), kind.name()),
    }
}

fn row(case: Case, outcome: &Outcome, roof: Option<(&str, f64)>) -> Value {
    let places = case.card.map_or(0, |(_, _, places)| places);
    let in_flight = places * case.batch * case.workers;
    json!({
        "engine": engine(case),
        "workers": case.workers,
        "batch": case.batch,
        "in_flight": places,
        "hits": case.hits,
        "popularity": if case.zipf { "zipf 0.99" } else { "uniform" },
        "requests_per_s": outcome.per_s,
        "sets_per_s": outcome.sets_per_s,
        // Little's law, with every place taken: what a batch takes from its start to its replies.
        "us_per_batch": (places > 0).then(|| in_flight as f64 / outcome.per_s * 1e6),
        "roof": roof.map(|(name, _)| name),
        "roof_per_s": roof.map(|(_, rate)| rate),
        "of_roof": roof.map(|(_, rate)| outcome.per_s / rate),
        "checked": outcome.checked,
        "wrong": outcome.wrong,
    })
}
