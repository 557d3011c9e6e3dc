//! The headers between a datagram and a frame: written in front of what a socket received,
//! read from what a worker sends. Every access is bounds-checked.
//!
//! Frames are as on an Ethernet between two hosts, the peer ([`PEER_MAC`]) and us ([`MAC`]).
//! The one liberty: a link-local IPv6 peer can be answered only through the interface it came
//! from, so that its Ethernet address carries the interface's index ([`SCOPE_MAC`]).

use crate::port::MacAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;

/// The port's own Ethernet address.
pub(super) const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// The Ethernet address of a datagram's sender.
pub(super) const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// First bytes of a link-local peer's address; the interface's index follows, big-endian.
const SCOPE_MAC: [u8; 2] = [2, 1];

mod eth {
    use std::ops::Range;
    pub(super) const DST: Range<usize> = 0..6;
    pub(super) const SRC: Range<usize> = 6..12;
    pub(super) const TYPE: Range<usize> = 12..14;
    pub(super) const BYTES: usize = 14;
}

/// RFC 791, from the network header's start.
mod ipv4 {
    use std::ops::Range;
    pub(super) const TOTAL_LEN: Range<usize> = 2..4;
    pub(super) const FRAGMENT: Range<usize> = 6..8;
    pub(super) const DONT_FRAGMENT: u16 = 0x4000;
    pub(super) const MORE_FRAGMENTS: u16 = 0x2000;
    pub(super) const TTL: usize = 8;
    pub(super) const PROTOCOL: usize = 9;
    pub(super) const SRC: Range<usize> = 12..16;
    pub(super) const DST: Range<usize> = 16..20;
    pub(super) const BYTES: usize = 20;
}

/// RFC 8200, from the network header's start.
mod ipv6 {
    use std::ops::Range;
    pub(super) const PAYLOAD_LEN: Range<usize> = 4..6;
    pub(super) const NEXT_HEADER: usize = 6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const SRC: Range<usize> = 8..24;
    pub(super) const DST: Range<usize> = 24..40;
    pub(super) const BYTES: usize = 40;
}

/// RFC 8200, section 4.5.
mod fragment {
    pub(super) const BYTES: usize = 8;
    /// All fragments but the last are a multiple of this long.
    pub(super) const UNIT_BYTES: usize = 8;
    /// Offset 0, and more follow.
    pub(super) const FIRST: u8 = 1;
}

/// RFC 768, from the UDP header's start.
mod udp {
    use std::ops::Range;
    pub(super) const SRC_PORT: Range<usize> = 0..2;
    pub(super) const DST_PORT: Range<usize> = 2..4;
    pub(super) const LEN: Range<usize> = 4..6;
    pub(super) const BYTES: usize = 8;
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_UDP: u8 = 17;
const NEXT_FRAGMENT: u8 = 44;
const TTL: u8 = 64;

/// Bytes in front of the payload of a datagram to a socket of this family.
pub(super) const fn headers_len(is_ipv6: bool) -> usize {
    eth::BYTES + if is_ipv6 { ipv6::BYTES } else { ipv4::BYTES } + udp::BYTES
}

/// Bytes before the network header.
pub(super) const LINK_BYTES: usize = eth::BYTES;

/// Writes the headers of a datagram whose payload lies behind them to the frame's end. Checksum
/// fields are 0: the kernel verified the datagram and does not pass them on. `None`, and a
/// frame in disorder, when the frame is too short or the addresses are of two families.
pub(super) fn write(frame: &mut [u8], from: SocketAddr, to: IpAddr, to_port: u16) -> Option<()> {
    let (link, net) = frame.split_at_mut_checked(eth::BYTES)?;
    put(link, eth::DST, &MAC.0)?;
    put(link, eth::SRC, &peer_mac(from).0)?;
    let net_len = u16::try_from(net.len()).ok()?;
    let (ethertype, l3_len) = match (from.ip(), to) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ip = net.get_mut(..ipv4::BYTES)?;
            ip.fill(0);
            *ip.get_mut(0)? = 0x45;
            put(ip, ipv4::TOTAL_LEN, &net_len.to_be_bytes())?;
            put(ip, ipv4::FRAGMENT, &ipv4::DONT_FRAGMENT.to_be_bytes())?;
            *ip.get_mut(ipv4::TTL)? = TTL;
            *ip.get_mut(ipv4::PROTOCOL)? = PROTOCOL_UDP;
            put(ip, ipv4::SRC, &src.octets())?;
            put(ip, ipv4::DST, &dst.octets())?;
            (ETHERTYPE_IPV4, ipv4::BYTES)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let payload_len = u16::try_from(net.len().checked_sub(ipv6::BYTES)?).ok()?;
            let ip = net.get_mut(..ipv6::BYTES)?;
            ip.fill(0);
            *ip.get_mut(0)? = 0x60;
            put(ip, ipv6::PAYLOAD_LEN, &payload_len.to_be_bytes())?;
            *ip.get_mut(ipv6::NEXT_HEADER)? = PROTOCOL_UDP;
            *ip.get_mut(ipv6::HOP_LIMIT)? = TTL;
            put(ip, ipv6::SRC, &src.octets())?;
            put(ip, ipv6::DST, &dst.octets())?;
            (ETHERTYPE_IPV6, ipv6::BYTES)
        }
        _ => return None,
    };
    put(link, eth::TYPE, &ethertype.to_be_bytes())?;
    let datagram = net.get_mut(l3_len..)?;
    let udp_len = u16::try_from(datagram.len()).ok()?;
    let header = datagram.get_mut(..udp::BYTES)?;
    header.fill(0);
    put(header, udp::SRC_PORT, &from.port().to_be_bytes())?;
    put(header, udp::DST_PORT, &to_port.to_be_bytes())?;
    put(header, udp::LEN, &udp_len.to_be_bytes())
}

