//! Which CPUs a thread runs on, and which NUMA node its memory comes from.
//!
//! DPDK's start-up pins the thread that calls it, and threads made afterwards inherit that; so
//! every thread of the process says by itself where it belongs, once, when it begins. The node is
//! said once for all, before there are others, or around the making of what is to lie there.
#![allow(unsafe_code)]

use driver_shim::NodePolicy;
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_timerslack;
use nix::unistd::Pid;

/// Keeps the calling thread on these CPUs. What cannot be set is logged and not fatal:
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

/// Has sleeps of the calling thread, and of those that it will start, end when they are to, and not up to 50 us
/// later: an idle worker's are not much longer.
pub fn sleep_exactly() {
    // A kernel that refuses it has sleeps last longer, no more.
    let _ = set_timerslack(1);
}

/// Takes memory from this node, as long as it has any, for the calling thread and those that it will
/// start. What cannot be had is logged and not fatal: containers often may not.
pub fn prefer_node(node: u32) {
    if let Err(error) = prefer(&[node]) {
        tracing::warn!(node, %error, "cannot take memory from this NUMA node");
    }
}

/// Makes something with memory of this node, and then takes memory from where the thread runs. Without a node as
/// anything is made.
pub fn on_node<T>(node: Option<u32>, make: impl FnOnce() -> T) -> T {
    let Some(node) = node else { return make() };
    prefer_node(node);
    let made = make();
    // Where the node could not be had, nothing is to be undone.
    let _ = prefer(&[]);
    made
}

fn prefer(nodes: &[u32]) -> Result<(), Errno> {
    let policy = NodePolicy::of(nodes)?;
    let (mode, mask, bits) = policy.arguments();
    // SAFETY: set_mempolicy reads as many bits as it is given, less one, and the mask has as many.
    let rc = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), bits) };
    Errno::result(rc).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::machine::{Machine, Node};

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

    #[test]
    fn memory_comes_from_a_node_that_there_is() {
        std::thread::spawn(|| {
            let nodes = crate::host::machine::nodes("/sys".as_ref());
            let Some(Node { id, .. }) = nodes.first() else {
                return assert_eq!(prefer(&[0]), Err(Errno::ENOSYS));
            };
            let policy = format!(" prefer:{id} ");
            let preferred = || {
                let maps = std::fs::read_to_string("/proc/thread-self/numa_maps").unwrap();
                maps.lines().filter(|line| line.contains(&policy)).count()
            };
            assert_eq!(preferred(), 0);
            match prefer(&[*id]) {
                // Many containers forbid it.
                Err(Errno::EPERM) => return,
                done => done.unwrap(),
            }
            assert!(preferred() > 0);
            assert_eq!(prefer(&[1023]), Err(Errno::EINVAL));
            assert_eq!(prefer(&[u32::MAX]), Err(Errno::EINVAL));
            prefer(&[]).unwrap();
            assert_eq!(preferred(), 0);
            assert!(on_node(None, preferred) == 0 && on_node(Some(*id), preferred) > 0);
            assert_eq!(preferred(), 0);
        })
        .join()
        .unwrap();
    }
}
