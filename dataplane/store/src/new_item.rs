//! What an item is made of.
//!
//! In: a client's bytes, or pieces of items that are there. Out: how much memory that needs, and
//! the sum of its value. Never fails.

use super::item::Value;
use super::item_flags::Marks;
use super::layout::{OWN_CAS_BYTES, len_bytes, n_parts};
use base::checksum;

/// What an item is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewItem<'a> {
    pub(super) key: &'a [u8],
    pub(super) flags: u32,
    /// On the store's clock.
    pub(super) expiry: u32,
    /// The value, in up to two pieces.
    pub(super) value: [Value<'a>; 2],
    /// The sums of those pieces, where the store has them ([`ItemRef::value_sum`](crate::ItemRef::value_sum)).
    pub(super) sums: [Option<u16>; 2],
    pub(super) marks: Marks,
    /// The client's own CAS id.
    pub(super) own_cas: Option<u64>,
}

/// The usual one: its value is in one piece, and short enough for one chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlainItem<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    /// The sum of the value, if it is known.
    pub(super) sum: Option<u16>,
    pub(super) flags: u32,
    /// On the store's clock.
    pub(super) expiry: u32,
}

impl PlainItem<'_> {
    /// Bytes of slab memory needed.
    #[inline(always)]
    pub(super) fn len_bytes(&self) -> usize {
        len_bytes(self.key.len(), self.value.len())
    }
}

impl NewItem<'_> {
    pub(super) fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }

    /// Bytes of slab memory needed, as if it all lay in one piece.
    pub(super) fn len_bytes(&self) -> usize {
        let own_cas = if self.own_cas.is_some() { OWN_CAS_BYTES } else { 0 };
        len_bytes(self.key.len(), self.value_len()) + own_cas
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
