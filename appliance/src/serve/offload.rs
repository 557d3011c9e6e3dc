//! The GPU beside the CPU: opened, given its index and its updater, watched.
//!
//! In: a plan that has one, the region and the store. Out: `Beside`, from which each worker gets
//! an engine, and the updater, which runs on a thread of its own. It keeps nothing from serving: a
//! GPU that cannot be used is an error only where the flags require one.

use crate::observe::metrics::GpuFigures;
use crate::startup::flags::Engine;
use crate::startup::plan::{OffloadPlan, Plan};
use dataplane::WorkerCounters;
use dataplane::observe::EngineFacts;
use dataplane::rdma::Rdma;
use dataplane::stages::engine::dispatch::Offloading;
use dataplane::worker;
use driver_shim::Region;
use gpu::card::{Card, CardError};
use gpu::index::{Feed, IndexConfig, SHARES_DEFAULT, Schedule, Updater, UpdaterCounters};
use gpu::offload::{Fault, GpuEngine, Offload, OffloadConfig};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::{Store, StoreError, StoreSource};

/// Batches of one worker that may be with the GPU at once: with two workers enough to hide what
/// the bus takes.
pub(crate) const PLACES: usize = 4;
/// Hashes that wait for the updater: a tenth of a second of a million changes.
const FEED_HASHES: usize = 1 << 17;
/// Longest time for the first batch of all.
const START_MAX: Duration = Duration::from_secs(20);

/// Why there is no GPU to work with.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// It cannot be opened, or has not got what it takes.
    #[error(
        "--engine {engine}: {source}; use --engine auto or cpu, or less --index-memory or --gpu-values"
    )]
    Card {
        /// What was requested.
        engine: &'static str,
        /// What is wrong.
        source: Fault,
    },
    /// No session for the updater.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The GPU beside the CPU.
#[derive(Debug)]
pub(crate) struct Beside {
    offload: Arc<Offload>,
    feed: Arc<Feed>,
    updates: Arc<UpdaterCounters>,
    plan: OffloadPlan,
    forced: bool,
    batch_max: usize,
    fault_told: AtomicBool,
}

/// What shows how the GPUs are until it is to stop, where there is a library to ask. That is opened
/// now, as long as files may be.
#[cfg(feature = "cuda")]
pub(crate) fn gpu_health() -> Option<impl FnOnce(&AtomicBool, &GpuFigures) + Send + 'static> {
    let management = gpu::cuda::Management::open(None)?;
    Some(move |stop: &AtomicBool, told: &GpuFigures| management.watch(stop, |v| told.put(v)))
}

/// Nothing: this build has no GPU support.
#[cfg(not(feature = "cuda"))]
pub(crate) fn gpu_health() -> Option<fn(&AtomicBool, &GpuFigures)> {
    None
}

