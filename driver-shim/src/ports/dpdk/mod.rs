//! Ports driven by DPDK: real NICs, and its virtual devices.
//!
//! In: an [`EalConfig`], then for each port a [`PortConfig`]. Out: a [`crate::Port`] like
//! any other, over a [`region`] whose free slots wait in a DPDK mempool. The order is
//!
//! ```text
//! Eal::init ──► region ──► DpdkPort::open ──► start ──► Port { queues, control }
//!                            (per port)                   each worker: register_thread
//! ```
//!
//! Who owns what: queues, control and region each keep alive what they stand on, so they may go
//! in any order; DPDK itself ends when the last has gone. Can fail: only start-up, with
//! [`DpdkError`]. `docs/dpdk-ports.md` says how to use each kind of device.

mod eal;
mod error;
mod isolation;
mod kernel_device;
mod pool;
mod port;
mod queue;
mod queue_state;
mod reset;
mod shared;
mod signals;
mod spec;
mod thread;

pub use eal::{Eal, EalConfig, NumaNode, check_arguments, memory_mb_for};
pub use error::DpdkError;
pub use isolation::{Isolation, Service};
pub use pool::region;
pub use port::{DpdkPort, PortConfig};
pub use thread::{RegisteredThread, register_thread};
