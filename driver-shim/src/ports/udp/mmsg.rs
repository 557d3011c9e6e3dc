//! `recvmmsg` and `sendmmsg`: up to a burst of datagrams per system call, straight into and out
//! of frames.
//!
//! The kernel's structures (message headers, vectors) are built on the stack for each call, so
//! that no pointer outlives it; addresses and control messages are plain bytes, encoded and
//! decoded here without unsafe code. Linux's layouts: `sockaddr_in{,6}`, `cmsghdr`,
//! `in{,6}_pktinfo`.
#![allow(unsafe_code)]

use super::headers::Datagram;
use crate::frame::{BURST_MAX, Frame};
use arrayvec::ArrayVec;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A socket address as the kernel has it: 16 bytes for IPv4, 28 for IPv6.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Name([u8; NAME_BYTES]);

const NAME_BYTES: usize = size_of::<libc::sockaddr_in6>();
const NAME_IPV4_BYTES: usize = size_of::<libc::sockaddr_in>();

impl Name {
    /// The address, and how many bytes of it count.
    fn encode(addr: SocketAddr) -> (Self, usize) {
        let mut b = [0; NAME_BYTES];
        b[2..4].copy_from_slice(&addr.port().to_be_bytes());
        match addr {
            SocketAddr::V4(a) => {
                b[0..2].copy_from_slice(&family(libc::AF_INET));
                b[4..8].copy_from_slice(&a.ip().octets());
                (Self(b), NAME_IPV4_BYTES)
            }
            SocketAddr::V6(a) => {
                b[0..2].copy_from_slice(&family(libc::AF_INET6));
                b[8..24].copy_from_slice(&a.ip().octets());
                b[24..28].copy_from_slice(&a.scope_id().to_ne_bytes());
                (Self(b), NAME_BYTES)
            }
        }
    }

    fn decode(&self) -> Option<SocketAddr> {
        let b = &self.0;
        let port = u16::from_be_bytes([b[2], b[3]]);
        if b[0..2] == family(libc::AF_INET) {
            let ip: [u8; 4] = b[4..8].try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        } else if b[0..2] == family(libc::AF_INET6) {
            let ip: [u8; 16] = b[8..24].try_into().ok()?;
            let scope = u32::from_ne_bytes(b[24..28].try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        } else {
            None
        }
    }
}

fn family(af: i32) -> [u8; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "AF_INET is 2, AF_INET6 is 10")]
    #[expect(clippy::cast_sign_loss, reason = "as above")]
    (af as libc::sa_family_t).to_ne_bytes()
}

/// A buffer for one control message with a local address, and one more.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

const CONTROL_BYTES: usize = 64;
const CMSG_HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const WORD_BYTES: usize = size_of::<usize>();
const PKTINFO_IPV4_BYTES: usize = size_of::<libc::in_pktinfo>();
const PKTINFO_IPV6_BYTES: usize = size_of::<libc::in6_pktinfo>();

