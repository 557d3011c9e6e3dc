//! ARP for IPv4 over Ethernet (RFC 826).

use super::eth::{self, Eth};
use crate::drop_reason::DropReason;
use driver_shim::MacAddr;
use std::net::Ipv4Addr;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const HARDWARE_ETHERNET: u16 = 1;
/// Who has the target address?
const REQUEST: u16 = 1;
/// The sender has it.
const REPLY: u16 = 2;

/// Bytes of a packet.
pub const PACKET_BYTES: usize = size_of::<ArpPacket>();

/// Field map.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ArpPacket {
    pub(crate) hardware: U16,
    pub(crate) protocol: U16,
    pub(crate) hardware_len: u8,
    pub(crate) protocol_len: u8,
    pub(crate) operation: U16,
    pub(crate) sender: ArpParty,
    pub(crate) target: ArpParty,
}

/// One side of it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ArpParty {
    pub(crate) mac: [u8; 6],
    pub(crate) ip: [u8; 4],
}

impl ArpPacket {
    /// The question of `mac`, which has `sender`, who has `target`. For its own address it is an
    /// announcement (RFC 5227, section 3).
    pub fn request(mac: MacAddr, sender: Ipv4Addr, target: Ipv4Addr) -> Self {
        Self {
            hardware: HARDWARE_ETHERNET.into(),
            protocol: eth::IPV4.into(),
            hardware_len: 6,
            protocol_len: 4,
            operation: REQUEST.into(),
            sender: ArpParty { mac: mac.0, ip: sender.octets() },
            target: ArpParty { mac: [0; 6], ip: target.octets() },
        }
    }
}

/// A complete ARP packet for IPv4 over Ethernet, its sender a single station.
#[derive(Debug, Clone, Copy)]
pub struct Arp<'a>(&'a ArpPacket);

impl<'a> Arp<'a> {
    /// Checks the packet in `eth`.
    ///
    /// # Errors
    /// [`DropReason::ArpMalformed`].
    pub fn checked(eth: &Eth<'a>) -> Result<Self, DropReason> {
        let (p, _) =
            ArpPacket::ref_from_prefix(eth.payload()).map_err(|_| DropReason::ArpMalformed)?;
        let ours = eth.ethertype() == eth::ARP
            && p.hardware.get() == HARDWARE_ETHERNET
            && p.protocol.get() == eth::IPV4
            && (p.hardware_len, p.protocol_len) == (6, 4)
            && !eth::is_group(MacAddr(p.sender.mac));
        if ours { Ok(Self(p)) } else { Err(DropReason::ArpMalformed) }
    }

    /// Whether it asks who has the target address.
    pub fn is_request(&self) -> bool {
        self.0.operation.get() == REQUEST
    }

    /// The asking station's address; unspecified in a probe (RFC 5227).
    pub fn sender_ip(&self) -> Ipv4Addr {
        self.0.sender.ip.into()
    }

    /// The address requested.
    pub fn target_ip(&self) -> Ipv4Addr {
        self.0.target.ip.into()
    }
}

/// Makes the request in `packet` the reply that says `mac` has the target address. Does nothing
/// to a packet that is cut short.
pub fn answer(packet: &mut [u8], mac: MacAddr) {
    if let Ok((p, _)) = ArpPacket::mut_from_prefix(packet) {
        std::mem::swap(&mut p.sender, &mut p.target);
        p.sender.mac = mac.0;
        p.operation = REPLY.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const REQUEST_FRAME: [u8; 42] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x06,
        0, 1, 0x08, 0, 6, 4, 0, 1,
        2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
        0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
    ];

    fn check(f: &[u8]) -> Result<bool, DropReason> {
        Arp::checked(&Eth::checked(f)?).map(|a| a.is_request())
    }

    #[test]
    fn deconstructs() {
        let a = Arp::checked(&Eth::checked(&REQUEST_FRAME).unwrap()).unwrap();
        assert!(a.is_request());
        assert_eq!(a.sender_ip(), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(a.target_ip(), Ipv4Addr::new(10, 0, 0, 2));
    }

    #[test]
    fn impossible_lengths_and_kinds() {
        for n in 14..42 {
            assert_eq!(check(&REQUEST_FRAME[..n]), Err(DropReason::ArpMalformed), "{n}");
        }
        for (at, byte) in [(13, 0), (15, 6), (16, 0x86), (18, 8), (19, 16), (22, 3)] {
            let mut f = REQUEST_FRAME;
            f[at] = byte;
            assert_eq!(check(&f), Err(DropReason::ArpMalformed), "byte {at}");
        }
        let mut reply = REQUEST_FRAME;
        reply[21] = 2;
        assert_eq!(check(&reply), Ok(false));
    }
}
