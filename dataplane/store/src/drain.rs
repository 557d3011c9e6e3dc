//! Emptying a page: its items move to other chunks, and the class gives up the page.
//!
//! In: a page whose chunks are not given out any more. Out: the page, when all its chunks
//! are free. Where the class has too few chunks for the page's items, it evicts as it always does
//! (`evict.rs`): items that were not read lately, whatever page they lie in. An item is moved like a
//! replacement: it is copied, the index entry is swapped under its buckets' locks, and the old chunk
//! is freed when its epoch has passed. So readers and writers are not blocked, and no reader sees
//! anything but the one item. An item of several chunks is not moved but evicted; nor is any where chunks are
//! given out in turn.
//!
//! A class's lock is taken for a short run of chunks at a time. Chunks come back only when their
//! epoch has passed, so emptying a page takes several turns of housekeeping. An `urgent` drain (for a
//! class without any page, with a client waiting) waits for no chunk: it evicts what was neither read
//! nor stored lately, for the rest it evicts others, and what finds no chunk then goes, too. What lies in a class's only page
//! moves to free chunks of a larger class; where there are none, it is dealt with likewise. Never fails; a page is
//! late for as long as a pinned reader may still see an item in it.

use super::evict::RUN_CHUNKS;
use super::item::{ItemRef, Location};
use super::moving::Drain;
use super::slab::{Class, ClassId};
use super::store::Store;
use parking_lot::MutexGuard;
use std::mem;

/// Chunks that are looked at in one turn of housekeeping.
const TURN_CHUNKS: u32 = 8192;

/// Bytes copied under one hold of a class's lock, or one item.
const RUN_BYTES: usize = 64 << 10;

/// How far a turn came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    On,
    /// No chunk to move to.
    NoRoom,
}

impl Store {
    /// Goes on with it for a turn. True when the page has left its class.
    pub(super) fn drain(&self, drain: &mut Drain, urgent: bool) -> bool {
        let size = self.slabs.size(drain.class);
        let run = RUN_CHUNKS.min(u32::try_from(RUN_BYTES / size.bytes()).unwrap_or(0)).max(1);
        let mut budget = if urgent { u32::MAX } else { TURN_CHUNKS };
        while drain.chunk < size.per_page && budget > 0 {
            let n = run.min(budget).min(size.per_page - drain.chunk);
            budget -= n;
            if self.vacate(drain, n, urgent) == Run::NoRoom {
                self.make_room(drain, &mut budget);
                self.empty_limbo(drain.class);
                let class = self.slabs.lock(drain.class);
                if self.slabs.spare(&class) <= class.spare_wanted() {
                    return false;
                }
            }
        }
        if drain.chunk < size.per_page {
            return false;
        }
        self.empty_limbo(drain.class);
        let mut class = self.slabs.lock(drain.class);
        if self.slabs.finish_drain(&mut class, drain.page, &self.epochs) {
            return true;
        }
        // Chunks that were being written are linked by now: once more from the start.
        drain.chunk = 0;
        false
    }

    /// Items stored in the class so far, and whether any in the page at its hand was asked for, which none is from
    /// now on.
    pub(super) fn pass_over(&self, id: ClassId) -> (u64, bool) {
        let (mut asked, mut chunk, mut stored) = (false, 0, 0);
        while chunk < self.slabs.size(id).per_page {
            let class = &mut self.slabs.lock(id);
            stored = class.tally.stored;
            for n in chunk..chunk + RUN_CHUNKS {
                let page = class.hand_page;
                self.slabs.with_item(class, page, n, |_, _, item| {
                    asked |= item.is_visited();
                    item.clear_visited();
                });
            }
            chunk += RUN_CHUNKS;
        }
        (stored, asked)
    }

