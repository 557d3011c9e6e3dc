//! Every reason that stage 3 or the engine's checks of a datagram can give has a frame that gets
//! it, and what is not dropped goes where it should.
#![allow(clippy::unwrap_used, reason = "tests")]

use driver_shim::MacAddr;
use std::net::{IpAddr, Ipv6Addr};
use wire::DropReason;
use wire::build::{UdpFrame, arp_request, echo_request, neighbour_solicit};
use wire::classify::{At, Class, Respond, classify};
use wire::corrupt::Corruption;
use wire::{AllowList, Cidr, Local};

#[path = "../../fuzz/bodies/classify.rs"]
#[allow(dead_code, reason = "the fuzz target's own part is run elsewhere")]
mod fuzz_body;
use fuzz_body::reason;

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const REQUEST: &[u8] = b"\0\x2a\0\0\0\x01\0\0get abc\r\n";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn local() -> Local {
    let mut local = Local::new(US, &[(ip("10.0.0.2"), 24), (ip("fd00::2"), 64)], 11_211).unwrap();
    local.exception_path = true;
    local
}

fn closed() -> Local {
    Local { exception_path: false, ..local() }
}

fn udp(src: &str, dst: &str, vlans: &[u16], payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    UdpFrame { src_mac: PEER, dst_mac: US, vlans, src, dst, payload }.to_vec().unwrap()
}

fn good(ipv6: bool, vlans: &[u16]) -> Vec<u8> {
    if ipv6 {
        udp("[fd00::1]:40000", "[fd00::2]:11211", vlans, REQUEST)
    } else {
        udp("10.0.0.1:40000", "10.0.0.2:11211", vlans, REQUEST)
    }
}

fn arp(src: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    arp_request(PEER, src.into(), target.into())
}

fn echo(src: &str, dst: &str) -> Vec<u8> {
    echo_request([PEER, US], ip(src), ip(dst), b"ping")
}

fn ask(src: &str, target: &str) -> Vec<u8> {
    let v6 = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    neighbour_solicit(PEER, v6(src), v6(target))
}

/// `frame` with single bytes changed.
fn set(mut frame: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    for &(at, byte) in changes {
        frame[at] = byte;
    }
    frame
}

fn cut(mut frame: Vec<u8>, len: usize) -> Vec<u8> {
    frame.truncate(len);
    frame
}

#[test]
fn good_requests_pass_with_any_tags_and_padding() {
    for ipv6 in [false, true] {
        for vlans in [&[][..], &[7], &[7, 8]] {
            let mut frame = good(ipv6, vlans);
            let l3 = u8::try_from(14 + 4 * vlans.len()).unwrap();
            let l4 = l3 + if ipv6 { 40 } else { 20 };
            let kv = Class::Kv(At { l3, l4, ipv6, limited: false });
            for _ in 0..30 {
                assert_eq!(classify(&frame, &local()), kv);
                assert_eq!(reason(&frame, &local()), None);
                frame.push(0xee);
            }
        }
    }
}

#[test]
fn every_corruption_gets_its_reason() {
    for c in Corruption::ALL {
        for ipv6 in [false, true] {
            for vlans in [&[][..], &[7], &[7, 8]] {
                let mut frame = good(ipv6, vlans);
                if c.apply(&mut frame) {
                    assert_eq!(reason(&frame, &local()), Some(c.reason()), "{}", c.name());
                }
            }
        }
    }
}

