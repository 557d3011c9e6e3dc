//! The hash table and the slabs of the FPGA appliance (section 4.3.5).
//!
//! In: keys, the slab of a value, and a version that stands for it. Out: what was found, how many entries were read, and
//! what was evicted. A bucket has four entries; each points to a slot of a slab, and each slot points back. Both are
//! replaced round robin, from behind what was written last, invalid ones first (4.3.5.3).

use std::collections::BTreeSet;

/// Section 4.3.5.1: entries of a bucket.
pub const ENTRIES: usize = 4;

/// Slabs: powers of two (3.2), from a word of memory up to what a frame holds. The paper prints no least and no greatest.
pub const SLAB_BYTES: [u64; 7] = [32, 64, 128, 256, 512, 1_024, 2_048];

/// The slab of values of this length.
pub fn slab_of(value_bytes: u64) -> usize {
    SLAB_BYTES.iter().position(|bytes| *bytes >= value_bytes).unwrap_or(SLAB_BYTES.len() - 1)
}

/// An entry of a bucket.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    slab: usize,
    slot: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    entries: [Option<Entry>; ENTRIES],
    /// The next replacement offset.
    next: usize,
}

/// An item in a slab: its value, and where its entry is.
#[derive(Debug, Clone, Copy)]
struct Item {
    version: u64,
    bucket: usize,
    entry: usize,
}

#[derive(Debug)]
struct Slab {
    slots: Vec<Option<Item>>,
    /// Slots whose valid bit is clear.
    invalid: BTreeSet<usize>,
    next: usize,
}

/// What a GET found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup {
    /// Valid entries that were read.
    pub entries: u64,
    /// The version, if the key was there.
    pub version: Option<u64>,
}

/// What a SET evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The item of an entry, because the bucket was full.
    pub from_bucket: bool,
    /// The item of a slot, because the slab was full.
    pub from_slab: bool,
}

/// The memory of an instance.
#[derive(Debug)]
pub struct Memory {
    buckets: Vec<Bucket>,
    slabs: Vec<Slab>,
    seed: u64,
}

impl Memory {
    /// An empty table for at least `entries` entries, in a power of two of buckets because the hash is masked, and a slab
    /// for each number of slots.
    pub fn new(entries: usize, slots: &[usize], seed: u64) -> Self {
        let slab = |n: &usize| {
            let n = (*n).max(1);
            Slab { slots: vec![None; n], invalid: (0..n).collect(), next: 0 }
        };
        let buckets = entries.div_ceil(ENTRIES).next_power_of_two();
        let buckets = vec![Bucket::default(); buckets];
        Self { buckets, slabs: slots.iter().map(slab).collect(), seed }
    }

    /// Entries of all buckets.
    pub fn entries(&self) -> usize {
        self.buckets.len() * ENTRIES
    }

    fn bucket(&self, key: u64) -> usize {
        let hash = crate::workload::mix(key ^ crate::workload::mix(self.seed));
        // Less than the number of buckets.
        usize::try_from(hash & (self.buckets.len() as u64 - 1)).unwrap_or(0)
    }

    /// Reads the valid entries of a bucket one after the other until one has the key.
    pub fn get(&self, key: u64) -> Lookup {
        let mut read = 0;
        for entry in self.buckets[self.bucket(key)].entries.iter().flatten() {
            read += 1;
            if entry.key == key {
                let item = self.slabs[entry.slab].slots[entry.slot];
                return Lookup { entries: read, version: item.map(|item| item.version) };
            }
        }
        Lookup { entries: read, version: None }
    }

    /// Stores a version in a slab. As section 4.3.5.1 describes it, keys are not compared: an older entry of the same
    /// key stays.
    pub fn set(&mut self, key: u64, slab: usize, version: u64) -> Stored {
        let bucket = self.bucket(key);
        let Bucket { entries, next } = self.buckets[bucket];
        let mut round = (0..ENTRIES).map(|step| (next + step) % ENTRIES);
        let entry = round.find(|entry| entries[*entry].is_none()).unwrap_or(next);
        let from_bucket = self.evict(bucket, entry);

        let Slab { slots, invalid, next } = &self.slabs[slab];
        let slots_n = slots.len();
        let slot = invalid.range(next..).next().or_else(|| invalid.first()).copied();
        let slot = slot.unwrap_or(*next);
        let from_slab = match slots[slot] {
            Some(item) => self.evict(item.bucket, item.entry),
            None => false,
        };

        let of = &mut self.slabs[slab];
        of.slots[slot] = Some(Item { version, bucket, entry });
        of.invalid.remove(&slot);
        of.next = (slot + 1) % slots_n;
        let of = &mut self.buckets[bucket];
        of.entries[entry] = Some(Entry { key, slab, slot });
        of.next = (entry + 1) % ENTRIES;
        Stored { from_bucket, from_slab }
    }

