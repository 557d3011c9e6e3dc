//! The kernel's configuration of devices, by netlink (RFC 3549): the few requests that a TAP device
//! and the device under a port need. In: what is to be, or to be known. Out: that it is, the answer, or
//! the kernel's reason. Never waits for another process.

use crate::port::MacAddr;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// The kernel's configuration socket (RFC 3549), one request at a time. The kernel answers within the
/// send, so that nothing here waits for another process.
pub(super) struct Netlink(OwnedFd);

/// Bytes of `nlmsghdr`, and of `ifinfomsg`.
const HEADER_BYTES: usize = 16;
/// Where the flags stand in `ifinfomsg`.
#[cfg(feature = "dpdk")]
const FLAGS: std::ops::Range<usize> = 8..12;
/// Longest answer about a device that is read: its address stands near the beginning.
const ANSWER_MAX_BYTES: usize = 4096;

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let protocol = SockProtocol::NetlinkRoute;
        let flags = SockFlag::SOCK_CLOEXEC;
        Ok(Self(socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?))
    }

    /// Sends a request that asks for an acknowledgement, and takes that.
    pub(super) fn request(&self, message: &[u8]) -> io::Result<()> {
        send(self.0.as_raw_fd(), message, MsgFlags::empty())?;
        let mut answer = [0; 512];
        acknowledgement(self.receive(&mut answer)?)
    }

    fn receive<'a>(&self, into: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let n = recv(self.0.as_raw_fd(), into, MsgFlags::empty())?;
        Ok(into.get(..n).unwrap_or_default())
    }

    /// What there is to know about a device: `ifinfomsg`, then attributes.
    fn about<'a>(
        &self,
        index: u32,
        answer: &'a mut [u8; ANSWER_MAX_BYTES],
    ) -> io::Result<&'a [u8]> {
        let body: [&[u8]; 4] = [&[0; 4], &index.to_ne_bytes(), &[0; 4], &[0; 4]];
        let ask = Message::new(libc::RTM_GETLINK, 0, &body).done();
        send(self.0.as_raw_fd(), &ask, MsgFlags::empty())?;
        let answer = self.receive(answer)?;
        // nlmsghdr: length, then kind. Without an answer there is an error in the place of the
        // acknowledgement.
        let kind = answer.get(4..6).and_then(|k| k.try_into().ok()).map(u16::from_ne_bytes);
        if kind != Some(libc::RTM_NEWLINK) {
            return acknowledgement(answer).and_then(|()| Err(ErrorKind::InvalidData.into()));
        }
        acknowledgement(self.receive(&mut [0; 512])?)?;
        Ok(answer.get(HEADER_BYTES..).unwrap_or_default())
    }

    /// Whether a device can receive and send: it is up, and so is what it stands on.
    #[cfg(feature = "dpdk")]
    pub(super) fn is_running(&self, index: u32) -> io::Result<bool> {
        let mut answer = [0; ANSWER_MAX_BYTES];
        let flags = self.about(index, &mut answer)?.get(FLAGS).and_then(|f| f.try_into().ok());
        let flags = flags.map(i32::from_ne_bytes).ok_or(ErrorKind::InvalidData)?;
        Ok(flags & libc::IFF_RUNNING != 0)
    }

    /// The Ethernet address of a device.
    pub(super) fn mac_of(&self, index: u32) -> io::Result<MacAddr> {
        let mut answer = [0; ANSWER_MAX_BYTES];
        // Attributes: length, kind, value, padded to four bytes.
        let mut rest = self.about(index, &mut answer)?.get(HEADER_BYTES..).unwrap_or_default();
        while let Some((&[l0, l1, k0, k1], behind)) = rest.split_first_chunk::<4>() {
            let len = usize::from(u16::from_ne_bytes([l0, l1]));
            let value = behind.get(..len.saturating_sub(4)).unwrap_or_default();
            if u16::from_ne_bytes([k0, k1]) == libc::IFLA_ADDRESS {
                return value.try_into().map(MacAddr).map_err(|_| ErrorKind::InvalidData.into());
            }
            rest = rest.get(len.max(4).next_multiple_of(4)..).unwrap_or_default();
        }
        Err(ErrorKind::NotFound.into())
    }
}

/// What an acknowledgement says: `nlmsghdr`, then `nlmsgerr`, a negated error number, or 0.
fn acknowledgement(answer: &[u8]) -> io::Result<()> {
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4);
    match code.and_then(|c| c.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(e) => Err(io::Error::from_raw_os_error(e.saturating_neg())),
        None => Err(ErrorKind::InvalidData.into()),
    }
}

/// A request: `nlmsghdr`, a body, attributes.
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn new(kind: u16, extra_flags: i32, body: &[&[u8]]) -> Self {
        let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK | extra_flags);
        let mut m = vec![0; 4];
        m.extend(kind.to_ne_bytes());
        m.extend(flags.unwrap_or_default().to_ne_bytes());
        m.extend([0; 8]);
        m.extend(body.concat());
        Self(m)
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn done(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len()).unwrap_or(u32::MAX).to_ne_bytes();
        self.0.splice(..4, len);
        self.0
    }
}

/// RTM_NEWLINK: `ifinfomsg` and the Ethernet address.
pub(super) fn set_mac(index: u32, mac: MacAddr) -> Vec<u8> {
    let body: [&[u8]; 4] = [&[0; 4], &index.to_ne_bytes(), &[0; 4], &[0; 4]];
    Message::new(libc::RTM_NEWLINK, 0, &body).attribute(libc::IFLA_ADDRESS, &mac.0).done()
}

/// RTM_NEWLINK: `ifinfomsg` with the UP flag, MTU.
pub(super) fn link_up(index: u32, mtu: u16) -> Vec<u8> {
    let up = libc::IFF_UP.to_ne_bytes();
    let body: [&[u8]; 4] = [&[0; 4], &index.to_ne_bytes(), &up, &up];
    Message::new(libc::RTM_NEWLINK, 0, &body)
        .attribute(libc::IFLA_MTU, &u32::from(mtu).to_ne_bytes())
        .done()
}

/// RTM_NEWADDR: `ifaddrmsg`, the address as local and as the interface's.
pub(super) fn address(index: u32, ip: IpAddr, prefix_bits: u8) -> Vec<u8> {
    let (family, bytes) = match ip {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let family = u8::try_from(family).unwrap_or_default();
    let no_detection = u8::try_from(libc::IFA_F_NODAD).unwrap_or_default();
    let body: [&[u8]; 2] = [&[family, prefix_bits, no_detection, 0], &index.to_ne_bytes()];
    Message::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &body)
        .attribute(libc::IFA_LOCAL, &bytes)
        .attribute(libc::IFA_ADDRESS, &bytes)
        .done()
}
