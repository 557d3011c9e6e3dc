//! What an administrator can ask of the store while it serves.
//!
//! In: orders. Out: settings that housekeeping follows at its next turn, and answers. Locks
//! of the mover and of size classes are held for a moment; nothing here is for the data path.

use super::config::PAGES_MIN;
use super::layout::{OWN_CAS_BYTES, WHOLE_MAX_BYTES, len_bytes};
use super::slab::Tally;
use super::sweeper::Asked;
use super::{Automove, ItemRef, Location, PAGE_BYTES, Store};
use std::sync::atomic::Ordering;

/// The requested memory limit is out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBounds;

impl Store {
    /// Bytes of slab memory that may be used.
    pub fn limit_bytes(&self) -> usize {
        self.slabs.limit_pages() as usize * PAGE_BYTES
    }

    /// Lets at most `bytes` be used, rounded down to whole pages: up to what was mapped at
    /// start-up. Pages in use beyond a new limit are emptied and given up by and by, where
    /// evicting is allowed, one after the other.
    ///
    /// # Errors
    /// [`OutOfBounds`]: more than was mapped, or fewer than two pages; or pages stay where they are.
    pub fn set_limit_bytes(&self, bytes: usize) -> Result<(), OutOfBounds> {
        let pages = bytes / PAGE_BYTES;
        let mapped = self.slabs.n_pages() as usize;
        if !(PAGES_MIN..=mapped).contains(&pages) || self.config.slab_pages.is_some() {
            return Err(OutOfBounds);
        }
        self.slabs.set_limit_pages(u32::try_from(pages).map_err(|_| OutOfBounds)?);
        Ok(())
    }

    /// How eagerly pages move between classes.
    pub fn automove(&self) -> Automove {
        self.mover.lock().automove
    }

    /// Sets [`Self::automove`].
    pub fn set_automove(&self, how: Automove) {
        self.mover.lock().automove = how;
    }

    /// Switches the sweeper, which removes dead items, off and on. Look-ups never see a dead item
    /// either way.
    pub fn set_sweeper(&self, on: bool) {
        self.sweeper_off.store(!on, Ordering::Relaxed);
    }

    /// Whether the sweeper may run.
    pub fn is_sweeper_on(&self) -> bool {
        !self.sweeper_off.load(Ordering::Relaxed)
    }

    /// Whether the sweeper runs: it may, and there is or was something that can expire.
    pub fn is_sweeping(&self) -> bool {
        self.expiring.load(Ordering::Relaxed) && self.is_sweeper_on()
    }

    /// Sends the sweeper round, at once and even if nothing was ever stored that can expire.
    pub fn sweep_anyway(&self) {
        self.expiring.store(true, Ordering::Relaxed);
        let mut sweeper = self.sweeper.lock();
        (sweeper.began, sweeper.asked) = (0, Asked::Next);
    }

    /// Whether a round of the sweeper that was requested is not at its end yet.
    pub fn is_round_owed(&self) -> bool {
        self.is_sweeper_on() && self.sweeper.lock().asked != Asked::No
    }

    /// Begins again to count what is counted since start-up. What is there now stays counted.
    pub fn reset_counts(&self) {
        let mut mover = self.mover.lock();
        mover.pages_moved = 0;
        for id in self.slabs.class_ids() {
            let mut class = self.slabs.lock(id);
            // A writer that gives an item back takes it from this count.
            let stored = u64::from(class.used - class.parts);
            class.tally = Tally { bytes: class.tally.bytes, stored, ..Tally::default() };
            class.stored_before = stored;
        }
        drop(mover);
        self.sweeper.lock().rounds = 0;
        self.turns.store(0, Ordering::Relaxed);
    }

    /// Size classes.
    pub fn classes(&self) -> usize {
        self.slabs.class_ids().count()
    }

    /// The size class of an item of this store, from 0.
    #[inline]
    pub fn class_of(&self, item: &ItemRef<'_>) -> usize {
        self.class_at(self.slabs.arena().location(item))
    }

    /// The same of whatever is in this place.
    #[inline]
    pub fn class_at(&self, at: Location) -> usize {
        self.slabs.page_of(at).map_or(0, |(id, _)| id.0.into())
    }

