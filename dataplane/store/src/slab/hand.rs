//! A class's hand: where it is in the ring of the class's pages, and what lies ahead of it; and the
//! queue of newcomers, whose turn may come before.
//!
//! In: a locked class. Out: places of chunks, in the order in which the class evicts. Fails:
//! a class without chunks has no place.

use super::{Class, Slabs, get};
use crate::layout::{PAGE_SHIFT, PAGE_UNITS};

impl Slabs {
    /// The next place of the class's hand: a page and the number of a chunk in it.
    pub(crate) fn hand(&self, class: &mut Class) -> Option<(u32, u32)> {
        if class.pages == 0 {
            return None;
        }
        for _ in 0..=class.pages {
            let page = class.hand_page;
            let draining = get(&self.pages[page as usize].draining) == 1;
            let carved = self.page(page).map_or(0, |(_, carved)| carved);
            if !draining && class.hand_chunk < carved {
                class.hand_chunk += 1;
                return Some((page, class.hand_chunk - 1));
            }
            class.hand_page = get(&self.pages[page as usize].ring_next);
            class.hand_chunk = 0;
        }
        None
    }

    /// Puts the hand behind the page at which it is.
    pub(crate) fn pass_page(&self, class: &mut Class) {
        if class.pages > 1 {
            class.hand_page = get(&self.pages[class.hand_page as usize].ring_next);
            class.hand_chunk = 0;
        }
    }

    /// When the item was last read that the class would evict next, or soon: the earliest time
    /// among those that the hand would look at in its next `steps`. The hand stays where it is.
    pub(crate) fn oldest_access(&self, class: &mut Class, steps: u32) -> Option<u32> {
        let hand = (class.hand_page, class.hand_chunk);
        let mut oldest: Option<u32> = None;
        for _ in 0..steps.min(class.chunks()) {
            let Some((page, chunk)) = self.hand(class) else { break };
            let accessed = self.with_item(class, page, chunk, |_, _, item| item.accessed());
            oldest = accessed.into_iter().chain(oldest).min();
        }
        (class.hand_page, class.hand_chunk) = hand;
        oldest
    }

    /// Takes the class's oldest newcomer out of the queue: a page, the number of a chunk in it,
    /// and the ticket of the item that is meant.
    pub(crate) fn newcomer(&self, class: &mut Class) -> Option<(u32, u32, u32)> {
        while let Some((loc, ticket)) = class.queue.pop() {
            if let Some(n) = class.size.chunk_at(loc.0 & (PAGE_UNITS - 1)) {
                return Some((loc.0 >> PAGE_SHIFT, n, ticket));
            }
        }
        None
    }
}