/// Bytes of the longest frame within `room` that can be a first fragment. `headers_len` is what
/// stands in front of its payload while it is none.
pub(super) fn first_fragment_len(room: usize, headers_len: usize) -> usize {
    // From the UDP header on. The fragment header of IPv6 is a unit too.
    let before = headers_len - udp::BYTES;
    before + (room - before) / fragment::UNIT_BYTES * fragment::UNIT_BYTES
}

/// Makes a frame of [`first_fragment_len`] that [`write`] made the first fragment of a datagram of
/// `payload_len` bytes. Over IPv6 its last bytes make room for the header that says so. `None`, and
/// a frame in disorder, when it is too short or no datagram can be that long.
pub(super) fn make_first_fragment(frame: &mut [u8], payload_len: usize) -> Option<()> {
    let udp_len = u16::try_from(udp::BYTES + payload_len).ok()?;
    let (link, net) = frame.split_at_mut_checked(eth::BYTES)?;
    let datagram = if be16(link, eth::TYPE)? == ETHERTYPE_IPV4 {
        put(net, ipv4::FRAGMENT, &ipv4::MORE_FRAGMENTS.to_be_bytes())?;
        net.get_mut(ipv4::BYTES..)?
    } else {
        *net.get_mut(ipv6::NEXT_HEADER)? = NEXT_FRAGMENT;
        let payload = net.get_mut(ipv6::BYTES..)?;
        let kept = payload.len().checked_sub(fragment::BYTES)?;
        payload.copy_within(..kept, fragment::BYTES);
        let (header, datagram) = payload.split_first_chunk_mut::<{ fragment::BYTES }>()?;
        *header = [PROTOCOL_UDP, 0, 0, fragment::FIRST, 0, 0, 0, 0];
        datagram
    };
    put(datagram, udp::LEN, &udp_len.to_be_bytes())
}

/// The datagram that a frame asks the port to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Datagram<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) payload: &'a [u8],
}

