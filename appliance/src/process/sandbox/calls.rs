//! The system calls that a running gnomon may make, and those that end it.
//!
//! Three lists. [`FREE`] and [`OF_DPDK`] are allowed whatever their arguments, which is what lets the
//! kernel remember its verdict and ask the filter no more; [`BOUNDED`] are allowed with some
//! arguments only; [`HOSTILE`] have no place in a cache, and who makes one is not us. What is in
//! none of them is refused. `docs/security.md` has the table that [`table`] makes.

use nix::libc;
use std::fmt::Write as _;

/// A system call of this architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    /// As libc names its number: `SYS_read`.
    symbol: &'static str,
    /// Its number.
    pub(super) number: libc::c_long,
}

impl Call {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        self.symbol.trim_start_matches("SYS_")
    }
}

macro_rules! call {
    ($symbol:ident) => {
        Call { symbol: stringify!($symbol), number: libc::$symbol }
    };
}

macro_rules! calls {
    ($($symbol:ident)*) => { &[$(call!($symbol)),*] };
}

/// What a bounded call is bounded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// Starting threads of this process, flags being the first argument.
    Threads,
    /// Opening for reading, flags being the argument of this number.
    Reading(u8),
    /// Memory without code.
    NoCode,
    /// Naming a thread or a piece of memory.
    Naming,
    /// Questions about sockets and terminals.
    Ioctls,
    /// Signals within the process.
    OwnThreads,
    /// Families of sockets.
    Families,
    /// Asking for limits.
    Asking,
}

impl Bound {
    fn text(self) -> &'static str {
        match self {
            Self::Threads => "new threads, never processes or namespaces",
            Self::Reading(_) => {
                "for reading; with a NIC, a GPU or an exception path also to open devices again, as far as Landlock lets it"
            }
            Self::NoCode => "without `PROT_EXEC`, so that no code is loaded; a GPU's driver may",
            Self::Naming => "`PR_SET_NAME`, `PR_SET_VMA`",
            Self::Ioctls => {
                "`FIONBIO`, `FIONREAD`, `FIOCLEX`, `TCGETS`, `TIOCOUTQ`; drivers may use all but those that type into a terminal"
            }
            Self::OwnThreads => "to its own threads",
            Self::Families => {
                "`AF_UNIX`; under DPDK also `AF_INET`, `AF_INET6`, `AF_NETLINK`, `AF_PACKET`"
            }
            Self::Asking => "to ask for limits, not to set them",
        }
    }
}

/// Allowed whatever their arguments, by what they are for.
pub(super) const FREE: &[(&str, &[Call])] = &[
    (
        "clients and packets",
        calls![
            SYS_read SYS_write SYS_readv SYS_writev SYS_recvfrom SYS_sendto SYS_recvmsg SYS_sendmsg
            SYS_recvmmsg SYS_sendmmsg SYS_accept SYS_accept4 SYS_connect SYS_shutdown
            SYS_getsockname SYS_getpeername SYS_getsockopt SYS_setsockopt
        ],
    ),
    (
        "waiting and time",
        calls![
            SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_eventfd2 SYS_ppoll SYS_pselect6
            SYS_futex SYS_nanosleep SYS_clock_nanosleep SYS_clock_gettime SYS_clock_getres
            SYS_gettimeofday SYS_sched_yield SYS_restart_syscall
        ],
    ),
    (
        "memory",
        calls![
            SYS_brk SYS_munmap SYS_mremap SYS_madvise SYS_mincore SYS_mlock SYS_mlock2 SYS_munlock
            SYS_mlockall SYS_membarrier SYS_get_mempolicy
        ],
    ),
    (
        "threads and signals",
        calls![
            SYS_set_robust_list SYS_get_robust_list SYS_rseq SYS_set_tid_address SYS_gettid
            SYS_getpid SYS_exit SYS_exit_group SYS_sigaltstack SYS_rt_sigaction SYS_rt_sigprocmask
            SYS_rt_sigreturn SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getparam
            SYS_sched_getscheduler SYS_getcpu
        ],
    ),
    (
        "files: the memory file, the users' file, sockets and the pid file at the end; `/sys`",
        calls![
            SYS_close SYS_dup SYS_dup3 SYS_fcntl SYS_lseek SYS_pread64 SYS_pwrite64 SYS_fsync
            SYS_fdatasync SYS_fstat SYS_newfstatat SYS_statx SYS_fstatfs SYS_faccessat
            SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_unlinkat
        ],
    ),
    (
        "facts",
        calls![
            SYS_getrandom SYS_getrusage SYS_sysinfo SYS_uname SYS_getuid SYS_geteuid SYS_getgid
            SYS_getegid
        ],
    ),
];

