//! Checksums of received packets, for the engine (stage 5).
//!
//! In: a frame that [`super::classify()`] called `Kv`, and the offsets it gave. A frame that does
//! not hold what the offsets say is simply wrong: nothing here panics.

use super::ipv4::{self, Ipv4Header};
use super::ipv6::Ipv6Header;
use super::udp::{self, UdpHeader};
use base::checksum::{Pieces, pseudo_pieces, sum};
use zerocopy::{FromBytes, IntoBytes};

/// Whether the checksum of the IPv4 header at `l3` is right.
#[inline(always)]
pub fn verify_ip4_header(bytes: &[u8], l3: u8) -> bool {
    let Some(packet) = bytes.get(usize::from(l3)..) else { return false };
    let Ok((head, _)) = Ipv4Header::ref_from_prefix(packet) else { return false };
    if usize::from(head.header_len()) == ipv4::HEADER_BYTES {
        return Pieces::of_header(head.as_bytes()).sum() == 0xffff;
    }
    packet
        .get(..usize::from(head.header_len()))
        .is_some_and(|h| h.len() >= ipv4::HEADER_BYTES && sum(h) == 0xffff)
}

/// Whether the checksum of the datagram at `l4` is right, over the pseudo-header from the IP
/// header at `l3`. No checksum is right over IPv4 and wrong over IPv6 (RFC 768; RFC 8200,
/// section 8.1).
#[inline(always)]
pub fn verify_udp(bytes: &[u8], l3: u8, l4: u8, ipv6: bool) -> bool {
    let Some(packet) = bytes.get(usize::from(l3)..) else { return false };
    let Some(behind) = bytes.get(usize::from(l4)..) else { return false };
    let Ok((head, _)) = UdpHeader::ref_from_prefix(behind) else { return false };
    let len = head.len.get();
    let Some(datagram) = behind.get(..usize::from(len)) else { return false };
    if datagram.len() < udp::HEADER_BYTES {
        return false;
    }
    if head.checksum.get() == 0 {
        return !ipv6;
    }
    let pseudo = if ipv6 {
        let head = Ipv6Header::ref_from_prefix(packet);
        head.map(|(h, _)| pseudo_pieces(h.addresses.as_bytes(), ipv4::UDP, len)).ok()
    } else {
        let head = Ipv4Header::ref_from_prefix(packet);
        head.map(|(h, _)| pseudo_pieces(h.addresses.as_bytes(), ipv4::UDP, len)).ok()
    };
    let Some(pseudo) = pseudo else { return false };
    (pseudo + Pieces::of(datagram)).sum() == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::UdpFrame;
    use driver_shim::MacAddr;

    fn frame(ipv6: bool, payload: &[u8]) -> (Vec<u8>, u8, u8) {
        let (src, dst) = if ipv6 {
            ("[fd00::1]:40000", "[fd00::2]:11211")
        } else {
            ("10.0.0.1:40000", "10.0.0.2:11211")
        };
        let f = UdpFrame {
            src_mac: MacAddr([2; 6]),
            dst_mac: MacAddr([4; 6]),
            vlans: &[7],
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            payload,
        };
        (f.to_vec().unwrap(), 18, if ipv6 { 58 } else { 38 })
    }

    #[test]
    fn every_flipped_bit_shows() {
        for ipv6 in [false, true] {
            let (good, l3, l4) = frame(ipv6, b"\0\x01\0\0\0\x01\0\0get abc\r\n");
            assert!(verify_udp(&good, l3, l4, ipv6));
            assert!(ipv6 || verify_ip4_header(&good, l3));
            for bit in 0..8 * (good.len() - usize::from(l4)) {
                let mut f = good.clone();
                f[usize::from(l4) + bit / 8] ^= 1 << (bit % 8);
                assert!(!verify_udp(&f, l3, l4, ipv6), "bit {bit} of the datagram");
            }
            if !ipv6 {
                for bit in 0..160 {
                    let mut f = good.clone();
                    f[18 + bit / 8] ^= 1 << (bit % 8);
                    assert!(!verify_ip4_header(&f, l3), "bit {bit} of the header");
                }
            }
        }
    }

    #[test]
    fn padding_is_not_summed() {
        let (mut f, l3, l4) = frame(false, b"odd");
        f.extend_from_slice(&[0xaa; 9]);
        assert!(verify_udp(&f, l3, l4, false));
    }

    #[test]
    fn no_checksum_is_for_ipv4_only() {
        for ipv6 in [false, true] {
            let (mut f, l3, l4) = frame(ipv6, b"x");
            f[usize::from(l4) + 6..usize::from(l4) + 8].fill(0);
            assert_eq!(verify_udp(&f, l3, l4, ipv6), !ipv6);
        }
    }

    #[test]
    fn a_payload_that_sums_to_nothing_has_a_checksum_all_the_same() {
        for ipv6 in [false, true] {
            // Choose two bytes that make the whole sum 0xffff, so that the field would be 0.
            let (probe, l3, l4) = frame(ipv6, &[0, 0]);
            let at = usize::from(l4) + 6;
            let (f, ..) = frame(ipv6, &probe[at..at + 2]);
            assert_eq!(f[at..at + 2], [0xff, 0xff]);
            assert!(verify_udp(&f, l3, l4, ipv6));
        }
    }

    #[test]
    fn offsets_out_of_the_frame_are_wrong() {
        let (f, l3, l4) = frame(true, b"abc");
        for n in 0..f.len() {
            assert!(!verify_udp(&f[..n], l3, l4, true), "{n}");
        }
        assert!(!verify_udp(&f, 255, 255, true) && !verify_ip4_header(&f, 255));
        assert!(!verify_udp(&f, 250, l4, true));
    }
}
