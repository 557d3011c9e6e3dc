//! The yardstick: what Debian's `memcached` spends on the same question.
//!
//! Starts a private memcached on loopback, loads it over TCP, sends it gets over UDP, and reads the CPU
//! time that its process used meanwhile, user and system together: the kernel's share of a
//! request is part of the price that a user pays.

use super::server::Cpu;
use gnomon_client::codec::connection::Connection;
use gnomon_client::codec::reply::{Reply, parse};
use gnomon_client::codec::{Protocol, Set, udp};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Requests that wait for their answer at once: enough to keep one thread busy.
const WINDOW: usize = 64;
/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Longest wait for memcached to listen.
const START_MAX: Duration = Duration::from_secs(10);

/// A running memcached. Ended when dropped.
#[derive(Debug)]
pub struct Memcached {
    child: Child,
    port: u16,
}

/// What a run of requests cost.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Requests answered.
    pub answered: u64,
    /// Of those, with the right value.
    pub hits: u64,
    /// CPU time of the whole process, user and system.
    pub cpu: Duration,
}

impl Memcached {
    /// Starts one worker thread with `memory_mb` on a free loopback port.
    ///
    /// # Errors
    /// memcached is not installed, or does not come up.
    pub fn start(memory_mb: usize) -> io::Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let child = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-t", "1", "-u", "root"])
            .args(["-p", &port.to_string(), "-U", &port.to_string()])
            .args(["-m", &memory_mb.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Self { child, port };
        let begun = Instant::now();
        while server.connect().is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(io::Error::other(format!("memcached ended at once: {status}")));
            }
            if begun.elapsed() > START_MAX {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Sets `key(i)` to `value(i)` for every i below `items`, over TCP.
    ///
    /// # Errors
    /// The connection's, or an answer that says the load failed.
    pub fn load(
        &self,
        items: u64,
        key: impl Fn(u64) -> Vec<u8>,
        value: impl Fn(u64) -> Vec<u8>,
    ) -> io::Result<()> {
        let mut connection = Connection::open((Ipv4Addr::LOCALHOST, self.port).into())?;
        let mut text = Vec::new();
        for i in 0..items {
            let set = Set { key: key(i), flags: 0, ttl_s: 0, value: value(i), quiet: true };
            Protocol::Ascii.set(&set, &mut text);
            if text.len() > 1 << 16 {
                connection.send(&text)?;
                text.clear();
            }
        }
        text.extend_from_slice(b"version\r\n");
        connection.send(&text)?;
        connection.receive(|come| match parse(Protocol::Ascii, come)? {
            None => Ok(None),
            Some((Reply::Version(_), rest)) => Ok(Some(((), rest))),
            Some((other, _)) => Err(io::Error::other(format!("memcached answered {other:?}"))),
        })
    }

    /// Gets `requests` keys over UDP, from `key(n)` for the n-th, and reports the cost.
    ///
    /// # Errors
    /// The sockets', or memcached's end.
    pub fn ask(&self, requests: u64, key: impl Fn(u64) -> Vec<u8>) -> io::Result<Cost> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, self.port))?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let before = Cpu::of(self.child.id())?;
        let (mut answered, mut hits, mut waiting) = (0, 0, 0);
        let mut datagram = Vec::new();
        let mut answer = [0; 2048];
        let mut asked = 0;
        while asked < requests || waiting > 0 {
            while asked < requests && waiting < WINDOW {
                datagram.clear();
                datagram.extend_from_slice(&udp::header(0));
                Protocol::Ascii.get([key(asked)].iter(), &mut datagram);
                socket.send(&datagram)?;
                asked += 1;
                waiting += 1;
            }
            match socket.recv(&mut answer) {
                Ok(n) => {
                    answered += 1;
                    waiting -= 1;
                    let reply = answer.get(..n).and_then(udp::split).map(|(_, text)| text);
                    let reply =
                        reply.map(|text| parse(Protocol::Ascii, text)).transpose()?.flatten();
                    hits += u64::from(matches!(reply, Some((Reply::Value(_), _))));
                }
                // The rest of the window was lost: a full socket buffer.
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
                {
                    waiting = 0;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Cost { answered, hits, cpu: Cpu::of(self.child.id())?.since(before).total() })
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
