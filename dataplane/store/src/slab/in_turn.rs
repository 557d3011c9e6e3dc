//! Chunks given out in turn, where eviction goes round: the next free one of a class.
//!
//! ```text
//! collected ─► map of free chunks ─► first one from the hand on, round the pages ─► free list ─► pop
//! ```
//!
//! In: chunks of a locked class, as they come back. Out: at most one of them at a time on the class's free
//! lists, so that [`Slabs::pop`] takes that one and no other. Such a class has no free chunk else, and so
//! comes here for each; classes that evict by recency never do. Fails: no chunk is free.

use super::{Class, Slabs, get, put};
use crate::item::Location;
use crate::layout::{NIL, PAGE_SHIFT, PAGE_UNITS};

impl Slabs {
    /// Whether chunks are given out in turn.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.free_map.is_some()
    }

    /// Notes that a chunk is free that is not to be on a free list.
    #[cold]
    pub(super) fn note_free(&self, class: &mut Class, loc: Location) {
        let page = loc.0 >> PAGE_SHIFT;
        if let Some(map) = &self.free_map
            && get(&self.pages[page as usize].draining) != 1
            && let Some(chunk) = class.size.chunk_at(loc.0 & (PAGE_UNITS - 1))
        {
            map.flip(page, chunk);
            class.free_in_turn += 1;
        }
    }

    /// Puts the first free chunk from the hand on where [`Self::pop`] takes it, and the hand behind it. The
    /// caller takes it before it gives up the lock. False: none is free.
    pub(crate) fn offer_next(&self, class: &mut Class) -> bool {
        let Some(map) = self.free_map.as_ref().filter(|_| class.free_in_turn > 0) else {
            return false;
        };
        let (mut page, mut from) = (class.hand_page, class.hand_chunk);
        // The hand's page comes again in the end, for what is before the hand.
        for _ in 0..=class.pages {
            let here = &self.pages[page as usize];
            let free = get(&here.draining) != 1 && get(&here.free_count) > 0;
            if let Some(chunk) = free.then(|| map.first(page, from)).flatten() {
                map.flip(page, chunk);
                class.free_in_turn -= 1;
                (class.hand_page, class.hand_chunk) = (page, chunk + 1);
                put(&here.free_head, (page << PAGE_SHIFT) + chunk * class.size.units);
                class.avail_head = NIL;
                self.enter_avail(class, page);
                class.free = 1;
                return true;
            }
            (page, from) = (get(&here.ring_next), 0);
        }
        false
    }
}
