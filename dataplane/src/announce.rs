//! Announces to the network where our addresses are: an ARP announcement for each IPv4 address
//! (RFC 5227, section 3) and a neighbour advertisement for each IPv6 address (RFC 4861, section
//! 7.2.6). Switches learn from them which port leads to us, and neighbours that know us by another
//! Ethernet address forget it.
//!
//! In: an order of the control plane's, which sees links come up. Out: at the next turn of
//! one worker of the port, frames fit to send, in slots of the region. Without a slot there is none;
//! the worker counts those.
#![deny(clippy::indexing_slicing)]

use driver_shim::{BURST_MAX, Burst, Frame, MacAddr, Region};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use wire::advert::{ALL_NODES, ALL_NODES_MAC, Advert};
use wire::arp::ArpPacket;
use wire::eth::{self, EthHeader};
use wire::icmp::ADVERT_OVERRIDE;
use wire::ipv6::{self, Ipv6Header};
use wire::local::{ADDRESSES_MAX, Local};
use zerocopy::{FromZeros, Immutable, IntoBytes, Unaligned};

const _: () = assert!(2 * ADDRESSES_MAX <= BURST_MAX, "all addresses fit a burst");

/// Takes orders to announce a port's addresses, from any thread, for the worker that does it.
#[derive(Debug, Default)]
pub struct Announcer {
    ordered: AtomicBool,
}

impl Announcer {
    /// Has them announced once. Orders that the worker has not taken yet are one.
    pub fn order(&self) {
        self.ordered.store(true, Ordering::Relaxed);
    }

    /// Takes the order, if there is one.
    #[inline]
    pub fn take(&self) -> bool {
        self.ordered.load(Ordering::Relaxed) && self.ordered.swap(false, Ordering::Relaxed)
    }
}

/// Appends a frame for each of the port's addresses to the empty `burst`, and says how many there
/// are not, for lack of slots.
#[cold]
pub(crate) fn announce(local: &Local, region: &Region, burst: &mut Burst) -> usize {
    let v4 =
        local.v4.iter().filter_map(|own| in_slot(region, &announcement4(local.mac, own.address)));
    burst.extend(v4);
    let v6 =
        local.v6.iter().filter_map(|&(own, _)| in_slot(region, &announcement6(local.mac, own)));
    burst.extend(v6);
    (local.v4.len() + local.v6.len()).saturating_sub(burst.len())
}

fn in_slot(region: &Region, bytes: &(impl IntoBytes + Immutable)) -> Option<Frame> {
    let mut frame = region.alloc()?;
    let bytes = bytes.as_bytes();
    frame.set_len(bytes.len()).ok()?;
    frame.bytes_mut().copy_from_slice(bytes);
    Some(frame)
}

/// An ARP request for one's own address.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Announcement4 {
    ethernet: EthHeader,
    arp: ArpPacket,
}

/// An unsolicited advertisement.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Announcement6 {
    ethernet: EthHeader,
    ip: Ipv6Header,
    advert: Advert,
}

fn announcement4(mac: MacAddr, own: Ipv4Addr) -> Announcement4 {
    Announcement4 {
        ethernet: EthHeader { dst: eth::BROADCAST.0, src: mac.0, ethertype: eth::ARP.into() },
        arp: ArpPacket::request(mac, own, own),
    }
}

fn announcement6(mac: MacAddr, own: Ipv6Addr) -> Announcement6 {
    let mut ip = Ipv6Header { next_header: ipv6::ICMPV6, ..FromZeros::new_zeroed() };
    let advert = Advert::from(mac, own, ALL_NODES, ADVERT_OVERRIDE, &mut ip);
    let ethernet = EthHeader { dst: ALL_NODES_MAC.0, src: mac.0, ethertype: eth::IPV6.into() };
    Announcement6 { ethernet, ip, advert }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_shim::Pages;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

    fn local(addresses: &[(&str, u8)]) -> Local {
        let addresses: Vec<_> = addresses.iter().map(|(a, p)| (a.parse().unwrap(), *p)).collect();
        Local::new(MAC, &addresses, 11_211).unwrap()
    }

    fn frames(local: &Local, slots: u32) -> (Vec<Vec<u8>>, usize) {
        let region = Region::new(slots, Pages::Small).unwrap();
        let mut burst = Burst::new();
        let without = announce(local, &region, &mut burst);
        let frames = burst.iter().map(|frame| frame.bytes().to_vec()).collect();
        drop(burst);
        assert_eq!(region.available(), region.capacity());
        (frames, without)
    }

    #[test]
    fn an_arp_announcement_is_as_rfc_5227_wants_it() {
        #[rustfmt::skip]
        let wanted = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 7, 0x08, 0x06,
            // Ethernet, IPv4, a request.
            0, 1, 0x08, 0, 6, 4, 0, 1,
            2, 0, 0, 0, 0, 7, 10, 0, 0, 2,
            0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
        ];
        assert_eq!(frames(&local(&[("10.0.0.2", 24)]), 4), (vec![wanted.to_vec()], 0));
    }

    #[test]
    fn an_advertisement_is_as_rfc_4861_wants_it() {
        #[rustfmt::skip]
        let wanted = [
            0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 7, 0x86, 0xdd,
            // 32 bytes of ICMPv6, hop limit 255.
            0x60, 0, 0, 0, 0, 32, 58, 255,
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
            // 0xffff less 0xa56c, the sum of all other words and the pseudo-header.
            136, 0, 0x5a, 0x93,
            // Override, neither router nor solicited.
            0x20, 0, 0, 0,
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
            // The target's link-layer address.
            2, 1, 2, 0, 0, 0, 0, 7,
        ];
        assert_eq!(frames(&local(&[("fd00::2", 64)]), 4), (vec![wanted.to_vec()], 0));
    }

    #[test]
    fn every_address_has_a_frame_while_there_are_slots() {
        let many: Vec<String> =
            (1..=8).flat_map(|n| [format!("10.0.0.{n}"), format!("fd00::{n}")]).collect();
        let many: Vec<_> = many.iter().map(|a| (a.as_str(), 24)).collect();
        let (all, without) = frames(&local(&many), 16);
        assert_eq!((all.len(), without), (16, 0));
        let targets: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(targets.len(), 16, "each has its own");
        let (some, without) = frames(&local(&many), 3);
        assert_eq!((some.len(), without), (3, 13));
    }

    #[test]
    fn an_order_is_taken_once() {
        let announcer = Announcer::default();
        assert!(!announcer.take());
        announcer.order();
        announcer.order();
        assert!(announcer.take());
        assert!(!announcer.take());
    }
}
