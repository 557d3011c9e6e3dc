//! The header half of room 7: a request's headers become its reply's, in place.
//!
//! In: a frame that [`super::classify()`] called `Kv`, with the reply behind its UDP header, and
//! the offsets it gave. Out: the same frame, fit to send. [`turn_around`] swaps the parties,
//! [`seal`] sets lengths and checksums from the length of the frame: in that order or the other,
//! once each. Nothing fails: a frame that does not hold the headers that the offsets promise is
//! left as it is, which no frame of room 3 can be.

use super::checksum::{add, field, pseudo, sum, udp_field};
use super::eth::EthHeader;
use super::ipv4::{self, FLAG_DF, Ipv4Header, VERSION_IHL};
use super::ipv6::{self, Ipv6Header};
use super::udp::{self, UdpHeader};
use driver_shim::{TxCaps, TxOffload};
use std::mem::swap;
use zerocopy::{FromBytes, IntoBytes};

/// Hops that a reply may take (RFC 1700's default).
pub const TTL: u8 = 64;

/// Swaps the Ethernet and IP addresses and the UDP ports. Sums of the headers stay what they
/// were.
#[inline]
pub fn turn_around(frame: &mut [u8], l3: u8, l4: u8, ipv6: bool) {
    let Some((ethernet, network, udp)) = split(frame, l3, l4) else { return };
    let Ok((udp, _)) = UdpHeader::mut_from_prefix(udp) else { return };
    if ipv6 {
        let Ok((ip, _)) = Ipv6Header::mut_from_prefix(network) else { return };
        swap(&mut ip.addresses.src, &mut ip.addresses.dst);
    } else {
        let Ok((ip, _)) = Ipv4Header::mut_from_prefix(network) else { return };
        swap(&mut ip.addresses.src, &mut ip.addresses.dst);
    }
    swap(&mut udp.src_port, &mut udp.dst_port);
    turn_ethernet(ethernet);
}

/// Sets every length and checksum for the frame's length, and whatever of the IP header is the
/// sender's to choose. Says what the port has to fill in, by what it offers in `caps`.
///
/// O(bytes of the payload), unless the port sums UDP itself.
#[inline]
pub fn seal(frame: &mut [u8], l3: u8, l4: u8, ipv6: bool, caps: TxCaps) -> TxOffload {
    let payload_sum =
        if caps.udp { 0 } else { frame.get(usize::from(l4) + udp::HEADER_BYTES..).map_or(0, sum) };
    seal_with_sum(frame, l3, l4, ipv6, caps, payload_sum)
}

/// As [`seal`], where the caller knows the [`sum`] of everything behind the UDP header: O(1).
#[inline]
pub fn seal_with_sum(
    frame: &mut [u8],
    l3: u8,
    l4: u8,
    ipv6: bool,
    caps: TxCaps,
    payload_sum: u16,
) -> TxOffload {
    let none = TxOffload::default();
    let Some((_, network, udp)) = split(frame, l3, l4) else { return none };
    let (Ok(total_len), Ok(udp_len)) =
        (u16::try_from(network.len() + udp.len()), u16::try_from(udp.len()))
    else {
        return none;
    };
    let Ok((udp, _)) = UdpHeader::mut_from_prefix(udp) else { return none };
    let pseudo_sum = if ipv6 {
        let Ok((ip, _)) = Ipv6Header::mut_from_prefix(network) else { return none };
        set_ipv6(ip, udp_len, TTL);
        pseudo(ip.addresses.as_bytes(), ipv4::UDP, udp_len)
    } else {
        let Ok((ip, _)) = Ipv4Header::mut_from_prefix(network) else { return none };
        set_ipv4(ip, total_len, caps.ip);
        pseudo(ip.addresses.as_bytes(), ipv4::UDP, udp_len)
    };
    udp.len = udp_len.into();
    udp.checksum = 0.into();
    udp.checksum = if caps.udp {
        pseudo_sum.into()
    } else {
        udp_field(add(add(pseudo_sum, sum(udp.as_bytes())), payload_sum)).into()
    };
    let (ip_by_port, udp_by_port) = (caps.ip && !ipv6, caps.udp);
    if ip_by_port || udp_by_port {
        TxOffload { ip: ip_by_port, udp: udp_by_port, ipv6, l2_len: l3, l3_len: l4 - l3 }
    } else {
        none
    }
}

