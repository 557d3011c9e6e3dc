//! Chunks for items: from the item's own class, from a larger one, or, after a wait, from who has moved on.
//!
//! When memory is full, a class without a page does not get one at once: that may cost thousands of items their
//! places, and the class may never store a second item. Its items get chunks of the next larger class that has
//! pages, until these were as much memory as a page is. Then the class is due the next free page. If all classes with pages have
//! much larger chunks, a class whose chunks are a few times as large gets a page, so that further sizes find room there.
//!
//! In: a class and a length. Out: a chunk that is the caller's alone. Every loop here is bounded, and so is each
//! wait. Fails: there may be no chunk, when all that the class could have is being written, or pinned by
//! readers for longer than any wait lasts.

use super::item::Location;
use super::mover::RESERVE_PAGES;
use super::sizes::SizeClass;
use super::slab::{Class, ClassId, SPARE_CHUNKS};
use super::store::Store;
use std::hint::spin_loop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// An item of a class without a page may have a chunk this many times as large as its own class's; or larger, where
/// pages are few.
const LENT_FACTOR_MIN: u32 = 8;
/// A class that gets a page for items of smaller classes has chunks at most this many times as large as theirs.
const SHARED_FACTOR: u32 = 4;

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

/// Chunks of a page from which on a class keeps one for changes: of 4 KB and less.
const KEPT_PER_PAGE: u32 = 256;

/// The class of the chunk that is given back when the new item is in its place, if one is. That class's last chunk may be
/// taken, where one is kept for changes.
pub(super) type GivenBack = Option<ClassId>;

/// How long a writer retries when there is no free memory: first spinning, then yielding, then sleeping.
#[derive(Debug, Default)]
pub(super) struct Retries {
    tries: u32,
    until: Option<Instant>,
}

impl Store {
    /// A chunk of the class, the caller's alone; if it needs only one, it may be of a larger class.
    /// `chunks` is how many it needs in all. Without `retries` it does not wait: pinned callers must
    /// not, because others may wait for them to unpin.
    #[inline(always)]
    pub(super) fn allocate(
        &self,
        id: ClassId,
        bytes: usize,
        (chunks, given_back): (u32, GivenBack),
        retries: Option<&mut Retries>,
        before_waiting: impl FnOnce(),
    ) -> Option<Location> {
        let at_once =
            self.take_chunk(&mut self.slabs.lock(id), bytes, retries.is_some(), given_back);
        if at_once.is_some() {
            return at_once;
        }
        before_waiting();
        let retries = retries?;
        self.wait_for_sweeper();
        self.allocate_late(id, bytes, (chunks, given_back), retries)
    }

