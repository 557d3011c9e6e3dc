//! The kernel's device under a port of `net_af_packet` or `net_af_xdp`, drivers that say that the link is
//! up whatever becomes of the device.
//!
//! In: the driver's name and its arguments. Out: the kernel's facts of the link. Once made,
//! it cannot fail: a device that is gone has no link.

use crate::ports::netlink::Netlink;
use nix::net::if_::if_nametoindex;
use std::io;

/// The device, and where the kernel is asked about it.
pub(super) struct KernelDevice {
    netlink: Netlink,
    index: u32,
}

impl KernelDevice {
    /// The device that a port with this driver and these arguments stands on. Where it cannot be
    /// watched, the driver's word stands, and the log says so.
    pub(super) fn under(driver: &str, devargs: &str) -> Option<Self> {
        let name = devargs.split(',').find_map(|argument| argument.strip_prefix("iface="))?;
        let over_it = matches!(driver, "net_af_packet" | "net_af_xdp");
        let watched = over_it.then(|| Self::watch(name))?;
        watched
            .inspect_err(|error| tracing::warn!(device = name, "its link is not watched: {error}"))
            .ok()
    }

    fn watch(name: &str) -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open()?, index: if_nametoindex(name)? })
    }

    /// Whether it can receive and send.
    pub(super) fn is_running(&self) -> bool {
        self.netlink.is_running(self.index).unwrap_or(false)
    }
}
