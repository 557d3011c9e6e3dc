//! Slabs: pages of 2 MB, each cut into chunks of one size class; which chunk is free, which waits
//! in limbo for its epoch to pass, and which page belongs to whom.
//!
//! ```text
//! page table, one word a page (what readers see):  class + 1 in bits 24..32 | chunks carved 0..24
//!
//! page:   pool ──take──► class ──drain──► limbo of pages ──epoch passed──► pool
//! chunk:  carve ─► free list of its page ─► in use ─► limbo (open, closed) ─► free list
//! ```
//!
//! In: sizes, and locations from anywhere. Out: chunks that are the caller's alone, and
//! answers to "is this number a chunk?" that hold for as long as the asker is pinned. Each class
//! has one lock, taken by writers only. Fails: no page or no chunk to give (`None`).
//!
//! The rule that makes old hints safe: a page leaves its class only when all its chunks are free,
//! and enters another only when every participant has moved past the epoch of that moment (`pages.rs`).
//! Chunks that were never carved are never looked at, so memory need not be cleaned when a page
//! changes hands.
#![allow(unsafe_code)]

pub(super) mod adopt;
mod class;
mod free;
mod free_map;
mod hand;
mod idle;
mod in_turn;
mod limbo;
mod page;
mod pages;
mod tally;

use super::epoch::{Epochs, Stamp};
use super::item::{Arena, Chunk, ItemRef, Location, State};
use super::layout::{NIL, PAGE_SHIFT, PAGE_UNITS, UNIT_BYTES};
use super::new_item::{NewItem, PlainItem};
use super::probation::Queue;
use super::sizes::{SizeClass, class_by_units};
pub(super) use class::{Class, ClassId, SPARE_CHUNKS};
use free_map::FreeMap;
use idle::Pool;
use page::{Page, get, put};
pub(super) use pages::Grown;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU32, Ordering};
pub(super) use tally::{Gone, Tally, Unlinked};

/// Chunks made ready at a time when a page is new.
const CARVE_CHUNKS: u32 = 64;

/// Where the class stands in a page word.
const CLASS_SHIFT: u32 = 24;

/// Chunks that large items are cut into are the smallest of at least this size.
const LARGE_CHUNK_BYTES: usize = 512 << 10;

/// Most lines of an item that are prefetched: an Ethernet frame holds no longer one.
const PREFETCH_UNITS: u32 = 24;

/// A chunk that its finder may look at for as long as it is pinned.
#[derive(Debug, Clone, Copy)]
pub struct Fetched<'a> {
    chunk: Chunk<'a>,
    class: ClassId,
}

impl<'a> Fetched<'a> {
    /// The item in it, if it holds a linked one, dead or alive.
    #[inline(always)]
    pub fn item(self) -> Option<ItemRef<'a>> {
        self.chunk.item()
    }

    /// Its size class, from 0.
    #[inline(always)]
    pub fn class(self) -> usize {
        self.class.0.into()
    }
}

/// All of slab memory.
#[derive(Debug)]
pub(super) struct Slabs {
    arena: Arena,
    sizes: Box<[SizeClass]>,
    /// The smallest class whose chunks have as many units, up to the largest.
    class_by_units: Box<[ClassId]>,
    words: Box<[AtomicU32]>,
    pages: Box<[Page]>,
    classes: Box<[Mutex<Class>]>,
    pool: Mutex<Pool>,
    /// Which chunks are free, where they are given out in turn.
    free_map: Option<FreeMap>,
    /// Pages stay with the class that has them.
    pages_stay: bool,
}

impl Slabs {
    /// No class has a page yet. Chunks may be given out `in_turn`, and pages may stay with their classes.
    pub(super) fn new(
        arena: Arena,
        n_pages: usize,
        sizes: Box<[SizeClass]>,
        in_turn: bool,
        pages_stay: bool,
    ) -> Self {
        let class = |(n, size): (u8, &SizeClass)| {
            let queue = Queue::new(n_pages * size.per_page as usize);
            Mutex::new(Class::new(ClassId(n), *size, queue))
        };
        Self {
            arena,
            words: (0..n_pages).map(|_| AtomicU32::new(0)).collect(),
            pages: (0..n_pages).map(|_| Page::default()).collect(),
            classes: (0..=u8::MAX).zip(sizes.iter()).map(class).collect(),
            class_by_units: class_by_units(&sizes).into_iter().map(ClassId).collect(),
            free_map: in_turn.then(|| FreeMap::new(n_pages, &sizes)),
            pages_stay,
            sizes,
            pool: Mutex::default(),
        }
    }

