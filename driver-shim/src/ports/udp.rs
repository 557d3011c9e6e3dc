//! Kernel UDP sockets as a port: the embedded default, which needs no driver, no huge pages and
//! no privilege.
//!
//! In: datagrams, received straight into slots; Ethernet, IP and UDP headers are written in
//! front, so that every later stage sees an ordinary frame. Out: frames, whose headers say
//! where their payload is sent, from the address that they name as their source. The kernel
//! verifies and fills in checksums: received frames carry 0 in the IPv4 and UDP checksum fields
//! and are marked good.
//!
//! Each queue has one socket per bind address, sharing the port number (`SO_REUSEPORT`) where
//! there are several queues: the kernel spreads peers over them by hash. Each socket keeps up to
//! a burst of slots ready for the kernel to fill, as a NIC keeps its descriptors; they return
//! with the queue.
//!
//! A datagram longer than a slot becomes the first fragment of one, as a wire would bring it: its
//! headers say how long it was, and the rest is lost.
//!
//! Fails at start-up only ([`UdpPortError`]). Afterwards: what the kernel dropped for lack of buffer is
//! counted `rx_missed`; a frame that is not a whole UDP datagram or whose destination the kernel
//! refuses is consumed and counted `tx_errors`, not `tx_frames`. With no free slot nothing is lost
//! here: datagrams wait in the kernel.

mod headers;
mod mmsg;
#[cfg(test)]
mod tests;

use crate::frame::{BURST_MAX, Burst, Frame, RxChecksum};
use crate::port::{
    Port, PortControl, PortCounters, PortInfo, PortSocket, QueuePair, RxQueue, Silence, TxCaps,
    TxQueue,
};
use crate::ports::tally::{Tallies, Tally};
use crate::ports::wait::{WAIT_FDS_MAX, until_readable};
use crate::region::Region;
use crate::slots::FRAME_MAX_BYTES;
use arrayvec::ArrayVec;
use mmsg::Arrival;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SetSockOpt, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket,
    sockopt,
};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

/// Most addresses that one port binds.
const BINDS_MAX: usize = WAIT_FDS_MAX;

/// Bytes asked of the kernel for each socket's buffers: some milliseconds of small datagrams at
/// the rate one core serves through sockets.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// What to open.
#[derive(Debug, Clone)]
pub struct UdpPortConfig {
    /// Addresses to bind. Port 0 lets the kernel choose, for each address on its own.
    pub binds: Vec<SocketAddr>,
    /// Queues, one per worker.
    pub queues: usize,
}

/// Why the sockets could not be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum UdpPortError {
    #[error("{0} addresses to listen on; give 1 to {BINDS_MAX}")]
    Binds(usize),
    #[error("a UDP port needs at least one queue")]
    NoQueues,
    #[error(
        "UDP {0} is in use by another process; stop it (`ss -ulnp` names it) or listen elsewhere"
    )]
    InUse(SocketAddr),
    #[error(
        "no permission to listen on UDP {0}; use a port of 1024 or above, or grant CAP_NET_BIND_SERVICE"
    )]
    Permission(SocketAddr),
    #[error("UDP {0}: this machine has no such address; `ip address` lists those it has")]
    NotLocal(SocketAddr),
    #[error("UDP {0}: the kernel does not speak this address family; listen on the other one")]
    Family(SocketAddr),
    #[error(
        "cannot listen on UDP {addr}: {what}: {source}; see `ulimit -n`, the seccomp profile of a container, and the kernel log"
    )]
    Socket { addr: SocketAddr, what: &'static str, source: io::Error },
}

/// Opens the sockets. Returns the port, and the addresses bound, in the order given and
/// with the port numbers that the kernel chose.
///
/// # Errors
/// [`UdpPortError`]: an address that is in use, foreign, forbidden, or not to be had.
pub fn open(
    config: &UdpPortConfig,
    region: &Region,
) -> Result<(Port, Vec<SocketAddr>), UdpPortError> {
    if config.binds.is_empty() || config.binds.len() > BINDS_MAX {
        return Err(UdpPortError::Binds(config.binds.len()));
    }
    if config.queues == 0 {
        return Err(UdpPortError::NoQueues);
    }
    let mut local = Vec::new();
    let mut per_queue: Vec<Vec<Bound>> = (0..config.queues).map(|_| Vec::new()).collect();
    for &wanted in &config.binds {
        let mut addr = wanted;
        for (q, sockets) in per_queue.iter_mut().enumerate() {
            let bound = bind_one(addr, q, config.queues)?;
            addr = bound.addr;
            sockets.push(bound);
        }
        local.push(addr);
    }

    // At most half of the region waits for the kernel.
    let ring = (region.capacity() / 2 / (config.queues * config.binds.len())).clamp(1, BURST_MAX);
    let mut queues = Vec::new();
    let mut control = UdpControl { tallies: Tallies(Vec::new()), sockets: Vec::new() };
    for sockets in per_queue {
        let sockets: Arc<[Bound]> = sockets.into();
        let tally = Arc::<Tally>::default();
        let rings = sockets.iter().map(|_| Burst::new()).collect();
        queues.push(QueuePair {
            rx: Box::new(UdpRx {
                region: region.clone(),
                sockets: Arc::clone(&sockets),
                rings,
                ring,
                first: 0,
                arrivals: Box::new([Arrival::EMPTY; BURST_MAX]),
                tally: Arc::clone(&tally),
            }),
            tx: Box::new(UdpTx { sockets: Arc::clone(&sockets), tally: Arc::clone(&tally) }),
        });
        control.tallies.0.push(tally);
        control.sockets.push(sockets);
    }
    let names: Vec<String> = local.iter().map(ToString::to_string).collect();
    let info = PortInfo {
        name: format!("udp:{}", names.join(",")),
        mac: headers::MAC,
        mtu: u16::try_from(FRAME_MAX_BYTES - headers::LINK_BYTES).unwrap_or(u16::MAX),
        tx_caps: TxCaps { ip: true, udp: true },
        any_destination: true,
        busy_poll: false,
        flows_stray: false,
    };
    Ok((Port { info, queues, control: Box::new(control) }, local))
}

