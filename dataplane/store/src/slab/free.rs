//! Free chunks: each page has a list of its own, each class a list of its pages that have some.
//!
//! In: a locked class, and chunks that no reader can see any more. Out: chunks that are the
//! caller's alone, and whether a whole page has become free. Fails: a class without a free chunk has
//! none to give.

use super::{Class, Slabs, get, put};
use crate::item::{ItemRef, Location, State};
use crate::layout::{NIL, PAGE_SHIFT};

impl Slabs {
    /// Takes a chunk out of the free lists, for a new item; it is the caller's alone and in state
    /// `writing`.
    #[inline(always)]
    pub(crate) fn pop(&self, class: &mut Class, bytes: usize) -> Option<Location> {
        let loc = self.take(class, bytes)?;
        class.tally.stored += 1;
        self.chunk(loc).set_next(class.queue.push(loc));
        Some(loc)
    }

    /// [`Self::pop`] for `n` items of so many bytes each, of a class that has as many free chunks.
    #[inline(always)]
    pub(crate) fn pop_several(
        &self,
        class: &mut Class,
        n: u32,
        bytes: usize,
        mut to: impl FnMut(Location),
    ) {
        let mut left = n.min(class.free);
        class.free -= left;
        class.used += left;
        class.tally.stored += u64::from(left);
        class.tally.bytes += bytes as u64 * u64::from(left);
        // Away for so long, so that it is in registers.
        let mut queue = std::mem::take(&mut class.queue);
        while left > 0 {
            let page = &self.pages[class.avail_head as usize];
            let (mut head, free) = (get(&page.free_head), get(&page.free_count));
            let here = free.min(left);
            for _ in 0..here {
                let chunk = self.chunk(Location(head));
                let loc = Location(std::mem::replace(&mut head, chunk.next()));
                chunk.set_state(State::Writing);
                chunk.set_next(queue.push(loc));
                to(loc);
            }
            put(&page.free_head, head);
            put(&page.free_count, free - here);
            if here == free {
                self.leave_avail(class, class.avail_head);
            }
            left -= here;
        }
        class.queue = queue;
    }

    /// [`Self::pop`] for an item that is there already. One of this class keeps its ticket; one that `comes` from
    /// another gets its own.
    pub(crate) fn pop_for_move(
        &self,
        class: &mut Class,
        item: &ItemRef<'_>,
        comes: bool,
    ) -> Option<Location> {
        let loc = self.take(class, item.len_bytes())?;
        let ticket = if comes { class.queue.push(loc) } else { item.ticket() };
        self.chunk(loc).set_next(ticket);
        Some(loc)
    }

    /// Takes a chunk out of the free lists.
    #[inline(always)]
    pub(super) fn take(&self, class: &mut Class, bytes: usize) -> Option<Location> {
        if class.free == 0 && !self.carve(class) {
            return None;
        }
        let page = &self.pages[class.avail_head as usize];
        let loc = Location(get(&page.free_head));
        let chunk = self.chunk(loc);
        put(&page.free_head, chunk.next());
        let free = get(&page.free_count) - 1;
        put(&page.free_count, free);
        if free == 0 {
            self.leave_avail(class, class.avail_head);
        }
        class.free -= 1;
        class.used += 1;
        class.tally.bytes += bytes as u64;
        chunk.set_state(State::Writing);
        Some(loc)
    }

    /// Puts a chunk on the free list of its page. True when the whole page is free.
    pub(super) fn push(&self, class: &mut Class, loc: Location) -> bool {
        let n = loc.0 >> PAGE_SHIFT;
        let page = &self.pages[n as usize];
        let chunk = self.chunk(loc);
        chunk.set_state(State::Free);
        chunk.set_next(get(&page.free_head));
        put(&page.free_head, loc.0);
        let free = get(&page.free_count) + 1;
        put(&page.free_count, free);
        if get(&page.draining) != 0 {
            self.note_free(class, loc);
            return false;
        }
        class.free += 1;
        if free == 1 {
            self.enter_avail(class, n);
        }
        free == class.size.per_page
    }

    /// Chunks that can be had without taking a page or waiting.
    pub(crate) fn spare(&self, class: &Class) -> u32 {
        let carved = self.page(class.carving).map_or(class.size.per_page, |(_, carved)| carved);
        class.free + class.size.per_page - carved
    }

    /// Of these, chunks that are not kept free ahead of need.
    pub(crate) fn room(&self, class: &Class) -> u32 {
        self.spare(class).saturating_sub(class.spare_wanted())
    }

    /// Counts so many bytes for a chunk from [`Self::pop`], instead of those that it was taken for.
    pub(crate) fn recount(&self, loc: Location, before: usize, bytes: usize) {
        let Some(id) = self.class_of(loc) else { return };
        let tally = &mut self.lock(id).tally;
        tally.bytes = tally.bytes - before as u64 + bytes as u64;
    }

    /// Puts the page at the head of those that have free chunks.
    pub(super) fn enter_avail(&self, class: &mut Class, page: u32) {
        let next = std::mem::replace(&mut class.avail_head, page);
        put(&self.pages[page as usize].next_avail, next);
        put(&self.pages[page as usize].prev_avail, NIL);
        if next != NIL {
            put(&self.pages[next as usize].prev_avail, page);
        }
    }

    /// Takes the page out of that list.
    #[inline(never)]
    pub(super) fn leave_avail(&self, class: &mut Class, page: u32) {
        let p = &self.pages[page as usize];
        let (prev, next) = (get(&p.prev_avail), get(&p.next_avail));
        if next != NIL {
            put(&self.pages[next as usize].prev_avail, prev);
        }
        if prev == NIL {
            class.avail_head = next;
        } else {
            put(&self.pages[prev as usize].next_avail, next);
        }
    }
}
