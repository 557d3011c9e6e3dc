use super::*;
use libc::{c_int, c_long};
use seccompiler::sock_filter;

/// `SECCOMP_RET_*` without their data.
const KILL: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;
const fn errno(n: i32) -> u32 {
    0x0005_0000 | n.unsigned_abs()
}

/// What the kernel would do with this program and `struct seccomp_data`, as words.
fn run(program: &[sock_filter], data: &[u32; 16]) -> u32 {
    let (mut at, mut a) = (0, 0u32);
    loop {
        let sock_filter { code, jt, jf, k } = program[at].clone();
        at += 1;
        let jump = |yes: bool| usize::from(if yes { jt } else { jf });
        match code {
            0x20 => a = data[k as usize / 4],
            0x54 => a &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(a == k),
            0x25 => at += jump(a > k),
            0x35 => at += jump(a >= k),
            0x06 => return k,
            _ => panic!("instruction {code:#x}"),
        }
    }
}

/// The strictest verdict of all programs over a call of this process.
fn verdict(needs: &Needs, number: c_long, args: &[u64]) -> u32 {
    let arch = match std::env::consts::ARCH {
        "x86_64" => 0xc000_003e,
        "aarch64" => 0xc000_00b7,
        other => panic!("{other}"),
    };
    let mut data = [0; 16];
    let low = |n: u64| (n & 0xffff_ffff) as u32;
    (data[0], data[1]) = (low(number.cast_unsigned()), arch);
    for (n, &arg) in args.iter().enumerate() {
        (data[4 + 2 * n], data[5 + 2 * n]) = (low(arg), low(arg >> 32));
    }
    let programs = programs(needs, 7).unwrap();
    // The newest first, whose data count where two actions are the same.
    let verdicts = programs.iter().rev().map(|program| run(program, &data));
    // As signed numbers of the action alone, less is stricter.
    verdicts.min_by_key(|v| (v & 0xffff_0000).cast_signed()).unwrap()
}

fn flags(flags: c_int) -> u64 {
    u64::from(flags.cast_unsigned())
}

const REFUSED: u32 = errno(libc::EPERM);

#[test]
fn each_list_has_its_verdict() {
    let needs = Needs::default();
    for call in FREE.iter().flat_map(|(_, calls)| calls.iter()).chain(OLDER) {
        assert_eq!(verdict(&needs, call.number, &[u64::MAX; 6]), ALLOW, "{}", call.name());
    }
    for call in HOSTILE {
        assert_eq!(verdict(&needs, call.number, &[]), KILL, "{}", call.name());
    }
    let xdp = Needs { xdp: true, ..Needs::default() };
    assert_eq!(verdict(&xdp, libc::SYS_bpf, &[]), REFUSED);
    assert_eq!(verdict(&xdp, libc::SYS_execve, &[]), KILL);
    for call in ABSENT {
        assert_eq!(verdict(&needs, call.number, &[]), errno(libc::ENOSYS), "{}", call.name());
    }
    for call in OF_DPDK {
        assert_eq!(verdict(&needs, call.number, &[]), REFUSED, "{}", call.name());
        let dpdk = Needs { dpdk: true, ..Needs::default() };
        assert_eq!(verdict(&dpdk, call.number, &[]), ALLOW, "{}", call.name());
    }
    // In no list; and by the numbers of the x32 ABI.
    for number in [libc::SYS_io_uring_setup, libc::SYS_kill, libc::SYS_seccomp, 1 << 30, -1] {
        assert_eq!(verdict(&needs, number, &[]), REFUSED, "{number}");
    }
}

#[test]
fn another_architectures_calls_end_the_process() {
    let programs = programs(&Needs::default(), 7).unwrap();
    let mut i386 = [0; 16];
    (i386[0], i386[1]) = (3, 0x4000_0003);
    assert_eq!(run(&programs[0], &i386), KILL);
}

