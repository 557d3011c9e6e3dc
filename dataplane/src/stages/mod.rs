//! The stages that a packet passes, in order: README.md's picture, as a directory.
//!
//! Stage 1 is the driver (`driver-shim`), stage 3 is [`wire::classify()`]. No stage uses another one;
//! [`worker`](crate::worker) alone defines their order. Each takes what the one before it gives, and a
//! frame that goes no further is dropped by name.

pub mod rx;
pub mod fast_path;
pub mod exits;
pub mod stream;
pub mod rdma;
pub mod batch;
pub mod engine;
pub mod execute;
pub mod tx;
