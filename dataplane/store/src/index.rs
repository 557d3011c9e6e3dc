//! The index: from a key's hash to the location of its item. Bucketized cuckoo hashing
//! (Fan et al., MemC3, NSDI 2013; Li et al., EuroSys 2014), one bucket per cache line.
//!
//! ```text
//! bucket, 64 bytes:  0 version u32 | 8 tags 8 x u16 | 24 locations 8 x u32 | 56 -
//! ```
//!
//! In: hashes, and questions about locations that the store answers (does it hold my key?).
//! Out: locations. The index never looks at an item, and the store never looks at a bucket.
//!
//! A key lives in one of two buckets; each is found from the other and the tag alone, so entries
//! move without a look at their keys. Readers take no lock: what they find is checked by the
//! caller, and a miss counts only if neither bucket's version moved meanwhile. Writers lock the two
//! buckets, in order of their numbers. Fails: `Full`, when no way to a free slot is found.
#![allow(unsafe_code)]

mod lanes;

use super::hash::KeyHash;
use super::item::Location;
use arrayvec::ArrayVec;
use driver_shim::prefetch_read;
use driver_shim::{Mapping, MemoryKind, Pages};
use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Entries in a bucket.
const SLOTS: usize = 8;

/// The load that the index is sized for, in hundredths. Reached without a failed insert (tests).
const LOAD_PERCENT: usize = 95;

/// Buckets looked at for a free slot before giving up. Breadth first: 2, 16, 128, ...
const SEARCH_MAX: usize = 512;

/// Times that a writer starts again when others take the slots it found.
const ATTEMPTS_MAX: usize = 64;

/// Spins on a locked bucket before giving way to its holder, who may have lost the CPU.
const SPINS_MAX: u32 = 1 << 10;

#[derive(Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// Odd while a writer is at work.
    version: AtomicU32,
    reserved: u32,
    /// Four 16-bit tags each; 0 is an empty slot.
    tags: [AtomicU64; 2],
    locations: [AtomicU32; SLOTS],
    reserved2: u64,
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// The slots set in a mask, lowest first.
fn slots_in(mut mask: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let slot = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            slot
        })
    })
}

impl Bucket {
    /// Which slots hold `tag`, one bit each.
    #[inline(always)]
    fn matches(&self, tag: u16) -> u8 {
        lanes::equal(self.tag_words(), tag)
    }

    #[inline(always)]
    fn tag_words(&self) -> [u64; 2] {
        self.tags.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// The location in the first slot that holds `tag`.
    #[inline]
    fn first(&self, tag: u16) -> Option<Location> {
        let slots = self.matches(tag);
        (slots != 0).then(|| self.location(slots.trailing_zeros() as usize % SLOTS))
    }

    fn tag(&self, slot: usize) -> u16 {
        let word = self.tags[slot / 4].load(Ordering::Relaxed);
        u16::try_from(word >> (slot % 4 * 16) & 0xffff).unwrap_or(0)
    }

    fn location(&self, slot: usize) -> Location {
        Location(self.locations[slot].load(Ordering::Acquire))
    }

    /// Caller holds the lock.
    fn set_location(&self, slot: usize, loc: Location) {
        self.locations[slot].store(loc.0, Ordering::Release);
    }

    /// Caller holds the lock.
    fn set_tag(&self, slot: usize, tag: u16) {
        let (word, shift) = (&self.tags[slot / 4], slot % 4 * 16);
        let others = word.load(Ordering::Relaxed) & !(0xffff << shift);
        word.store(others | u64::from(tag) << shift, Ordering::Release);
    }

    /// Of these slots, the one whose location `look` has something to say about, that location, and
    /// the answer.
    #[inline(always)]
    fn slot_of<T>(
        &self,
        mut slots: u8,
        look: impl Fn(Location) -> Option<T>,
    ) -> Option<(usize, (Location, T))> {
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize % SLOTS;
            let loc = self.location(slot);
            if let Some(answer) = look(loc) {
                return Some((slot, (loc, answer)));
            }
            slots &= slots - 1;
        }
        None
    }

