//! The stages that a packet passes, the worker that runs them, and what they share.
//!
//! To read on: [`stages`], whose `mod` lines stand in the order of the packet, then [`worker`].

pub mod stages;
// The order of the stages.
pub mod worker;

// What they share.
pub mod announce;
pub mod capture;
pub mod commands;
pub mod counters;
pub mod frame_accounting;
pub mod log2_histogram;
pub mod observe;
pub mod plain;
pub mod policy;
pub mod rdma;
pub mod reply;

pub use counters::{Counter, Ledger, WorkerCounters};
