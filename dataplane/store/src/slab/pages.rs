//! Pages between the classes: the pool, and how a class gets a page and gives one up.
//!
//! ```text
//! pool ──grow──► class ──release, or start_drain, finish_drain──► limbo of pages ──epoch passed──► pool
//! ```
//!
//! In: a locked class. Out: a page more or less in its ring. Pages are chained through
//! their `ring_next` while no class has them. The pool's lock is taken inside a class's, never
//! the other way round. Fails: no page to give, or one whose chunks are not all returned yet.

use super::idle::Pool;
use super::page::IN_TURN;
use super::{CLASS_SHIFT, Class, Slabs, get, put};
use crate::epoch::Epochs;
use crate::layout::NIL;
use crate::published::Published;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Free chunks that a class keeps while it is in use, however few it has: a page that goes back is away
/// until every pinned reader has moved on.
pub(super) const KEEP_CHUNKS: u32 = 16;

/// What became of a class's request for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grown {
    Yes,
    /// There are pages, when every participant has moved past their epoch.
    Soon,
    No,
}

/// Pages of a class that are looked at for one that it can do without.
const LOOK_AT_PAGES: u32 = 16;

impl Slabs {
    /// [`Self::try_grow`], for callers that do not need the reason.
    pub(crate) fn grow(&self, class: &mut Class, epochs: &Epochs, reserve: u32) -> bool {
        self.try_grow(class, epochs, reserve) == Grown::Yes
    }

    /// Gives the class a page from the pool. The last `reserve` pages only to a class without, if it is due one.
    pub(crate) fn try_grow(&self, class: &mut Class, epochs: &Epochs, reserve: u32) -> Grown {
        let reserve = if class.pages == 0 && class.is_due_a_page() { 0 } else { reserve };
        let page = match self.take_page(epochs, reserve) {
            Ok(page) => page,
            Err(why) => return why,
        };
        // The rest of the page before, if any: only one page is being carved at a time.
        while self.carve(class) {}
        self.enter_ring(class, page);
        class.carving = page;
        let word = (u32::from(class.id.0) + 1) << CLASS_SHIFT;
        self.words[page as usize].store(word, Ordering::Release);
        // A chunk that is not carved is on no list, and has no turn.
        while self.is_in_turn() && self.carve(class) {}
        Grown::Yes
    }

    /// Makes the page one of the class's, without a free chunk yet.
    pub(super) fn enter_ring(&self, class: &mut Class, page: u32) {
        let p = &self.pages[page as usize];
        put(&p.free_head, NIL);
        put(&p.free_count, 0);
        put(&p.draining, if self.is_in_turn() { IN_TURN } else { 0 });
        if let Some(map) = &self.free_map {
            map.clear(page);
        }
        if class.pages == 0 {
            put(&p.ring_next, page);
            put(&p.ring_prev, page);
            class.hand_page = page;
            class.hand_chunk = 0;
        } else {
            // Behind the hand: what is stored next is looked at last.
            let next = &self.pages[class.hand_page as usize];
            let prev = get(&next.ring_prev);
            put(&p.ring_next, class.hand_page);
            put(&p.ring_prev, prev);
            put(&self.pages[prev as usize].ring_next, page);
            put(&next.ring_prev, page);
        }
        class.pages += 1;
        class.borrowed_units = 0;
        class.queue.make_room(class.chunks());
    }

    fn take_page(&self, epochs: &Epochs, reserve: u32) -> Result<u32, Grown> {
        let mut pool = self.pool.lock();
        self.collect_pages(&mut pool, epochs);
        let fresh_left = self.n_pages() - pool.fresh;
        let kept = reserve + pool.withheld;
        if fresh_left + pool.recycled <= kept {
            let soon = fresh_left + pool.recycled + pool.open.count + pool.closed.count > kept;
            return Err(if soon { Grown::Soon } else { Grown::No });
        }
        // One that was in use is in memory for certain.
        if pool.recycled == 0 {
            pool.fresh += 1;
            return Ok(pool.fresh - 1);
        }
        let page = pool.head;
        pool.head = get(&self.pages[page as usize].ring_next);
        pool.recycled -= 1;
        Ok(page)
    }

    fn collect_pages(&self, pool: &mut Pool, epochs: &Epochs) {
        for _ in 0..2 {
            if pool.closed.count == 0 {
                pool.closed = std::mem::take(&mut pool.open);
            }
            let Some(stamp) = pool.closed.stamp else { return };
            if !epochs.safe_epoch().is_past(stamp) {
                return;
            }
            let past = std::mem::take(&mut pool.closed);
            let mut page = past.head;
            while page != NIL {
                let next = &self.pages[page as usize].ring_next;
                let here = std::mem::replace(&mut page, get(next));
                put(next, pool.head);
                pool.head = here;
            }
            pool.recycled += past.count;
        }
    }

    /// Sets what is notified of pages that leave a class.
    pub(crate) fn notify(&self, published: Arc<Published>) {
        self.pool.lock().published = Some(published);
    }

    /// Pages that may be used.
    pub(crate) fn limit_pages(&self) -> u32 {
        self.n_pages() - self.pool.lock().withheld
    }

    /// Lets at most `pages` be used. Those in use beyond that stay so until they are given up.
    pub(crate) fn set_limit_pages(&self, pages: u32) {
        self.pool.lock().withheld = self.n_pages().saturating_sub(pages);
    }

