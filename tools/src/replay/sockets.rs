//! Kernel sockets as a link: several connected UDP sockets, over which the clients of the
//! capture are spread. Only payloads travel, under request ids of the socket's own: two clients
//! on one socket may use the same id.

use super::link::{Link, Taken};
use super::pending::Tag;
use crate::trace::Request;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

/// Wanted kernel buffers per socket; the kernel gives what its limits allow.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// Longest datagram there is.
const DATAGRAM_MAX_BYTES: usize = 65_535;
/// Datagrams taken from one socket before the next has its turn.
const TURN: usize = 64;

/// Sockets to one server.
#[derive(Debug)]
pub struct Sockets {
    sockets: Vec<UdpSocket>,
    /// The next request id of each socket.
    next_id: Vec<u16>,
    /// Clients of the capture, by the order in which they first spoke.
    clients: HashMap<SocketAddr, u32>,
    out: Vec<u8>,
    into: Vec<u8>,
    refusals: u64,
}

impl Sockets {
    /// Opens `count` sockets, at least one, to `target`.
    ///
    /// # Errors
    /// The OS error.
    pub fn connect(target: SocketAddr, count: usize) -> io::Result<Self> {
        let any: SocketAddr = match target {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let sockets = (0..count.max(1))
            .map(|_| {
                let s = UdpSocket::bind(any)?;
                s.connect(target)?;
                s.set_nonblocking(true)?;
                // Smaller buffers cost speed, not truth.
                let _ = setsockopt(&s, sockopt::RcvBuf, &SOCKET_BUFFER_BYTES);
                let _ = setsockopt(&s, sockopt::SndBuf, &SOCKET_BUFFER_BYTES);
                Ok(s)
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            next_id: vec![0; sockets.len()],
            sockets,
            clients: HashMap::new(),
            out: Vec::with_capacity(2048),
            into: vec![0; DATAGRAM_MAX_BYTES],
            refusals: 0,
        })
    }
}

impl Link for Sockets {
    fn tag(&mut self, request: &Request) -> Tag {
        let number = u32::try_from(self.clients.len()).unwrap_or(0);
        let client = *self.clients.entry(request.datagram.src).or_insert(number);
        let lane = client as usize % self.sockets.len();
        Tag { lane: u32::try_from(lane).unwrap_or(0), id: self.next_id[lane] }
    }

    fn send(&mut self, frame: &[u8], request: Option<(&Request, Tag)>) -> io::Result<Taken> {
        let Some((request, tag)) = request else { return Ok(Taken::Never) };
        let payload = &frame[request.datagram.payload.clone()];
        let Some(rest) = payload.get(2..) else { return Ok(Taken::Never) };
        self.out.clear();
        self.out.extend_from_slice(&tag.id.to_be_bytes());
        self.out.extend_from_slice(rest);
        let lane = tag.lane as usize;
        match self.sockets[lane].send(&self.out) {
            Ok(_) => {
                if self.next_id[lane] == tag.id {
                    self.next_id[lane] = tag.id.wrapping_add(1);
                }
                Ok(Taken::Sent)
            }
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Taken::Full),
                // An earlier datagram found no socket listening; this one was not sent.
                ErrorKind::ConnectionRefused => {
                    self.refusals += 1;
                    Ok(Taken::Full)
                }
                _ if e.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => Ok(Taken::Full),
                _ => Err(e),
            },
        }
    }

    fn receive(&mut self, each: &mut dyn FnMut(Option<u32>, &[u8])) -> io::Result<usize> {
        let mut got = 0;
        for (lane, socket) in (0u32..).zip(&self.sockets) {
            for _ in 0..TURN {
                match socket.recv(&mut self.into) {
                    Ok(len) => {
                        got += 1;
                        each(Some(lane), &self.into[..len]);
                    }
                    Err(e) => match e.kind() {
                        ErrorKind::WouldBlock => break,
                        ErrorKind::Interrupted => {}
                        ErrorKind::ConnectionRefused => self.refusals += 1,
                        _ => return Err(e),
                    },
                }
            }
        }
        Ok(got)
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        let mut fds: Vec<PollFd<'_>> =
            self.sockets.iter().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
        // Rounded down: below a millisecond, spinning is what keeps to the schedule.
        let ms = u16::try_from(at_most.as_millis()).unwrap_or(u16::MAX);
        match poll(&mut fds, PollTimeout::from(ms)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn refusals(&self) -> u64 {
        self.refusals
    }
}
