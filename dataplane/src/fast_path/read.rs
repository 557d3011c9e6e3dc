//! Step 1: which frames of a row are requests for the fast path, and the hashes of their keys.
//!
//! In: frames as they came. Out: their lanes, and their index buckets on the way to the cache. Frames
//! are only looked at. What a frame must have to be taken is what stages 3 to 5 ask of a plain `get`,
//! and a UDP checksum that was verified here: the reply's is made from it.

use super::sum::fold32;
use super::vector::{HEAD, KEY_BLOCK, Vector};
use super::{Pass, ROW, TEXT};
use crate::store::KeyHash;
use crate::wire::Plain;
use driver_shim::Frame;
use std::net::Ipv4Addr;

/// Bytes of a frame that are looked at.
pub(super) const LOOK: usize = 128;
/// First byte of the key.
pub(super) const KEY: usize = TEXT + b"get ".len();
/// UDP length of a request beside its key: headers, the verb and the line end.
const AROUND_KEY: usize = 8 + 8 + b"get ".len() + b"\r\n".len();
/// From the third byte of the memcached frame header on: whole, reserved bytes, verb.
const VERB: u64 = u64::from_le_bytes(*b"\0\x01\0\0get ");
/// Ports from which requests are looked at more closely reach up to here.
const CLOSE_LOOK_PORTS: u16 = 1900;
/// Trusted sources that are remembered.
const SOURCES: usize = 256;
/// No source's address, and an empty place of theirs.
const NOBODY: u32 = 0;
const _: () = assert!(place(1) != place(NOBODY));
/// UDP's number as it stands in a sum.
const UDP: u16 = 17u16.swap_bytes();

/// Where a trusted source is remembered.
#[inline(always)]
const fn place(src: u32) -> usize {
    (src.wrapping_mul(0x9e37_79b1) >> 24) as usize % SOURCES
}

/// What plain requests of a port look like, and who of those who sent some is trusted.
pub struct Requests {
    mask: [u8; HEAD],
    want: [u8; HEAD],
    /// Each at its [`place`]; elsewhere [`NOBODY`], and another such at the place of that.
    trusted: Box<[u32; SOURCES]>,
    plain: Plain,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
    /// Those of a port.
    pub fn new(plain: &Plain) -> Self {
        let (mut mask, mut want) = plain.head();
        // The first datagram, of one.
        for at in SEQUENCE..HEAD {
            mask[at] = 0xff;
            want[at] = u8::from(at == HEAD - 1);
        }
        let mut trusted = Box::new([NOBODY; SOURCES]);
        // So that not even 0.0.0.0 is where it would be looked for.
        trusted[place(NOBODY)] = 1;
        Self { mask, want, trusted, plain: plain.clone() }
    }

    pub(super) fn plain(&self) -> &Plain {
        &self.plain
    }

    #[inline(always)]
    fn trusts(&mut self, src: u32) -> bool {
        let place = place(src);
        self.trusted.get(place) == Some(&src) || self.learn(src, place)
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, src: u32, place: usize) -> bool {
        let trusted = self.plain.trusts(Ipv4Addr::from_bits(src.swap_bytes()));
        if trusted && let Some(place) = self.trusted.get_mut(place) {
            *place = src;
        }
        trusted
    }

    /// The length of the key that the frame asks for, if it is a request for the fast path.
    #[inline(always)]
    fn key_len(&mut self, frame: &Frame, look: &[u8; LOOK], vector: impl Vector) -> Option<usize> {
        let udp_len = usize::from(u16::from_be_bytes(*part(look, 38)));
        let total_len = usize::from(u16::from_be_bytes(*part(look, 16)));
        let port = u16::from_be_bytes(*part(look, 34));
        let src = u32::from_le_bytes(*part(look, 26));
        let len = udp_len.wrapping_sub(AROUND_KEY);
        let fits = vector.fits(part(look, 0), &self.mask, &self.want)
            && len.wrapping_sub(1) < KEY_BLOCK
            && udp_len + 20 == total_len
            && total_len + 14 <= frame.len()
            && u64::from_le_bytes(*part(look, TEXT - 4)) == VERB
            && *part(look, KEY + len) == *b"\r\n"
            && port > CLOSE_LOOK_PORTS
            && port != self.plain.local().service_port
            && u16::from_le_bytes(*part(look, 40)) != 0
            && vector.is_word(part(look, KEY), len)
            && self.trusts(src);
        (fits && sums_hold(look, udp_len, vector)).then_some(len)
    }
}

/// The sequence number of the memcached frame header.
const SEQUENCE: usize = 44;

/// Whether IPv4's checksum and UDP's are right.
#[inline(always)]
fn sums_hold(look: &[u8; LOOK], udp_len: usize, vector: impl Vector) -> bool {
    // Addresses and datagram stand side by side.
    let [header, covered] = vector.sums(part(look, 14), part(look, 26), udp_len + 8);
    let length = u16::from_le_bytes(*part(look, 38));
    let datagram = covered + u32::from(length) + u32::from(UDP);
    fold32(header) == 0xffff && fold32(datagram) == 0xffff
}

/// `N` bytes of `bytes` from `at` on; zeros, if they are not there.
#[inline(always)]
pub(super) fn part<const N: usize, const M: usize>(bytes: &[u8; M], at: usize) -> &[u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).unwrap_or(const { &[0; N] })
}

impl Pass<'_, '_> {
    /// Reads the requests of a row. `false`: none of them is for the fast path.
    #[inline(always)]
    pub(super) fn read_row(&mut self, row: usize, vector: impl Vector) -> bool {
        let mut keys = [[0; KEY_BLOCK]; ROW];
        let mut lens = [0; ROW];
        let (mut read, mut left) = (0, 0);
        let frames = self.burst.get(row * ROW..).unwrap_or_default();
        for n in 0..ROW {
            let Some(frame) = frames.get(n) else { break };
            let look = frame.window::<LOOK>().filter(|_| self.region.owns(frame));
            let key_len = look.and_then(|look| self.requests.key_len(frame, look, vector));
            let (Some(look), Some(len)) = (look, key_len) else {
                left |= 1u8 << n;
                continue;
            };
            keys[n] = *part(look, KEY);
            #[expect(clippy::cast_possible_truncation, reason = "at most KEY_BLOCK")]
            let len = len as u8;
            lens[n] = len;
            read |= 1 << n;
        }
        let store = self.guard.store();
        if read == 0 {
            return false;
        }
        if left != 0 {
            for (n, frame) in frames.iter().enumerate().take(ROW) {
                if left >> n & 1 == 1 {
                    self.order.note(frame.bytes(), self.requests.plain(), self.dialects, store);
                }
            }
        }
        let hashes = vector.hash(store, &keys, lens);
        for (n, hash) in hashes.into_iter().enumerate() {
            if self.order.holds_back(hash) {
                read &= !(1 << n);
            }
            store.prefetch_near(KeyHash(hash));
        }
        self.lanes.hash[row] = hashes;
        self.lanes.key_len[row] = lens;
        self.lanes.read |= read << (row * ROW);
        true
    }
}
