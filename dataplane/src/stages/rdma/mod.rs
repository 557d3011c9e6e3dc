//! The RDMA stage: RC READ requests in, READ responses out, straight from the store (RoCEv2).
//!
//! In: bursts, of which `Reads::enter_plain` takes what is plain, and frames that stage 3 called `Rdma`. Out: packets
//! that are fit to send. [`Reads::enter`] takes a frame's headers apart and keeps the request; [`Reads::turn`] answers what waits, as far as one
//! turn goes, under one pin of the store. A request is dropped by name or answered; a dropped one is the client's to
//! send again. The stage owns frames from `enter` until they are answered.

mod image;
mod look_up;
mod packets;
mod plain;
mod stage;
#[cfg(test)]
mod tests;

pub use plain::leads;
pub use stage::{Reads, Turn};
