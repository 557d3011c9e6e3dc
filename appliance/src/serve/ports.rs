//! Opens the plan's ports: the shared region of each part, queues, addresses and exception paths.
//!
//! In: a [`Plan`]. Out: [`Opened`]. Either all ports are kernel sockets, or all are DPDK's: the
//! region's free slots wait in DPDK's pool or in a queue of its own.

#[cfg(feature = "dpdk")]
mod dpdk;

use crate::startup::plan::{Device, Plan, PortPlan};
use dataplane::announce::Announcer;
use dataplane::stages::exits::exception_path::ExceptionPath;
use driver_shim::ports::tap::TapError;
use driver_shim::ports::udp::{self, UdpPortConfig, UdpPortError};
use driver_shim::{Port, PortControl, PortInfo, QueuePair, Region, RegionError};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use wire::{Local, LocalError};

/// Why the ports could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// No memory for packets.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Kernel sockets.
    #[error(transparent)]
    Sockets(#[from] UdpPortError),
    /// DPDK.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Dpdk(#[from] driver_shim::ports::dpdk::DpdkError),
    /// An exception path.
    #[error("{0}; or do without it: --side-door none")]
    ExceptionPath(#[from] TapError),
    /// What wakes an exception path's thread.
    #[error("no more file descriptors: {0}")]
    Descriptors(std::io::Error),
    /// The addresses of a port.
    #[error("port {port}: {source}")]
    Addresses {
        /// Its name.
        port: String,
        /// What is wrong with them.
        source: LocalError,
    },
}

/// A port in service.
pub struct OpenPort {
    /// Facts.
    pub info: PortInfo,
    /// Its addresses, and who may talk to it.
    pub local: Arc<Local>,
    /// One pair per worker, until the workers take them.
    pub queues: Vec<QueuePair>,
    /// The kernel's side of it.
    pub exception_path: Option<Arc<ExceptionPath>>,
    /// Has its addresses announced, where it is not the kernel that has them.
    pub announcer: Option<Arc<Announcer>>,
    /// Counters, link and stop.
    pub control: Box<dyn PortControl>,
    /// Where clients find it.
    pub addresses: Vec<SocketAddr>,
}

impl fmt::Debug for OpenPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenPort").field("info", &self.info).finish_non_exhaustive()
    }
}

/// What [`open`] gives.
#[derive(Debug)]
pub struct Opened {
    /// For threads that use the queues.
    pub driver: Driver,
    /// The packets' memory, of each part of the plan; none without ports.
    pub regions: Vec<Region>,
    /// The ports, in the plan's order.
    pub ports: Vec<OpenPort>,
}

/// The driver library behind the ports, where there is one.
#[derive(Debug, Clone, Default)]
pub struct Driver {
    #[cfg(feature = "dpdk")]
    eal: Option<Arc<driver_shim::ports::dpdk::Eal>>,
}

/// A thread's place with the driver library. To be dropped by that thread, after its queues.
#[derive(Debug)]
pub struct Enrolled {
    #[cfg(feature = "dpdk")]
    _thread: Option<driver_shim::ports::dpdk::RegisteredThread>,
}

impl Driver {
    /// Makes the calling thread known to the driver library. Without a place it is slower, no
    /// more.
    pub fn enrol(&self) -> Enrolled {
        Enrolled {
            #[cfg(feature = "dpdk")]
            _thread: self.eal.as_ref().and_then(|eal| dpdk::enrol(eal)),
        }
    }

    /// The directory that the library removes at its end, where it has one.
    pub fn dir(&self) -> Option<&Path> {
        #[cfg(feature = "dpdk")]
        return self.eal.as_ref().and_then(|eal| eal.runtime_dir());
        #[cfg(not(feature = "dpdk"))]
        None
    }
}

/// Opens every port of the plan.
///
/// # Errors
/// [`PortsError`]: the first that cannot be had. Those before it are closed again.
pub fn open(plan: &Plan) -> Result<Opened, PortsError> {
    if plan.ports.is_empty() {
        return Ok(Opened { driver: Driver::default(), regions: Vec::new(), ports: Vec::new() });
    }
    #[cfg(feature = "dpdk")]
    if plan.needs_dpdk() {
        return dpdk::open(plan);
    }
    let region = Region::new(plan.slots(), plan.huge)?;
    let mut ports = Vec::new();
    for port in &plan.ports {
        let Device::Sockets(ips) = &port.device else { continue };
        let binds = ips.iter().map(|&ip| SocketAddr::new(ip, port.udp_port)).collect();
        let config = UdpPortConfig { binds, queues: plan.worker_cpus().len() };
        let (open, addresses) = udp::open(&config, &region)?;
        ports.push(in_service(plan, port, open, addresses)?);
    }
    Ok(Opened { driver: Driver::default(), regions: vec![region], ports })
}

fn in_service(
    plan: &Plan,
    port: &PortPlan,
    open: Port,
    addresses: Vec<SocketAddr>,
) -> Result<OpenPort, PortsError> {
    let Port { info, queues, control } = open;
    let own: Vec<(IpAddr, u8)> = port.addresses.iter().map(|a| (a.ip, a.prefix_len)).collect();
    let local = Local::new(info.mac, &own, port.udp_port)
        .map_err(|source| PortsError::Addresses { port: info.name.clone(), source })?;
    let local = Local {
        any_destination: info.any_destination,
        trusted: plan.policy.trusted.iter().copied().collect(),
        allow: plan.allow.iter().copied().collect(),
        tcp_from_all: plan.tcp_from_all,
        exception_path: port.exception_path.is_some(),
        tcp_port: port.tcp_port,
        rdma: plan.clients.rdma && !info.any_destination,
        ..local
    };
    let announcer = (!info.any_destination).then(Arc::default);
    let local = Arc::new(local);
    Ok(OpenPort { info, local, queues, exception_path: None, announcer, control, addresses })
}
