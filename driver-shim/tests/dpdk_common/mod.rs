//! What the DPDK tests share. DPDK starts once per process, so each test file is one test.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]
#![allow(unsafe_code)]

use driver_shim::ports::dpdk::{DpdkPort, Eal, EalConfig, PortConfig, region};
use driver_shim::{Burst, Frame, Pages, Port, QueuePair, Region};
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

/// Nothing here takes longer, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Ordinary pages, so that the tests run anywhere; `GNOMON_TEST_HUGE_PAGES=1` asks for huge ones
/// (96 MB for each test that runs at the same time).
pub fn eal() -> Eal {
    let huge = match std::env::var_os("GNOMON_TEST_HUGE_PAGES") {
        Some(_) => Pages::Require,
        None => Pages::Small,
    };
    let config = EalConfig {
        huge,
        memory_mb: 96,
        extra: vec!["--no-telemetry".to_owned()],
        ..EalConfig::default()
    };
    Eal::init(&config).unwrap()
}

pub fn small_region(eal: &Eal) -> Region {
    region(eal, 4096, Pages::Small, None).unwrap()
}

pub fn config(spec: &str) -> PortConfig {
    PortConfig { descriptors: 256, ..PortConfig::new(spec) }
}

pub fn start(eal: &Eal, region: &Region, config: &PortConfig) -> Port {
    DpdkPort::open(eal, region, config).unwrap().start().unwrap()
}

/// A frame with `len` bytes that depend on `seed`.
pub fn frame(region: &Region, seed: usize, len: usize) -> Frame {
    let mut f = region.alloc().expect("a free slot");
    f.fill(&pattern(seed, len)).unwrap();
    f
}

pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 7 + seed * 13) % 251).unwrap()).collect()
}

/// Receives until `want` frames are there.
pub fn receive(pair: &mut QueuePair, want: usize) -> Vec<Frame> {
    let deadline = Instant::now() + PATIENCE;
    let mut got = Vec::new();
    while got.len() < want {
        assert!(Instant::now() < deadline, "{} of {want} frames came", got.len());
        let mut burst = Burst::new();
        if pair.rx.burst(&mut burst) == 0 {
            pair.rx.idle(Duration::from_millis(1));
        }
        got.extend(burst);
    }
    got
}

/// Sends one frame, waiting for room.
pub fn send(pair: &mut QueuePair, f: Frame) {
    let deadline = Instant::now() + PATIENCE;
    let mut burst = Burst::new();
    burst.push(f);
    while pair.tx.burst(&mut burst) == 0 {
        assert!(Instant::now() < deadline, "no room to send");
        std::thread::yield_now();
    }
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Moves this thread, and what it starts, to a network namespace of its own.
pub fn enter_new_netns() {
    // SAFETY: touches this thread's namespace alone.
    let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(rc, 0, "a network namespace: {}", std::io::Error::last_os_error());
    run("ip", "link set lo up");
}

/// Number of this thread, by which `ip link set ... netns` finds its namespace.
pub fn thread_number() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

pub fn run(program: &str, args: &str) {
    let out = Command::new(program).args(args.split_whitespace()).output().unwrap();
    assert!(out.status.success(), "{program} {args}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Whether the kernel can make TAP devices; says so if not.
pub fn have_tun() -> bool {
    let there = std::path::Path::new("/dev/net/tun").exists();
    if !there {
        eprintln!("skipped: this kernel has no /dev/net/tun");
    }
    there
}

/// Whether the kernel has AF_XDP sockets; says so if not.
pub fn have_af_xdp() -> bool {
    // SAFETY: plain numbers; what it opens stays open until the test ends.
    let there = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0) } >= 0;
    if !there {
        eprintln!("skipped: no AF_XDP sockets here: {}", std::io::Error::last_os_error());
    }
    there
}

/// Turns a UDP over IPv4 frame round: who sent it receives it.
pub fn turn_round(f: &mut Frame, offload: bool) {
    let b = f.bytes_mut();
    for (x, y, n) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        for i in 0..n {
            b.swap(x + i, y + i);
        }
    }
    b[24..26].fill(0);
    b[40..42].fill(0);
    let udp_len = u16::from_be_bytes([b[38], b[39]]);
    let pseudo = sum(&b[26..34]) + 17 + u32::from(udp_len);
    if offload {
        b[40..42].copy_from_slice(&fold(pseudo).to_be_bytes());
        f.tx = driver_shim::TxOffload {
            ip: true.into(),
            udp: true.into(),
            ipv6: false.into(),
            l2_len: 14,
            l3_len: 20,
        };
    } else {
        let ip = !fold(sum(&b[14..34]));
        b[24..26].copy_from_slice(&ip.to_be_bytes());
        let udp = !fold(pseudo + sum(&b[34..34 + usize::from(udp_len)]));
        b[40..42].copy_from_slice(&if udp == 0 { 0xffff } else { udp }.to_be_bytes());
    }
}

/// True of UDP over IPv4 to `port`.
pub fn is_udp_to(f: &Frame, port: u16) -> bool {
    let b = f.bytes();
    b.len() >= 42 && b[12..14] == [8, 0] && b[23] == 17 && b[36..38] == port.to_be_bytes()
}

fn sum(bytes: &[u8]) -> u32 {
    let word = |c: &[u8]| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// Where [`answer_questions`] is asked.
pub const PORT: u16 = 11211;

/// A veth pair, up: `gnp` for a port, `gnk` with the address 10.78.0.1 for the kernel.
pub fn veth() {
    run("ip", "link add gnp numrxqueues 1 type veth peer name gnk numtxqueues 1");
    for end in ["gnp", "gnk"] {
        // Else the kernel leaves checksums to a device that does not exist.
        run("ethtool", &format!("-K {end} tx off"));
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1").unwrap();
        run("ip", &format!("link set {end} up"));
    }
    // The port's end has no address and no ARP: the kernel never answers for it.
    run("ip", "link set gnp arp off");
    run("ip", "addr add 10.78.0.1/24 dev gnk");
}

/// A socket of the kernel's at `gnk`, whose questions go to the port.
pub fn asker(port: &Port) -> UdpSocket {
    wait_for("the link", || port.control.link_up());
    let neigh = format!("10.78.0.2 lladdr {} dev gnk", port.info.mac);
    run("ip", &format!("neigh replace {neigh} nud permanent"));
    let socket = UdpSocket::bind(("10.78.0.1", 0)).unwrap();
    socket.connect(("10.78.0.2", PORT)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Datagrams over the veth pair and back, more than a ring holds, up to the longest packet.
pub fn answer_questions(port: &mut Port) {
    let socket = asker(port);
    for seed in 0..600 {
        let question = pattern(seed, 200 + 66 * (seed % 20));
        socket.send(&question).unwrap();
        let mut answered = false;
        wait_for("a question", || {
            for pair in &mut port.queues {
                let mut burst = Burst::new();
                if pair.rx.burst(&mut burst) == 0 {
                    pair.rx.idle(Duration::from_micros(50));
                }
                for mut f in burst.into_iter().filter(|f| is_udp_to(f, PORT)) {
                    assert!(!f.rx.udp_good.is_set(), "nobody verified this checksum");
                    turn_round(&mut f, false);
                    send(pair, f);
                    answered = true;
                }
            }
            answered
        });
        let mut answer = [0; 2048];
        let mut len = 0;
        wait_for("an answer", || {
            socket.recv(&mut answer).is_ok_and(|n| {
                len = n;
                true
            })
        });
        assert_eq!(answer[..len], question);
    }
}
