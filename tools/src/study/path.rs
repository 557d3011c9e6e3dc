//! The whole path, from frames in memory to replies in memory, by one worker or several.
//!
//! As MemcachedGPU's limit study (section 5.5) and MICA's offline test: no NIC, no kernel. The port
//! copies each request into a slot, as a NIC would write it, and takes each reply back; what that
//! alone costs is measured too. In: a filled store, request frames, how to work. Out: CPU time and
//! elapsed time per request and what each worker counted. Fails on frames that are unaccounted for.

use super::bench::{Bench, Manner};
use super::engine::{VERIFY_EVERY, Way};
use super::load::Shape;
use super::one_sided;
use super::oracle_engine::{AS_A_CARD, Foretold};
use super::{per, thread_cpu};
use dataplane::stages::batch::BatchPolicy;
use dataplane::stages::engine::dispatch::Offloading;
use dataplane::worker::Worker;
use driver_shim::ports::memory::{Inspect, LoopingConfig, looping};
use driver_shim::{Burst, Frame, Pages, Port, Region, RxChecksum, TxCaps};
use gpu::card::Card;
use std::error::Error;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Frames that circulate in each queue of the looping port: a NIC's receive ring.
const RING_FRAMES: usize = 1024;
/// Slots beside those, for replies of several datagrams.
const SPARE_FRAMES: usize = 1024;
/// Every how many replies one is kept, to be checked to the byte when the clock has stopped. A
/// prime, so that checks do not fall in step with bursts.
const CHECK_EVERY: NonZeroU64 = NonZeroU64::MIN.saturating_add(96);
/// Room for kept replies; what comes when it is full is not kept.
const KEPT_MAX_BYTES: usize = 16 << 20;

/// How the path is walked.
#[derive(Clone, Copy)]
pub struct Walk<'a> {
    /// Request frames, over and over.
    pub templates: &'a [Vec<u8>],
    /// Requests of each worker that are measured; a tenth more come before.
    pub requests: u64,
    /// Workers, each on a thread of its own.
    pub workers: usize,
    /// Requests whose memory accesses overlap in the CPU engine.
    pub group: usize,
    /// Checksums are verified and made by the worker, not the port.
    pub software: bool,
    /// What is beside the CPU engine.
    pub beside: Other<'a>,
}

impl<'a> Walk<'a> {
    /// One worker, with the CPU engine alone.
    pub const fn plain(templates: &'a [Vec<u8>], requests: u64, group: usize) -> Self {
        Self { templates, requests, workers: 1, group, software: true, beside: Other::None }
    }
}

/// An engine beside the CPU's.
#[derive(Clone, Copy)]
pub enum Other<'a> {
    /// None.
    None,
    /// A GPU's.
    Card(&'a Arc<dyn Card>, Way),
    /// The oracle engine.
    Foretold(&'a Arc<Foretold>),
}

base::opaque!(Walk<'_>, |it| workers: it.workers);

impl std::fmt::Debug for Other<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Card(..) => "Card",
            Self::Foretold(_) => "Foretold",
        })
    }
}

/// What one worker did while it was measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Share {
    /// CPU time of its thread per request, in nanoseconds, the port's part included, and the oracle engine's not.
    pub cpu_ns: f64,
    /// Elapsed time per request, in nanoseconds.
    pub wall_ns: f64,
    /// Requests answered, those before the clock started included.
    pub answered: u64,
    /// Batches given to an engine.
    pub batches: u64,
    /// Requests in batches that the GPU had.
    pub by_card: u64,
    /// Requests that only the strict parser understood.
    pub slow: u64,
    /// Keys located by an engine that the store confirmed.
    pub hints_right: u64,
    /// And that it did not.
    pub hints_wrong: u64,
    /// Replies begun with a head of another engine's.
    pub heads_used: u64,
    /// Whole ones.
    pub replies_accepted: u64,
}

