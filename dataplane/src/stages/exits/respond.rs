//! Answers in user space: ARP, neighbour discovery and ICMP echo (D9).
//!
//! In: a frame that stage 3 called `Respond`, by reference. Out: the answer in the same frame, fit
//! to send, or the reason to drop it; then the frame's bytes mean nothing. Checksums are
//! verified here, because a wrong echo must not come back right. The caller owns the frame.
#![deny(clippy::indexing_slicing)]

use base::checksum::{add, pseudo, replace, sum};
use driver_shim::{Frame, TxOffload};
use std::mem::swap;
use std::net::Ipv6Addr;
use wire::DropReason;
use wire::advert::{ADVERT_BYTES, ALL_NODES, ALL_NODES_MAC, Advert};
use wire::classify::Respond;
use wire::eth::EthHeader;
use wire::icmp::{
    ADVERT_OVERRIDE, ADVERT_SOLICITED, ECHO4_REPLY, ECHO6_REPLY, Echo, ND_HOP_LIMIT, Neighbour,
    OPTION_SOURCE_MAC,
};
use wire::ipv4::Ipv4Header;
use wire::ipv6::{self, Ipv6Header};
use wire::local::Local;
use wire::reply::{TTL, set_ipv4, set_ipv6, turn_ethernet};
use wire::verify::verify_ip4_header;
use wire::{arp, with};
use zerocopy::{FromBytes, IntoBytes};

/// The unit of an option's length, in bytes.
const OPTION_UNIT: usize = 8;

/// Turns the request in `frame` into its answer.
///
/// # Errors
/// Why the request gets none: [`DropReason::ArpMalformed`], [`DropReason::NdMalformed`],
/// [`DropReason::IcmpMalformed`], [`DropReason::Ipv4Checksum`]; [`DropReason::NoFrame`] if the
/// answer does not fit the slot.
pub fn respond(frame: &mut Frame, what: Respond, local: &Local) -> Result<(), DropReason> {
    frame.tx = TxOffload::default();
    match what {
        Respond::Arp { l3 } => arp(frame, l3, local),
        Respond::Echo4 { l3, l4 } => echo4(frame, l3, l4),
        Respond::Echo6 { l3, l4 } => echo6(frame, l3, l4),
        Respond::NeighbourSolicit { l3, l4 } => neighbour(frame, l3, l4, local),
    }
}

fn resize(frame: &mut Frame, len: usize) -> Result<(), DropReason> {
    frame.set_len(len).map_err(|_| DropReason::NoFrame)
}

fn arp(frame: &mut Frame, l3: u8, local: &Local) -> Result<(), DropReason> {
    let l3 = usize::from(l3);
    resize(frame, l3 + arp::PACKET_BYTES)?;
    let (ethernet, packet) =
        frame.bytes_mut().split_at_mut_checked(l3).ok_or(DropReason::ArpMalformed)?;
    arp::answer(packet, local.mac);
    turn_from_us(ethernet, local);
    Ok(())
}

/// Answers come from our own address, also to what was sent to a group.
fn turn_from_us(ethernet: &mut [u8], local: &Local) {
    turn_ethernet(ethernet);
    with(ethernet, |e: &mut EthHeader| e.src = local.mac.0);
}

fn echo4(frame: &mut Frame, l3: u8, l4: u8) -> Result<(), DropReason> {
    if !verify_ip4_header(frame.bytes(), l3) {
        return Err(DropReason::Ipv4Checksum);
    }
    let (l3, l4) = (usize::from(l3), usize::from(l4));
    let packet = frame.bytes().get(l3..).and_then(|p| Ipv4Header::ref_from_prefix(p).ok());
    let (ip, _) = packet.ok_or(DropReason::IcmpMalformed)?;
    let total_len = ip.total_len.get();
    // Without the padding that it may have come with.
    resize(frame, l3 + usize::from(total_len))?;
    let (head, message) =
        frame.bytes_mut().split_at_mut_checked(l4).ok_or(DropReason::IcmpMalformed)?;
    turn_echo(message, 0, ECHO4_REPLY)?;
    let (ethernet, network) = head.split_at_mut_checked(l3).ok_or(DropReason::IcmpMalformed)?;
    with(network, |ip: &mut Ipv4Header| {
        swap(&mut ip.addresses.src, &mut ip.addresses.dst);
        set_ipv4(ip, total_len, false);
    });
    turn_ethernet(ethernet);
    Ok(())
}

