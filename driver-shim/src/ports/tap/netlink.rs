//! The kernel's configuration of devices, by netlink (RFC 3549): the few requests that a TAP device
//! needs. In: what is to be. Out: that it is, or the kernel's reason. Never waits for anybody.

use crate::port::MacAddr;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// The kernel's configuration socket (RFC 3549), one request at a time.
pub(super) struct Netlink(OwnedFd);

/// Bytes of `nlmsghdr`, and of `ifinfomsg`.
const HEADER_BYTES: usize = 16;
/// Longest answer about a device that is read: its address stands near the beginning.
const ANSWER_MAX_BYTES: usize = 4096;

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let protocol = SockProtocol::NetlinkRoute;
        let flags = SockFlag::SOCK_CLOEXEC;
        Ok(Self(socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?))
    }

    /// Sends a request that asks for an acknowledgement, and waits for it. The kernel answers
    /// within the send, so that this does not wait for anybody.
    pub(super) fn request(&self, message: &[u8]) -> io::Result<()> {
        send(self.0.as_raw_fd(), message, MsgFlags::empty())?;
        let mut answer = [0; 512];
        let n = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        // nlmsghdr, then nlmsgerr: a negated error number, or 0.
        let code = answer.get(..n).and_then(|a| a.get(HEADER_BYTES..HEADER_BYTES + 4));
        match code.and_then(|c| c.try_into().ok()).map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(e) => Err(io::Error::from_raw_os_error(e.saturating_neg())),
            None => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// The Ethernet address of a device. The last thing that is asked here: the acknowledgement is
    /// left unread.
    pub(super) fn mac_of(self, index: u32) -> io::Result<MacAddr> {
        let body: [&[u8]; 4] = [&[0; 4], &index.to_ne_bytes(), &[0; 4], &[0; 4]];
        send(
            self.0.as_raw_fd(),
            &Message::new(libc::RTM_GETLINK, 0, &body).done(),
            MsgFlags::empty(),
        )?;
        let mut answer = [0; ANSWER_MAX_BYTES];
        let n = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        // nlmsghdr and ifinfomsg, then attributes: length, kind, value, padded to four bytes. An
        // error has none.
        let mut rest = answer.get(2 * HEADER_BYTES..n).unwrap_or_default();
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
