//! What a running process has given up, and what that means for whoever takes it over.

use crate::client::{Tcp, Udp};
use crate::process::status;
use crate::server::{SOON, Server, Tree, gnomon, output, run, text};
use appliance::process::sandbox::{self, Needs, Part};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::ptrace;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, chroot, execv, getppid};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Filters in force on a task.
fn filters(task: &Path) -> u32 {
    status(task, "Seccomp_filters").parse().unwrap()
}

fn tasks(pid: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.map(|task| task.unwrap().path()).collect()
}

/// Whether `stats settings` and the metrics say that both parts are in force.
fn told(server: &Server) -> [bool; 2] {
    let settings = Tcp::connect(server.tcp()).until_end("stats settings\r\n");
    let metrics = server.ready["metrics"].as_str().unwrap().to_owned();
    ["seccomp", "landlock"].map(|part| {
        let out = run(&["stats", "--server", &metrics, "gnomon_sandbox"]);
        let metric = text(&out.stdout).contains(&format!("{{part=\"{part}\"}} 1\n"));
        let setting = settings.contains(&format!("STAT sandbox_{part} yes\r\n"));
        assert_eq!(metric, setting, "{part}: {settings}");
        setting
    })
}

#[test]
fn every_thread_of_a_server_is_in_the_sandbox() {
    let mut kinds = vec![&["--engine", "cpu"][..]];
    if cfg!(feature = "simt") {
        kinds.push(&["--engine", "simt"]);
    }
    let dpdk =
        ["--port", "net_ring0", "--ip", "10.0.0.1/24", "--huge", "off", "--side-door", "none"];
    if cfg!(feature = "dpdk") {
        kinds.push(&dpdk);
    }
    for kind in kinds {
        let udp: &[&str] = if kind == dpdk { &[] } else { &["-U", "-1"] };
        let fixed = ["serve", "-p", "-1", "-m", "8", "--metrics", "127.0.0.1:0"];
        let server = Server::spawn(gnomon().args(fixed).args(udp).args(kind));
        let mut tcp = Tcp::connect(server.tcp());
        tcp.expect("set k 7 0 1\r\nv\r\n", "STORED\r\n");
        if kind != dpdk {
            Udp::to(server.udp()).expect(1, "get k\r\n", "VALUE k 7 1\r\nv\r\nEND\r\n");
        }
        let tasks = tasks(server.pid());
        assert!(tasks.len() > 2, "{tasks:?}");
        for task in tasks {
            let name = status(&task, "Name");
            assert_eq!(status(&task, "Seccomp"), "2", "{name} {kind:?}");
            assert_eq!(status(&task, "NoNewPrivs"), "1", "{name} {kind:?}");
            assert_eq!(filters(&task), filters(Path::new("/proc/self")) + 3, "{name} {kind:?}");
        }
        assert!(told(&server)[0]);
        assert!(server.stop()["balanced"].as_bool().unwrap());
    }
}

#[test]
fn it_can_be_switched_off() {
    let server = Server::start(&["-m", "8", "--no-sandbox", "--metrics", "127.0.0.1:0"]);
    for task in tasks(server.pid()) {
        assert_eq!(filters(&task), filters(Path::new("/proc/self")));
    }
    assert_eq!(told(&server), [false, false]);
    server.stop();
    let mut command = gnomon();
    command.env("GNOMON_NO_SANDBOX", "1").args(["-p", "-1", "-U", "0", "-m", "8"]);
    let server = Server::spawn(&mut command);
    let proc = format!("/proc/{}", server.pid());
    assert_eq!(filters(Path::new(&proc)), filters(Path::new("/proc/self")));
    server.stop();
}

/// Names what the child is to do.
const ACT: &str = "SANDBOXED_TEST_ACT";
/// Where it may read (`read`), remove (`remove`), write (`drive`), and nothing (`else`).
const DIR: &str = "SANDBOXED_TEST_DIR";

/// Does `act` in another process, in the sandbox.
fn child(act: &str, dir: &Tree) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "sandbox::in_the_child", "--nocapture", "--test-threads=1"]);
    output(command.env(ACT, act).env(DIR, dir.path("")))
}

/// A tree of files for the child.
fn tree(name: &str) -> Tree {
    let tree = Tree::empty(name);
    for sub in ["read", "remove", "drive", "else"] {
        fs::create_dir(tree.path(sub)).unwrap();
        tree.write(&format!("{sub}/file"), "text");
    }
    tree
}

/// What became of each try: `ok`, or the name of the error.
fn tries(act: &str, dir: &Tree) -> BTreeMap<String, String> {
    let out = child(act, dir);
    assert!(out.status.success(), "{out:?}");
    let said = text(&out.stdout);
    let tries = said.lines().filter_map(|line| line.split_once("try ")?.1.split_once(": "));
    tries.map(|(name, end)| (name.to_owned(), end.to_owned())).collect()
}

