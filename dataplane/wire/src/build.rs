//! Whole UDP frames from nothing, for tests and tools. Not used on the data path.

use super::arp::ArpPacket;
use super::eth::{self, EthHeader, TAGS_MAX, VlanTag};
use super::icmp::{self, Echo, MacOption, Neighbour};
use super::ipv4::{self, Addresses4, Ipv4Header};
use super::ipv6::{self, Addresses6, Ipv6Header};
use super::reply::{self, seal};
use super::udp::UdpHeader;
use base::checksum;
use driver_shim::{MacAddr, TxCaps};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use zerocopy::{FromZeros, IntoBytes};

/// What a UDP frame is made of.
#[derive(Debug, Clone, Copy)]
pub struct UdpFrame<'a> {
    /// The station it is from.
    pub src_mac: MacAddr,
    /// The station it is for.
    pub dst_mac: MacAddr,
    /// VLAN ids, the outer first; two at most. The outer of two is an 802.1ad tag.
    pub vlans: &'a [u16],
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination, of the same IP version.
    pub dst: SocketAddr,
    /// What stands behind the UDP header.
    pub payload: &'a [u8],
}

impl UdpFrame<'_> {
    /// Writes the frame to the beginning of `into`, lengths and checksums right, and says how
    /// long it is. Every byte of it is written. `None`: the buffer is too short, addresses of two versions, more
    /// than two tags, or more payload than UDP carries; `into` may have been written to.
    pub fn write_to(&self, into: &mut [u8]) -> Option<usize> {
        let mut out = Writer { into, at: 0 };
        out.ethernet(
            self.src_mac,
            self.dst_mac,
            self.vlans,
            match self.dst {
                SocketAddr::V4(_) => eth::IPV4,
                SocketAddr::V6(_) => eth::IPV6,
            },
        )?;
        let l3 = out.at;
        match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => out.ipv4(src, dst, ipv4::UDP)?,
            (IpAddr::V6(src), IpAddr::V6(dst)) => out.ipv6(src, dst, ipv4::UDP)?,
            _ => return None,
        }
        let l4 = out.at;
        out.put(&UdpHeader {
            src_port: self.src.port().into(),
            dst_port: self.dst.port().into(),
            len: 0.into(),
            checksum: 0.into(),
        })?;
        out.bytes(self.payload)?;
        let len = out.at;
        u16::try_from(len - l3).ok()?;
        let (l3, l4) = (u8::try_from(l3).ok()?, u8::try_from(l4).ok()?);
        seal(into.get_mut(..len)?, l3, l4, self.dst.is_ipv6(), TxCaps::default());
        Some(len)
    }

    /// The frame on the heap. `None` as above.
    pub fn to_vec(&self) -> Option<Vec<u8>> {
        const HEADERS_MAX: usize = eth::HEADER_BYTES
            + TAGS_MAX * eth::TAG_BYTES
            + ipv6::HEADER_BYTES
            + super::udp::HEADER_BYTES;
        let mut frame = vec![0; HEADERS_MAX + self.payload.len()];
        let len = self.write_to(&mut frame)?;
        frame.truncate(len);
        Some(frame)
    }
}

/// An untagged broadcast ARP request of `src` for `target`.
pub fn arp_request(src_mac: MacAddr, src: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    collect(|out| {
        out.ethernet(src_mac, eth::BROADCAST, &[], eth::ARP)?;
        out.put(&ArpPacket::request(src_mac, src, target))
    })
}

/// An untagged ICMP or ICMPv6 echo request with `data`. Empty when the addresses are of two
/// versions or the data is longer than a packet.
pub fn echo_request(macs: [MacAddr; 2], src: IpAddr, dst: IpAddr, data: &[u8]) -> Vec<u8> {
    let echo = |kind| Echo { kind, code: 0, checksum: 0.into(), id: 7.into(), seq: 1.into() };
    let [src_mac, dst_mac] = macs;
    collect(|out| match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let message = message(&echo(icmp::ECHO4_REQUEST), data, 0);
            out.ethernet(src_mac, dst_mac, &[], eth::IPV4)?;
            let mut ip = ipv4_header(src, dst, ipv4::ICMP);
            let total = u16::try_from(ipv4::HEADER_BYTES + message.len()).ok()?;
            reply::set_ipv4(&mut ip, total, false);
            out.put(&ip)?;
            out.bytes(&message)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            out.icmpv6([src_mac, dst_mac], src, dst, reply::TTL, &echo(icmp::ECHO6_REQUEST), data)
        }
        _ => None,
    })
}