/// Reads a frame that is one whole UDP datagram over untagged IPv4 or IPv6. `None` for anything
/// else: other protocols, VLAN tags, fragments, extension headers, lengths beyond the frame.
pub(super) fn parse(frame: &[u8]) -> Option<Datagram<'_>> {
    let (link, net) = frame.split_at_checked(eth::BYTES)?;
    let (src, dst, datagram): (IpAddr, IpAddr, &[u8]) = match be16(link, eth::TYPE)? {
        ETHERTYPE_IPV4 => {
            let first = *net.first()?;
            let header_len = usize::from(first & 0xf) * 4;
            let fragmented = be16(net, ipv4::FRAGMENT)? & !ipv4::DONT_FRAGMENT != 0;
            if first >> 4 != 4
                || header_len < ipv4::BYTES
                || fragmented
                || *net.get(ipv4::PROTOCOL)? != PROTOCOL_UDP
            {
                return None;
            }
            let src: [u8; 4] = net.get(ipv4::SRC)?.try_into().ok()?;
            let dst: [u8; 4] = net.get(ipv4::DST)?.try_into().ok()?;
            let end = usize::from(be16(net, ipv4::TOTAL_LEN)?);
            (Ipv4Addr::from(src).into(), Ipv4Addr::from(dst).into(), net.get(header_len..end)?)
        }
        ETHERTYPE_IPV6 => {
            if *net.first()? >> 4 != 6 || *net.get(ipv6::NEXT_HEADER)? != PROTOCOL_UDP {
                return None;
            }
            let src: [u8; 16] = net.get(ipv6::SRC)?.try_into().ok()?;
            let dst: [u8; 16] = net.get(ipv6::DST)?.try_into().ok()?;
            let end = ipv6::BYTES + usize::from(be16(net, ipv6::PAYLOAD_LEN)?);
            (Ipv6Addr::from(src).into(), Ipv6Addr::from(dst).into(), net.get(ipv6::BYTES..end)?)
        }
        _ => return None,
    };
    let udp_len = usize::from(be16(datagram, udp::LEN)?);
    let payload = datagram.get(udp::BYTES..udp_len)?;
    let to_port = be16(datagram, udp::DST_PORT)?;
    let to = match dst {
        IpAddr::V4(_) => SocketAddr::new(dst, to_port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, to_port, 0, scope(link)).into(),
    };
    Some(Datagram { from: SocketAddr::new(src, be16(datagram, udp::SRC_PORT)?), to, payload })
}

fn peer_mac(peer: SocketAddr) -> MacAddr {
    match peer {
        SocketAddr::V6(p) if p.scope_id() != 0 => {
            let ([a, b], [c, d, e, f]) = (SCOPE_MAC, p.scope_id().to_be_bytes());
            MacAddr([a, b, c, d, e, f])
        }
        _ => PEER_MAC,
    }
}

fn scope(link: &[u8]) -> u32 {
    match link.get(eth::DST) {
        Some(&[a, b, c, d, e, f]) if [a, b] == SCOPE_MAC => u32::from_be_bytes([c, d, e, f]),
        _ => 0,
    }
}

fn be16(bytes: &[u8], at: Range<usize>) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at)?.try_into().ok()?))
}

