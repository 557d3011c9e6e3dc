//! Forgetting every key under a prefix, in a moment and without visiting one.
//!
//! A prefix is what stands before a delimiter in a key: `user:42:name` lies under `user` and under
//! `user:42`. In: a prefix. Out: items that are dead from then on, distinguished from later ones
//! by their numbers, as in `flush`.
//!
//! The table holds what was flushed since the sweeper last came by every item; then no item is left
//! that an entry could show anything about, and the entry goes. While the table is empty a look-up
//! costs one load. A prefix is known by its hash: two that collide (1 in 2^64) are flushed together,
//! which costs a miss. Fails: when too many prefixes are flushed between two rounds of the sweeper.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Places in the table, and those that a hash may take.
pub(super) const SLOTS: usize = 1 << 14;
const WINDOW: usize = 16;

/// Delimiters of a key that are looked at.
pub(super) const PREFIX_DEPTH_MAX: usize = 8;

/// Why a prefix was not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixRefused {
    /// Empty, or with more than `PREFIX_DEPTH_MAX` parts.
    Malformed,
    /// Too many were flushed of late. In some seconds there is room again.
    TooMany,
}

/// One prefix that was flushed.
#[derive(Debug, Default)]
struct Slot {
    /// 0 in a free slot.
    hash: AtomicU64,
    /// Items with this number or a lower one are dead.
    up_to: AtomicU64,
}

/// What was flushed of late.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// Slots in use.
    pub(super) used: AtomicU32,
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
    #[cfg(any(test, feature = "testing"))]
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

    /// Up to which number the items under this prefix are dead.
    pub(super) fn up_to(&self, hash: u64) -> u64 {
        let is_its = |slot: &Slot| slot.hash.load(Ordering::Acquire) == hash;
        let found = self.window(hash).find(|(_, slot)| is_its(slot)).map(|(_, slot)| slot);
        let up_to = found.map_or(0, |slot| slot.up_to.load(Ordering::Acquire));
        // The slot may have been forgotten, and taken by another prefix, between the two.
        if found.is_some_and(is_its) { up_to } else { 0 }
    }

    /// Remembers that the items under this prefix are dead up to this number.
    pub(super) fn flush(
        &self,
        hash: u64,
        up_to: impl FnOnce() -> u64,
    ) -> Result<(), PrefixRefused> {
        let mut recent = self.recent.lock();
        let free = |hash| self.window(hash).find(|(_, s)| s.hash.load(Ordering::Relaxed) == 0);
        let place = self
            .window(hash)
            .find(|(_, s)| s.hash.load(Ordering::Relaxed) == hash)
            .or_else(|| free(hash));
        let (n, slot) = place.ok_or(PrefixRefused::TooMany)?;
        recent.count += 1;
        let count = recent.count;
        recent.slots.retain(|(other, _)| *other != n);
        recent.slots.push((n, count));
        slot.up_to.store(up_to(), Ordering::Release);
        if slot.hash.swap(hash, Ordering::AcqRel) == 0 {
            self.used.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Whether any flush is remembered.
    pub(super) fn in_use(&self) -> bool {
        self.used.load(Ordering::Acquire) != 0
    }

    /// Flushes so far.
    pub(super) fn count(&self) -> u64 {
        self.recent.lock().count
    }

    /// Forgets the flushes up to the `count`th: the sweeper was everywhere since. Calls `none_left` if no other
    /// is remembered, before there can be one.
    pub(super) fn forget(&self, count: u64, none_left: impl FnOnce()) {
        if self.used.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut recent = self.recent.lock();
        recent.slots.retain(|(n, written)| {
            let keep = *written > count;
            if !keep && let Some(slot) = self.slots.get(*n) {
                slot.hash.store(0, Ordering::Release);
                self.used.fetch_sub(1, Ordering::Release);
            }
            keep
        });
        if recent.slots.is_empty() {
            none_left();
        }
    }
}