/// The older forms of calls above, which other architectures do not have.
#[cfg(target_arch = "x86_64")]
pub(super) const OLDER: &[Call] = calls![
    SYS_epoll_wait SYS_poll SYS_select SYS_dup2 SYS_stat SYS_lstat SYS_access SYS_readlink SYS_unlink
    SYS_rmdir SYS_time SYS_epoll_create SYS_pipe
];
/// There are none.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OLDER: &[Call] = &[];

/// Allowed besides where DPDK drives the ports: its own memory, alarms and channels.
pub(super) const OF_DPDK: &[Call] = calls![
    SYS_bind SYS_listen SYS_memfd_create SYS_ftruncate SYS_fallocate SYS_mbind SYS_set_mempolicy
    SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_flock SYS_msync
    SYS_pipe2 SYS_sched_get_priority_max SYS_sched_get_priority_min
];

/// Allowed with some arguments.
pub(super) const BOUNDED: &[(Call, Bound)] = &[
    (call!(SYS_mmap), Bound::NoCode),
    (call!(SYS_mprotect), Bound::NoCode),
    (call!(SYS_openat), Bound::Reading(2)),
    #[cfg(target_arch = "x86_64")]
    (call!(SYS_open), Bound::Reading(1)),
    (call!(SYS_clone), Bound::Threads),
    (call!(SYS_prctl), Bound::Naming),
    (call!(SYS_ioctl), Bound::Ioctls),
    (call!(SYS_socket), Bound::Families),
    (call!(SYS_tgkill), Bound::OwnThreads),
    (call!(SYS_prlimit64), Bound::Asking),
];

/// Answered as a kernel would that has never heard of them: their arguments lie in memory, where
/// no filter can look, and libc calls others in their place.
pub(super) const ABSENT: &[Call] = calls![SYS_clone3 SYS_openat2];

/// Who makes one of these ends.
pub(super) const HOSTILE: &[Call] = calls![
    SYS_execve SYS_execveat SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_move_mount SYS_open_tree SYS_fsopen
    SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr SYS_setns SYS_unshare
    SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_reboot
    SYS_swapon SYS_swapoff SYS_bpf SYS_userfaultfd SYS_add_key SYS_request_key SYS_keyctl
    SYS_open_by_handle_at SYS_acct SYS_settimeofday SYS_clock_settime SYS_clock_adjtime
    SYS_adjtimex SYS_sethostname SYS_setdomainname
];

/// The rows of the table in `docs/security.md`.
pub fn table() -> String {
    fn names(calls: &[Call]) -> String {
        calls.iter().map(|call| format!("`{}`", call.name())).collect::<Vec<_>>().join(" ")
    }
    let mut text = String::from("| for what | calls |\n|---|---|\n");
    // Writing to a String cannot fail, here and below.
    for (purpose, calls) in FREE {
        let _ = writeln!(text, "| {purpose} | {} |", names(calls));
    }
    let _ = writeln!(text, "| older forms of these, on x86-64 | {} |", names(OLDER));
    let _ = writeln!(text, "| DPDK, where it drives the ports | {} |", names(OF_DPDK));
    text.push_str("\n| allowed in part | how |\n|---|---|\n");
    for (call, bound) in BOUNDED {
        let _ = writeln!(text, "| `{}` | {} |", call.name(), bound.text());
    }
    let _ = writeln!(text, "\nAnswered `ENOSYS`: {}.", names(ABSENT));
    let _ = writeln!(text, "\nThe process ends: {}.", names(HOSTILE));
    text.push_str("\nWith a port of `net_af_xdp`, `bpf` fails with `EPERM` in place of that: the driver tries it at the end.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn each_call_stands_in_one_list() {
        let mut seen = HashMap::new();
        let free = FREE.iter().flat_map(|(_, calls)| calls.iter());
        let bounded = BOUNDED.iter().map(|(call, _)| call);
        let all = free.chain(OLDER).chain(OF_DPDK).chain(bounded).chain(ABSENT).chain(HOSTILE);
        for call in all {
            assert_eq!(seen.insert(call.number, call.name()), None, "{}", call.name());
        }
    }

    #[test]
    fn the_page_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/security.md");
        let page = std::fs::read_to_string(path).unwrap();
        assert!(page.contains(&table()), "{path} should have:\n{}", table());
    }
}
