//! Pages with chunks in them already: taken over from a store that ended, in its memory file.
//!
//! In: each page's class and how far it was carved, and untrusted bytes. Out:
//! pages of their classes, each chunk free or in use, as the caller decides. No chunk is believed
//! before its bounds are checked. In three steps, each for all pages, while no other thread uses the
//! store: [`Slabs::adopt`], [`Slabs::pick_items`], [`Slabs::settle`], and then
//! [`Slabs::fill_pool`]. The second is the one that takes long, and may be done by several threads
//! for different pages. Fails: [`Broken`].

use super::{CLASS_SHIFT, ClassId, Location, SizeClass, Slabs, State};
use crate::item::ItemRef;
use crate::layout::{HEADER_BYTES, PAGE_SHIFT};
use std::sync::atomic::Ordering;

/// A page, or an item in it, that no store can have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// The class and the carved chunks in a page word, if there can be such a page.
fn parts(word: u32, sizes: &[SizeClass]) -> Option<(ClassId, SizeClass, u32)> {
    let id = u8::try_from(word >> CLASS_SHIFT).ok()?.checked_sub(1)?;
    let carved = word & ((1 << CLASS_SHIFT) - 1);
    let size = *sizes.get(usize::from(id))?;
    (carved <= size.per_page).then_some((ClassId(id), size, carved))
}

/// Bytes of a page with this word that were ever given out.
pub(crate) fn carved_bytes(word: u32, sizes: &[SizeClass]) -> Result<usize, Broken> {
    let (_, size, carved) = parts(word, sizes).ok_or(Broken)?;
    Ok(carved as usize * size.bytes())
}

impl Slabs {
    /// The page's class and how far it is carved, as [`Self::adopt`] takes it; 0 when no class has it.
    pub(crate) fn page_word(&self, page: u32) -> u32 {
        self.words.get(page as usize).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The memory of all pages, in their order.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        self.arena.bytes_mut()
    }

    /// Gives the page to the class of its `word`, as far as looks go: chunks are found there.
    pub(crate) fn adopt(&self, page: u32, word: u32) -> Result<(), Broken> {
        parts(word, &self.sizes).ok_or(Broken)?;
        let place = self.words.get(page as usize).ok_or(Broken)?;
        place.store(word, Ordering::Release);
        Ok(())
    }

    fn locations(&self, page: u32) -> impl Iterator<Item = Location> + use<> {
        let (units, carved) = self.page(page).map_or((0, 0), |(id, n)| (self.size(id).units, n));
        (0..carved).map(move |n| Location((page << PAGE_SHIFT) + n * units))
    }

    /// Calls `keep` with each item in the page, and adds the parts of those that are kept to
    /// `parts`. To be called when all pages are adopted, and before any is settled.
    pub(crate) fn pick_items(
        &self,
        page: u32,
        mut keep: impl FnMut(Location, ItemRef<'_>) -> Result<bool, Broken>,
        parts: &mut Vec<u32>,
    ) -> Result<(), Broken> {
        let Some((id, _)) = self.page(page) else { return Ok(()) };
        for loc in self.locations(page) {
            let chunk = self.chunk(loc);
            let Some(item) = chunk.item() else { continue };
            if !item.fits(self.size(id).bytes()) || !self.is_whole(id, loc, &item) {
                return Err(Broken);
            }
            if keep(loc, item)? {
                parts.extend((0..item.n_parts()).map(|n| loc.0.wrapping_add(item.part_place(n))));
            } else {
                chunk.set_state(State::Free);
            }
        }
        Ok(())
    }

    /// Whether the parts of the item are parts of it, in the same class, and make up its value.
    /// A part that is listed twice is not found out here.
    fn is_whole(&self, id: ClassId, loc: Location, item: &ItemRef<'_>) -> bool {
        if !item.is_large() {
            return true;
        }
        let n_parts = item.n_parts();
        let mut left = item.value_len().checked_sub(item.first_part().len());
        for n in 0..n_parts {
            let place = Location(loc.0.wrapping_add(item.part_place(n)));
            if self.class_of(place) != Some(id) {
                return false;
            }
            let Some(part) = self.chunk(place).part() else { return false };
            if part.flags() != loc.0 || part.value_len() > self.size(id).bytes() - HEADER_BYTES {
                return false;
            }
            left = left.and_then(|left| left.checked_sub(part.value_len()));
        }
        left == Some(0) && Some(id) == self.large_class()
    }

    /// Enters the page in the books of its class: items, and those of `parts` (in order) that lie
    /// in it, are in use, all other chunks free.
    pub(crate) fn settle(&self, page: u32, parts: &[u32]) {
        let Some((id, carved)) = self.page(page) else { return };
        let mut class = self.lock(id);
        self.enter_ring(&mut class, page);
        if carved < class.size.per_page {
            while self.carve(&mut class) {}
            class.carving = page;
        }
        // The last one first, so that the first one comes to lie on top of the free list.
        for loc in self.locations(page).collect::<Vec<_>>().into_iter().rev() {
            if let Some(item) = self.chunk(loc).item() {
                class.used += 1;
                class.tally.stored += 1;
                class.tally.bytes += item.len_bytes() as u64;
            } else if parts.binary_search(&loc.0).is_ok() {
                class.used += 1;
                class.parts += 1;
            } else {
                self.push(&mut class, loc);
            }
        }
        while self.is_in_turn() && self.carve(&mut class) {}
    }
}
