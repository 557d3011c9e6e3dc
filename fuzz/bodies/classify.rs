//! What must hold of stage 3, the answers in user space and the header half of stage 7, whatever
//! the bytes. Run by the fuzzer, and over the committed corpus by `cargo test`.

use dataplane::stages::exits::refuse_fragment::TooLong;
use dataplane::stages::exits::respond::respond;
use driver_shim::{MacAddr, Pages, Region, TxCaps, TxOffload};
use gpu::{Entry, EntryFlags};
use memcache::Dialects;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use wire::DropReason;
use wire::build::UdpFrame;
use wire::classify::{At, Class, classify};
use wire::corrupt::Corruption;
use wire::reply::turn_and_seal;
use wire::udp::is_reflector;
use wire::verify::{verify_ip4_header, verify_udp};
use wire::{Local, PlainMatcher, tcp};

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const PEER4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OWN4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const PEER6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const OWN6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
const PORT: u16 = 11_211;
const KV_HEADER: [u8; 8] = [0x12, 0x34, 0, 0, 0, 1, 0, 0];

static REGION: LazyLock<Region> = LazyLock::new(|| Region::new(64, Pages::Small).unwrap());

/// A wire with an exception path and one without, a kernel socket, and a wire on which TCP and RDMA are served.
static PLAIN: LazyLock<[PlainMatcher; 4]> = LazyLock::new(|| {
    let closed = Local::new(US, &[(OWN4, 24), (OWN6, 64)], PORT).unwrap();
    let open = Local { exception_path: true, ..closed.clone() };
    let socket = Local { any_destination: true, ..closed.clone() };
    let streams = Local { tcp_port: Some(PORT), rdma: true, ..open.clone() };
    [open, closed, socket, streams].map(|local| PlainMatcher::new(Arc::new(local)))
});

/// The target.
pub(crate) fn run(data: &[u8]) {
    for plain in PLAIN.iter() {
        let class = plain.classify(data);
        assert!(class.is_none_or(|class| class == classify(data, plain.local())));
        any_frame(data, plain.local());
    }
    request(data, PLAIN[0].local());
}

/// Bytes straight from the wire.
fn any_frame(data: &[u8], local: &Local) {
    match classify(data, local) {
        Class::Kv(At { l3, l4, ipv6, .. }) => {
            assert!([14, 18, 22].contains(&l3));
            assert_eq!(l4 - l3, if ipv6 { 40 } else { 20 });
            assert!(usize::from(l4) + 8 <= data.len());
            verify_udp(data, l3, l4, ipv6);
            verify_ip4_header(data, l3);
            reply(data, l3, l4, ipv6);
        }
        Class::TooLong(At { l3, l4, ipv6, limited }) => too_long(data, l3, l4, ipv6, limited),
        Class::Segment(At { l3, l4, ipv6, .. }) => {
            assert!(local.tcp_port.is_some() && [14, 18, 22].contains(&l3));
            assert_eq!(l4 - l3, if ipv6 { 40 } else { 20 });
            assert!(usize::from(l4) + 20 <= data.len());
            let packet = tcp::packet(data, l3, ipv6);
            let packet = packet.unwrap_or_else(|| panic!("lengths that stage 3 passed"));
            tcp::verify(packet.bytes, usize::from(l4 - l3), ipv6);
        }
        Class::Rdma(At { l3, l4, ipv6, .. }) => {
            assert!(local.rdma && [14, 18, 22].contains(&l3));
            assert_eq!(l4 - l3, if ipv6 { 40 } else { 20 });
            assert!(usize::from(l4) + 8 <= data.len());
        }
        Class::Respond(what) => {
            let Some(mut frame) = REGION.alloc() else { panic!("a slot was lost") };
            if frame.fill(data).is_err() {
                return;
            }
            if respond(&mut frame, what, local).is_ok() {
                assert_eq!(frame.tx, TxOffload::default());
                assert_eq!(frame.bytes()[6..12], local.mac.0, "an answer comes from us");
                assert!(frame.len() <= data.len() + 8, "an answer is no longer than one option");
            }
        }
        Class::Punt => assert!(local.exception_path),
        Class::Drop(reason) => assert!(
            !local.exception_path
                || ![DropReason::NoExceptionPath, DropReason::NotForUs].contains(&reason)
        ),
    }
}

