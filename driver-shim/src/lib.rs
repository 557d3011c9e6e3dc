//! Frames in and out: room 1, and the far side of room 7.
//!
//! Everything above this crate sees four things: a [`Region`] of packet slots, the [`Frame`]s
//! that own one slot each, and the two queue traits [`RxQueue`] and [`TxQueue`]. Which driver
//! stands behind a queue (a NIC under DPDK, kernel sockets, a pcap file, a ring in memory) is
//! decided once, at start-up, and never asked again.
//!
//! This is the only crate that knows DPDK, and it knows nothing of memcached.

pub mod counter;
pub mod frame;
pub mod mapping;
pub mod port;
pub mod ports;
pub mod prefetch;
pub mod region;

pub use counter::Counter;
pub use frame::{Burst, Flag, Frame, RxChecksum, TxOffload};
pub use mapping::{Mapping, MemoryKind, Pages};
pub use port::{
    BURST_MAX, MacAddr, Port, PortControl, PortCounters, PortEvents, PortInfo, PortSocket,
    QueuePair, ResetError, RxQueue, Silence, TxCaps, TxQueue,
};
pub use prefetch::prefetch_read;
pub use region::{HEADROOM_BYTES, Region, RegionError, SLOT_BYTES, SlotHome};