    /// Forgets what every page and chunk is used for, for [`super::Store::renew`].
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn renew(&mut self) {
        self.words.iter_mut().for_each(|word| *word = AtomicU32::new(0));
        self.pages.iter_mut().for_each(|page| *page = Page::default());
        for class in &mut self.classes {
            let class = class.get_mut();
            let queue = std::mem::take(&mut class.queue).renewed();
            *class = Class::new(class.id, class.size, queue);
        }
        self.pool = Mutex::default();
    }

    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(super) fn sizes(&self) -> &[SizeClass] {
        &self.sizes
    }

    pub(super) fn n_pages(&self) -> u32 {
        u32::try_from(self.words.len()).unwrap_or(NIL)
    }

    pub(super) fn class_ids(&self) -> impl Iterator<Item = ClassId> + Clone + use<> {
        (0..=u8::MAX).take(self.sizes.len()).map(ClassId)
    }

    pub(super) fn size(&self, class: ClassId) -> SizeClass {
        self.sizes[usize::from(class.0)]
    }

    /// The smallest class whose chunks hold `bytes`.
    #[inline]
    pub(super) fn class_for(&self, bytes: usize) -> Option<ClassId> {
        self.class_by_units.get(bytes.div_ceil(UNIT_BYTES)).copied()
    }

