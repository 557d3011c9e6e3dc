//! One file per kind of port.

pub mod bundled;
#[cfg(feature = "dpdk")]
pub mod dpdk;
#[cfg(any(test, feature = "testing"))]
pub mod fault;
pub mod memory;
pub mod pcap;
pub mod tap;
pub mod udp;

mod netlink;
mod tally;
mod wait;

pub use wait::Waker;
