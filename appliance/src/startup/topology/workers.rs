//! The workers of each part: one for each of its CPUs, over a queue of each of its ports.
//!
//! In: the plan, its regions, open ports with their queues, and what workers share. Out: threads to be started, and
//! where the figures of each come from. Fails: no session with the store is left.

use super::{Waiting, streams};
use crate::host::affinity;
use crate::serve::credentials::Credentials;
use crate::serve::offload::{IN_FLIGHT_MAX, Offloads};
use crate::serve::ports::{Driver, OpenPort};
use crate::serve::tls::Certificates;
use crate::startup::flags::Energy;
use crate::startup::plan::{PartPlan, Plan};
use dataplane::WorkerCounters;
use dataplane::capture::Channel;
use dataplane::observe::Server;
use dataplane::policy::Policy;
use dataplane::stages::batch::BatchPolicy;
use dataplane::stages::engine::cpu_engine;
use dataplane::stages::fast_path::FastPathMode;
use dataplane::stages::stream::ConnFilter;
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use driver_shim::{PortInfo, QueuePair, Region};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use store::{Store, StoreError};

/// Batches that may be with the engine at once.
const BATCHES_IN_FLIGHT: usize = 4;

/// What workers are made with.
pub(super) struct Making<'a> {
    pub(super) plan: &'a Plan,
    pub(super) store: &'a Arc<Store>,
    pub(super) server: &'a Arc<Server>,
    pub(super) driver: &'a Driver,
    pub(super) stop: &'a Arc<AtomicBool>,
    pub(super) credentials: Option<&'a Arc<Credentials>>,
    pub(super) certificates: Option<&'a Arc<Certificates>>,
    /// The GPUs, where there are any.
    pub(super) offloads: Option<&'a Arc<Offloads>>,
}

/// Workers, in the order of their numbers.
#[derive(Default)]
pub(super) struct Made {
    pub(super) working: Vec<Waiting>,
    /// Threads for their TLS handshakes.
    pub(super) handshakes: Vec<Waiting>,
    pub(super) counters: Vec<Arc<WorkerCounters>>,
    pub(super) capture_channels: Vec<Arc<Channel>>,
}

/// What all workers of all parts share, and how many they are.
struct Shared {
    workers: NonZeroU32,
    /// A worker's share.
    policy: Policy,
    filter: Option<Arc<ConnFilter>>,
}

/// A worker's part, the region of that, ports and CPU.
struct Post<'a> {
    part: usize,
    region: &'a Region,
    ports: Vec<WorkerPort>,
    cpu: usize,
}

impl Making<'_> {
    /// Takes the queues of the ports.
    pub(super) fn workers(
        &self,
        regions: &[Region],
        ports: &mut [OpenPort],
    ) -> Result<Made, StoreError> {
        let plan = self.plan;
        // A device may have fewer queues than its part has CPUs.
        let of_part = |part: &PartPlan| {
            let queues = part.ports.iter().filter_map(|&n| Some(ports.get(n)?.queues.len()));
            queues.max().unwrap_or(0)
        };
        let workers: usize = plan.parts.iter().map(of_part).sum();
        let workers = u32::try_from(workers).ok().and_then(NonZeroU32::new);
        let workers = workers.unwrap_or(NonZeroU32::MIN);
        let shared = Shared {
            workers,
            policy: plan.policy.policy().for_one_of(workers),
            filter: streams::filter(plan, workers, ports),
        };
        let mut queues: Vec<_> =
            ports.iter_mut().map(|p| std::mem::take(&mut p.queues).into_iter()).collect();
        let mut made = Made::default();
        for (at, (part, region)) in plan.parts.iter().zip(regions).enumerate() {
            let node = part.node().filter(|_| plan.parts.len() > 1);
            for (k, &cpu) in part.worker_cpus.iter().enumerate() {
                let end = |&n: &usize| {
                    let pair = queues.get_mut(n)?.next()?;
                    Some(worker_port(plan, ports.get(n)?, pair, k == 0))
                };
                let ports: Vec<WorkerPort> = part.ports.iter().filter_map(end).collect();
                if !ports.is_empty() {
                    let post = Post { part: at, region, ports, cpu };
                    affinity::on_node(node, || self.worker(post, &shared, &mut made))?;
                }
            }
        }
        Ok(made)
    }

    fn worker(&self, post: Post<'_>, shared: &Shared, made: &mut Made) -> Result<(), StoreError> {
        let Self { plan, store, offloads, .. } = *self;
        let Shared { workers, policy, filter } = shared;
        let Post { part, region, ports, cpu } = post;
        let n = made.counters.len();
        let (users, certificates) = (self.credentials, self.certificates);
        let streams =
            streams::streams(plan, *workers, store, users, certificates, filter.as_ref())?;
        made.handshakes.extend(streams::handshakes(n, streams.as_ref(), plan, self.stop));
        let worker = Worker::new(WorkerConfig {
            ports,
            region: region.clone(),
            session: store.session()?,
            server: Arc::clone(self.server),
            group: cpu_engine::GROUP_DEFAULT,
            batch: batch_policy(plan),
            policy: *policy,
            offload: offloads.and_then(|offloads| offloads.engine(part, cpu)),
            streams,
            fast_path: FastPathMode::Vector,
        });
        made.counters.push(worker.counters());
        made.capture_channels.push(worker.capture_channel());
        let (driver, stop, cpus) = (self.driver.clone(), Arc::clone(self.stop), plan.cpus_of(cpu));
        made.working.push(Waiting::new(format!("worker-{n}"), move || {
            affinity::keep_on(&cpus);
            let _known = driver.enrol();
            worker.run(&stop);
        }));
        Ok(())
    }
}

/// A worker's end of a port. The first of a part's workers sends for the kernel, and what announces addresses.
fn worker_port(plan: &Plan, port: &OpenPort, queues: QueuePair, first: bool) -> WorkerPort {
    let busy_poll = port.info.busy_poll && plan.energy != Energy::Manage;
    WorkerPort {
        queues,
        info: PortInfo { busy_poll, ..port.info.clone() },
        local: Arc::clone(&port.local),
        exception_path: port.exception_path.clone(),
        sends_for_kernel: first && port.exception_path.is_some(),
        announcer: port.announcer.clone().filter(|_| first),
    }
}

fn batch_policy(plan: &Plan) -> BatchPolicy {
    let usual = BatchPolicy::default();
    BatchPolicy {
        cycle_ns: plan.batch_cycle_us.map_or(usual.cycle_ns, |us| 1000 * u64::from(us)),
        size: plan.batch,
        mode: plan.batch_mode,
        // One more may be with the CPU.
        in_flight_max: if plan.offload.is_some() { IN_FLIGHT_MAX + 1 } else { BATCHES_IN_FLIGHT },
    }
}
