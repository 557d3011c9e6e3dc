//! The page that builds and wires everything, from the plan, in order.
//!
//! ```text
//!  listeners ─────────────────────────────────────────► TCP threads ─┐ a session each
//!  ports ─► region, queues ─► workers, one per CPU ──────────────────┼──► store ◄── housekeeping
//!        │              └── engines ── GPU ◄── index updater ────────┤
//!        └► exception paths, one per port, one thread each                ┘
//! ```
//!
//! In: a [`Plan`] and its listeners. Out: [`Built`], in which everything is open and nothing runs, so
//! that rights can be given up in between, and from that an [`Appliance`], everything in it running.
//! Fails with a [`BuildError`]; what had been started by then ends with the process.

mod streams;
mod unserved;
mod workers;

use crate::host::affinity;
use crate::observe::health::{HealthFigures, Observed, PortFigures};
use crate::observe::metrics::{self, GpuFigures, MetricsError, Sources};
use crate::observe::report::Ready;
use crate::process::allocator;
use crate::process::privileges::{self, Identity, PrivilegeError};
use crate::process::sandbox;
use crate::serve::credentials::Credentials;
use crate::serve::offload::{self, Facts, OffloadError, Offloads};
use crate::serve::ports::{self, Driver, OpenPort, Opened, PortsError};
use crate::serve::sockets::{Listeners, MetricsListener, SocketFile};
use crate::serve::tcp::{Source, TcpConfig, TcpError, TcpService};
use crate::serve::tls::Certificates;
use crate::startup::flags::{Engine, LONG_VERSION, MetricsAddr, TcpIn};
use crate::startup::plan::Plan;
use dataplane::WorkerCounters;
use dataplane::capture::Channel;
use dataplane::observe::Server;
use dataplane::observe::tls::Refresh;
use dataplane::stages::exits::exception_path::ExceptionPath;
use driver_shim::{MemoryKind, Region};
use nix::unistd::geteuid;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};
use store::restart::TakenUp;
use store::{Session, Store, StoreConfig, StoreError};
use unserved::Unserved;

/// What `version` says: the memcached whose surface this follows, for clients that look at the number.
const VERSION: &str = "1.6.18";

/// Longest wait for the workers' first turn, and the pause between two looks.
const START_MAX: Duration = Duration::from_secs(3);
const START_PAUSE: Duration = Duration::from_millis(1);

/// Why the plan could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A port, the region, an exception path.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// The TCP service.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// The metrics.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The GPU beside the CPU.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// `-u`.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
    /// A thread.
    #[error(
        "cannot start the thread {name}: {source}; raise the limit on threads (ulimit -u, pids.max)"
    )]
    Thread {
        /// Its name.
        name: String,
        /// The OS error.
        source: io::Error,
    },
}

/// A thread of ours and its name.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) thread: JoinHandle<()>,
}

/// A thread to be started, and what it will do.
struct Waiting {
    name: String,
    body: Box<dyn FnOnce() + Send>,
}

impl Waiting {
    fn new(name: String, body: impl FnOnce() + Send + 'static) -> Self {
        Self { name, body: Box::new(body) }
    }

    fn start(self) -> Result<Running, BuildError> {
        let Self { name, body } = self;
        match std::thread::Builder::new().name(name.clone()).spawn(|| {
            allocator::prepare_thread();
            body();
        }) {
            Ok(thread) => Ok(Running { name, thread }),
            Err(source) => Err(BuildError::Thread { name, source }),
        }
    }
}