/// An untagged neighbour solicitation of `src` for `target`, to the solicited-node group
/// (RFC 4861, section 4.3). With an unspecified source, as from a host that checks its own
/// address, it carries no link-layer address.
pub fn neighbour_solicit(src_mac: MacAddr, src: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
    let ask = Neighbour {
        kind: icmp::NEIGHBOUR_SOLICIT,
        code: 0,
        checksum: 0.into(),
        flags: 0.into(),
        target: target.octets(),
    };
    let option = MacOption { kind: icmp::OPTION_SOURCE_MAC, len: 1, mac: src_mac.0 };
    let option = if src.is_unspecified() { &[][..] } else { option.as_bytes() };
    let macs = [src_mac, MacAddr([0x33, 0x33, 0xff, a, b, c])];
    collect(|out| out.icmpv6(macs, src, group, icmp::ND_HOP_LIMIT, &ask, option))
}

/// Sets the checksums of the IPv4 header and of the datagram again, lengths untouched. Does
/// nothing where the offsets lie outside.
pub(crate) fn sum_again(frame: &mut [u8], l3: usize, l4: usize, ipv6: bool) {
    let Some((head, datagram)) = frame.split_at_mut_checked(l4) else { return };
    let Some(network) = head.get_mut(l3..) else { return };
    let mut pseudo = 0;
    if ipv6 {
        super::with(network, |ip: &mut Ipv6Header| pseudo = checksum::sum(ip.addresses.as_bytes()));
    } else {
        super::with(network, |ip: &mut Ipv4Header| {
            pseudo = checksum::sum(ip.addresses.as_bytes());
            ip.checksum = 0.into();
        });
        let header = checksum::field(checksum::sum(network));
        super::with(network, |ip: &mut Ipv4Header| ip.checksum = header.into());
    }
    super::with(datagram, |udp: &mut UdpHeader| {
        udp.checksum = 0.into();
        pseudo = checksum::add(checksum::add(pseudo, ipv4::UDP.into()), udp.len.get());
    });
    let whole = checksum::udp_field(checksum::add(pseudo, checksum::sum(datagram)));
    super::with(datagram, |udp: &mut UdpHeader| udp.checksum = whole.into());
}

/// Longest frame of the builders above, in bytes.
const FRAME_MAX: usize = 65_536;

