//! What an item is made of, and a value's bytes, in one piece or several.
//!
//! Enters: a client's bytes, or an item. Leaves: pieces, in order. Never fails.

use super::item::{HEADER_BYTES, ItemRef, PLACE_BYTES, TRAILER_BYTES, WHOLE_MAX_BYTES};
use super::marks::Marks;
use crate::wire::checksum;

/// What an item is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewItem<'a> {
    pub(super) key: &'a [u8],
    pub(super) flags: u32,
    /// On the store's clock.
    pub(super) expiry: u32,
    /// The value, in up to two pieces.
    pub(super) value: [Value<'a>; 2],
    /// The sums of those pieces, where the store has them ([`ItemRef::value_sum`]).
    pub(super) sums: [Option<u16>; 2],
    pub(super) marks: Marks,
}

impl NewItem<'_> {
    pub(super) fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }

    /// Bytes of slab memory needed, as if it all lay in one piece.
    pub(super) fn len_bytes(&self) -> usize {
        len_bytes(self.key.len(), self.value_len())
    }

    /// The sum of the value, `written` in one piece, read anew only as far as no sum of it is known.
    #[inline(always)]
    pub(super) fn sum(&self, written: &[u8]) -> u16 {
        if self.sums == [None, None] {
            return checksum::sum(written);
        }
        let (first, second) = written.split_at(self.value[0].len().min(written.len()));
        let [a, b] = self.sums;
        let a = a.unwrap_or_else(|| checksum::sum(first));
        let b = b.unwrap_or_else(|| checksum::sum(second));
        if first.len().is_multiple_of(2) {
            checksum::add(a, b)
        } else {
            checksum::add_swapped(a, b)
        }
    }

    /// [`n_parts`] of this one.
    pub(super) fn n_parts(&self, chunk: usize) -> usize {
        n_parts(self.key.len(), self.value_len(), chunk)
    }
}

/// Parts that a value of this length needs beside the item's own chunk, when each chunk has `chunk`
/// bytes.
pub(super) fn n_parts(key_len: usize, value_len: usize, chunk: usize) -> usize {
    if value_len <= WHOLE_MAX_BYTES {
        return 0;
    }
    let first = chunk - HEADER_BYTES - key_len - 2 * PLACE_BYTES;
    // Each further part takes a place in the list from the first.
    value_len.saturating_sub(first).div_ceil(chunk - HEADER_BYTES - PLACE_BYTES)
}

/// Bytes of slab memory that an item with a key and a value of these lengths needs.
#[inline]
pub(super) fn len_bytes(key_len: usize, value_len: usize) -> usize {
    HEADER_BYTES + key_len + value_len + TRAILER_BYTES
}

/// The bytes of a value.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// In one piece.
    Whole(&'a [u8]),
    /// A large one, in the parts of its item.
    Parts(ItemRef<'a>),
}

impl<'a> Value<'a> {
    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Parts(item) => item.value_len(),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are in one piece.
    pub fn whole(&self) -> Option<&'a [u8]> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Parts(_) => None,
        }
    }

    /// The pieces, in order.
    #[inline]
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (first, item) = match *self {
            Self::Whole(bytes) => (bytes, None),
            Self::Parts(item) => (item.first_part(), Some(item)),
        };
        let further = item.into_iter().flat_map(|i| (0..i.n_parts()).map(move |n| i.part(n)));
        std::iter::once(first).chain(further)
    }

    /// A copy of all of it.
    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces().collect::<Vec<_>>().concat()
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Whole(bytes)
    }
}

impl PartialEq<&[u8]> for Value<'_> {
    fn eq(&self, other: &&[u8]) -> bool {
        let mut rest = *other;
        self.len() == rest.len()
            && self.pieces().all(|piece| {
                let (head, tail) = rest.split_at(piece.len().min(rest.len()));
                rest = tail;
                head == piece
            })
    }
}
