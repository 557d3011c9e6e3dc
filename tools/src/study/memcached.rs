//! The yardstick: what Debian's `memcached` spends on the same question.
//!
//! Starts a private memcached on loopback, loads it over TCP, sends it gets over UDP, compares every reply to
//! the byte, and reads the CPU time that its process used meanwhile, user and system together: the kernel's share of a
//! request is part of the price that a user pays.

use super::children::Running;
use super::server::Cpu;
use gnomon_client::codec::connection::Connection;
use gnomon_client::codec::reply::{Reply, parse};
use gnomon_client::codec::{Protocol, Set, udp};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Requests that wait for their answer at once: enough to keep one thread busy.
const WINDOW: usize = 64;
/// What a get of a key that is not there is answered.
const MISS: &[u8] = b"END\r\n";
/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Longest wait for memcached to listen.
const START_MAX: Duration = Duration::from_secs(10);

/// A running memcached. Ended when dropped.
#[derive(Debug)]
pub struct Memcached {
    process: Running,
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
        let mut command = Command::new("memcached");
        command
            .args(["-l", "127.0.0.1", "-t", "1", "-u", "root"])
            .args(["-p", &port.to_string(), "-U", &port.to_string()])
            .args(["-m", &memory_mb.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = Self { process: Running::start(&mut command)?, port };
        let begun = Instant::now();
        while server.connect().is_err() {
            if let Some(status) = server.process.try_wait()? {
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

    /// Gets `requests` keys over UDP and reports the cost. `exchange(n)` is the n-th: its key, and the text that it must
    /// get if it gets an item.
    ///
    /// # Errors
    /// The sockets', memcached's end, or a wrong reply.
    pub fn ask(
        &self,
        requests: u64,
        exchange: impl Fn(u64) -> (Vec<u8>, Vec<u8>),
    ) -> io::Result<Cost> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, self.port))?;
        let before = Cpu::of(self.process.id())?;
        let (answered, hits) = ask(&socket, requests, exchange)?;
        Ok(Cost { answered, hits, cpu: Cpu::of(self.process.id())?.since(before).total() })
    }
}

/// Says how many requests were answered, and how many of these with an item.
fn ask(
    socket: &UdpSocket,
    requests: u64,
    exchange: impl Fn(u64) -> (Vec<u8>, Vec<u8>),
) -> io::Result<(u64, u64)> {
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    let (mut answered, mut hits, mut waiting, mut asked) = (0, 0, 0, 0);
    let mut datagram = Vec::new();
    let mut answer = [0; 2048];
    while asked < requests || waiting > 0 {
        while asked < requests && waiting < WINDOW {
            datagram.clear();
            // Replies repeat the lowest bits of the request's number.
            datagram.extend_from_slice(&udp::header((asked & 0xffff) as u16));
            Protocol::Ascii.get([exchange(asked).0].iter(), &mut datagram);
            socket.send(&datagram)?;
            asked += 1;
            waiting += 1;
        }
        match socket.recv(&mut answer) {
            Ok(n) => {
                answered += 1;
                waiting -= 1;
                hits += u64::from(is_hit(answer.get(..n).unwrap_or_default(), asked, &exchange)?);
            }
            // The rest of the window was lost: a full socket buffer.
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                waiting = 0;
            }
            Err(e) => return Err(e),
        }
    }
    Ok((answered, hits))
}

/// Whether a reply to one of the latest of `asked` requests has the item. Fails when it is neither that nor a miss.
fn is_hit(
    answer: &[u8],
    asked: u64,
    exchange: impl Fn(u64) -> (Vec<u8>, Vec<u8>),
) -> io::Result<bool> {
    let wrong = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    let Some((part, text)) = udp::split(answer) else {
        return wrong(format!("memcached sent `{}`", answer.escape_ascii()));
    };
    let back = asked.wrapping_sub(u64::from(part.id)) & 0xffff;
    let Some(n) = asked.checked_sub(if back == 0 { 1 << 16 } else { back }) else {
        return wrong(format!("memcached answered request {}, which was not asked", part.id));
    };
    let (key, reply) = exchange(n);
    match text {
        _ if part.total != 1 => wrong("memcached answered in several datagrams".to_owned()),
        MISS => Ok(false),
        text if text == reply => Ok(true),
        text => wrong(format!(
            "a wrong reply of memcached's to a get of `{}`: `{}` instead of `{}`",
            key.escape_ascii(),
            text.escape_ascii(),
            reply.escape_ascii()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::load::{Load, Shape};
    use std::thread;

    const SHAPE: Shape = Shape { key_bytes: 10, value_bytes: 5 };

    fn exchange(n: u64) -> (Vec<u8>, Vec<u8>) {
        (SHAPE.key(n % 100), Load::Get.reply(SHAPE, &[n % 100]))
    }

    /// Asks a server that answers the n-th request with what `reply` makes of its header and text.
    fn asked_of(requests: u64, reply: fn(u64, Vec<u8>) -> Vec<u8>) -> io::Result<(u64, u64)> {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut request = [0; 64];
                for n in 0..requests {
                    let len = server.recv(&mut request).unwrap();
                    if len == 0 {
                        break;
                    }
                    let (key, right) = exchange(n);
                    assert_eq!(request[12..len - 2], key);
                    server.send(&reply(n, [&request[..8], &right].concat())).unwrap();
                }
            });
            let got = ask(&client, requests, exchange);
            // That is all, also for one that has not seen all requests.
            client.send(&[]).unwrap();
            got
        })
    }

    #[test]
    fn right_values_and_misses_are_counted_round_all_numbers() {
        assert_eq!(asked_of(70_000, |_, right| right).unwrap(), (70_000, 70_000));
        let every_fourth_misses = |n, right: Vec<u8>| match n % 4 {
            0 => [&right[..8], MISS].concat(),
            _ => right,
        };
        assert_eq!(asked_of(200, every_fourth_misses).unwrap(), (200, 150));
    }

    #[test]
    fn one_wrong_byte_or_another_items_value_ends_it() {
        let changed = |n, mut right: Vec<u8>| {
            let at = right.len() - b"\r\nEND\r\n".len() - 1;
            right[at] ^= u8::from(n == 150);
            right
        };
        let of_the_next = |n, right: Vec<u8>| {
            let item = (n + u64::from(n == 150)) % 100;
            [&right[..8], &Load::Get.reply(SHAPE, &[item])].concat()
        };
        let cut = |n, mut right: Vec<u8>| {
            right.truncate(right.len() - usize::from(n == 150));
            right
        };
        for reply in [changed, of_the_next, cut] {
            let why = asked_of(200, reply).unwrap_err().to_string();
            assert!(why.contains("a wrong reply of memcached's to a get of `0000000050`"), "{why}");
        }
        let why = asked_of(200, |_, right| [&[0xff; 2], &right[2..]].concat()).unwrap_err();
        assert!(why.to_string().contains("which was not asked"), "{why}");
    }
}
