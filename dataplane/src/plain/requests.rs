//! Which frames are requests for the fast path.
//!
//! In: frames as they came; they are only looked at. Out: the length of a key, and what is known of its
//! source. What a frame must have to be taken is what stages 3 to 5 ask of a plain `get`,
//! and a UDP checksum that was verified here: the reply's is made from it.

use super::families::Families;
use super::seal::FIXED;
use super::sum::fold64;
use super::vector::{HEAD, KEY_BLOCK, SUM_BLOCK, Vector};
use super::window::{ADDRESSES, IP, IP_LEN, L4, SEQUENCE, TEXT, UDP_LEN, UDP_SUM, part};
use driver_shim::Frame;
use std::net::Ipv4Addr;
use wire::PlainMatcher;
use wire::udp_frame::TEXT_AFTER_UDP;

/// Bytes of a frame that are looked at.
pub(crate) const LOOK: usize = 128;
/// First byte of the key.
pub(crate) const KEY: usize = TEXT + b"get ".len();
/// UDP length of a request beside its key: headers, the verb and the line end.
pub(crate) const UDP_AROUND_KEY: usize = TEXT_AFTER_UDP + b"get ".len() + b"\r\n".len();
/// Bytes of a request's frame beside its key.
pub(crate) const FRAME_AROUND_KEY: usize = L4 + UDP_AROUND_KEY;
/// From the third byte of the memcached frame header on: whole, reserved bytes, verb.
pub(crate) const GET: u64 = u64::from_le_bytes(*b"\0\x01\0\0get ");
/// Ports from which requests are looked at more closely reach up to here.
pub(super) const CLOSE_LOOK_PORTS: u16 = 1900;
/// Trusted sources that are remembered.
const SOURCES: usize = 256;
/// No source's address, and an empty place of theirs.
const NOBODY: Source = Source { addresses: 0, ip_sum: 0 };
const _: () = assert!(place(1) != place(NOBODY.addresses));

/// Where a trusted source is remembered.
#[inline(always)]
const fn place(addresses: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "the source's half")]
    let src = addresses as u32;
    (src.wrapping_mul(0x9e37_79b1) >> 24) as usize % SOURCES
}

/// Recognises the plain requests of a port: what they look like, and the trusted sources seen so far.
pub struct RequestMatcher {
    /// The bits that are compared of a request's head.
    mask: [u8; HEAD],
    /// What these bits must be.
    want: [u8; HEAD],
    /// Mask and wanted bits of READ requests, where those are answered.
    read: Option<([u8; HEAD], [u8; HEAD])>,
    /// UDP port of the service.
    pub(super) service_port: u16,
    /// Trusted sources seen so far, each at its [`place`]; elsewhere [`NOBODY`], and another such at the place of that.
    trusted: Box<[Source; SOURCES]>,
    /// The port's addresses, and who may use the service.
    pub(super) plain: PlainMatcher,
    /// The same for other headers than plain IPv4, and trusted sources over IPv6.
    pub(super) families: Families,
}

/// A trusted source, and whom it asked.
#[derive(Debug, Clone, Copy)]
struct Source {
    /// Both addresses as they stand in a header.
    addresses: u64,
    /// The sum of the reply's IPv4 header, but for its length.
    ip_sum: u16,
}

/// Key length and reply header sum of a recognised request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// Bytes of the key.
    pub(crate) key_len: u8,
    /// The sum of the reply's IPv4 header, but for its length.
    pub(crate) ip_sum: u16,
}

impl std::fmt::Debug for RequestMatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestMatcher").finish_non_exhaustive()
    }
}

impl RequestMatcher {
    /// Those of a port.
    pub fn new(plain: &PlainMatcher) -> Self {
        let (mut mask, mut want) = plain.head();
        // The first datagram, of one.
        for at in SEQUENCE..HEAD {
            mask[at] = 0xff;
            want[at] = u8::from(at == HEAD - 1);
        }
        let mut trusted = Box::new([NOBODY; SOURCES]);
        // Address 0 must not match the empty entry.
        trusted[place(NOBODY.addresses)].addresses = 1;
        let service_port = plain.local().service_port;
        let read = plain.read_head();
        let families = Families::new(plain);
        Self { mask, want, read, service_port, trusted, plain: plain.clone(), families }
    }

    pub(crate) fn plain(&self) -> &PlainMatcher {
        &self.plain
    }

