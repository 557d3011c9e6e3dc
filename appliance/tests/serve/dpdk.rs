//! Ports under DPDK, with devices that need neither hardware nor privileges.

use crate::client::Tcp;
use crate::server::{SOON, Server, Tree, gnomon, run, text};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn start(args: &[&str]) -> Server {
    let fixed = ["-p", "-1", "-m", "8", "--huge", "off", "--side-door", "none"];
    Server::spawn(gnomon().args(fixed).args(args))
}

#[test]
fn every_frame_of_a_null_device_is_accounted_for() {
    let server = start(&["--port", "net_null0", "--ip", "10.0.0.1/24", "--cores", "0"]);
    assert_eq!(server.ready["udp"], serde_json::json!(["10.0.0.1:11211"]));
    Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
    let report = server.stop();
    // A null device gives frames as fast as they are taken, of whatever stands in their slots: zeros,
    // which name no station of ours, or what was announced before.
    let received = report["received"].as_u64().unwrap();
    let dropped = report["dropped"].as_object().unwrap();
    assert!(received > 0 && dropped["eth_not_ours"].as_u64().unwrap() > 0);
    assert_eq!(dropped.values().filter_map(Value::as_u64).sum::<u64>(), received);
    assert_eq!(report["slots"], report["slots_home"]);
}

/// Where DPDK puts the telemetry socket of a process without a file prefix of its own.
fn telemetry_socket(server: &Server) -> PathBuf {
    let base = match nix::unistd::geteuid().is_root() {
        true => "/var/run".into(),
        false => std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_else(|| "/tmp".into()),
    };
    PathBuf::from(base).join(format!("dpdk/gnomon-{}/dpdk_telemetry.v2", server.pid()))
}

#[test]
fn dpdks_own_telemetry_answers() {
    let server = start(&["--port", "net_null0", "--ip", "10.0.0.1/24", "--cores", "0"]);
    let mut socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket.connect(&SockAddr::unix(telemetry_socket(&server)).unwrap()).unwrap();
    let mut answer = |question: &str| -> Value {
        if !question.is_empty() {
            socket.write_all(question.as_bytes()).unwrap();
        }
        let mut bytes = [0; 16 << 10];
        let n = socket.read(&mut bytes).unwrap();
        serde_json::from_slice(&bytes[..n]).unwrap()
    };
    assert_eq!(answer("")["pid"], server.pid());
    assert_eq!(answer("/ethdev/list"), serde_json::json!({ "/ethdev/list": [0] }));
    let stats = answer("/ethdev/stats,0");
    assert!(stats["/ethdev/stats"]["ipackets"].as_u64().unwrap() > 0, "{stats}");
    server.stop();
}

#[test]
fn two_ports_are_served_by_one_worker() {
    let server = start(&[
        "--port",
        "net_ring0",
        "--port",
        "net_ring1",
        "--ip",
        "0=10.0.0.1/24",
        "--ip",
        "1=10.0.1.1/24",
        "--ip",
        "1=fd00::1/64",
        "-U",
        "9",
    ]);
    let expected = ["10.0.0.1:9", "10.0.1.1:9", "[fd00::1]:9"];
    assert_eq!(server.ready["udp"], serde_json::json!(expected));
    let report = server.stop();
    assert_eq!(report["ports"].as_array().unwrap().len(), 2);
}

/// Runs `test` on a thread in a network namespace of its own, where TAP devices can be had.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        let tun = Path::new("/dev/net/tun").exists();
        if !tun || unshare(CloneFlags::CLONE_NEWNET).is_err() {
            println!("skipped: needs root and /dev/net/tun");
            return;
        }
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

const MAC: &str = "02:00:00:00:00:01";

/// One port with an exception path, and a user to become.
fn with_exception_path() -> Command {
    let mut command = gnomon();
    let port = format!("net_tap0,iface=wire0,mac={MAC}");
    command.args(["-p", "0", "-m", "8", "--huge", "off", "--port", &port, "--ip", "0=10.0.0.1/24"]);
    command.args(["-u", "nobody", "--side-door", "tap"]);
    command
}

/// As udev may: gives the exception path's device another address as soon as it has its own.
fn change_address() {
    let ip = |args: &[&str]| Command::new("ip").args(args).output().unwrap();
    let deadline = Instant::now() + SOON;
    while !text(&ip(&["-o", "link", "show", "gnomon0"]).stdout).contains(MAC) {
        assert!(Instant::now() < deadline, "there is no such device");
        std::thread::sleep(Duration::from_millis(5));
    }
    let other = ["link", "set", "gnomon0", "address", "02:00:00:00:00:99"];
    assert!(ip(&other).status.success());
}

#[test]
fn who_may_not_set_the_exception_paths_address_back_says_what_to_do() {
    in_namespace(|| {
        let server = Server::spawn(&mut with_exception_path());
        change_address();
        server.wait_for_log("cannot be set back (Operation not permitted");
        server.stop();
    });
}

#[test]
fn an_address_that_was_changed_while_it_starts_is_set_back_before_the_right_to_is_gone() {
    in_namespace(|| {
        // The second port's file has no end as long as nobody has written it: the start waits there.
        let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0xffff, 1].map(u32::to_ne_bytes).concat();
        let dir = Tree::empty("pcap");
        let (frames, pipe, whole) = (dir.path("frames"), dir.path("pipe"), dir.path("whole"));
        mkfifo(Path::new(&frames), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        fs::hard_link(&frames, &pipe).unwrap();
        fs::write(&whole, &header).unwrap();
        let sent = dir.path("sent");
        let late = std::thread::spawn(move || {
            change_address();
            // Who opens it from now on finds it whole; who has opened it is given the same, and its end.
            fs::rename(&whole, &frames).unwrap();
            let mut waiting = fs::OpenOptions::new();
            waiting.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
            match waiting.open(&pipe) {
                Ok(mut pipe) => pipe.write_all(&header).unwrap(),
                Err(nobody) => assert_eq!(nobody.raw_os_error(), Some(Errno::ENXIO as i32)),
            }
        });
        let port = format!("net_pcap0,rx_pcap={},tx_pcap={sent}", dir.path("frames"));
        let mut command = with_exception_path();
        let server = Server::spawn(command.args(["--port", &port, "--ip", "1=10.0.1.1/24"]));
        late.join().unwrap();
        server.wait_for_log("its Ethernet address was changed, and is set back");
        server.stop();
    });
}

#[test]
fn a_device_that_is_none_and_an_argument_that_is_ours_are_told() {
    let fixed = ["-p", "-1", "-m", "8", "--ip", "10.0.0.1/24", "--side-door", "none"];
    for (args, said) in [
        (
            &["--port", "net_rubbish0"][..],
            "DPDK has no port `net_rubbish0`: no driver has that name; see",
        ),
        (
            &["--port", "net_null0", "--", "--lcores=1"],
            "DPDK argument `--lcores=1` is set by gnomon",
        ),
        (&["--port", "ffff:ff:1f.7"], "--port ffff:ff:1f.7: no such PCI device"),
        (
            &["--port", "net_null0", "--isolated", "on"],
            "port net_null0: net_null cannot isolate: Function not implemented",
        ),
    ] {
        let out = run(&[&fixed[..], args].concat());
        let last = String::from_utf8(out.stderr).unwrap().lines().last().unwrap().to_owned();
        assert_eq!(out.status.code(), Some(1), "{last}");
        assert!(last.starts_with(&format!("gnomon: {said}")), "{last}");
    }
}
