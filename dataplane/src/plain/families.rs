//! What the headers of each family must be, and who is trusted over IPv6.
//!
//! In: what is ours on a port. Out: words to compare headers with, and what is known of sources. Nothing fails.

use super::family::{Family, Headers};
use super::seal::FIXED;
use super::sum::fold64;
use super::vector::HEAD;
use super::window::{L4, SEQUENCE, part};
use std::net::Ipv6Addr;
use wire::eth::{self, is_group};
use wire::ipv4::{self, PLAIN_L3};
use wire::{Local, PlainMatcher};

/// Where IPv6 begins, its length, and the number of the protocol.
const V6_AT: usize = PLAIN_L3 as usize;
const V6_LENGTH: usize = V6_AT + 4;
const V6_NEXT_HEADER: usize = V6_AT + 6;
/// IPv4's length in a window.
const V4_LENGTH: usize = 16;
/// Trusted sources over IPv6 that are remembered.
const SOURCES: usize = 256;

/// What the headers of a family must be.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    /// The first 16 bytes of the frame: which bits are compared, and what they must be.
    pub(super) first: (u128, u128),
    /// The window's first bytes: which bits are compared, and what they must be.
    pub(super) head: ([u8; HEAD], [u8; HEAD]),
    /// Where in the frame IP's length stands.
    pub(super) length_at: usize,
    /// By how much IP's length is more than UDP's.
    pub(super) more: usize,
}

impl Expected {
    fn new(plain: &PlainMatcher, family: Family) -> Self {
        let local = plain.local();
        let (mut mask, mut want) = plain.head();
        let mut first = ([0; 16], [0; 16]);
        if family != Family::V4 {
            // The stations stand before the window, or elsewhere in it.
            mask[..V6_AT].fill(0);
            want[..V6_AT].fill(0);
            first = stations(local, if family == Family::V6 { eth::IPV6 } else { eth::VLAN });
        }
        if family == Family::Tagged {
            mask[12..V6_AT].fill(0xff);
            want[12..V6_AT].copy_from_slice(&eth::IPV4.to_be_bytes());
        }
        if family == Family::V6 {
            // Whether the addresses are ours, and whom they are of, is looked up.
            mask[V6_AT..L4].fill(0);
            want[V6_AT..L4].fill(0);
            (first.0[V6_AT], first.1[V6_AT]) = (0xf0, 0x60);
            let next_header = V6_NEXT_HEADER - Family::V6.shift();
            (mask[next_header], want[next_header]) = (0xff, ipv4::UDP);
            if local.service_port == 0 || is_group(local.mac) {
                // Nothing is.
                (mask[next_header], want[next_header]) = (0, 0xff);
            }
        }
        // The first datagram, of one.
        for at in SEQUENCE..HEAD {
            (mask[at], want[at]) = (0xff, u8::from(at == HEAD - 1));
        }
        let first = (u128::from_le_bytes(first.0), u128::from_le_bytes(first.1));
        let (length_at, more) = match family {
            Family::V6 => (V6_LENGTH, 0),
            _ => (V4_LENGTH + family.shift(), ipv4::HEADER_BYTES),
        };
        Self { first, head: (mask, want), length_at, more }
    }
}

/// From one station to ours, and the EtherType.
fn stations(local: &Local, ethertype: u16) -> ([u8; 16], [u8; 16]) {
    let (mut mask, mut want) = ([0; 16], [0; 16]);
    mask[..6].fill(0xff);
    want[..6].copy_from_slice(&local.mac.0);
    mask[6] = 1;
    mask[12..V6_AT].fill(0xff);
    want[12..V6_AT].copy_from_slice(&ethertype.to_be_bytes());
    (mask, want)
}

/// What is known of the families of a port's requests.
pub(super) struct Families {
    /// What headers must be, by the number of the family.
    pub(super) expected: [Expected; 3],
    /// Trusted sources over IPv6 seen so far, each at its [`place`]. An `ip_sum` of 0 is an empty place.
    trusted6: Box<[Source; SOURCES]>,
}

/// A trusted source over IPv6, and whom it asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Source {
    /// Both addresses as they stand in a header.
    addresses: [u64; 4],
    /// What a reply's checksums are made of ([`Headers::turn`]).
    ip_sum: u16,
}

impl Families {
    pub(super) fn new(plain: &PlainMatcher) -> Self {
        let expected =
            [Family::V4, Family::Tagged, Family::V6].map(|family| Expected::new(plain, family));
        Self { expected, trusted6: Box::new([Source::default(); SOURCES]) }
    }

    /// The `ip_sum` of a reply to this source ([`Headers::turn`]). `None`: it is not trusted.
    #[inline(always)]
    pub(super) fn trusted6(&mut self, bytes: &[u8; 32], plain: &PlainMatcher) -> Option<u16> {
        let word = |n: usize| u64::from_le_bytes(*part(bytes, 8 * n));
        let addresses = [word(0), word(1), word(2), word(3)];
        match self.trusted6.get(place(addresses)) {
            Some(source) if source.addresses == addresses && source.ip_sum != 0 => {
                Some(source.ip_sum)
            }
            _ => self.learn6(bytes, addresses, plain),
        }
    }

    #[cold]
    #[inline(never)]
    fn learn6(
        &mut self,
        bytes: &[u8; 32],
        addresses: [u64; 4],
        plain: &PlainMatcher,
    ) -> Option<u16> {
        let address = |at| Ipv6Addr::from(*part::<16, 32>(bytes, at));
        if !plain.trusts6(address(0), address(16)) {
            return None;
        }
        let halves = addresses.map(|word| (word & 0xffff_ffff) + (word >> 32));
        let ip_sum = fold64(halves.iter().sum::<u64>() + u64::from(FIXED));
        if let Some(place) = self.trusted6.get_mut(place(addresses)) {
            *place = Source { addresses, ip_sum };
        }
        Some(ip_sum)
    }
}

/// Where a trusted source is remembered.
#[inline(always)]
fn place([high, low, ..]: [u64; 4]) -> usize {
    let mixed = high.rotate_left(32).wrapping_add(low).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % SOURCES
}
