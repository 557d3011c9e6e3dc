//! Forgetting every key under a prefix, in a moment and without visiting one.
//!
//! A prefix is what stands before a delimiter in a key: `user:42:name` lies under `user` and under
//! `user:42`. Enters: a prefix. Leaves: items that are dead from then on, told apart from later ones
//! by their CAS ids, as in `flush`.
//!
//! The table holds what was flushed since the sweeper last came by every item; then no item is left
//! that an entry could tell anything about, and the entry goes. While the table is empty a look-up
//! costs one load. A prefix is known by its hash: two that collide (1 in 2^64) are flushed together,
//! which costs a miss. Fails: when too many prefixes are flushed between two rounds of the sweeper.

use super::{ItemRef, Store};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Places in the table, and those that a hash may take.
const SLOTS: usize = 1 << 14;
const WINDOW: usize = 16;

/// Delimiters of a key that are looked at.
pub const PREFIX_DEPTH_MAX: usize = 8;

/// Why a prefix was not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixRefused {
    /// Empty, or with more than [`PREFIX_DEPTH_MAX`] parts.
    Malformed,
    /// Too many were flushed of late. In some seconds there is room again.
    TooMany,
}

/// One prefix that was flushed.
#[derive(Debug, Default)]
struct Slot {
    /// 0 in a free slot.
    hash: AtomicU64,
    /// Items with this CAS id or a lower one are dead.
    up_to: AtomicU64,
}

/// What was flushed of late.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// Slots in use.
    used: AtomicU32,
    slots: Box<[Slot]>,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    /// Flushes so far.
    count: u64,
    /// The slots in use, and the count when they were last written.
    slots: Vec<(usize, u64)>,
}

impl Default for Prefixes {
    fn default() -> Self {
        Self {
            used: AtomicU32::new(0),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            recent: Mutex::default(),
        }
    }
}

impl Prefixes {
    /// Forgets all flushes.
    pub(super) fn renew(&mut self) {
        // Slots not in use are as they were made.
        if self.count() != 0 {
            *self = Self::default();
        }
    }

    fn window(&self, hash: u64) -> impl Iterator<Item = (usize, &Slot)> {
        let first = usize::try_from(hash % SLOTS as u64).unwrap_or(0);
        (0..WINDOW).map(move |n| (first + n) % SLOTS).filter_map(|n| Some((n, self.slots.get(n)?)))
    }

    /// Up to which CAS id the items under this prefix are dead.
    fn up_to(&self, hash: u64) -> u64 {
        let found = self.window(hash).find(|(_, s)| s.hash.load(Ordering::Acquire) == hash);
        found.map_or(0, |(_, slot)| slot.up_to.load(Ordering::Acquire))
    }

    /// Whether any flush is remembered.
    pub(super) fn in_use(&self) -> bool {
        self.used.load(Ordering::Acquire) != 0
    }

    /// Flushes so far.
    pub(super) fn count(&self) -> u64 {
        self.recent.lock().count
    }

    /// Forgets the flushes up to the `count`th: the sweeper was everywhere since.
    pub(super) fn forget(&self, count: u64) {
        if self.used.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.recent.lock().slots.retain(|(n, written)| {
            let keep = *written > count;
            if !keep && let Some(slot) = self.slots.get(*n) {
                slot.hash.store(0, Ordering::Release);
                self.used.fetch_sub(1, Ordering::Release);
            }
            keep
        });
    }
}

impl Store {
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
        let mut recent = self.prefixes.recent.lock();
        let place = self
            .prefixes
            .window(hash)
            .find(|(_, s)| s.hash.load(Ordering::Relaxed) == hash)
            .or_else(|| {
                self.prefixes.window(hash).find(|(_, s)| s.hash.load(Ordering::Relaxed) == 0)
            });
        let (n, slot) = place.ok_or(PrefixRefused::TooMany)?;
        recent.count += 1;
        let count = recent.count;
        recent.slots.retain(|(other, _)| *other != n);
        recent.slots.push((n, count));
        slot.up_to.store(self.cas.load(Ordering::Acquire), Ordering::Release);
        if slot.hash.swap(hash, Ordering::AcqRel) == 0 {
            self.prefixes.used.fetch_add(1, Ordering::Release);
        }
        self.expiring.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the item lies under a prefix that was flushed after it was stored.
    #[inline]
    pub(super) fn prefix_flushed(&self, item: &ItemRef<'_>) -> bool {
        self.prefixes.in_use() && self.under_flushed(item)
    }

    #[cold]
    fn under_flushed(&self, item: &ItemRef<'_>) -> bool {
        let (key, cas) = (item.key(), item.cas());
        let delimiters =
            key.iter().enumerate().filter(|(_, b)| **b == self.config.prefix_delimiter);
        delimiters.take(PREFIX_DEPTH_MAX).any(|(end, _)| {
            let prefix = key.get(..end).unwrap_or_default();
            cas <= self.prefixes.up_to(self.prefix_hash(prefix))
        })
    }

    fn prefix_hash(&self, prefix: &[u8]) -> u64 {
        self.hash(prefix).0.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{StoreConfig, verbs};
    use super::*;
    use crate::protocol;
    use driver_shim::Pages;

    fn put(s: &mut super::super::Session, key: &str) {
        verbs::store(s, &protocol::Store::set(key.as_bytes(), 0, 0, b"v")).unwrap();
    }

    fn there(s: &mut super::super::Session, key: &str) -> bool {
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
