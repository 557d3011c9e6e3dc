//! IPv4 (RFC 791). The header checksum is not looked at here: see [`super::verify`].

use super::eth::{self, Eth};
use crate::drop_reason::DropReason;
use std::net::Ipv4Addr;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP, over IPv6 too.
pub const TCP: u8 = 6;
/// Protocol number of UDP, over IPv6 too.
pub const UDP: u8 = 17;

/// Version 4, header of five 32-bit words: no options.
pub const VERSION_IHL: u8 = 0x45;
/// Don't fragment.
pub const FLAG_DF: u16 = 0x4000;
/// More fragments follow.
pub(crate) const FLAG_MF: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;
/// What is set in every part of a packet, the first included.
pub(crate) const PART_OF_PACKET: u16 = FLAG_MF | OFFSET_MASK;

/// Bytes of the header without options.
pub const HEADER_BYTES: usize = size_of::<Ipv4Header>();
/// Where the IPv4 header of nearly all requests begins: behind Ethernet without tags.
pub const PLAIN_L3: u8 = 14;
/// Where what it carries begins, when it has no options.
pub const PLAIN_L4: u8 = 34;
const _: () = assert!(PLAIN_L3 as usize == eth::HEADER_BYTES);
const _: () = assert!(PLAIN_L4 as usize == eth::HEADER_BYTES + HEADER_BYTES);

/// Field map of the header without options.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields of RFC 791")]
pub struct Ipv4Header {
    pub version_ihl: u8,
    pub tos: u8,
    pub total_len: U16,
    pub id: U16,
    pub flags_offset: U16,
    pub ttl: u8,
    pub protocol: u8,
    pub checksum: U16,
    pub addresses: Addresses4,
}

/// Source and destination, as in the pseudo-header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields of RFC 791")]
pub struct Addresses4 {
    pub src: [u8; 4],
    pub dst: [u8; 4],
}

impl Ipv4Header {
    /// Bytes of the header, as it says itself: 0 to 60.
    pub(crate) fn header_len(&self) -> u8 {
        (self.version_ihl & 0x0f) * 4
    }
}

