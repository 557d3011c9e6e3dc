//! Pages on the move: from a class that can do without to one that has none, or too few.
//!
//! In: housekeeping's turn, or a class that finds no page at all. Out: pages in the pool.
//! Four reasons to move one: more are in use than may be; the reserve for classes without pages is gone; a class
//! without pages needs one now; classes are out of step (`balance`). Where pages are few, a class that stores nothing
//! gives its only page if it uses little of it, or if chunks of larger classes have room for what lies there; and no
//! class in use gives one for the reserve that is worth more to it than to who needs pages most. A class at rest may
//! lose its only page, and with it its items: what is stored again finds chunks of other classes (`allocate.rs`). Where
//! classes have their pages from the start, none is moved. How it is emptied: `drain.rs`. Fails: not at all, but a page may be slow in coming.

use super::balance::{ANYBODY, OUT_OF_STEP, Seen, Standing};
use super::moving::{Automove, Drain, Mover, NotMoved};
use super::slab::ClassId;
use super::store::Store;

/// Pages kept for classes that have none.
pub(super) const RESERVE_PAGES: u32 = 1;

/// A class that uses one chunk in so many of its only page can do with chunks of a larger class.
const LITTLE_SHARE: u32 = 16;

/// Pages that a class keeps when others need them more, unless it is at rest.
const KEEP_PAGES: u32 = 1;

impl Standing {
    /// Whether it may give a page that is worth so much to another. Its only one, when it is at rest.
    fn may_give(&self, gain: f64, worth: f64) -> bool {
        (self.pages > KEEP_PAGES || !self.busy || self.sparse) && self.worth * gain <= worth
    }
}

fn class(n: usize) -> Option<ClassId> {
    u8::try_from(n).ok().map(ClassId)
}

impl Store {
    /// Whether a page may be taken from its class.
    pub(super) fn pages_move(&self) -> bool {
        self.config.evict && self.config.slab_pages.is_none()
    }

    /// Gives each class the pages that it was promised at the start.
    pub(super) fn assign_pages(&self) {
        let Some(slab_pages) = &self.config.slab_pages else { return };
        self.set_automove(Automove::Off);
        for (id, (_, pages)) in self.slabs.class_ids().zip(slab_pages.classes()) {
            let class = &mut self.slabs.lock(id);
            while class.pages < pages && self.slabs.grow(class, &self.epochs, 0) {}
        }
    }

    /// Housekeeping's turn.
    pub(super) fn move_pages(&self) {
        if !self.pages_move() {
            return;
        }
        let mut mover = self.mover.lock();
        if mover.draining.is_none() {
            let free = self.slabs.free_pages(&self.epochs);
            self.look(&mut mover);
            if let Some(id) = mover.promised
                && self.slabs.grow(&mut self.slabs.lock(id), &self.epochs, 0)
            {
                mover.promised = None;
            } else if self.slabs.is_over_limit(&self.epochs) {
                self.start(&mut mover, ANYBODY, |_, _| true);
            } else {
                let (gain, needy) = (mover.automove.gain(), mover.balance.needy());
                let worth = needy.map_or(0.0, |(_, worth)| worth);
                let dear = if gain.is_some() && self.has_few_pages() { worth } else { f64::MAX };
                let needy = gain.zip(needy.map(|(n, _)| n));
                let is_due = mover.balance.is_any_due();
                if free < RESERVE_PAGES {
                    // A class's only page is not taken for a reserve: it would be asked back at once. But where
                    // another class needs pages, those of classes at rest are the reserve before its own are. Where
                    // pages are few, nor is one that is worth more than to that class, unless its class's hand is behind.
                    self.start_fairly(&mut mover, ANYBODY, dear, |n, giver| {
                        let is_behind = giver.is_behind(OUT_OF_STEP);
                        giver.pages > KEEP_PAGES && (giver.worth <= dear || is_behind)
                            || giver.sparse && (is_due || needy.is_some())
                            || needy.is_some_and(|(gain, needy)| {
                                n != needy && is_behind && giver.may_give(gain, worth)
                            })
                    });
                } else if free == RESERVE_PAGES
                    && let Some((gain, needy)) = needy
                {
                    self.start_fairly(&mut mover, OUT_OF_STEP, f64::MAX, |n, giver| {
                        n != needy && giver.may_give(gain, worth)
                    });
                    if mover.draining.is_some() {
                        mover.promised = class(needy);
                    }
                }
            }
            mover.balance.end_turn();
        }
        self.go_on(&mut mover, false);
    }