/// What one measurement gave.
#[derive(Debug, Clone)]
pub struct Run {
    /// Of each worker.
    pub shares: Vec<Share>,
    /// Replies compared.
    pub checked: u64,
    /// Of those, other than they must be.
    pub wrong: u64,
}

impl Run {
    /// Requests answered in all.
    pub fn answered(&self) -> u64 {
        self.shares.iter().map(|share| share.answered).sum()
    }

    /// That replies were checked, and all of them right.
    ///
    /// # Errors
    /// A wrong reply, or too few for one to be checked.
    pub fn is_right(checked: u64, wrong: u64) -> Result<(), String> {
        match (checked, wrong) {
            (0, _) => Err(format!(
                "no reply was checked, one in {CHECK_EVERY} is: ask for more with --requests"
            )),
            (_, 0) => Ok(()),
            _ => Err("a reply was not what it must be".to_owned()),
        }
    }

    /// CPU time per request, in nanoseconds.
    pub fn cpu_ns(&self) -> f64 {
        let all: f64 = self.shares.iter().map(|share| share.cpu_ns).sum();
        all / self.shares.len().max(1) as f64
    }

    /// Requests a second of all workers together, by the clock on the wall.
    pub fn per_s(&self) -> f64 {
        self.shares.iter().map(|share| 1e9 / share.wall_ns).sum()
    }
}

/// Replies that were kept: their bytes end to end, and where each ends.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Kept {
    fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(bytes >> 6) }
    }

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

/// Walks the path.
///
/// # Errors
/// Not enough memory, or frames that are not accounted for.
pub fn walk(bench: &Bench, walk: &Walk<'_>) -> Result<Run, Box<dyn Error>> {
    let workers = walk.workers.max(1);
    let region = region(workers)?;
    // One for each queue, so that workers share none.
    let kept: Arc<Vec<Mutex<Kept>>> = Arc::new(
        (0..workers).map(|_| Mutex::new(Kept::with_room(KEPT_MAX_BYTES / workers))).collect(),
    );
    let look = {
        let kept = Arc::clone(&kept);
        move |queue: usize, frame: &Frame| {
            if let Some(kept) = kept.get(queue) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).keep(frame.bytes());
            }
        }
    };
    let inspect = Inspect { every: CHECK_EVERY, look: Arc::new(look) };
    let mut port = port(&region, walk, Some(inspect))?;
    let batch = BatchPolicy::default();
    let card = match walk.beside {
        Other::Card(card, way) => Some(bench.beside(card, way, &region)?),
        Other::None | Other::Foretold(_) => None,
    };
    let mut all = Vec::new();
    while let Some(queues) = port.queues.pop() {
        let mut others_ns = Arc::<AtomicU64>::default();
        let offload = match (walk.beside, &card) {
            (Other::Foretold(told), _) => {
                let (engine, spent_ns) = told.engine(port.queues.len(), workers, AS_A_CARD);
                others_ns = spent_ns;
                let verify_one_in = VERIFY_EVERY;
                Some(Offloading { engine, forced: true, verify_one_in, filter: None })
            }
            (_, Some(card)) => Some(card.engine(batch.size)?),
            _ => None,
        };
        let manner = Manner { group: walk.group, batch, offload };
        all.push((bench.worker(&port.info, queues, &region, manner)?, others_ns));
    }
    let requests = walk.requests;
    let shares = match &mut all[..] {
        // On this thread, as profilers expect it.
        [worker] => vec![share(worker, requests, None)?],
        workers => {
            let start = Barrier::new(workers.len());
            let shares: Vec<Result<Share, String>> = thread::scope(|scope| {
                let start = &start;
                let threads: Vec<_> = workers
                    .iter_mut()
                    .map(|worker| {
                        scope.spawn(move || {
                            share(worker, requests, Some(start)).map_err(|e| e.to_string())
                        })
                    })
                    .collect();
                let died = |_| Err("a worker died".to_owned());
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
            });
            shares.into_iter().collect::<Result<_, _>>()?
        }
    };
    drop(all);
    card.map_or(Ok(()), |card| card.is_well())?;
    if let Other::Foretold(told) = walk.beside {
        let out_of_turn = |share: &Share| {
            let least = if told.has_look_ups() { share.answered } else { 0 };
            share.by_card < least || share.hints_wrong > share.answered / 100
        };
        if shares.iter().any(out_of_turn) {
            return Err("what was foretold is not what was asked".into());
        }
    }
    let shape = bench.config().shape;
    let (mut checked, mut wrong) = (0, 0);
    for kept in kept.iter() {
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        checked += kept.ends.len() as u64;
        wrong += kept.replies().filter(|reply| !is_right(shape, reply)).count() as u64;
    }
    Ok(Run { shares, checked, wrong })
}

