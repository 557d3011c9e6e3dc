//! The filter over system calls (seccomp), on every thread of the process.
//!
//! In: what is needed, and the lists of [`super::calls`]. Out: three programs in force, of whose
//! verdicts the strictest counts: one that ends the process, one that does not list some calls,
//! and the one that allows what is listed and refuses the rest with `EPERM`. Refused, not killed: a
//! library's call that was not foreseen fails, and the cache goes on.

use super::calls::{ABSENT, BOUNDED, Bound, Call, FREE, HOSTILE, OF_DPDK, OLDER};
use super::{Needs, Part};
use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};
use std::collections::BTreeMap;

/// Rules by the number of their call; none means whatever the arguments are.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;
/// An argument's number, its width, and what holds for it.
type Condition = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// Puts the filter into force, on threads that run already, too. It can never be taken away.
pub(super) fn install(needs: &Needs) -> Part {
    let programs = match programs(needs, std::process::id()) {
        Ok(programs) => programs,
        Err(error) => return Part::Off(error.to_string()),
    };
    for program in programs {
        if let Err(error) = apply_filter_all_threads(&program) {
            return Part::Off(error.to_string());
        }
    }
    Part::On
}

/// In the order in which they must come into force: the last allows no further one.
fn programs(needs: &Needs, pid: u32) -> Result<[BpfProgram; 3], BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let compile = |rules, otherwise, then| -> Result<BpfProgram, BackendError> {
        SeccompFilter::new(rules, otherwise, then, arch)?.try_into()
    };
    let errno = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
    let mut allowed = whatever(FREE.iter().flat_map(|(_, calls)| calls.iter()).chain(OLDER));
    // Of two errors the kernel takes that of the newer program: this one must have none for them.
    allowed.extend(whatever(ABSENT));
    if needs.dpdk {
        allowed.extend(whatever(OF_DPDK));
    }
    let hostile = HOSTILE.iter().filter(|call| !(needs.xdp && call.number == libc::SYS_bpf));
    for (call, bound) in BOUNDED {
        allowed.insert(call.number, bound.rules(needs, pid)?);
    }
    Ok([
        compile(whatever(hostile), SeccompAction::Allow, SeccompAction::KillProcess)?,
        compile(whatever(ABSENT), SeccompAction::Allow, errno(libc::ENOSYS))?,
        compile(allowed, errno(libc::EPERM), SeccompAction::Allow)?,
    ])
}

fn whatever<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Rules {
    calls.into_iter().map(|call| (call.number, Vec::new())).collect()
}

impl Bound {
    /// One of these must hold. None: whatever the arguments are.
    fn rules(self, needs: &Needs, pid: u32) -> Result<Vec<SeccompRule>, BackendError> {
        let alternatives: Vec<Vec<Condition>> = match self {
            Self::Threads => {
                let thread = bits(libc::CLONE_THREAD);
                vec![vec![masked(0, thread | NAMESPACES, thread)]]
            }
            Self::Reading(_) if !needs.drive.is_empty() => Vec::new(),
            Self::Reading(flags) => vec![vec![masked(flags, WRITING, 0)]],
            Self::NoCode if needs.gpu => Vec::new(),
            Self::NoCode => vec![vec![masked(2, bits(libc::PROT_EXEC), 0)]],
            Self::Naming => one_of(0, [bits(libc::PR_SET_NAME), bits(libc::PR_SET_VMA)]),
            Self::Ioctls if needs.dpdk || needs.gpu => {
                vec![TYPING.iter().map(|&request| unlike(1, request)).collect()]
            }
            Self::Ioctls => one_of(1, ASKING),
            Self::OwnThreads => one_of(0, [u64::from(pid)]),
            Self::Families => {
                let dpdk = OF_DRIVERS.iter().filter(|_| needs.dpdk);
                one_of(0, std::iter::once(&libc::AF_UNIX).chain(dpdk).map(|&family| bits(family)))
            }
            // The pointer to what is to be set.
            Self::Asking => vec![vec![(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)]],
        };
        alternatives.into_iter().map(rule).collect()
    }
}

/// Flags of `clone` that make namespaces.
const NAMESPACES: u64 = bits(
    libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET,
);
/// Flags with which a file is more than read.
const WRITING: u64 = bits(libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC);
/// Requests that only ask, or are about this process's end alone.
const ASKING: [u64; 5] = [
    request(libc::FIONBIO),
    request(libc::FIONREAD),
    request(libc::FIOCLEX),
    request(libc::TCGETS),
    request(libc::TIOCOUTQ),
];
/// Requests that put words into a terminal's input, or change what it is.
const TYPING: [u64; 3] =
    [request(libc::TIOCSTI), request(libc::TIOCSETD), request(libc::TIOCLINUX)];
/// Sockets through which DPDK's drivers speak with the kernel.
const OF_DRIVERS: [i32; 4] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];

/// An `int` as the kernel's filter sees it.
#[expect(clippy::cast_sign_loss, reason = "bits stay as they are")]
const fn bits(flags: i32) -> u64 {
    flags as u32 as u64
}

/// A request of `ioctl`, of which the kernel looks at 32 bits.
const fn request(request: libc::Ioctl) -> u64 {
    request & 0xffff_ffff
}

fn masked(argument: u8, mask: u64, value: u64) -> Condition {
    (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value)
}

fn unlike(argument: u8, value: u64) -> Condition {
    (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
}

fn one_of(argument: u8, values: impl IntoIterator<Item = u64>) -> Vec<Vec<Condition>> {
    let is = |value| vec![(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)];
    values.into_iter().map(is).collect()
}

/// All of these must hold.
fn rule(conditions: Vec<Condition>) -> Result<SeccompRule, BackendError> {
    let conditions: Result<_, _> = conditions
        .into_iter()
        .map(|(argument, width, op, value)| SeccompCondition::new(argument, width, op, value))
        .collect();
    SeccompRule::new(conditions?)
}

#[cfg(test)]
mod tests;
