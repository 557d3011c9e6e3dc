//! `gnomon serve` as a process, on free loopback ports, seen by clients over real sockets.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::cast_possible_truncation)]

mod auth;
mod admin;
mod capture;
mod client;
mod compat;
mod connections;
#[cfg(feature = "dpdk")]
mod dpdk;
mod lifecycle;
mod matrix;
mod metrics;
#[cfg(feature = "simt")]
mod offload;
mod process;
mod profile;
#[path = "../../../dataplane/tests/recorded/mod.rs"]
mod recorded;
mod restart;
mod sandbox;
mod server;
mod shared_reads;
mod start;
mod tcp;
mod tls;
mod udp;
mod unit;
