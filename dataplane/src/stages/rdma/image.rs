//! What a stag stands for: the bytes that a READ of it gets.
//!
//! ```text
//!  0  status 1 | key length 1 | 0 2 | value length 4 | flags 4 | seconds left 4 | CAS id 8 | version 8
//! 32  key | value | zeros, as far as the READ reaches
//!     low half of the version 4 | CRC-32 of version, key and value 4, at the end
//! ```
//!
//! In: an item, or none, and where the READ ends. Out: any piece of those bytes. Numbers are in network
//! order. The version is the item's own and no other's: a READ that was resumed has the same one at both
//! ends only if they are of one item. Where the network reorders packets, what lies between can be of another
//! all the same, and then the CRC shows it. Never fails.

use crate::plain::vector::Vector;
use crate::rdma::{HEAD_BYTES, TAIL_BYTES};
use base::crc32::pieces::{Message, Piece};
use base::small_bytes;
use store::ItemRef;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

/// The item is here.
const HIT: u8 = 0;
/// There is no such item.
const MISS: u8 = 1;
/// The item is longer than the READ: all of the head but no key and no value.
const LONGER: u8 = 2;

/// Field map of the head.
#[derive(Debug, Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Head {
    status: u8,
    key_len: u8,
    reserved: U16,
    value_len: U32,
    flags: U32,
    /// All ones: it never expires.
    seconds_left: U32,
    cas: U64,
    version: U64,
}

/// Field map of the end.
#[derive(Debug, Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Tail {
    version: U32,
    /// Over nothing that can change while the item stays.
    crc: U32,
}

const _: () = assert!(size_of::<Head>() == HEAD_BYTES && size_of::<Tail>() == TAIL_BYTES);

/// The bytes that a READ gets.
#[derive(Debug)]
pub(super) struct Image<'a> {
    head: Head,
    /// Key and value.
    held: &'a [u8],
    end: usize,
}

impl<'a> Image<'a> {
    /// Of what a READ up to `end` gets of this item; `cas` is its CAS id, as clients see it.
    #[inline(always)]
    pub(super) fn new(item: Option<&ItemRef<'a>>, cas: u64, now: u32, end: usize) -> Self {
        let Some(item) = item else {
            return Self { head: Head { status: MISS, ..Head::default() }, held: &[], end };
        };
        let room = end.saturating_sub(HEAD_BYTES + TAIL_BYTES);
        let whole = item.key_and_value().filter(|held| held.len() <= room);
        let seconds_left = match item.expiry() {
            0 => u32::MAX,
            expiry => expiry.saturating_sub(now),
        };
        let head = Head {
            status: if whole.is_some() { HIT } else { LONGER },
            key_len: item.key_len(),
            reserved: 0.into(),
            value_len: u32::try_from(item.value().len()).unwrap_or(u32::MAX).into(),
            flags: item.flags().into(),
            seconds_left: seconds_left.into(),
            cas: cas.into(),
            version: item.sequence().into(),
        };
        Self { head, held: whole.unwrap_or_default(), end }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.end
    }

    /// Writes all of them. `None`: `out` is not as long.
    #[inline(always)]
    pub(super) fn copy(&self, out: &mut [u8], vector: impl Vector) -> Option<()> {
        let (head, rest) = out.split_first_chunk_mut::<HEAD_BYTES>()?;
        let (rest, tail) = rest.split_last_chunk_mut::<TAIL_BYTES>()?;
        head.copy_from_slice(self.head.as_bytes());
        let crc = vector.crc_behind(self.version(), self.held);
        tail.copy_from_slice(self.tail(crc).as_bytes());
        let (held, zeros) = rest.split_at_mut_checked(self.held.len())?;
        small_bytes::copy(held, self.held);
        if !zeros.is_empty() {
            zeros.fill(0);
        }
        Some(())
    }

    /// The bytes from `at` on, in pieces.
    pub(super) fn pieces(&self, at: usize) -> Pieces<'_> {
        let before = self.held.get(..at.saturating_sub(HEAD_BYTES)).unwrap_or(self.held);
        let crc = Message::NEW.then(Piece::of(&self.version())).then(Piece::of(before));
        Pieces { image: self, at, crc }
    }

    fn version(&self) -> [u8; 8] {
        self.head.version.get().to_be_bytes()
    }

    fn tail(&self, crc: u32) -> Tail {
        let [.., a, b, c, d] = self.version();
        Tail { version: u32::from_be_bytes([a, b, c, d]).into(), crc: crc.into() }
    }
}