/// Opens the GPU, where the plan has one, and makes the index's updater. Says so when it does
/// without.
pub(crate) fn open(
    plan: &Plan,
    region: &Region,
    store: &Arc<Store>,
) -> Result<Option<(Arc<Beside>, Updater)>, OffloadError> {
    let Some(offload_plan) = plan.offload else { return Ok(None) };
    let forced = plan.engine != Engine::Auto;
    let opened = Beside::open(plan, offload_plan, forced, region, store);
    match opened {
        Err(OffloadError::Card { source, .. }) if !forced => {
            tracing::warn!("the GPU is not used, and the CPU looks requests up: {source}");
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

impl Beside {
    fn open(
        plan: &Plan,
        offload_plan: OffloadPlan,
        forced: bool,
        region: &Region,
        store: &Arc<Store>,
    ) -> Result<(Arc<Self>, Updater), OffloadError> {
        let engine = plan.engine.name();
        let card_error = |error: CardError| OffloadError::Card { engine, source: error.into() };
        let OffloadPlan { mode, index, index_bytes, .. } = offload_plan;
        let card = card(plan.engine, offload_plan.device).map_err(card_error)?;
        let config = OffloadConfig {
            mode,
            index: IndexConfig { kind: index, memory_bytes: index_bytes, shares: SHARES_DEFAULT },
            hash_key: store.hash_key(),
            engines: plan.worker_cpus().len(),
            batch_max: plan.batch,
            places: PLACES,
            deadline: Duration::from_millis(offload_plan.deadline_ms.into()),
            start_deadline: START_MAX,
            heads: offload_plan.headers,
        };
        let offload = worker::offload(card, region, config).map_err(card_error)?;
        let feed = Arc::new(Feed::filtered(FEED_HASHES, offload.filter().cloned()));
        let source = Box::new(StoreSource::new(store.session()?));
        let schedule = Schedule {
            cycle: Duration::from_micros(offload_plan.cycle_us.into()),
            every: offload_plan.every,
        };
        let updater = Updater::new(&offload, Arc::clone(&feed), source, schedule);
        let updater = updater.map_err(card_error)?;
        // One engine, to see whether kernels run at all. It gives its ring back.
        let batch_max = plan.batch;
        let tried = GpuEngine::new(&offload, batch_max);
        drop(tried.map_err(|source| OffloadError::Card { engine, source })?);
        store.feed_replica(Arc::clone(&feed));
        let card = offload.card_name();
        tracing::info!(
            card,
            mode = mode.name(),
            index = index.name(),
            "requests are looked up there"
        );
        let beside = Self {
            updates: updater.counters(),
            offload,
            feed,
            plan: offload_plan,
            forced,
            batch_max,
            fault_told: AtomicBool::new(false),
        };
        Ok((Arc::new(beside), updater))
    }

    /// One more worker's engine. A GPU that fails now, having worked a moment ago, is given up.
    pub(crate) fn engine(&self) -> Option<Offloading> {
        match GpuEngine::new(&self.offload, self.batch_max) {
            Ok(engine) => Some(Offloading {
                engine: Box::new(engine),
                forced: self.forced,
                verify_one_in: self.plan.verify_one_in,
                filter: self.offload.filter().cloned(),
            }),
            Err(fault) => {
                self.offload.fail(fault);
                None
            }
        }
    }

    /// Describes a fault, once.
    pub(crate) fn watch(&self) {
        if let Some(fault) = self.offload.fault()
            && !self.fault_told.swap(true, Ordering::Relaxed)
        {
            tracing::error!("the GPU is not used any more, and the CPU looks requests up: {fault}");
        }
    }
}

/// Opens what runs the kernels.
fn card(engine: Engine, device: u32) -> Result<Arc<dyn Card>, CardError> {
    match engine {
        #[cfg(feature = "simt")]
        Engine::Simt => Ok(Arc::new(gpu::simt::SimtCard::default())),
        #[cfg(feature = "cuda")]
        Engine::Auto | Engine::Gpu => Ok(Arc::new(gpu::cuda::CudaCard::open(device)?)),
        _ => {
            let why = format!("this build has no card {device} for it");
            Err(CardError::Refused { call: "open", why })
        }
    }
}

/// What `stats engine` shows.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) engine: &'static str,
    pub(crate) workers: Vec<Arc<WorkerCounters>>,
    pub(crate) beside: Option<Arc<Beside>>,
    /// One-sided reads, where those are answered.
    pub(crate) rdma: Option<Arc<Rdma>>,
}

impl Facts {
    fn queue_pairs(&self) -> Option<usize> {
        self.rdma.as_ref().map(|rdma| rdma.pairs.open_now())
    }
}

impl EngineFacts for Facts {
    fn rows(&self, row: &mut dyn FnMut(&str, &dyn Display)) {
        let sum =
            |read: fn(&WorkerCounters) -> u64| self.workers.iter().map(|c| read(c)).sum::<u64>();
        row("engine", &self.engine);
        let (batches, requests) = (sum(|c| c.batches.get()), sum(|c| c.batched.get()));
        let (by_gpu, gpu_requests) = (sum(|c| c.gpu_batches.get()), sum(|c| c.gpu_batched.get()));
        row("cpu_batches", &batches.saturating_sub(by_gpu));
        row("cpu_requests", &requests.saturating_sub(gpu_requests));
        row("replies_late", &sum(|c| c.replies_late.get()));
        row("hints_right", &sum(|c| c.hints_right.get()));
        row("hints_wrong", &sum(|c| c.hints_wrong.get()));
        if let Some(open) = self.queue_pairs() {
            row("rdma_queue_pairs", &open);
            row("rdma_reads", &sum(|c| c.rdma_reads.get()));
            row("rdma_repeated", &sum(|c| c.rdma_repeated.get()));
            row("rdma_refused", &sum(|c| c.rdma_refused.get()));
            row("rdma_bytes", &sum(|c| c.rdma_bytes.get()));
        }
        let Some(beside) = &self.beside else { return };
        let Beside { offload, feed, updates, plan, .. } = &**beside;
        row("gpu", &offload.card_name());
        row("gpu_mode", &plan.mode.name());
        row("gpu_batches", &by_gpu);
        row("gpu_requests", &gpu_requests);
        row("gpu_lost", &sum(|c| c.gpu_lost.get()));
        row("gpu_checked", &sum(|c| c.gpu_checked.get()));
        row("gpu_missed", &sum(|c| c.gpu_missed.get()));
        let from = self.workers.iter().map(|c| c.gpu_from.get()).max();
        row("gpu_from_requests", &from.unwrap_or(0));
        row("heads_used", &sum(|c| c.heads_used.get()));
        row("heads_unused", &sum(|c| c.heads_unused.get()));
        row("replies_accepted", &sum(|c| c.replies_accepted.get()));
        row("replies_changed", &sum(|c| c.replies_changed.get()));
        row("replies_cleared", &sum(|c| c.replies_cleared.get()));
        row("replies_expired", &sum(|c| c.replies_expired.get()));
        row("replies_sampled", &sum(|c| c.replies_sampled.get()));
        let index = offload.index();
        row("index", &index.kind().name());
        row("index_bytes", &index.bytes());
        row("index_entries", &index.entries());
        row("index_filled", &updates.filled());
        row("feed_waiting", &feed.len());
        row("feed_lost", &feed.lost());
        for (name, value) in updates.rows() {
            row(&format!("index_{name}"), &value);
        }
        match offload.fault() {
            Some(fault) => {
                row("gpu_state", &"failed");
                row("gpu_fault", fault);
            }
            None if offload.is_open() => row("gpu_state", &"used"),
            None => row("gpu_state", &"resting"),
        }
        row("gpu_rests", &offload.rests());
    }
}
