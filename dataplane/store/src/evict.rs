//! Making room: the hand that evicts and the sweeper that expires.
//!
//! In: a class that needs a chunk, or housekeeping's turn. Out: chunks in limbo, which come
//! back when their epoch has passed. Recency is one bit an item. New items queue up and are judged
//! by it once, soon (`probation.rs`); the others are judged by a hand that goes round (CLOCK;
//! Corbató 1968): both clear the bit where it is set and evict where it is not. What a new value is being made of is passed
//! over. Chunks are evicted
//! ahead of need, because a chunk cannot be used again at once. A class whose chunks are looked at for
//! long takes another page, or borrows a larger chunk, and only then waits. Every loop here is bounded,
//! and so is each wait. Fails: a class may get nothing, when all that it could have is being written,
//! or pinned by readers for longer than any wait lasts.

use super::item::Location;
use super::mover::RESERVE_PAGES;
use super::slab::{Class, ClassId, Grown, SPARE_CHUNKS};
use super::state::Store;
use super::sweeper::{Asked, Sweeper};
use std::hint::spin_loop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Chunks this many times too large are taken rather than another class's only page.
const BORROW_FACTOR: u32 = 8;

/// New items give way first while they are more than one in this many.
const NEWCOMERS_SHARE: u32 = 4;

/// Every so many evictions the hand's turn comes all the same, so that what was stored long ago
/// and is never read does not stay for ever.
const HAND_EVERY: u64 = 16;

/// Chunks that the hand looks at in one go beyond those that it needs.
const HAND_STEPS: u32 = 64;

/// Chunks that are looked at for dead items in one go, where nothing is evicted.
const DEAD_STEPS: u32 = 16;

/// Tries to get a chunk without giving up the CPU, and the spins between two of them: about 100 µs.
const TRIES_SPINNING: u32 = 64;
const SPINS_PER_TRY: u32 = 64;
/// Tries up to here give up the CPU: a reader that holds things up may be waiting for it. Then the
/// writer sleeps between two.
const TRIES_YIELDING: u32 = 96;
const NAP: Duration = Duration::from_micros(200);
/// A writer sleeps so often at least, and for so long in all: who holds it up may wait for a CPU as well,
/// for 100 ms and more where twenty threads share two CPUs.
const NAPS_MIN: u32 = 100;
pub(super) const NAPS_MAX: Duration = Duration::from_millis(500);

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

/// Chunks of a page from which on a class keeps one for changes: of 4 KB and less.
const KEPT_PER_PAGE: u32 = 256;

/// Whether a class's last chunk may be taken, where one is kept for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Last {
    /// No: the item is one more, or another's chunk is given back for it.
    #[default]
    Kept,
    /// Yes: one of the same class is given back for it.
    Too,
}

/// How long a writer retries when there is no free memory: first spinning, then yielding, then sleeping.
#[derive(Debug, Default)]
pub(super) struct Retries {
    tries: u32,
    until: Option<Instant>,
}

impl Store {
    /// A chunk of the class, the caller's alone; if it needs only one, it may be of a larger class.
    /// `chunks` is how many it needs in all. It may be the last where one of the same class is given back for it. Without `retries` it does not wait: pinned callers must
    /// not, because others may wait for them to unpin.
    #[inline(always)]
    pub(super) fn allocate(
        &self,
        id: ClassId,
        bytes: usize,
        (chunks, last): (u32, Last),
        retries: Option<&mut Retries>,
        before_waiting: impl FnOnce(),
    ) -> Option<Location> {
        let at_once = self.take_chunk(&mut self.slabs.lock(id), bytes, retries.is_some(), last);
        if at_once.is_some() {
            return at_once;
        }
        before_waiting();
        let retries = retries?;
        self.wait_for_sweeper();
        self.allocate_late(id, bytes, (chunks, last), retries)
    }

    #[inline(always)]
    pub(super) fn take_chunk(
        &self,
        class: &mut Class,
        bytes: usize,
        may_wait: bool,
        last: Last,
    ) -> Option<Location> {
        // As many as no class keeps free need no closer look.
        if class.free <= SPARE_CHUNKS {
            self.replenish(class, may_wait);
            if self.keeps_one(class) {
                let spare = self.slabs.spare(class);
                if last == Last::Kept && spare <= 1 {
                    return None;
                }
                if spare > 0 {
                    class.kept_is_out = spare == 1;
                }
            }
        }
        self.slabs.pop(class, bytes)
    }

    /// Whether one chunk of the class is kept for changes of items that are there, because nothing is evicted
    /// for them: as memcached, which makes these where the item stands, a counter goes on when memory is full.
    /// Not of large chunks, of which one is much.
    fn keeps_one(&self, class: &Class) -> bool {
        !self.config.evict && class.size.per_page >= KEPT_PER_PAGE
    }

    /// [`Self::take_chunk`] for `n` items, each of so many bytes, which may wait. False when there are fewer.
    #[inline(always)]
    pub(super) fn take_chunks(
        &self,
        class: &mut Class,
        n: u32,
        bytes: usize,
        mut to: impl FnMut(Location),
    ) -> bool {
        // No look at what is spare would see to more.
        let enough = class.free > SPARE_CHUNKS + n
            || self.slabs.spare(class) >= class.spare_wanted() + n && class.free >= n;
        if enough {
            self.slabs.pop_several(class, n, bytes, to);
            return true;
        }
        // What is scarce and does not come back by eviction, is not taken ahead of others that need it now.
        if !self.config.evict {
            return false;
        }
        (0..n).all(|_| self.take_chunk(class, bytes, true, Last::Kept).map(&mut to).is_some())
    }

