//! A neighbour advertisement (RFC 4861, section 4.4), solicited or not.

use super::icmp::{MacOption, ND_HOP_LIMIT, NEIGHBOUR_ADVERT, Neighbour, OPTION_TARGET_MAC};
use super::ipv6::{self, Addresses6, Ipv6Header};
use super::reply::set_ipv6;
use base::checksum::{add, field, pseudo, sum};
use driver_shim::MacAddr;
use std::net::Ipv6Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// All nodes of the link (RFC 4291, section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Their Ethernet group (RFC 2464, section 7).
pub const ALL_NODES_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);

/// Field map of the message and its one option.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Advert {
    head: Neighbour,
    option: MacOption,
}

/// Bytes of the message.
pub const ADVERT_BYTES: u16 = 32;
const _: () = assert!(size_of::<Advert>() == ADVERT_BYTES as usize);

impl Advert {
    /// The message by which `mac` informs `to` that it has `target`, its checksum set. Sets all of the
    /// header before it but what comes next.
    pub fn from(
        mac: MacAddr,
        target: Ipv6Addr,
        to: Ipv6Addr,
        flags: u32,
        ip: &mut Ipv6Header,
    ) -> Self {
        ip.addresses = Addresses6 { src: target.octets(), dst: to.octets() };
        set_ipv6(ip, ADVERT_BYTES, ND_HOP_LIMIT);
        let mut advert = Self {
            head: Neighbour {
                kind: NEIGHBOUR_ADVERT,
                code: 0,
                checksum: 0.into(),
                flags: flags.into(),
                target: target.octets(),
            },
            option: MacOption { kind: OPTION_TARGET_MAC, len: 1, mac: mac.0 },
        };
        let pseudo_sum = pseudo(ip.addresses.as_bytes(), ipv6::ICMPV6, ADVERT_BYTES);
        advert.head.checksum = field(add(pseudo_sum, sum(advert.as_bytes()))).into();
        advert
    }
}