    fn lock(&self) {
        let mut backoff = Backoff::default();
        while !self.try_lock(self.version.load(Ordering::Relaxed)) {
            backoff.wait();
        }
    }

    /// Locks, if this is still the version and not that of a locked bucket. What was read between
    /// the version and this is then as it is now.
    #[inline(always)]
    fn try_lock(&self, version: u32) -> bool {
        let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
        let free = version & 1 == 0;
        let taken = free && self.version.compare_exchange(version, version | 1, yes, no).is_ok();
        if taken {
            // The odd version is seen before anything that is written under it.
            fence(Ordering::Release);
        }
        taken
    }

    fn unlock(&self) {
        let v = self.version.load(Ordering::Relaxed);
        self.version.store(v.wrapping_add(1), Ordering::Release);
    }
}

/// Waiting for a writer: a few dozen stores, unless it lost the CPU.
#[derive(Debug, Default)]
struct Backoff(u32);

impl Backoff {
    #[cold]
    fn wait(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(SPINS_MAX) {
            std::thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// Two locked buckets, or one that is both.
struct Locked<'a> {
    first: &'a Bucket,
    second: Option<&'a Bucket>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.first.unlock();
        if let Some(second) = self.second {
            second.unlock();
        }
    }
}

/// The one place of a key, with its buckets locked: what is there stays until [`Entry::set`], and
/// no reader can conclude meanwhile that the key is absent.
pub(super) struct Entry<'a, T> {
    _locked: Locked<'a>,
    bucket: &'a Bucket,
    slot: usize,
    tag: u16,
    present: Option<(Location, T)>,
}

impl<T: Copy> Entry<'_, T> {
    /// What is there, and what was said of it.
    pub(super) fn present(&self) -> Option<(Location, T)> {
        self.present
    }

    /// Puts `new` there, or nothing, and unlocks.
    #[inline(always)]
    pub(super) fn set(self, new: Option<Location>) {
        match (new, self.present) {
            (Some(new), present) => {
                self.bucket.set_location(self.slot, new);
                if present.is_none() {
                    self.bucket.set_tag(self.slot, self.tag);
                }
            }
            (None, Some(_)) => self.bucket.set_tag(self.slot, 0),
            (None, None) => {}
        }
    }
}

/// What a writer demands of the present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// Nothing.
    Any,
    /// The key's item is this one, or there is none.
    Exactly(Option<Location>),
}

/// Why an entry was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpdateError {
    /// This is what is there instead of what was expected.
    Mismatch(Option<Location>),
    /// No free slot can be made.
    Full,
}

/// A step of the search for a free slot: `entry` could move from its slot to `bucket`.
#[derive(Debug, Clone, Copy)]
struct Step {
    bucket: usize,
    parent: usize,
    slot: usize,
    entry: (u16, Location),
}

/// The table.
#[derive(Debug)]
pub(super) struct Index {
    memory: Mapping,
    n_buckets: u32,
}

impl Index {
    /// An index with room for `items` at its design load.
    pub(super) fn new(items: usize, pages: Pages, nodes: &[u32]) -> io::Result<Self> {
        let slots = items.saturating_mul(100) / LOAD_PERCENT;
        let n = u32::try_from(slots.div_ceil(SLOTS).max(2))
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let memory = Mapping::new(n as usize * size_of::<Bucket>(), pages, nodes)?;
        Ok(Self { memory, n_buckets: n })
    }

    pub(super) fn kind(&self) -> MemoryKind {
        self.memory.kind()
    }

    pub(super) fn slots(&self) -> usize {
        self.n_buckets as usize * SLOTS
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.memory.len()
    }

    #[inline]
    fn bucket(&self, n: usize) -> &Bucket {
        debug_assert!(n < self.n_buckets as usize);
        let table = self.memory.base().cast::<Bucket>();
        // SAFETY: n < n_buckets, by construction of `place` and `other`; the table is that long.
        let bucket = unsafe { table.add(n) };
        // SAFETY: aligned to 2 MB, so to 64; zeroed memory is a valid bucket; all that is ever
        // written behind shared references are the atomics; the mapping lives as long as self.
        unsafe { bucket.as_ref() }
    }