/// Frames that are no spoiled requests, and what they are dropped for.
fn others() -> Vec<(&'static str, Vec<u8>, Local, DropReason)> {
    use DropReason as R;
    let dns = || udp("10.0.0.1:53", "10.0.0.2:53", &[], b"");
    let to_another = || udp("10.0.0.1:4000", "10.0.0.9:11211", &[], REQUEST);
    let to_another6 = || udp("[fd00::1]:4000", "[fd00::9]:11211", &[], REQUEST);
    vec![
        ("another station", set(good(false, &[]), &[(5, 9)]), local(), R::EthNotOurs),
        (
            "another station's ARP",
            set(arp([10, 0, 0, 1], [10, 0, 0, 2]), &[(0, 2)]),
            local(),
            R::EthNotOurs,
        ),
        ("ARP cut short", cut(arp([10, 0, 0, 1], [10, 0, 0, 2]), 41), local(), R::ArpMalformed),
        (
            "ARP of no Ethernet",
            set(arp([10, 0, 0, 1], [10, 0, 0, 2]), &[(15, 6)]),
            local(),
            R::ArpMalformed,
        ),
        (
            "echo cut short",
            set(cut(echo("10.0.0.1", "10.0.0.2"), 41), &[(17, 27)]),
            local(),
            R::IcmpMalformed,
        ),
        (
            "IPv6 echo cut short",
            set(cut(echo("fd00::1", "fd00::2"), 61), &[(19, 7)]),
            local(),
            R::IcmpMalformed,
        ),
        (
            "solicitation cut short",
            set(cut(ask("fd00::1", "fd00::2"), 77), &[(19, 23)]),
            local(),
            R::NdMalformed,
        ),
        ("echo from our own address", echo("10.0.0.2", "10.0.0.2"), local(), R::SourceSpoofed),
        ("IPv6 echo from a group", echo("ff02::1", "fd00::2"), local(), R::SourceSpoofed),
        (
            "request to a multicast group",
            udp("10.0.0.1:4000", "224.0.0.1:11211", &[], REQUEST),
            local(),
            R::RequestToGroup,
        ),
        (
            "request to broadcast",
            udp("10.0.0.1:4000", "10.0.0.255:11211", &[], REQUEST),
            local(),
            R::RequestToGroup,
        ),
        (
            "request to an IPv6 group",
            udp("[fd00::1]:4000", "[ff02::1]:11211", &[], REQUEST),
            local(),
            R::RequestToGroup,
        ),
        ("a fragment of another port", set(dns(), &[(20, 0x20)]), local(), R::Ipv4Fragment),
        (
            "no end of extension headers",
            set(good(true, &[]), &[(20, 60), (54, 60)]),
            local(),
            R::Ipv6Extension,
        ),
        (
            "TCP without its header",
            set(good(false, &[]), &[(23, 6)]),
            Local { tcp_port: Some(11_211), ..local() },
            R::TcpTruncated,
        ),
        ("TCP, no exception path", set(good(false, &[]), &[(23, 6)]), closed(), R::NoExceptionPath),
        ("another port, no exception path", dns(), closed(), R::NoExceptionPath),
        ("another host, no exception path", to_another(), closed(), R::NotForUs),
        ("another IPv6 host, no exception path", to_another6(), closed(), R::NotForUs),
    ]
}

#[test]
fn frames_that_are_no_requests_get_their_reason() {
    for (name, frame, local, want) in others() {
        assert_eq!(classify(&frame, &local), Class::Drop(want), "{name}");
    }
}

/// Over TCP a source is who it says: it has completed a handshake.
#[test]
fn segments_of_any_source_are_taken_where_all_are_served_over_tcp() {
    for (source, ipv6) in [("198.51.100.7:4000", false), ("[2001:db8::7]:4000", true)] {
        let to = if ipv6 { "[fd00::2]:11211" } else { "10.0.0.2:11211" };
        let datagram = udp(source, to, &[], &[0; 64]);
        let mut segment = set(datagram.clone(), &[(if ipv6 { 20 } else { 23 }, 6)]);
        // Five words of header.
        segment[if ipv6 { 54 } else { 34 } + 12] = 0x50;
        let closed = Local { tcp_port: Some(11_211), ..local() };
        let open = Local { tcp_from_all: true, ..closed.clone() };
        let refused = Class::Drop(DropReason::SourceNotAllowed);
        assert_eq!(classify(&segment, &closed), refused);
        let taken = classify(&segment, &open);
        assert!(matches!(taken, Class::Segment(At { limited: false, .. })), "{taken:?}");
        assert_eq!(classify(&datagram, &open), refused);
    }
}

