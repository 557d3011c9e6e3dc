//! What a worker is made of, and how: every stage, and all memory that it will use.
#![allow(unsafe_code)]

use super::{CPU_ONLY_BATCHES, PortEnd, Worker};
use crate::announce::Announcer;
use crate::frame_accounting::Accounts;
use crate::observe::Server;
use crate::policy::{Gate, Policy};
use crate::stages::batch::{BatchMode, BatchPolicy, Batcher};
use crate::stages::engine::cpu_engine::{CpuEngine, GROUP_DEFAULT};
use crate::stages::engine::dispatch::{Dispatch, Offloading};
use crate::stages::execute::Execute;
use crate::stages::exits::exception_path::ExceptionPath;
use crate::stages::exits::refuse_fragment::TooLong;
use crate::stages::fast_path::{self, FastPath, FastPathMode};
use crate::stages::rdma::Reads;
use crate::stages::stream::{StreamPort, Streams, StreamsConfig};
use crate::stages::tx::Tx;
use driver_shim::{PortInfo, QueuePair, Region, SLOT_BYTES};
use gpu::card::{Card, CardError};
use gpu::offload::{Offload, OffloadConfig};
use gpu::{Batch, PacketMemory};
use std::sync::Arc;
use std::time::Instant;
use store::Session;
use wire::{Local, PlainMatcher};

/// One port as a worker sees it.
#[derive(Debug)]
pub struct WorkerPort {
    /// This worker's queues.
    pub queues: QueuePair,
    /// Facts about the port.
    pub info: PortInfo,
    /// Its addresses, and who may talk to it.
    pub local: Arc<Local>,
    /// The kernel's side of it. One worker per port also sends the kernel's frames.
    pub exception_path: Option<Arc<ExceptionPath>>,
    /// This worker is that one.
    pub sends_for_kernel: bool,
    /// Orders to announce the port's addresses, if this worker is the one that sends them.
    pub announcer: Option<Arc<Announcer>>,
}

impl WorkerPort {
    /// One without the kernel's side, and whose addresses this worker does not announce.
    pub fn new(queues: QueuePair, info: PortInfo, local: Arc<Local>) -> Self {
        let (exception_path, announcer) = (None, None);
        Self { queues, info, local, exception_path, sends_for_kernel: false, announcer }
    }
}

/// What a worker is made of.
#[derive(Debug)]
pub struct WorkerConfig {
    /// At least one port, at most 256.
    pub ports: Vec<WorkerPort>,
    /// The region that the ports' frames live in.
    pub region: Region,
    /// A session of its own.
    pub session: Session,
    /// What `stats` and `version` show.
    pub server: Arc<Server>,
    /// Requests whose memory accesses overlap in the CPU engine.
    pub group: usize,
    /// How batches are made.
    pub batch: BatchPolicy,
    /// This worker's share of what sources may have ([`Policy::for_one_of`]).
    pub policy: Policy,
    /// The offload, made over this region.
    pub offload: Option<Offloading>,
    /// TCP connections to the service, on ports whose [`Local`] says that they are served here.
    pub streams: Option<StreamsConfig>,
    /// How the fast path works, where there is one: only where nothing is counted of trusted sources, and
    /// batches do not wait or there is an offload. With one it has the host's share of plain gets.
    pub fast_path: FastPathMode,
}

impl WorkerConfig {
    /// One with the CPU engine alone, without TCP, and what is left as it is by default.
    pub fn new(
        ports: Vec<WorkerPort>,
        region: Region,
        session: Session,
        server: Arc<Server>,
    ) -> Self {
        Self {
            ports,
            region,
            session,
            server,
            group: GROUP_DEFAULT,
            batch: BatchPolicy::default(),
            policy: Policy::default(),
            offload: None,
            streams: None,
            fast_path: FastPathMode::default(),
        }
    }
}