    /// Begins to move a page from class `from` to class `to`. Classes are counted as memcached
    /// counts them: from 1, and 0 is the pool of pages that belong to none. A negative `from`
    /// leaves the choice here.
    ///
    /// # Errors
    /// [`NotMoved`].
    pub fn reassign(&self, from: i32, to: i32) -> Result<(), NotMoved> {
        let n = self.slabs.class_ids().count();
        let class = |number: i32| match usize::try_from(number) {
            Ok(0) => Ok(None),
            Ok(number) if number <= n => Ok(class(number - 1)),
            _ => Err(NotMoved::BadClass),
        };
        let mut mover = self.mover.lock();
        if mover.is_busy() {
            return Err(NotMoved::Busy);
        }
        if from == to {
            return Err(NotMoved::Same);
        }
        let to = class(to)?;
        let any = from < 0;
        let from = if any { None } else { class(from)? };
        if !self.pages_move() {
            return Err(NotMoved::NoSpare);
        }
        if any || from.is_some() {
            let is = |n: usize, id: Option<ClassId>| id.is_some_and(|id| usize::from(id.0) == n);
            self.look(&mut mover);
            self.start(&mut mover, ANYBODY, |n, giver| {
                giver.pages >= 2 && !is(n, to) && (any || is(n, from))
            });
            if mover.draining.is_none() {
                // As memcached, which looks for one first.
                return Err(if any { NotMoved::BadClass } else { NotMoved::NoSpare });
            }
        } else if self.slabs.free_pages(&self.epochs) == 0 {
            return Err(NotMoved::NoSpare);
        }
        mover.promised = to;
        Ok(())
    }

    /// Takes a page from another class for one that has none and finds none.
    pub(super) fn take_from_others(&self, id: ClassId) {
        if !self.pages_move() {
            return;
        }
        // The thread that holds the lock is moving a page already.
        let Some(mut mover) = self.mover.try_lock() else { return };
        if mover.draining.is_none() && self.slabs.free_pages(&self.epochs) == 0 {
            self.look(&mut mover);
            let giver = mover.balance.cheapest(id.0.into()).and_then(class);
            self.start_with(&mut mover, giver);
        }
        self.go_on(&mut mover, true);
    }

    /// Whether there are fewer pages than two for each class.
    fn has_few_pages(&self) -> bool {
        (self.slabs.limit_pages() as usize) < 2 * self.slabs.sizes().len()
    }

    /// Takes note of how each class stands.
    fn look(&self, mover: &mut Mover) {
        self.returns.fade();
        let few_pages = self.has_few_pages();
        let factor = self.lent_factor();
        let seen = self.slabs.class_ids().map(|id| {
            let only_one = few_pages && self.slabs.lock(id).pages == 1;
            let larger = self.larger(id, if only_one { factor } else { 0 });
            let room = larger.map(|c| self.slabs.room(&self.slabs.lock(c))).sum();
            let class = self.slabs.lock(id);
            // A page that is free costs no item its place.
            let free = self.slabs.spare(&class) + class.free_in_turn;
            let idle = free >= self.slabs.size(id).per_page * 2;
            Seen {
                pages: class.pages,
                chunks: class.chunks(),
                little_used: few_pages && class.used <= (class.chunks() / LITTLE_SHARE).max(room),
                due: class.pages == 0 && class.is_due_a_page(),
                stored: class.tally.stored,
                steps: class.hand_steps,
                missed: if idle { 0.0 } else { self.returns.share(usize::from(id.0)) },
                evicted: class.tally.evicted - class.tally.evicted_by_mover,
            }
        });
        mover.balance.look(seen);
    }

    /// Begins to take a page from the class that can best do without, among those that may give
    /// one.
    fn start(&self, mover: &mut Mover, behind: f64, may: impl Fn(usize, &Standing) -> bool) {
        let giver = mover.balance.giver(behind, may).and_then(class);
        self.start_with(mover, giver);
    }

    /// The same, but the only page of a class, or one that is worth more than `dear` to it, stays when items of the
    /// class were stored or asked for since this looked there last: it is judged as the hand judges an item.
    fn start_fairly(
        &self,
        mover: &mut Mover,
        behind: f64,
        dear: f64,
        may: impl Fn(usize, &Standing) -> bool,
    ) {
        let giver = mover.balance.giver(behind, may);
        let keeps = giver.and_then(|n| {
            let id = class(n).filter(|_| mover.balance.may_keep(n, dear))?;
            let (stored, asked) = self.pass_over(id);
            let keeps = mover.balance.keeps_page(n, stored, asked);
            if keeps {
                self.slabs.pass_page(&mut self.slabs.lock(id));
            }
            Some(keeps)
        });
        if keeps != Some(true) {
            self.start_with(mover, giver.and_then(class));
        }
    }

    fn start_with(&self, mover: &mut Mover, giver: Option<ClassId>) {
        mover.draining = giver.and_then(|id| {
            let page = self.slabs.start_drain(&mut self.slabs.lock(id))?;
            Some(Drain::new(id, page, self.slabs.taken(page)))
        });
    }

    /// Goes on with the page that is being taken.
    fn go_on(&self, mover: &mut Mover, urgent: bool) {
        if let Some(drain) = &mut mover.draining
            && self.drain(drain, urgent)
        {
            mover.pages_moved += 1;
            mover.draining = None;
        }
    }
}
