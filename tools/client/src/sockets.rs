//! RoCEv2 through the kernel's UDP sockets: no NIC of one's own, no rights.
//!
//! The invariant CRC covers the IP header, which the kernel writes: for a socket that is not connected and never
//! fragments (`IP_PMTUDISC_DO`) Linux sets DF and the identification 0, as the server does. So the frames of a requester are cut
//! down to their payload on the way out, and given headers again on the way in. IPv4 alone: over
//! IPv6 the kernel drops datagrams without a checksum. One process on a machine can do it at a
//! time, for the port is RoCEv2's own.

use crate::codec::connection::Connection;
use crate::frames::{FRAME_MAX_BYTES, Frames};
use crate::requester::Route;
use driver_shim::MacAddr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;
use wire::build::UdpFrame;
use wire::roce::PORT;

/// Where a datagram's payload begins: behind Ethernet, IPv4 and UDP.
const DATA_AT: usize = 14 + 20 + 8;
/// Space for responses that wait: several of 64 KB. The kernel gives what it permits.
const WAITING_BYTES: usize = 4 << 20;

/// A socket on the port of RoCEv2.
#[derive(Debug)]
pub struct Sockets {
    socket: UdpSocket,
    route: Route,
}

impl Sockets {
    /// Between the two ends of a connection: the server serves queue pairs of its peers' addresses alone.
    ///
    /// # Errors
    /// The port is in use, or the connection is not one over IPv4.
    pub fn beside(service: &Connection) -> io::Result<Self> {
        let (near, far) = service.between()?;
        let between = [near.ip().to_canonical(), far.ip().to_canonical()];
        if between.iter().any(IpAddr::is_ipv6) {
            return Err(io::Error::new(ErrorKind::Unsupported, "through sockets: IPv4 alone"));
        }
        let socket = UdpSocket::bind((between[0], PORT))?;
        socket.set_nonblocking(true)?;
        sockopt::set_socket_recv_buffer_size(&socket, WAITING_BYTES)?;
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
        Ok(Self { socket, route: Route { macs: [MacAddr([0; 6]); 2], between } })
    }
}

impl Frames for Sockets {
    fn route(&self) -> Route {
        self.route
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let to = SocketAddr::from((self.route.between[1], PORT));
        match self.socket.send_to(frame.get(DATA_AT..).unwrap_or_default(), to) {
            Err(why) if !is_passing(&why) => Err(why),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut data = [0; FRAME_MAX_BYTES];
        let (len, from) = match self.socket.recv_from(&mut data) {
            Ok(come) => come,
            Err(why) if is_passing(&why) => return Ok(0),
            Err(why) => return Err(why),
        };
        let there = self.route.headers();
        let payload = data.get(..len).unwrap_or_default();
        let back = UdpFrame {
            src_mac: there.dst_mac,
            dst_mac: there.src_mac,
            src: from,
            dst: there.src,
            payload,
            ..there
        };
        Ok(back.write_to(into).unwrap_or(0))
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        let at_most = Timespec::try_from(at_most).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&at_most)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }
}

/// Nothing has come, or something was lost: queues that are full say so in more than one way.
fn is_passing(why: &io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, OutOfMemory, TimedOut, WouldBlock};
    let is_full = Errno::from_io_error(why) == Some(Errno::NOBUFS);
    is_full
        || matches!(
            why.kind(),
            ConnectionRefused | Interrupted | OutOfMemory | TimedOut | WouldBlock
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_loses_and_what_is_wrong_is_said() {
        for (why, passes) in [
            (Errno::NOBUFS, true),
            (Errno::AGAIN, true),
            (Errno::ACCESS, false),
            (Errno::NETUNREACH, false),
        ] {
            assert_eq!(is_passing(&why.into()), passes, "{why}");
        }
    }
}
