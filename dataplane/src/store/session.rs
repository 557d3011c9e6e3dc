//! Sessions: one thread's way into the store, and the two look-ups.
//!
//! Enters: a key, with a hint or without. Leaves: the item, borrowed from a guard. A guard keeps
//! every item that its thread sees from being reused, so hold it for a batch, not for longer:
//! [`Guard::refresh`] lets go of the past. Fails: never; a wrong hint is `None`.
#![allow(unsafe_code)]

use super::Store;
use super::epoch::Participant;
use super::evict::Patience;
use super::hash::KeyHash;
use super::index::Expect;
use super::item::{ItemRef, Location};
use super::marks::Marks;
use super::replica::Supposed;
use super::slab::{Fetched, Unlinked};
use super::value::NewItem;
use super::write::{Refused, Room};
use crate::short;
use arrayvec::ArrayVec;
use std::cell::Cell;
use std::sync::Arc;

/// One thread's place among the readers. `Send`, not `Sync`.
#[derive(Debug)]
pub struct Session {
    store: Arc<Store>,
    /// `None` only while dropping.
    place: Option<Participant>,
    /// Look-ups so far that found an expired item, or a flushed one, and so nothing.
    expired_found: Cell<u64>,
    flushed_found: Cell<u64>,
    /// Where the item was that the last change of one was about.
    changed: Cell<Option<Location>>,
    /// Where an engine supposes the item that is looked for next.
    supposed: Cell<Supposed>,
    /// Bytes of values so far that a verb wrote after a look at what was there.
    copied_bytes: Cell<u64>,
    /// The hash of the key that the next verb is about.
    known: Cell<Option<KeyHash>>,
    /// What was replaced and is still to be retired.
    replaced: ArrayVec<Unlinked, REPLACED_MAX>,
}

/// Chunks that a session holds back until [`Session::settle`], at most.
const REPLACED_MAX: usize = 32;

impl Session {
    pub(super) fn new(store: Arc<Store>, place: Participant) -> Self {
        Self {
            store,
            place: Some(place),
            expired_found: Cell::default(),
            flushed_found: Cell::default(),
            changed: Cell::default(),
            supposed: Cell::default(),
            copied_bytes: Cell::default(),
            known: Cell::default(),
            replaced: ArrayVec::new(),
        }
    }