    /// The class whose chunks the items of a class without another page move to: the next larger one
    /// with room for `n`, or else for any, or else the next one with pages. Who waits for a class's lock with
    /// another in hand has the smaller class's.
    fn home(&self, id: ClassId, n: u32) -> Option<MutexGuard<'_, Class>> {
        let next = |room: u32| {
            let mut larger =
                self.larger(id, self.lent_factor()).map(|larger| self.slabs.lock(larger));
            larger.find(|c| c.chunks_to_keep() > 0 && self.slabs.room(c) >= room)
        };
        next(n).or_else(|| next(1)).or_else(|| next(0))
    }

    /// Empties the next `n` chunks, or fewer where their items' new class is full before.
    fn vacate(&self, drain: &mut Drain, n: u32, urgent: bool) -> Run {
        let mut class = self.slabs.lock(drain.class);
        let is_only = class.chunks_to_keep() == 0;
        let mut home = if is_only { self.home(drain.class, n) } else { None };
        let has_room = |home: &Class| self.slabs.room(home) > 0;
        let had_room = home.as_deref().is_some_and(has_room);
        // What comes back to this page is no room.
        let of_page = self.slabs.taken(drain.page).saturating_sub(drain.left);
        let of_page = if home.is_some() { 0 } else { of_page };
        let missing = if (urgent || is_only) && !had_room {
            let to = home.as_deref_mut().unwrap_or(&mut class);
            self.slabs.collect(to, &self.epochs);
            let there = self.slabs.spare(to) + to.in_limbo().saturating_sub(of_page);
            (n + to.spare_wanted()).saturating_sub(there)
        } else {
            0
        };
        let mut hold = Hold { home, urgent, missing };
        for _ in 0..n {
            let (page, chunk) = (drain.page, drain.chunk);
            let done = self.slabs.with_owner(&mut class, page, chunk, |class, loc, item| {
                self.vacate_one(class, &mut hold, loc, item)
            });
            match done {
                Some(false) => return Run::NoRoom,
                Some(true) => {
                    drain.left = drain.left.saturating_sub(1);
                }
                None => {}
            }
            drain.chunk += 1;
            if had_room && !hold.home.as_deref().is_some_and(has_room) {
                break;
            }
        }
        Run::On
    }

    /// Gets the item out of its chunk. False when it has to wait for another one.
    fn vacate_one(
        &self,
        class: &mut Class,
        hold: &mut Hold<'_>,
        loc: Location,
        item: ItemRef<'_>,
    ) -> bool {
        let at_once = hold.urgent || class.chunks_to_keep() == 0;
        let hot = item.is_visited() || item.is_held() || class.is_new(item.ticket());
        let movable = self.is_live(&item)
            && !item.is_large()
            && !self.slabs.is_in_turn()
            && (hot || !hold.urgent);
        let to = hold.home.as_deref_mut().unwrap_or(&mut *class);
        if movable && hot && hold.missing > 0 {
            // As the hand spares it, at the cost of others. One of these may be this very item: its chunk is not
            // given out again while the page is being emptied, and then it does not move.
            self.evict_to_move(to, mem::take(&mut hold.missing));
            self.slabs.collect(to, &self.epochs);
        }
        if movable && self.slabs.room(to) > 0 {
            self.relocate(class, hold.home.as_deref_mut(), loc, item);
        } else if !movable || at_once {
            let before = class.tally.evicted;
            self.remove(class, loc, item, false);
            class.tally.evicted_by_mover += class.tally.evicted - before;
        } else {
            return false;
        }
        true
    }

    /// Evicts so many of the class for items of a page that is emptied.
    fn evict_to_move(&self, class: &mut Class, n: u32) {
        let before = class.tally.evicted;
        self.evict(class, n);
        class.tally.evicted_by_mover += class.tally.evicted - before;
    }

    /// Evicts as many of the class as the rest of the page needs chunks.
    fn make_room(&self, drain: &Drain, budget: &mut u32) {
        while *budget > 0 {
            let mut class = self.slabs.lock(drain.class);
            // What is in limbo comes back by itself; a part of it to this page, and then there is
            // another turn.
            let there = self.slabs.spare(&class) + class.in_limbo();
            let short = (drain.left + class.spare_wanted()).saturating_sub(there);
            if short == 0 {
                return;
            }
            let n = short.min(RUN_CHUNKS).min(*budget);
            *budget -= n;
            self.evict_to_move(&mut class, n);
        }
    }
}

/// What is done under one hold of a class's lock.
struct Hold<'s> {
    /// The class, of larger chunks, that items move to. `None`: their own.
    home: Option<MutexGuard<'s, Class>>,
    urgent: bool,
    /// Items that may be evicted for these, as no more chunks are free or about to be.
    missing: u32,
}
