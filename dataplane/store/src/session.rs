//! Sessions: one thread's way into the store, and the two look-ups.
//!
//! In: a key, with a hint or without. Out: the item, borrowed from a guard. A guard keeps
//! every item that its thread sees from being reused, so hold it for a batch, not for longer:
//! [`Guard::refresh`] releases the past. Fails: never; a wrong hint is `None`.
#![allow(unsafe_code)]

use super::allocate::Retries;
use super::change::Change;
use super::config::StoreError;
use super::epoch::Participant;
use super::hash::KeyHash;
use super::index::Expect;
use super::item::{ItemRef, Location};
use super::new_item::{NewItem, PlainItem};
use super::reserved::Reserved;
use super::slab::{Fetched, Unlinked};
use super::store::Store;
use super::write::{Needs, Refused, Reservation};
use arrayvec::ArrayVec;
use base::small_bytes;
use std::cell::Cell;
use std::sync::Arc;

/// One thread's access to the store: a participant of the epochs. `Send`, not `Sync`.
#[derive(Debug)]
pub struct Session {
    store: Arc<Store>,
    /// `None` only while dropping.
    participant: Option<Participant>,
    /// Look-ups so far that found an expired item, or a flushed one, and so nothing.
    expired_found: Cell<u64>,
    flushed_found: Cell<u64>,
    /// Bytes of values so far that a verb wrote after a look at what was there.
    copied_bytes: Cell<u64>,
    /// What was replaced and is still to be retired.
    replaced: ArrayVec<Unlinked, REPLACED_MAX>,
    /// As much is retired at once: one, where another thread may have no other, or the next write is to take it.
    replaced_max: usize,
    /// Chunks for the next items.
    reserved: ArrayVec<Reserved, RESERVED_MAX>,
    /// How many of these are taken.
    taken: usize,
}

/// Chunks that a session takes for items to come, at most.
pub const RESERVED_MAX: usize = 20;

/// Chunks that a session holds back until [`Session::settle`], at most.
const REPLACED_MAX: usize = 32;

impl Store {
    /// A session for one thread.
    ///
    /// # Errors
    /// [`StoreError::Sessions`].
    pub fn session(self: &Arc<Self>) -> Result<Session, StoreError> {
        let max = self.config.sessions_max;
        let participant = self.epochs.join().ok_or(StoreError::Sessions { max })?;
        Ok(Session::new(Arc::clone(self), participant))
    }
}

impl Session {
    pub(super) fn new(store: Arc<Store>, participant: Participant) -> Self {
        Self {
            replaced_max: match !store.config.evict || store.slabs.is_in_turn() {
                true => 1,
                false => REPLACED_MAX,
            },
            store,
            participant: Some(participant),
            expired_found: Cell::default(),
            flushed_found: Cell::default(),
            copied_bytes: Cell::default(),
            replaced: ArrayVec::new(),
            reserved: ArrayVec::new(),
            taken: 0,
        }
    }

    /// Begins a look at the store.
    #[inline]
    pub fn pin(&mut self) -> Guard<'_> {
        self.pinned()
    }

    /// [`Self::pin`] for a caller that has no other guard of this session.
    #[inline]
    fn pinned(&self) -> Guard<'_> {
        if let Some(participant) = &self.participant {
            self.store.epochs.pin(participant);
        }
        Guard { session: self }
    }

    /// The store.
    #[inline]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Look-ups of this session so far that found an expired item, and those that found a flushed
    /// one. Each was a miss.
    pub fn dead_found(&self) -> (u64, u64) {
        (self.expired_found.get(), self.flushed_found.get())
    }

    /// Bytes of values so far that verbs of this session made of what they found: all that an `append`
    /// writes, not what a plain `set` does, whose bytes were the request's.
    #[inline]
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.get()
    }

    /// Puts an item in the place of whatever is there, which is retired by [`Self::settle`].
    #[inline(always)]
    pub(super) fn put(&mut self, hash: KeyHash, new: &NewItem<'_>) -> Result<u64, Refused> {
        let Self { store, replaced, .. } = self;
        let mut retries = Retries::default();
        let before_waiting = || store.retire(replaced.drain(..));
        let fresh = store.make(new, None, Some(&mut retries), before_waiting)?;
        let (cas, old) = store.link(hash, new.key, fresh, Expect::Any)?;
        self.hold_back(old);
        Ok(cas)
    }

    /// [`Self::put`] in a chunk that [`Self::reserve`] took. `None`: there is none for it, and nothing was done.
    #[inline(always)]
    pub(super) fn put_reserved(&mut self, hash: KeyHash, new: PlainItem<'_>) -> Option<u64> {
        let Self { store, reserved, taken, .. } = self;
        let (cas, old) = store.put_reserved(hash, new, reserved, taken)?;
        self.hold_back(old);
        Some(cas)
    }

    #[inline(always)]
    fn hold_back(&mut self, old: Option<Unlinked>) {
        if let Some(old) = old {
            self.replaced.push(old);
            if self.replaced.len() >= self.replaced_max {
                self.store.retire(self.replaced.drain(..));
            }
        }
    }

    /// Takes chunks for the items that the next calls of [`verbs::set_reserved`](super::verbs::set_reserved) will
    /// make, under one lock for all of a size class in a row; `items` are the lengths of
    /// their keys and values. Where none is to be had at once, those calls find their own. To be settled.
    #[inline(always)]
    pub fn reserve(&mut self, items: impl Iterator<Item = (usize, usize)>) {
        self.give_back_reserved();
        self.store.reserve_chunks(items, &mut self.reserved);
    }

    #[inline(always)]
    fn give_back_reserved(&mut self) {
        if self.taken < self.reserved.len() {
            self.store.give_back(self.reserved.drain(self.taken..));
        }
        self.reserved.clear();
        self.taken = 0;
    }

    /// Gives back the memory of what [`verbs::set`](super::verbs::set) replaced, and what was reserved. To be
    /// called before the session is left alone for long: until then others count it as in use.
    #[inline]
    pub fn settle(&mut self) {
        self.give_back_reserved();
        if !self.replaced.is_empty() {
            self.store.retire(self.replaced.drain(..));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.settle();
        if let Some(participant) = self.participant.take() {
            self.store.epochs.leave(participant);
        }
    }
}

