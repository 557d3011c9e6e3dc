//! UDP (RFC 768). The checksum is not looked at here: see [`super::verify`].

use super::ipv4::{self, Ipv4};
use super::ipv6::{Ipv6, Upper};
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<UdpHeader>();

/// Whether no client of ours sends from `port`: port 0 is none (RFC 768), and the others belong to
/// services that answer whatever comes (echo, quotation of the day, character generator, DNS, NTP,
/// SNMP, CLDAP, SSDP). A request from there is a forged one's echo, and an answer would go on.
#[inline]
pub fn is_reflector(port: u16) -> bool {
    const LAST: u16 = 1900;
    // One comparison for nearly all clients.
    port <= LAST && matches!(port, 0 | 7 | 17 | 19 | 53 | 123 | 161 | 389 | LAST)
}

/// Field map of the header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct UdpHeader {
    pub(crate) src_port: U16,
    pub(crate) dst_port: U16,
    pub(crate) len: U16,
    pub(crate) checksum: U16,
}

/// A datagram whose header is complete.
#[derive(Debug, Clone, Copy)]
pub struct Udp<'a> {
    head: &'a UdpHeader,
    behind: &'a [u8],
}

impl<'a> Udp<'a> {
    /// The datagram in `ip`. `None`: it is not UDP, or too short for the header.
    pub fn over_ipv4(ip: &Ipv4<'a>) -> Option<Self> {
        if ip.protocol() != ipv4::UDP {
            return None;
        }
        Self::checked(ip.payload())
    }

    /// The datagram in `ip`, right behind the IPv6 header. `None`: it is not UDP, or too short
    /// for the header.
    pub fn over_ipv6(ip: &Ipv6<'a>) -> Option<Self> {
        if ip.next_header() != ipv4::UDP {
            return None;
        }
        Self::checked(ip.payload())
    }

    /// The datagram behind extension headers. `None` as above, and for fragments.
    pub fn over_extensions(upper: &Upper<'a>) -> Option<Self> {
        if upper.protocol != ipv4::UDP || upper.fragment {
            return None;
        }
        Self::checked(upper.payload)
    }

    /// The beginning of a datagram, behind a fragment header that says so.
    pub fn over_first_fragment(upper: &Upper<'a>) -> Option<Self> {
        if upper.protocol != ipv4::UDP {
            return None;
        }
        Self::checked(upper.payload)
    }

    #[inline]
    fn checked(payload: &'a [u8]) -> Option<Self> {
        let (head, behind) = UdpHeader::ref_from_prefix(payload).ok()?;
        Some(Self { head, behind })
    }

    /// Source port.
    pub fn src_port(&self) -> u16 {
        self.head.src_port.get()
    }

    /// Destination port.
    pub fn dst_port(&self) -> u16 {
        self.head.dst_port.get()
    }

    /// Length of header and data that the header claims, in bytes.
    pub fn claimed_len(&self) -> u16 {
        self.head.len.get()
    }

    /// Whether the claimed length is exactly what the IP packet carries.
    pub fn length_is_exact(&self) -> bool {
        usize::from(self.claimed_len()) == HEADER_BYTES + self.behind.len()
    }

    /// Whether the IP packet carries only the beginning of what the header claims.
    pub fn is_beginning(&self) -> bool {
        usize::from(self.claimed_len()) > HEADER_BYTES + self.behind.len()
    }

    /// What the IP packet carries behind the header. The datagram's data if
    /// [`Self::length_is_exact`].
    pub fn data(&self) -> &'a [u8] {
        self.behind
    }
}

#[cfg(test)]
mod tests {
    use crate::build::UdpFrame;
    use crate::{Eth, Ipv4, Ipv6, Udp};
    use driver_shim::MacAddr;

    fn frames() -> [Vec<u8>; 2] {
        [("10.0.0.1:40000", "10.0.0.2:11211"), ("[fd00::1]:40000", "[fd00::2]:11211")].map(
            |(src, dst)| {
                UdpFrame {
                    src_mac: MacAddr([2; 6]),
                    dst_mac: MacAddr([4; 6]),
                    vlans: &[],
                    src: src.parse().unwrap(),
                    dst: dst.parse().unwrap(),
                    payload: b"get a",
                }
                .to_vec()
                .unwrap()
            },
        )
    }

    fn view(frame: &[u8]) -> Option<Udp<'_>> {
        let eth = Eth::checked(frame).unwrap();
        match Ipv4::checked(&eth) {
            Ok(ip) => Udp::over_ipv4(&ip),
            Err(_) => Udp::over_ipv6(&Ipv6::checked(&eth).unwrap()),
        }
    }

    #[test]
    fn deconstructs() {
        for f in frames() {
            let u = view(&f).unwrap();
            assert_eq!((u.src_port(), u.dst_port(), u.claimed_len()), (40_000, 11_211, 13));
            assert!(u.length_is_exact());
            assert_eq!(u.data(), b"get a");
        }
    }

    #[test]
    fn impossible_lengths() {
        for f in frames() {
            let l4 = f.len() - 13;
            for claim in [0, 7, 8, 12, 14, 65_535] {
                let mut f = f.clone();
                f[l4 + 4..l4 + 6].copy_from_slice(&u16::to_be_bytes(claim));
                assert!(!view(&f).unwrap().length_is_exact(), "{claim}");
            }
            for cut in 0..8usize {
                let mut f = f[..l4 + cut].to_vec();
                let ipv6 = l4 == 54;
                let (at, len) = if ipv6 { (18, cut) } else { (16, 20 + cut) };
                f[at..at + 2].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
                assert!(view(&f).is_none(), "{cut}");
            }
        }
    }

    #[test]
    fn other_protocols_are_not_udp() {
        let [mut v4, mut v6] = frames();
        v4[23] = 6;
        v6[20] = 6;
        assert!(view(&v4).is_none());
        assert!(view(&v6).is_none());
    }
}