/// A segment over IPv6 to `port`, behind an extension header of this number.
fn extended_tcp(number: u8, header: [u8; 8], port: u16) -> Vec<u8> {
    let datagram = udp("[fd00::1]:4000", &format!("[fd00::2]:{port}"), &[], &[0; 64]);
    let mut segment = set(datagram, &[(20, number), (19, 80), (54 + 12, 0x50)]);
    segment.splice(54..54, header);
    segment
}

/// Where the workers serve TCP, the kernel gets no segment to their port, however it comes: it has the address
/// and no connection, and would answer with a reset.
#[test]
fn segments_behind_extension_headers_are_not_the_kernels_where_workers_serve_tcp() {
    use DropReason as R;
    let workers = Local { tcp_port: Some(11_211), ..local() };
    let options = [6, 0, 1, 4, 0, 0, 0, 0];
    for (name, number, header, reason, of_another) in [
        ("destination options", 60, options, R::Ipv6Extension, None),
        ("hop-by-hop options", 0, options, R::Ipv6Extension, None),
        ("a first fragment", 44, [6, 0, 0, 1, 0, 0, 0, 7], R::Ipv6Fragment, Some(())),
        ("a later fragment", 44, [6, 0, 0, 9, 0, 0, 0, 7], R::Ipv6Fragment, Some(())),
        ("a fragment that is all", 44, [6, 0, 0, 0, 0, 0, 0, 7], R::Ipv6Fragment, Some(())),
    ] {
        let segment = extended_tcp(number, header, 11_211);
        assert_eq!(classify(&segment, &workers), Class::Drop(reason), "{name}");
        assert_eq!(classify(&segment, &local()), Class::Punt, "{name}");
        // Only a first fragment has the port.
        let other = of_another.map_or(Class::Punt, |()| Class::Drop(reason));
        assert_eq!(classify(&extended_tcp(number, header, 22), &workers), other, "{name}");
    }
    let mut short = cut(extended_tcp(60, options, 11_211), 14 + 40 + 8 + 19);
    short[19] = 27;
    assert_eq!(classify(&short, &workers), Class::Drop(R::TcpTruncated));
}

#[test]
fn every_reason_up_to_the_engine_has_a_frame_here() {
    use DropReason as R;
    let mut seen: Vec<R> = Corruption::ALL.iter().map(|c| c.reason()).collect();
    seen.extend(others().iter().map(|(.., r)| *r));
    for r in DropReason::ALL {
        let later = matches!(
            r,
            R::RateSource
                | R::RateSourceBytes
                | R::RateSourceWork
                | R::RateTotal
                | R::RateTotalBytes
                | R::RateTotalWork
                | R::RateEcho
                | R::RateNeighbour
                | R::TcpChecksum
                | R::TcpMalformed
                | R::TcpNoConnection
                | R::TcpUnanswered
                | R::TcpStray
                | R::TcpUnacceptable
                | R::TcpFull
                | R::RdmaMalformed
                | R::RdmaIcrc
                | R::RdmaNoQueuePair
                | R::RdmaNotRequest
                | R::RdmaSequence
                | R::RdmaBusy
                | R::RdmaFull
                | R::ExceptionPathRate
                | R::ExceptionPathFull
                | R::ForeignSlot
                | R::Overload
                | R::Unread
                | R::NoFrame
                | R::Amplification
                | R::TxFull
        );
        assert!(later || seen.contains(&r), "no frame gets {}", r.name());
    }
}

