//! The process around the data plane. Never touches a packet.
//!
//! [`startup`] turns flags into a plan, a plan into a wired topology, and runs it (D15). [`host`] is the
//! machine below: what it has, and how it is made ready. [`serve`] is what clients reach: sockets,
//! DPDK ports, the TCP service, credentials, the offload device. [`process`] is the process itself:
//! privileges, sandbox, signals, allocator. [`observe`] shows what runs: metrics, health, reports, captures.

pub mod startup;
pub mod host;
pub mod serve;
pub mod process;
pub mod observe;
