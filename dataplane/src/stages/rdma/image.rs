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
    tail: Tail,
    end: usize,
}

impl<'a> Image<'a> {
    /// Of what a READ up to `end` gets of this item; `cas` is its CAS id, as clients see it.
    #[inline(always)]
    pub(super) fn new(
        item: Option<&ItemRef<'a>>,
        cas: u64,
        now: u32,
        end: usize,
        vector: impl Vector,
    ) -> Self {
        let Some(item) = item else {
            let head = Head { status: MISS, ..Head::default() };
            return Self::of(head, &[], end, vector);
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
        Self::of(head, whole.unwrap_or_default(), end, vector)
    }

    #[inline(always)]
    fn of(head: Head, held: &'a [u8], end: usize, vector: impl Vector) -> Self {
        let version = head.version.get().to_be_bytes();
        let [.., a, b, c, d] = version;
        let crc = vector.crc_behind(version, held).into();
        let tail = Tail { version: u32::from_be_bytes([a, b, c, d]).into(), crc };
        Self { head, held, tail, end }
    }

    /// Writes the bytes from `at` on over all of `out`.
    #[inline]
    pub(super) fn copy(&self, at: usize, out: &mut [u8]) {
        if at == 0 && out.len() == self.end {
            self.copy_all(out);
        } else {
            self.copy_piece(at, out);
        }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.end
    }

    /// [`Self::copy`] of all that there is. `None`: `out` is not as long.
    #[inline(always)]
    pub(super) fn copy_all(&self, out: &mut [u8]) -> Option<()> {
        let (head, rest) = out.split_first_chunk_mut::<HEAD_BYTES>()?;
        let (rest, tail) = rest.split_last_chunk_mut::<TAIL_BYTES>()?;
        head.copy_from_slice(self.head.as_bytes());
        tail.copy_from_slice(self.tail.as_bytes());
        let (held, zeros) = rest.split_at_mut_checked(self.held.len())?;
        small_bytes::copy(held, self.held);
        if !zeros.is_empty() {
            zeros.fill(0);
        }
        Some(())
    }

    fn copy_piece(&self, at: usize, out: &mut [u8]) {
        let behind = at + out.len();
        let (mut from, mut rest) = (at, &mut *out);
        for part in [self.head.as_bytes(), self.held] {
            match part.get(from..) {
                Some(part) => {
                    let (now, later) = rest.split_at_mut(part.len().min(rest.len()));
                    now.copy_from_slice(part.get(..now.len()).unwrap_or_default());
                    (from, rest) = (0, later);
                }
                None => from -= part.len(),
            }
        }
        rest.fill(0);
        // The end may lie in this piece in whole or in part.
        let tail = self.end.saturating_sub(TAIL_BYTES);
        if at <= tail && behind == self.end {
            if let Some(place) = out.last_chunk_mut::<TAIL_BYTES>() {
                place.copy_from_slice(self.tail.as_bytes());
            }
        } else if behind > tail {
            for (n, byte) in self.tail.as_bytes().iter().enumerate() {
                let place = (tail + n).checked_sub(at).and_then(|n| out.get_mut(n));
                if let Some(place) = place {
                    *place = *byte;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::vector::Portable;

    fn image(end: usize) -> Image<'static> {
        let head = Head { status: HIT, version: 0x0102_0304_0506_0708.into(), ..Head::default() };
        Image::of(head, b"keyvalue", end, Portable)
    }

    #[test]
    fn any_pieces_put_together_are_the_whole() {
        for end in 48..120 {
            let image = image(end);
            let mut whole = vec![0xaa; end];
            image.copy(0, &mut whole);
            let version = image.head.version;
            assert_eq!(&whole[24..32], version.as_bytes());
            assert_eq!(&whole[32..40], b"keyvalue");
            assert!(whole[40..end - 8].iter().all(|b| *b == 0));
            assert_eq!(&whole[end - 8..end - 4], &version.as_bytes()[4..]);
            let crc = crc32fast::hash(&[version.as_bytes(), b"keyvalue"].concat());
            assert_eq!(whole[end - 4..], crc.to_be_bytes());
            for step in 1..end {
                let mut pieces = Vec::new();
                for at in (0..end).step_by(step) {
                    let mut piece = vec![0xbb; step.min(end - at)];
                    image.copy(at, &mut piece);
                    pieces.extend(piece);
                }
                assert_eq!(pieces, whole, "{end} in steps of {step}");
            }
        }
    }

    #[test]
    fn a_miss_is_a_status_and_zeros() {
        let mut bytes = [0xaa; 64];
        Image::new(None, 0, 0, 64, Portable).copy(0, &mut bytes);
        assert_eq!(bytes[0], MISS);
        assert!(bytes[1..60].iter().all(|b| *b == 0));
        assert_eq!(bytes[60..], crc32fast::hash(&[0; 8]).to_be_bytes());
    }
}