#[test]
fn threads_start_and_processes_do_not() {
    let clone = |f| verdict(&Needs::default(), libc::SYS_clone, &[flags(f)]);
    let thread = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND;
    assert_eq!(clone(thread | libc::CLONE_THREAD | libc::CLONE_SETTLS), ALLOW);
    assert_eq!(clone(libc::SIGCHLD), REFUSED);
    assert_eq!(clone(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD), REFUSED);
    assert_eq!(clone(thread | libc::CLONE_THREAD | libc::CLONE_NEWNET), REFUSED);
}

#[test]
fn files_are_opened_for_reading() {
    let devices = Needs { drive: vec!["/dev/vfio".into()], ..Needs::default() };
    for (how, wanted) in [
        (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY | libc::O_NONBLOCK, ALLOW),
        (libc::O_WRONLY, REFUSED),
        (libc::O_RDWR | libc::O_CLOEXEC, REFUSED),
        (libc::O_RDONLY | libc::O_CREAT, REFUSED),
        (libc::O_RDONLY | libc::O_TRUNC, REFUSED),
        (libc::O_TMPFILE | libc::O_RDWR, REFUSED),
    ] {
        let args = [flags(libc::AT_FDCWD), 0, flags(how)];
        assert_eq!(verdict(&Needs::default(), libc::SYS_openat, &args), wanted, "{how:#o}");
        assert_eq!(verdict(&devices, libc::SYS_openat, &args), ALLOW, "{how:#o}");
    }
}

#[test]
fn no_memory_becomes_code() {
    let gpu = Needs { gpu: true, ..Needs::default() };
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let protect = |needs: &_, p| verdict(needs, call, &[0, 4096, flags(p)]);
        let data = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(protect(&Needs::default(), data), ALLOW);
        assert_eq!(protect(&Needs::default(), libc::PROT_READ | libc::PROT_EXEC), REFUSED);
        assert_eq!(protect(&gpu, libc::PROT_READ | libc::PROT_EXEC), ALLOW);
    }
}

#[test]
fn the_rest_is_bounded_by_its_arguments() {
    let (plain, dpdk) = (Needs::default(), Needs { dpdk: true, ..Needs::default() });
    let request = |r: libc::Ioctl| [3, super::request(r)];
    for (call, args, wanted, under_dpdk) in [
        (libc::SYS_prctl, vec![flags(libc::PR_SET_NAME)], ALLOW, ALLOW),
        (libc::SYS_prctl, vec![flags(libc::PR_SET_DUMPABLE), 1], REFUSED, REFUSED),
        (libc::SYS_tgkill, vec![7, 8, 6], ALLOW, ALLOW),
        (libc::SYS_tgkill, vec![1, 1, 9], REFUSED, REFUSED),
        (libc::SYS_prlimit64, vec![0, 3, 0, 1 << 40], ALLOW, ALLOW),
        (libc::SYS_prlimit64, vec![0, 3, 1 << 40, 0], REFUSED, REFUSED),
        (libc::SYS_socket, vec![flags(libc::AF_UNIX)], ALLOW, ALLOW),
        (libc::SYS_socket, vec![flags(libc::AF_INET)], REFUSED, ALLOW),
        (libc::SYS_socket, vec![flags(libc::AF_NETLINK)], REFUSED, ALLOW),
        (libc::SYS_socket, vec![flags(libc::AF_VSOCK)], REFUSED, REFUSED),
        (libc::SYS_ioctl, request(libc::FIONBIO).to_vec(), ALLOW, ALLOW),
        (libc::SYS_ioctl, request(libc::SIOCGIFFLAGS).to_vec(), REFUSED, ALLOW),
        (libc::SYS_ioctl, request(libc::TIOCSTI).to_vec(), REFUSED, REFUSED),
        // The kernel looks at the lower half, and so must the filter.
        (libc::SYS_ioctl, vec![3, 1 << 32 | super::request(libc::TIOCSTI)], REFUSED, REFUSED),
    ] {
        assert_eq!(verdict(&plain, call, &args), wanted, "{call} {args:x?}");
        assert_eq!(verdict(&dpdk, call, &args), under_dpdk, "{call} {args:x?} under DPDK");
    }
}