fn is_right(shape: Shape, reply: &[u8]) -> bool {
    match one_sided::is_response(reply) {
        true => one_sided::is_right(shape, reply),
        false => shape.is_right(reply),
    }
}

/// Lets one worker work.
fn share(
    (worker, others_ns): &mut (Worker, Arc<AtomicU64>),
    requests: u64,
    start: Option<&Barrier>,
) -> Result<Share, Box<dyn Error>> {
    let counters = worker.counters();
    // A tenth first, so that caches and branch predictors know the work.
    while counters.answered.get() < requests / 10 {
        worker.turn();
    }
    if let Some(start) = start {
        start.wait();
    }
    let before = counters.answered.get();
    let others = || Duration::from_nanos(others_ns.load(Ordering::Relaxed));
    let (cpu, wall, apart) = (thread_cpu(), Instant::now(), others());
    while counters.answered.get() - before < requests {
        worker.turn();
    }
    let (cpu, wall) = (thread_cpu() - cpu, wall.elapsed());
    let cpu = cpu.saturating_sub(others() - apart);
    let answered = counters.answered.get();
    worker.drain();
    if !counters.ledger().balances() {
        return Err(format!("frames are unaccounted for: {:?}", counters.ledger()).into());
    }
    Ok(Share {
        cpu_ns: per(cpu, answered - before),
        wall_ns: per(wall, answered - before),
        answered,
        batches: counters.batches.get(),
        by_card: counters.gpu_batched.get(),
        slow: counters.slow.get(),
        hints_right: counters.hints_right.get(),
        hints_wrong: counters.hints_wrong.get(),
        heads_used: counters.heads_used.get(),
        replies_accepted: counters.replies_accepted.get(),
    })
}

/// What the looping port itself costs per request, in nanoseconds of CPU time.
///
/// # Errors
/// Not enough memory.
pub fn port_alone(walk: &Walk<'_>) -> Result<f64, Box<dyn Error>> {
    let region = region(1)?;
    let mut port = port(&region, &Walk { workers: 1, ..*walk }, None)?;
    let queues = port.queues.first_mut().ok_or("no queue")?;
    let mut burst = Burst::new();
    let mut done = 0;
    let begun = thread_cpu();
    while done < walk.requests {
        done += queues.rx.burst(&mut burst) as u64;
        queues.tx.burst(&mut burst);
    }
    Ok(per(thread_cpu() - begun, done))
}

fn port(
    region: &Region,
    walk: &Walk<'_>,
    inspect: Option<Inspect>,
) -> Result<Port, Box<dyn Error>> {
    let hardware = !walk.software;
    Ok(looping(
        region,
        &LoopingConfig {
            templates: walk.templates.to_vec(),
            queues: walk.workers.max(1),
            frames_per_queue: RING_FRAMES,
            rx: RxChecksum { ip_good: hardware.into(), udp_good: hardware.into() },
            tx_caps: TxCaps { ip: hardware, udp: hardware },
            inspect,
        },
    )?)
}