fn collect(write: impl FnOnce(&mut Writer<'_>) -> Option<()>) -> Vec<u8> {
    let mut frame = vec![0; FRAME_MAX];
    let mut out = Writer { into: &mut frame, at: 0 };
    let len = write(&mut out).map_or(0, |()| out.at);
    frame.truncate(len);
    frame
}

/// Header and data, their checksum set over `pseudo` too.
fn message<H: IntoBytes + zerocopy::Immutable>(head: &H, data: &[u8], pseudo: u16) -> Vec<u8> {
    let mut bytes = [head.as_bytes(), data].concat();
    let sum = checksum::field(checksum::add(pseudo, checksum::sum(&bytes)));
    super::with(&mut bytes, |echo: &mut Echo| echo.checksum = sum.into());
    bytes
}

fn ipv4_header(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8) -> Ipv4Header {
    let addresses = Addresses4 { src: src.octets(), dst: dst.octets() };
    Ipv4Header { protocol, addresses, ..FromZeros::new_zeroed() }
}

struct Writer<'a> {
    into: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.checked_add(bytes.len())?;
        self.into.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    fn put<H: IntoBytes + zerocopy::Immutable>(&mut self, head: &H) -> Option<()> {
        self.bytes(head.as_bytes())
    }

    fn ethernet(
        &mut self,
        src: MacAddr,
        dst: MacAddr,
        vlans: &[u16],
        ethertype: u16,
    ) -> Option<()> {
        let tags: &[u16] = match vlans.len() {
            0 => &[],
            1 => &[eth::VLAN],
            TAGS_MAX => &[eth::QINQ, eth::VLAN],
            _ => return None,
        };
        let mut types = tags.iter().copied().chain([ethertype]);
        self.put(&EthHeader { dst: dst.0, src: src.0, ethertype: types.next()?.into() })?;
        for (&id, next) in vlans.iter().zip(types) {
            self.put(&VlanTag { control: (id & 0x0fff).into(), ethertype: next.into() })?;
        }
        Some(())
    }

    /// Lengths and checksum are for [`seal`] to set.
    fn ipv4(&mut self, src: Ipv4Addr, dst: Ipv4Addr, protocol: u8) -> Option<()> {
        self.put(&ipv4_header(src, dst, protocol))
    }

    /// Lengths are for [`seal`] to set.
    fn ipv6(&mut self, src: Ipv6Addr, dst: Ipv6Addr, protocol: u8) -> Option<()> {
        self.put(&ipv6_header(src, dst, protocol))
    }

    fn icmpv6<H: IntoBytes + zerocopy::Immutable>(
        &mut self,
        [src_mac, dst_mac]: [MacAddr; 2],
        src: Ipv6Addr,
        dst: Ipv6Addr,
        hop_limit: u8,
        head: &H,
        data: &[u8],
    ) -> Option<()> {
        let len = u16::try_from(size_of::<H>() + data.len()).ok()?;
        let mut ip = ipv6_header(src, dst, ipv6::ICMPV6);
        reply::set_ipv6(&mut ip, len, hop_limit);
        let pseudo = checksum::pseudo(ip.addresses.as_bytes(), ipv6::ICMPV6, len);
        self.ethernet(src_mac, dst_mac, &[], eth::IPV6)?;
        self.put(&ip)?;
        self.bytes(&message(head, data, pseudo))
    }
}

fn ipv6_header(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8) -> Ipv6Header {
    let addresses = Addresses6 { src: src.octets(), dst: dst.octets() };
    Ipv6Header { next_header, addresses, ..FromZeros::new_zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{verify_ip4_header, verify_udp};

    fn udp<'a>(src: &str, dst: &str, vlans: &'a [u16], payload: &'a [u8]) -> UdpFrame<'a> {
        UdpFrame {
            src_mac: MacAddr([2; 6]),
            dst_mac: MacAddr([4; 6]),
            vlans,
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            payload,
        }
    }

    #[test]
    fn a_dirty_buffer_makes_the_same_frame() {
        for (src, dst) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
            for vlans in [&[][..], &[1], &[1, 4095]] {
                let f = udp(src, dst, vlans, b"hello");
                let clean = f.to_vec().unwrap();
                let mut dirty = [0xa5; 200];
                let n = f.write_to(&mut dirty).unwrap();
                assert_eq!(dirty[..n], clean);
                assert!(dirty[n..].iter().all(|&b| b == 0xa5));
            }
        }
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let v4 = ("10.0.0.1:1", "10.0.0.2:2");
        assert!(udp(v4.0, "[::1]:2", &[], b"").to_vec().is_none());
        assert!(udp("[::1]:1", v4.1, &[], b"").to_vec().is_none());
        assert!(udp(v4.0, v4.1, &[1, 2, 3], b"").to_vec().is_none());
        assert!(udp(v4.0, v4.1, &[], &[0; 65_507]).to_vec().is_some());
        assert!(udp(v4.0, v4.1, &[], &[0; 65_508]).to_vec().is_none());
        for n in 0..46 {
            assert!(udp(v4.0, v4.1, &[], b"abcd").write_to(&mut vec![0; n]).is_none());
        }
    }

    #[test]
    fn summing_again_mends_any_checksum() {
        for (src, dst) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
            let good = udp(src, dst, &[], b"hello").to_vec().unwrap();
            let ipv6 = good.len() > 60;
            let l4 = if ipv6 { 54 } else { 34 };
            let mut f = good.clone();
            f[l4 + 6] ^= 0x55;
            f[24] ^= if ipv6 { 0 } else { 0x55 };
            sum_again(&mut f, 14, l4, ipv6);
            assert_eq!(f, good);
            assert!(verify_udp(&f, 14, u8::try_from(l4).unwrap(), ipv6));
            assert!(ipv6 || verify_ip4_header(&f, 14));
        }
    }
}
