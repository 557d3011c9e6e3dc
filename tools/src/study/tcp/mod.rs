//! The TCP study: requests per second and CPU time per request of several servers under the same
//! load, pipelined and not.
//!
//! One client thread, a closed loop: each connection sends so many requests in one write, and the
//! next ones when every reply has come and was right to the byte. Servers run all the time and are
//! measured in turn, a short round each, so that whatever else the machine does falls on all of
//! them; medians and ratios within a round are shown.
//!
//! [`script`] says what is sent and what must come back, [`client`] sends and compares, `memory` does
//! so with a worker that is given frames in memory, `wire` puts DPDK's drivers and network namespaces
//! between client and server, `cli` measures and prints.

mod cli;
pub mod client;
pub(super) mod memory;
mod namespace;
pub mod script;
mod wire;

pub use cli::Cli;
