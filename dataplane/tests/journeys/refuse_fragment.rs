//! Requests that come in IP fragments: the first is refused in words, the others are dropped.

use crate::world::{CLIENT_PORT, PORT, SERVER4, SERVER6, World, Wrap, datagram, frame, open};
use dataplane::policy::{Policy, Rate};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use std::net::IpAddr;
use std::num::NonZeroU32;
use wire::DropReason;
use wire::build::UdpFrame;
use wire::{AllowList, Cidr};

const REFUSAL: &[u8] = b"SERVER_ERROR request too large for UDP, use TCP\r\n";

fn is_v6(wrap: Wrap) -> bool {
    matches!(wrap, Wrap::V6 | Wrap::QinQ6)
}

/// Where the IP header stands.
fn l3(wrap: Wrap) -> usize {
    match wrap {
        Wrap::V4 | Wrap::V6 => 14,
        Wrap::Vlan4 => 18,
        Wrap::QinQ6 => 22,
    }
}

/// Makes the first fragment of a whole frame: `kept` bytes from the UDP header on, a multiple of 8.
fn first_fragment(wrap: Wrap, mut whole: Vec<u8>, kept: usize) -> Vec<u8> {
    let l3 = l3(wrap);
    if is_v6(wrap) {
        whole[l3 + 6] = 44;
        whole.splice(l3 + 40..l3 + 40, [17, 0, 0, 1, 0, 0, 0, 9]);
        whole.truncate(l3 + 48 + kept);
        let len = u16::try_from(8 + kept).unwrap();
        whole[l3 + 4..l3 + 6].copy_from_slice(&len.to_be_bytes());
    } else {
        whole.truncate(l3 + 20 + kept);
        let len = u16::try_from(20 + kept).unwrap();
        whole[l3 + 2..l3 + 4].copy_from_slice(&len.to_be_bytes());
        whole[l3 + 6] = 0x20;
        sum_again(&mut whole[l3..l3 + 20]);
    }
    whole
}

/// Makes the checksum of an IPv4 header right.
fn sum_again(header: &mut [u8]) {
    header[10..12].fill(0);
    let words = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    header[10..12].copy_from_slice(&(!sum).to_be_bytes());
}

/// A `set` of 3 KB.
fn long() -> Vec<u8> {
    let mut text = b"set k 0 0 3000\r\n".to_vec();
    text.extend_from_slice(&[b'v'; 3000]);
    text.extend_from_slice(b"\r\n");
    text
}

fn beginning(wrap: Wrap, text: &[u8], kept: usize) -> Vec<u8> {
    first_fragment(wrap, frame(wrap, CLIENT_PORT, PORT, &datagram(0x1234, text)), kept)
}

#[test]
fn the_first_fragment_of_a_request_is_refused_in_words() {
    let mut w = World::new();
    for wrap in Wrap::ALL {
        for kept in [24, 64, 1400, 1480] {
            w.send(&beginning(wrap, &long(), kept));
            w.settle();
            let replies = w.received(0);
            assert_eq!(replies.len(), 1, "{wrap:?} {kept}");
            let reply = open(wrap, replies[0].bytes());
            assert_eq!((reply.id, reply.seq, reply.total), (0x1234, 0, 1));
            assert_eq!(reply.text, REFUSAL, "{wrap:?} {kept}");
        }
    }
    assert_eq!(w.counters[0].too_long_refused.get(), 16);
    assert_eq!(w.end().answered, 16);
}

#[test]
fn a_binary_request_is_refused_in_binary() {
    let mut w = World::new();
    let mut text = vec![0; 24 + 3008];
    text[..2].copy_from_slice(&[0x80, 1]);
    text[4] = 8;
    text[12..16].copy_from_slice(&7_u32.to_be_bytes());
    for wrap in Wrap::ALL {
        w.send(&beginning(wrap, &text, 1480));
        w.settle();
        let reply = open(wrap, w.received(0)[0].bytes());
        assert_eq!(reply.text[..2], [0x81, 1]);
        assert_eq!(reply.text[6..8], [0, 3], "Too large");
        assert_eq!(reply.text[12..16], [0, 0, 0, 7], "opaque");
    }
    // Not all of the header has come: nobody knows whom to answer.
    w.send(&beginning(Wrap::V4, &text, 32));
    assert_eq!(*w.end().dropped.of(DropReason::KvFrameShort), 1);
}

