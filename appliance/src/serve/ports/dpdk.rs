//! The plan's ports under DPDK.

use super::{Driver, OpenPort, Opened, PortsError, in_service};
use crate::startup::flags::{Isolated, PortSpec};
use crate::startup::plan::{Device, PartPlan, Plan, PortPlan};
use dataplane::stages::exits::exception_path::ExceptionPath;
use driver_shim::ports::dpdk::{
    DpdkError, DpdkPort, Eal, EalConfig, Isolation, NumaNode, PortConfig, RegisteredThread,
    Service, memory_mb_for, region, register_thread,
};
use driver_shim::ports::tap::{Tap, TapConfig};
use driver_shim::{PortInfo, Region};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use wire::roce;

pub(super) fn open(plan: &Plan) -> Result<Opened, PortsError> {
    let pci = plan.ports.iter().filter_map(|p| match &p.device {
        Device::Dpdk(spec @ PortSpec::Pci { .. }) => Some(spec.spec()),
        _ => None,
    });
    let eal = Eal::init(&EalConfig {
        huge: plan.huge,
        // The largest part's, of each node.
        memory_mb: plan.parts.iter().map(|part| memory_mb_for(part.slots)).max().unwrap_or(0),
        file_prefix: None,
        pci_allow: pci.collect(),
        cpus: vec![plan.control_cpu],
        nodes: plan
            .parts
            .iter()
            .filter_map(|part| part.numa.as_ref())
            .map(|numa| NumaNode { id: numa.node, cpus: numa.cpus.clone() })
            .collect(),
        extra: plan.eal.clone(),
        ..EalConfig::default()
    })?;
    let regions = plan.parts.iter().map(|part| region(&eal, part.slots, plan.huge, part.node()));
    let regions = regions.collect::<Result<Vec<_>, _>>()?;
    let mut ports = Vec::new();
    for (n, port) in plan.ports.iter().enumerate() {
        let mut parts = plan.parts.iter().zip(&regions);
        let Some((part, region)) = parts.find(|(part, _)| part.ports.contains(&n)) else {
            continue;
        };
        let open = open_one(plan, &eal, (part, region), port)?;
        let isolated = open.is_isolated();
        let path = port.exception_path.clone().filter(|_| !isolated);
        let port = &PortPlan { exception_path: path, ..port.clone() };
        let served = port.addresses.iter().filter(|_| port.udp_port > 0);
        let addresses = served.map(|a| SocketAddr::new(a.ip, port.udp_port));
        let service = in_service(plan, port, open.start()?, addresses.collect())?;
        if isolated {
            tracing::info!(port = service.info.name, "isolated: the kernel keeps the rest");
        }
        ports.push(OpenPort {
            exception_path: exception_path(port, plan.exception_rate, &service.info, region)?,
            // Isolated, the kernel has them.
            announcer: service.announcer.filter(|_| !isolated),
            ..service
        });
    }
    Ok(Opened { driver: Driver { eal: Some(Arc::new(eal)) }, regions, ports })
}

/// Opens a port of a part with a queue for each of its workers, or with as many as the device has where the number of
/// workers was not set by a flag.
fn open_one(
    plan: &Plan,
    eal: &Eal,
    (part, region): (&PartPlan, &Region),
    port: &PortPlan,
) -> Result<DpdkPort, DpdkError> {
    let workers = u16::try_from(part.worker_cpus.len()).unwrap_or(u16::MAX);
    let isolation = isolation(plan, port);
    let or_fewer = !plan.cores_given;
    let new = PortConfig::new(match &port.device {
        Device::Dpdk(spec) => spec.spec(),
        Device::Sockets(_) => String::new(),
    });
    let config = PortConfig { queues: workers, or_fewer, isolation, ..new };
    let open = DpdkPort::open(eal, region, &config)?;
    let queues = open.queues();
    if queues < part.worker_cpus.len() {
        tracing::warn!(port = config.spec, "{queues} of {workers} workers: it has no more queues");
    }
    Ok(open)
}

/// What leaves the kernel, where the port is to be isolated.
fn isolation(plan: &Plan, port: &PortPlan) -> Option<Isolation> {
    let required = match port.isolated {
        Isolated::Off => return None,
        Isolated::Auto => false,
        Isolated::On => true,
    };
    let udp = (port.udp_port > 0).then_some((port.udp_port, false));
    let tcp = port.tcp_port.map(|port| (port, true));
    let rdma = plan.clients.rdma.then_some((roce::PORT, false));
    let services = port.addresses.iter().flat_map(|at| {
        let ip = at.ip;
        let all = [udp, tcp, rdma].into_iter().flatten();
        all.map(move |(port, tcp)| Service { ip, port, tcp })
    });
    Some(Isolation { services: services.collect(), required })
}

pub(super) fn enrol(eal: &Eal) -> Option<RegisteredThread> {
    let place = register_thread(eal);
    if let Err(error) = &place {
        tracing::warn!(%error, "a worker works without a cache of packet slots");
    }
    place.ok()
}

/// The exception path that the plan gives this port.
fn exception_path(
    port: &PortPlan,
    rate_pps: NonZeroU32,
    info: &PortInfo,
    region: &Region,
) -> Result<Option<Arc<ExceptionPath>>, PortsError> {
    let Some(name) = &port.exception_path else { return Ok(None) };
    let tap = Tap::open(&TapConfig {
        name: name.clone(),
        mac: info.mac,
        mtu: info.mtu,
        addrs: port.addresses.iter().map(|a| (a.ip, a.prefix_len)).collect(),
    })?;
    let path = ExceptionPath::new(tap, rate_pps, region.clone());
    Ok(Some(Arc::new(path.map_err(PortsError::Descriptors)?)))
}