    #[inline]
    pub(super) fn lock(&self, class: ClassId) -> MutexGuard<'_, Class> {
        self.classes[usize::from(class.0)].lock()
    }

    /// [`Self::lock`], if no other thread has it.
    pub(super) fn try_lock(&self, class: ClassId) -> Option<MutexGuard<'_, Class>> {
        self.classes[usize::from(class.0)].try_lock()
    }

    /// The class of the page, and how many of its chunks were ever given out.
    #[inline]
    pub(super) fn page(&self, page: u32) -> Option<(ClassId, u32)> {
        let word = self.words.get(page as usize)?.load(Ordering::Acquire);
        let class = u8::try_from(word >> CLASS_SHIFT).ok()?.checked_sub(1)?;
        Some((ClassId(class), word & ((1 << CLASS_SHIFT) - 1)))
    }

    /// The same of the page that `loc` lies in.
    #[inline]
    pub(super) fn page_of(&self, loc: Location) -> Option<(ClassId, u32)> {
        self.page(loc.0 >> PAGE_SHIFT)
    }

    /// The class of the chunk at `loc`, if there is a chunk. Any number may be asked about.
    #[inline]
    pub(super) fn class_of(&self, loc: Location) -> Option<ClassId> {
        let (class, carved) = self.page_of(loc)?;
        let n = self.sizes.get(usize::from(class.0))?.chunk_at(loc.0 & (PAGE_UNITS - 1))?;
        (n < carved).then_some(class)
    }

    /// Prefetches the lines of an item at `loc`. Any number will do.
    #[inline]
    pub(super) fn prefetch(&self, loc: Location) {
        // As many as its class has: how long the item is stands in the first of them.
        let class = self.page_of(loc).and_then(|(id, _)| self.sizes.get(usize::from(id.0)));
        self.arena.prefetch(loc, class.map_or(0, |size| size.units.min(PREFETCH_UNITS)));
    }

    /// Prefetches the lines of so many bytes at `loc`. Any number will do.
    #[inline(always)]
    pub(super) fn prefetch_bytes(&self, loc: Location, bytes: usize) {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(PREFETCH_UNITS);
        self.arena.prefetch(loc, units.min(PREFETCH_UNITS));
    }

    /// The item at `loc`, if there is one. Any number may be asked about.
    ///
    /// # Safety
    /// The caller keeps what is linked now from being reused during `'a`: it is pinned, or it
    /// holds the lock of an index bucket that `loc` stands in (nothing is unlinked without that).
    #[inline]
    pub(super) unsafe fn item<'a>(&self, loc: Location) -> Option<ItemRef<'a>> {
        self.class_of(loc)?;
        // SAFETY: a carved chunk of its page's class, which is the present one (acquire) and
        // stays as long as the caller is pinned or the chunk is in use; the rest is the
        // caller's promise.
        unsafe { self.arena.chunk(loc) }.item()
    }

    /// The chunk at `loc`, if there is one, with its lines on the way to the cache. Any number may be
    /// asked about.
    ///
    /// # Safety
    /// The caller is pinned during `'a`.
    #[inline(always)]
    pub(super) unsafe fn fetch<'a>(&self, loc: Location) -> Option<Fetched<'a>> {
        let (class, carved) = self.page_of(loc)?;
        let size = self.sizes.get(usize::from(class.0))?;
        let n = size.chunk_at(loc.0 & (PAGE_UNITS - 1))?;
        self.arena.prefetch(loc, size.units.min(PREFETCH_UNITS));
        // SAFETY: as in `item`.
        (n < carved).then(|| Fetched { chunk: unsafe { self.arena.chunk(loc) }, class })
    }

    /// [`Self::fetch`] of a chunk that the index holds. `None`: it has left its page since.
    ///
    /// # Safety
    /// The caller is pinned during `'a`, and has read `loc` from the index since it was.
    #[inline(always)]
    pub(super) unsafe fn fetch_found<'a>(&self, loc: Location) -> Option<Fetched<'a>> {
        let (class, _) = self.page_of(loc)?;
        let size = self.sizes.get(usize::from(class.0))?;
        self.arena.prefetch(loc, size.units.min(PREFETCH_UNITS));
        // SAFETY: what stands in the index is a carved chunk of its page's class. A page that its
        // chunks have left gets another class only when no reader is pinned any more that was before.
        Some(Fetched { chunk: unsafe { self.arena.chunk(loc) }, class })
    }

    /// The item at `loc`, which the index holds or is about to.
    ///
    /// # Safety
    /// The caller holds the lock of the bucket that `loc` stands in, or is about to: items were put
    /// there by way of [`Self::set_linked`], and none is unlinked without that lock.
    #[inline]
    pub(super) unsafe fn indexed<'a>(&'a self, loc: Location) -> Option<ItemRef<'a>> {
        self.chunk(loc).item()
    }

    /// The chunk at `loc` for a caller that keeps its page in the class: by the class's lock, or
    /// because the chunk is out of the free lists and the caller's alone.
    fn chunk<'a>(&'a self, loc: Location) -> Chunk<'a> {
        debug_assert!(self.class_of(loc).is_some());
        // SAFETY: see above; locations in the books, and those of parts in an item's list, are
        // carved chunks of their class. Callers are in this file, `free.rs` and `limbo.rs`, and look at items only
        // under the class's lock (chunks leave limbo only under it) or when the chunk is theirs; and in
        // `adopt.rs`, before the store is shared, where a location was looked up first.
        unsafe { self.arena.chunk(loc) }
    }

    /// Calls `f` with the item in chunk `n` of `page`, if the page belongs to the locked class
    /// and there is a linked one. The lock keeps the item from being reused meanwhile.
    pub(super) fn with_item<R>(
        &self,
        class: &mut Class,
        page: u32,
        n: u32,
        f: impl FnOnce(&mut Class, Location, ItemRef<'_>) -> R,
    ) -> Option<R> {
        let loc = self.place(class, page, n)?;
        let item = self.chunk(loc).item()?;
        Some(f(class, loc, item))
    }

    /// Calls `f` with the item that lies in chunk `n` of `page`, in whole or in part, if the page
    /// belongs to the locked class. All parts of an item lie in one class.
    pub(super) fn with_owner<R>(
        &self,
        class: &mut Class,
        page: u32,
        n: u32,
        f: impl FnOnce(&mut Class, Location, ItemRef<'_>) -> R,
    ) -> Option<R> {
        let loc = self.place(class, page, n)?;
        let owner = self.chunk(loc).owner().unwrap_or(loc);
        let item = self.chunk(owner).item()?;
        Some(f(class, owner, item))
    }

    /// Where chunk `n` of `page` is, if it is carved and the class's.
    fn place(&self, class: &Class, page: u32, n: u32) -> Option<Location> {
        let (id, carved) = self.page(page)?;
        (id == class.id && n < carved)
            .then(|| Location((page << PAGE_SHIFT) + n * class.size.units))
    }

    /// The class that large items lie in.
    pub(super) fn large_class(&self) -> Option<ClassId> {
        self.class_for(LARGE_CHUNK_BYTES)
    }

    /// Counts a chunk that [`Self::pop`] gave as a part of a large item, not as one more item.
    pub(super) fn count_as_part(class: &mut Class) {
        class.parts += 1;
        class.tally.stored -= 1;
    }

    /// Makes the next chunks of the class's newest page ready for use.
    fn carve(&self, class: &mut Class) -> bool {
        let page = class.carving;
        let Some((_, carved)) = self.page(page) else { return false };
        let until = (carved + CARVE_CHUNKS).min(class.size.per_page);
        let location = |n| Location((page << PAGE_SHIFT) + n * class.size.units);
        for n in carved..until {
            // SAFETY: a chunk of the page that the locked class is carving. No reader looks at
            // it before the page word says that it is carved, and none from the page's former
            // class is left. It is not read as an item here.
            unsafe { self.arena.chunk(location(n)) }.set_state(State::Free);
        }
        let word = (u32::from(class.id.0) + 1) << CLASS_SHIFT | until;
        self.words[page as usize].store(word, Ordering::Release);
        if until == class.size.per_page {
            class.carving = NIL;
        }
        for n in (carved..until).rev() {
            self.push(class, Location((page << PAGE_SHIFT) + n * class.size.units));
        }
        true
    }

    /// Gives back a chunk that was never linked. No reader has seen it, so there is nothing to wait for.
    ///
    /// # Safety
    /// The chunk came from [`Self::pop`], is the caller's, and is given up by this call.
    pub(super) unsafe fn give_back(&self, loc: Location, bytes: usize) {
        let Some(id) = self.class_of(loc) else { return };
        let mut class = self.lock(id);
        class.tally.stored -= 1;
        // SAFETY: the caller's promise; this is the chunk's class.
        unsafe { self.give_back_in(&mut class, loc, bytes) };
    }

    /// [`Self::give_back`] for a chunk from [`Self::pop_for_move`], with the lock held already.
    ///
    /// # Safety
    /// As for [`Self::give_back`], and `class` is the chunk's.
    pub(super) unsafe fn give_back_in(&self, class: &mut Class, loc: Location, bytes: usize) {
        class.used -= 1;
        class.tally.bytes -= bytes as u64;
        self.push(class, loc);
    }

    /// [`Self::give_back`] for the parts of a large item.
    ///
    /// # Safety
    /// As for [`Self::give_back`]; each was counted by [`Self::count_as_part`].
    pub(super) unsafe fn give_back_parts(&self, parts: &[Location]) {
        let Some(id) = parts.first().and_then(|first| self.class_of(*first)) else { return };
        let mut class = self.lock(id);
        for part in parts {
            class.used -= 1;
            class.parts -= 1;
            self.push(&mut class, *part);
        }
    }

    /// Writes a large item.
    ///
    /// # Safety
    /// As for [`Self::write`], and for each of `parts` too; all are of the large class, and there
    /// are as many as the item needs.
    pub(super) unsafe fn write_large(
        &self,
        loc: Location,
        parts: &[Location],
        new: &NewItem<'_>,
        sequence: u64,
        now: u32,
    ) {
        let Some(size) = self.class_of(loc).map(|id| self.size(id).bytes()) else { return };
        debug_assert_eq!(new.n_parts(size), parts.len());
        let parts: Vec<(Location, Chunk<'_>)> =
            parts.iter().map(|part| (*part, self.chunk(*part))).collect();
        // SAFETY: popped, so in state `writing`, and the caller's alone, as are the parts.
        unsafe { self.chunk(loc).write_large(new, (sequence, now), loc, size, &parts) };
    }

    /// Writes an item.
    ///
    /// # Safety
    /// The chunk came from [`Self::pop`] and is the caller's; it was popped from a class whose
    /// chunks hold `new.len_bytes()`, and the key has at most 250 bytes.
    #[inline(always)]
    pub(super) unsafe fn write(&self, loc: Location, new: &NewItem<'_>, sequence: u64, now: u32) {
        debug_assert!(self.class_of(loc).is_some_and(|c| new.len_bytes() <= self.size(c).bytes()));
        // SAFETY: popped, so in state `writing`, and the caller's alone; it fits (its promises),
        // and what fits in a page is less than 2^32.
        unsafe { self.chunk(loc).write(new, sequence, now) };
    }

    /// Writes a plain item.
    ///
    /// # Safety
    /// As for [`Self::write`].
    #[inline(always)]
    pub(super) unsafe fn write_plain(
        &self,
        loc: Location,
        new: PlainItem<'_>,
        sequence: u64,
        now: u32,
    ) {
        debug_assert!(self.class_of(loc).is_some_and(|c| new.len_bytes() <= self.size(c).bytes()));
        // SAFETY: as in `write`.
        unsafe { self.chunk(loc).write_plain(new, sequence, now) };
    }

    /// Publishes a written item, or hides a linked one.
    ///
    /// # Safety
    /// The caller holds the locks of the buckets that the item stands in, or is about to. To be
    /// linked, it was written by [`Self::write`] or [`Self::write_plain`] and not touched since.
    pub(super) unsafe fn set_linked(&self, loc: Location, linked: bool) {
        self.chunk(loc).set_state(if linked { State::Linked } else { State::Unlinked });
    }

    /// Takes over chunks whose items the caller has unlinked.
    ///
    /// # Safety
    /// Each item was linked; the caller, and no other thread, took it out of the index and hid it,
    /// and gives the chunk up by this call.
    pub(super) unsafe fn retire(
        &self,
        unlinked: impl IntoIterator<Item = Unlinked>,
        epochs: &Epochs,
    ) {
        // One for all: they were hidden before.
        let stamp = epochs.stamp();
        let mut unlinked = unlinked.into_iter();
        let mut next = unlinked.next();
        while let Some(Unlinked { loc, .. }) = &next {
            let Some((id, _)) = self.page_of(*loc) else {
                next = unlinked.next();
                continue;
            };
            // Those of one class that come in a row, under one hold of its lock.
            let class = &mut self.lock(id);
            let is_of_class =
                |next: &mut Unlinked| self.page_of(next.loc).is_some_and(|(c, _)| c == id);
            while let Some(Unlinked { loc, why }) = next.take_if(is_of_class) {
                // SAFETY: the caller's promise; this is the chunk's class.
                unsafe { self.retire_unstamped(class, loc, why) };
                if self.is_time_to_collect(class) {
                    class.open.stamp = class.open.stamp.max(Some(stamp));
                    self.collect(class, epochs);
                }
                next = unlinked.next();
            }
            class.open.stamp = class.open.stamp.max(Some(stamp));
        }
    }

    /// [`Self::retire`] of one, with the lock held already. `stamp` was taken when it was hidden.
    ///
    /// # Safety
    /// As for [`Self::retire`], and `class` is the chunk's.
    #[inline(always)]
    pub(super) unsafe fn retire_in(
        &self,
        class: &mut Class,
        loc: Location,
        stamp: Stamp,
        why: Gone,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.retire_unstamped(class, loc, why) };
        class.open.stamp = class.open.stamp.max(Some(stamp));
    }

    /// [`Self::retire_in`], but for the stamp, which the caller sets before it gives up the lock, or collects.
    ///
    /// # Safety
    /// As for [`Self::retire_in`].
    #[inline(always)]
    unsafe fn retire_unstamped(&self, class: &mut Class, loc: Location, why: Gone) {
        debug_assert_eq!(self.class_of(loc), Some(class.id));
        // SAFETY: it was linked, and only the caller, which unlinked it, lets it be reused.
        let item = unsafe { self.chunk(loc).settled() };
        class.used -= 1;
        class.tally.bytes -= item.len_bytes() as u64;
        class.tally.count(why);
        if item.is_large() {
            self.bury_parts(class, loc, item);
        }
        self.bury(class, loc);
    }

    /// Puts the parts of a large item into limbo.
    #[cold]
    fn bury_parts(&self, class: &mut Class, loc: Location, item: ItemRef<'_>) {
        let n_parts = u32::try_from(item.n_parts()).unwrap_or(0);
        class.used -= n_parts;
        class.parts -= n_parts;
        for n in 0..item.n_parts() {
            let part = Location(loc.0.wrapping_add(item.part_place(n)));
            self.chunk(part).set_state(State::Unlinked);
            self.bury(class, part);
        }
    }
}

#[cfg(test)]
mod tests;