    /// The tag and the first of the two buckets of a hash.
    #[inline]
    fn place(&self, hash: KeyHash) -> (u16, usize) {
        let tag = u16::try_from(hash.0 >> 48).unwrap_or(0);
        (tag + u16::from(tag == 0), self.scale(hash.0 & 0xffff_ffff))
    }

    /// Maps 32 bits to a bucket number, evenly.
    #[inline]
    fn scale(&self, bits: u64) -> usize {
        usize::try_from((bits * u64::from(self.n_buckets)) >> 32).unwrap_or(0)
    }

    /// The other bucket of an entry. Its own inverse.
    #[inline]
    fn other(&self, bucket: usize, tag: u16) -> usize {
        let mix = self.scale((u64::from(tag) * 0x9e37_79b1) & 0xffff_ffff);
        if mix >= bucket { mix - bucket } else { mix + self.n_buckets as usize - bucket }
    }

    /// Prefetches the line that a look-up reads first, and mostly alone.
    #[inline]
    pub(super) fn prefetch_first(&self, hash: KeyHash) {
        let (_, b) = self.place(hash);
        prefetch_read(self.bucket(b));
    }

    /// Prefetches the line that a look-up reads when the first one holds no such tag.
    #[inline]
    pub(super) fn prefetch_second(&self, hash: KeyHash) {
        let (tag, b) = self.place(hash);
        prefetch_read(self.bucket(self.other(b, tag)));
    }

    /// Prefetches both.
    #[inline]
    pub(super) fn prefetch(&self, hash: KeyHash) {
        let (tag, b) = self.place(hash);
        prefetch_read(self.bucket(b));
        prefetch_read(self.bucket(self.other(b, tag)));
    }

    /// The first location in the first bucket whose tag fits, to be asked about elsewhere.
    /// `None`: it may be in the other.
    #[inline]
    pub(super) fn near(&self, hash: KeyHash) -> Option<Location> {
        let (tag, b) = self.place(hash);
        self.bucket(b).first(tag)
    }

    /// [`Self::near`], but never what stood in the slot before: a location that was read is that of
    /// an entry whose tag was there when it was looked for, or of a later one.
    #[inline(always)]
    pub(super) fn near_now(&self, hash: KeyHash) -> Option<Location> {
        let (tag, b) = self.place(hash);
        let bucket = self.bucket(b);
        let slots = bucket.matches(tag);
        fence(Ordering::Acquire);
        (slots != 0).then(|| bucket.location(slots.trailing_zeros() as usize % SLOTS))
    }

    /// As [`Self::near_now`], in either bucket. `None` as from [`Self::find`].
    #[inline(always)]
    pub(super) fn either_now(&self, hash: KeyHash) -> Option<Location> {
        let (tag, b1) = self.place(hash);
        let (first, second) = (self.bucket(b1), self.bucket(self.other(b1, tag)));
        let mut backoff = Backoff::default();
        loop {
            let before = first.version.load(Ordering::Acquire);
            let before_second = second.version.load(Ordering::Acquire);
            let slots = lanes::equal_in_both([first.tag_words(), second.tag_words()], tag);
            fence(Ordering::Acquire);
            if slots != 0 {
                let slot = slots.trailing_zeros() as usize;
                let bucket = if slot < SLOTS { first } else { second };
                return Some(bucket.location(slot % SLOTS));
            }
            if first.version.load(Ordering::Relaxed) == before
                && second.version.load(Ordering::Relaxed) == before_second
                && (before | before_second) & 1 == 0
            {
                return None;
            }
            backoff.wait();
        }
    }

    /// As [`Self::near`], in either bucket. `None` as from [`Self::find`].
    #[inline]
    pub(super) fn first(&self, hash: KeyHash) -> Option<Location> {
        let (tag, b1) = self.place(hash);
        self.bucket(b1)
            .first(tag)
            .or_else(|| self.bucket(self.other(b1, tag)).first(tag))
            // Nothing, unless a writer was just moving it.
            .or_else(|| self.find(hash, Some))
    }