/// What is known beforehand of a look-up, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Supposed {
    /// Nothing, or no look-up was made.
    #[default]
    Nothing,
    /// The item may be here.
    At(Location),
    /// A replica of the index does not have it.
    Unknown,
    /// It was there.
    Right,
    /// It was not.
    Wrong,
}

/// A pinned session: what it shows stays until the guard goes or is refreshed.
#[derive(Debug)]
pub struct Guard<'s> {
    session: &'s Session,
}

impl Guard<'_> {
    /// The store.
    #[inline]
    pub fn store(&self) -> &Store {
        &self.session.store
    }

    /// The item at `loc`, if there is a live one with this key. For any number; an item that has
    /// expired is none.
    #[inline]
    pub fn verify(&self, loc: Location, key: &[u8]) -> Option<ItemRef<'_>> {
        self.at(loc)
            .filter(|item| small_bytes::equal(item.key(), key) && self.store().is_live(item))
    }

    /// The item at `loc`, dead or alive. For any number.
    #[inline]
    pub(super) fn at(&self, loc: Location) -> Option<ItemRef<'_>> {
        // SAFETY: a guard is a pinned participant of this store, for as long as its borrow.
        unsafe { self.store().slabs.item(loc) }
    }

    /// The chunk at `loc`, if there is one, with its lines on the way to the cache. For any number.
    #[inline(always)]
    pub fn fetch(&self, loc: Location) -> Option<Fetched<'_>> {
        // SAFETY: as in `at`.
        unsafe { self.store().slabs.fetch(loc) }
    }

    /// The first chunk in the first index line of this hash whose tag fits, with its lines on the way to
    /// the cache. `None`: it may be in the other.
    #[inline(always)]
    pub fn fetch_near(&self, hash: KeyHash) -> Option<Fetched<'_>> {
        let store = self.store();
        let loc = store.index.near_now(hash)?;
        // SAFETY: a guard is a pinned participant of this store, for as long as its borrow, and it
        // was when the index was read.
        unsafe { store.slabs.fetch_found(loc) }
    }

    /// The first chunk whose tag fits, wherever it is. `None`: there was none at one moment.
    #[inline(always)]
    pub fn fetch_either(&self, hash: KeyHash) -> Option<Fetched<'_>> {
        let store = self.store();
        let loc = store.index.either_now(hash)?;
        // SAFETY: as in `fetch_near`.
        unsafe { store.slabs.fetch_found(loc) }
    }

    /// The item with this key and where it is, dead ones included.
    pub(super) fn present(&self, hash: KeyHash, key: &[u8]) -> Option<(Location, ItemRef<'_>)> {
        let store = self.store();
        store
            .index
            .find(hash, |loc| self.at(loc).filter(|item| item.key() == key).map(|item| (loc, item)))
    }

    /// Shows `f` the live item with this key under the locks of its buckets: what `f` changes,
    /// no other thread changes meanwhile, and a writer that replaces the item takes it over.
    pub(super) fn hold<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        f: impl FnOnce(ItemRef<'_>) -> R,
    ) -> Option<(ItemRef<'_>, R)> {
        let is_key = |loc| self.verify(loc, key).is_some();
        self.store().index.hold(hash, is_key, |loc| self.verify(loc, key).map(|i| (i, f(i))))?
    }

    /// Moves the expiry time of an item that is held, under this hash.
    pub(super) fn renew(&self, hash: KeyHash, item: ItemRef<'_>, expiry: u32) {
        self.store().replicas.change_item(hash);
        item.set_expiry(expiry);
        self.store().note_expiry(expiry);
    }

    /// The item with this key: where it is supposed to be, if it is there, else by way of the
    /// index. Writes into `hint` what became of it.
    pub fn find_by(&self, hint: &mut Supposed, hash: KeyHash, key: &[u8]) -> Option<ItemRef<'_>> {
        match *hint {
            Supposed::At(loc) => {
                let item = self.verify(loc, key);
                *hint = if item.is_some() { Supposed::Right } else { Supposed::Wrong };
                if item.is_some() {
                    return item;
                }
                self.store().invalidate(hash, None);
                self.find(hash, key)
            }
            Supposed::Unknown => {
                *hint = Supposed::Nothing;
                let item = self.find(hash, key);
                if item.is_some() {
                    self.store().invalidate(hash, None);
                }
                item
            }
            _ => self.find(hash, key),
        }
    }

    /// The item with this key, by way of the index.
    #[inline]
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<ItemRef<'_>> {
        let store = self.store();
        let mut dead = None;
        let item = store.index.find(hash, |loc| {
            let item = self.at(loc).filter(|item| small_bytes::equal(item.key(), key))?;
            if store.is_live(&item) {
                return Some(item);
            }
            dead = Some(item);
            None
        });
        if let (None, Some(dead)) = (item, dead) {
            self.count_dead(&dead);
        }
        item
    }

    /// A look-up found an item that is no longer live, and no other.
    pub(crate) fn count_dead(&self, item: &ItemRef<'_>) {
        let found = match self.store().clock.has_passed(item.expiry()) {
            true => &self.session.expired_found,
            false => &self.session.flushed_found,
        };
        found.set(found.get() + 1);
    }

    /// Releases all items seen so far, as a new pin would.
    #[inline]
    pub fn refresh(&mut self) {
        if let Some(participant) = &self.session.participant {
            self.session.store.epochs.pin(participant);
        }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(participant) = &self.session.participant {
            self.session.store.epochs.unpin(participant);
        }
    }
}

