//! A cache that outlives its process, and when it does not.

use crate::client::{Tcp, Udp};
use crate::server::{Server, gnomon, output, refuses, run};
use nix::sys::signal::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

/// A path for a memory file that goes away with it.
pub(crate) struct MemoryFile(PathBuf);

impl MemoryFile {
    pub(crate) fn new(name: &str) -> Self {
        let shm = PathBuf::from("/dev/shm");
        let dir = if shm.is_dir() { shm } else { std::env::temp_dir() };
        Self(dir.join(format!("gnomon-serve-{name}-{}", std::process::id())))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        Server::start(&[&["-m", "16", "-e", self.path()], args].concat())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn sigusr1_keeps_the_items_and_a_kill_does_not() {
    let file = MemoryFile::new("usr1");
    let server = file.serve(&[]);
    assert_eq!(server.ready.get("kept_items"), None);
    let mut tcp = Tcp::connect(server.tcp());
    for n in 0..2000 {
        tcp.set(&format!("key-{n}"), format!("value {n}").as_bytes());
    }
    let large: Vec<u8> = (0..900_000u32).map(|n| n.to_le_bytes()[0]).collect();
    tcp.set("large", &large);
    // For longer than a busy machine takes to end the process.
    tcp.expect("set short 7 6 1\r\nx\r\n", "STORED\r\n");
    let stored = Instant::now();
    tcp.expect("set long 7 1000 1\r\nx\r\n", "STORED\r\n");
    let gets = tcp.until_end("gets long\r\n");
    let report = server.stop_by(Signal::SIGUSR1);
    assert_eq!(report["kept_items"], 2003);
    // Until `short` has expired, for certain.
    std::thread::sleep(Duration::from_millis(7100).saturating_sub(stored.elapsed()));

    let server = file.serve(&[]);
    assert_eq!(server.ready["kept_items"], 2002);
    let mut tcp = Tcp::connect(server.tcp());
    for n in 0..2000 {
        let value = format!("value {n}");
        let reply = format!("VALUE key-{n} 0 {}\r\n{value}\r\nEND\r\n", value.len());
        tcp.expect(&format!("get key-{n}\r\n"), &reply);
    }
    Udp::to(server.udp()).expect(3, "get key-7\r\n", "VALUE key-7 0 7\r\nvalue 7\r\nEND\r\n");
    tcp.expect("get short\r\n", "END\r\n");
    assert_eq!(tcp.until_end("gets long\r\n"), gets, "flags and CAS id");
    tcp.send("get large\r\n");
    let head = b"VALUE large 0 900000\r\n";
    assert_eq!(tcp.receive(head.len()), head);
    assert!(tcp.receive(large.len()) == large);
    assert_eq!(tcp.receive(7), b"\r\nEND\r\n");
    server.kill();

    let server = file.serve(&[]);
    server.wait_for_log("its items are discarded: its last user did not close it");
    assert_eq!(server.ready.get("kept_items"), None);
    let mut tcp = Tcp::connect(server.tcp());
    tcp.expect("get key-7 large long\r\n", "END\r\n");
    tcp.set("again", b"x");
    drop(tcp);
    assert_eq!(server.stop_by(Signal::SIGUSR1)["kept_items"], 1);
}

/// A start that fails behind the store has served nobody: the next one finds the items.
#[test]
fn a_start_that_fails_costs_no_items() {
    let file = MemoryFile::new("fails");
    let server = file.serve(&[]);
    let mut tcp = Tcp::connect(server.tcp());
    for n in 0..1000 {
        tcp.set(&format!("key-{n}"), b"value");
    }
    drop(tcp);
    assert_eq!(server.stop_by(Signal::SIGUSR1)["kept_items"], 1000);
    let args = ["-l", "127.0.0.1", "-p", "-1", "-m", "16", "-e", file.path()];
    let fails = |out: Output, with: &str| {
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains(with) && !said.contains("discarded"), "{said}");
    };
    // While everything is opened, and when all of it is.
    let port = ["-U", "11211", "--port", "net_nonsense0", "--ip", "10.0.0.1/24"];
    if cfg!(feature = "dpdk") {
        fails(run(&[&args[2..], &port].concat()), "net_nonsense0");
    }
    let nowhere = "/none/ports";
    let mut command = gnomon();
    command.args(args).args(["-U", "0"]).env("MEMCACHED_PORT_FILENAME", nowhere);
    fails(output(&mut command), nowhere);
    let server = file.serve(&[]);
    assert_eq!(server.ready["kept_items"], 1000);
    server.stop();
}

#[test]
fn the_other_signals_keep_nothing() {
    let file = MemoryFile::new("term");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let server = file.serve(&[]);
        Tcp::connect(server.tcp()).set("a", b"x");
        let report = server.stop_by(signal);
        assert_eq!(report.get("kept_items"), None);
    }
    let server = file.serve(&[]);
    Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
    server.stop();
}

#[test]
fn other_flags_begin_empty_and_say_so() {
    let file = MemoryFile::new("flags");
    let server = file.serve(&[]);
    Tcp::connect(server.tcp()).set("a", b"x");
    server.stop_by(Signal::SIGUSR1);
    let server = file.serve(&["-f", "2"]);
    server.wait_for_log("made with -m 16 -I 1048576 -f 1.25 (-n, --slab-pages: ");
    Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
    // Threads and eviction may be others.
    server.stop_by(Signal::SIGUSR1);
    let server = file.serve(&["-f", "2", "-t", "1", "-M"]);
    assert_eq!(server.ready["kept_items"], 0);
    server.stop();
}