impl Control {
    /// Requests that a datagram leave from `ip` (and, where `scope` is not 0, by that interface).
    fn source(ip: IpAddr, scope: u32) -> (Self, usize) {
        let mut b = [0; CONTROL_BYTES];
        let d = CMSG_HEADER_BYTES;
        let (level, kind, len) = match ip {
            IpAddr::V4(ip) => {
                // ifindex, spec_dst, addr: the median is the source.
                b[d + 4..d + 8].copy_from_slice(&ip.octets());
                (libc::IPPROTO_IP, libc::IP_PKTINFO, PKTINFO_IPV4_BYTES)
            }
            IpAddr::V6(ip) => {
                b[d..d + 16].copy_from_slice(&ip.octets());
                b[d + 16..d + 20].copy_from_slice(&scope.to_ne_bytes());
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, PKTINFO_IPV6_BYTES)
            }
        };
        b[..WORD_BYTES].copy_from_slice(&(d + len).to_ne_bytes());
        b[WORD_BYTES..WORD_BYTES + 4].copy_from_slice(&level.to_ne_bytes());
        b[WORD_BYTES + 4..d].copy_from_slice(&kind.to_ne_bytes());
        (Self(b), (d + len).next_multiple_of(WORD_BYTES))
    }

    /// The address a datagram was sent to, from the first `len` bytes.
    fn destination(&self, len: usize) -> Option<IpAddr> {
        let mut rest = self.0.get(..len)?;
        loop {
            let (header, _) = rest.split_at_checked(CMSG_HEADER_BYTES)?;
            let (word, kind) = header.split_at_checked(WORD_BYTES)?;
            let cmsg_len = usize::from_ne_bytes(word.try_into().ok()?);
            let data = rest.get(CMSG_HEADER_BYTES..cmsg_len)?;
            let level = i32::from_ne_bytes(kind.get(0..4)?.try_into().ok()?);
            let kind = i32::from_ne_bytes(kind.get(4..8)?.try_into().ok()?);
            if (level, kind) == (libc::IPPROTO_IP, libc::IP_PKTINFO) {
                let ip: [u8; 4] = data.get(8..12)?.try_into().ok()?;
                return Some(Ipv4Addr::from(ip).into());
            }
            if (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) {
                let ip: [u8; 16] = data.get(0..16)?.try_into().ok()?;
                return Some(Ipv6Addr::from(ip).into());
            }
            rest = rest.get(cmsg_len.next_multiple_of(WORD_BYTES)..)?;
        }
    }
}

/// What the kernel said of one received datagram.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    name: Name,
    control: Control,
    control_len: usize,
    /// Bytes of payload. What did not fit the frame is counted, and lost.
    pub(super) len: usize,
}

impl Arrival {
    /// Before anything arrived.
    pub(super) const EMPTY: Self = Self {
        name: Name([0; NAME_BYTES]),
        control: Control([0; CONTROL_BYTES]),
        control_len: 0,
        len: 0,
    };

    /// Who sent it.
    pub(super) fn from(&self) -> Option<SocketAddr> {
        self.name.decode()
    }

    /// The address it was sent to.
    pub(super) fn to(&self) -> Option<IpAddr> {
        self.control.destination(self.control_len)
    }
}

/// Receives up to one datagram per frame, each behind the frame's first `skip` bytes, and says
/// how many came. Frames are widened to their whole capacity; `arrivals` says what is in them.
///
/// # Errors
/// The kernel's: `WouldBlock` when nothing waits.
pub(super) fn receive(
    fd: BorrowedFd<'_>,
    frames: &mut [Frame],
    skip: usize,
    arrivals: &mut [Arrival; BURST_MAX],
) -> io::Result<usize> {
    let mut iovs = ArrayVec::<libc::iovec, BURST_MAX>::new();
    let mut headers = ArrayVec::<libc::mmsghdr, BURST_MAX>::new();
    for frame in frames.iter_mut().take(BURST_MAX) {
        let widened = frame.set_len(frame.room());
        debug_assert!(widened.is_ok(), "a frame may fill its room");
        let space = frame.bytes_mut().get_mut(skip..).unwrap_or_default();
        iovs.push(libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: space.len() });
    }
    for (iov, arrival) in iovs.iter_mut().zip(arrivals.iter_mut()) {
        headers.push(message(
            &raw mut arrival.name.0,
            NAME_BYTES,
            iov,
            &raw mut arrival.control.0,
            CONTROL_BYTES,
        ));
    }
    // SAFETY:
    // - `headers` holds `headers.len()` initialised headers;
    // - each points to a name, a control buffer and one vector, all of the stated sizes, alive
    //   and untouched through another path until the call returns, and each its own;
    // - each vector covers the tail of a frame that `frames` borrows exclusively;
    // - a null timeout is allowed, and MSG_DONTWAIT makes the call return at once; with MSG_TRUNC
    //   `msg_len` says more than was written, and is used as a number only.
    let n = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count(headers.len()),
            libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            std::ptr::null_mut(),
        )
    };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    for (header, arrival) in headers.iter().zip(arrivals.iter_mut()).take(n) {
        arrival.control_len = header.msg_hdr.msg_controllen;
        arrival.len = header.msg_len as usize;
    }
    Ok(n)
}

