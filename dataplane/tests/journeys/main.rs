//! Journeys: frames in at one end of a worker, frames out at the other, over ports in memory.
//!
//! Requests are built and replies are taken apart by etherparse, which shares no code with the
//! data plane. After every journey the law of D10 holds and every slot is home ([`World::end`]).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod announce;
mod bad;
mod binary;
mod capture;
mod drills;
mod faults;
mod offload;
mod offload_faults;
mod policy;
mod replies;
mod streams;
mod too_long;
mod vulnerabilities;
mod work;
mod world;
