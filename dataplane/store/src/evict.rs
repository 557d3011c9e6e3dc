//! Making room: the hand that evicts and the sweeper that expires.
//!
//! In: a class that needs a chunk, or housekeeping's turn. Out: chunks in limbo, which come
//! back when their epoch has passed. Recency is one bit an item. New items queue up and are judged
//! by it once, soon (`probation.rs`); the others are judged by a hand that goes round (CLOCK;
//! Corbató 1968): both clear the bit where it is set and evict where it is not. What a new value is being made of is passed
//! over. Chunks are evicted
//! ahead of need, because a chunk cannot be used again at once (`allocate.rs`). Every loop here is bounded.
//! Fails: nothing may be found to evict.

use super::mover::RESERVE_PAGES;
use super::slab::{Class, ClassId, Grown};
use super::store::Store;
use super::sweeper::{Asked, Sweeper};
use std::sync::atomic::Ordering;

/// New items give way first while they are more than one in this many.
const NEWCOMERS_SHARE: u32 = 4;

/// Every so many evictions the hand's turn comes all the same, so that what was stored long ago
/// and is never read does not stay for ever.
const HAND_EVERY: u64 = 16;

/// Chunks that the hand looks at in one go beyond those that it needs.
const HAND_STEPS: u32 = 64;

/// Chunks that are looked at for dead items in one go, where nothing is evicted.
const DEAD_STEPS: u32 = 16;

/// Chunks visited under one hold of a class's lock.
pub(super) const RUN_CHUNKS: u32 = 64;

/// Chunks that the sweeper visits in one turn of housekeeping; and after a flush, when there may be
/// many dead ones.
const SWEEP_CHUNKS: u32 = 2048;
const SWEEP_FLUSHED_CHUNKS: u32 = 32_768;

/// Chunks that a writer visits in the sweeper's place in one go, and how often before a live item makes room
/// for a new one: as many chunks as three pages of the smallest have, of which one is for the reserve.
const SWEEP_INSTEAD_CHUNKS: u32 = 256;
const SWEEPS_INSTEAD: u32 = 384;

/// Times that a writer collects the chunks in limbo of each class in housekeeping's place: 16,384 chunks.
const COLLECTS_INSTEAD: u32 = 32;

impl Store {
    /// Sees to it that the class has chunks to give, now and for the next few requests.
    #[inline(always)]
    pub(super) fn replenish(&self, class: &mut Class, may_wait: bool) {
        let want = class.spare_wanted();
        if self.slabs.spare(class) <= want {
            self.make_spare(class, want, may_wait);
        }
    }

    /// Sees to it that the class can give more than `want` chunks, now or soon. Nothing is evicted while
    /// another thread sweeps up after a flush, if the caller may wait for that.
    #[inline(never)]
    fn make_spare(&self, class: &mut Class, want: u32, may_wait: bool) {
        if self.slabs.is_in_turn() {
            self.next_in_round(class);
            return;
        }
        self.slabs.collect(class, &self.epochs);
        // What is in limbo comes back soon: as a rule, and not for a class that has nothing else.
        let enough = |class: &Class| {
            let spare = self.slabs.spare(class);
            spare > 0 && spare + class.in_limbo() > want
        };
        if enough(class) || self.grown_or_soon(class) {
            return;
        }
        if self.flushed.is_unswept() && self.is_sweeping() {
            for _ in 0..SWEEPS_INSTEAD {
                let swept = self.sweep_instead(class);
                // Its own as well, and what is on its way is enough: nothing alive goes for it.
                self.slabs.collect(class, &self.epochs);
                if self.slabs.spare(class) > 0 || self.grown_or_soon(class) || (may_wait && !swept)
                {
                    return;
                }
                if !swept || !self.flushed.is_unswept() || class.in_limbo() > want {
                    break;
                }
            }
        }
        if self.flushed.is_unreleased() && self.is_sweeping() {
            // The thread that has swept up may be held up before it gives back what it found.
            self.release_everywhere();
            if self.grown_or_soon(class) {
                return;
            }
        }
        let n = (want + 1).saturating_sub(self.slabs.spare(class) + class.in_limbo());
        if n > 0 {
            match self.config.evict {
                true => self.evict(class, n),
                false => self.remove_dead(class, n),
            }
            self.slabs.collect(class, &self.epochs);
        }
    }

    /// Where nothing is evicted: removes what is dead, until `want` are gone or enough were seen.
    #[cold]
    fn remove_dead(&self, class: &mut Class, want: u32) {
        if !self.expiring.load(Ordering::Relaxed) {
            return;
        }
        let mut gone = 0;
        for _ in 0..DEAD_STEPS {
            let Some((page, chunk)) = self.slabs.hand(class) else { return };
            let went = self.slabs.with_item(class, page, chunk, |class, loc, item| {
                !self.is_live(&item) && self.remove(class, loc, item, false)
            });
            gone += u32::from(went == Some(true));
            if gone >= want {
                return;
            }
        }
    }

