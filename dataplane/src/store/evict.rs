//! Making room: the hand that evicts and the sweeper that expires.
//!
//! Enters: a class that needs a chunk, or housekeeping's turn. Leaves: chunks in limbo, which come
//! back when their epoch has passed. Recency is one bit an item. New items queue up and are judged
//! by it once, soon (`probation.rs`); the others are judged by a hand that goes round (CLOCK;
//! Corbató 1968): both clear the bit where it is set and evict where it is not. Chunks are evicted
//! ahead of need, because a chunk cannot be used again at once. Every loop here is bounded. Fails: a class may get
//! nothing, when all its chunks are being written, or looked at for long.

use super::Store;
use super::item::Location;
use super::mover::RESERVE_PAGES;
use super::slab::{Class, ClassId};
use std::hint::spin_loop;
use std::sync::atomic::Ordering;

/// Chunks this many times too large are taken rather than another class's only page.
const BORROW_FACTOR: u32 = 8;

/// Chunks kept free ahead of need in a class that has 16 times as many; fewer in smaller ones.
const SPARE_CHUNKS: u32 = 64;

/// New items give way first while they are more than one in this many.
const NEWCOMERS_SHARE: u32 = 4;

/// Every so many evictions the hand's turn comes all the same, so that what was stored long ago
/// and is never asked for does not stay for ever.
const HAND_EVERY: u64 = 16;

/// Chunks that the hand looks at in one go beyond those that it wants.
const HAND_STEPS: u32 = 64;

/// Tries to get a chunk before giving up, and the spins between two of them: about 100 µs.
const TRIES_MAX: u32 = 96;
const SPINS_PER_TRY: u32 = 64;
/// Tries from here on give up the CPU: a reader that holds things up may be waiting for it.
const TRIES_SPINNING: u32 = 64;

/// Chunks visited under one hold of a class's lock.
pub(super) const RUN_CHUNKS: u32 = 64;

/// Chunks that the sweeper visits in one turn of housekeeping.
const SWEEP_CHUNKS: u32 = 2048;

/// Where the sweeper is.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    page: u32,
    chunk: u32,
    /// Rounds begun.
    pub(super) rounds: u64,
    /// When the last one did or might have, on the store's clock; 0: the next may at once.
    pub(super) began: u32,
    /// Prefixes flushed when this round began.
    prefixes: u64,
    /// The round that somebody asked for.
    pub(super) asked: Asked,
}

/// Whether a round was asked for, and is still owed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    #[default]
    No,
    /// The next one to begin.
    Next,
    /// The one under way.
    Now,
}

/// Chunks that the class keeps free ahead of need.
pub(super) fn spare_wanted(class: &Class) -> u32 {
    (class.chunks() / 16).min(SPARE_CHUNKS)
}

impl Store {
    /// A chunk of the class, the caller's alone; if he needs only one, it may be of a larger class.
    /// `chunks` is how many he needs in all. `None` after about 100 µs of trying.
    #[inline(always)]
    pub(super) fn allocate(
        &self,
        id: ClassId,
        bytes: usize,
        chunks: u32,
        before_waiting: impl FnOnce(),
    ) -> Option<Location> {
        let at_once = self.take_chunk(&mut self.slabs.lock(id), bytes);
        at_once.or_else(|| {
            before_waiting();
            self.allocate_late(id, bytes, chunks)
        })
    }

    #[inline(always)]
    fn take_chunk(&self, class: &mut Class, bytes: usize) -> Option<Location> {
        self.replenish(class);
        self.slabs.pop(class, bytes)
    }

    #[cold]
    fn allocate_late(&self, id: ClassId, bytes: usize, chunks: u32) -> Option<Location> {
        for turn in 0..TRIES_MAX {
            let mut class = self.slabs.lock(id);
            if let Some(loc) = self.take_chunk(&mut class, bytes) {
                return Some(loc);
            }
            let (starved, hopeless) =
                (class.chunks() < chunks, !self.config.evict && class.in_limbo() == 0);
            // What a large item needs is not kept back for others.
            if starved && class.pages > 0 && self.slabs.grow(&mut class, &self.epochs, 0) {
                continue;
            }
            drop(class);
            if starved || hopeless {
                if chunks == 1
                    && let Some(loc) = self.borrow(id, bytes, BORROW_FACTOR)
                {
                    return Some(loc);
                }
                if hopeless {
                    break;
                }
                self.take_from_others(id);
            }
            if turn < TRIES_SPINNING {
                (0..SPINS_PER_TRY).for_each(|_| spin_loop());
            } else {
                std::thread::yield_now();
            }
        }
        let borrowed = if chunks == 1 { self.borrow(id, bytes, u32::MAX) } else { None };
        if borrowed.is_none() {
            self.slabs.lock(id).tally.out_of_memory += 1;
        }
        borrowed
    }

    /// A chunk of a larger class, at most `factor` times as large, that has pages. Housekeeping
    /// sees to it that a starved class gets a page of its own, if any class has two.
    fn borrow(&self, id: ClassId, bytes: usize, factor: u32) -> Option<Location> {
        let most = self.slabs.size(id).units.saturating_mul(factor);
        let larger = self.slabs.class_ids().filter(|c| *c > id);
        larger.take_while(|c| self.slabs.size(*c).units <= most).find_map(|larger| {
            let mut class = self.slabs.lock(larger);
            if class.pages == 0 {
                return None;
            }
            self.take_chunk(&mut class, bytes)
        })
    }

