//! IPv6 and its extension headers (RFC 8200).

use super::eth::{self, Eth};
use crate::drop_reason::DropReason;
use std::net::Ipv6Addr;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
/// Most extension headers that are read. Real packets carry one or two.
const EXTENSIONS_MAX: usize = 8;

/// Version 6, traffic class and flow label zero.
pub const VERSION: u32 = 0x6000_0000;

/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<Ipv6Header>();

/// Field map of the header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields of RFC 8200")]
pub struct Ipv6Header {
    pub version_class_flow: U32,
    pub payload_len: U16,
    pub next_header: u8,
    pub hop_limit: u8,
    pub addresses: Addresses6,
}

/// Source and destination, as in the pseudo-header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields of RFC 8200")]
pub struct Addresses6 {
    pub src: [u8; 16],
    pub dst: [u8; 16],
}

/// Field map of what every extension header begins with.
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Extension {
    next_header: u8,
    /// In units of 8 bytes, the first not counted; of 4 bytes, two not counted, for AH.
    len: u8,
}

/// Field map of the fragment header (RFC 8200, section 4.5).
#[derive(Debug, Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FragmentHeader {
    next_header: u8,
    reserved: u8,
    /// The offset in units of 8 bytes, two reserved bits, and whether more fragments follow.
    offset_more: U16,
    id: U32,
}

/// Bytes of the fragment header, as an offset.
pub const FRAGMENT_STEP: u8 = 8;
const _: () = assert!(size_of::<FragmentHeader>() == FRAGMENT_STEP as usize);
/// Of `offset_more`, what is not reserved, and the bit that says that more fragments follow.
const OFFSET_AND_MORE: u16 = 0xfff9;
const MORE: u16 = 1;

/// What stands behind the extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upper<'a> {
    /// Protocol number.
    pub protocol: u8,
    /// There are extension headers before it.
    pub extended: bool,
    /// One of them is a fragment header: `protocol` is what it names, and the walk ends there.
    pub fragment: bool,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// A packet whose header is complete and whose payload length fits the frame.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6<'a> {
    head: &'a Ipv6Header,
    l4: u8,
    payload: &'a [u8],
}

/// Bytes of the header, as an offset.
const HEADER_STEP: u8 = 40;
const _: () = assert!(HEADER_BYTES == HEADER_STEP as usize);

impl<'a> Ipv6<'a> {
    /// Checks the packet in `eth`. Bytes behind the payload length are Ethernet padding.
    ///
    /// # Errors
    /// [`DropReason::Ipv6Version`] (of another EtherType too), [`DropReason::Ipv6Truncated`] or
    /// [`DropReason::Ipv6PayloadLen`].
    #[inline]
    pub fn checked(eth: &Eth<'a>) -> Result<Self, DropReason> {
        if eth.ethertype() != eth::IPV6 {
            return Err(DropReason::Ipv6Version);
        }
        let (head, behind) =
            Ipv6Header::ref_from_prefix(eth.payload()).map_err(|_| DropReason::Ipv6Truncated)?;
        if head.version_class_flow.get() >> 28 != 6 {
            return Err(DropReason::Ipv6Version);
        }
        let payload =
            behind.get(..usize::from(head.payload_len.get())).ok_or(DropReason::Ipv6PayloadLen)?;
        Ok(Self { head, l4: eth.l3() + HEADER_STEP, payload })
    }

    /// Source address.
    pub fn src(&self) -> Ipv6Addr {
        self.head.addresses.src.into()
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv6Addr {
        self.head.addresses.dst.into()
    }

    /// What follows the header: an extension header, or the upper protocol.
    pub fn next_header(&self) -> u8 {
        self.head.next_header
    }

    /// Hops left.
    pub fn hop_limit(&self) -> u8 {
        self.head.hop_limit
    }

    /// Where the payload, extension headers included, begins in the frame.
    pub fn l4(&self) -> u8 {
        self.l4
    }

    /// The payload, extension headers included, without Ethernet padding.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// What stands behind a fragment header that follows this header directly, if the packet is the
    /// first part of one that has more.
    pub fn first_fragment(&self) -> Option<Upper<'a>> {
        if self.head.next_header != FRAGMENT {
            return None;
        }
        let (head, payload) = FragmentHeader::ref_from_prefix(self.payload).ok()?;
        let first = head.offset_more.get() & OFFSET_AND_MORE == MORE;
        first.then_some(Upper {
            protocol: head.next_header,
            extended: true,
            fragment: true,
            payload,
        })
    }

