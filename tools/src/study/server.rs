//! A server of one's own: started from a command line, ended when dropped.

use super::children::Running;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a server to answer.
const START_MAX: Duration = Duration::from_secs(20);
/// Times that another port is tried: another process may take one between choosing and listening.
const PORTS_MAX: u32 = 5;

/// A running server.
#[derive(Debug)]
pub struct Server {
    process: Running,
    address: SocketAddr,
}

impl Server {
    /// Starts `command`, words separated by blanks, with `{address}` (127.0.0.1), `{port}` and `{memory}` (in
    /// megabytes) filled in.
    ///
    /// # Errors
    /// It cannot be started, ends at once, or does not answer.
    pub fn start(command: &str, memory_mb: u64) -> io::Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST, command, memory_mb)
    }

    /// The same at another address of this machine's.
    ///
    /// # Errors
    /// As of [`Self::start`].
    pub fn start_at(address: Ipv4Addr, command: &str, memory_mb: u64) -> io::Result<Self> {
        let mut tries = 1;
        loop {
            match Self::start_once(address, command, memory_mb) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries < PORTS_MAX => tries += 1,
                done => return done,
            }
        }
    }

    fn start_once(address: Ipv4Addr, command: &str, memory_mb: u64) -> io::Result<Self> {
        let port = TcpListener::bind((address, 0))?.local_addr()?.port();
        let filled = command
            .replace("{address}", &address.to_string())
            .replace("{port}", &port.to_string())
            .replace("{memory}", &memory_mb.to_string());
        let failed = |kind, why: String| io::Error::new(kind, format!("`{filled}`: {why}"));
        let mut words = filled.split_whitespace();
        let program = words
            .next()
            .ok_or_else(|| failed(io::ErrorKind::InvalidInput, "no command".to_owned()))?;
        let mut command = Command::new(program);
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Running::start(&mut command).map_err(|e| failed(e.kind(), e.to_string()))?;
        let mut server = Self { process, address: (address, port).into() };
        let begun = Instant::now();
        loop {
            let answers = server.answers();
            if let Some(status) = server.process.try_wait()? {
                let why = format!("ended at once ({status}): is port {port} in use?");
                return Err(failed(io::ErrorKind::AddrInUse, why));
            }
            if answers {
                return Ok(server);
            }
            if begun.elapsed() > START_MAX {
                return Err(failed(io::ErrorKind::TimedOut, format!("silent on port {port}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it shows its version.
    fn answers(&self) -> bool {
        let ask = || {
            let mut to = TcpStream::connect(self.address)?;
            to.set_read_timeout(Some(Duration::from_secs(1)))?;
            to.write_all(b"version\r\n")?;
            let mut start = [0; 7];
            to.read_exact(&mut start)?;
            Ok::<_, io::Error>(start)
        };
        ask().is_ok_and(|start| start == *b"VERSION")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Memory that the process has in use, from proc(5).
    ///
    /// # Errors
    /// The process is gone.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
            .unwrap_or(0u64);
        Ok(kilobytes << 10)
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.process.id()
    }
}

/// CPU time of a process, by the kernel's account of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    /// In its own code.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

impl Cpu {
    /// So far, from proc(5), `stat`, fields 14 and 15.
    ///
    /// # Errors
    /// The process is gone.
    pub fn of(process: u32) -> io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut times = fields.split_whitespace().skip(11).map(|ticks| {
            // USER_HZ is 100 on every Linux that Debian builds.
            Duration::from_millis(ticks.parse::<u64>().unwrap_or(0) * 10)
        });
        let mut next = || times.next().unwrap_or_default();
        Ok(Self { user: next(), system: next() })
    }

    /// User and system together.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// What was used since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }
}

/// A server on the command line: its name in reports, and the command that starts it.
///
/// # Errors
/// Not of that form.
pub fn named(text: &str) -> Result<(String, String), String> {
    let (name, command) = text.split_once('=').ok_or("write NAME=COMMAND")?;
    Ok((name.to_owned(), command.to_owned()))
}
