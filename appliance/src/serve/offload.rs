//! The GPUs beside the CPU: opened, given their indexes and updaters, watched.
//!
//! In: a plan that has some, the regions and the store. Out: `Offloads`, from which each worker gets
//! an engine on the GPU that is nearest, and updaters, each of which runs on a thread of its own. It keeps nothing from
//! serving: a GPU that cannot be used is an error only where the flags require one. Each has the whole index: one
//! that fails leaves its workers to the CPU. Each reads the packets of one part of the appliance (`placement`).

mod facts;
mod placement;

pub(crate) use facts::Facts;

use crate::host::machine::{node_of, nodes};
use crate::observe::metrics::GpuFigures;
use crate::startup::flags::Engine;
use crate::startup::plan::{OffloadPlan, PartPlan, Plan};
use dataplane::stages::engine::dispatch::Offloading;
use dataplane::worker;
use driver_shim::Region;
use gpu::card::{Card, CardError};
use gpu::index::{Feed, IndexConfig, SHARES_DEFAULT, Schedule, Updater, UpdaterCounters};
use gpu::offload::{Fault, GpuEngine, Offload, OffloadConfig};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use store::{Store, StoreError, StoreSource};

/// Batches of one worker that may be with the GPU at once: with two workers enough to hide what
/// the bus takes.
pub(crate) const IN_FLIGHT_MAX: usize = 4;
/// Hashes that wait for an updater: a tenth of a second of a million changes.
const FEED_HASHES: usize = 1 << 17;
/// Longest time for the first batch of all.
const START_MAX: Duration = Duration::from_secs(20);

/// Why there is no GPU to work with.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// It cannot be opened, or has not got what it takes.
    #[error(
        "--engine {engine}: GPU {device}: {source}; use --engine auto or cpu, or less --index-memory or --gpu-values"
    )]
    Card {
        /// What was requested.
        engine: &'static str,
        /// Its number.
        device: u32,
        /// What is wrong.
        source: Fault,
    },
    /// With `--numa-node split`, the workers of a node would be without.
    #[error(
        "--engine {engine}: there is no GPU for the workers of NUMA node {node}: name one more in --gpu-device, or use --engine auto or cpu"
    )]
    NoneOnNode {
        /// What was requested.
        engine: &'static str,
        /// The node.
        node: u32,
    },
    /// No session for an updater.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The GPUs that work for the CPU.
#[derive(Debug)]
pub(crate) struct Offloads {
    gpus: Vec<Gpu>,
    plan: OffloadPlan,
    forced: bool,
    batch_max: usize,
}

