//! Pages with chunks in them already: taken over from a store that ended, in its memory file.
//!
//! Enters: a page's class and how far it was carved, from wherever; bytes that nobody vouches
//! for. Leaves: a page of that class, each of its chunks free or in use, as whoever asks decides.
//! No chunk is believed before its bounds are checked. For several pages at a time, while nobody
//! else has the store; [`Slabs::fill_pool`] comes after the last. Fails: [`Broken`].

use super::{CLASS_SHIFT, ClassId, Location, PAGE_SHIFT, SizeClass, Slabs, State};
use crate::protocol::KEY_MAX_BYTES;
use crate::store::item::ItemRef;
use std::sync::atomic::Ordering;

/// A page, or an item in it, that no store can have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Broken;

/// The class and the carved chunks in a page word, if there can be such a page.
fn parts(word: u32, sizes: &[SizeClass]) -> Option<(ClassId, SizeClass, u32)> {
    let id = u8::try_from(word >> CLASS_SHIFT).ok()?.checked_sub(1)?;
    let carved = word & ((1 << CLASS_SHIFT) - 1);
    let size = *sizes.get(usize::from(id))?;
    (carved <= size.per_page).then_some((ClassId(id), size, carved))
}

/// Bytes of a page with this word that were ever given out.
pub(in crate::store) fn carved_bytes(word: u32, sizes: &[SizeClass]) -> Result<usize, Broken> {
    let (_, size, carved) = parts(word, sizes).ok_or(Broken)?;
    Ok(carved as usize * size.bytes())
}

impl Slabs {
    /// The page's class and how far it is carved, as [`Self::adopt`] takes it; 0 when nobody has it.
    pub(in crate::store) fn page_word(&self, page: u32) -> u32 {
        self.words.get(page as usize).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Gives the page to the class of its `word`. `keep` is asked about each item in it.
    pub(in crate::store) fn adopt(
        &self,
        page: u32,
        word: u32,
        mut keep: impl FnMut(Location, ItemRef<'_>) -> Result<bool, Broken>,
    ) -> Result<(), Broken> {
        let (id, size, carved) = parts(word, &self.sizes).ok_or(Broken)?;
        if page >= self.n_pages() || self.page(page).is_some() {
            return Err(Broken);
        }
        // First, because an item is looked at again, by its location, when another comes into its
        // index bucket. Only those that `keep` saw are in the index.
        self.words[page as usize].store(word, Ordering::Release);
        let location = |n| Location((page << PAGE_SHIFT) + n * size.units);
        let (mut used, mut bytes) = (0, 0);
        for n in 0..carved {
            let chunk = self.chunk(location(n));
            let kept = match chunk.item() {
                None => false,
                Some(item) if !item.fits(size.bytes(), KEY_MAX_BYTES) => return Err(Broken),
                Some(item) => {
                    let kept = keep(location(n), item)?;
                    if kept {
                        used += 1;
                        bytes += item.len_bytes() as u64;
                    }
                    kept
                }
            };
            if !kept {
                chunk.set_state(State::Free);
            }
        }
        let mut class = self.lock(id);
        self.enter_ring(&mut class, page);
        if carved < size.per_page {
            while self.carve(&mut class) {}
            class.carving = page;
        }
        class.used += used;
        class.tally.stored += u64::from(used);
        class.tally.bytes += bytes;
        for loc in (0..carved).rev().map(location) {
            if self.chunk(loc).item().is_none() {
                self.push(&mut class, loc);
            }
        }
        Ok(())
    }
}