#[test]
fn sigusr1_without_a_memory_file_just_ends_it() {
    let server = Server::start(&["-m", "8"]);
    Tcp::connect(server.tcp()).set("a", b"x");
    let report = server.stop_by(Signal::SIGUSR1);
    assert_eq!(report.get("kept_items"), None);
}

#[test]
fn clients_that_do_not_read_cost_no_items() {
    let file = MemoryFile::new("stuck");
    let server = file.serve(&["--drain-seconds", "1"]);
    let mut stuck = Tcp::connect(server.tcp());
    stuck.set("big", &vec![b'x'; 900_000]);
    stuck.send("get big\r\n".repeat(64));
    stuck.receive(1000);
    assert_eq!(server.stop_by(Signal::SIGUSR1)["kept_items"], 1);
}

#[test]
fn a_file_that_cannot_be_is_one_line() {
    let refuses = |path: &str, with: &str| {
        let out = run(&["-p", "-1", "-U", "0", "-m", "16", "-e", path]);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.lines().count() == 1 && said.starts_with("gnomon: "), "{said}");
        assert!(said.contains(with), "{said}");
    };
    refuses("/none/file", "-e /none/file: no file can be made there: No such file or directory; ");
    refuses("/dev/null", "-e /dev/null: not a regular file");
    let file = MemoryFile::new("foreign");
    std::fs::write(&file.0, "somebody's").unwrap();
    fs::set_permissions(&file.0, Permissions::from_mode(0o600)).unwrap();
    refuses(file.path(), "it holds something else, and is left as it is; remove it");
    assert_eq!(std::fs::read(&file.0).unwrap(), b"somebody's");
    std::fs::remove_file(&file.0).unwrap();
    let _server = file.serve(&[]);
    refuses(file.path(), "another process uses it");
}

#[test]
fn a_second_signal_while_it_keeps_items_costs_them() {
    let file = MemoryFile::new("twice");
    let mut server = file.serve(&[]);
    let mut stuck = Tcp::connect(server.tcp());
    stuck.set("big", &vec![b'x'; 900_000]);
    stuck.send("get big\r\n".repeat(64));
    stuck.receive(1000);
    server.signal(Signal::SIGUSR1);
    server.wait_for_log("draining");
    // Harmless: it is keeping them already.
    server.signal(Signal::SIGUSR1);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_code(), Some(128 + 15));
    let server = file.serve(&[]);
    server.wait_for_log("did not close it");
}

#[test]
fn a_graceful_shutdown_by_a_client_keeps_the_items_and_another_does_not() {
    let file = MemoryFile::new("shutdown");
    for (line, reply) in
        [("shutdown graceful\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"), ("shutdown\r\n", "END\r\n")]
    {
        let mut server = file.serve(&["-A"]);
        let mut c = Tcp::connect(server.tcp());
        c.set("a", b"x");
        c.send(line);
        assert!(c.rest().is_empty());
        assert_eq!(server.exit_code(), Some(0));
        let server = file.serve(&[]);
        assert_eq!(Tcp::connect(server.tcp()).until_end("get a\r\n"), reply, "{line}");
        server.stop();
    }
}

#[test]
fn a_limit_on_the_size_of_files_is_named() {
    let file = MemoryFile::new("limit");
    let run = format!("ulimit -f 1000; exec {} \"$@\"", env!("CARGO_BIN_EXE_gnomon"));
    let args = ["-c", &run, "gnomon", "-p", "-1", "-U", "0", "-m", "16", "-e", file.path()];
    let out = std::process::Command::new("sh").args(args).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("the limit on the size of files (ulimit -f, LimitFSIZE=)"), "{said}");
}

/// Whoever can write to the file changes what clients get.
#[test]
fn a_memory_file_that_others_have_a_hand_in_is_refused() {
    let file = MemoryFile::new("others");
    let refused = |with: &str| {
        for dry in [&["--dry-run"][..], &[]] {
            let args = [&["-p", "-1", "-U", "-1", "-m", "16", "-e", file.path()][..], dry];
            refuses(&run(&args.concat()), &format!("-e {}: {with}", file.path()));
        }
    };
    let mode = |mode| fs::set_permissions(&file.0, Permissions::from_mode(mode)).unwrap();
    fs::write(&file.0, "").unwrap();
    for shared in [0o666, 0o620, 0o602, 0o644] {
        mode(shared);
        refused(&format!("its mode is {shared:o}, so that others read or change the items; "));
    }
    mode(0o600);
    let other = file.0.with_extension("other");
    fs::hard_link(&file.0, &other).unwrap();
    refused("it has 2 names (hard links), ");
    fs::remove_file(&file.0).unwrap();
    symlink(&other, &file.0).unwrap();
    refused("it is a symbolic link; ");
    // One that leads nowhere makes no file there.
    fs::remove_file(&other).unwrap();
    refused("it is a symbolic link; ");
    assert!(!other.exists());
    fs::remove_file(&file.0).unwrap();
    if nix::unistd::geteuid().is_root() {
        fs::write(&file.0, "").unwrap();
        mode(0o600);
        chown(&file.0, Some(65_534), None).unwrap();
        let args = ["-p", "-1", "-U", "-1", "-m", "16", "-e", file.path()];
        let said = format!("memory file {}: it belongs to user 65534", file.path());
        refuses(&run(&args), &said);
        // Whom it belongs to is who serves.
        let server = file.serve(&["-u", "nobody"]);
        server.stop();
        let root = Some(0);
        chown(&file.0, root, None).unwrap();
        file.serve(&["-u", "nobody"]).stop();
    }
}
