//! One client: asks one thing at a time and waits for the answer.
//!
//! Over UDP an answer may get lost: whoever has waited long enough calls it lost and goes on.
//! Over TCP that is an error. Fails: the socket, and answers that are none.

use super::model::{Answer, Call};
use super::wire::{BadAnswer, Verb};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Longest wait for an answer over TCP.
const TCP_ANSWER_MAX: Duration = Duration::from_secs(20);
/// Longest wait for an answer over UDP.
const UDP_ANSWER_MAX: Duration = Duration::from_millis(500);
/// Bytes of memcached's UDP frame header.
const FRAME_BYTES: usize = 8;

/// Why a client gave up.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket's.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Something else came back.
    #[error(transparent)]
    Answer(#[from] BadAnswer),
}

/// How requests travel.
#[derive(Debug)]
enum Way {
    Tcp(TcpStream),
    Udp { socket: UdpSocket, last_id: u16 },
}

/// One client.
#[derive(Debug)]
pub struct Client {
    way: Way,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    /// Connects over TCP.
    ///
    /// # Errors
    /// The socket's.
    pub fn tcp(server: SocketAddr) -> Result<Self, ClientError> {
        let stream = TcpStream::connect_timeout(&server, TCP_ANSWER_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TCP_ANSWER_MAX))?;
        stream.set_write_timeout(Some(TCP_ANSWER_MAX))?;
        Ok(Self::new(Way::Tcp(stream)))
    }

    /// A UDP socket of its own.
    ///
    /// # Errors
    /// The socket's.
    pub fn udp(server: SocketAddr) -> Result<Self, ClientError> {
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        Ok(Self::new(Way::Udp { socket, last_id: 0 }))
    }

    fn new(way: Way) -> Self {
        Self { way, request: Vec::new(), answer: Vec::new() }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask(&mut self, key: &str, verb: Verb, call: &Call) -> Result<Answer, ClientError> {
        self.request.clear();
        self.answer.clear();
        match &mut self.way {
            Way::Tcp(stream) => {
                verb.request(key, call, &mut self.request);
                stream.write_all(&self.request)?;
                let mut piece = [0; 4096];
                loop {
                    if let Some((answer, len)) = verb.answer(key, &self.answer)? {
                        return if len == self.answer.len() { Ok(answer) } else { too_much() };
                    }
                    let n = stream.read(&mut piece)?;
                    if n == 0 {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                    }
                    self.answer.extend_from_slice(&piece[..n]);
                }
            }
            Way::Udp { socket, last_id } => {
                *last_id = last_id.wrapping_add(1);
                let [high, low] = last_id.to_be_bytes();
                self.request.extend_from_slice(&[high, low, 0, 0, 0, 1, 0, 0]);
                verb.request(key, call, &mut self.request);
                socket.send(&self.request)?;
                let until = Instant::now() + UDP_ANSWER_MAX;
                let mut datagram = [0; 2048];
                loop {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(Answer::Lost);
                    }
                    socket.set_read_timeout(Some(left))?;
                    let n = match socket.recv(&mut datagram) {
                        Ok(n) => n,
                        Err(e) if is_timeout(&e) => continue,
                        Err(e) => return Err(e.into()),
                    };
                    // An answer to a request given up: not waited for any more.
                    if n < FRAME_BYTES || datagram[..2] != [high, low] {
                        continue;
                    }
                    self.answer.extend_from_slice(&datagram[FRAME_BYTES..n]);
                    if let Some((answer, len)) = verb.answer(key, &self.answer)? {
                        return if len == self.answer.len() { Ok(answer) } else { too_much() };
                    }
                }
            }
        }
    }
}

fn is_timeout(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn too_much() -> Result<Answer, ClientError> {
    Err(io::Error::new(io::ErrorKind::InvalidData, "bytes behind an answer that nobody asked for")
        .into())
}
