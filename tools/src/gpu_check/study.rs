//! The limit study: the whole pipeline, from requests in memory to replies in memory, on the
//! processor alone and with a GPU beside it, in one run.
//!
//! As MemcachedGPU's offline study, but with the real store, real values and real replies: every
//! reply's bytes leave the worker, and each so many-th is compared with what it must be. In: a GPU,
//! how many items. Out: rates, each beside the measured roof. Fails on a wrong reply, on frames that
//! are unaccounted for, and as the GPU does.

use super::lab::{BATCH_MAX, HOW, How, Lab, SHAPE, name};
use super::{Extent, Result, goals};
use crate::report::Report;
use crate::study::load::SERVER;
use dataplane::WorkerCounters;
use dataplane::stages::batch::{BatchMode, BatchPolicy};
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use driver_shim::ports::memory::{Inspect, LoopingConfig, MAC, looping};
use driver_shim::{Frame, RxChecksum, TxCaps};
use gpu::index::{IndexKind, Updater};
use gpu::offload::Mode;
use memcache::Store as SetRequest;
use serde_json::{Value, json};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use store::verbs;
use wire::Local;

/// Every how many replies one is compared. A prime, so that it does not fall in step with bursts.
const CHECK_EVERY: NonZeroU64 = NonZeroU64::MIN.saturating_add(96);
/// Batches in flight where the processor is the engine.
const CPU_IN_FLIGHT: usize = 2;
/// Items written a second beside whole replies.
const WRITTEN_PER_S: [f64; 4] = [0.0, 2e5, 1e6, 5e6];
/// Most items that a thread writes a second.
const WRITES_MAX: f64 = 1.25e6;
/// Writes between two looks at the clock.
const WRITES_AT_ONCE: u64 = 32;

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// `None`: the processor alone.
    card: Option<How>,
    workers: usize,
    batch: usize,
    in_flight: usize,
    /// The device prepares reply headers.
    heads: bool,
    /// Of a hundred requests, how many are for keys that are there.
    hits: u32,
    zipf: bool,
    /// Items to be written a second; infinite: as many as one thread can.
    sets: f64,
}

impl Case {
    /// Threads that write them.
    fn writers(&self) -> usize {
        (1..=8).find(|n| *n as f64 * WRITES_MAX >= self.sets).unwrap_or(1)
            * usize::from(self.sets > 0.0)
    }
}

/// What one measurement gave.
struct Outcome {
    per_s: f64,
    sets_per_s: f64,
    checked: u64,
    wrong: u64,
    /// Of the answers those that the device wrote whole, and those of them that were not taken.
    accepted: f64,
    stale: f64,
}