fn echo6(frame: &mut Frame, l3: u8, l4: u8) -> Result<(), DropReason> {
    let (l3, l4) = (usize::from(l3), usize::from(l4));
    let packet = frame.bytes().get(l3..).and_then(|p| Ipv6Header::ref_from_prefix(p).ok());
    let (ip, _) = packet.ok_or(DropReason::IcmpMalformed)?;
    let len = ip.payload_len.get();
    let pseudo_sum = pseudo(ip.addresses.as_bytes(), ipv6::ICMPV6, len);
    resize(frame, l4 + usize::from(len))?;
    let (head, message) =
        frame.bytes_mut().split_at_mut_checked(l4).ok_or(DropReason::IcmpMalformed)?;
    turn_echo(message, pseudo_sum, ECHO6_REPLY)?;
    let (ethernet, network) = head.split_at_mut_checked(l3).ok_or(DropReason::IcmpMalformed)?;
    with(network, |ip: &mut Ipv6Header| {
        swap(&mut ip.addresses.src, &mut ip.addresses.dst);
        set_ipv6(ip, len, TTL);
    });
    turn_ethernet(ethernet);
    Ok(())
}

/// Makes the echo request in `message` a reply. Swapping the addresses changes no sum, so only
/// the type does.
fn turn_echo(message: &mut [u8], pseudo_sum: u16, reply: u8) -> Result<(), DropReason> {
    if add(pseudo_sum, sum(message)) != 0xffff {
        return Err(DropReason::IcmpMalformed);
    }
    let (echo, _) = Echo::mut_from_prefix(message).map_err(|_| DropReason::IcmpMalformed)?;
    let before = echo.kind_and_code();
    echo.kind = reply;
    echo.checksum = replace(echo.checksum.get(), before, echo.kind_and_code()).into();
    Ok(())
}

/// RFC 4861: checks of section 7.1.1, answer of sections 4.4 and 7.2.4.
fn neighbour(frame: &mut Frame, l3: u8, l4: u8, local: &Local) -> Result<(), DropReason> {
    let (l3, l4) = (usize::from(l3), usize::from(l4));
    let asked = Solicitation::checked(frame.bytes(), l3, l4).ok_or(DropReason::NdMalformed)?;
    // A host without an address yet is answered by multicast to all nodes.
    let (to, flags) = if asked.src.is_unspecified() {
        (ALL_NODES, ADVERT_OVERRIDE)
    } else {
        (asked.src, ADVERT_OVERRIDE | ADVERT_SOLICITED)
    };
    resize(frame, l4 + usize::from(ADVERT_BYTES))?;
    let (head, message) =
        frame.bytes_mut().split_at_mut_checked(l4).ok_or(DropReason::NdMalformed)?;
    let (ethernet, network) = head.split_at_mut_checked(l3).ok_or(DropReason::NdMalformed)?;
    with(network, |ip: &mut Ipv6Header| {
        let advert = Advert::from(local.mac, asked.target, to, flags, ip);
        with(message, |m: &mut Advert| *m = advert);
    });
    turn_from_us(ethernet, local);
    if asked.src.is_unspecified() {
        with(ethernet, |e: &mut EthHeader| e.dst = ALL_NODES_MAC.0);
    }
    Ok(())
}

/// What a valid solicitation says.
struct Solicitation {
    src: Ipv6Addr,
    target: Ipv6Addr,
}

impl Solicitation {
    fn checked(frame: &[u8], l3: usize, l4: usize) -> Option<Self> {
        let (ip, _) = Ipv6Header::ref_from_prefix(frame.get(l3..)?).ok()?;
        let len = ip.payload_len.get();
        let message = frame.get(l4..l4 + usize::from(len))?;
        let (asked, options) = Neighbour::ref_from_prefix(message).ok()?;
        let src = Ipv6Addr::from(ip.addresses.src);
        let dst = Ipv6Addr::from(ip.addresses.dst);
        let target = Ipv6Addr::from(asked.target);
        let pseudo_sum = pseudo(ip.addresses.as_bytes(), ipv6::ICMPV6, len);
        let valid = ip.hop_limit == ND_HOP_LIMIT
            && asked.code == 0
            && add(pseudo_sum, sum(message)) == 0xffff
            && !target.is_multicast()
            && !src.is_multicast();
        let source_mac = has_source_mac(options)?;
        // Without an address, the asker must ask the group and say no link-layer address.
        let anonymous = src.is_unspecified();
        (valid && !(anonymous && (source_mac || !is_solicited_node(dst))))
            .then_some(Self { src, target })
    }
}

/// Whether an option gives the source's link-layer address. `None`: options of no length, or
/// that end outside the packet.
fn has_source_mac(mut options: &[u8]) -> Option<bool> {
    let mut found = false;
    // Each turn takes 8 bytes at least.
    while let Some((&[kind, units], _)) = options.split_first_chunk::<2>() {
        if units == 0 {
            return None;
        }
        found |= kind == OPTION_SOURCE_MAC;
        options = options.get(usize::from(units) * OPTION_UNIT..)?;
    }
    options.is_empty().then_some(found)
}

/// Whether `a` is in ff02::1:ff00:0/104.
fn is_solicited_node(a: Ipv6Addr) -> bool {
    a.octets().starts_with(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff])
}