fn start(threads: Vec<Waiting>) -> Result<Vec<Running>, BuildError> {
    threads.into_iter().map(Waiting::start).collect()
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Everything that runs.
#[derive(Debug)]
pub struct Appliance {
    pub(crate) tcp: Option<TcpService>,
    pub(crate) tcp_addresses: Vec<SocketAddr>,
    /// Goes from the file system with the appliance.
    pub(crate) unix: Option<SocketFile>,
    pub(crate) credentials: Option<Arc<Credentials>>,
    pub(crate) certificates: Option<Arc<Certificates>>,
    /// Where metrics are served, the file of the socket, and who serves them.
    pub(crate) metrics_address: Option<MetricsAddr>,
    pub(crate) metrics_file: Option<SocketFile>,
    pub(crate) metrics: Option<Running>,
    /// What the metrics show of the ports.
    pub(crate) port_figures: PortFigures,
    /// And of its threads.
    pub(crate) health_figures: HealthFigures,
    /// Set to make workers, exception paths and metrics end.
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) workers: Vec<Running>,
    /// How long they may give TCP clients at the end.
    pub(crate) drain_max: Duration,
    pub(crate) exception_paths: Vec<Running>,
    /// Make the TLS handshakes of a worker each.
    pub(crate) handshakes: Vec<Running>,
    /// Keep the indexes on the GPUs up to date.
    pub(crate) updaters: Vec<Running>,
    pub(crate) offloads: Option<Arc<Offloads>>,
    pub(crate) counters: Vec<Arc<WorkerCounters>>,
    pub(crate) capture_channels: Vec<Arc<Channel>>,
    pub(crate) ports: Vec<OpenPort>,
    pub(crate) regions: Vec<Region>,
    pub(crate) server: Arc<Server>,
    pub(crate) store: Arc<Store>,
    /// Items that the store took up.
    pub(crate) kept_items: Option<u64>,
    /// CPUs that the process may use.
    pub(crate) cpus: Vec<usize>,
}

impl Appliance {
    /// Where clients find it, and what it is made of.
    pub fn ready(&self, plan: &Plan) -> Ready {
        Ready {
            version: LONG_VERSION,
            udp: self.udp_addresses(),
            tcp: self.tcp_addresses.clone(),
            unix: self.unix.as_ref().map(|file| file.path().to_owned()),
            metrics: self.metrics_address.clone(),
            workers: self.workers.len(),
            engine: plan.engine.name(),
            packet_memory: self.packet_memory().map(MemoryKind::name),
            item_memory: self.store.stats().item_memory.name(),
            conn_memory_bytes: self.tcp.as_ref().map(|_| plan.conn_memory_bytes),
            kept_items: self.kept_items,
        }
    }

    /// What health is about.
    pub(crate) fn observed(&mut self) -> Observed<'_> {
        Observed {
            ports: &mut self.ports,
            counters: &self.counters,
            port_figures: self.metrics.as_ref().map(|_| &self.port_figures),
            health_figures: &self.health_figures,
        }
    }

    /// What packets lie in: of several regions, one that is not in huge pages before one that is.
    fn packet_memory(&self) -> Option<MemoryKind> {
        let mut kinds = self.regions.iter().map(Region::kind);
        let first = kinds.next();
        kinds.find(|kind| *kind != MemoryKind::Huge).or(first)
    }

    fn udp_addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().flat_map(|p| p.addresses.iter().copied()).collect()
    }
}

/// What start-up has brought about before anything is built.
#[derive(Debug, Default)]
pub struct Prepared {
    /// Where clients connect.
    pub listeners: Listeners,
    /// Whom clients must be, where they must authenticate.
    pub credentials: Option<Credentials>,
    /// What TLS is spoken with, where it is.
    pub certificates: Option<Certificates>,
    /// Whom the process becomes as soon as everything is open.
    pub identity: Option<Identity>,
}

/// Everything open, nothing started: no thread of ours runs yet, and no client is served.
#[derive(Debug)]
pub struct Built {
    appliance: Appliance,
    exception_paths: Vec<Waiting>,
    handshakes: Vec<Waiting>,
    updaters: Vec<Waiting>,
    workers: Vec<Waiting>,
    tcp: Option<TcpConfig>,
    metrics: Option<MetricsListener>,
    gpus: GpuFigures,
    gpu_health: Option<Waiting>,
    driver: Driver,
    /// The last to go.
    unserved: Unserved,
}