    /// The `ip_sum` of a reply to this source. `None`: it is not trusted.
    #[inline(always)]
    pub(crate) fn trusted(&mut self, addresses: u64) -> Option<u16> {
        let place = place(addresses);
        match self.trusted.get(place) {
            Some(source) if source.addresses == addresses => Some(source.ip_sum),
            _ => self.learn(addresses, place),
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, addresses: u64, place: usize) -> Option<u16> {
        let [a, b, c, d, ..] = addresses.to_le_bytes();
        if !self.plain.trusts(Ipv4Addr::new(a, b, c, d)) {
            return None;
        }
        let ip_sum = fold64((addresses & 0xffff_ffff) + (addresses >> 32) + u64::from(FIXED));
        if let Some(place) = self.trusted.get_mut(place) {
            *place = Source { addresses, ip_sum };
        }
        Some(ip_sum)
    }

    /// The `ip_sum` of a response, if the headers are those of a READ request from a trusted source.
    #[inline(always)]
    pub(crate) fn reader(&mut self, look: &[u8; LOOK], vector: impl Vector) -> Option<u16> {
        let (mask, want) = self.read.as_ref()?;
        let port = u16::from_be_bytes(*part(look, L4));
        let addresses = u64::from_le_bytes(*part(look, ADDRESSES));
        let fits = vector.fits(part(look, 0), mask, want)
            && port > CLOSE_LOOK_PORTS
            && port != self.service_port;
        if fits { self.trusted(addresses) } else { None }
    }

    /// The UDP length, if the headers are those of a request for the fast path, but for the checksums
    /// and the source. ([`Self::asked`] has its own: as a part of that it costs a plain get 3 %.)
    #[inline(always)]
    pub(crate) fn head(
        &self,
        frame: &Frame,
        look: &[u8; LOOK],
        vector: impl Vector,
    ) -> Option<usize> {
        let udp_len = usize::from(u16::from_be_bytes(*part(look, UDP_LEN)));
        let total_len = usize::from(u16::from_be_bytes(*part(look, IP_LEN)));
        let port = u16::from_be_bytes(*part(look, L4));
        let fits = vector.fits(part(look, 0), &self.mask, &self.want)
            && udp_len + 20 == total_len
            && total_len + 14 <= frame.len()
            && port > CLOSE_LOOK_PORTS
            && port != self.service_port
            && u16::from_le_bytes(*part(look, UDP_SUM)) != 0;
        fits.then_some(udp_len)
    }

    /// The request in the frame, if it is one for the fast path.
    #[inline(always)]
    pub(crate) fn asked(
        &mut self,
        frame: &Frame,
        look: &[u8; LOOK],
        vector: impl Vector,
    ) -> Option<Asked> {
        let asked = self.shaped(frame, look, vector)?;
        // Addresses and datagram stand side by side.
        let len = UDP_AROUND_KEY + usize::from(asked.key_len) + 8;
        let hold = vector.sums_hold::<SUM_BLOCK>(part(look, IP), part(look, ADDRESSES), len);
        hold.then_some(asked)
    }

    /// [`Self::asked`], but for the checksums.
    #[inline(always)]
    pub(crate) fn shaped(
        &mut self,
        frame: &Frame,
        look: &[u8; LOOK],
        vector: impl Vector,
    ) -> Option<Asked> {
        let udp_len = usize::from(u16::from_be_bytes(*part(look, UDP_LEN)));
        let total_len = usize::from(u16::from_be_bytes(*part(look, IP_LEN)));
        let port = u16::from_be_bytes(*part(look, L4));
        // Before what is wider, of which the compiler would take them.
        let addresses = u64::from_le_bytes(*part(look, ADDRESSES));
        let has_sum = u16::from_le_bytes(*part(look, UDP_SUM)) != 0;
        let len = udp_len.wrapping_sub(UDP_AROUND_KEY);
        let fits = vector.fits(part(look, 0), &self.mask, &self.want)
            && len.wrapping_sub(1) < KEY_BLOCK
            && udp_len + 20 == total_len
            && total_len + 14 <= frame.len()
            && u64::from_le_bytes(*part(look, TEXT - 4)) == GET
            && *part(look, KEY + len) == *b"\r\n"
            && port > CLOSE_LOOK_PORTS
            && port != self.service_port
            && has_sum
            && vector.is_word(part(look, KEY), len);
        if !fits {
            return None;
        }
        let ip_sum = self.trusted(addresses)?;
        #[expect(clippy::cast_possible_truncation, reason = "at most KEY_BLOCK")]
        let key_len = len as u8;
        Some(Asked { key_len, ip_sum })
    }
}
