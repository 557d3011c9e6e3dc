//! Which items are alive: not expired, and not flushed, with all others or with their prefix.
//!
//! In: a flush, or an item. Out: whether it is alive. A flush visits no item: each is
//! compared with what was flushed (`flush.rs`, `prefix.rs`) when it is found. Fails: when too many
//! prefixes are flushed between two rounds of the sweeper.

use super::flush::Liveness;
use super::item::ItemRef;
use super::prefix::{PREFIX_DEPTH_MAX, PrefixRefused};
use super::store::Store;
use std::sync::atomic::Ordering;

impl Store {
    /// Forgets everything that is stored a second before `delay` has passed, as memcached does: as an exptime,
    /// but at once when it is 0 or less. A later call takes the place of one that is still to come.
    pub fn flush(&self, delay: i64) {
        let due = if delay > 0 { self.clock.expiry(delay).saturating_sub(1) } else { 0 };
        if due > self.clock.now() {
            self.flushed.due.store(due, Ordering::Relaxed);
        } else {
            self.flushed.due.store(0, Ordering::Relaxed);
            self.flush_now();
        }
    }

    /// Whether the item has neither expired nor been flushed, with all others or with its prefix.
    #[inline]
    pub fn is_live(&self, item: &ItemRef<'_>) -> bool {
        !self.clock.has_passed(item.expiry())
            && item.sequence() > self.flushed.up_to.load(Ordering::Acquire)
            && !self.prefix_flushed(item)
    }

    /// What distinguishes live items from dead ones at this moment. `None` while prefixes are flushed, which
    /// depends on the key.
    #[inline]
    pub fn liveness(&self) -> Option<Liveness> {
        let flushed_up_to = self.flushed.up_to.load(Ordering::Acquire);
        (!self.prefixes.in_use()).then(|| Liveness { now: self.now(), flushed_up_to })
    }

    /// Moves the clock on.
    pub(super) fn tick(&self) {
        let reading = self.clock.reading();
        if let Some(published) = &self.published {
            published.clock(reading);
        }
        self.clock.set(reading);
    }

    /// Housekeeping's turn.
    pub(super) fn flush_when_due(&self) {
        let due = self.flushed.due.load(Ordering::Relaxed);
        let taken = self.clock.has_passed(due)
            && self
                .flushed
                .due
                .compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if taken {
            self.flush_now();
        }
    }

    fn flush_now(&self) {
        self.replicas.change_all(|| {
            self.flushed.flush(|| {
                let last = self.cas.load(Ordering::SeqCst);
                if let Some(published) = &self.published {
                    published.flush(last);
                }
                self.flushed.up_to.fetch_max(last, Ordering::AcqRel);
            });
        });
        self.expiring.store(true, Ordering::Relaxed);
    }