impl Worker {
    /// Builds every stage. All memory that the worker will use is taken here.
    pub fn new(config: WorkerConfig) -> Self {
        let WorkerConfig {
            ports,
            region,
            session,
            server,
            group,
            batch,
            policy,
            offload,
            streams,
            fast_path,
        } = config;
        let gate = Gate::new(&policy);
        // Where the CPU is the only engine the fast path makes no batches: not what a fixed size asks for.
        let has_fast_path = (batch.mode == BatchMode::Adaptive || offload.is_some())
            && !gate.counts_trusted()
            && server.dialects.have_text()
            && fast_path != FastPathMode::Off;
        // SAFETY: `dispatch`, which will have the engine, is declared, and so dropped, before `region`.
        let packets = unsafe { packets(&region) };
        let store = Arc::clone(session.store());
        // SAFETY: batches reach this engine only through `ship_one`, which keeps the frames that own
        // the slots in `with_engine`, untouched, until `finish` has polled the batch, and `Dispatch`
        // has it confirm none but those on their way there; `classify_and_pass` and, for those of `batch_plain`,
        // `FastPath::plain_gets` let in only frames of this region.
        let cpu = unsafe { CpuEngine::new(store, packets, group) };
        let (counters, started) = (Arc::default(), Instant::now());
        let names = ports.iter().map(|p| p.info.name.clone()).collect();
        let filter = offload.as_ref().and_then(|offload| offload.filter.clone());
        let mut dispatch = Dispatch::new(cpu, offload, batch.size.max(1), Arc::clone(&counters));
        let streams = streams.map(|streams| {
            let facts = |p: &WorkerPort| StreamPort {
                mtu: p.info.mtu,
                tcp_port: p.local.tcp_port.unwrap_or(0),
            };
            let ports: Vec<StreamPort> = ports.iter().map(facts).collect();
            Streams::new(streams, Arc::clone(&server), &ports, region.clone(), started)
        });
        let rdma = server.rdma.as_ref().map(|rdma| Reads::new(Arc::clone(rdma)).by(fast_path));
        let look_ups = batch.in_flight_max.max(1) + 1;
        let cpu_only = dispatch.has_offload().then(|| {
            // One fills while the CPU engine has another.
            let policy = BatchPolicy { in_flight_max: 1, ..batch };
            let first = u32::try_from(look_ups).unwrap_or(0);
            Batcher::new(policy, |id, capacity| Box::new(Batch::new(first + id, capacity)))
        });
        Self {
            busy_poll: ports.iter().any(|p| p.info.busy_poll),
            ports: ports
                .into_iter()
                .enumerate()
                .map(|(n, p)| {
                    let header_matcher = PlainMatcher::new(p.local);
                    PortEnd {
                        rx: p.queues.rx,
                        tx: Tx::new(p.queues.tx, p.info.tx_caps, n),
                        request_matcher: fast_path::RequestMatcher::new(&header_matcher),
                        header_matcher,
                        exception_path: p.exception_path,
                        sends_for_kernel: p.sends_for_kernel,
                        announcer: p.announcer,
                    }
                })
                .collect(),
            gate,
            too_long: TooLong::new(server.dialects, policy.amp_factor),
            with_engine: (0..look_ups + CPU_ONLY_BATCHES).map(|_| Vec::new()).collect(),
            cpu_only,
            batcher: Batcher::new(batch, |id, capacity| dispatch.new_batch(id, capacity)),
            dispatch,
            execute: Execute::new(
                session,
                server,
                region.clone(),
                filter,
                policy.amp_factor,
                batch.size,
                batch.due_ns(),
            ),
            streams,
            rdma,
            fast_path: has_fast_path.then(|| FastPath::new(fast_path, batch.size.max(1))),
            burst: Some(Box::default()),
            accounts: Accounts::new(counters, started, names),
            started,
            region,
        }
    }
}

/// The GPU in use for workers over this region.
///
/// # Errors
/// What is wrong with the GPU.
pub fn offload(
    card: Arc<dyn Card>,
    region: &Region,
    config: OffloadConfig,
) -> Result<Arc<Offload>, CardError> {
    // SAFETY: the handle on the region, which keeps it mapped, goes with it.
    let packets = unsafe { packets(region) };
    Offload::new(card, packets, Box::new(region.clone()), config)
}

/// The region as engines see it.
///
/// # Safety
/// The caller keeps a handle on the region for as long as an engine over it lives.
unsafe fn packets(region: &Region) -> PacketMemory {
    // SAFETY: the region stays mapped as long as there is a handle on it.
    unsafe { PacketMemory::new(region.base(), SLOT_BYTES, region.capacity()) }
}
