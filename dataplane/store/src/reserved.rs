//! Chunks for a burst of plain items, taken under one lock for all of a size class in a row.
//!
//! In: the lengths of keys and values to come, then the items. Out: items in the index, without a lock of a
//! class each. What is not used is given back. Fails: where no chunk is to be had at once, the item is made by
//! itself ([`write`](super::write)).
#![allow(unsafe_code)]

use super::Store;
use super::hash::KeyHash;
use super::index::Expect;
use super::item::Location;
use super::item_flags::Inherits;
use super::layout::{WHOLE_MAX_BYTES, len_bytes};
use super::new_item::PlainItem;
use super::slab::{Class, Unlinked};
use arrayvec::ArrayVec;
use base::KEY_MAX_BYTES;
use parking_lot::MutexGuard;

/// A chunk for an item with a key and a value of these lengths, which are within bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reserved {
    loc: Location,
    key_len: u32,
    value_len: u32,
}

impl Reserved {
    fn len_bytes(self) -> usize {
        len_bytes(self.key_len as usize, self.value_len as usize)
    }
}

impl Store {
    /// Takes a chunk for each of these items, with the lengths of its key and its value, under one lock for all
    /// of a class. It ends where there is none to be had at once, at an item that may be large or too large, or
    /// when `reserved` is full.
    #[inline(always)]
    pub(super) fn reserve_chunks<const N: usize>(
        &self,
        mut items: impl Iterator<Item = (usize, usize)>,
        reserved: &mut ArrayVec<Reserved, N>,
    ) {
        let mut next = items.next();
        let mut held: Option<MutexGuard<'_, Class>> = None;
        while let Some((key_len, value_len)) = next {
            // With client flags it is longest.
            let is_whole = key_len + value_len <= WHOLE_MAX_BYTES;
            if !is_whole
                || !(1..=KEY_MAX_BYTES).contains(&key_len)
                || !self.fits(key_len, 1, value_len)
            {
                next = items.next();
                continue;
            }
            let len_bytes = len_bytes(key_len, value_len);
            let Some(id) = self.slabs.class_for(len_bytes) else { break };
            // Those behind it that are as long.
            let mut n = 1;
            next = items.next();
            while next == Some((key_len, value_len)) {
                n += 1;
                next = items.next();
            }
            held = held.filter(|class| class.id == id);
            let class = held.get_or_insert_with(|| self.slabs.lock(id));
            n = n.min(u32::try_from(reserved.remaining_capacity()).unwrap_or(0));
            let [key_len, value_len] = [key_len, value_len].map(|n| u32::try_from(n).unwrap_or(0));
            let to = |loc| reserved.push(Reserved { loc, key_len, value_len });
            let all = self.take_chunks(class, n, len_bytes, to);
            // A class without a page is lent chunks, one at a time.
            if !all && class.pages > 0 || reserved.is_full() {
                break;
            }
        }
    }

    /// Makes and links an item in the next of these chunks, of which so many are taken, in the place of whatever is
    /// there. `None`: none is left, or it is for other lengths, or there is no place in the index; nothing was done.
    #[inline(always)]
    pub(super) fn put_reserved(
        &self,
        hash: KeyHash,
        new: PlainItem<'_>,
        reserved: &[Reserved],
        taken: &mut usize,
    ) -> Option<(u64, Option<Unlinked>)> {
        let chunk = *reserved.get(*taken)?;
        if chunk.key_len as usize != new.key.len() || chunk.value_len as usize != new.value.len() {
            return None;
        }
        let loc = chunk.loc;
        *taken += 1;
        let sequence = self.next_in_sequence();
        // SAFETY: popped by `reserve_chunks` for these lengths, which it has checked, and taken by none before.
        unsafe { self.slabs.write_plain(loc, new, sequence, self.now()) };
        self.note_expiry(new.expiry);
        match self.swap(hash, new.key, Some((loc, Inherits::default())), Expect::Any) {
            Ok(old) => Some((sequence, old)),
            Err(_) => {
                self.give_back([chunk]);
                None
            }
        }
    }

    /// Gives back what [`Self::reserve_chunks`] took.
    #[cold]
    pub(super) fn give_back(&self, reserved: impl IntoIterator<Item = Reserved>) {
        for chunk in reserved {
            // SAFETY: popped by `reserve_chunks` for so many bytes, not linked (what is, counts as taken),
            // and given up by the caller, which empties its list.
            unsafe { self.slabs.give_back(chunk.loc, chunk.len_bytes()) };
        }
    }
}
