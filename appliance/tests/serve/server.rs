//! A `gnomon` process that ends with the test.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest wait for anything that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn gnomon() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gnomon"));
    for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("GNOMON_")) {
        command.env_remove(name);
    }
    command.env_remove("MEMCACHED_PORT_FILENAME");
    command
}

/// Runs `gnomon` to its end, which must come by itself.
pub(crate) fn run(args: &[&str]) -> Output {
    output(gnomon().args(args))
}

/// Runs a program to its end, which must come by itself, and takes what it says.
pub(crate) fn output(command: &mut Command) -> Output {
    run_to_end(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Runs a program to its end, which must come by itself, and takes what it says where that is piped.
pub(crate) fn run_to_end(command: &mut Command) -> Output {
    let mut child = command.stdin(Stdio::null()).spawn().expect("it starts");
    let (stdout, stderr) = (whole(child.stdout.take()), whole(child.stderr.take()));
    if wait_for_exit(&mut child, SOON).is_none() {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    // What it has left running may hold its pipes.
    let said = |from: Receiver<_>| from.recv_timeout(SOON).expect("its output ends");
    Output { status, stdout: said(stdout), stderr: said(stderr) }
}

/// Reads all as it comes, so that nobody waits for a full pipe.
fn whole(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            from.read_to_end(&mut bytes).unwrap();
        }
        let _ = send.send(bytes);
    });
    receive
}

fn wait_for_exit(child: &mut Child, at_most: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + at_most;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// One line on standard error that begins so, nothing on standard output, exit status 1.
pub(crate) fn refuses(out: &Output, with: &str) {
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert_eq!(text(&out.stdout), "");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with(&format!("gnomon: {with}")), "{said}");
}

/// A directory of its own that goes with the test.
pub(crate) struct Tree(PathBuf);

impl Tree {
    pub(crate) fn empty(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("gnomon-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn new(name: &str, file: &str, text: &str) -> Self {
        let tree = Self::empty(name);
        tree.write(file, text);
        tree
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.0.join(file).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Server {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    pub(crate) ready: Value,
}

impl Server {
    /// Starts `gnomon serve` on free loopback ports, with further arguments.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(gnomon().args(["serve", "-p", "-1", "-U", "-1"]).args(args))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .args(["--json", "-v"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("gnomon starts");
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        let mut server = Self { child, stdout, stderr, ready: Value::Null };
        server.ready = server.event("ready");
        server
    }

    fn event(&self, name: &str) -> Value {
        let line = self.stdout.recv_timeout(SOON).unwrap_or_else(|e| {
            panic!("no {name} line: {e}; stderr: {:?}", self.stderr.try_iter().collect::<Vec<_>>())
        });
        let value: Value = serde_json::from_str(&line).expect("a line of JSON");
        assert_eq!(value["event"], name, "{line}");
        value
    }

    pub(crate) fn tcp(&self) -> SocketAddr {
        self.ready["tcp"][0].as_str().expect("a TCP address").parse().unwrap()
    }

    pub(crate) fn udp(&self) -> SocketAddr {
        self.ready["udp"][0].as_str().expect("a UDP address").parse().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits until a line with this text was written to standard error.
    pub(crate) fn wait_for_log(&self, text: &str) {
        let deadline = Instant::now() + SOON;
        while !self
            .stderr
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            .unwrap_or_else(|e| panic!("'{text}' was not logged: {e}"))
            .contains(text)
        {}
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        wait_for_exit(&mut self.child, SOON).expect("gnomon ends").code()
    }

    /// Ends it with the signal, expects success and gives the final report.
    pub(crate) fn stop_by(mut self, signal: Signal) -> Value {
        self.signal(signal);
        let report = self.event("report");
        assert_eq!(self.exit_code(), Some(0), "{report}");
        assert_eq!(report["balanced"], true, "{report}");
        report
    }

    pub(crate) fn stop(self) -> Value {
        self.stop_by(Signal::SIGTERM)
    }

    /// Resident memory, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines as they come, so that neither side waits for a full pipe.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    receive
}