    /// Puts the pages that no class has in the pool, when pages were given to classes by [`Self::adopt`].
    pub(crate) fn fill_pool(&self) {
        let mut pool = self.pool.lock();
        let used = |page: &u32| self.page(*page).is_some();
        pool.fresh = (0..self.n_pages()).rfind(used).map_or(0, |last| last + 1);
        for page in (0..pool.fresh).filter(|page| !used(page)) {
            put(&self.pages[page as usize].ring_next, pool.head);
            pool.head = page;
            pool.recycled += 1;
        }
    }

    /// Pages that belong to no class and may be used, those included that may still be looked at.
    pub(crate) fn free_pages(&self, epochs: &Epochs) -> u32 {
        let mut pool = self.pool.lock();
        self.unused(&mut pool, epochs).saturating_sub(pool.withheld)
    }

    /// Whether more pages are in use than may be.
    pub(crate) fn is_over_limit(&self, epochs: &Epochs) -> bool {
        let mut pool = self.pool.lock();
        self.unused(&mut pool, epochs) < pool.withheld
    }

    fn unused(&self, pool: &mut Pool, epochs: &Epochs) -> u32 {
        self.collect_pages(pool, epochs);
        self.n_pages() - pool.fresh + pool.recycled + pool.open.count + pool.closed.count
    }

    /// Marks a page of the class as draining, the one with the most free chunks among the last few
    /// that the hand came through: from now on its chunks come back and are not given out.
    pub(crate) fn start_drain(&self, class: &mut Class) -> Option<u32> {
        let mut page = class.hand_page;
        let mut best: Option<(u32, u32)> = None;
        for _ in 0..class.pages.min(LOOK_AT_PAGES) {
            page = get(&self.pages[page as usize].ring_prev);
            let free = get(&self.pages[page as usize].free_count);
            if best.is_none_or(|(most, _)| free > most) {
                best = Some((free, page));
            }
        }
        let (_, page) = best?;
        put(&self.pages[page as usize].draining, 1);
        class.draining += 1;
        self.give_no_more(class, page);
        Some(page)
    }

    /// Chunks of the page that are not free: in use, or in limbo.
    pub(crate) fn taken(&self, page: u32) -> u32 {
        let carved = self.page(page).map_or(0, |(_, carved)| carved);
        carved - get(&self.pages[page as usize].free_count).min(carved)
    }

    /// Takes a drained page from its class when all its chunks are free.
    pub(crate) fn finish_drain(&self, class: &mut Class, page: u32, epochs: &Epochs) -> bool {
        let p = &self.pages[page as usize];
        let Some((id, carved)) = self.page(page) else { return false };
        if id != class.id || get(&p.draining) == 0 || get(&p.free_count) < carved {
            return false;
        }
        class.draining -= 1;
        self.leave(class, page, epochs);
        true
    }

    /// From now on no chunk of the page is given out.
    fn give_no_more(&self, class: &mut Class, page: u32) {
        let free = get(&self.pages[page as usize].free_count);
        if self.is_in_turn() {
            class.free_in_turn -= free;
        } else if free > 0 {
            class.free -= free;
            self.leave_avail(class, page);
        }
        if class.carving == page {
            class.carving = NIL;
        }
    }

    /// Takes the page, whose chunks are all free and are not given out, from its class.
    fn leave(&self, class: &mut Class, page: u32, epochs: &Epochs) {
        let p = &self.pages[page as usize];
        let (prev, next) = (get(&p.ring_prev), get(&p.ring_next));
        put(&self.pages[prev as usize].ring_next, next);
        put(&self.pages[next as usize].ring_prev, prev);
        class.pages -= 1;
        class.queue.make_room(class.chunks());
        if class.hand_page == page {
            class.hand_page = if class.pages == 0 { NIL } else { next };
            class.hand_chunk = 0;
        }
        let mut pool = self.pool.lock();
        if let Some(published) = &pool.published {
            published.leave(page);
        }
        self.words[page as usize].store(0, Ordering::Release);
        put(&p.ring_next, pool.open.head);
        pool.open.head = page;
        pool.open.count += 1;
        pool.open.stamp = pool.open.stamp.max(Some(epochs.stamp()));
        epochs.advance();
    }

    /// Gives a page whose chunks are all free back to the pool, unless they are what the class keeps
    /// free ahead of need, `least` or more.
    pub(super) fn release(&self, class: &mut Class, page: u32, epochs: &Epochs, least: u32) {
        if self.pages_stay {
            return;
        }
        if self.spare(class) - class.size.per_page > class.spare_wanted().max(least) {
            self.give_no_more(class, page);
            self.leave(class, page, epochs);
        }
    }

    /// Gives back what [`Self::release`] left: the pages of a class that holds nothing, and those that
    /// the class does not need any more, if they are among the first that have free chunks. To be
    /// called now and then: a class that has stored nothing since needs less.
    pub(crate) fn release_rest(&self, class: &mut Class, epochs: &Epochs) {
        if self.pages_stay || self.is_in_turn() {
            return;
        }
        let idle = class.used == 0 && class.in_limbo() == 0;
        while idle && class.pages > class.draining {
            let mut page = class.hand_page;
            while get(&self.pages[page as usize].draining) == 1 {
                page = get(&self.pages[page as usize].ring_next);
            }
            self.give_no_more(class, page);
            self.leave(class, page, epochs);
        }
        let before = std::mem::replace(&mut class.stored_before_release, class.tally.stored);
        let least = if before == class.tally.stored { 0 } else { KEEP_CHUNKS };
        let mut at = class.avail_head;
        for _ in 0..LOOK_AT_PAGES {
            let Some((_, carved)) = self.page(at) else { return };
            let page = at;
            at = get(&self.pages[page as usize].next_avail);
            if get(&self.pages[page as usize].free_count) == carved {
                self.release(class, page, epochs, least);
            }
        }
    }
}
