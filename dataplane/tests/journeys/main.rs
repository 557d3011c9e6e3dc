//! Journeys: frames in at one end of a worker, frames out at the other, over ports in memory.
//!
//! Requests are built and replies are taken apart by etherparse, which shares no code with the
//! data plane. After every journey the packet-accounting invariant (D10) holds and every slot is returned ([`World::end`]).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod announce;
mod bad;
mod binary;
mod capture;
mod cycles;
mod drills;
mod faults;
mod grouped;
mod offload;
mod offload_faults;
mod policy;
mod rdma;
mod rdma_client;
mod replies;
mod stream_client;
mod streams;
mod refuse_fragment;
mod vulnerabilities;
mod whole_replies;
mod work;
mod world;