    /// The first location for which `answer` has something to say, among those whose tag fits.
    /// `None` means that at one moment during the call there was none.
    #[inline]
    pub(super) fn find<R>(
        &self,
        hash: KeyHash,
        mut answer: impl FnMut(Location) -> Option<R>,
    ) -> Option<R> {
        let (tag, b1) = self.place(hash);
        let pair = [self.bucket(b1), self.bucket(self.other(b1, tag))];
        let mut backoff = Backoff::default();
        loop {
            let mut versions = [0; 2];
            for (bucket, version) in pair.iter().zip(&mut versions) {
                *version = bucket.version.load(Ordering::Acquire);
                for slot in slots_in(bucket.matches(tag)) {
                    if let Some(r) = answer(bucket.location(slot)) {
                        return Some(r);
                    }
                }
            }
            fence(Ordering::Acquire);
            let still =
                |(b, v): (&&Bucket, &u32)| v & 1 == 0 && b.version.load(Ordering::Relaxed) == *v;
            if pair.iter().zip(&versions).all(still) {
                return None;
            }
            backoff.wait();
        }
    }

    /// Waits for the writer that holds a bucket of this hash at this moment, if one does, until it has
    /// unlocked it.
    pub(super) fn wait_for_writers(&self, hash: KeyHash) {
        let (tag, b) = self.place(hash);
        for bucket in [self.bucket(b), self.bucket(self.other(b, tag))] {
            let version = bucket.version.load(Ordering::Acquire);
            let mut backoff = Backoff::default();
            while version & 1 == 1 && bucket.version.load(Ordering::Acquire) == version {
                backoff.wait();
            }
        }
    }

