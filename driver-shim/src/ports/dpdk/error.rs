//! What can go wrong while DPDK starts, and what to do about it.

use crate::region::RegionError;
use std::io;

/// Why DPDK, its region or a port could not be had. Only at start-up; bursts cannot fail.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// A second environment.
    #[error("DPDK was started before in this process and can be started only once; share the Eal")]
    AlreadyStarted,
    /// An argument after `--` that gnomon sets itself.
    #[error("DPDK argument `{arg}` is set by gnomon itself; {instead}")]
    OwnedArgument {
        /// As it was typed.
        arg: String,
        /// What to use in its place.
        instead: &'static str,
    },
    /// A string that C cannot take.
    #[error("`{arg}` holds a zero byte or is empty; correct it")]
    BadArgument {
        /// The string.
        arg: String,
    },
    /// Huge pages were requested by name and are not there.
    #[error(
        "{wanted_mb} MB of 2 MB huge pages are needed and {free_mb} MB are free; reserve more \
         (sysctl vm.nr_hugepages) or let gnomon use ordinary pages"
    )]
    HugePages {
        /// Memory requested.
        wanted_mb: u32,
        /// Memory in free huge pages.
        free_mb: u64,
    },
    /// `rte_eal_init` refused.
    #[error("DPDK does not start: {source}; arguments were: {args}; {hint}")]
    Init {
        /// Its reason.
        source: io::Error,
        /// The arguments it was given.
        args: String,
        /// What to do.
        hint: &'static str,
    },
    /// The region itself.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The mempool over the region.
    #[error(
        "DPDK cannot make a pool of {slots} buffers: {source}; ask for fewer slots or give DPDK \
         more memory ({need_mb} MB for this many)"
    )]
    Pool {
        /// Slots requested.
        slots: u32,
        /// DPDK's reason.
        source: io::Error,
        /// Memory that a pool of this size needs.
        need_mb: u32,
    },
    /// A port specification that cannot be right.
    #[error(
        "`{spec}` is not a port: {why}; write a PCI address such as 0000:81:00.0, or a DPDK \
         virtual device such as net_tap0,iface=gn0"
    )]
    BadSpec {
        /// As it was typed.
        spec: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No such device, or no driver takes it.
    #[error("DPDK has no port `{spec}`: {source}; {hint}")]
    NoDevice {
        /// As it was typed.
        spec: String,
        /// DPDK's reason.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The same device twice.
    #[error("port {name} is open already; name each port once")]
    InUse {
        /// The port.
        name: String,
    },
    /// A region whose slots do not live in a mempool.
    #[error("port {name} needs a region made by ports::dpdk::region")]
    NoPool {
        /// The port.
        name: String,
    },
    /// More queues than the device has, or none.
    #[error("port {name} can have 1 to {max} queues, not {asked}; use that many workers on it")]
    Queues {
        /// The port.
        name: String,
        /// Queues requested.
        asked: u16,
        /// The device's most.
        max: u16,
    },
    /// An MTU that the device or a slot cannot take.
    #[error("port {name} can have an MTU of {min} to {max} bytes, not {asked}")]
    Mtu {
        /// The port.
        name: String,
        /// MTU requested.
        asked: u16,
        /// Smallest.
        min: u16,
        /// Largest.
        max: u16,
    },
    /// The receive descriptors alone would empty the region.
    #[error(
        "port {name} with {queues} queues of {descriptors} descriptors wants {need} packet slots \
         and the region has {slots}; ask for fewer descriptors or more slots"
    )]
    TooFewSlots {
        /// The port.
        name: String,
        /// Queues requested.
        queues: u16,
        /// Receive descriptors per queue.
        descriptors: u16,
        /// Slots that they take, with a burst for each queue.
        need: usize,
        /// Slots in the region.
        slots: usize,
    },
    /// A step of setting the port up.
    #[error("port {name}: cannot {step}: {source}; {hint}")]
    Setup {
        /// The port.
        name: String,
        /// What was tried.
        step: &'static str,
        /// DPDK's reason.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// A driver that cannot leave frames to the kernel.
    #[error(
        "port {name}: {driver} cannot isolate: {source}{words}; with --isolated off every frame comes \
         to gnomon"
    )]
    NoIsolation {
        /// The port.
        name: String,
        /// Its driver.
        driver: String,
        /// DPDK's reason.
        source: io::Error,
        /// The driver's words, in brackets.
        words: String,
    },
    /// A driver that isolates, and does not take a rule.
    #[error(
        "port {name}: its driver does not hand over {service}: {source}{words}; with --isolated off \
         every frame comes to gnomon"
    )]
    NoRule {
        /// The port.
        name: String,
        /// The service.
        service: String,
        /// DPDK's reason.
        source: io::Error,
        /// The driver's words, in brackets.
        words: String,
    },
    /// The thread cannot have caches.
    #[error("DPDK cannot register this thread: {source}; it takes 128 threads at most")]
    Thread {
        /// DPDK's reason.
        source: io::Error,
    },
}

/// A count, or the error behind a negative errno.
pub(super) fn check(rc: i32) -> io::Result<u16> {
    if rc < 0 {
        return Err(io::Error::from_raw_os_error(rc.saturating_neg()));
    }
    Ok(u16::try_from(rc).unwrap_or(u16::MAX))
}