    #[inline(always)]
    pub(super) fn take_chunk(
        &self,
        class: &mut Class,
        bytes: usize,
        may_wait: bool,
        given_back: GivenBack,
    ) -> Option<Location> {
        // As many as no class keeps free need no closer look.
        if class.free <= SPARE_CHUNKS {
            self.replenish(class, may_wait);
            if self.keeps_one(class) {
                let spare = self.slabs.spare(class);
                if given_back != Some(class.id) && spare <= 1 {
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
        (0..n).all(|_| self.take_chunk(class, bytes, true, None).map(&mut to).is_some())
    }

    #[cold]
    fn allocate_late(
        &self,
        id: ClassId,
        bytes: usize,
        (chunks, given_back): (u32, GivenBack),
        retries: &mut Retries,
    ) -> Option<Location> {
        // Whether pages were given back for this chunk; None: not tried yet.
        let mut released = None;
        loop {
            let lender = if chunks == 1 { self.lender(id, given_back) } else { id };
            let mut class = self.slabs.lock(lender);
            if let Some(loc) = self.take_chunk(&mut class, bytes, false, given_back) {
                let units = class.size.units;
                drop(class);
                if lender != id {
                    let class = &mut self.slabs.lock(id);
                    class.borrowed_units = class.borrowed_units.saturating_add(units);
                }
                return Some(loc);
            }
            let gets_one_back = given_back == Some(lender);
            // One more where the chunk to be given back is not to be evicted for its successor. A lender that has nothing
            // in limbo after a long wait is as good as one without pages.
            let starved = class.chunks_to_keep() < chunks + u32::from(gets_one_back)
                || lender != id && retries.has_slept() && class.in_limbo() == 0;
            // The one that is kept comes back from who has it.
            let comes_back = gets_one_back && class.kept_is_out;
            let pages_stay = self.config.slab_pages.is_some();
            // The class whose chunk comes back is asked next.
            let asks_on = !pages_stay && given_back.is_some_and(|back| back > lender);
            let hopeless = !self.config.evict && class.in_limbo() == 0 && !comes_back && !asks_on
                || starved && pages_stay;
            // What a large item needs is not kept back for others, nor what would be refused.
            let is_short = starved || hopeless || retries.has_slept();
            // A lender that has pages needs no further one.
            let needs = if class.chunks_to_keep() > 0 { id } else { lender };
            drop(class);
            if is_short && self.slabs.grow(&mut self.slabs.lock(needs), &self.epochs, 0) {
                continue;
            }
            if is_short && chunks == 1 {
                let factor = if retries.has_slept() { u32::MAX } else { self.lent_factor() };
                let larger = self.take_larger(id, bytes, factor, given_back);
                if larger.is_some() {
                    return larger;
                }
            }
            // Where nothing is evicted, housekeeping alone gives pages back that hold nothing, and not at once.
            if hopeless && !*released.get_or_insert_with(|| self.release_everywhere()) {
                break;
            }
            if starved && self.config.evict {
                self.take_from_others(lender);
            }
            if !self.wait(retries) {
                break;
            }
        }
        let larger =
            if chunks == 1 { self.take_larger(id, bytes, u32::MAX, given_back) } else { None };
        if larger.is_none() {
            self.slabs.lock(id).tally.out_of_memory += 1;
        }
        larger
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

    /// Which class the next chunk for an item of class `id` is to come from.
    fn lender(&self, id: ClassId, given_back: GivenBack) -> ClassId {
        let class = self.slabs.lock(id);
        // Where nothing is evicted, what the item gives back is waited for, if its own class has nothing to give.
        let full = !self.config.evict && self.config.slab_pages.is_none();
        if let (true, Some(lender)) = (full, given_back) {
            let kept = u32::from(self.keeps_one(&class));
            let gives = self.slabs.spare(&class) + class.in_limbo() > kept;
            return if gives { id } else { lender.max(id) };
        }
        let lends = self.pages_move() && !self.slabs.is_in_turn();
        if !lends || class.chunks_to_keep() > 0 {
            return id;
        }
        drop(class);
        let has_pages = |c: &ClassId| self.slabs.lock(*c).chunks_to_keep() > 0;
        let lender = self.larger(id, self.lent_factor()).find(has_pages);
        lender.or_else(|| self.larger(id, SHARED_FACTOR).last()).unwrap_or(id)
    }

    /// How many times as large another class's chunk may be: so many that few pages serve all sizes.
    pub(super) fn lent_factor(&self) -> u32 {
        // All but the reserve, and one for a size that is stored more than others.
        let pages = self.slabs.limit_pages().saturating_sub(RESERVE_PAGES + 1).max(1);
        let units = |class: Option<&SizeClass>| class.map_or(1, |class| class.units);
        let (first, last) = (units(self.slabs.sizes().first()), units(self.slabs.sizes().last()));
        let mut factor = LENT_FACTOR_MIN;
        while factor.saturating_pow(pages) < last / first {
            factor *= 2;
        }
        factor
    }

    /// Larger classes, up to so many times as large.
    pub(super) fn larger(&self, id: ClassId, factor: u32) -> impl Iterator<Item = ClassId> {
        let most = self.slabs.size(id).units.saturating_mul(factor);
        let larger = self.slabs.class_ids().filter(move |c| *c > id);
        larger.take_while(move |c| self.slabs.size(*c).units <= most)
    }

    /// A chunk of a class up to so many times as large that has pages. Where pages stay, so do
    /// items; in turn, a class gives what is free and evicts nothing for it.
    fn take_larger(
        &self,
        id: ClassId,
        bytes: usize,
        factor: u32,
        given_back: GivenBack,
    ) -> Option<Location> {
        if self.config.slab_pages.is_some() {
            return None;
        }
        self.larger(id, factor).find_map(|larger| {
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
            self.take_chunk(&mut class, bytes, false, given_back)
        })
    }
}

impl Retries {
    /// Whether the writer has come to sleep between two tries.
    fn has_slept(&self) -> bool {
        self.tries >= TRIES_YIELDING
    }
}