    /// Begins a look at the store.
    #[inline]
    pub fn pin(&mut self) -> Guard<'_> {
        self.pinned()
    }

    /// [`Self::pin`] for who has no other guard of this session.
    #[inline]
    fn pinned(&self) -> Guard<'_> {
        if let Some(place) = &self.place {
            self.store.epochs.pin(place);
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

    /// The size class, from 0, of the item that the last verb of this session changed, removed or
    /// refused to change; `None` when there was no item.
    pub fn changed_class(&self) -> Option<usize> {
        self.changed.get().and_then(|loc| self.store.slabs.class_of(loc)).map(|id| id.0.into())
    }

    /// Bytes of values so far that verbs of this session made of what they found: all that an `append`
    /// writes, not what a plain `set` does, whose bytes were the request's.
    #[inline]
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.get()
    }

    /// Tells where the item may be that [`Guard::find`] is asked for next, and says what became of
    /// the supposition before this one.
    pub fn suppose(&self, next: Supposed) -> Supposed {
        self.supposed.replace(next)
    }

    /// Tells the hash of the key that the next verb is about, if somebody has made it already.
    #[inline]
    pub fn know_hash(&self, hash: Option<KeyHash>) {
        self.known.set(hash);
    }

    /// The hash of the key that a verb is about.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = self.known.take().unwrap_or_else(|| self.store.hash(key));
        debug_assert_eq!(hash, self.store.hash(key), "told for another key");
        hash
    }

    /// Puts an item in the place of whatever is there, which is retired by [`Self::settle`].
    #[inline(always)]
    pub(super) fn put(&mut self, hash: KeyHash, new: &NewItem<'_>) -> Result<u64, Refused> {
        let Self { store, replaced, .. } = self;
        let mut patience = Patience::default();
        let fresh = store.make(new, Some(&mut patience), || store.retire(replaced.drain(..)))?;
        let (cas, old) = store.link(hash, new.key, fresh, Expect::Any)?;
        if let Some(old) = old {
            replaced.push(old);
            if replaced.is_full() {
                self.settle();
            }
        }
        Ok(cas)
    }

    /// Gives back the memory of what [`verbs::set`](super::verbs::set) replaced. To be called before
    /// the session is left alone for long: until then others count it as in use.
    #[inline]
    pub fn settle(&mut self) {
        if !self.replaced.is_empty() {
            self.store.retire(self.replaced.drain(..));
        }
    }

    /// Remembers where the item was that a change is about.
    pub(super) fn note_changed(&self, loc: Option<Location>) {
        self.changed.set(loc);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.settle();
        if let Some(place) = self.place.take() {
            self.store.epochs.leave(place);
        }
    }
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

    /// The hash of the key that a verb is about.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        self.session.hash(key)
    }

    /// The item at `loc`, if there is a live one with this key. For any number; an item that has
    /// expired is none.
    #[inline]
    pub fn verify(&self, loc: Location, key: &[u8]) -> Option<ItemRef<'_>> {
        self.at(loc).filter(|item| short::equal(item.key(), key) && self.store().is_live(item))
    }

    /// The item at `loc`, dead or alive. For any number.
    #[inline]
    pub(super) fn at(&self, loc: Location) -> Option<ItemRef<'_>> {
        // SAFETY: a guard is a pinned participant of this store, for as long as its borrow.
        unsafe { self.store().slabs.item(loc) }
    }

    /// The chunk at `loc`, if there is one, with its lines on the way to the cache. For any number.
    #[inline(always)]
    pub(crate) fn fetch(&self, loc: Location) -> Option<Fetched<'_>> {
        // SAFETY: as in `at`.
        unsafe { self.store().slabs.fetch(loc) }
    }

    /// The item with this key and where it is, dead ones included.
    fn present(&self, hash: KeyHash, key: &[u8]) -> Option<(Location, ItemRef<'_>)> {
        let store = self.store();
        store
            .index
            .find(hash, |loc| self.at(loc).filter(|item| item.key() == key).map(|item| (loc, item)))
    }

    /// Shows `f` the live item with this key under the locks of its buckets: what `f` changes,
    /// nobody else changes meanwhile, and whoever puts a new item in its place takes it over.
    pub(super) fn hold<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        f: impl FnOnce(ItemRef<'_>) -> R,
    ) -> Option<(ItemRef<'_>, R)> {
        let is_key = |loc| self.verify(loc, key).is_some();
        self.store().index.hold(hash, is_key, |loc| self.verify(loc, key).map(|i| (i, f(i))))?
    }

    /// Moves the expiry time of an item that is held.
    pub(super) fn renew(&self, item: ItemRef<'_>, expiry: u32) {
        item.set_expiry(expiry);
        self.store().note_expiry(expiry);
    }

    /// The item with this key: where it is supposed to be, if it is there, else by way of the
    /// index.
    #[inline]
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<ItemRef<'_>> {
        match self.session.supposed.get() {
            Supposed::At(loc) => {
                let item = self.verify(loc, key);
                let outcome = if item.is_some() { Supposed::Right } else { Supposed::Wrong };
                self.session.supposed.set(outcome);
                if item.is_some() {
                    return item;
                }
                self.store().look_again(hash);
            }
            Supposed::Unknown => {
                self.session.supposed.set(Supposed::Nothing);
                let item = self.find(hash, key);
                if item.is_some() {
                    self.store().look_again(hash);
                }
                return item;
            }
            _ => {}
        }
        let store = self.store();
        let mut dead = None;
        let item = store.index.find(hash, |loc| {
            let item = self.at(loc).filter(|item| short::equal(item.key(), key))?;
            if store.is_live(&item) {
                return Some(item);
            }
            dead = Some(item);
            None
        });
        if let (None, Some(dead)) = (item, dead) {
            let expired = store.clock.has_passed(dead.expiry());
            let found = match expired {
                true => &self.session.expired_found,
                false => &self.session.flushed_found,
            };
            found.set(found.get() + 1);
        }
        item
    }

    /// Lets go of all items seen so far, as a new pin would.
    #[inline]
    pub fn refresh(&mut self) {
        if let Some(place) = &self.session.place {
            self.session.store.epochs.pin(place);
        }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = &self.session.place {
            self.session.store.epochs.unpin(place);
        }
    }
}

