//! What can go wrong while DPDK starts, and what to do about it.

use crate::region::RegionError;
use std::io;

/// Why DPDK, its region or a port could not be had. Only at start-up; bursts cannot fail.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum DpdkError {
    #[error("DPDK was started before in this process and can be started only once; share the Eal")]
    AlreadyStarted,
    #[error("DPDK argument `{arg}` is set by gnomon itself; {instead}")]
    OwnedArgument { arg: String, instead: &'static str },
    #[error("`{arg}` holds a zero byte or is empty; correct it")]
    BadArgument { arg: String },
    #[error(
        "DPDK needs {} huge pages of 2 MB more, and {} are free: reserve more (sysctl vm.nr_hugepages), or take \
         --huge auto",
        wanted_mb.div_ceil(2), free_mb / 2
    )]
    HugePages { wanted_mb: u32, free_mb: u64 },
    /// `rte_eal_init` refused.
    #[error("DPDK does not start: {source}; arguments were: {args}; {hint}")]
    Init { source: io::Error, args: String, hint: &'static str },
    /// The region itself.
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(
        "DPDK cannot make a pool of {slots} buffers: {source}; ask for fewer slots or give DPDK \
         more memory ({need_mb} MB for this many)"
    )]
    Pool { slots: u32, source: io::Error, need_mb: u32 },
    #[error(
        "`{spec}` is not a port: {why}; write a PCI address such as 0000:81:00.0, or a DPDK \
         virtual device such as net_tap0,iface=gn0"
    )]
    BadSpec { spec: String, why: &'static str },
    #[error("DPDK has no port `{spec}`: {source}; {hint}")]
    NoDevice { spec: String, source: io::Error, hint: &'static str },
    #[error("port {name} is open already; name each port once")]
    InUse { name: String },
    /// A region whose slots do not live in a mempool.
    #[error("port {name} needs a region made by ports::dpdk::region")]
    NoPool { name: String },
    #[error("port {name} can have 1 to {max} queues, not {asked}; use that many workers on it")]
    Queues { name: String, asked: u16, max: u16 },
    #[error("port {name} can have an MTU of {min} to {max} bytes, not {asked}")]
    Mtu { name: String, asked: u16, min: u16, max: u16 },
    /// The receive descriptors alone would empty the region.
    #[error(
        "port {name} with {queues} queues of {descriptors} descriptors wants {need} packet slots \
         and the region has {slots}; ask for fewer descriptors or more slots"
    )]
    TooFewSlots {
        name: String,
        queues: u16,
        descriptors: u16,
        /// Slots that they take, with a burst for each queue.
        need: usize,
        slots: usize,
    },
    #[error("port {name}: cannot {step}: {source}; {hint}")]
    Setup { name: String, step: &'static str, source: io::Error, hint: &'static str },
    #[error(
        "port {name}: {driver} cannot isolate: {source}{words}; with --isolated off every frame comes \
         to gnomon"
    )]
    NoIsolation {
        name: String,
        driver: String,
        source: io::Error,
        /// The driver's words, in brackets.
        words: String,
    },
    #[error(
        "port {name}: its driver does not hand over {service}: {source}{words}; with --isolated off \
         every frame comes to gnomon"
    )]
    NoRule {
        name: String,
        service: String,
        source: io::Error,
        /// The driver's words, in brackets.
        words: String,
    },
    #[error("DPDK cannot register this thread: {source}; it takes 128 threads at most")]
    Thread { source: io::Error },
}

/// A count, or the error behind a negative errno.
pub(super) fn check(rc: i32) -> io::Result<u16> {
    if rc < 0 {
        return Err(io::Error::from_raw_os_error(rc.saturating_neg()));
    }
    Ok(u16::try_from(rc).unwrap_or(u16::MAX))
}

/// The same from a device's driver, whose word for any error is -1.
pub(super) fn check_driver(rc: i32) -> io::Result<u16> {
    if rc == -1 {
        Err(io::Error::other("no reason given, or no right to do it"))
    } else {
        check(rc)
    }
}
