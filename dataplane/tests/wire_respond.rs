//! Packet in, packet out: ARP, neighbour discovery and echo, against frames written by hand.
#![allow(clippy::unwrap_used, reason = "tests")]

use dataplane::stages::exits::respond::respond;
use driver_shim::{Frame, MacAddr, Pages, Region};
use etherparse::{Icmpv4Header, Icmpv6Header, LaxPacketHeaders, NetHeaders, TransportHeader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::DropReason;
use wire::Local;
use wire::build::{arp_request, echo_request, neighbour_solicit};
use wire::classify::{Class, classify};

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn local() -> Local {
    let addresses = [("10.0.0.2", 24), ("fd00::2", 64)].map(|(a, p)| (a.parse().unwrap(), p));
    Local::new(US, &addresses, 11_211).unwrap()
}

/// The frame that comes back for `request`.
fn answer(request: &[u8]) -> Result<Vec<u8>, DropReason> {
    let region = Region::new(1, Pages::Small).unwrap();
    let mut frame: Frame = region.alloc().unwrap();
    // Whatever the slot held must not show.
    frame.set_len(frame.room()).unwrap();
    frame.bytes_mut().fill(0xdb);
    frame.fill(request).unwrap();
    match classify(frame.bytes(), &local()) {
        Class::Respond(what) => respond(&mut frame, what, &local())?,
        other => panic!("{other:?}"),
    }
    Ok(frame.bytes().to_vec())
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|p| u8::try_from(p[0] * 16 + p[1]).unwrap()).collect()
}

fn tagged(frame: &[u8]) -> Vec<u8> {
    let mut f = frame.to_vec();
    f.splice(12..12, hex("88a8 0064 8100 e005"));
    f
}

#[test]
fn golden_answers() {
    for (name, request, reply) in [
        (
            "who has 10.0.0.2? with padding",
            "ffffffffffff 020000000001 0806 0001 0800 06 04 0001
             020000000001 0a000001 000000000000 0a000002 000000000000000000000000000000000000",
            "020000000001 020000000002 0806 0001 0800 06 04 0002
             020000000002 0a000002 020000000001 0a000001",
        ),
        (
            "a probe",
            "020000000002 020000000001 0806 0001 0800 06 04 0001
             020000000001 00000000 000000000000 0a000002",
            "020000000001 020000000002 0806 0001 0800 06 04 0002
             020000000002 0a000002 020000000001 00000000",
        ),
        (
            "ping, six bytes of padding, a marked DSCP and ECN, an id, a low TTL",
            "020000000002 020000000001 0800
             45bb 0022 1234 0000 0501 8eea 0a000001 0a000002
             0800 b1bd 0007 0001 70696e67 6769 eeeeeeeeeeee",
            "020000000001 020000000002 0800
             4500 0022 0000 4000 4001 26d9 0a000002 0a000001
             0000 b9bd 0007 0001 70696e67 6769",
        ),
        (
            "ping6 with a traffic class and a flow label",
            "020000000002 020000000001 86dd
             6b312345 000c 3a 07 fd000000000000000000000000000001 fd000000000000000000000000000002
             8000 a6db 0007 0001 70696e67",
            "020000000001 020000000002 86dd
             60000000 000c 3a 40 fd000000000000000000000000000002 fd000000000000000000000000000001
             8100 a5db 0007 0001 70696e67",
        ),
        (
            "neighbour solicitation with the asker's address",
            "3333ff000002 020000000001 86dd
             60000000 0020 3a ff fd000000000000000000000000000001 ff0200000000000000000001ff000002
             8700 7d97 00000000 fd000000000000000000000000000002 0101 020000000001",
            "020000000001 020000000002 86dd
             60000000 0020 3a ff fd000000000000000000000000000002 fd000000000000000000000000000001
             8800 1c9a 60000000 fd000000000000000000000000000002 0201 020000000002",
        ),
        (
            "duplicate address detection: an advertisement to everybody",
            "3333ff000002 020000000001 86dd
             60000000 0018 3a ff 00000000000000000000000000000000 ff0200000000000000000001ff000002
             8700 7da3 00000000 fd000000000000000000000000000002",
            "333300000001 020000000002 86dd
             60000000 0020 3a ff fd000000000000000000000000000002 ff020000000000000000000000000001
             8800 5a98 20000000 fd000000000000000000000000000002 0201 020000000002",
        ),
    ] {
        let (request, reply) = (hex(request), hex(reply));
        assert_eq!(answer(&request).map(|r| show(&r)), Ok(show(&reply)), "{name}");
        assert_eq!(
            answer(&tagged(&request)).map(|r| show(&r)),
            Ok(show(&tagged(&reply))),
            "{name}, tagged"
        );
    }
}