/// A socket and the address it is bound to.
#[derive(Debug)]
struct Bound {
    socket: UdpSocket,
    addr: SocketAddr,
    silence: Silence,
}

impl Bound {
    /// Whether a datagram from `from` would leave by this socket with that source.
    fn sends_as(&self, from: SocketAddr) -> bool {
        self.addr.port() == from.port()
            && (self.addr.ip() == from.ip()
                || (self.addr.ip().is_unspecified() && self.addr.is_ipv4() == from.is_ipv4()))
    }
}

/// Opens and binds the socket of queue `q` of `queues`.
///
/// The first is bound without `SO_REUSEPORT`, so that a port in use is an error even if its
/// user is willing to share, and becomes shareable only then; the kernel takes it into the
/// group when the second is bound.
fn bind_one(addr: SocketAddr, q: usize, queues: usize) -> Result<Bound, UdpPortError> {
    let fail = |what| {
        move |e: Errno| match e {
            Errno::EADDRINUSE => UdpPortError::InUse(addr),
            Errno::EACCES | Errno::EPERM => UdpPortError::Permission(addr),
            Errno::EADDRNOTAVAIL => UdpPortError::NotLocal(addr),
            Errno::EAFNOSUPPORT => UdpPortError::Family(addr),
            e => UdpPortError::Socket { addr, what, source: e.into() },
        }
    };
    let family = if addr.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Datagram, flags, None).map_err(fail("socket"))?;
    if addr.is_ipv4() {
        setsockopt(&fd, sockopt::Ipv4PacketInfo, &true).map_err(fail("IP_PKTINFO"))?;
    } else {
        setsockopt(&fd, sockopt::Ipv6V6Only, &true).map_err(fail("IPV6_V6ONLY"))?;
        setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true).map_err(fail("IPV6_RECVPKTINFO"))?;
    }
    // A small buffer costs losses under load, not correctness: take what there is.
    at_best(&fd, sockopt::RcvBufForce, sockopt::RcvBuf);
    at_best(&fd, sockopt::SndBufForce, sockopt::SndBuf);
    if q > 0 {
        setsockopt(&fd, sockopt::ReusePort, &true).map_err(fail("SO_REUSEPORT"))?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(addr)).map_err(fail("bind"))?;
    if q == 0 && queues > 1 {
        setsockopt(&fd, sockopt::ReusePort, &true).map_err(fail("SO_REUSEPORT"))?;
    }
    let socket = UdpSocket::from(fd);
    let fail = |what| move |source| UdpPortError::Socket { addr, what, source };
    // A system call that is refused is an error now, and would be silence later.
    let none = &mut [Arrival::EMPTY; BURST_MAX];
    mmsg::receive(socket.as_fd(), &mut [], 0, none).map_err(fail("recvmmsg"))?;
    mmsg::send(socket.as_fd(), &[]).map_err(fail("sendmmsg"))?;
    let addr = socket.local_addr().map_err(fail("getsockname"))?;
    Ok(Bound { socket, addr, silence: Silence::default() })
}

fn at_best<F: AsFd>(
    fd: &F,
    force: impl SetSockOpt<Val = usize>,
    ask: impl SetSockOpt<Val = usize>,
) {
    if setsockopt(fd, force, &SOCKET_BUFFER_BYTES).is_err() {
        let _ = setsockopt(fd, ask, &SOCKET_BUFFER_BYTES);
    }
}

struct UdpRx {
    region: Region,
    sockets: Arc<[Bound]>,
    /// For each socket, empty frames for the kernel to fill.
    rings: Vec<Burst>,
    /// Frames that each ring should hold.
    ring: usize,
    /// The socket that is read first, each in turn.
    first: usize,
    arrivals: Box<[Arrival; BURST_MAX]>,
    tally: Arc<Tally>,
}

