//! Which frames of any family are whole datagrams to the service.
//!
//! In: frames as they came; they are only looked at. Out: their length, and what is known of the source. What a
//! frame must have to be taken is what stages 3 to 5 ask of it, and a UDP checksum.

use super::family::{FRAME, Family, Headers};
use super::requests::{CLOSE_LOOK_PORTS, Requests};
use super::seal::{L4, LESS_FIXED};
use super::sum::{fold32, fold64};
use super::vector::{PROTOCOL, Vector};
use super::window::{WINDOW, part};
use driver_shim::Frame;

/// IPv4's addresses in a window, and IPv6's in a frame.
const V4_ADDRESSES: usize = 26;
const V6_ADDRESSES: usize = 22;

/// A whole datagram from a trusted source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram {
    pub(crate) udp_len: usize,
    /// As [`Headers::turn`] takes it.
    pub(crate) header: u16,
}

impl Requests {
    /// The datagram in a frame, if all its headers are right, and its checksums. `window` is that of the family.
    #[inline(always)]
    pub(crate) fn datagram(
        &mut self,
        frame: &Frame,
        (bytes, window): (&[u8; FRAME], &[u8; WINDOW]),
        family: Family,
        vector: impl Vector,
    ) -> Option<Datagram> {
        let shape = self.families.shapes.get(family as usize)?;
        let word = |at| u16::from_be_bytes(*part(window, at));
        let (port, udp_len) = (word(L4), usize::from(word(L4 + 4)));
        let (mask, want) = shape.first;
        let fits = (family == Family::V4 || u128::from_le_bytes(*part(bytes, 0)) & mask == want)
            && vector.fits(part(window, 0), &shape.head.0, &shape.head.1)
            && usize::from(u16::from_be_bytes(*part(bytes, shape.length_at))) == udp_len + shape.more
            && family.shift() + L4 + udp_len <= frame.len()
            && port > CLOSE_LOOK_PORTS
            && port != self.service_port
            // Without one a datagram is right over IPv4, and wrong over IPv6.
            && word(L4 + 6) != 0;
        if !fits {
            return None;
        }
        let header = match family {
            Family::V6 => self.families.trusted6(part(bytes, V6_ADDRESSES), &self.plain)?,
            _ => header4(window, self)?,
        };
        let datagram = vector.sum(window.get(L4..)?, udp_len);
        let length = u32::from(u16::from_le_bytes(*part(window, L4 + 4)));
        // The addresses, and the rest of the pseudo-header.
        let pseudo = u32::from(header) + LESS_FIXED + length + PROTOCOL;
        (fold32(datagram + pseudo) == 0xffff).then_some(Datagram { udp_len, header })
    }
}

/// As [`Datagram::header`], if the checksum of IPv4's header is right, and the source trusted.
#[inline(always)]
fn header4(window: &[u8; WINDOW], requests: &mut Requests) -> Option<u16> {
    let word = |at| u64::from(u32::from_le_bytes(*part(window, at)));
    if fold64(word(14) + word(18) + word(22) + word(26) + word(30)) != 0xffff {
        return None;
    }
    requests.trusted(u64::from_le_bytes(*part(window, V4_ADDRESSES)))
}