#[test]
fn sources_that_cannot_be_are_dropped_on_a_wire_and_the_kernels_own_pass_on_a_socket() {
    let mut wire = local();
    wire.allow = ["0.0.0.0/0", "::/0"].map(|c| c.parse::<Cidr>().unwrap()).into_iter().collect();
    let socket = Local { any_destination: true, ..wire.clone() };
    for (src, on_wire, on_socket) in [
        ("10.0.0.1", true, true),
        ("203.0.113.5", true, true),
        ("127.0.0.1", false, true),
        ("10.0.0.2", false, true),
        ("0.0.0.0", false, false),
        ("255.255.255.255", false, false),
        ("10.0.0.255", false, false),
        ("224.0.0.1", false, false),
        ("240.0.0.1", false, false),
        ("0.1.2.3", false, false),
        ("10.0.0.0", false, false),
        ("fd00::1", true, true),
        ("::1", false, true),
        ("fd00::2", false, true),
        ("::", false, false),
        ("ff02::1", false, false),
        ("::ffff:10.0.0.1", false, false),
    ] {
        let frame = if ip(src).is_ipv4() {
            udp(&format!("{src}:4000"), "10.0.0.2:11211", &[], REQUEST)
        } else {
            udp(&format!("[{src}]:4000"), "[fd00::2]:11211", &[], REQUEST)
        };
        for (local, ok) in [(&wire, on_wire), (&socket, on_socket)] {
            let want = if ok { None } else { Some(DropReason::SourceSpoofed) };
            assert_eq!(reason(&frame, local), want, "{src}");
        }
    }
}

#[test]
fn ports_that_answer_anything_get_no_answer() {
    for port in [0, 7, 17, 19, 53, 123, 161, 389, 1900, 11_211] {
        for (src, dst) in [("10.0.0.1", "10.0.0.2:11211"), ("[fd00::1]", "[fd00::2]:11211")] {
            let from = |port: u16| udp(&format!("{src}:{port}"), dst, &[], REQUEST);
            assert_eq!(reason(&from(port), &local()), Some(DropReason::SourcePort), "{port}");
            assert_eq!(reason(&from(port + 1), &local()), None, "{port}");
        }
    }
}

#[test]
fn the_allow_list_decides() {
    let mut l = local();
    let outside = udp("203.0.113.5:4000", "10.0.0.2:11211", &[], REQUEST);
    let outside6 = udp("[2001:db8::5]:4000", "[fd00::2]:11211", &[], REQUEST);
    assert_eq!(reason(&outside, &l), Some(DropReason::SourceNotAllowed));
    assert_eq!(reason(&outside6, &l), Some(DropReason::SourceNotAllowed));
    l.allow.extend(["203.0.113.0/24", "2001:db8::/32"].map(|c| c.parse::<Cidr>().unwrap()));
    assert_eq!(reason(&outside, &l), None);
    assert_eq!(reason(&outside6, &l), None);
    let limited = |frame: &[u8]| matches!(classify(frame, &l), Class::Kv(At { limited: true, .. }));
    assert!(limited(&outside) && limited(&outside6));
    assert!(!limited(&good(false, &[])) && !limited(&good(true, &[])));
    l.trusted = AllowList::default();
    assert_eq!(reason(&good(false, &[]), &l), Some(DropReason::SourceNotAllowed));
}

#[test]
fn a_socket_port_takes_any_destination() {
    let socket = Local { any_destination: true, ..local() };
    for (src, dst) in [("127.0.0.1:4000", "127.0.0.1:11211"), ("[::1]:4000", "[::1]:11211")] {
        assert_eq!(reason(&udp(src, dst, &[], REQUEST), &socket), None);
    }
}