/// What a verb wants done with the item that it was shown, and what it says of it.
#[derive(Debug)]
pub(super) enum Change<R> {
    /// Nothing.
    None(R),
    /// It goes.
    Remove(R),
    /// Another one comes in its place.
    Replace(Replacement, R),
}

/// A new item in the place of the present one.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) value: NewValue,
    pub(super) flags: u32,
    /// On the store's clock; `None` for the present item's.
    pub(super) expiry: Option<u32>,
    pub(super) marks: Marks,
    /// Which of the present item's marks it has too.
    pub(super) keeps: Marks,
    /// It counts as asked for when the present one was.
    pub(super) in_place: bool,
}

/// Where a new value comes from: the client gave it, the present item has it, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewValue {
    Given,
    Present,
    PresentThenGiven,
    GivenThenPresent,
    /// In decimal, with blanks behind up to a width of at most [`BLANKS`](super::write::BLANKS).
    Number {
        number: u64,
        width: usize,
    },
}

impl Session {
    /// The step that verbs are made of which look before they write: shows `decide` the live item
    /// with this key, and does what it says if the item is still the same; otherwise once more. A
    /// turn too many means that somebody else's went through. Returns what `decide` said, and the
    /// CAS id of a new item. `given` is what the client sent.
    pub(super) fn modify<R>(
        &mut self,
        key: &[u8],
        given: &[u8],
        mut decide: impl FnMut(Option<ItemRef<'_>>) -> Change<R>,
    ) -> Result<(R, Option<u64>), Refused> {
        let hash = self.hash(key);
        let mut room = Room::default();
        let value_len = match self.modify_now(hash, key, given, &mut decide, &mut room) {
            Err(Refused::OutOfMemory) => room.value_len,
            done => return done,
        };
        drop(room);
        self.settle();
        self.modify_late(hash, key, given, &mut decide, value_len)
    }

    /// [`Self::modify`] with memory that was waited for, without a pin: what was found missing may be
    /// what the pin held back.
    #[cold]
    fn modify_late<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        given: &[u8],
        decide: &mut impl FnMut(Option<ItemRef<'_>>) -> Change<R>,
        value_len: usize,
    ) -> Result<(R, Option<u64>), Refused> {
        let mut patience = Patience::default();
        let mut room = Room { fresh: None, value_len };
        loop {
            room.fresh = Some(self.store.reserve(key.len(), room.value_len, &mut patience)?);
            match self.modify_now(hash, key, given, decide, &mut room) {
                // It has become longer meanwhile.
                Err(Refused::OutOfMemory) if self.store.wait(&mut patience) => {}
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
        decide: &mut impl FnMut(Option<ItemRef<'_>>) -> Change<R>,
        room: &mut Room<'s>,
    ) -> Result<(R, Option<u64>), Refused> {
        let store: &Store = &self.store;
        loop {
            let guard = self.pinned();
            let present = guard.present(hash, key);
            let expect = Expect::Exactly(present.map(|(loc, _)| loc));
            let live = present.filter(|(_, item)| store.is_live(item));
            let item = live.map(|(_, item)| item);
            self.note_changed(live.map(|(loc, _)| loc));
            let (new, said) = match decide(item) {
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
                self.copied_bytes.set(self.copied_bytes.get().wrapping_add(room.value_len as u64));
            }
            match done {
                Ok(cas) => return Ok((said, Some(cas))),
                Err(Refused::Mismatch) => {}
                Err(refused) => return Err(refused),
            }
        }
    }
}