    /// The size class, from 0, that an item with a key and a value of these lengths belongs to, and maybe
    /// with a CAS id of its client's own; `None` for one that is too large.
    #[inline]
    pub fn class_for(&self, key_len: usize, value_len: usize, own_cas: bool) -> Option<usize> {
        let beside = if own_cas { OWN_CAS_BYTES } else { 0 };
        let id = match value_len > WHOLE_MAX_BYTES {
            true => self.slabs.large_class(),
            false => self.slabs.class_for(len_bytes(key_len, value_len) + beside),
        };
        id.map(|id| id.0.into())
    }
}

#[cfg(test)]
mod tests {
    use crate::{NotMoved, PAGE_BYTES, Session, Store, StoreConfig, verbs};
    use driver_shim::Pages;
    use std::sync::Arc;

    const PAGES: usize = 8;

    fn store(evict: bool) -> (Arc<Store>, Session) {
        let memory_bytes = PAGES * PAGE_BYTES;
        let config =
            StoreConfig { memory_bytes, evict, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let session = store.session().unwrap();
        (store, session)
    }

    fn fill(session: &mut Session, value_len: usize, n: usize) {
        let value = vec![b'v'; value_len];
        for i in 0..n {
            let key = format!("{value_len}-{i}").into_bytes();
            let _ = verbs::store(session, None, &base::Store::set(&key, 0, 0, &value));
        }
    }

    fn pages_in_use(store: &Store) -> u64 {
        store.stats().classes.iter().map(|c| c.total_pages).sum()
    }

    #[test]
    fn a_lower_limit_is_reached_by_and_by_and_kept() {
        let (store, mut session) = store(true);
        fill(&mut session, 10_000, 2000);
        assert!(pages_in_use(&store) >= PAGES as u64 - 1);
        assert!(store.set_limit_bytes((PAGES + 1) * PAGE_BYTES).is_err());
        assert!(store.set_limit_bytes(PAGE_BYTES).is_err());
        store.set_limit_bytes(4 * PAGE_BYTES + 5).unwrap();
        assert_eq!(store.stats().limit_maxbytes, 4 * PAGE_BYTES as u64);
        for _ in 0..50 {
            store.housekeep();
            fill(&mut session, 10_000, 100);
        }
        assert!((2..=4).contains(&pages_in_use(&store)), "{}", pages_in_use(&store));
        store.set_limit_bytes(PAGES * PAGE_BYTES).unwrap();
        fill(&mut session, 10_000, 2000);
        assert!(pages_in_use(&store) >= PAGES as u64 - 1);
    }

    #[test]
    fn a_page_goes_where_it_is_sent() {
        let (store, mut session) = store(true);
        fill(&mut session, 10_000, 700);
        fill(&mut session, 10, 1);
        let class = |len| i32::try_from(store.class_for(5, len, false).unwrap() + 1).unwrap();
        let (large, small) = (class(10_000), class(10));
        let pages = |of: i32| {
            let stats = store.stats();
            let found = stats.classes.iter().find(|c| i64::from(c.class) == i64::from(of));
            found.map_or(0, |c| c.total_pages)
        };
        let before = (pages(large), pages(small));
        assert!(before.0 > 2 && before.1 == 1);
        assert_eq!(store.reassign(small, small), Err(NotMoved::Same));
        assert_eq!(store.reassign(small, 255), Err(NotMoved::BadClass));
        assert_eq!(store.reassign(small, large), Err(NotMoved::NoSpare));
        assert_eq!(store.reassign(large, small), Ok(()));
        assert_eq!(store.reassign(large, small), Err(NotMoved::Busy));
        for _ in 0..50 {
            store.housekeep();
        }
        assert_eq!((pages(large), pages(small)), (before.0 - 1, before.1 + 1));
        let stats = store.stats();
        assert!(!stats.moving && stats.pages_moved == 1 && stats.evicted_by_mover > 0);
        store.reset_counts();
        let stats = store.stats();
        assert_eq!((stats.pages_moved, stats.evictions, stats.total_items), (0, 0, 0));
        assert!(stats.curr_items > 0 && stats.bytes > 0);
    }

    #[test]
    fn nothing_is_evicted_for_a_page_where_nothing_may_be() {
        let (store, mut session) = self::store(false);
        fill(&mut session, 10_000, 700);
        assert_eq!(store.reassign(-1, 1), Err(NotMoved::NoSpare));
    }
}