/// The beginning of a request gets a whole reply that its source may have, or none.
fn too_long(data: &[u8], l3: u8, l4: u8, ipv6: bool, limited: bool) {
    let Some(mut frame) = REGION.alloc() else { panic!("a slot was lost") };
    if frame.fill(data).is_err() {
        return;
    }
    let mut flags = EntryFlags::default();
    for (known, flag) in [(ipv6, EntryFlags::IPV6), (limited, EntryFlags::LIMITED)] {
        flags = if known { flags.with(flag) } else { flags };
    }
    let len = u16::try_from(data.len()).unwrap();
    let entry = Entry { slot: 0, off: 0, len, l3, l4, flags, mark: 0 };
    let refuser = TooLong::new(Dialects::Auto, NonZeroU32::MIN);
    let Ok(headers) = refuser.refuse(&mut frame, &entry) else { return };
    assert!(!limited || frame.len() - headers.kv() <= data.len() - usize::from(l4) - 8);
    turn_and_seal(frame.bytes_mut(), l3, headers.l4, ipv6, TxCaps::default(), None);
    let reply = frame.bytes();
    let at = usize::from(l3);
    let whole = if ipv6 { reply[at + 6] == 17 } else { reply[at + 6..at + 8] == [0x40, 0] };
    assert!(whole, "it is no fragment");
    assert!(verify_udp(reply, l3, headers.l4, ipv6));
    assert!(ipv6 || verify_ip4_header(reply, l3));
}

/// Any request, padding and wrong checksums included, becomes a whole reply.
fn reply(data: &[u8], l3: u8, l4: u8, ipv6: bool) {
    let mut frame = data.to_vec();
    let tx = turn_and_seal(&mut frame, l3, l4, ipv6, TxCaps::default(), None);
    assert_eq!(frame.len(), data.len());
    if data.len() - usize::from(l3) <= usize::from(u16::MAX) {
        assert_eq!(tx, None);
        assert!(verify_udp(&frame, l3, l4, ipv6));
        assert!(ipv6 || verify_ip4_header(&frame, l3));
        assert_eq!(frame[..6], data[6..12]);
        assert_eq!(frame[6..12], data[..6]);
    }
}

/// A good request is one, and each way of spoiling it gets its reason.
fn request(data: &[u8], local: &Local) {
    let Some((&[choice, how, port_hi, port_lo], text)) = data.split_first_chunk::<4>() else {
        return;
    };
    let ipv6 = choice & 1 == 1;
    let src_port = match u16::from_be_bytes([port_hi, port_lo]) {
        port if port == PORT || is_reflector(port) => 40_000,
        port => port,
    };
    let payload = [&KV_HEADER, text, b"\n"].concat();
    let (src, dst) = if ipv6 { (PEER6, OWN6) } else { (PEER4, OWN4) };
    let good = UdpFrame {
        src_mac: PEER,
        dst_mac: US,
        vlans: &[5, 6][..usize::from(choice >> 1) % 3],
        src: (src, src_port).into(),
        dst: (dst, PORT).into(),
        payload: &payload,
    };
    let Some(mut frame) = good.to_vec() else { return };
    assert_eq!(reason(&frame, local), None);
    let how = Corruption::ALL[usize::from(how) % Corruption::ALL.len()];
    if how.apply(&mut frame) {
        assert_eq!(reason(&frame, local), Some(how.reason()), "{}", how.name());
    }
}

/// What stage 3 and the engine's checks say of a datagram: `None` is a request.
pub(crate) fn reason(frame: &[u8], local: &Local) -> Option<DropReason> {
    let (l3, l4, ipv6) = match classify(frame, local) {
        Class::Kv(At { l3, l4, ipv6, .. }) => (l3, l4, ipv6),
        Class::Drop(reason) => return Some(reason),
        other => panic!("{other:?}"),
    };
    if !ipv6 && !verify_ip4_header(frame, l3) {
        return Some(DropReason::Ipv4Checksum);
    }
    if !verify_udp(frame, l3, l4, ipv6) {
        return Some(DropReason::UdpChecksum);
    }
    let l4 = usize::from(l4);
    let end = l4 + usize::from(u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]));
    let payload = &frame[l4 + 8..end];
    if payload.len() <= KV_HEADER.len() {
        return Some(DropReason::KvFrameShort);
    }
    (payload[4..6] != [0, 1]).then_some(DropReason::KvMultipart)
}