    fn lock(&self, a: usize, b: usize) -> Locked<'_> {
        let (first, second) = (self.bucket(a.min(b)), self.bucket(a.max(b)));
        first.lock();
        let second = (a != b).then(|| {
            second.lock();
            second
        });
        Locked { first, second }
    }

    /// Calls `f` with the first location for which `is_key` is true, while no other thread can change it.
    pub(super) fn hold<R>(
        &self,
        hash: KeyHash,
        is_key: impl Fn(Location) -> bool,
        f: impl FnOnce(Location) -> R,
    ) -> Option<R> {
        let (tag, b1) = self.place(hash);
        let b2 = self.other(b1, tag);
        let _locked = self.lock(b1, b2);
        [b1, b2]
            .into_iter()
            .find_map(|b| {
                let bucket = self.bucket(b);
                slots_in(bucket.matches(tag)).map(|s| bucket.location(s)).find(|loc| is_key(*loc))
            })
            .map(f)
    }

    /// The per-key atomic step that all writing verbs are made of: finds the key's place, if what is
    /// there is as expected, and keeps all others from it. A key that is absent has a place only if
    /// one is to come, which `comes` says.
    ///
    /// `look` has something to say of a location whose item has this key; it is asked only about
    /// locations that are in the index and, because their buckets are locked, stay there.
    ///
    /// # Errors
    /// [`UpdateError`]; nothing is locked then.
    #[inline(always)]
    pub(super) fn entry<T: Copy>(
        &self,
        hash: KeyHash,
        comes: bool,
        expect: Expect,
        look: impl Fn(Location) -> Option<T> + Copy,
    ) -> Result<Entry<'_, T>, UpdateError> {
        let (tag, b1) = self.place(hash);
        let entry = match self.entry_near((tag, b1), look) {
            Some(entry) => entry,
            None => {
                // No slot is freed for an item that is not stored, because `expect` is another item.
                let comes = comes && !matches!(expect, Expect::Exactly(Some(_)));
                self.entry_either((tag, b1), comes, look)?
            }
        };
        if let Expect::Exactly(expected) = expect {
            let present = entry.present.map(|(loc, _)| loc);
            if expected != present {
                return Err(UpdateError::Mismatch(present));
            }
        }
        Ok(entry)
    }

    /// The key's entry, if it is in its first bucket. Most are. While that is locked they stay
    /// there, and as a key stands in one place only, the other bucket can be left alone.
    #[inline(always)]
    fn entry_near<T>(
        &self,
        (tag, b1): (u16, usize),
        look: impl Fn(Location) -> Option<T>,
    ) -> Option<Entry<'_, T>> {
        let bucket = self.bucket(b1);
        let version = bucket.version.load(Ordering::Acquire);
        let mut slots = bucket.matches(tag);
        if slots == 0 {
            return None;
        }
        if !bucket.try_lock(version) {
            bucket.lock();
            slots = bucket.matches(tag);
        }
        let locked = Locked { first: bucket, second: None };
        let (slot, present) = bucket.slot_of(slots, look)?;
        Some(Entry { _locked: locked, bucket, slot, tag, present: Some(present) })
    }

    /// The key's entry in either bucket, or where one can be made if one `comes`.
    #[inline(never)]
    fn entry_either<T>(
        &self,
        (tag, b1): (u16, usize),
        comes: bool,
        look: impl Fn(Location) -> Option<T>,
    ) -> Result<Entry<'_, T>, UpdateError> {
        let b2 = self.other(b1, tag);
        for _ in 0..ATTEMPTS_MAX {
            let locked = self.lock(b1, b2);
            let pair = [self.bucket(b1), self.bucket(b2)];
            let found = pair.iter().find_map(|b| Some((*b, b.slot_of(b.matches(tag), &look)?)));
            if let Some((bucket, (slot, present))) = found {
                return Ok(Entry { _locked: locked, bucket, slot, tag, present: Some(present) });
            }
            let free = pair.iter().find_map(|b| Some((*b, slots_in(b.matches(0)).next()?)));
            if let Some((bucket, slot)) = free.or_else(|| (!comes).then_some((pair[0], 0))) {
                return Ok(Entry { _locked: locked, bucket, slot, tag, present: None });
            }
            drop(locked);
            if !self.make_room(b1, b2) {
                return Err(UpdateError::Full);
            }
        }
        Err(UpdateError::Full)
    }

    /// Moves entries along so that one of two full buckets gets a free slot. False when no way
    /// is found; true may come to nothing when others are quicker.
    fn make_room(&self, b1: usize, b2: usize) -> bool {
        let root = |bucket| Step { bucket, parent: 0, slot: 0, entry: (0, Location(0)) };
        let mut steps: ArrayVec<Step, SEARCH_MAX> = ArrayVec::new();
        steps.push(root(b1));
        steps.push(root(b2));
        let mut next = 0;
        while let Some(step) = steps.get(next).copied() {
            let bucket = self.bucket(step.bucket);
            if bucket.matches(0) != 0 {
                self.shift(&steps, next);
                return true;
            }
            for slot in 0..SLOTS {
                let entry = (bucket.tag(slot), bucket.location(slot));
                let to = self.other(step.bucket, entry.0);
                if to != step.bucket {
                    // When the queue is full, what it holds is still searched.
                    let _ = steps.try_push(Step { bucket: to, parent: next, slot, entry });
                }
            }
            next += 1;
        }
        false
    }

    /// Moves the entries on the way from a root to step `last`, the far end first. Stops early
    /// when one is not where it was.
    fn shift(&self, steps: &[Step], last: usize) {
        let mut at = last;
        while at > 1 {
            let step = steps[at];
            let from_bucket = steps[step.parent].bucket;
            let _locked = self.lock(from_bucket, step.bucket);
            let (from, to) = (self.bucket(from_bucket), self.bucket(step.bucket));
            let Some(free) = slots_in(to.matches(0)).next() else { return };
            if (from.tag(step.slot), from.location(step.slot)) != step.entry {
                return;
            }
            to.set_location(free, step.entry.1);
            to.set_tag(free, step.entry.0);
            from.set_tag(step.slot, 0);
            at = step.parent;
        }
    }
}

#[cfg(test)]
mod tests;