    /// Forgets every item whose key begins with `prefix` and the delimiter.
    ///
    /// # Errors
    /// [`PrefixRefused`].
    pub fn flush_prefix(&self, prefix: &[u8]) -> Result<(), PrefixRefused> {
        let parts = prefix.split(|b| *b == self.config.prefix_delimiter);
        if prefix.is_empty() || parts.count() > PREFIX_DEPTH_MAX {
            return Err(PrefixRefused::Malformed);
        }
        let hash = self.prefix_hash(prefix);
        let up_to = || {
            let last = self.cas.load(Ordering::SeqCst);
            if let Some(published) = &self.published {
                published.flush_prefix(last);
            }
            last
        };
        let flush = || self.prefixes.flush(hash, up_to);
        self.replicas.change_all(|| self.flushed.flush(flush))?;
        self.expiring.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The sweeper was everywhere since the `count`th flush of a prefix.
    pub(super) fn forget_prefixes(&self, count: u64) {
        self.prefixes.forget(count, || {
            if let Some(published) = &self.published {
                published.no_prefixes();
            }
        });
    }

    /// Whether the item lies under a prefix that was flushed after it was stored.
    #[inline]
    pub(super) fn prefix_flushed(&self, item: &ItemRef<'_>) -> bool {
        self.prefixes.in_use() && self.under_flushed(item)
    }

    #[cold]
    fn under_flushed(&self, item: &ItemRef<'_>) -> bool {
        let (key, sequence) = (item.key(), item.sequence());
        let delimiters =
            key.iter().enumerate().filter(|(_, b)| **b == self.config.prefix_delimiter);
        delimiters.take(PREFIX_DEPTH_MAX).any(|(end, _)| {
            let prefix = key.get(..end).unwrap_or_default();
            sequence <= self.prefixes.up_to(self.prefix_hash(prefix))
        })
    }

    fn prefix_hash(&self, prefix: &[u8]) -> u64 {
        self.hash(prefix).0.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::SLOTS;
    use crate::{StoreConfig, verbs};
    use driver_shim::Pages;

    fn put(s: &mut crate::Session, key: &str) {
        verbs::store(s, None, &base::Store::set(key.as_bytes(), 0, 0, b"v")).unwrap();
    }

    fn there(s: &mut crate::Session, key: &str) -> bool {
        verbs::get(&s.pin(), key.as_bytes()).is_some()
    }

    #[test]
    fn a_prefix_goes_and_nothing_else() {
        let config = StoreConfig { pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let mut s = store.session().unwrap();
        let keys = ["user", "user:", "user:1", "user:1:a", "user:2:a", "users:1", "x:user:1"];
        keys.iter().for_each(|key| put(&mut s, key));
        store.flush_prefix(b"user:1").unwrap();
        let left: Vec<bool> = keys.iter().map(|key| there(&mut s, key)).collect();
        assert_eq!(left, [true, true, true, false, true, true, true]);
        store.flush_prefix(b"user").unwrap();
        let left: Vec<bool> = keys.iter().map(|key| there(&mut s, key)).collect();
        assert_eq!(left, [true, false, false, false, false, true, true]);
        put(&mut s, "user:1");
        assert!(there(&mut s, "user:1"), "what comes after the flush stays");
        assert_eq!(store.flush_prefix(b""), Err(PrefixRefused::Malformed));
        assert_eq!(store.flush_prefix(b"a:b:c:d:e:f:g:h:i"), Err(PrefixRefused::Malformed));
    }

    #[test]
    fn the_table_empties_as_the_sweeper_comes_by() {
        let config =
            StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let mut s = store.session().unwrap();
        for n in 0..1000 {
            put(&mut s, &format!("p{n}:x"));
        }
        for n in 0..1000 {
            store.flush_prefix(format!("p{n}").as_bytes()).unwrap();
        }
        assert!((0..1000).all(|n| !there(&mut s, &format!("p{n}:x"))));
        assert_eq!(store.prefixes.used.load(Ordering::Relaxed), 1000);
        for _ in 0..3 {
            store.clock().skip_ahead(1);
            (0..200).for_each(|_| store.housekeep());
        }
        assert_eq!(store.prefixes.used.load(Ordering::Relaxed), 0);
        assert_eq!(store.stats().curr_items, 0);
        assert!((0..1000).all(|n| !there(&mut s, &format!("p{n}:x"))));
    }

    #[test]
    fn too_many_at_a_time_are_refused_and_none_comes_back_to_life() {
        let config = StoreConfig { pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let mut s = store.session().unwrap();
        let mut refused = 0;
        for n in 0..SLOTS {
            put(&mut s, &format!("{n}:x"));
            let done = store.flush_prefix(n.to_string().as_bytes());
            refused += usize::from(done == Err(PrefixRefused::TooMany));
            assert_eq!(there(&mut s, &format!("{n}:x")), done.is_err());
        }
        let left = (0..SLOTS).filter(|n| there(&mut s, &format!("{n}:x"))).count();
        assert!(refused > 0 && left == refused, "{refused} refused, {left} left");
    }
}
