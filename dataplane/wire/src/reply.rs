//! The header half of stage 7: a request's headers become its reply's, in place.
//!
//! In: a frame that [`super::classify()`] called `Kv`, with the reply behind its UDP header, and
//! the offsets it gave. Out: the same frame, fit to send: [`turn_and_seal`] swaps the parties and
//! sets lengths and checksums from the length of the frame. Nothing fails: a frame that does not
//! hold the headers that the offsets promise is left as it is, which no frame of stage 3 can be.

use super::eth::EthHeader;
use super::ipv4::{self, FLAG_DF, Ipv4Header, PLAIN_L3, PLAIN_L4, VERSION_IHL};
use super::ipv6::{self, Ipv6Header};
use super::udp::{self, UdpHeader};
use base::checksum::{Pieces, field, pseudo_pieces, udp_field};
use driver_shim::{TxCaps, TxOffload};
use std::mem::swap;
use std::ops::Add as _;
use zerocopy::{FromBytes, IntoBytes};

/// Hops that a reply may take (RFC 1700's default).
pub const TTL: u8 = 64;

/// Sets every length and checksum for the frame's length, and whatever of the IP header is the
/// sender's to choose. Says what the port has to fill in, by what it offers in `caps`.
///
/// O(bytes of the payload), unless the port sums UDP itself.
#[inline]
pub fn seal(frame: &mut [u8], l3: u8, l4: u8, ipv6: bool, caps: TxCaps) -> TxOffload {
    let headers = Headers::of(frame, l3, l4, ipv6);
    headers.and_then(|headers| headers.seal(caps, None)).unwrap_or_default()
}

/// [`seal`], with the Ethernet and IP addresses and the UDP ports swapped. O(1) where the caller
/// has the [`sum`](base::checksum::sum) of everything behind the UDP header. `None`: nothing is left to the port.
#[inline(always)]
pub fn turn_and_seal(
    frame: &mut [u8],
    l3: u8,
    l4: u8,
    ipv6: bool,
    caps: TxCaps,
    payload_sum: Option<u16>,
) -> Option<TxOffload> {
    match (l3, l4, ipv6) {
        // The usual place, compiled with what is known of it.
        (PLAIN_L3, PLAIN_L4, false) => {
            turn_and_seal_at(frame, PLAIN_L3, PLAIN_L4, false, caps, payload_sum)
        }
        _ => turn_and_seal_at(frame, l3, l4, ipv6, caps, payload_sum),
    }
}

#[inline(always)]
fn turn_and_seal_at(
    frame: &mut [u8],
    l3: u8,
    l4: u8,
    ipv6: bool,
    caps: TxCaps,
    payload_sum: Option<u16>,
) -> Option<TxOffload> {
    let mut headers = Headers::of(frame, l3, l4, ipv6)?;
    headers.turn_around();
    headers.seal(caps, payload_sum)
}

/// Completes a frame that is fit to send but for its UDP checksum: `covered` is the
/// [`sum`](base::checksum::sum) of all that it covers, the pseudo-header with it. Ports that could fill it in do not: they
/// would make it right for bytes that another engine has spoilt. O(1).
#[inline]
pub fn seal_prepared(frame: &mut [u8], l3: u8, l4: u8, ipv6: bool, covered: u16) {
    if let Some(headers) = Headers::of(frame, l3, l4, ipv6) {
        headers.udp.checksum = udp_field(covered).into();
    }
}

/// The headers of a frame, found once.
struct Headers<'a> {
    l3: u8,
    l4: u8,
    ethernet: &'a mut [u8],
    network: Network<'a>,
    udp: &'a mut UdpHeader,
    payload: &'a mut [u8],
}

