//! A DPDK port as a link: a NIC, or any of DPDK's virtual devices.

use super::queues::Queues;
use driver_shim::ports::dpdk::{
    DpdkError, DpdkPort, Eal, EalConfig, PortConfig, memory_mb_for, region,
};
use driver_shim::{MacAddr, Pages};

/// Packet slots: both rings full, and as many again on their way.
const SLOTS: u32 = 16_384;

/// Starts DPDK and opens one queue of the port `spec`, which may then be played over. Replies go
/// to the Ethernet addresses in the capture, so the port listens to all.
///
/// # Errors
/// [`DpdkError`]: DPDK does not start, or there is no such port.
pub fn open(spec: &str, dst_mac: Option<MacAddr>) -> Result<Queues, DpdkError> {
    // A PCI address holds a colon; virtual devices are named like net_tap0.
    let is_pci = spec.split(',').next().is_some_and(|name| name.contains(':'));
    let eal = Eal::init(&EalConfig {
        memory_mb: memory_mb_for(SLOTS),
        pci_allow: if is_pci { vec![spec.to_owned()] } else { Vec::new() },
        ..EalConfig::default()
    })?;
    let region = region(&eal, SLOTS, Pages::Prefer)?;
    let config = PortConfig { promiscuous: true, ..PortConfig::new(spec) };
    let port = DpdkPort::open(&eal, &region, &config)?.start()?;
    let name = port.info.name.clone();
    let no_queue = || DpdkError::BadSpec { spec: name, why: "the port has no queue" };
    let pair = port.queues.into_iter().next().ok_or_else(no_queue)?;
    Ok(Queues::new(pair, region, dst_mac).keeping(port.control))
}