impl Session {
    /// The step that verbs are made of which look before they write: shows `decide` the live item
    /// with this key, and does what it says if the item is still the same; otherwise once more. A
    /// retry means that another thread's write came first. Returns what `decide` said, and the
    /// CAS id of a new item. `given` is what the client sent.
    pub(super) fn modify<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        given: &[u8],
        mut decide: impl FnMut(&Store, Option<ItemRef<'_>>) -> Change<R>,
    ) -> Result<(R, Option<u64>), Refused> {
        let mut room = Reservation::default();
        let needs = match self.modify_now(hash, key, given, &mut decide, &mut room) {
            Err(Refused::OutOfMemory) => room.needs,
            done => return done,
        };
        drop(room);
        self.settle();
        let done = self.modify_late(hash, key, given, &mut decide, needs);
        // What was held while memory was waited for, where it is there still.
        if let Some((_, item)) = self.pinned().present(hash, key) {
            item.release();
        }
        done
    }

    /// [`Self::modify`] with memory that was waited for, without a pin: what was found missing may be
    /// what the pin held back.
    #[cold]
    fn modify_late<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        given: &[u8],
        decide: &mut impl FnMut(&Store, Option<ItemRef<'_>>) -> Change<R>,
        needs: Needs,
    ) -> Result<(R, Option<u64>), Refused> {
        let mut retries = Retries::default();
        let mut room = Reservation { fresh: None, needs };
        loop {
            room.fresh = Some(self.store.reserve(key.len(), room.needs, &mut retries)?);
            match self.modify_now(hash, key, given, decide, &mut room) {
                // It has become longer meanwhile.
                Err(Refused::OutOfMemory) if self.store.wait(&mut retries) => {}
                done => return done,
            }
        }
    }

    /// [`Self::modify`] with memory that is there, or in `room`.
    #[inline]
    fn modify_now<'s, R>(
        &'s self,
        hash: KeyHash,
        key: &[u8],
        given: &[u8],
        decide: &mut impl FnMut(&Store, Option<ItemRef<'_>>) -> Change<R>,
        room: &mut Reservation<'s>,
    ) -> Result<(R, Option<u64>), Refused> {
        let store: &Store = &self.store;
        loop {
            let guard = self.pinned();
            let present = guard.present(hash, key);
            let expect = Expect::Exactly(present.map(|(loc, _)| loc));
            let live = present.filter(|(_, item)| store.is_live(item));
            let item = live.map(|(_, item)| item);
            let (new, said) = match decide(store, item) {
                Change::None(said) => return Ok((said, None)),
                Change::Remove(said) => {
                    if store.unlink(hash, key, expect).is_some() {
                        return Ok((said, None));
                    }
                    continue;
                }
                Change::Replace(new, said) => (new, said),
            };
            let done = store.replace(hash, key, given, &new, (item, expect), room);
            if matches!(done, Ok(_) | Err(Refused::Mismatch)) {
                self.copied_bytes
                    .set(self.copied_bytes.get().wrapping_add(room.needs.value_len as u64));
            }
            match done {
                Ok(cas) => return Ok((said, Some(cas))),
                Err(Refused::Mismatch) => {}
                Err(refused) => return Err(refused),
            }
        }
    }
}