/// One of them.
#[derive(Debug)]
struct Gpu {
    device: u32,
    /// The NUMA node that it is on, where that is known.
    node: Option<u32>,
    /// The part of the appliance whose packets it reads.
    part: usize,
    offload: Arc<Offload>,
    feed: Arc<Feed>,
    updates: Arc<UpdaterCounters>,
    /// Workers that look up there.
    workers: AtomicUsize,
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

/// Opens the GPUs, where the plan has some, and makes the updaters of their indexes. Says so when it does
/// without. Of `regions` there is one for each part of the plan.
pub(crate) fn open(
    plan: &Plan,
    regions: &[Region],
    store: &Arc<Store>,
) -> Result<(Option<Arc<Offloads>>, Vec<Updater>), OffloadError> {
    // Without packets there is nothing to look up.
    let Some(offload_plan) = plan.offload.as_ref().filter(|_| !regions.is_empty()) else {
        return Ok((None, Vec::new()));
    };
    let engine = plan.engine.name();
    let forced = plan.engine != Engine::Auto;
    let unusable = |error: OffloadError| match error {
        OffloadError::Card { device, source, .. } if !forced => {
            tracing::warn!(
                device,
                "the GPU is not used: the CPU looks up what others do not: {source}"
            );
            Ok(())
        }
        error => Err(error),
    };
    let mut cards = Vec::new();
    for &device in &offload_plan.devices {
        match Located::open(plan.engine, device) {
            Ok(card) => cards.push(card),
            Err(error) => unusable(error)?,
        }
    }
    let nodes: Vec<Option<u32>> = plan.parts.iter().map(PartPlan::node).collect();
    let near: Vec<Option<u32>> = cards.iter().map(|card| card.node).collect();
    let (mut gpus, mut updaters) = (Vec::new(), Vec::new());
    for (card, part) in cards.into_iter().zip(placement::parts(&near, &nodes)) {
        let Some(region) = regions.get(part) else { continue };
        match Gpu::new(plan, offload_plan, card, (part, region), store) {
            Ok((gpu, updater)) => {
                gpus.push(gpu);
                updaters.push(updater);
            }
            Err(error) => unusable(error)?,
        }
    }
    for (part, node) in nodes.iter().enumerate().filter(|_| nodes.len() > 1) {
        if let Some(node) = *node
            && !gpus.iter().any(|gpu: &Gpu| gpu.part == part)
        {
            if forced {
                return Err(OffloadError::NoneOnNode { engine, node });
            }
            tracing::warn!(node, "no GPU is left for this node's workers: the CPU looks up");
        }
    }
    let offloads = (!gpus.is_empty()).then(|| {
        store.feed_replicas(gpus.iter().map(|gpu| Arc::clone(&gpu.feed)));
        let (plan, batch_max) = (offload_plan.clone(), plan.batch);
        Arc::new(Offloads { gpus, plan, forced, batch_max })
    });
    Ok((offloads, updaters))
}

/// A device that is open, and where it is.
struct Located {
    device: u32,
    card: Arc<dyn Card>,
    /// The NUMA node, where that is known.
    node: Option<u32>,
}

impl Located {
    fn open(engine: Engine, device: u32) -> Result<Self, OffloadError> {
        let card = card(engine, device).map_err(|error| OffloadError::Card {
            engine: engine.name(),
            device,
            source: error.into(),
        })?;
        let node = card.facts().pci.and_then(|address| node_of(Path::new("/sys"), &address));
        Ok(Self { device, card, node })
    }
}

impl Gpu {
    /// For this part of the plan, over its region.
    fn new(
        plan: &Plan,
        offload_plan: &OffloadPlan,
        Located { device, card, node }: Located,
        (part, region): (usize, &Region),
        store: &Arc<Store>,
    ) -> Result<(Self, Updater), OffloadError> {
        let engine = plan.engine.name();
        let card_error =
            |error: CardError| OffloadError::Card { engine, device, source: error.into() };
        let OffloadPlan { mode, index, index_bytes, .. } = *offload_plan;
        let config = OffloadConfig {
            mode,
            index: IndexConfig { kind: index, memory_bytes: index_bytes, shares: SHARES_DEFAULT },
            hash_key: store.hash_key(),
            engines: plan.worker_cpus().len(),
            batch_max: plan.batch,
            in_flight_max: IN_FLIGHT_MAX,
            deadline: Duration::from_millis(offload_plan.deadline_ms.into()),
            start_deadline: START_MAX,
            multiprocessors: offload_plan.multiprocessors.unwrap_or(u32::MAX),
            heads: offload_plan.headers,
        };
        let offload = worker::offload(card, region, config).map_err(card_error)?;
        let feed = Arc::new(Feed::filtered(FEED_HASHES, offload.filter().cloned()));
        let source = Box::new(StoreSource::new(store.session()?, plan.clients.cas_enabled));
        let schedule = Schedule {
            cycle: Duration::from_micros(offload_plan.cycle_us.into()),
            every: offload_plan.every,
        };
        let updater = Updater::new(&offload, Arc::clone(&feed), source, schedule);
        let updater = updater.map_err(card_error)?;
        // One engine, to see whether kernels run at all. It gives its ring back.
        let tried = GpuEngine::new(&offload, plan.batch);
        drop(tried.map_err(|source| OffloadError::Card { engine, device, source })?);
        let card = offload.card_name();
        tracing::info!(
            card,
            device,
            mode = mode.name(),
            index = index.name(),
            "requests are looked up there"
        );
        let (updates, workers, fault_told) =
            (updater.counters(), AtomicUsize::new(0), AtomicBool::new(false));
        Ok((Self { device, node, part, offload, feed, updates, workers, fault_told }, updater))
    }

    fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed)
    }

    /// Describes a fault, once.
    fn watch(&self) {
        if let Some(fault) = self.offload.fault()
            && !self.fault_told.swap(true, Ordering::Relaxed)
        {
            let device = self.device;
            tracing::error!(
                device,
                "the GPU is not used any more, and the CPU looks up for its workers: {fault}"
            );
        }
    }
}

impl Offloads {
    /// The engine of one more worker of this part, which runs on this CPU: on the GPU that has the fewest, of those of the
    /// part that are on its NUMA node if there are any. A GPU that fails now, having worked a moment ago, is given up.
    pub(crate) fn engine(&self, part: usize, cpu: usize) -> Option<Offloading> {
        let node = nodes(Path::new("/sys")).into_iter().find(|node| node.cpus.contains(&cpu));
        let node = node.map(|node| node.id);
        while let Some(gpu) = self.nearest(part, node) {
            match GpuEngine::new(&gpu.offload, self.batch_max) {
                Ok(engine) => {
                    gpu.workers.fetch_add(1, Ordering::Relaxed);
                    return Some(Offloading {
                        engine: Box::new(engine),
                        forced: self.forced,
                        verify_one_in: self.plan.verify_one_in,
                        filter: gpu.offload.filter().cloned(),
                    });
                }
                Err(fault) => gpu.offload.fail(fault),
            }
        }
        None
    }

    fn nearest(&self, part: usize, node: Option<u32>) -> Option<&Gpu> {
        let working = |gpu: &&Gpu| gpu.part == part && gpu.offload.fault().is_none();
        let working = self.gpus.iter().filter(working);
        working.min_by_key(|gpu| placement::distance(gpu.node, node, gpu.workers()))
    }

    /// Says which GPUs no worker uses, once all workers have been made.
    pub(crate) fn tell_unused(&self) {
        for gpu in self.gpus.iter().filter(|gpu| gpu.workers() == 0) {
            let device = gpu.device;
            tracing::warn!(
                device,
                "no worker uses this GPU: name fewer, or give more --cores on its NUMA node"
            );
        }
    }

    /// Describes faults, each once.
    pub(crate) fn watch(&self) {
        self.gpus.iter().for_each(Gpu::watch);
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