    /// Sees to it that the class has chunks to give, now and for the next few requests.
    #[inline(always)]
    fn replenish(&self, class: &mut Class) {
        // As many as no class keeps free need no closer look.
        if class.free <= SPARE_CHUNKS {
            let want = spare_wanted(class);
            if self.slabs.spare(class) <= want {
                self.make_spare(class, want);
            }
        }
    }

    /// Sees to it that the class can give more than `want` chunks, now or soon.
    #[inline(never)]
    fn make_spare(&self, class: &mut Class, want: u32) {
        self.slabs.collect(class, &self.epochs);
        let short =
            |class: &Class| (want + 1).saturating_sub(self.slabs.spare(class) + class.in_limbo());
        if short(class) == 0 {
            return;
        }
        if self.slabs.grow(class, &self.epochs, RESERVE_PAGES) {
            return;
        }
        let n = short(class);
        if self.config.evict && n > 0 {
            self.evict(class, n);
            self.slabs.collect(class, &self.epochs);
        }
    }

    /// Judges items until `want` are gone, or enough were seen. At least one goes, if any is
    /// linked among those that were seen.
    pub(super) fn evict(&self, class: &mut Class, want: u32) {
        let (mut gone, mut last) = (0, None);
        for _ in 0..want * 4 + HAND_STEPS {
            let many_new = class.newcomers() > class.chunks() / NEWCOMERS_SHARE;
            let newcomer = match many_new && !class.tally.evicted.is_multiple_of(HAND_EVERY) {
                true => self.slabs.newcomer(class),
                false => None,
            };
            let (place, ticket) = match newcomer {
                Some((page, chunk, ticket)) => (Some((page, chunk)), Some(ticket)),
                None => {
                    class.hand_steps += 1;
                    (self.slabs.hand(class), None)
                }
            };
            let Some((page, chunk)) = place else { break };
            let went = self.slabs.with_item(class, page, chunk, |class, loc, item| {
                if ticket.is_some_and(|ticket| ticket != item.ticket()) {
                    return false;
                }
                if item.is_visited() && self.is_live(&item) {
                    item.clear_visited();
                    class.tally.spared += 1;
                    last = Some((page, chunk));
                    return false;
                }
                let hash = self.hash(item.key());
                let went = self.remove(class, loc, item, false);
                if went && ticket.is_some() {
                    self.ghosts.remember(hash);
                }
                went
            });
            gone += u32::from(went == Some(true));
            if gone >= want {
                return;
            }
        }
        if let (0, Some((page, chunk))) = (gone, last) {
            self.slabs.with_item(class, page, chunk, |class, loc, item| {
                self.remove(class, loc, item, true)
            });
        }
    }

    /// One turn of everything that is done beside the requests. To be called every 10 ms or so,
    /// by one thread.
    pub fn housekeep(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.clock.tick();
        self.flush_when_due();
        if self.is_sweep_due() {
            self.sweep();
        }
        for id in self.slabs.class_ids() {
            self.empty_limbo(id);
        }
        self.move_pages();
    }

    /// Gives back all chunks of the class whose epoch has passed, letting writers in between.
    pub(super) fn empty_limbo(&self, id: ClassId) {
        let mut before = u32::MAX;
        loop {
            let mut class = self.slabs.lock(id);
            self.slabs.collect(&mut class, &self.epochs);
            let now = class.in_limbo();
            // No progress: somebody is looking, or others retire as fast as this collects.
            if now == 0 || now >= before {
                return;
            }
            before = now;
        }
    }

    /// Whether a round is under way, or another may begin: one a second, for the clock has no smaller
    /// step.
    fn is_sweep_due(&self) -> bool {
        let s = self.sweeper.lock();
        (s.page, s.chunk) != (0, 0) || s.began != self.now()
    }

    /// Removes dead items, page after page: a bounded number of chunks, to the end of the round at
    /// most.
    pub(super) fn sweep(&self) {
        let mut s = self.sweeper.lock();
        if !self.is_sweeping() {
            s.began = self.now();
            return;
        }
        let mut left = SWEEP_CHUNKS;
        while left > 0 {
            let run = RUN_CHUNKS.min(left);
            left -= run;
            if (s.page, s.chunk) == (0, 0) {
                s.rounds += 1;
                s.began = self.now();
                if s.asked == Asked::Next {
                    s.asked = Asked::Now;
                }
            }
            let here = self.slabs.page(s.page).filter(|(_, carved)| s.chunk < *carved);
            let Some((id, _)) = here else {
                s.page = (s.page + 1) % self.slabs.n_pages();
                s.chunk = 0;
                if s.page == 0 {
                    if s.asked == Asked::Now {
                        s.asked = Asked::No;
                    }
                    self.prefixes.forget(s.prefixes);
                    s.prefixes = self.prefixes.count();
                    return;
                }
                continue;
            };
            let mut class = self.slabs.lock(id);
            for _ in 0..run {
                self.slabs.with_item(&mut class, s.page, s.chunk, |class, loc, item| {
                    class.tally.swept += 1;
                    if !self.is_live(&item) && self.remove(class, loc, item, false) {
                        class.tally.swept_out += 1;
                    }
                });
                s.chunk += 1;
            }
        }
    }
}
