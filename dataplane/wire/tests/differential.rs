//! Our views against another implementation of the same formats (the crate etherparse): what we
//! build it reads, what we take for a request it would too, and the values agree.
#![allow(clippy::unwrap_used, reason = "tests")]

use base::checksum;
use driver_shim::{MacAddr, TxCaps};
use etherparse::{LinkSlice, NetSlice, SlicedPacket, TransportSlice, UdpHeader};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use wire::build::UdpFrame;
use wire::classify::{At, Class, classify};
use wire::reply::turn_and_seal;
use wire::verify::{verify_ip4_header, verify_udp};
use wire::{Cidr, Eth, Ipv4, Ipv6, Local, Udp};

const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const PORT: u16 = 11_211;
const OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// Source ports that no client has.
const REFLECTORS: [u16; 10] = [0, 7, 17, 19, 53, 123, 161, 389, 1900, PORT];

fn local() -> Local {
    let mut local = Local::new(US, &[(OWN4.into(), 24), (OWN6.into(), 64)], PORT).unwrap();
    local.exception_path = true;
    local.allow = ["0.0.0.0/0", "::/0"].map(|c| c.parse::<Cidr>().unwrap()).into_iter().collect();
    local
}

/// What a datagram says: addresses, ports, data, and whether its checksums are right.
#[derive(Debug, PartialEq)]
struct Seen {
    src: SocketAddr,
    dst: SocketAddr,
    data: Vec<u8>,
    header_ok: bool,
    udp_ok: bool,
}

/// What etherparse sees, if it is a request by the rules of stage 3.
fn theirs(frame: &[u8]) -> Option<Seen> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(LinkSlice::Ethernet2(eth)) = &packet.link else { return None };
    let own_source = |ip: IpAddr| ip == OWN4 || ip == OWN6;
    if eth.destination() != US.0 || eth.source()[0] & 1 == 1 || packet.link_exts.len() > 2 {
        return None;
    }
    let Some(TransportSlice::Udp(udp)) = &packet.transport else { return None };
    let (src, dst, ip_payload_len, header_ok, sum): (IpAddr, IpAddr, _, _, _) = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let h = ip.header();
            if h.ihl() != 5 || h.is_fragmenting_payload() {
                return None;
            }
            let sum = UdpHeader::calc_checksum_ipv4_raw(
                &udp.to_header(),
                h.source(),
                h.destination(),
                udp.payload(),
            );
            // Over the bytes as they came: a header of theirs has no reserved bit.
            let words = etherparse::checksum::Sum16BitWords::new().add_slice(h.slice());
            let whole = words.ones_complement() == 0;
            let len = usize::from(h.total_len()) - 20;
            (h.source_addr().into(), h.destination_addr().into(), len, whole, sum)
        }
        Some(NetSlice::Ipv6(ip)) => {
            let h = ip.header();
            if ip.extensions().first_header().is_some() {
                return None;
            }
            let sum =
                udp.to_header().calc_checksum_ipv6_raw(h.source(), h.destination(), udp.payload());
            let len = usize::from(h.payload_length());
            (h.source_addr().into(), h.destination_addr().into(), len, true, sum)
        }
        _ => return None,
    };
    let whole_network = [Ipv4Addr::new(10, 0, 0, 0), Ipv4Addr::new(10, 0, 0, 255)];
    let reserved = |a: Ipv4Addr| a.octets()[0] == 0 || a.octets()[0] >= 240;
    let no_peer = src.is_unspecified()
        || src.is_multicast()
        || src.is_loopback()
        || own_source(src)
        || whole_network.iter().any(|n| src == *n)
        || matches!(src, IpAddr::V4(a) if reserved(a))
        || matches!(src, IpAddr::V6(a) if a.to_ipv4_mapped().is_some());
    let request = own_source(dst)
        && udp.destination_port() == PORT
        && usize::from(udp.length()) == ip_payload_len
        && !REFLECTORS.contains(&udp.source_port())
        && !no_peer;
    let none_ok = udp.checksum() == 0 && src.is_ipv4();
    request.then(|| Seen {
        src: SocketAddr::new(src, udp.source_port()),
        dst: SocketAddr::new(dst, udp.destination_port()),
        data: udp.payload().to_vec(),
        header_ok,
        udp_ok: none_ok || (udp.checksum() != 0 && sum == Ok(udp.checksum())),
    })
}

/// What we see.
fn ours(frame: &[u8]) -> Option<Seen> {
    let Class::Kv(At { l3, l4, ipv6, .. }) = classify(frame, &local()) else { return None };
    let eth = Eth::checked(frame).unwrap();
    let (src, dst, udp): (IpAddr, IpAddr, _) = if ipv6 {
        let ip = Ipv6::checked(&eth).unwrap();
        (ip.src().into(), ip.dst().into(), Udp::over_ipv6(&ip).unwrap())
    } else {
        let ip = Ipv4::checked(&eth).unwrap();
        (ip.src().into(), ip.dst().into(), Udp::over_ipv4(&ip).unwrap())
    };
    Some(Seen {
        src: SocketAddr::new(src, udp.src_port()),
        dst: SocketAddr::new(dst, udp.dst_port()),
        data: udp.data().to_vec(),
        header_ok: ipv6 || verify_ip4_header(frame, l3),
        udp_ok: verify_udp(frame, l3, l4, ipv6),
    })
}

