//! Evictions that were wrong: of each class's evicted items, how many are stored again soon after.
//!
//! One in [`SAMPLE`] of the evicted items is remembered, by its key's hash, with the class
//! that it went from. An item that is stored again while it is remembered would have been a hit:
//! its class has given away more than others, and does so again with its next page. What is not
//! stored again was not worth its place.
//!
//! In: hashes of keys as their items go, and as items are stored. Out: a share for each
//! class. Old counts fade by halves. Fails: never; what is forgotten makes the share less exact.

use super::hash::KeyHash;
use driver_shim::prefetch_read;
use std::sync::atomic::{AtomicU32, Ordering};

/// One in so many keys is watched, always the same ones.
const SAMPLE: u64 = 8;

/// Bytes of item memory to one remembered key.
const BYTES_PER_KEY: usize = 2048;

/// Evictions noted before a share says anything.
const NOTED_MIN: u32 = 32;

/// What became of a class's evicted items.
#[derive(Debug, Default)]
struct Count {
    noted: AtomicU32,
    returned: AtomicU32,
}

/// The memory, and the counts of each class.
#[derive(Debug)]
pub(super) struct Returns {
    /// 24 bits of hash and the class + 1; 0 is an empty place.
    keys: Box<[AtomicU32]>,
    counts: Box<[Count]>,
}

impl Returns {
    pub(super) fn new(memory_bytes: usize, n_classes: usize) -> Self {
        Self {
            keys: (0..memory_bytes.div_ceil(BYTES_PER_KEY)).map(|_| AtomicU32::new(0)).collect(),
            counts: (0..n_classes).map(|_| Count::default()).collect(),
        }
    }

    /// Forgets all keys, and all counts.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn renew(&mut self) {
        self.keys.iter_mut().for_each(|key| *key = AtomicU32::new(0));
        self.counts.iter_mut().for_each(|count| *count = Count::default());
    }

    /// Where a watched hash belongs, and what stands there for it, the class left out.
    #[inline]
    fn place(&self, hash: KeyHash) -> Option<(&AtomicU32, u32)> {
        let (high, low) = (hash.0 >> 32, hash.0 & 0xffff_ffff);
        if !low.is_multiple_of(SAMPLE) {
            return None;
        }
        let at = ((high * self.keys.len() as u64) >> 32) as usize;
        Some((&self.keys[at], u32::try_from(low & 0xffff_ff00).unwrap_or(0)))
    }

    /// Prefetches the line that an item with this key will be looked for in.
    #[inline]
    pub(super) fn prefetch(&self, hash: KeyHash) {
        if let Some((place, _)) = self.place(hash) {
            prefetch_read(place);
        }
    }

    /// An item with this key has gone from the class.
    pub(super) fn gone(&self, hash: KeyHash, class: u8) {
        if let Some((place, tag)) = self.place(hash) {
            place.store(tag | (u32::from(class) + 1), Ordering::Relaxed);
            self.counts[usize::from(class)].noted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An item with this key is stored.
    #[inline]
    pub(super) fn stored(&self, hash: KeyHash) {
        let Some((place, tag)) = self.place(hash) else { return };
        let there = place.load(Ordering::Relaxed);
        if there != 0 && there & 0xffff_ff00 == tag {
            place.store(0, Ordering::Relaxed);
            if let Some(count) = self.counts.get(((there & 0xff) - 1) as usize) {
                count.returned.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The share of the class's evicted items that came back; 0 when hardly any went of late.
    pub(super) fn share(&self, class: usize) -> f64 {
        let Some(count) = self.counts.get(class) else { return 0.0 };
        let noted = count.noted.load(Ordering::Relaxed);
        let returned = count.returned.load(Ordering::Relaxed).min(noted);
        if noted < NOTED_MIN { 0.0 } else { f64::from(returned) / f64::from(noted) }
    }

    /// Halves all counts when as many keys were noted as are remembered.
    pub(super) fn fade(&self) {
        let noted: u64 =
            self.counts.iter().map(|c| u64::from(c.noted.load(Ordering::Relaxed))).sum();
        if noted < self.keys.len() as u64 {
            return;
        }
        for cell in self.counts.iter().flat_map(|c| [&c.noted, &c.returned]) {
            cell.store(cell.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Hasher;

    fn hash(n: u32) -> KeyHash {
        Hasher::new(Some([7; 16])).hash(&n.to_le_bytes())
    }

    #[test]
    fn who_comes_back_is_told_from_who_does_not() {
        let r = Returns::new(64 << 20, 3);
        (0..8_000).for_each(|n| r.gone(hash(n), 0));
        (8_000..16_000).for_each(|n| r.gone(hash(n), 1));
        (0..6_000).for_each(|n| r.stored(hash(n)));
        (0..6_000).for_each(|n| r.stored(hash(n)));
        (20_000..90_000).for_each(|n| r.stored(hash(n)));
        let (first, second) = (r.share(0), r.share(1));
        // Some have taken others' places.
        assert!((0.6..=0.8).contains(&first), "{first}: three quarters, each once");
        assert!(second < 0.01, "{second}: strangers");
        assert!(r.share(2) == 0.0 && r.share(9) == 0.0);
    }

    #[test]
    fn what_is_long_ago_fades() {
        let r = Returns::new(1 << 20, 1);
        (0..2_000).for_each(|n| r.gone(hash(n), 0));
        (1_000..2_000).for_each(|n| r.stored(hash(n)));
        let before = r.share(0);
        assert!(before > 0.1, "{before}");
        for _ in 0..8 {
            (2_000..6_096).for_each(|n| r.gone(hash(n), 0));
            r.fade();
        }
        assert!(r.share(0) < before / 8.0);
    }
}