enum Network<'a> {
    V4(&'a mut Ipv4Header),
    V6(&'a mut Ipv6Header),
}

impl<'a> Headers<'a> {
    #[inline(always)]
    fn of(frame: &'a mut [u8], l3: u8, l4: u8, ipv6: bool) -> Option<Self> {
        let (ethernet, packet) = frame.split_at_mut_checked(usize::from(l3))?;
        let (network, upper) = packet.split_at_mut_checked(usize::from(l4.checked_sub(l3)?))?;
        let (udp, payload) = UdpHeader::mut_from_prefix(upper).ok()?;
        let network = if ipv6 {
            Network::V6(Ipv6Header::mut_from_prefix(network).ok()?.0)
        } else {
            Network::V4(Ipv4Header::mut_from_prefix(network).ok()?.0)
        };
        Some(Self { l3, l4, ethernet, network, udp, payload })
    }

    /// Swaps the parties. Sums of the headers stay what they were.
    #[inline(always)]
    fn turn_around(&mut self) {
        match &mut self.network {
            Network::V4(ip) => swap(&mut ip.addresses.src, &mut ip.addresses.dst),
            Network::V6(ip) => swap(&mut ip.addresses.src, &mut ip.addresses.dst),
        }
        swap(&mut self.udp.src_port, &mut self.udp.dst_port);
        turn_ethernet(self.ethernet);
    }

    #[inline(always)]
    fn seal(self, caps: TxCaps, payload_sum: Option<u16>) -> Option<TxOffload> {
        let Self { l3, l4, network, udp, payload, .. } = self;
        let l3_len = l4 - l3;
        let len = udp::HEADER_BYTES + payload.len();
        let total_len = u16::try_from(usize::from(l3_len) + len).ok()?;
        let udp_len = u16::try_from(len).ok()?;
        let (pseudo, ipv6) = match network {
            Network::V4(ip) => {
                set_ipv4(ip, total_len, caps.ip);
                (pseudo_pieces(ip.addresses.as_bytes(), ipv4::UDP, udp_len), false)
            }
            Network::V6(ip) => {
                set_ipv6(ip, udp_len, TTL);
                (pseudo_pieces(ip.addresses.as_bytes(), ipv4::UDP, udp_len), true)
            }
        };
        udp.len = udp_len.into();
        udp.checksum = if caps.udp {
            pseudo.sum().into()
        } else {
            let ports = Pieces::word(udp.src_port.get()) + Pieces::word(udp.dst_port.get());
            let payload = payload_sum.map_or_else(|| Pieces::of(payload), Pieces::word);
            udp_field((pseudo + ports + Pieces::word(udp_len) + payload).sum()).into()
        };
        let (ip_by_port, udp_by_port) = (caps.ip && !ipv6, caps.udp);
        (ip_by_port || udp_by_port).then(|| TxOffload {
            ip: ip_by_port.into(),
            udp: udp_by_port.into(),
            ipv6: ipv6.into(),
            l2_len: l3,
            l3_len,
        })
    }
}

/// Swaps the stations. Tags stay: the reply goes to the network that the request came from.
pub fn turn_ethernet(ethernet: &mut [u8]) {
    if let Ok((head, _)) = EthHeader::mut_from_prefix(ethernet) {
        swap(&mut head.src, &mut head.dst);
    }
}

/// What the sender of a whole packet without options sets. The id stays 0: it has no meaning in
/// a packet that must not be fragmented (RFC 6864). The request's traffic class is not repeated,
/// so a congestion mark does not come back as ours.
#[inline(always)]
pub fn set_ipv4(ip: &mut Ipv4Header, total_len: u16, leave_checksum: bool) {
    ip.version_ihl = VERSION_IHL;
    ip.tos = 0;
    ip.total_len = total_len.into();
    ip.id = 0.into();
    ip.flags_offset = FLAG_DF.into();
    ip.ttl = TTL;
    // Of what was just written, and not read back: that would wait for the writing.
    let words = [
        u16::from_be_bytes([VERSION_IHL, 0]),
        total_len,
        FLAG_DF,
        u16::from_be_bytes([TTL, ip.protocol]),
    ];
    ip.checksum = if leave_checksum {
        0.into()
    } else {
        let addresses = Pieces::of_header(ip.addresses.as_bytes());
        field(words.into_iter().map(Pieces::word).fold(addresses, Pieces::add).sum()).into()
    };
}

/// What the sender of a packet without extension headers sets.
#[inline]
pub fn set_ipv6(ip: &mut Ipv6Header, payload_len: u16, hop_limit: u8) {
    ip.version_class_flow = ipv6::VERSION.into();
    ip.payload_len = payload_len.into();
    ip.hop_limit = hop_limit;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::UdpFrame;
    use crate::verify::{verify_ip4_header, verify_udp};
    use base::checksum::sum;
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
                    let mut g = f.clone();
                    let tx = turn_and_seal(&mut f, l3, l4, ipv6, NONE, None);
                    assert_eq!(tx, None);
                    assert_eq!(f, expected(ipv6, vlans, reply));
                    turn_and_seal(&mut g, l3, l4, ipv6, NONE, Some(sum(reply)));
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
            let left = TxOffload {
                ip: (!ipv6).into(),
                udp: true.into(),
                ipv6: ipv6.into(),
                l2_len: l3,
                l3_len: l4 - l3,
            };
            assert_eq!(tx, left);
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
        assert!(tx.ip.is_set() && !tx.udp.is_set() && verify_udp(&f, l3, l4, false));
        let tx = seal(&mut f, l3, l4, false, TxCaps { ip: false, udp: true });
        assert!(!tx.ip.is_set() && tx.udp.is_set() && verify_ip4_header(&f, l3));
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
                let tx = turn_and_seal(&mut f, l3, l4, ipv6, ALL, None);
                assert_eq!(tx, None);
                assert_eq!(f, good[..n]);
            }
            let mut f = good.clone();
            turn_and_seal(&mut f, l4, l3, ipv6, NONE, None);
            assert_eq!(f, good);
            let mut long = good.clone();
            long.resize(70_000, 0);
            let before = long.clone();
            seal(&mut long, l3, l4, ipv6, NONE);
            assert!(long == before);
        }
    }
}