fn show(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn another_implementation_reads_the_answers() {
    let v4 = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let v6 = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    for data in [&b""[..], b"x", &[0xa5; 1400]] {
        let reply = answer(&echo_request([PEER, US], v4(1), v4(2), data)).unwrap();
        let p = LaxPacketHeaders::from_ethernet(&reply).unwrap();
        let Some(NetHeaders::Ipv4(ip, _)) = &p.net else { panic!("{p:?}") };
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        let Some(TransportHeader::Icmpv4(echo)) = &p.transport else { panic!("{p:?}") };
        assert_eq!(p.payload.slice(), data);
        let sum = Icmpv4Header::with_checksum(echo.icmp_type.clone(), data).checksum;
        assert_eq!((echo.checksum, reply[34]), (sum, 0));

        let request = echo_request([PEER, US], v6(1).into(), v6(2).into(), data);
        let reply = answer(&request).unwrap();
        check_icmpv6(&reply, 129, data);
    }
    check_icmpv6(
        &answer(&neighbour_solicit(PEER, v6(1), v6(2))).unwrap(),
        136,
        &[2, 1, 2, 0, 0, 0, 0, 2],
    );
}

fn check_icmpv6(reply: &[u8], kind: u8, behind: &[u8]) {
    let p = LaxPacketHeaders::from_ethernet(reply).unwrap();
    let Some(NetHeaders::Ipv6(ip, _)) = &p.net else { panic!("{p:?}") };
    let Some(TransportHeader::Icmpv6(icmp)) = &p.transport else { panic!("{p:?}") };
    assert!(p.payload.slice().ends_with(behind));
    let again =
        Icmpv6Header::with_checksum(icmp.icmp_type, ip.source, ip.destination, p.payload.slice());
    assert_eq!((icmp.checksum, reply[54]), (again.unwrap().checksum, kind));
}

#[test]
fn every_flipped_bit_of_a_message_is_noticed() {
    let v6 = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    let v4 = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    for (request, l4, want) in [
        (echo_request([PEER, US], v4(1), v4(2), b"data"), 34, DropReason::IcmpMalformed),
        (
            echo_request([PEER, US], v6(1).into(), v6(2).into(), b"data"),
            54,
            DropReason::IcmpMalformed,
        ),
        (neighbour_solicit(PEER, v6(1), v6(2)), 54, DropReason::NdMalformed),
    ] {
        // Type, code and target decide whether it is answered at all: leave them.
        let fixed = if want == DropReason::NdMalformed { 8..24 } else { 0..0 };
        for bit in 16..(request.len() - l4) * 8 {
            if fixed.contains(&(bit / 8)) {
                continue;
            }
            let mut f = request.clone();
            f[l4 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(answer(&f), Err(want), "bit {bit}");
        }
    }
}

#[test]
fn a_wrong_ipv4_header_is_not_answered() {
    let v4 = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let mut f = echo_request([PEER, US], v4(1), v4(2), b"data");
    f[22] ^= 1;
    assert_eq!(answer(&f), Err(DropReason::Ipv4Checksum));
}

/// Section 7.1.1 of RFC 4861, rule by rule.
#[test]
fn solicitations_that_must_be_discarded() {
    let v6 = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    let known = neighbour_solicit(PEER, v6(1), v6(2));
    let anonymous = neighbour_solicit(PEER, Ipv6Addr::UNSPECIFIED, v6(2));
    type Change = fn(&mut Vec<u8>);
    let rules: [(&str, &[u8], Change); 8] = [
        ("the hop limit is 255", &known, |f| f[21] = 254),
        ("the code is 0", &known, |f| f[55] = 1),
        ("options have a length", &known, |f| f[79] = 0),
        ("options end within the packet", &known, |f| f[79] = 2),
        ("options are whole", &known, |f| {
            f.push(14);
            f[19] += 1;
        }),
        ("the source is no group", &known, |f| f[22] = 0xff),
        ("who has no address asks the group", &anonymous, |f| {
            f[0..6].copy_from_slice(&US.0);
            f[38..54].copy_from_slice(&Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets());
        }),
        ("who has no address says no station", &anonymous, |f| {
            f.extend_from_slice(&[1, 1, 2, 0, 0, 0, 0, 1]);
            f[19] += 8;
        }),
    ];
    for (rule, good, change) in rules {
        assert!(answer(good).is_ok(), "{rule}");
        let mut bad = good.to_vec();
        change(&mut bad);
        sum_icmpv6(&mut bad);
        assert_eq!(answer(&bad), Err(DropReason::NdMalformed), "{rule}");
    }
    let mut with_more = known.clone();
    with_more.extend_from_slice(&[14, 1, 0, 0, 0, 0, 0, 0]);
    with_more[19] += 8;
    sum_icmpv6(&mut with_more);
    assert_eq!(answer(&with_more), answer(&known), "unknown options are skipped");
}

/// Sets the checksum of the ICMPv6 message at 54, word by word.
fn sum_icmpv6(frame: &mut [u8]) {
    frame[56..58].fill(0);
    let message = &frame[54..];
    let mut sum = 58 + u32::try_from(message.len()).unwrap();
    for pair in frame[22..54].chunks(2).chain(message.chunks(2)) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| u32::from(b));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let field = !u16::try_from(sum).unwrap();
    frame[56..58].copy_from_slice(&field.to_be_bytes());
}

#[test]
fn an_answer_that_does_not_fit_its_slot_is_dropped_by_name() {
    let v6 = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    let region = Region::new(1, Pages::Small).unwrap();
    let request = neighbour_solicit(PEER, Ipv6Addr::UNSPECIFIED, v6(2));
    let slot = region.alloc().unwrap().into_slot();
    // SAFETY: the slot was just taken, and no other frame is on it.
    #[expect(unsafe_code, reason = "only a driver makes frames this close to a slot's end")]
    let mut frame = unsafe { region.frame(slot, 2048 - request.len(), request.len()) };
    frame.bytes_mut().copy_from_slice(&request);
    let Class::Respond(what) = classify(frame.bytes(), &local()) else { panic!() };
    assert_eq!(respond(&mut frame, what, &local()), Err(DropReason::NoFrame));
}

#[test]
fn an_arp_answer_is_also_what_the_builder_would_ask_back() {
    let ask = arp_request(PEER, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let reply = answer(&ask).unwrap();
    let back = arp_request(US, Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(reply[..6], PEER.0);
    assert_eq!(reply[6..20], back[6..20]);
    assert_eq!((reply[21], back[21]), (2, 1));
    assert_eq!(reply[22..32], back[22..32]);
}