#[test]
fn the_kernel_gets_what_is_not_the_services() {
    let tcp = |changes: &[(usize, u8)]| set(set(good(false, &[]), &[(23, 6)]), changes);
    let dns = || udp("10.0.0.1:53", "10.0.0.2:40000", &[], b"answer");
    let mut options = set(dns(), &[(14, 0x46), (17, 38)]);
    options.splice(34..34, [1; 4]);
    let dns6 = || udp("[fd00::1]:53", "[fd00::2]:40000", &[], b"answer");
    let mut extended = set(dns6(), &[(20, 60), (19, 22)]);
    extended.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
    for (name, frame) in [
        ("TCP", tcp(&[])),
        ("TCP over IPv6", set(good(true, &[]), &[(20, 6)])),
        ("a fragment of TCP", tcp(&[(20, 0x20)])),
        ("TCP with IPv4 options", tcp(&[(14, 0x46)])),
        ("another UDP port", dns()),
        ("another UDP port, tagged", udp("10.0.0.1:53", "10.0.0.2:53", &[9], b"answer")),
        ("another UDP port with a wrong UDP length", set(dns(), &[(39, 99)])),
        ("another UDP port with IPv4 options", options),
        ("another UDP port over IPv6", dns6()),
        ("another UDP port behind extension headers", extended),
        ("another host's request", udp("10.0.0.1:4000", "10.0.0.9:11211", &[], REQUEST)),
        ("a multicast", udp("10.0.0.1:4000", "224.0.0.251:5353", &[], b"")),
        ("a DHCP offer", udp("10.0.0.1:67", "255.255.255.255:68", &[], b"")),
        ("an ARP reply", set(arp([10, 0, 0, 1], [10, 0, 0, 2]), &[(21, 2)])),
        ("an ARP request for another", arp([10, 0, 0, 1], [10, 0, 0, 9])),
        ("an ARP announcement of our own address", arp([10, 0, 0, 2], [10, 0, 0, 2])),
        ("an echo reply", set(echo("10.0.0.1", "10.0.0.2"), &[(34, 0)])),
        ("an echo request to a group", echo("10.0.0.1", "10.0.0.255")),
        ("an echo request to a group of stations", set(echo("10.0.0.1", "10.0.0.2"), &[(0, 3)])),
        ("a fragment of an echo request", set(echo("10.0.0.1", "10.0.0.2"), &[(20, 0x20)])),
        ("an unreachable message", set(echo("10.0.0.1", "10.0.0.2"), &[(34, 3)])),
        ("a neighbour advertisement", set(ask("fd00::1", "fd00::2"), &[(54, 136)])),
        ("a solicitation for another", set(ask("fd00::1", "fd00::2"), &[(77, 9)])),
        ("SCTP", set(good(false, &[]), &[(23, 132)])),
        ("LLDP", set(good(false, &[]), &[(12, 0x88), (13, 0xcc)])),
        ("an 802.3 length", set(good(false, &[]), &[(12, 0), (13, 40)])),
    ] {
        assert_eq!(classify(&frame, &local()), Class::Punt, "{name}");
        let class = classify(&frame, &closed());
        assert!(
            matches!(class, Class::Drop(DropReason::NoExceptionPath | DropReason::NotForUs)),
            "{name}: {class:?}"
        );
    }
}

#[test]
fn what_is_answered_here() {
    for (frame, want) in [
        (arp([10, 0, 0, 1], [10, 0, 0, 2]), Respond::Arp { l3: 14 }),
        (arp([0; 4], [10, 0, 0, 2]), Respond::Arp { l3: 14 }),
        (echo("10.0.0.1", "10.0.0.2"), Respond::Echo4 { l3: 14, l4: 34 }),
        (echo("203.0.113.1", "10.0.0.2"), Respond::Echo4 { l3: 14, l4: 34 }),
        (echo("fd00::1", "fd00::2"), Respond::Echo6 { l3: 14, l4: 54 }),
        (ask("fd00::1", "fd00::2"), Respond::NeighbourSolicit { l3: 14, l4: 54 }),
        (ask("::", "fd00::2"), Respond::NeighbourSolicit { l3: 14, l4: 54 }),
    ] {
        assert_eq!(classify(&frame, &closed()), Class::Respond(want));
    }
}