    #[cold]
    fn allocate_late(
        &self,
        id: ClassId,
        bytes: usize,
        (chunks, last): (u32, Last),
        retries: &mut Retries,
    ) -> Option<Location> {
        loop {
            let mut class = self.slabs.lock(id);
            if let Some(loc) = self.take_chunk(&mut class, bytes, false, last) {
                return Some(loc);
            }
            // One more where the chunk to be given back is not to be evicted for its successor.
            let starved = class.chunks_to_keep() < chunks + u32::from(last == Last::Too);
            // The one that is kept comes back from who has it.
            let comes_back = last == Last::Too && class.kept_is_out;
            let pages_stay = self.config.slab_pages.is_some();
            let hopeless =
                !self.config.evict && class.in_limbo() == 0 && !comes_back || starved && pages_stay;
            // What a large item needs is not kept back for others, nor what would be refused.
            if (starved || hopeless || retries.has_slept())
                && self.slabs.grow(&mut class, &self.epochs, 0)
            {
                continue;
            }
            drop(class);
            if starved || hopeless || retries.has_slept() {
                let factor = if retries.has_slept() { u32::MAX } else { BORROW_FACTOR };
                if chunks == 1
                    && let Some(loc) = self.borrow(id, bytes, factor)
                {
                    return Some(loc);
                }
                if hopeless {
                    break;
                }
            }
            if starved && self.config.evict {
                self.take_from_others(id);
            }
            if !self.wait(retries) {
                break;
            }
        }
        let borrowed = if chunks == 1 { self.borrow(id, bytes, u32::MAX) } else { None };
        if borrowed.is_none() {
            self.slabs.lock(id).tally.out_of_memory += 1;
        }
        borrowed
    }

    /// Waits while another thread sweeps up after a flush, for [`NAPS_MAX`] at most.
    fn wait_for_sweeper(&self) {
        let begun = Instant::now();
        while self.flushed.is_unswept() && self.sweeper.is_locked() && begun.elapsed() < NAPS_MAX {
            std::thread::sleep(NAP);
        }
    }

    /// Waits for readers to move on, longer each time. False when that was long enough, or has been
    /// tried already since any reader moved.
    pub(super) fn wait(&self, retries: &mut Retries) -> bool {
        retries.tries += 1;
        if retries.tries < TRIES_SPINNING {
            (0..SPINS_PER_TRY).for_each(|_| spin_loop());
            return true;
        }
        let safe = self.epochs.safe_epoch().number();
        if self.waited_in_vain.load(Ordering::Relaxed) == safe {
            return false;
        }
        if retries.tries < TRIES_YIELDING {
            std::thread::yield_now();
            return true;
        }
        let now = Instant::now();
        let late = now >= *retries.until.get_or_insert_with(|| now + NAPS_MAX);
        if late && retries.tries > TRIES_YIELDING + NAPS_MIN {
            self.waited_in_vain.store(safe, Ordering::Relaxed);
            return false;
        }
        std::thread::sleep(NAP);
        true
    }

    /// A chunk of a larger class, at most `factor` times as large, that has pages. Housekeeping
    /// sees to it that a starved class gets a page of its own, if any class has two. Where pages stay, so do
    /// items; in turn, a class gives what is free and evicts nothing for it.
    fn borrow(&self, id: ClassId, bytes: usize, factor: u32) -> Option<Location> {
        if self.config.slab_pages.is_some() {
            return None;
        }
        let most = self.slabs.size(id).units.saturating_mul(factor);
        let larger = self.slabs.class_ids().filter(|c| *c > id);
        larger.take_while(|c| self.slabs.size(*c).units <= most).find_map(|larger| {
            let mut class = self.slabs.lock(larger);
            if class.pages == 0 {
                return None;
            }
            if self.slabs.is_in_turn() {
                self.slabs.collect(&mut class, &self.epochs);
                return self
                    .slabs
                    .offer_next(&mut class)
                    .then(|| self.slabs.pop(&mut class, bytes))?;
            }
            self.take_chunk(&mut class, bytes, false, Last::Kept)
        })
    }

    /// Sees to it that the class has chunks to give, now and for the next few requests.
    #[inline(always)]
    fn replenish(&self, class: &mut Class, may_wait: bool) {
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

    /// Gives back the pages that classes do not need any more, where the class's lock is free.
    fn release_everywhere(&self) {
        for mut class in self.slabs.class_ids().filter_map(|id| self.slabs.try_lock(id)) {
            for _ in 0..COLLECTS_INSTEAD {
                if class.in_limbo() == 0 {
                    break;
                }
                self.slabs.collect(&mut class, &self.epochs);
            }
            self.slabs.release_rest(&mut class, &self.epochs);
        }
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

impl Retries {
    /// Whether the writer has come to sleep between two tries.
    fn has_slept(&self) -> bool {
        self.tries >= TRIES_YIELDING
    }
}