/// Completes a frame that is fit to send but for its UDP checksum: `covered` is the [`sum`] of all
/// that it covers, the pseudo-header with it.
#[inline]
pub fn seal_prepared(frame: &mut [u8], l4: u8, covered: u16) {
    let udp = frame.get_mut(usize::from(l4)..).map(UdpHeader::mut_from_prefix);
    if let Some(Ok((udp, _))) = udp {
        udp.checksum = udp_field(covered).into();
    }
}

/// Ethernet header and tags, network header, and the rest.
#[inline]
fn split(frame: &mut [u8], l3: u8, l4: u8) -> Option<(&mut [u8], &mut [u8], &mut [u8])> {
    let (ethernet, packet) = frame.split_at_mut_checked(usize::from(l3))?;
    let (network, upper) = packet.split_at_mut_checked(usize::from(l4.checked_sub(l3)?))?;
    Some((ethernet, network, upper))
}

/// Swaps the stations. Tags stay: the reply goes to the network that the request came from.
pub(crate) fn turn_ethernet(ethernet: &mut [u8]) {
    if let Ok((head, _)) = EthHeader::mut_from_prefix(ethernet) {
        swap(&mut head.src, &mut head.dst);
    }
}

/// What the sender of a whole packet without options sets. The id stays 0: it has no meaning in
/// a packet that must not be fragmented (RFC 6864). The request's traffic class is not repeated,
/// so a congestion mark does not come back as ours.
#[inline]
pub(crate) fn set_ipv4(ip: &mut Ipv4Header, total_len: u16, leave_checksum: bool) {
    ip.version_ihl = VERSION_IHL;
    ip.tos = 0;
    ip.total_len = total_len.into();
    ip.id = 0.into();
    ip.flags_offset = FLAG_DF.into();
    ip.ttl = TTL;
    ip.checksum = 0.into();
    if !leave_checksum {
        ip.checksum = field(sum(ip.as_bytes())).into();
    }
}

