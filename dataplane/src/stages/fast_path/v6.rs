//! Which frames are plain `get`s over IPv6.
//!
//! In: frames as they came; they are only looked at. Out: the same as from `requests`, by the same rules. Trusted
//! sources are remembered, with whom they asked.

use super::network::LOOK_V6;
use super::requests::{Asked, LOOK, Requests, plain_key_len, want_one_datagram};
use super::seal::FIXED;
use super::sum::{fold32, fold64};
use super::vector::{HEAD, PROTOCOL, Vector};
use super::window::part;
use driver_shim::Frame;
use std::net::Ipv6Addr;
use wire::Plain;
use wire::eth::IPV6;
use wire::plain::HEAD_V6_BYTES;

/// First byte of the addresses, behind which the datagram stands.
const ADDRESSES: usize = 22;
const ADDRESSES_LEN: usize = 32;
/// First byte of the length behind IPv6's header, and of the UDP header.
const PAYLOAD_LEN: usize = 18;
const L4: usize = 54;
/// Trusted sources that are remembered.
const SOURCES: usize = 256;

type Addresses = [u8; ADDRESSES_LEN];

/// Requests of a port over IPv6, and who of those who sent some is trusted.
pub(super) struct Six {
    /// From the frame's first byte on, and from the window's.
    mask: [[u8; HEAD]; 2],
    want: [[u8; HEAD]; 2],
    /// Each at its [`place`]; elsewhere none.
    trusted: Box<[Option<Source>; SOURCES]>,
}

/// A trusted source, and whom it asked.
#[derive(Debug, Clone, Copy)]
struct Source {
    addresses: Addresses,
    /// As in [`Asked`].
    header: u16,
}

impl Six {
    /// Those of a port. `None`: it has none.
    pub(super) fn new(plain: &Plain) -> Option<Box<Self>> {
        let (mask, want) = plain.head_v6()?;
        let both =
            |bytes: [u8; HEAD_V6_BYTES]| [*part(&bytes, 0), *part(&bytes, HEAD_V6_BYTES - HEAD)];
        let (mut mask, mut want) = (both(mask), both(want));
        want_one_datagram(&mut mask[1], &mut want[1]);
        Some(Box::new(Self { mask, want, trusted: Box::new([None; SOURCES]) }))
    }

    /// The sum of the header of a reply to this source, as if it were IPv4's, but for its length. `None`: it is
    /// not trusted.
    #[inline(always)]
    fn trusted(
        &mut self,
        addresses: &Addresses,
        plain: &Plain,
        vector: impl Vector,
    ) -> Option<u16> {
        let place = place(addresses);
        match self.trusted.get(place) {
            Some(Some(source)) if vector.same(&source.addresses, addresses, ADDRESSES_LEN) => {
                Some(source.header)
            }
            _ => self.learn(addresses, place, plain),
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, addresses: &Addresses, place: usize, plain: &Plain) -> Option<u16> {
        if !plain.trusts_v6(Ipv6Addr::from(*part::<16, _>(addresses, 0))) {
            return None;
        }
        let words = addresses.as_chunks().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
        let header = fold64(words.sum::<u64>() + u64::from(FIXED));
        if let Some(place) = self.trusted.get_mut(place) {
            *place = Some(Source { addresses: *addresses, header });
        }
        Some(header)
    }
}

/// Where a trusted source is remembered.
#[inline(always)]
fn place(addresses: &Addresses) -> usize {
    let word = |at| u64::from_le_bytes(*part(addresses, at));
    let mixed = (word(8) ^ word(0).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % SOURCES
}

impl Requests {
    /// The request in the frame, if it is one for the fast path.
    #[inline(always)]
    pub(super) fn asked_v6(
        &mut self,
        frame: &Frame,
        look: &[u8; LOOK_V6],
        vector: impl Vector,
    ) -> Option<Asked> {
        let Self { six, plain, service_port, .. } = self;
        let six = six.as_mut()?;
        let window = part(look, LOOK_V6 - LOOK);
        let udp_len = usize::from(u16::from_be_bytes(*part(window, 38)));
        let fits = vector.fits(part(look, 0), &six.mask[0], &six.want[0])
            && vector.fits(part(window, 0), &six.mask[1], &six.want[1])
            && udp_len == usize::from(u16::from_be_bytes(*part(look, PAYLOAD_LEN)))
            && udp_len + L4 <= frame.len();
        if !fits {
            return None;
        }
        let key_len = plain_key_len(window, udp_len, *service_port, vector)?;
        // Addresses and datagram stand side by side.
        let covered = look.get(ADDRESSES..).unwrap_or_default();
        let length = u32::from(u16::from_le_bytes(*part(window, 38)));
        let sum = vector.sum(covered, ADDRESSES_LEN + udp_len) + length + PROTOCOL;
        if fold32(sum) != 0xffff {
            return None;
        }
        let header = six.trusted(part(look, ADDRESSES), plain, vector)?;
        Some(Asked { key_len, header })
    }
}

/// Whether the first or the last frame in `left`, which is not 0, is IPv6's: what a look at each would cost is paid by
/// those that have none.
#[inline]
pub(super) fn are_there(burst: &[Frame], left: u64) -> bool {
    const ETHERTYPE: usize = 12;
    let is_v6 = |n: u32| {
        let look = burst.get(n as usize).and_then(Frame::window::<LOOK>);
        look.is_some_and(|look| *part(look, ETHERTYPE) == IPV6.to_be_bytes())
    };
    is_v6(left.trailing_zeros()) || is_v6(63 - left.leading_zeros())
}
