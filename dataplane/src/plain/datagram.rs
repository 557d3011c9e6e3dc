//! Which frames of any family are whole datagrams to the service.
//!
//! In: frames as they came; they are only looked at. Out: their length, and what is known of the source. What a
//! frame must have to be taken is what stages 3 to 5 ask of it, and a UDP checksum.

use super::family::{FRAME, Family, Headers, V6_ADDRESSES};
use super::requests::{CLOSE_LOOK_PORTS, RequestMatcher};
use super::seal::LESS_FIXED;
use super::sum::{LINE_END, SHORT, fold32, fold64, turned};
use super::vector::{PROTOCOL, SUM_BLOCK, Vector};
use super::window::{ADDRESSES, IP, L4, UDP_LEN, UDP_SUM, WINDOW, part};
use driver_shim::Frame;

/// A whole datagram from a trusted source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram {
    /// UDP's length, as the header has it.
    pub(crate) udp_len: usize,
    /// What the reply's checksums are made of ([`Headers::turn`]).
    pub(crate) ip_sum: u16,
}

impl RequestMatcher {
    /// The datagram in a frame, if all its headers are right, and its checksums. `window` is that of the family.
    #[inline(always)]
    pub(crate) fn datagram(
        &mut self,
        frame: &Frame,
        (bytes, window): (&[u8; FRAME], &[u8; WINDOW]),
        family: Family,
        vector: impl Vector,
    ) -> Option<Datagram> {
        let expected = self.families.expected.get(family as usize)?;
        let word = |at| u16::from_be_bytes(*part(window, at));
        let (port, udp_len) = (word(L4), usize::from(word(UDP_LEN)));
        let (mask, want) = expected.first;
        let fits = (family == Family::V4 || u128::from_le_bytes(*part(bytes, 0)) & mask == want)
            && vector.fits(part(window, 0), &expected.head.0, &expected.head.1)
            && usize::from(u16::from_be_bytes(*part(bytes, expected.length_at))) == udp_len + expected.more
            && family.shift() + L4 + udp_len <= frame.len()
            && port > CLOSE_LOOK_PORTS
            && port != self.service_port
            // Without one a datagram is right over IPv4, and wrong over IPv6.
            && word(UDP_SUM) != 0;
        if !fits {
            return None;
        }
        // IPv4's addresses and the datagram stand side by side. (What is shorter than its header is no request of any form.)
        let short = udp_len + (L4 - ADDRESSES);
        if family != Family::V6 && short <= SHORT {
            let head = part(window, IP);
            let hold = match short {
                ..=SUM_BLOCK => vector.sums_hold::<SUM_BLOCK>(head, part(window, ADDRESSES), short),
                _ => vector.sums_hold::<SHORT>(head, part(window, ADDRESSES), short),
            };
            let ip_sum = if hold { self.trusted_of(window)? } else { return None };
            return Some(Datagram { udp_len, ip_sum });
        }
        let ip_sum = match family {
            Family::V6 => self.families.trusted6(part(bytes, V6_ADDRESSES), &self.plain)?,
            _ if ip_holds(window) => self.trusted_of(window)?,
            _ => return None,
        };
        let datagram = match udp_len {
            ..=SUM_BLOCK => vector.sum_block::<SUM_BLOCK>(part(window, L4), udp_len),
            _ => vector.sum(window.get(L4..)?, udp_len),
        };
        let length = u32::from(u16::from_le_bytes(*part(window, UDP_LEN)));
        // The addresses, and the rest of the pseudo-header.
        let pseudo = u32::from(ip_sum) + LESS_FIXED + length + PROTOCOL;
        (fold32(datagram + pseudo) == 0xffff).then_some(Datagram { udp_len, ip_sum })
    }

    /// As [`Datagram::ip_sum`], if the source is trusted, over IPv4.
    #[inline(always)]
    fn trusted_of(&mut self, window: &[u8; WINDOW]) -> Option<u16> {
        self.trusted(u64::from_le_bytes(*part(window, ADDRESSES)))
    }
}

/// Whether the checksum of IPv4's header is right.
#[inline(always)]
fn ip_holds(window: &[u8; WINDOW]) -> bool {
    let word = |n: usize| u64::from(u32::from_le_bytes(*part(window, IP + 4 * n)));
    fold64(word(0) + word(1) + word(2) + word(3) + word(4)) == 0xffff
}

/// Whether the checksums are right of the IPv4 header and of the datagram, which ends at `end`. `value`: where a
/// value begins that stands before its last line end, and its sum.
#[inline(always)]
pub(crate) fn sums_hold(
    window: &[u8; WINDOW],
    end: usize,
    value: Option<(usize, u16)>,
    vector: impl Vector,
) -> bool {
    let len = end.wrapping_sub(ADDRESSES);
    if len <= SHORT {
        let block: &[u8; SHORT] = part(window, ADDRESSES);
        return vector.sums_hold(part(window, IP), block, len);
    }
    let covered = |end: usize| {
        let bytes = window.get(ADDRESSES..).unwrap_or_default();
        vector.sum(bytes, end.wrapping_sub(ADDRESSES))
    };
    let datagram = match value {
        None => covered(end),
        Some((at, sum)) => covered(at) + turned(LINE_END, end) + turned(sum, at),
    };
    let length = u32::from(u16::from_le_bytes(*part(window, UDP_LEN)));
    ip_holds(window) && fold32(datagram + length + PROTOCOL) == 0xffff
}