/// A packet whose header is complete and whose lengths agree with the frame.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4<'a> {
    head: &'a Ipv4Header,
    l4: u8,
    payload: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Checks the packet in `eth`. Bytes behind the total length are Ethernet padding.
    ///
    /// # Errors
    /// [`DropReason::Ipv4Version`] (of another EtherType too), [`DropReason::Ipv4Truncated`],
    /// [`DropReason::Ipv4HeaderLen`] or [`DropReason::Ipv4TotalLen`].
    #[inline]
    pub fn checked(eth: &Eth<'a>) -> Result<Self, DropReason> {
        if eth.ethertype() != eth::IPV4 {
            return Err(DropReason::Ipv4Version);
        }
        let bytes = eth.payload();
        let (head, _) =
            Ipv4Header::ref_from_prefix(bytes).map_err(|_| DropReason::Ipv4Truncated)?;
        if head.version_ihl >> 4 != 4 {
            return Err(DropReason::Ipv4Version);
        }
        let header_len = head.header_len();
        if usize::from(header_len) < HEADER_BYTES {
            return Err(DropReason::Ipv4HeaderLen);
        }
        if bytes.len() < usize::from(header_len) {
            return Err(DropReason::Ipv4Truncated);
        }
        let payload = bytes
            .get(usize::from(header_len)..usize::from(head.total_len.get()))
            .ok_or(DropReason::Ipv4TotalLen)?;
        Ok(Self { head, l4: eth.l3() + header_len, payload })
    }

    /// Source address.
    pub fn src(&self) -> Ipv4Addr {
        self.head.addresses.src.into()
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv4Addr {
        self.head.addresses.dst.into()
    }

    /// What the payload is.
    pub fn protocol(&self) -> u8 {
        self.head.protocol
    }

    /// Length of header and payload, in bytes.
    pub fn total_len(&self) -> u16 {
        self.head.total_len.get()
    }

    /// Hops left.
    pub fn ttl(&self) -> u8 {
        self.head.ttl
    }

    /// Whether there are options behind the header.
    pub fn has_options(&self) -> bool {
        usize::from(self.head.header_len()) > HEADER_BYTES
    }

    /// Whether this is a part of a packet, the first part included.
    pub fn is_fragment(&self) -> bool {
        self.head.flags_offset.get() & PART_OF_PACKET != 0
    }

    /// Whether this is the first part of a packet that has more.
    pub fn is_first_fragment(&self) -> bool {
        self.head.flags_offset.get() & PART_OF_PACKET == FLAG_MF
    }

    /// Where the payload begins in the frame.
    pub fn l4(&self) -> u8 {
        self.l4
    }

    /// The payload, without Ethernet padding.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(packet: &[u8]) -> Vec<u8> {
        let mut f = vec![2; 12];
        f.extend_from_slice(&eth::IPV4.to_be_bytes());
        f.extend_from_slice(packet);
        f
    }

    #[rustfmt::skip]
    const PACKET: [u8; 26] = [
        0x45, 0x00, 0x00, 0x18, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11, 0xab, 0xcd,
        10, 0, 0, 1, 10, 0, 0, 2, 1, 2, 3, 4, // four bytes of payload, two of padding:
        0, 0,
    ];

    fn check(packet: &[u8]) -> Result<(u8, usize, bool, bool), DropReason> {
        let f = frame(packet);
        let ip = Ipv4::checked(&Eth::checked(&f)?)?;
        Ok((ip.l4(), ip.payload().len(), ip.has_options(), ip.is_fragment()))
    }

    #[test]
    fn deconstructs_and_leaves_padding_out() {
        let f = frame(&PACKET);
        let ip = Ipv4::checked(&Eth::checked(&f).unwrap()).unwrap();
        assert_eq!((ip.src(), ip.dst()), ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        assert_eq!((ip.protocol(), ip.total_len(), ip.ttl(), ip.l4()), (UDP, 24, 64, 34));
        assert_eq!(ip.payload(), [1, 2, 3, 4]);
        assert!(!ip.has_options() && !ip.is_fragment());
    }

    #[test]
    fn impossible_lengths() {
        let with = |at: usize, byte: u8| {
            let mut p = PACKET;
            p[at] = byte;
            check(&p)
        };
        for n in 0..20 {
            assert_eq!(check(&PACKET[..n]), Err(DropReason::Ipv4Truncated), "{n}");
        }
        for n in 20..24 {
            assert_eq!(check(&PACKET[..n]), Err(DropReason::Ipv4TotalLen), "{n}");
        }
        assert_eq!(with(0, 0x65), Err(DropReason::Ipv4Version));
        for ihl in 0..5 {
            assert_eq!(with(0, 0x40 | ihl), Err(DropReason::Ipv4HeaderLen));
        }
        assert_eq!(with(0, 0x46), Ok((38, 0, true, false)));
        assert_eq!(with(0, 0x47), Err(DropReason::Ipv4Truncated));
        for (total, ok) in [(0, false), (19, false), (20, true), (26, true), (27, false)] {
            let want = if ok {
                Ok((34, usize::from(total) - 20, false, false))
            } else {
                Err(DropReason::Ipv4TotalLen)
            };
            assert_eq!(with(3, total), want, "{total}");
        }
        assert_eq!(with(2, 0xff), Err(DropReason::Ipv4TotalLen));
    }

    #[test]
    fn knows_fragments() {
        for (at, byte, fragment) in
            [(6, 0x20, true), (6, 0x01, true), (7, 0x01, true), (6, 0x40, false), (6, 0x80, false)]
        {
            let mut p = PACKET;
            p[6] = 0;
            p[at] = byte;
            assert_eq!(check(&p).map(|c| c.3), Ok(fragment), "{at} {byte:#x}");
        }
    }

    #[test]
    fn another_ethertype_is_not_ipv4() {
        let mut f = frame(&PACKET);
        f[13] = 6;
        let e = Eth::checked(&f).unwrap();
        assert_eq!(Ipv4::checked(&e).unwrap_err(), DropReason::Ipv4Version);
    }
}
