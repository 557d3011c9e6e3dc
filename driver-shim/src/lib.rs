//! Frames in and out: stage 1, and the far side of stage 7.
//!
//! Everything above this crate sees four things: a [`Region`] of packet slots, the [`Frame`]s
//! that own one slot each, and the two queue traits [`RxQueue`] and [`TxQueue`]. Which driver
//! stands behind a queue (a NIC under DPDK, kernel sockets, a pcap file, a ring in memory) is
//! decided once, at start-up, and never asked again.
//!
//! This is the only crate that uses DPDK, and nothing in it depends on memcached.

pub mod buffers;
pub mod counter;
pub mod frame;
pub mod free_stack;
pub mod mapping;
pub mod nodes;
pub mod port;
pub mod ports;
pub mod prefetch;
pub mod region;
pub mod slots;

pub use counter::Counter;
pub use frame::{
    BURST_MAX, Burst, Flag, Frame, Open, RxChecksum, TxOffload, append_burst, take_last_burst,
};
pub use mapping::{Mapping, MemoryKind, Pages};
pub use nodes::NodePolicy;
pub use port::{
    MacAddr, Port, PortControl, PortCounters, PortEvents, PortInfo, PortSocket, QueuePair,
    ResetError, RxQueue, Silence, TxCaps, TxQueue,
};
pub use prefetch::prefetch_read;
pub use region::{Region, RegionError};
pub use slots::{HEADROOM_BYTES, SLOT_BYTES, SlotPool};