/// Opens and wires everything.
///
/// # Errors
/// [`BuildError`], which says what to do.
pub fn build(plan: &Plan, prepared: Prepared) -> Result<Built, BuildError> {
    let Prepared { mut listeners, credentials, certificates, identity } = prepared;
    let credentials = credentials.map(Arc::new);
    let certificates = certificates.map(Arc::new);
    let uid = identity.as_ref().map_or_else(|| geteuid().as_raw(), Identity::uid);
    // Goes after all else that has the store.
    let mut unserved = Unserved(None);
    let (store, kept_items) = store(plan, uid)?;
    unserved.0 = Some(Arc::clone(&store));
    store.set_sweeper(plan.clients.sweeper);
    let mut server = server(plan, &store);
    server.tls = certificates.clone().map(|c| -> Arc<dyn Refresh> { c });
    let server = Arc::new(server);
    let Opened { driver, regions, mut ports } = ports::open(plan)?;
    // After DPDK's start, which moves the thread that calls it.
    affinity::keep_on(&plan.cpus_of(plan.control_cpu));
    if let Some(identity) = identity {
        // The last time that their devices can be put right: udev may have changed them meanwhile.
        ports
            .iter()
            .filter_map(|port| port.exception_path.as_ref())
            .for_each(|path| path.put_right());
        become_user(&identity, plan, &listeners)?;
    }

    let metrics = listeners.metrics.take();
    let stop = Arc::new(AtomicBool::new(false));
    let exception_paths = exception_paths(plan, &ports, &stop);
    let mut updaters = Vec::new();
    let mut appliance = Appliance {
        tcp: None,
        tcp_addresses: listeners.tcp.into_iter().chain(plan.worker_tcp()).collect(),
        unix: listeners.unix,
        credentials: credentials.clone(),
        certificates: certificates.clone(),
        metrics_address: None,
        metrics_file: None,
        metrics: None,
        port_figures: PortFigures::default(),
        health_figures: HealthFigures::default(),
        stop: Arc::clone(&stop),
        workers: Vec::new(),
        drain_max: match plan.tcp_in {
            TcpIn::Worker => Duration::from_secs(plan.clients.drain_seconds.into()),
            TcpIn::Kernel => Duration::ZERO,
        },
        exception_paths: Vec::new(),
        handshakes: Vec::new(),
        updaters: Vec::new(),
        offloads: None,
        counters: Vec::new(),
        capture_channels: Vec::new(),
        ports: Vec::new(),
        regions: regions.clone(),
        server: Arc::clone(&server),
        store: Arc::clone(&store),
        kept_items,
        cpus: plan.cpus(),
    };
    let (offloads, all) = offload::open(plan, &regions, &store)?;
    appliance.offloads = offloads;
    updaters.extend(all.into_iter().enumerate().map(|(n, updater)| {
        let (stop, cpus) = (Arc::clone(&stop), plan.cpus_of(plan.control_cpu));
        Waiting::new(format!("index-updater-{n}"), move || {
            affinity::keep_on(&cpus);
            updater.run(&stop);
        })
    }));
    let workers::Made { working, handshakes, counters, capture_channels } = workers::Making {
        plan,
        store: &store,
        server: &server,
        driver: &driver,
        stop: &stop,
        credentials: credentials.as_ref(),
        certificates: certificates.as_ref(),
        offloads: appliance.offloads.as_ref(),
    }
    .workers(&regions, &mut ports)?;
    (appliance.counters, appliance.capture_channels) = (counters, capture_channels);
    appliance.offloads.iter().for_each(|offloads| offloads.tell_unused());
    let sockets = ports.iter().flat_map(|port| port.control.sockets());
    sockets.for_each(|socket| server.conns.enter_udp(socket));
    appliance.ports = ports;
    server.tell_engine(Arc::new(Facts {
        engine: plan.engine.name(),
        workers: appliance.counters.clone(),
        offloads: appliance.offloads.clone(),
        rdma: server.rdma.clone(),
    }));
    let tcp = (!listeners.sources.is_empty())
        .then(|| tcp_config(plan, listeners.sources, server, credentials, certificates))
        .transpose()?;
    let (gpus, watching) = match &metrics {
        Some(_) => gpu_figures(plan, &appliance),
        None => (GpuFigures::default(), None),
    };
    Ok(Built {
        appliance,
        exception_paths,
        handshakes,
        updaters,
        workers: working,
        tcp,
        metrics,
        gpus,
        gpu_health: watching,
        driver,
        unserved,
    })
}