/// Sends datagrams from the front of `datagrams` (at most a burst) and says how many left.
///
/// # Errors
/// The OS error of the first datagram.
pub(super) fn send(fd: BorrowedFd<'_>, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
    let mut names = ArrayVec::<(Name, usize), BURST_MAX>::new();
    let mut controls = ArrayVec::<(Control, usize), BURST_MAX>::new();
    let mut iovs = ArrayVec::<libc::iovec, BURST_MAX>::new();
    let mut headers = ArrayVec::<libc::mmsghdr, BURST_MAX>::new();
    for d in datagrams.iter().take(BURST_MAX) {
        let scope = match d.to {
            SocketAddr::V6(to) => to.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        names.push(Name::encode(d.to));
        controls.push(Control::source(d.from.ip(), scope));
        iovs.push(libc::iovec {
            iov_base: d.payload.as_ptr().cast_mut().cast(),
            iov_len: d.payload.len(),
        });
    }
    for ((iov, name), control) in iovs.iter_mut().zip(&mut names).zip(&mut controls) {
        headers.push(message(&raw mut name.0.0, name.1, iov, &raw mut control.0.0, control.1));
    }
    // SAFETY:
    // - `headers` holds `headers.len()` initialised headers;
    // - each points to a name, a control message and one vector, all of the stated sizes and
    //   alive until the call returns;
    // - each vector covers a payload that `datagrams` borrows, and sending only reads it.
    let n = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count(headers.len()),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

fn message<const N: usize, const C: usize>(
    name: *mut [u8; N],
    name_len: usize,
    iov: &mut libc::iovec,
    control: *mut [u8; C],
    control_len: usize,
) -> libc::mmsghdr {
    debug_assert!(name_len <= N && control_len <= C);
    libc::mmsghdr {
        msg_hdr: libc::msghdr {
            msg_name: name.cast(),
            msg_namelen: count(name_len),
            msg_iov: iov,
            msg_iovlen: 1,
            msg_control: control.cast(),
            msg_controllen: control_len,
            msg_flags: 0,
        },
        msg_len: 0,
    }
}

fn count(n: usize) -> u32 {
    // Bursts and addresses: tens.
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Datagrams that the kernel dropped on this socket, above all because its buffer was full.
pub(super) fn kernel_drops(fd: BorrowedFd<'_>) -> u64 {
    // linux/sock_diag.h: SK_MEMINFO_DROPS is word 8 of 9.
    const DROPS: usize = 8;
    let mut words = [0_u32; DROPS + 1];
    let mut len = count(size_of_val(&words));
    // SAFETY: `words` is writable for `len` bytes, and `len` is a writable length of its own.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if rc == 0 { u64::from(words[DROPS]) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in ["192.0.2.1:11211", "[2001:db8::1]:1", "[fe80::1%5]:65535"] {
            let addr: SocketAddr = text.parse().unwrap();
            let (name, len) = Name::encode(addr);
            assert_eq!(len, if addr.is_ipv4() { 16 } else { 28 });
            assert_eq!(name.decode(), Some(addr));
        }
        assert_eq!(Name([0; NAME_BYTES]).decode(), None);
    }

    #[test]
    fn control_messages_are_bounded() {
        let (control, len) = Control::source("2001:db8::1".parse().unwrap(), 3);
        assert_eq!(len, 40);
        assert_eq!(control.destination(len), Some("2001:db8::1".parse().unwrap()));
        for cut in 0..36 {
            assert_eq!(control.destination(cut), None);
        }
        // Lengths that lie: beyond the buffer, and shorter than a header.
        for lie in [usize::MAX, 1000, 15, 0] {
            let mut bad = control;
            bad.0[..WORD_BYTES].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(bad.destination(len), None);
        }
    }

    #[test]
    fn the_address_is_found_behind_another_message() {
        let (inner, len) = Control::source("2001:db8::1".parse().unwrap(), 0);
        let mut b = [0; CONTROL_BYTES];
        b[..WORD_BYTES].copy_from_slice(&20_usize.to_ne_bytes());
        b[24..24 + len].copy_from_slice(&inner.0[..len]);
        let both = Control(b);
        assert_eq!(both.destination(24 + len), Some("2001:db8::1".parse().unwrap()));
    }
}