/// The other process's part. Does nothing when nobody asks.
#[test]
fn in_the_child() {
    let Ok(act) = std::env::var(ACT) else { return };
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let drivers = act == "with drivers";
    let needs = Needs {
        dpdk: drivers,
        drive: if drivers { vec![dir.join("drive")] } else { Vec::new() },
        read: vec![dir.join("read")],
        remove_in: vec![dir.join("remove")],
        ..Needs::default()
    };
    let state = sandbox::enter(&needs);
    assert_eq!(state.seccomp, Part::On);
    match act.as_str() {
        "execve" => drop(execv(c"/bin/true", &[c"true"])),
        "ptrace" => drop(ptrace::traceme()),
        "mount" => drop(mount::<str, str, str, str>(None, "/", None, MsFlags::MS_BIND, None)),
        "chroot" => drop(chroot("/")),
        "unshare" => drop(unshare(CloneFlags::CLONE_NEWUSER)),
        _ => {
            println!("try landlock: {}", if state.landlock == Part::On { "ok" } else { "off" });
            try_everything(&dir);
        }
    }
}

fn tell<T>(name: &str, done: io::Result<T>) {
    let end = match done {
        Ok(_) => "ok".to_owned(),
        Err(e) => Errno::from_raw(e.raw_os_error().unwrap_or(0)).to_string(),
    };
    println!("try {name}: {end}");
}

fn try_everything(dir: &Path) {
    tell("a thread", std::thread::Builder::new().spawn(|| ()).map(std::thread::JoinHandle::join));
    tell("a process", Command::new("/bin/true").spawn());
    tell("read", fs::read(dir.join("read/file")));
    tell("read elsewhere", fs::read(dir.join("else/file")));
    tell("read shadow", File::open("/etc/shadow"));
    tell("read own memory", File::open("/proc/self/mem"));
    tell("make", File::create(dir.join("remove/new")));
    tell("write", OpenOptions::new().append(true).open(dir.join("read/file")));
    tell("drive", OpenOptions::new().write(true).open(dir.join("drive/file")));
    tell("make a directory", fs::create_dir(dir.join("remove/dir")));
    tell("link", std::os::unix::fs::symlink("/", dir.join("remove/link")));
    tell("rename", fs::rename(dir.join("remove/file"), dir.join("remove/other")));
    tell(
        "change rights",
        fs::set_permissions(dir.join("read/file"), fs::metadata(dir).unwrap().permissions()),
    );
    tell("remove", fs::remove_file(dir.join("remove/file")));
    tell("remove elsewhere", fs::remove_file(dir.join("else/file")));
    tell("listen", TcpListener::bind("127.0.0.1:0"));
    tell("connect", TcpStream::connect_timeout(&([127, 0, 0, 1], 9).into(), SOON));
    tell("a datagram socket", UdpSocket::bind("127.0.0.1:0"));
    tell("signal", kill(getppid(), None::<Signal>).map_err(io::Error::from));
    tell("signal itself", kill(Pid::this(), None::<Signal>).map_err(io::Error::from));
    tell("limits", setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(io::Error::from));
}

#[test]
fn who_runs_a_program_ends() {
    let dir = tree("hostile");
    for act in ["execve", "ptrace", "mount", "chroot", "unshare"] {
        let out = child(act, &dir);
        assert_eq!(out.status.signal(), Some(Signal::SIGSYS as i32), "{act}: {out:?}");
    }
}

#[test]
fn what_serving_does_not_need_is_refused() {
    let dir = tree("refused");
    let tries = tries("all", &dir);
    let ends = |name: &str, end: Errno| assert_eq!(tries[name], end.to_string(), "{name}");
    assert_eq!((&*tries["a thread"], &*tries["read"], &*tries["remove"]), ("ok", "ok", "ok"));
    for name in [
        "a process",
        "make",
        "write",
        "drive",
        "make a directory",
        "link",
        "rename",
        "change rights",
        "listen",
        "connect",
        "a datagram socket",
        "signal",
        "signal itself",
        "limits",
    ] {
        ends(name, Errno::EPERM);
    }
    if tries["landlock"] == "ok" {
        for name in ["read elsewhere", "read shadow", "read own memory", "remove elsewhere"] {
            ends(name, Errno::EACCES);
        }
    }
}

#[test]
fn drivers_get_what_they_need_and_no_files_beyond() {
    let dir = tree("drivers");
    let tries = tries("with drivers", &dir);
    assert_eq!((&*tries["a datagram socket"], &*tries["drive"]), ("ok", "ok"));
    assert_eq!(tries["a process"], Errno::EPERM.to_string());
    if tries["landlock"] == "ok" {
        for name in ["make", "write", "read shadow", "listen", "connect"] {
            assert_eq!(tries[name], Errno::EACCES.to_string(), "{name}");
        }
    }
}
