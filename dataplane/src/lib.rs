//! The rooms that a packet walks through, in order, and the furniture that they share.
//!
//! The order of the `mod` lines is the order of the packet. Room 1 is the driver, in the crate
//! `driver-shim`.

// The rooms.
pub mod rx;
pub mod fast_path;
pub mod wire;
pub mod respond;
pub mod too_long;
pub mod side_door;
pub mod stream;
pub mod batcher;
pub mod cpu_engine;
pub mod dispatch;
pub mod execute;
pub mod tx;
// Who knows their order.
pub mod pipeline;

// The furniture.
pub mod accounts;
pub mod announce;
pub mod capture;
pub mod counters;
pub mod drop_reason;
pub mod policy;
pub mod powers;
pub mod protocol;
pub mod reply;
mod short;
pub mod store;

pub use counters::{Counter, Ledger, WorkerCounters};
pub use drop_reason::DropReason;
