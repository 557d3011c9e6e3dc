//! `gnomon-study`: experiments that show how fast the data plane is, and against what.
//!
//! Each prints its figures beside what they were measured against, in one run: machines are shared,
//! and a bare time says little. What all have in common is in [`frame`]: flags, facts about the run,
//! and the figures, tables and plots that are left of it.
//!
//! | study | question |
//! |---|---|
//! | [`offline`] | what a request takes, from frames in memory |
//! | [`stages`] | in which stage |
//! | [`batch`] | what batches do to throughput and latency |
//! | [`latency`] | how long a client waits, by load |
//! | [`simd`] | how well kernels keep their lanes together |
//! | [`gpu_cache`] | how much of what kernels load a GPU's cache has |
//! | [`consolidation`] | what another user of the GPU does to GETs |
//! | [`writers`] | what taking chunks for a burst gives several writers |
//! | [`hitrate`] | what a hash table's form costs in misses |
//! | [`fpga`] | the FPGA appliance by its cycles: rate, FIFO, hit rate |
//! | [`schedule`] | the shortest cycle of periodic scheduling, its most requests and its lowest clocks, by what a GPU costs |
//! | [`tco`] | the papers' cost tables, recomputed |
//! | [`rdma`] | what a one-sided read costs beside a GET over TCP |
//! | [`hitrate_live`], [`tcp`] | the same and more of live servers, side by side |

pub mod batch;
pub mod bench;
pub mod children;
pub mod consolidation;
pub mod engine;
pub mod oracle_engine;
pub mod fpga;
pub mod frame;
pub mod gpu_cache;
pub mod hitrate;
pub mod hitrate_live;
pub mod kernels;
pub mod lanes;
pub mod latency;
pub mod load;
pub mod memcached;
pub mod memory;
pub mod offline;
pub mod one_sided;
pub mod paced;
pub mod path;
pub mod rdma;
pub mod schedule;
pub mod server;
pub mod simd;
pub mod stages;
pub mod tco;
pub mod tcp;
pub mod writers;

use std::time::Duration;

/// CPU time of this thread since it began.
fn thread_cpu() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

/// Nanoseconds each, of `n`.
fn per(time: Duration, n: u64) -> f64 {
    time.as_secs_f64() * 1e9 / n.max(1) as f64
}

/// The median of these, which are sorted; of none, not a number.
pub fn median(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
