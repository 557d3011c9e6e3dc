//! The limit study: the whole pipeline, from requests in memory to replies in memory, on the
//! processor alone and with a GPU beside it, in one run.
//!
//! As MemcachedGPU's offline study, but with the real store, real values and real replies: every
//! reply's bytes leave the worker, and each so many-th is compared with what it must be. In: a GPU,
//! how many items. Out: rates, each beside the measured roof. Fails on a wrong reply, on frames that
//! are unaccounted for, and as the GPU does.

use super::lab::{BATCH_MAX, HOW, How, Lab, SHAPE, name};
use super::{Extent, goals};
use crate::report::Report;
use crate::study::load::SERVER;
use dataplane::policy::Policy;
use dataplane::stages::batch::{BatchMode, BatchPolicy};
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use driver_shim::ports::memory::{Inspect, LoopingConfig, MAC, looping};
use driver_shim::{Frame, RxChecksum, TxCaps};
use gpu::index::{IndexKind, Updater};
use gpu::offload::Mode;
use memcache::Store as SetRequest;
use serde_json::{Value, json};
use std::error::Error;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use store::verbs;
use wire::Local;

/// Every how many replies one is compared. A prime, so that it does not fall in step with bursts.
const CHECK_EVERY: NonZeroU64 = NonZeroU64::MIN.saturating_add(96);
/// Requests whose memory accesses overlap in the CPU engine.
const GROUP: usize = 32;
/// Batches in flight where the processor is the engine.
const CPU_IN_FLIGHT: usize = 2;

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// `None`: the processor alone.
    card: Option<How>,
    workers: usize,
    batch: usize,
    in_flight: usize,
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

/// The whole pipeline over a [`Lab`].
#[derive(Debug)]
pub struct Study<'a> {
    lab: &'a mut Lab,
    extent: Extent,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

impl<'a> Study<'a> {
    /// Over this store and device.
    pub fn new(lab: &'a mut Lab, extent: Extent) -> Self {
        Self { lab, extent }
    }

    fn full(&self) -> Case {
        Case {
            card: Some((Mode::Persistent, IndexKind::SetAssoc)),
            workers: self.lab.workers(),
            batch: self.extent.pick(512, 64),
            in_flight: self.lab.places(),
            hits: 100,
            zipf: false,
            sets: false,
        }
    }

    /// Every mode and index once, the processor alone, and both beside a thread that writes.
    ///
    /// # Errors
    /// A wrong reply, or what the device says; what it refused is a row, and the others go on.
    pub fn end_to_end(&mut self, report: &mut Report) -> Result<()> {
        let full = self.full();
        let alone = Case { card: None, in_flight: CPU_IN_FLIGHT, ..full };
        let mut cases = vec![("modes", alone), ("sets", Case { sets: true, ..alone })];
        for how in HOW {
            let case = Case { card: Some(how), ..full };
            cases.push(("modes", case));
            if how.0 == Mode::Persistent {
                cases.push(("sets", Case { sets: true, ..case }));
            }
        }
        self.run(&cases, report)
    }

    /// By workers, hits, popularity, batches in flight and their size: as long as there is time.
    ///
    /// # Errors
    /// As [`Self::end_to_end`].
    pub fn sweeps(&mut self, report: &mut Report) -> Result<()> {
        let full = self.full();
        let alone = Case { card: None, in_flight: CPU_IN_FLIGHT, ..full };
        let mut cases = Vec::new();
        // The device's first, so that its index is made once.
        for batch in self.extent.pick(&[32, 64, 128, 256, 512, 1024, 2048, BATCH_MAX][..], &[32]) {
            cases.push(("batch", Case { batch: *batch, ..full }));
        }
        for case in [full, alone] {
            let mut workers = 1;
            while workers < full.workers {
                cases.push(("workers", Case { workers, ..case }));
                workers *= 2;
            }
            cases.push(("workers", case));
            for (hits, zipf) in [(100, true), (85, false), (85, true), (0, false)] {
                cases.push(("load", Case { hits, zipf, ..case }));
            }
        }
        for mode in [Mode::Persistent, Mode::Graph, Mode::Launch] {
            for in_flight in self.extent.pick(&[1, 2, 4, 8][..], &[1]) {
                let card = Some((mode, IndexKind::SetAssoc));
                let case = Case { card, workers: 1, in_flight: *in_flight, ..full };
                cases.push(("in_flight", case));
            }
        }
        self.run(&cases, report)
    }