fn put(bytes: &mut [u8], at: Range<usize>, value: &[u8]) -> Option<()> {
    bytes.get_mut(at)?.copy_from_slice(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let headers = headers_len(to.is_ipv6());
        let mut frame = vec![0xee; headers + payload.len()];
        frame[headers..].copy_from_slice(payload);
        write(&mut frame, from, to.ip(), to.port()).unwrap();
        frame
    }

    fn round(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let frame = written(from, to, payload);
        let d = parse(&frame).unwrap();
        assert_eq!((d.from, d.to), (from.parse().unwrap(), to.parse().unwrap()));
        assert_eq!(d.payload, payload);
        frame
    }

    #[test]
    fn round_trip() {
        let f = round("192.0.2.1:4000", "127.0.0.1:11211", b"get a\r\n");
        assert_eq!(
            f[..42],
            [
                2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
                0x45, 0, 0, 35, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 127, 0, 0,
                1, // IPv4
                0x0f, 0xa0, 0x2b, 0xcb, 0, 15, 0, 0, // UDP
            ]
        );
        round("[2001:db8::1]:4000", "[::1]:11211", b"");
        round("[2001:db8::1]:4000", "[::1]:11211", &[7; 1800]);
    }

    #[test]
    fn a_link_local_peer_keeps_its_interface() {
        let f = written("[fe80::1%77]:4000", "[fe80::2]:11211", b"x");
        // The reply: addresses swapped at every layer.
        let mut reply = f.clone();
        reply[0..6].copy_from_slice(&f[6..12]);
        reply[6..12].copy_from_slice(&f[0..6]);
        reply[22..38].copy_from_slice(&f[38..54]);
        reply[38..54].copy_from_slice(&f[22..38]);
        let d = parse(&reply).unwrap();
        assert_eq!(d.to.to_string(), "[fe80::1%77]:11211");
    }

    #[test]
    fn padding_after_the_datagram_is_not_payload() {
        for (from, to) in [("192.0.2.1:1", "192.0.2.2:2"), ("[::1]:1", "[::2]:2")] {
            let mut f = written(from, to, b"abc");
            f.resize(80, 0xff);
            assert_eq!(parse(&f).unwrap().payload, b"abc");
        }
    }

    #[test]
    fn a_first_fragment_says_so_and_how_long_the_datagram_was() {
        for (from, to, before) in [("192.0.2.1:1", "192.0.2.2:2", 34), ("[::1]:1", "[::2]:2", 62)] {
            let payload: Vec<u8> = (0..=250).cycle().take(1_900).collect();
            let whole = written(from, to, &payload);
            let mut f = whole.clone();
            let headers = headers_len(to.parse::<SocketAddr>().unwrap().is_ipv6());
            f.truncate(first_fragment_len(1_920, headers));
            assert_eq!((f.len() - before) % 8, 0, "{to}");
            assert!(f.len() > 1_920 - 8, "{to}");
            let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
            write(&mut f, addr(from), addr(to).ip(), 2).unwrap();
            make_first_fragment(&mut f, payload.len()).unwrap();
            assert_eq!(parse(&f), None, "no whole datagram");
            assert_eq!(f[before..before + 8], [0, 1, 0, 2, 0x07, 0x74, 0, 0], "{to}");
            assert_eq!(f[before + 8..], payload[..f.len() - before - 8], "{to}");
            if before == 34 {
                assert_eq!(f[16..24], [0x07, 0x6c, 0, 0, 0x20, 0, 64, 17]);
            } else {
                assert_eq!(f[18..22], [0x07, 0x48, 44, 64]);
                assert_eq!(f[54..62], [17, 0, 0, 1, 0, 0, 0, 0]);
            }
            assert_eq!(make_first_fragment(&mut f, 65_528), None);
            assert_eq!(make_first_fragment(&mut f[..20], 1_900), None);
        }
    }

    #[test]
    fn every_truncation_and_every_bad_field_is_refused() {
        for (from, to) in [("192.0.2.1:1", "192.0.2.2:2"), ("[::1]:1", "[::2]:2")] {
            let f = written(from, to, b"abc");
            for n in 0..f.len() {
                assert_eq!(parse(&f[..n]), None, "{to} cut to {n}");
                let mut short = f[..n].to_vec();
                let (from, to): (SocketAddr, SocketAddr) =
                    (from.parse().unwrap(), to.parse().unwrap());
                let fits = n >= headers_len(to.is_ipv6());
                assert_eq!(write(&mut short, from, to.ip(), 2).is_some(), fits);
            }
        }
        let f = written("192.0.2.1:1", "192.0.2.2:2", b"abc");
        for (at, value) in [
            (12, 0x81), // VLAN
            (14, 0x44), // header shorter than the least
            (14, 0x4f), // header longer than the packet
            (14, 0x65), // version 6
            (17, 19),   // total length within the header
            (17, 255),  // total length beyond the frame
            (20, 0x20), // more fragments
            (21, 1),    // fragment offset
            (23, 6),    // TCP
            (39, 7),    // UDP length below its header
            (39, 255),  // UDP length beyond the packet
        ] {
            let mut bad = f.clone();
            bad[at] = value;
            assert_eq!(parse(&bad), None, "byte {at} = {value}");
        }
        let f = written("[::1]:1", "[::2]:2", b"abc");
        for (at, value) in [(14, 0x40), (19, 255), (20, 0), (20, 44), (59, 7), (59, 255)] {
            let mut bad = f.clone();
            bad[at] = value;
            assert_eq!(parse(&bad), None, "byte {at} = {value}");
        }
    }

    #[test]
    fn two_families_are_refused() {
        let from = "192.0.2.1:1".parse().unwrap();
        assert_eq!(write(&mut [0; 100], from, Ipv6Addr::LOCALHOST.into(), 2), None);
    }
}