fn region(workers: usize) -> Result<Region, Box<dyn Error>> {
    let slots = u32::try_from(workers * RING_FRAMES + SPARE_FRAMES)?;
    Ok(Region::new(slots, Pages::Prefer)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::bench::Config;
    use crate::study::load::Load;
    use crate::study::oracle_engine::Hints;
    use crate::workload::Popularity;

    #[test]
    fn two_workers_answer_all_and_every_reply_is_right() {
        let shape = Shape { key_bytes: 16, value_bytes: 64 };
        let bench = Bench::new(Config { items: 1_000, shape, seed: 1 }).unwrap();
        let loads = [(Load::Get, 5), (Load::Miss, 2), (Load::Set, 3)];
        let templates = bench.requests(&loads, Popularity::Scrambled(0.99), 2_000).unwrap();
        let number = |load: Load| templates.iter().filter(|f| f[43] == load as u8).count();
        assert!(number(Load::Get) > 900 && number(Load::Set) > 500 && number(Load::Miss) > 300);
        let how = Walk { workers: 2, ..Walk::plain(&templates, 20_000, 32) };
        let run = walk(&bench, &how).unwrap();
        assert_eq!((run.shares.len(), run.wrong), (2, 0));
        assert!(run.checked > 300 && run.answered() >= 40_000);
        assert!(
            run.shares.iter().all(|s| s.slow > 1_000 && s.hints_right > 5_000 && s.by_card == 0)
        );
        assert!(port_alone(&how).unwrap() > 0.0);
    }

    #[test]
    fn one_sided_reads_are_answered_and_checked() {
        let shape = Shape { key_bytes: 16, value_bytes: 64 };
        let bench = Bench::new(Config { items: 1_000, shape, seed: 1 }).unwrap();
        let bench = bench.one_sided().unwrap();
        let drawn = |loads: &[(Load, u32)]| bench.requests(loads, Popularity::Uniform, 9_000);
        let templates = drawn(&[(Load::Read, 1)]).unwrap();
        let run = walk(&bench, &Walk::plain(&templates, 5_000, 32)).unwrap();
        assert!(run.wrong == 0 && run.checked > 50 && run.answered() >= 5_500);
        let ops = bench.server().totals();
        assert!(ops.get_hits >= 5_500, "each was the first of its kind: {}", ops.get_hits);
        assert!(!one_sided::is_right(shape, &templates[0]));
        for loads in [[(Load::Get, 9), (Load::Read, 1)], [(Load::Read, 9), (Load::Set, 1)]] {
            let run = walk(&bench, &Walk::plain(&drawn(&loads).unwrap(), 5_000, 32)).unwrap();
            assert!(run.wrong == 0 && run.checked > 50 && run.answered() >= 5_500, "{loads:?}");
        }
    }

    #[test]
    fn an_engine_that_is_told_everything_is_right_about_everything() {
        let shape = Shape { key_bytes: 16, value_bytes: 64 };
        let bench = Bench::new(Config { items: 1_000, shape, seed: 1 }).unwrap();
        let templates = bench.requests(&[(Load::Get, 1)], Popularity::Uniform, 1_500).unwrap();
        for (workers, hints) in [(1, Hints::Hints), (2, Hints::WithHeads), (2, Hints::WholeReplies)]
        {
            let told = Arc::new(Foretold::new(&bench, &templates, hints));
            let beside = Other::Foretold(&told);
            let how = Walk { workers, beside, ..Walk::plain(&templates, 5_000, 32) };
            let run = walk(&bench, &how).unwrap();
            assert!(run.wrong == 0 && run.checked > 30);
            for share in run.shares {
                let whole = share.replies_accepted;
                assert!(share.hints_right + whole >= 5_000 && share.hints_wrong < 50);
                assert_eq!(whole > 4_900, hints == Hints::WholeReplies);
                assert_eq!(share.heads_used > 4_900, hints == Hints::WithHeads);
            }
        }
        // Others are asked than were foretold.
        let told = Arc::new(Foretold::new(&bench, &templates[1..], Hints::Hints));
        let beside = Other::Foretold(&told);
        let how = Walk { beside, ..Walk::plain(&templates, 5_000, 32) };
        assert!(walk(&bench, &how).is_err());
    }
}