impl UdpRx {
    fn receive(&mut self, at: usize, into: &mut Burst) -> Option<usize> {
        let bound = self.sockets.get(at)?;
        let ring = self.rings.get_mut(at)?;
        while ring.len() < self.ring
            && let Some(frame) = self.region.alloc()
        {
            ring.push(frame);
        }
        let skip = headers::headers_len(bound.addr.is_ipv6());
        let want = ring.len().min(into.remaining_capacity());
        let frames = ring.get_mut(..want)?;
        if frames.is_empty() {
            return None;
        }
        let n = match mmsg::receive(bound.socket.as_fd(), frames, skip, &mut self.arrivals) {
            Ok(n) => n,
            Err(e) => {
                let quiet = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
                self.tally.rx_errors.add(u64::from(!quiet.contains(&e.kind())));
                return None;
            }
        };
        bound.silence.note_received();
        let mut bytes = 0;
        let before = into.len();
        for (mut frame, arrival) in ring.drain(..n).zip(self.arrivals.iter()) {
            if finish(&mut frame, skip, arrival, bound.addr.port()).is_some() {
                bytes += frame.len() as u64;
                into.push(frame);
            } else {
                self.tally.rx_errors.add(1);
            }
        }
        let delivered = into.len() - before;
        self.tally.rx_frames.add(delivered as u64);
        self.tally.rx_bytes.add(bytes);
        Some(delivered)
    }
}

/// Makes a frame of a received payload, or says that it cannot be one.
fn finish(frame: &mut Frame, skip: usize, arrival: &Arrival, port: u16) -> Option<()> {
    let room = frame.room();
    let whole = skip + arrival.len <= room;
    frame
        .set_len(if whole { skip + arrival.len } else { headers::first_fragment_len(room, skip) })
        .ok()?;
    headers::write(frame.bytes_mut(), arrival.from()?, arrival.to()?, port)?;
    if !whole {
        headers::make_first_fragment(frame.bytes_mut(), arrival.len)?;
    }
    frame.rx = RxChecksum { ip_good: true.into(), udp_good: whole.into() };
    Some(())
}

impl RxQueue for UdpRx {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let sockets = self.sockets.len();
        let mut got = 0;
        for i in 0..sockets {
            got += self.receive((self.first + i) % sockets, into).unwrap_or(0);
        }
        self.first = (self.first + 1) % sockets;
        got
    }

    fn idle(&mut self, at_most: Duration) {
        until_readable(self.sockets.iter().map(|b| b.socket.as_fd()), at_most);
    }

    fn wakes(&self) -> bool {
        true
    }
}

struct UdpTx {
    sockets: Arc<[Bound]>,
    tally: Arc<Tally>,
}

/// The kernel's answer to a run of frames.
enum Sent {
    /// So many left; go on behind them.
    Some(usize),
    /// The first can never leave; go on behind it.
    Refused,
    /// Not now.
    Full,
}

impl UdpTx {
    /// Sends the longest run of `frames`, from the first, that goes by one socket.
    fn send_run(&self, frames: &[Frame]) -> Sent {
        let mut run = ArrayVec::<_, BURST_MAX>::new();
        let mut by: Option<&Bound> = None;
        for frame in frames {
            let Some(datagram) = headers::parse(frame.bytes()) else { break };
            match by {
                Some(bound) if !bound.sends_as(datagram.from) => break,
                Some(_) => {}
                None => by = self.sockets.iter().find(|b| b.sends_as(datagram.from)),
            }
            if by.is_none() {
                break;
            }
            run.push(datagram);
        }
        let Some(bound) = by else { return Sent::Refused };
        loop {
            return match mmsg::send(bound.socket.as_fd(), &run) {
                Ok(0) => Sent::Full,
                Ok(n) => Sent::Some(n),
                Err(e) => match Errno::from_raw(e.raw_os_error().unwrap_or(0)) {
                    Errno::EINTR => continue,
                    Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => Sent::Full,
                    _ => Sent::Refused,
                },
            };
        }
    }
}

impl TxQueue for UdpTx {
    fn burst(&mut self, from: &mut Burst) -> usize {
        let mut taken = 0;
        while let Some(frames) = from.get(taken..).filter(|f| !f.is_empty()) {
            match self.send_run(frames) {
                Sent::Some(n) => {
                    let bytes = frames.iter().take(n).map(|f| f.len() as u64).sum();
                    self.tally.tx_frames.add(n as u64);
                    self.tally.tx_bytes.add(bytes);
                    taken += n;
                }
                Sent::Refused => {
                    self.tally.tx_errors.add(1);
                    taken += 1;
                }
                Sent::Full => break,
            }
        }
        from.drain(..taken);
        taken
    }
}

struct UdpControl {
    tallies: Tallies,
    sockets: Vec<Arc<[Bound]>>,
}

impl PortControl for UdpControl {
    fn counters(&self) -> PortCounters {
        let sockets = self.sockets.iter().flat_map(|s| s.iter());
        let rx_missed = sockets.map(|b| mmsg::kernel_drops(b.socket.as_fd())).sum();
        PortCounters { rx_missed, ..self.tallies.counters() }
    }

    fn sockets(&self) -> Vec<PortSocket> {
        let all = self.sockets.iter().flat_map(|s| s.iter());
        all.map(|b| PortSocket {
            fd: b.socket.as_raw_fd(),
            address: b.addr,
            silence: b.silence.clone(),
        })
        .collect()
    }
}
