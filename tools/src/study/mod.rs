//! `gnomon-study`: experiments that show how fast the data plane is, and against what.
//!
//! Each prints its figures as ratios beside what they were measured against, in one run: machines
//! are shared, and a bare time says little.

pub mod hitrate;
pub mod load;
pub mod memcached;
pub mod memory;
pub mod offline;
pub mod server;
pub mod tcp;

use std::time::Duration;

/// CPU time of this thread since it began.
fn thread_cpu() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

/// Nanoseconds each, of `n`.
fn per(time: Duration, n: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count below 2^52")]
    let n = n.max(1) as f64;
    time.as_secs_f64() * 1e9 / n
}
