//! A server of one's own: started from a command line, ended when dropped.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a server to answer.
const START_MAX: Duration = Duration::from_secs(20);
/// Times that another port is tried: somebody may take one between choosing and listening.
const PORTS_MAX: u32 = 5;

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts `command`, words separated by blanks, with `{port}` and `{memory}` (in megabytes)
    /// filled in.
    ///
    /// # Errors
    /// It cannot be started, ends at once, or does not answer.
    pub fn start(command: &str, memory_mb: u64) -> io::Result<Self> {
        let mut tries = 1;
        loop {
            match Self::start_once(command, memory_mb) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries < PORTS_MAX => tries += 1,
                done => return done,
            }
        }
    }

    fn start_once(command: &str, memory_mb: u64) -> io::Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let filled = command
            .replace("{port}", &port.to_string())
            .replace("{memory}", &memory_mb.to_string());
        let failed = |kind, why: String| io::Error::new(kind, format!("`{filled}`: {why}"));
        let mut words = filled.split_whitespace();
        let program = words
            .next()
            .ok_or_else(|| failed(io::ErrorKind::InvalidInput, "no command".to_owned()))?;
        let child = Command::new(program)
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| failed(e.kind(), e.to_string()))?;
        let mut server = Self { child, address: (Ipv4Addr::LOCALHOST, port).into() };
        let begun = Instant::now();
        loop {
            let answers = server.answers();
            if let Some(status) = server.child.try_wait()? {
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

    /// Whether it tells its version.
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
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
            .unwrap_or(0u64);
        Ok(kilobytes << 10)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
