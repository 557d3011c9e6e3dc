//! A DPDK port as a link: a NIC, or any of DPDK's virtual devices.

use super::port_frames::PortFrames;
use super::queues::Queues;
use driver_shim::ports::dpdk::{
    DpdkError, DpdkPort, Eal, EalConfig, PortConfig, memory_mb_for, region,
};
use driver_shim::{MacAddr, Pages, Port, Region};
use gnomon_client::requester::Route;
use std::net::IpAddr;

/// Packet slots of a queue: both rings full, and as many again on their way.
const SLOTS_PER_QUEUE: u32 = 16_384;

/// Starts DPDK and opens the port `spec` with so many queues, which may then be played over.
/// Replies go to the Ethernet addresses in the capture, so the port listens to all.
///
/// # Errors
/// [`DpdkError`]: DPDK does not start, there is no such port, or it has fewer queues.
pub fn open(spec: &str, queues: u16, dst_mac: Option<MacAddr>) -> Result<Queues, DpdkError> {
    let (port, region) = port(spec, queues)?;
    Ok(Queues::new(port.queues, region, dst_mac).keeping(port.control))
}

/// The same for one-sided reads, between these addresses, by the station `dst_mac`.
///
/// # Errors
/// As for [`open`].
pub fn open_frames(
    spec: &str,
    dst_mac: MacAddr,
    between: [IpAddr; 2],
) -> Result<Option<PortFrames>, DpdkError> {
    let (mut port, region) = port(spec, 1)?;
    let route = Route { macs: [port.info.mac, dst_mac], between };
    let frames = port.queues.pop().map(|pair| PortFrames::new(pair, region, route));
    Ok(frames.map(|frames| frames.keeping(port.control)))
}

fn port(spec: &str, queues: u16) -> Result<(Port, Region), DpdkError> {
    // A PCI address holds a colon; virtual devices are named like net_tap0.
    let is_pci = spec.split(',').next().is_some_and(|name| name.contains(':'));
    let slots = SLOTS_PER_QUEUE * u32::from(queues.max(1));
    let eal = Eal::init(&EalConfig {
        memory_mb: memory_mb_for(slots),
        pci_allow: if is_pci { vec![spec.to_owned()] } else { Vec::new() },
        ..EalConfig::default()
    })?;
    let region = region(&eal, slots, Pages::Prefer, None)?;
    let config = PortConfig { promiscuous: true, queues, ..PortConfig::new(spec) };
    Ok((DpdkPort::open(&eal, &region, &config)?.start()?, region))
}