type Edit = fn(&mut Vec<u8>);

#[test]
fn what_is_no_beginning_of_a_request_is_dropped() {
    let mut w = World::new();
    const L4: usize = 34;
    let edits: [(&str, DropReason, Edit); 7] = [
        ("a later fragment", DropReason::Ipv4Fragment, |f| f[21] = 1),
        ("the last fragment", DropReason::Ipv4Fragment, |f| f[20..22].copy_from_slice(&[0, 9])),
        ("another port", DropReason::Ipv4Fragment, |f| f[L4 + 2] = 1),
        ("a datagram that is whole", DropReason::Ipv4Fragment, |f| {
            let len = u16::try_from(f.len() - L4).unwrap();
            f[L4 + 4..L4 + 6].copy_from_slice(&len.to_be_bytes());
        }),
        ("to a group", DropReason::RequestToGroup, |f| f[30..34].copy_from_slice(&[224, 0, 0, 1])),
        ("a reflector's port", DropReason::SourcePort, |f| f[L4..L4 + 2].fill(0)),
        ("in several datagrams", DropReason::KvMultipart, |f| f[L4 + 8 + 5] = 2),
    ];
    for (name, reason, edit) in edits {
        let mut f = beginning(Wrap::V4, &long(), 1480);
        edit(&mut f);
        sum_again(&mut f[14..34]);
        let before = w.dropped(reason);
        w.send(&f);
        w.settle();
        assert_eq!(w.dropped(reason), before + 1, "{name}");
    }
    let mut f = beginning(Wrap::V4, &long(), 1480);
    f[24] ^= 1;
    w.send(&f);
    w.settle();
    assert_eq!(w.dropped(DropReason::Ipv4Checksum), 1);
    for (name, at, byte) in [("later", 57, 9), ("last", 57, 8), ("whole", 57, 0)] {
        let mut f = beginning(Wrap::V6, &long(), 1480);
        f[at] = byte;
        let before = w.dropped(DropReason::Ipv6Fragment);
        w.send(&f);
        w.settle();
        assert_eq!(w.dropped(DropReason::Ipv6Fragment), before + 1, "{name}");
    }
    assert!(w.received(0).is_empty());
    assert_eq!(w.end().answered, 0);
}

#[test]
fn the_refusal_is_never_more_than_its_source_may_have() {
    let limited: AllowList =
        ["192.0.2.0/24", "2001:db8::/32"].iter().map(|n| n.parse::<Cidr>().unwrap()).collect();
    let rate = Rate { requests: NonZeroU32::new(2), reply_bytes: None };
    for (from, wrap) in [("192.0.2.1", Wrap::V4), ("2001:db8::1", Wrap::V6)] {
        let mut w = World::policed(&limited, Policy { source: rate, ..Policy::default() });
        let src: IpAddr = from.parse().unwrap();
        let dst: IpAddr = if src.is_ipv4() { SERVER4.into() } else { SERVER6.into() };
        let whole = UdpFrame {
            src_mac: PEER_MAC,
            dst_mac: MAC,
            vlans: &[],
            src: (src, CLIENT_PORT).into(),
            dst: (dst, PORT).into(),
            payload: &datagram(7, &long()),
        };
        let whole = whole.to_vec().unwrap();
        // 57 bytes of refusal want 19 of request at the factor of 3.
        assert_eq!(REFUSAL.len() + 8, 57);
        for (kept, answers, dropped) in
            [(24, 0, DropReason::Amplification), (32, 1, DropReason::RateSource)]
        {
            w.send(&first_fragment(wrap, whole.clone(), kept));
            w.settle();
            assert_eq!(w.received(0).len(), answers, "{from} {kept}");
            assert_eq!(w.dropped(dropped), 1 - answers as u64);
        }
        w.send(&first_fragment(wrap, whole.clone(), 1480));
        w.settle();
        assert_eq!(w.dropped(DropReason::RateSource), 1, "{from}");
        assert_eq!(w.end().answered, 1);
    }
    let mut w = World::new();
    let mut f = beginning(Wrap::V4, &long(), 1480);
    f[26..30].copy_from_slice(&[203, 0, 113, 1]);
    sum_again(&mut f[14..34]);
    w.send(&f);
    assert_eq!(*w.end().dropped.of(DropReason::SourceNotAllowed), 1);
}
