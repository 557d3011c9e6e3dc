//! Which CPUs a thread runs on.
//!
//! DPDK's start-up pins the thread that calls it, and threads made afterwards inherit that; so
//! every thread of the process says by itself where it belongs, once, when it begins.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the calling thread on these CPUs. What cannot be set is told in the log and not fatal:
/// the plan checked the CPUs, but a cpuset can shrink at any time.
pub fn keep_on(cpus: &[usize]) {
    if let Err(error) = set(cpus) {
        tracing::warn!(?cpus, %error, "cannot keep a thread on its CPUs");
    }
}

fn set(cpus: &[usize]) -> Result<(), Errno> {
    let mut wanted = CpuSet::new();
    for &cpu in cpus {
        wanted.set(cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn a_thread_stays_where_it_was_put() {
        std::thread::spawn(|| {
            let last = *Machine::observe().cpus.last().unwrap();
            keep_on(&[last]);
            assert_eq!(Machine::observe().cpus, [last]);
            assert!(set(&[CpuSet::count()]).is_err());
        })
        .join()
        .unwrap();
    }
}
