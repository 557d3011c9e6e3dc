//! Where an item lies in the memory file, for clients that read it there.
//!
//! In: a key, under a guard. Out: its item's place, and what proves that it is still there. `None`: there is no
//! live item, or it lies in several chunks, or clients do not read here. Never fails.

use super::hash::KeyHash;
use super::layout::{PAGE_SHIFT, UNIT_BYTES};
use super::session::Guard;
use super::store::Store;
use base::memory_file::{LEAD_BYTES, Place};

impl Store {
    /// Whether clients read items in the memory file.
    pub fn has_places(&self) -> bool {
        self.published.is_some()
    }
}

impl Guard<'_> {
    /// Where the live item with this key lies. It is not marked as read.
    #[cold]
    pub fn place(&self, hash: KeyHash, key: &[u8]) -> Option<Place> {
        let store = self.store();
        let published = store.published.as_ref()?;
        let (loc, item) = self.present(hash, key)?;
        if !store.is_live(&item) || item.is_large() {
            return None;
        }
        let offset = LEAD_BYTES as u64 + u64::from(loc.0) * UNIT_BYTES as u64;
        // The page is still in the class that the item was found in: it does not leave while this guard is pinned
        // and the item in it, so the number is of this stay.
        let left = published.times_left(loc.0 >> PAGE_SHIFT);
        Some(Place { generation: published.generation(), offset, left, number: item.sequence() })
    }
}