/// What is left of an image.
#[derive(Debug)]
pub(super) struct Pieces<'i> {
    image: &'i Image<'i>,
    at: usize,
    /// What the CRC at the end is over, as far as `at`.
    crc: Message,
}

impl Pieces<'_> {
    /// Writes the next bytes over all of `out`, or as many as there are, and says what they add to a CRC.
    #[inline]
    pub(super) fn copy(&mut self, out: &mut [u8]) -> Piece {
        let Image { head, held, end } = self.image;
        let tail_at = end.checked_sub(TAIL_BYTES).unwrap_or(*end);
        let (mut written, mut rest) = (Piece::default(), out);
        while !rest.is_empty() && self.at < *end {
            let part = |bytes: &[u8], begin: usize, rest: &mut [u8]| {
                let part = bytes.get(self.at - begin..).unwrap_or_default();
                Piece::copied(part, rest)
            };
            let piece = if self.at >= tail_at {
                part(self.image.tail(self.crc.crc()).as_bytes(), tail_at, rest)
            } else if self.at < HEAD_BYTES {
                let head = head.as_bytes();
                part(head.get(..tail_at).unwrap_or(head), 0, rest)
            } else if self.at - HEAD_BYTES < held.len() {
                let piece = part(held, HEAD_BYTES, rest);
                self.crc = self.crc.then(piece);
                piece
            } else {
                let len = rest.len().min(tail_at - self.at);
                rest.get_mut(..len).unwrap_or_default().fill(0);
                Piece::zeros(len)
            };
            if piece.is_empty() {
                break;
            }
            self.at += piece.len();
            written = written.then(piece);
            rest = rest.get_mut(piece.len()..).unwrap_or_default();
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::vector::Portable;

    fn image(end: usize) -> Image<'static> {
        let head = Head { status: HIT, version: 0x0102_0304_0506_0708.into(), ..Head::default() };
        Image { head, held: b"keyvalue", end }
    }

    #[test]
    fn any_pieces_put_together_are_the_whole() {
        for end in 48..120 {
            let image = image(end);
            let mut whole = vec![0xaa; end];
            image.copy(&mut whole, Portable).unwrap();
            let version = image.head.version;
            assert_eq!(&whole[24..32], version.as_bytes());
            assert_eq!(&whole[32..40], b"keyvalue");
            assert!(whole[40..end - 8].iter().all(|b| *b == 0));
            assert_eq!(&whole[end - 8..end - 4], &version.as_bytes()[4..]);
            let crc = crc32fast::hash(&[version.as_bytes(), b"keyvalue"].concat());
            assert_eq!(whole[end - 4..], crc.to_be_bytes());
            for step in 1..end + 2 {
                for begin in (0..end).step_by(7) {
                    let (mut pieces, mut got) = (image.pieces(begin), Vec::new());
                    for at in (begin..end).step_by(step) {
                        let mut piece = vec![0xbb; step.min(end - at)];
                        let written = pieces.copy(&mut piece);
                        assert_eq!(written.len(), piece.len());
                        assert_eq!(Message::NEW.then(written).crc(), crc32fast::hash(&piece));
                        got.extend(piece);
                    }
                    assert_eq!(got, whole[begin..], "{begin} to {end} in steps of {step}");
                    assert_eq!(pieces.copy(&mut [0; 4]).len(), 0);
                }
            }
        }
    }

    #[test]
    fn a_read_of_less_than_a_head_gets_the_end_over_it() {
        let mut whole = [0xaa; 20];
        assert_eq!(image(20).pieces(0).copy(&mut whole).len(), 20);
        assert_eq!(whole[..12], image(20).head.as_bytes()[..12]);
        assert_eq!(whole[12..16], [5, 6, 7, 8]);
        assert_eq!(image(7).pieces(0).copy(&mut whole).len(), 7);
        assert_eq!(whole[..7], image(7).head.as_bytes()[..7]);
    }

    #[test]
    fn a_miss_is_a_status_and_zeros() {
        let mut bytes = [0xaa; 64];
        Image::new(None, 0, 0, 64).pieces(0).copy(&mut bytes);
        assert_eq!(bytes[0], MISS);
        assert!(bytes[1..60].iter().all(|b| *b == 0));
        assert_eq!(bytes[60..], crc32fast::hash(&[0; 8]).to_be_bytes());
    }
}
