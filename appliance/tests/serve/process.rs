//! Flags about the process: background, pid file, user, limits.

use crate::client::Tcp;
use crate::server::{SOON, Server, Tree, gnomon, output, refuses, run};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// A process that is nobody's child, ended with the test.
struct Daemon(Pid);

impl Daemon {
    fn of(pid_file: &str) -> Self {
        Self(Pid::from_raw(fs::read_to_string(pid_file).unwrap().trim().parse().unwrap()))
    }

    fn stop(&self) {
        kill(self.0, Signal::SIGTERM).unwrap();
        let deadline = Instant::now() + SOON;
        // A zombie has ended, whether or not anybody waits for it here.
        while !self.has_ended() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn has_ended(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/stat", self.0));
        kill(self.0, None) == Err(Errno::ESRCH)
            || status.is_ok_and(|s| s.rsplit(") ").next().is_some_and(|s| s.starts_with('Z')))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = kill(self.0, Signal::SIGKILL);
        }
    }
}

/// A line of `/proc/PID/status`.
pub(crate) fn status(of: &Path, line: &str) -> String {
    let text = fs::read_to_string(of.join("status")).unwrap();
    let found = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
    found.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_log_that_nobody_reads_holds_up_nothing() {
    let (dir, (reader, mut full)) = (Tree::empty("unread"), std::io::pipe().unwrap());
    let port_file = dir.path("ports");
    let mut command = gnomon();
    command.args(["-vv", "-p", "-1", "-U", "0", "-m", "8"]).stderr(full.try_clone().unwrap());
    command.env("MEMCACHED_PORT_FILENAME", &port_file).stdout(full.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    let end = Daemon(pid);
    let deadline = Instant::now() + SOON;
    let ports = loop {
        match fs::read_to_string(&port_file) {
            Ok(ports) => break ports,
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("no ports: {error}"),
        }
    };
    let port: u16 = ports.strip_prefix("TCP INET: ").unwrap().trim().parse().unwrap();
    // Until the pipe takes no more: it ends with the reader.
    let (wrote, writes) = channel();
    let filler = std::thread::spawn(move || {
        while full.write_all(&[b'x'; 512]).is_ok() {
            let _ = wrote.send(());
        }
    });
    while writes.recv_timeout(Duration::from_millis(200)).is_ok() {}
    // Each of them is logged, twice.
    for _ in 0..1000 {
        let mut c = Tcp::connect(([127, 0, 0, 1], port).into());
        c.expect("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    }
    end.stop();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop((reader, command));
    filler.join().unwrap();
}

#[test]
fn in_the_background_it_serves_when_the_command_returns() {
    let dir = Tree::empty("daemon");
    let (pid_file, port_file) = (dir.path("pid"), dir.path("ports"));
    let mut command = gnomon();
    command.args(["-d", "-p", "-1", "-U", "0", "-m", "8", "-P", &pid_file]);
    let out = output(command.env("MEMCACHED_PORT_FILENAME", &port_file));
    let daemon = Daemon::of(&pid_file);
    assert_eq!((out.status.code(), out.stdout, out.stderr), (Some(0), Vec::new(), Vec::new()));
    let ports = fs::read_to_string(&port_file).unwrap();
    let port: u16 = ports.strip_prefix("TCP INET: ").unwrap().trim().parse().unwrap();
    let mut c = Tcp::connect(([127, 0, 0, 1], port).into());
    c.expect("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    // A session and a directory of its own, and nothing open on whoever started it.
    let proc = format!("/proc/{}", daemon.0);
    let proc = Path::new(&proc);
    let innermost = |line| status(proc, line).split(' ').next_back().map(str::to_owned);
    assert_eq!(innermost("NSsid"), innermost("NSpid"));
    assert_eq!(fs::read_link(proc.join("cwd")).unwrap(), Path::new("/"));
    for fd in 0..3 {
        let open = fs::read_link(proc.join(format!("fd/{fd}"))).unwrap();
        assert_eq!(open, Path::new("/dev/null"));
    }
    kill(daemon.0, Signal::SIGHUP).unwrap();
    c.expect("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    daemon.stop();
    assert!(!Path::new(&pid_file).exists());
}

#[test]
fn a_background_start_that_fails_fails_in_front() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refuses(&run(&["-d", "-p", &port, "-U", "0", "-m", "8"]), "TCP 127.0.0.1:");
    refuses(&run(&["-d", "-p", "0", "-U", "0"]), "nothing to serve");
    let out = run(&["-d", "-p", "-1", "-U", "-1", "--dry-run"]);
    assert!(out.status.success() && !out.stdout.is_empty());
}

/// Standard error may be a pipe whose reader has gone, or a file on a full disk.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let dir = Tree::empty("log");
    let (pid_file, port_file, items) = (dir.path("pid"), dir.path("ports"), dir.path("items"));
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    for log in [closed as fn() -> Stdio, full] {
        let mut command = gnomon();
        command.args(["-vv", "-p", "-1", "-U", "0", "-m", "8", "-P", &pid_file, "-e", &items]);
        command.env("MEMCACHED_PORT_FILENAME", &port_file);
        let mut child = command.stdin(Stdio::null()).stderr(log()).spawn().unwrap();
        let deadline = Instant::now() + SOON;
        let port = loop {
            let ports = fs::read_to_string(&port_file).unwrap_or_default();
            if let Some(port) = ports.strip_prefix("TCP INET: ") {
                break port.trim().parse::<u16>().unwrap();
            }
            assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(5));
        };
        for _ in 0..20 {
            let mut c = Tcp::connect(([127, 0, 0, 1], port).into());
            c.expect("set k 0 0 1\r\nv\r\n", "STORED\r\n");
        }
        Daemon::of(&pid_file).stop();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        fs::remove_file(&port_file).unwrap();
    }
}

#[test]
fn the_pid_file_lives_as_long_as_the_process() {
    let dir = Tree::empty("pid");
    let path = dir.path("pid");
    let server = Server::start(&["-m", "8", "-P", &path]);
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", server.pid()));
    server.stop();
    assert!(!Path::new(&path).exists());
    // One that the next process has put there meanwhile is that one's; and the sandbox allows no look into it.
    let server = Server::start(&["-m", "8", "-P", &path]);
    fs::write(dir.path("next"), "1\n").unwrap();
    fs::rename(dir.path("next"), &path).unwrap();
    server.stop();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    let nowhere = ["-p", "-1", "-U", "0", "-m", "8", "-P", "/none/pid"];
    refuses(&run(&nowhere), "cannot write the pid file /none/pid: ");
}

#[test]
fn root_becomes_the_user_and_others_stay_who_they_are() {
    let dir = Tree::empty("user");
    if !geteuid().is_root() {
        let server = Server::start(&["-m", "8", "-u", "no-such-user"]);
        Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
        server.stop();
        return;
    }
    let nobody = User::from_name("nobody").unwrap().unwrap();
    nix::unistd::chown(Path::new(&dir.path("")), Some(nobody.uid), None).unwrap();
    let (socket, pid) = (dir.path("socket"), dir.path("pid"));
    let args = ["-m", "8", "-u", "nobody", "-r", "-s", &socket, "-P", &pid];
    let server = Server::spawn(gnomon().args(args));
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let tasks: Vec<_> = tasks.map(|t| t.unwrap().path()).collect();
    assert!(tasks.len() > 1);
    for task in tasks {
        assert_eq!(status(&task, "Uid"), [nobody.uid.to_string().as_str(); 4].join(" "));
        assert_eq!(status(&task, "Gid"), [nobody.gid.to_string().as_str(); 4].join(" "));
        assert_eq!(status(&task, "Groups"), nobody.gid.to_string());
        assert_eq!(status(&task, "CapEff"), "0000000000000000");
    }
    for made in [&socket, &pid] {
        assert_eq!(fs::metadata(made).unwrap().uid(), nobody.uid.as_raw(), "{made}");
    }
    server.stop();
    assert!(!Path::new(&socket).exists() && !Path::new(&pid).exists());
    let stranger = ["-p", "-1", "-U", "0", "-m", "8", "-u", "no-such-user"];
    refuses(&run(&stranger), "-u no-such-user: this machine has no such user");
}

#[test]
fn memory_is_locked_or_the_reason_is_told() {
    let server = Server::start(&["-m", "8", "-t", "1", "-k"]);
    Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
    if status(Path::new(&format!("/proc/{}", server.pid())), "VmLck") == "0 kB" {
        server.wait_for_log("-k: memory is not locked");
    }
    server.stop();
}

#[test]
fn core_dumps_are_as_large_as_the_limit_allows() {
    let server = Server::start(&["-m", "8", "-r"]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let core = limits.lines().find(|l| l.starts_with("Max core file size")).unwrap();
    let words: Vec<&str> = core.split_whitespace().collect();
    // soft and hard
    assert!(words[4] == words[5] && words[4] != "0", "{core}");
    server.stop();
}