/// The whole pipeline over a [`Lab`].
#[derive(Debug)]
pub struct Study<'a> {
    lab: &'a mut Lab,
    extent: Extent,
}

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
            in_flight: self.lab.in_flight(),
            heads: false,
            hits: 100,
            zipf: false,
            sets: 0.0,
        }
    }

    /// Every mode and index once, the processor alone, and both beside a thread that writes.
    ///
    /// # Errors
    /// A wrong reply, or what the device says; what it refused is a row, and the others go on.
    pub fn end_to_end(&mut self, report: &mut Report) -> Result<()> {
        let full = self.full();
        let alone = Case { card: None, in_flight: CPU_IN_FLIGHT, ..full };
        let mut cases = vec![("modes", alone), ("sets", Case { sets: f64::INFINITY, ..alone })];
        for how in HOW {
            let case = Case { card: Some(how), ..full };
            // What is in flight stays in the processor's cache, or does not.
            for in_flight in self.extent.pick(&[2, 3, 4, 8][..], &[2]) {
                cases.push(("modes", Case { in_flight: *in_flight, ..case }));
            }
            if how.0 == Mode::Persistent {
                cases.push(("sets", Case { sets: f64::INFINITY, ..case }));
                cases.push(("modes", Case { heads: true, ..case }));
            }
        }
        self.run(&cases, report)
    }

    /// Whole replies of the device, by the size of batches, and beside threads that write.
    ///
    /// # Errors
    /// As [`Self::end_to_end`].
    pub(super) fn whole(&mut self, how: How, report: &mut Report) -> Result<()> {
        let full = self.full();
        let mut cases = Vec::new();
        for batch in self.extent.pick(&[256, 512, 1024][..], &[64]) {
            for in_flight in self.extent.pick(&[2, 4][..], &[2]) {
                let case = Case { card: Some(how), batch: *batch, in_flight: *in_flight, ..full };
                cases.push(("whole", case));
            }
        }
        for sets in WRITTEN_PER_S {
            let case = Case { card: Some(how), in_flight: full.in_flight.min(4), sets, ..full };
            // All threads together have a processor each.
            let workers = full.workers.saturating_sub(case.writers()).max(1);
            cases.push(("whole_beside_sets", Case { workers, ..case }));
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
                    let why = why.to_string();
                    refused.get_or_insert_with(|| why.clone());
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
            Some(how) => self.lab.engines((how, case.heads), case.workers, case.batch)?,
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
        let mut workers = Vec::new();
        while let Some(queues) = port.queues.pop() {
            let ports = vec![WorkerPort::new(queues, port.info.clone(), Arc::clone(&local))];
            let (session, server) = (self.lab.store().session()?, Arc::clone(&self.lab.server));
            workers.push(Worker::new(WorkerConfig {
                batch: BatchPolicy {
                    size: case.batch,
                    // Alone it has no batches: the fast path answers burst by burst.
                    mode: match case.card {
                        Some(_) => BatchMode::Fixed,
                        None => BatchMode::Adaptive,
                    },
                    in_flight_max: case.in_flight,
                    ..BatchPolicy::default()
                },
                offload: engines.pop(),
                ..WorkerConfig::new(ports, region.clone(), session, server)
            }));
        }
        self.lab.ready()?;
        let updater = match case.card {
            Some(_) => {
                Some(self.lab.updater()?.take().ok_or("nothing keeps the index up to date")?)
            }
            None => None,
        };
        let (mut outcome, updater) = self.drive(workers, updater, case)?;
        if updater.is_some() {
            *self.lab.updater()? = updater;
        }
        self.lab.is_well()?;
        outcome.checked = checks.seen.load(Ordering::Relaxed);
        outcome.wrong = checks.wrong.load(Ordering::Relaxed);
        if outcome.wrong > 0 {
            return Err(format!("{} wrong replies of {}", outcome.wrong, outcome.checked).into());
        }
        Ok(outcome)
    }

    /// What workers that run for a while answer. No reply is looked at yet.
    fn drive(
        &self,
        workers: Vec<Worker>,
        updater: Option<Updater>,
        case: Case,
    ) -> Result<(Outcome, Option<Updater>)> {
        let stop = AtomicBool::new(false);
        let written = AtomicU64::new(0);
        let counters: Vec<_> = workers.iter().map(Worker::counters).collect();
        let sum = |read: fn(&WorkerCounters) -> u64| counters.iter().map(|c| read(c)).sum::<u64>();
        let answered = || sum(|c| c.answered.get());
        let accepted = || sum(|c| c.replies_accepted.get());
        let stale = || sum(|c| c.replies_changed.get() + c.replies_cleared.get());
        let length = self.extent.pick(Duration::from_millis(400), Duration::from_millis(20));
        let sessions: std::result::Result<Vec<_>, _> =
            (0..case.writers()).map(|_| self.lab.store().session()).collect();
        let (sessions, items) = (sessions?, self.lab.items);
        let each = case.sets / sessions.len().max(1) as f64;
        let measured = thread::scope(|scope| {
            let updates = updater.map(|updater| scope.spawn(|| updater.run(&stop)));
            for (n, mut session) in sessions.into_iter().enumerate() {
                let (stop, written) = (&stop, &written);
                scope.spawn(move || {
                    let (mut i, mut made, begun) = (n as u64 * items / 8, 0, Instant::now());
                    while !stop.load(Ordering::Relaxed) {
                        if made as f64 > each * begun.elapsed().as_secs_f64() {
                            std::hint::spin_loop();
                            continue;
                        }
                        for _ in 0..WRITES_AT_ONCE {
                            i = (i + 7919) % items;
                            let (key, value) = (SHAPE.key(i), SHAPE.value(i));
                            let request = SetRequest::set(&key, 0, 0, &value);
                            if verbs::store(&mut session, None, &request).is_ok() {
                                written.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        made += WRITES_AT_ONCE;
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
            let (taken, not) = (accepted(), stale());
            while begun.elapsed() < length || answered() == from && begun.elapsed() < 100 * length {
                thread::sleep(length / 16);
            }
            let seconds = begun.elapsed().as_secs_f64();
            let done = answered() - from;
            let set = written.load(Ordering::Relaxed) - set;
            let share = |n: u64| n as f64 / done.max(1) as f64;
            let (accepted, stale) = (share(accepted() - taken), share(stale() - not));
            stop.store(true, Ordering::Relaxed);
            let (per_s, sets_per_s) = (done as f64 / seconds, set as f64 / seconds);
            let updater = updates.and_then(|updates| updates.join().ok());
            (Outcome { per_s, sets_per_s, checked: 0, wrong: 0, accepted, stale }, updater)
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
    let whole = case.card.is_some_and(|(_, kind)| kind == IndexKind::Rows);
    json!({
        "engine": engine(case),
        "workers": case.workers,
        "batch": case.batch,
        "in_flight": case.card.map(|_| case.in_flight),
        "heads": case.card.map(|_| case.heads),
        "hits": case.hits,
        "popularity": if case.zipf { "zipf 0.99" } else { "uniform" },
        "requests_per_s": outcome.per_s,
        "sets_per_s": outcome.sets_per_s,
        "accepted": whole.then_some(outcome.accepted),
        "stale": whole.then_some(outcome.stale),
        "roof": roof.map(|(name, _)| name),
        "roof_per_s": roof.map(|(_, rate)| rate),
        "of_roof": roof.map(|(_, rate)| outcome.per_s / rate),
        "checked": outcome.checked,
        "wrong": outcome.wrong,
    })
}
