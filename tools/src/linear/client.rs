//! One client: sends one request at a time and waits for the answer.
//!
//! Over UDP an answer may get lost: after a timeout the client records it as lost and goes on.
//! Over TCP that is an error. Fails: the socket, and answers that are none.

use super::model::{Answer, Call};
use super::wire::{BadAnswer, Verb};
use gnomon_client::codec::connection::Connection;
use gnomon_client::codec::udp;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Longest wait for an answer over UDP.
const UDP_ANSWER_MAX: Duration = Duration::from_millis(500);

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
    Tcp(Connection),
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
        Ok(Self::new(Way::Tcp(Connection::open(server)?)))
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

    /// Sends the request, and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask(
        &mut self,
        key: &str,
        verb: Verb,
        call: &Call,
        exptime: u32,
    ) -> Result<Answer, ClientError> {
        self.request.clear();
        self.answer.clear();
        match &mut self.way {
            Way::Tcp(connection) => {
                verb.request(key, call, exptime, &mut self.request);
                connection.send(&self.request)?;
                let answer =
                    connection.receive(|come| verb.answer(key, come).map_err(ClientError::from))?;
                if connection.left() == 0 { Ok(answer) } else { too_much() }
            }
            Way::Udp { socket, last_id } => {
                *last_id = last_id.wrapping_add(1);
                self.request.extend_from_slice(&udp::header(*last_id));
                verb.request(key, call, exptime, &mut self.request);
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
                    let part = datagram.get(..n).and_then(udp::split);
                    let Some((_, text)) = part.filter(|(part, _)| part.id == *last_id) else {
                        continue;
                    };
                    self.answer.extend_from_slice(text);
                    if let Some((answer, rest)) = verb.answer(key, &self.answer)? {
                        return if rest.is_empty() { Ok(answer) } else { too_much() };
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
    Err(io::Error::new(io::ErrorKind::InvalidData, "bytes behind the reply").into())
}