/// A thread for each exception path.
fn exception_paths(plan: &Plan, ports: &[OpenPort], stop: &Arc<AtomicBool>) -> Vec<Waiting> {
    let paths =
        ports.iter().enumerate().filter_map(|(n, port)| Some((n, port.exception_path.clone()?)));
    let thread = |(n, path): (usize, Arc<ExceptionPath>)| {
        let (stop, cpus) = (Arc::clone(stop), plan.cpus_of(plan.control_cpu));
        Waiting::new(format!("side-door-{n}"), move || {
            affinity::keep_on(&cpus);
            path.run(&stop);
        })
    };
    paths.map(thread).collect()
}

/// What TCP threads are made of.
fn tcp_config(
    plan: &Plan,
    listeners: Vec<Source>,
    server: Arc<Server>,
    credentials: Option<Arc<Credentials>>,
    certificates: Option<Arc<Certificates>>,
) -> Result<TcpConfig, StoreError> {
    let sessions: Result<Vec<Session>, _> =
        (0..plan.tcp_threads).map(|_| server.store.session()).collect();
    Ok(TcpConfig {
        listeners,
        sessions: sessions?,
        conn_limit: plan.conn_limit,
        conn_memory_bytes: usize::try_from(plan.conn_memory_bytes).unwrap_or(usize::MAX),
        item_max_bytes: server.store.config().item_max_bytes,
        server,
        clients: plan.clients.clone(),
        credentials,
        certificates,
        cpus: plan.tcp_cpus.clone(),
    })
}

impl Built {
    /// Where TCP listens.
    pub fn tcp_addresses(&self) -> &[SocketAddr] {
        &self.appliance.tcp_addresses
    }

    /// Where UDP requests are answered.
    pub fn udp_addresses(&self) -> Vec<SocketAddr> {
        self.appliance.udp_addresses()
    }

    /// The directory that the driver library removes at its end, where it has one.
    pub fn driver_dir(&self) -> Option<&Path> {
        self.driver.dir()
    }

    /// Starts everything. `sandbox` is shown in `stats` and metrics.
    ///
    /// # Errors
    /// [`BuildError`], which says what to do.
    pub fn start(self, plan: &Plan, sandbox: sandbox::State) -> Result<Appliance, BuildError> {
        let Self {
            mut appliance,
            exception_paths,
            handshakes,
            updaters,
            workers,
            tcp,
            metrics,
            gpus,
            gpu_health,
            driver: _driver,
            mut unserved,
        } = self;
        // From now on there are threads that may leave an item half done.
        unserved.0 = None;
        let server = Arc::clone(&appliance.server);
        server.tell_settings(sandbox.settings());
        appliance.exception_paths = start(exception_paths)?;
        appliance.handshakes = start(handshakes)?;
        appliance.updaters = start(updaters)?;
        appliance.workers = start(workers)?;
        appliance.tcp = tcp.map(TcpService::start).transpose()?;
        wait_for_workers(&appliance);
        // No thread waits for its end: it may hang with the driver.
        gpu_health.map(Waiting::start).transpose()?;
        if let Some(listener) = metrics {
            let sources = Sources {
                server,
                workers: appliance.counters.clone(),
                capture_channels: appliance.capture_channels.clone(),
                ports: Arc::clone(&appliance.port_figures),
                gpus,
                energy: plan.energy,
                base_watts: plan.base_watts,
                health: Arc::clone(&appliance.health_figures),
                regions: appliance.regions.clone(),
                engine: plan.engine.name(),
                batch: plan.batch,
                sandbox,
            };
            let stop = Arc::clone(&appliance.stop);
            let thread =
                metrics::serve(listener.source, sources, plan.cpus_of(plan.control_cpu), stop)?;
            appliance.metrics = Some(Running { name: "metrics".to_owned(), thread });
            (appliance.metrics_address, appliance.metrics_file) =
                (Some(listener.address), listener.file);
        }
        Ok(appliance)
    }
}

