//! A UDP datagram in an Ethernet frame, read with every check that a receiver owes it: lengths,
//! fragments, both checksums. What fails one of them is not a datagram.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use wire::udp::HEADER_BYTES;
use wire::verify::{verify_ip4_header, verify_udp};
use wire::{Eth, Ipv4, Ipv6, Udp, eth};

/// Where a datagram came from and what it holds. Offsets count from the frame's first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Sender.
    pub src: SocketAddr,
    /// Receiver.
    pub dst: SocketAddr,
    /// The UDP payload.
    pub payload: Range<usize>,
}

impl Datagram {
    /// Reads `frame`; `None` when it holds no whole, unfragmented, correct UDP datagram behind a
    /// plain IP header.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let eth = Eth::checked(frame).ok()?;
        let (src, dst, l4, udp): (IpAddr, IpAddr, _, _) = match eth.ethertype() {
            eth::IPV4 => {
                let ip = Ipv4::checked(&eth).ok()?;
                if ip.has_options() || ip.is_fragment() || !verify_ip4_header(frame, eth.l3()) {
                    return None;
                }
                (ip.src().into(), ip.dst().into(), ip.l4(), Udp::over_ipv4(&ip)?)
            }
            eth::IPV6 => {
                let ip = Ipv6::checked(&eth).ok()?;
                (ip.src().into(), ip.dst().into(), ip.l4(), Udp::over_ipv6(&ip)?)
            }
            _ => return None,
        };
        if !udp.length_is_exact() || !verify_udp(frame, eth.l3(), l4, src.is_ipv6()) {
            return None;
        }
        let start = usize::from(l4) + HEADER_BYTES;
        Some(Self {
            src: (src, udp.src_port()).into(),
            dst: (dst, udp.dst_port()).into(),
            payload: start..start + udp.data().len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Envelope;
    use super::*;
    use driver_shim::MacAddr;

    #[test]
    fn reads_what_was_written_and_nothing_that_was_changed() {
        for server in ["10.0.0.2:11211", "[fd00::2]:11211"] {
            for vlan in [None, Some(7)] {
                let e = Envelope {
                    src_mac: MacAddr([2; 6]),
                    dst_mac: MacAddr([4; 6]),
                    vlan,
                    server: server.parse().unwrap(),
                };
                let client = server.replace('2', "9").parse().unwrap();
                let mut frame = e.frame(client, b"payload").to_vec().unwrap();
                let d = Datagram::parse(&frame).unwrap();
                assert_eq!((d.src, d.dst), (client, e.server));
                assert_eq!(&frame[d.payload.clone()], b"payload");
                let l3 = if vlan.is_some() { 18 } else { 14 };
                for at in l3..frame.len() {
                    // Traffic class, flow label and hop limit of IPv6 are under no checksum.
                    if e.server.is_ipv6() && (at - l3 < 4 || at - l3 == 7) {
                        continue;
                    }
                    frame[at] ^= 0x40;
                    assert_eq!(Datagram::parse(&frame), None, "byte {at}");
                    frame[at] ^= 0x40;
                }
                for len in 0..frame.len() {
                    assert_eq!(Datagram::parse(&frame[..len]), None, "cut to {len}");
                }
                frame.resize(100, 0);
                assert_eq!(Datagram::parse(&frame), Some(d), "padding");
            }
        }
    }
}
