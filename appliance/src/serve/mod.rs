//! What clients and data reach: kernel [`sockets`], DPDK [`ports`], the [`tcp`] service and its
//! [`credentials`], what [`tls`] is spoken with, and the [`offload`] device.

pub mod sockets;
pub mod ports;
pub mod tcp;
pub mod credentials;
pub mod tls;
pub mod offload;