    /// Walks the extension headers, eight at most. `None`: there are more, or they run out of
    /// the packet.
    pub fn upper(&self) -> Option<Upper<'a>> {
        let mut protocol = self.head.next_header;
        let mut payload = self.payload;
        for n in 0..=EXTENSIONS_MAX {
            if !is_extension(protocol) {
                return Some(Upper { protocol, extended: n > 0, fragment: false, payload });
            }
            let (ext, _) = Extension::ref_from_prefix(payload).ok()?;
            let bytes = match protocol {
                FRAGMENT => usize::from(FRAGMENT_STEP),
                AUTHENTICATION => (usize::from(ext.len) + 2) * 4,
                _ => (usize::from(ext.len) + 1) * 8,
            };
            let behind = payload.get(bytes..)?;
            if protocol == FRAGMENT {
                return Some(Upper {
                    protocol: ext.next_header,
                    extended: true,
                    fragment: true,
                    payload: behind,
                });
            }
            protocol = ext.next_header;
            payload = behind;
        }
        None
    }
}

/// Whether `protocol` names an extension header that another header follows.
pub(crate) fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::UDP;

    fn frame(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let mut f = vec![2; 12];
        f.extend_from_slice(&eth::IPV6.to_be_bytes());
        f.extend_from_slice(&[0x60, 0, 0, 0]);
        f.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
        f.extend_from_slice(&[next_header, 64]);
        f.extend_from_slice(&[0xfd; 16]);
        f.extend_from_slice(&[0xfe; 16]);
        f.extend_from_slice(payload);
        f
    }

    fn upper(next_header: u8, payload: &[u8]) -> Option<(u8, bool, bool, usize)> {
        let f = frame(next_header, payload);
        let ip = Ipv6::checked(&Eth::checked(&f).unwrap()).unwrap();
        ip.upper().map(|u| (u.protocol, u.extended, u.fragment, u.payload.len()))
    }

    #[test]
    fn deconstructs_and_leaves_padding_out() {
        let mut f = frame(UDP, &[1, 2, 3]);
        f.extend_from_slice(&[0; 5]);
        let ip = Ipv6::checked(&Eth::checked(&f).unwrap()).unwrap();
        assert_eq!((ip.src(), ip.dst()), ([0xfd; 16].into(), [0xfe; 16].into()));
        assert_eq!((ip.next_header(), ip.hop_limit(), ip.l4()), (UDP, 64, 54));
        assert_eq!(ip.payload(), [1, 2, 3]);
        assert_eq!(upper(UDP, &[1, 2, 3]), Some((UDP, false, false, 3)));
    }

    #[test]
    fn impossible_lengths() {
        let f = frame(UDP, &[1, 2, 3]);
        let check = |f: &[u8]| Ipv6::checked(&Eth::checked(f)?).map(|ip| ip.payload().len());
        for n in 14..54 {
            assert_eq!(check(&f[..n]), Err(DropReason::Ipv6Truncated), "{n}");
        }
        for n in 54..57 {
            assert_eq!(check(&f[..n]), Err(DropReason::Ipv6PayloadLen), "{n}");
        }
        assert_eq!(check(&f), Ok(3));
        let mut bad = f.clone();
        bad[14] = 0x45;
        assert_eq!(check(&bad), Err(DropReason::Ipv6Version));
        bad[13] = 0;
        assert_eq!(check(&bad), Err(DropReason::Ipv6Version));
    }

    #[test]
    fn walks_extension_headers_within_bounds() {
        let mut hop = vec![UDP, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(upper(HOP_BY_HOP, &hop), Some((UDP, true, false, 0)));
        hop[1] = 1;
        assert_eq!(upper(HOP_BY_HOP, &hop), None);
        let ah = [UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(upper(AUTHENTICATION, &ah), Some((UDP, true, false, 1)));
        let fragment = [UDP, 0, 0, 1, 0, 0, 0, 7, 1, 2];
        assert_eq!(upper(FRAGMENT, &fragment), Some((UDP, true, true, 2)));
        assert_eq!(upper(FRAGMENT, &fragment[..7]), None);
        assert_eq!(upper(DESTINATION, &[]), None);
        let mut long = Vec::new();
        for n in 1..=EXTENSIONS_MAX {
            let last = if n == EXTENSIONS_MAX { UDP } else { DESTINATION };
            long.extend_from_slice(&[last, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert_eq!(upper(DESTINATION, &long), Some((UDP, true, false, 0)));
        let too_long = [&[DESTINATION, 0, 0, 0, 0, 0, 0, 0], &long[..]].concat();
        assert_eq!(upper(DESTINATION, &too_long), None);
    }
}
