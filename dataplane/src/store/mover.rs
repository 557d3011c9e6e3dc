//! Pages on the move: from a class that has many to one that has none, or too few.
//!
//! Enters: housekeeping's turn, or a class that finds no page at all. Leaves: pages in the pool.
//! A page is emptied by evicting what is in it; that takes one class's lock for a short run of
//! chunks at a time. Three reasons to move one: the reserve for classes without pages is gone; a
//! class without pages needs one now; for some time one class evicts and another does not (as
//! memcached's automover decides). Fails: not at all, but a page may be slow in coming, as long
//! as somebody looks at what was in it.

use super::Store;
use super::evict::RUN_CHUNKS;
use super::slab::ClassId;

/// Pages kept for classes that have none.
pub(super) const RESERVE_PAGES: u32 = 1;

/// Chunks that the mover visits in one turn of housekeeping.
const MOVE_CHUNKS: u32 = 8192;

/// Seconds between two looks at who evicts and who does not.
const WINDOW_SECONDS: u32 = 1;

/// Windows in a row that make a habit.
const WINDOWS_MIN: u32 = 3;

/// Pages that a class keeps when others evict more than it does.
const KEEP_PAGES: u32 = 2;

/// Who gives pages to whom.
#[derive(Debug)]
pub(super) struct Mover {
    draining: Option<Drain>,
    /// Where to begin looking for the richest class, so that ties take turns.
    turn: u8,
    /// Pages moved so far.
    pub(super) pages_moved: u64,
    /// When the last window ended.
    looked: u32,
    habits: Box<[Habit]>,
}

/// How a class fared of late.
#[derive(Debug, Clone, Copy, Default)]
struct Habit {
    /// Evictions up to the last look.
    evicted: u64,
    /// Windows since then with evictions, or without.
    busy_windows: u32,
    calm_windows: u32,
}

#[derive(Debug, Clone, Copy)]
struct Drain {
    class: ClassId,
    page: u32,
    chunk: u32,
}

impl Mover {
    pub(super) fn new(n_classes: usize) -> Self {
        let habits = vec![Habit::default(); n_classes].into();
        Self { draining: None, turn: 0, pages_moved: 0, looked: 0, habits }
    }
}

impl Store {
    /// Housekeeping's turn.
    pub(super) fn move_pages(&self) {
        if !self.config.evict {
            return;
        }
        let mut mover = self.mover.lock();
        if mover.draining.is_none() {
            if self.slabs.free_pages(&self.epochs) < RESERVE_PAGES {
                // A class's only page is not taken for a reserve: it would be asked back at once.
                self.start(&mut mover, |_, pages| pages >= 2);
            } else {
                self.balance(&mut mover);
            }
        }
        self.drain(&mut mover, MOVE_CHUNKS);
    }

    /// Takes a page from another class for one that has none and finds none.
    pub(super) fn take_from_others(&self, id: ClassId) {
        // Whoever holds the lock is moving a page already.
        let Some(mut mover) = self.mover.try_lock() else { return };
        if mover.draining.is_none() && self.slabs.free_pages(&self.epochs) == 0 {
            self.start(&mut mover, |class, pages| class != id && pages >= 1);
        }
        self.drain(&mut mover, u32::MAX);
    }

    /// Once a window: takes a page from the class with the most pages among those that have
    /// evicted nothing for some time, if another evicted all the time.
    fn balance(&self, mover: &mut Mover) {
        let now = self.now();
        if now < mover.looked + WINDOW_SECONDS {
            return;
        }
        mover.looked = now;
        for (id, habit) in self.slabs.class_ids().zip(&mut mover.habits) {
            let evicted = self.slabs.lock(id).tally.evicted;
            if evicted > habit.evicted {
                (habit.busy_windows, habit.calm_windows) = (habit.busy_windows + 1, 0);
            } else {
                (habit.busy_windows, habit.calm_windows) = (0, habit.calm_windows + 1);
            }
            habit.evicted = evicted;
        }
        if mover.habits.iter().any(|h| h.busy_windows >= WINDOWS_MIN) {
            let calm: Box<[bool]> =
                mover.habits.iter().map(|h| h.calm_windows >= WINDOWS_MIN).collect();
            self.start(mover, |class, pages| pages > KEEP_PAGES && calm[usize::from(class.0)]);
        }
    }

    /// Begins to take a page from the richest class that may give one.
    fn start(&self, mover: &mut Mover, may_give: impl Fn(ClassId, u32) -> bool) {
        let n = self.slabs.class_ids().count();
        let richest = self
            .slabs
            .class_ids()
            .cycle()
            .skip(usize::from(mover.turn) % n)
            .take(n)
            .map(|id| (self.slabs.lock(id).pages, id))
            .filter(|(pages, id)| may_give(*id, *pages))
            .max_by_key(|(pages, _)| *pages);
        mover.turn = mover.turn.wrapping_add(1);
        mover.draining = richest.and_then(|(_, class)| {
            let page = self.slabs.start_drain(&mut self.slabs.lock(class))?;
            Some(Drain { class, page, chunk: 0 })
        });
    }

    /// Goes on emptying the page that is being taken, for at most `budget` chunks.
    fn drain(&self, mover: &mut Mover, budget: u32) {
        let Some(mut drain) = mover.draining else { return };
        let per_page = self.slabs.size(drain.class).per_page;
        let until = drain.chunk.saturating_add(budget).min(per_page);
        while drain.chunk < until {
            let mut class = self.slabs.lock(drain.class);
            for _ in 0..RUN_CHUNKS.min(until - drain.chunk) {
                self.slabs.with_owner(&mut class, drain.page, drain.chunk, |class, loc, item| {
                    self.remove(class, loc, item, false)
                });
                drain.chunk += 1;
            }
        }
        mover.draining = Some(drain);
        if drain.chunk < per_page {
            return;
        }
        self.empty_limbo(drain.class);
        let mut class = self.slabs.lock(drain.class);
        if self.slabs.finish_drain(&mut class, drain.page, &self.epochs) {
            mover.pages_moved += 1;
            // What the move itself evicted tells nothing of the class's needs.
            mover.habits[usize::from(drain.class.0)].evicted = class.tally.evicted;
            mover.draining = None;
        } else {
            // Chunks that were being written are linked by now: once more from the start.
            mover.draining = Some(Drain { chunk: 0, ..drain });
        }
    }
}