    /// Removes a key, if it is there. The paper has no such step; a SET that is to replace needs it.
    pub fn remove(&mut self, key: u64) {
        let bucket = self.bucket(key);
        let is = |entry: &Option<Entry>| entry.is_some_and(|entry| entry.key == key);
        if let Some(entry) = self.buckets[bucket].entries.iter().position(is) {
            self.evict(bucket, entry);
        }
    }

    /// Invalidates an entry and the slot that it points to; whether it was valid.
    fn evict(&mut self, bucket: usize, entry: usize) -> bool {
        let Some(Entry { slab, slot, .. }) = self.buckets[bucket].entries[entry].take() else {
            return false;
        };
        self.slabs[slab].slots[slot] = None;
        self.slabs[slab].invalid.insert(slot);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Key, version, slab, slot.
    type Held = (u64, u64, usize, usize);

    /// The same without bits, back pointers or sets: entries hold their values, a slot holds the key's entry by search.
    struct Reference {
        /// Per bucket its entries, and where the round goes on.
        buckets: Vec<([Option<Held>; 4], usize)>,
        /// Per slab: how many slots, and where the round goes on.
        slabs: Vec<(usize, usize)>,
    }

    impl Reference {
        fn holder(&self, slab: usize, slot: usize) -> Option<(usize, usize)> {
            let at = |e: &Option<Held>| e.is_some_and(|(_, _, s, t)| (s, t) == (slab, slot));
            let find = |(b, (entries, _)): (usize, &([_; 4], usize))| {
                Some((b, entries.iter().position(at)?))
            };
            self.buckets.iter().enumerate().find_map(find)
        }

        fn set(&mut self, bucket: usize, key: u64, slab: usize, version: u64) {
            let (entries, next) = &mut self.buckets[bucket];
            let entry = (*next..*next + 4).find(|e| entries[e % 4].is_none()).unwrap_or(*next) % 4;
            entries[entry] = None;
            *next = (entry + 1) % 4;
            let (n, from) = self.slabs[slab];
            let free = (from..from + n).find(|s| self.holder(slab, s % n).is_none());
            let slot = free.unwrap_or(from) % n;
            if let Some((b, e)) = self.holder(slab, slot) {
                self.buckets[b].0[e] = None;
            }
            self.slabs[slab].1 = (slot + 1) % n;
            self.buckets[bucket].0[entry] = Some((key, version, slab, slot));
        }
    }

    #[test]
    fn round_robin_is_what_a_simple_model_says_over_a_million_operations() {
        let slots = [5, 3];
        let mut memory = Memory::new(12, &slots, 7);
        let mut reference = Reference {
            buckets: vec![([None; 4], 0); memory.buckets.len()],
            slabs: slots.map(|n| (n, 0)).to_vec(),
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let (mut from_bucket, mut from_slab, mut hits) = (0, 0, 0);
        for version in 0..1_000_000_u64 {
            let key = rng.random_range(0..20);
            let bucket = memory.bucket(key);
            match rng.random_range(0..8) {
                0 => {
                    memory.remove(key);
                    let entries = &mut reference.buckets[bucket].0;
                    if let Some(e) = entries.iter_mut().find(|e| e.is_some_and(|e| e.0 == key)) {
                        *e = None;
                    }
                }
                1..=4 => {
                    let slab = usize::from(rng.random_bool(0.4));
                    let stored = memory.set(key, slab, version);
                    from_bucket += u32::from(stored.from_bucket);
                    from_slab += u32::from(stored.from_slab);
                    reference.set(bucket, key, slab, version);
                }
                _ => {
                    let entries = reference.buckets[bucket].0.iter().flatten();
                    let valid: Vec<_> = entries.collect();
                    let at = valid.iter().position(|e| e.0 == key);
                    let version = at.map(|at| valid[at].1);
                    let entries = at.map_or(valid.len(), |at| at + 1) as u64;
                    assert_eq!(memory.get(key), Lookup { entries, version });
                    hits += u32::from(version.is_some());
                }
            }
        }
        assert!(
            from_bucket > 1_000 && from_slab > 1_000 && hits > 1_000,
            "{from_bucket} {from_slab}"
        );
    }

    /// An eviction from a slab clears the entry in its bucket, and the reverse.
    #[test]
    fn what_leaves_a_slab_leaves_its_bucket() {
        let mut memory = Memory::new(64, &[2], 1);
        for (key, from_slab) in [(1, false), (2, false), (3, true), (4, true)] {
            assert_eq!(memory.set(key, 0, key), Stored { from_bucket: false, from_slab });
        }
        let found = [1, 2, 3, 4].map(|key| memory.get(key).version);
        assert_eq!(found, [None, None, Some(3), Some(4)]);
        // One bucket: the fifth key takes the place of the first, in the slab too.
        let mut memory = Memory::new(4, &[8], 1);
        (1..=5).for_each(|key| _ = memory.set(key, 0, key));
        assert_eq!((memory.get(1).version, memory.get(5).version), (None, Some(5)));
        assert_eq!(memory.slabs[0].invalid.len(), 4);
    }
}