    /// Whether the class has got a page, or there will be one as soon as an evicted chunk would be there.
    pub(super) fn grown_or_soon(&self, class: &mut Class) -> bool {
        self.slabs.try_grow(class, &self.epochs, RESERVE_PAGES) != Grown::No
    }

    /// Judges items until `want` are gone, or enough were seen. At least one goes, if any is
    /// linked among those that were seen, and is not held.
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
                if item.is_held() && self.is_live(&item) {
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
        self.tick();
        self.flush_when_due();
        // What this turn still sweeps up may be pinned when its memory is given back.
        let swept = self.flushed.swept_up_to();
        if self.is_sweep_due() {
            self.sweep();
        }
        for id in self.slabs.class_ids() {
            self.empty_limbo(id);
            self.slabs.release_rest(&mut self.slabs.lock(id), &self.epochs);
        }
        self.flushed.released(swept);
        self.move_pages();
    }

    /// Gives back all chunks of the class whose epoch has passed, letting writers in between.
    pub(super) fn empty_limbo(&self, id: ClassId) {
        let mut before = u32::MAX;
        loop {
            let mut class = self.slabs.lock(id);
            self.slabs.collect(&mut class, &self.epochs);
            let now = class.in_limbo();
            // No progress: a reader is pinned, or others retire as fast as this collects.
            if now == 0 || now >= before {
                return;
            }
            before = now;
        }
    }

    /// Whether a round is under way, or another may begin: one a second, for the clock has no smaller
    /// step, and at once after a flush.
    fn is_sweep_due(&self) -> bool {
        let s = self.sweeper.lock();
        (s.page, s.chunk) != (0, 0) || s.began != self.now() || self.flushed.is_unswept()
    }

    /// Removes dead items, page after page: a bounded number of chunks, to the end of the round at
    /// most.
    pub(super) fn sweep(&self) {
        let mut s = self.sweeper.lock();
        if !self.is_sweeping() {
            s.began = self.now();
            return;
        }
        let many = self.flushed.is_unswept();
        let chunks = if many { SWEEP_FLUSHED_CHUNKS } else { SWEEP_CHUNKS };
        self.sweep_on(&mut s, chunks, None);
    }

    /// Goes on in the sweeper's place, for a class that is short of chunks: a little, and not where
    /// others are at work. False: another thread is sweeping.
    fn sweep_instead(&self, class: &mut Class) -> bool {
        let Some(mut s) = self.sweeper.try_lock() else { return false };
        self.sweep_on(&mut s, SWEEP_INSTEAD_CHUNKS, Some(class));
        true
    }

    /// Removes what is dead among the next `left` chunks, to the end of the round at most. Who holds
    /// a class's lock already gets no other but at once.
    fn sweep_on(&self, s: &mut Sweeper, mut left: u32, mut held: Option<&mut Class>) {
        while left > 0 {
            let run = RUN_CHUNKS.min(left);
            left -= run;
            if (s.page, s.chunk) == (0, 0) {
                s.rounds += 1;
                s.began = self.now();
                s.flushed_up_to = self.flushed.parts().0;
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
                    self.forget_prefixes(s.prefixes);
                    s.prefixes = self.prefixes.count();
                    self.flushed.swept(s.flushed_up_to);
                    if held.is_some() {
                        self.release_everywhere();
                    }
                    return;
                }
                continue;
            };
            match &mut held {
                None => self.sweep_run(s, run, &mut self.slabs.lock(id)),
                Some(class) if class.id == id => self.sweep_run(s, run, class),
                Some(_) => match self.slabs.try_lock(id) {
                    Some(mut class) => {
                        self.sweep_run(s, run, &mut class);
                        // Its pages are what is needed.
                        self.slabs.collect(&mut class, &self.epochs);
                    }
                    None => return,
                },
            }
        }
    }

    /// Gives back the pages that classes do not need any more, where the class's lock is free. False: there were none.
    pub(super) fn release_everywhere(&self) -> bool {
        let mut released = false;
        for mut class in self.slabs.class_ids().filter_map(|id| self.slabs.try_lock(id)) {
            for _ in 0..COLLECTS_INSTEAD {
                if class.in_limbo() == 0 {
                    break;
                }
                self.slabs.collect(&mut class, &self.epochs);
            }
            let before = class.pages;
            self.slabs.release_rest(&mut class, &self.epochs);
            released |= class.pages < before;
        }
        released
    }

    fn sweep_run(&self, s: &mut Sweeper, run: u32, class: &mut Class) {
        for _ in 0..run {
            self.slabs.with_item(class, s.page, s.chunk, |class, loc, item| {
                class.tally.swept += 1;
                if !self.is_live(&item) && self.remove(class, loc, item, false) {
                    class.tally.swept_out += 1;
                }
            });
            s.chunk += 1;
        }
    }
}