/// Figures of the GPUs, and the thread that reads them, where one is in use.
fn gpu_figures(plan: &Plan, appliance: &Appliance) -> (GpuFigures, Option<Waiting>) {
    let (figures, stop) = (GpuFigures::default(), Arc::clone(&appliance.stop));
    if appliance.offloads.is_none() || !matches!(plan.engine, Engine::Auto | Engine::Gpu) {
        return (figures, None);
    }
    let (told, cpus) = (figures.clone(), plan.cpus_of(plan.control_cpu));
    let watching = offload::gpu_health().map(|watch| {
        Waiting::new("gpu-health".to_owned(), move || {
            affinity::keep_on(&cpus);
            watch(&stop, &told);
        })
    });
    (figures, watching)
}

/// Gives up root's rights, before any thread of ours serves a client.
fn become_user(
    identity: &Identity,
    plan: &Plan,
    listeners: &Listeners,
) -> Result<(), PrivilegeError> {
    let metrics = listeners.metrics.as_ref().and_then(|l| l.file.as_ref());
    for file in listeners.unix.iter().chain(metrics) {
        identity.give(file.file(), file.path())?;
    }
    identity.assume()?;
    if plan.process.core_dumps {
        privileges::stay_dumpable();
    }
    Ok(())
}

/// Until every worker has been once around its loop: ready means served, not merely started.
fn wait_for_workers(appliance: &Appliance) {
    let deadline = Instant::now() + START_MAX;
    for (worker, counters) in appliance.workers.iter().zip(&appliance.counters) {
        while counters.turns.get() == 0 {
            if Instant::now() > deadline {
                let name = &worker.name;
                tracing::warn!(name, "a worker is slow to start: is something else on its CPU?");
                break;
            }
            std::thread::sleep(START_PAUSE);
        }
    }
}

/// The store, and how many items it took up from its file, which may belong to the user `uid`.
fn store(plan: &Plan, uid: u32) -> Result<(Arc<Store>, Option<u64>), StoreError> {
    // The plan compared these with the machine's memory: they fit its address space.
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let config = StoreConfig {
        memory_bytes: bytes(plan.memory_bytes),
        item_max_bytes: bytes(plan.item_max_bytes),
        growth_factor: plan.growth_factor,
        chunk_min_bytes: plan.chunk_min_bytes as usize,
        prefix_delimiter: plan.clients.prefix_delimiter,
        shared_reads: plan.clients.shared_reads,
        evict: plan.evict,
        eviction: plan.eviction,
        slab_pages: plan.slab_pages.clone(),
        pages: plan.huge,
        nodes: plan.divided_over(),
        hash_key: None,
        // One for the index on each GPU.
        sessions_max: plan.worker_cpus().len() * (1 + usize::from(plan.tcp_in == TcpIn::Worker))
            + plan.tcp_threads
            + plan.offload.as_ref().map_or(0, |offload| offload.devices.len()),
    };
    let Some(path) = &plan.memory_file else {
        return Ok((Store::new(config)?, None));
    };
    let (store, taken) = Store::open_of(config, path, uid)?;
    let kept = match taken {
        TakenUp::New => None,
        TakenUp::Kept(items) => Some(items),
        TakenUp::Discarded(why) => {
            tracing::warn!("memory file {}: its items are discarded: {why}", path.display());
            None
        }
    };
    Ok((store, kept))
}

fn server(plan: &Plan, store: &Arc<Store>) -> Server {
    let mut server = Server::new(Arc::clone(store), VERSION.to_owned());
    server.threads = plan.worker_cpus().len() + plan.tcp_threads;
    server.max_connections = plan.conn_limit;
    server.dialects = plan.clients.dialect;
    server.flush_allowed = plan.clients.flush_allowed;
    server.shutdown_allowed = plan.clients.shutdown_allowed;
    server.dump_allowed = plan.clients.dump_allowed;
    server.watch_allowed = plan.clients.watch_allowed;
    server.rdma = plan.clients.rdma.then(Arc::default);
    server.cas_enabled = plan.clients.cas_enabled;
    let for_clients = u64::try_from(plan.conn_limit).unwrap_or(u64::MAX);
    server.reserved_fds = plan.open_files.saturating_sub(for_clients);
    server.settings = plan.settings();
    server
}