fn macs() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(|m| MacAddr([m[0] & 0xfe, m[1], m[2], m[3], m[4], m[5]]))
}

fn vlans() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(0..4096u16, 0..=2)
}

fn peers() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        prop::sample::select(vec![
            IpAddr::V4(OWN4),
            OWN6.into(),
            [127, 0, 0, 1].into(),
            [10, 0, 0, 255].into(),
            [10, 0, 0, 0].into(),
            [240, 0, 0, 1].into(),
            Ipv6Addr::LOCALHOST.into(),
            [0, 0, 0, 0, 0, 0xffff, 0x0a00, 1].into(),
        ]),
    ]
}

prop_compose! {
    /// A request to us, from anybody.
    fn requests()(
        src_mac in macs(),
        vlans in vlans(),
        src in peers(),
        src_port in prop_oneof![2 => any::<u16>(), 1 => prop::sample::select(&REFLECTORS[..])],
        payload in prop::collection::vec(any::<u8>(), 0..100),
    ) -> Vec<u8> {
        let dst = if src.is_ipv4() { IpAddr::V4(OWN4) } else { OWN6.into() };
        UdpFrame {
            src_mac,
            dst_mac: US,
            vlans: &vlans,
            src: SocketAddr::new(src, src_port),
            dst: SocketAddr::new(dst, PORT),
            payload: &payload,
        }
        .to_vec()
        .unwrap()
    }
}

/// A change to a header or the length of a frame.
#[derive(Debug, Clone)]
enum Change {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Pad(u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        4 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(i, b)| Change::Set(i, b)),
        8 => (any::<prop::sample::Index>(), 0..8u8).prop_map(|(i, b)| Change::Flip(i, b)),
        1 => any::<prop::sample::Index>().prop_map(Change::Cut),
        1 => any::<u8>().prop_map(Change::Pad),
    ];
    prop::collection::vec(change, 0..3)
}

fn change(mut frame: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    const HEADERS: usize = 70;
    for c in changes {
        let len = frame.len();
        match c {
            Change::Set(i, b) if len > 0 => frame[i.index(len.min(HEADERS))] = *b,
            Change::Flip(i, b) if len > 0 => frame[i.index(len.min(HEADERS))] ^= 1 << b,
            Change::Cut(i) => frame.truncate(i.index(len + 1)),
            Change::Pad(n) => frame.resize(len + usize::from(*n), 0xee),
            _ => {}
        }
    }
    frame
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn what_we_build_they_read(frame in requests()) {
        prop_assert_eq!(ours(&frame), theirs(&frame));
        if let Some(seen) = ours(&frame) {
            prop_assert!(seen.header_ok && seen.udp_ok);
        }
    }

    #[test]
    fn what_is_changed_is_a_request_to_both_or_to_neither(
        frame in requests(),
        changes in changes(),
    ) {
        let frame = change(frame, &changes);
        prop_assert_eq!(ours(&frame), theirs(&frame));
    }

    #[test]
    fn replies_read_as_the_request_turned_round(
        frame in requests(),
        reply in prop::collection::vec(any::<u8>(), 0..1392),
    ) {
        let Class::Kv(At { l3, l4, ipv6, .. }) = classify(&frame, &local()) else { return Ok(()) };
        let asked = ours(&frame).unwrap();
        let mut frame = frame;
        frame.truncate(usize::from(l4) + 8);
        frame.extend_from_slice(&reply);
        turn_and_seal(&mut frame, l3, l4, ipv6, TxCaps::default(), None);
        let packet = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("{packet:?}") };
        prop_assert_eq!(udp.payload(), reply);
        prop_assert_eq!(udp.source_port(), asked.dst.port());
        prop_assert_eq!(udp.destination_port(), asked.src.port());
        prop_assert!(verify_udp(&frame, l3, l4, ipv6));
        prop_assert!(ipv6 || verify_ip4_header(&frame, l3));
    }

    #[test]
    fn sums_agree(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let theirs = etherparse::checksum::Sum16BitWords::new().add_slice(&bytes);
        let mut field = checksum::field(checksum::sum(&bytes));
        // The two forms of zero.
        if bytes.iter().all(|&b| b == 0) {
            field = 0xffff;
        }
        prop_assert_eq!(field, u16::from_be(theirs.ones_complement()));
    }

    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200), ipv6: bool) {
        let mut frame = bytes;
        let ethertype: [u8; 2] = if ipv6 { [0x86, 0xdd] } else { [8, 0] };
        if let Some((head, [version, ..])) = frame.split_at_mut_checked(14) {
            head[..6].copy_from_slice(&US.0);
            head[6] &= 0xfe;
            head[12..].copy_from_slice(&ethertype);
            *version = if ipv6 { 0x60 } else { 0x45 };
        }
        prop_assert_eq!(ours(&frame), theirs(&frame));
    }
}