    fn run(&mut self, cases: &[(&str, Case)], report: &mut Report) -> Result<()> {
        let mut refused = None;
        for (table, case) in cases {
            if !self.extent.goes_on() {
                break;
            }
            let roof = roof(report, *case);
            let row = match self.measure(*case) {
                Ok(outcome) => row(*case, &outcome, roof),
                // A grid that does not fit the device, say, is no reason to stop.
                Err(why) if !why.to_string().contains("wrong") => {
                    let why = refused.insert(why.to_string());
                    json!({ "engine": engine(*case), "workers": case.workers, "batch": case.batch,
                            "refused": why })
                }
                Err(why) => return Err(why),
            };
            report.row(table, row)?;
        }
        refused.map_or(Ok(()), |why| Err(why.into()))
    }

    fn measure(&mut self, case: Case) -> Result<Outcome> {
        let frames = case.batch * (case.in_flight + 2);
        let requests = self.extent.pick(1 << 20, 1 << 10);
        let templates = self.lab.requests(requests, case.hits, case.zipf)?;
        let region = self.lab.region()?;
        let mut engines = match case.card {
            Some(how) => self.lab.engines(how, case.workers, case.batch)?,
            None => Vec::new(),
        };
        // After a fault, engines are over other memory.
        let region = if case.card.is_some() { self.lab.region()? } else { region };
        let checks = Arc::new(Checks::default());
        let look = Arc::clone(&checks);
        let mut port = looping(
            &region,
            &LoopingConfig {
                templates,
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
        let local = Arc::new(Local::new(MAC, &[(SERVER.0.into(), 24)], SERVER.1)?);
        let updater = case.card.map(|_| self.lab.updater()).transpose()?;
        let mut workers = Vec::new();
        while let Some(queues) = port.queues.pop() {
            workers.push(Worker::new(WorkerConfig {
                ports: vec![WorkerPort {
                    queues,
                    info: port.info.clone(),
                    local: Arc::clone(&local),
                    exception_path: None,
                    sends_for_kernel: false,
                    announcer: None,
                }],
                region: region.clone(),
                session: self.lab.store.session()?,
                server: Arc::clone(&self.lab.server),
                group: GROUP,
                batch: BatchPolicy {
                    size: case.batch,
                    mode: BatchMode::Fixed,
                    in_flight_max: case.in_flight,
                },
                policy: Policy::default(),
                offload: engines.pop(),
                streams: None,
                fast_path: Default::default(),
            }));
        }
        self.lab.ready()?;
        let (per_s, sets_per_s) = self.drive(workers, updater, case.sets)?;
        self.lab.is_well()?;
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
        let (mut session, items) = (self.lab.store.session()?, self.lab.items);
        let measured = thread::scope(|scope| {
            if let Some(updater) = updater {
                scope.spawn(|| updater.run(&stop));
            }
            if sets {
                let (stop, written) = (&stop, &written);
                scope.spawn(move || {
                    let mut i = 0;
                    while !stop.load(Ordering::Relaxed) {
                        i = (i + 7919) % items;
                        let (key, value) = (SHAPE.key(i), SHAPE.value(i));
                        if verbs::store(&mut session, None, &SetRequest::set(&key, 0, 0, &value))
                            .is_ok()
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

/// What bounds a case: packets that the device reads from the host's memory, or values that so many
/// threads fill.
fn roof(report: &Report, case: Case) -> Option<(&'static str, f64)> {
    match case.card {
        Some(_) => goals::packets(report),
        None => goals::fills(report, case.workers),
    }
}

fn engine(case: Case) -> String {
    case.card.map_or_else(|| "cpu".to_owned(), name)
}

fn row(case: Case, outcome: &Outcome, roof: Option<(&str, f64)>) -> Value {
    json!({
        "engine": engine(case),
        "workers": case.workers,
        "batch": case.batch,
        "in_flight": case.card.map(|_| case.in_flight),
        "hits": case.hits,
        "popularity": if case.zipf { "zipf 0.99" } else { "uniform" },
        "requests_per_s": outcome.per_s,
        "sets_per_s": outcome.sets_per_s,
        "roof": roof.map(|(name, _)| name),
        "roof_per_s": roof.map(|(_, rate)| rate),
        "of_roof": roof.map(|(_, rate)| outcome.per_s / rate),
        "checked": outcome.checked,
        "wrong": outcome.wrong,
    })
}