/// What the sender of a packet without extension headers sets.
#[inline]
pub(crate) fn set_ipv6(ip: &mut Ipv6Header, payload_len: u16, hop_limit: u8) {
    ip.version_class_flow = ipv6::VERSION.into();
    ip.payload_len = payload_len.into();
    ip.hop_limit = hop_limit;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::build::UdpFrame;
    use crate::wire::verify::{verify_ip4_header, verify_udp};
    use driver_shim::MacAddr;

    const NONE: TxCaps = TxCaps { ip: false, udp: false };
    const ALL: TxCaps = TxCaps { ip: true, udp: true };

    fn request(ipv6: bool, vlans: &[u16], payload: &[u8]) -> (Vec<u8>, u8, u8) {
        let (src, dst) = if ipv6 {
            ("[fd00::1]:40000", "[fd00::2]:11211")
        } else {
            ("10.0.0.1:40000", "10.0.0.2:11211")
        };
        let f = UdpFrame {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            vlans,
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            payload,
        };
        let l3 = u8::try_from(14 + 4 * vlans.len()).unwrap();
        (f.to_vec().unwrap(), l3, l3 + if ipv6 { 40 } else { 20 })
    }

    /// The reply that a builder would make.
    fn expected(ipv6: bool, vlans: &[u16], payload: &[u8]) -> Vec<u8> {
        let (src, dst) = if ipv6 {
            ("[fd00::2]:11211", "[fd00::1]:40000")
        } else {
            ("10.0.0.2:11211", "10.0.0.1:40000")
        };
        UdpFrame {
            src_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            vlans,
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            payload,
        }
        .to_vec()
        .unwrap()
    }

    #[test]
    fn a_turned_and_sealed_request_is_the_reply_built_from_nothing() {
        for ipv6 in [false, true] {
            for vlans in [&[][..], &[5], &[100, 5]] {
                for reply in [&b""[..], b"END\r\n", &[0xff; 1392]] {
                    let (mut f, l3, l4) = request(ipv6, vlans, b"get a\r\n");
                    let at = usize::from(l3);
                    if ipv6 {
                        f[at + 1..at + 4].fill(0x5a);
                        f[at + 7] = 1;
                    } else {
                        f[at + 1] = 3;
                        f[at + 4..at + 9].fill(0x11);
                    }
                    f.truncate(usize::from(l4) + 8);
                    f.extend_from_slice(reply);
                    turn_around(&mut f, l3, l4, ipv6);
                    let mut g = f.clone();
                    assert_eq!(seal(&mut f, l3, l4, ipv6, NONE), TxOffload::default());
                    assert_eq!(f, expected(ipv6, vlans, reply));
                    seal_with_sum(&mut g, l3, l4, ipv6, NONE, sum(reply));
                    assert_eq!(f, g);
                    assert!(verify_udp(&f, l3, l4, ipv6));
                    assert!(ipv6 || verify_ip4_header(&f, l3));
                }
            }
        }
    }

    #[test]
    fn ports_that_sum_get_what_they_want() {
        for ipv6 in [false, true] {
            let (mut f, l3, l4) = request(ipv6, &[9], b"VALUE");
            let want = f.clone();
            let tx = seal(&mut f, l3, l4, ipv6, ALL);
            assert_eq!(tx, TxOffload { ip: !ipv6, udp: true, ipv6, l2_len: l3, l3_len: l4 - l3 });
            let (at3, at4) = (usize::from(l3), usize::from(l4));
            if !ipv6 {
                assert_eq!(f[at3 + 10..at3 + 12], [0, 0]);
                let header = field(sum(&f[at3..at4]));
                f[at3 + 10..at3 + 12].copy_from_slice(&header.to_be_bytes());
            }
            // The port sums the datagram, the pseudo-header's sum standing in the field.
            let whole = udp_field(sum(&f[at4..]));
            f[at4 + 6..at4 + 8].copy_from_slice(&whole.to_be_bytes());
            assert_eq!(f, want);
        }
    }

    #[test]
    fn one_offload_without_the_other() {
        let (mut f, l3, l4) = request(false, &[], b"x");
        let tx = seal(&mut f, l3, l4, false, TxCaps { ip: true, udp: false });
        assert!(tx.ip && !tx.udp && verify_udp(&f, l3, l4, false));
        let tx = seal(&mut f, l3, l4, false, TxCaps { ip: false, udp: true });
        assert!(!tx.ip && tx.udp && verify_ip4_header(&f, l3));
        let (mut f, l3, l4) = request(true, &[], b"x");
        let tx = seal(&mut f, l3, l4, true, TxCaps { ip: true, udp: false });
        assert_eq!(tx, TxOffload::default());
    }

    #[test]
    fn frames_without_the_headers_stay_as_they_are() {
        for ipv6 in [false, true] {
            let (good, l3, l4) = request(ipv6, &[], b"");
            for n in 0..good.len() {
                let mut f = good[..n].to_vec();
                turn_around(&mut f, l3, l4, ipv6);
                assert_eq!(seal(&mut f, l3, l4, ipv6, ALL), TxOffload::default());
                assert_eq!(f, good[..n]);
            }
            let mut f = good.clone();
            seal(&mut f, l4, l3, ipv6, NONE);
            turn_around(&mut f, l4, l3, ipv6);
            assert_eq!(f, good);
            let mut long = good.clone();
            long.resize(70_000, 0);
            let before = long.clone();
            seal(&mut long, l3, l4, ipv6, NONE);
            assert!(long == before);
        }
    }
}
