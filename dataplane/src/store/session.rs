//! Sessions: one thread's way into the store, and the two look-ups.
//!
//! Enters: a key, with a hint or without. Leaves: the item, borrowed from a guard. A guard keeps
//! every item that its thread sees from being reused, so hold it for a batch, not for longer:
//! [`Guard::refresh`] lets go of the past. Fails: never; a wrong hint is `None`.
#![allow(unsafe_code)]

use super::Store;
use super::epoch::Participant;
use super::hash::KeyHash;
use super::index::{Expect, UpdateError};
use super::item::{ItemRef, Location, WHOLE_MAX_BYTES};
use super::marks::{Inherits, Marks};
use super::replica::Supposed;
use super::slab::{Class, Gone, Slabs};
use super::value::{NewItem, Value};
use crate::short;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
}

impl Session {
    pub(super) fn new(store: Arc<Store>, place: Participant) -> Self {
        Self {
            store,
            place: Some(place),
            expired_found: Cell::default(),
            flushed_found: Cell::default(),
            changed: Cell::default(),
            supposed: Cell::default(),
        }
    }

    /// Begins a look at the store.
    #[inline]
    pub fn pin(&mut self) -> Guard<'_> {
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

    /// Tells where the item may be that [`Guard::find`] is asked for next, and says what became of
    /// the supposition before this one.
    pub fn suppose(&self, next: Supposed) -> Supposed {
        self.supposed.replace(next)
    }

    /// Remembers where the item was that a change is about.
    pub(super) fn note_changed(&self, loc: Option<Location>) {
        self.changed.set(loc);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
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
    /// In decimal, with blanks behind up to a width of at most [`BLANKS`].
    Number {
        number: u64,
        width: usize,
    },
}

const BLANKS: [u8; 128] = [b' '; 128];

/// Times that a change is tried again for want of memory, without a pin between the tries: what
/// was found missing may be what the pin held back.
const SHORT_MAX: u32 = 3;

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
        let hash = self.store.hash(key);
        let mut short = 0;
        loop {
            let guard = self.pin();
            let store = guard.store();
            let present = guard.present(hash, key);
            let expect = Expect::Exactly(present.map(|(loc, _)| loc));
            let live = present.filter(|(_, item)| store.is_live(item));
            let item = live.map(|(_, item)| item);
            guard.session.note_changed(live.map(|(loc, _)| loc));
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
            match store.replace(hash, key, given, &new, item, expect) {
                Ok(cas) => return Ok((said, Some(cas))),
                Err(Refused::Mismatch) => {}
                Err(Refused::OutOfMemory) if short < SHORT_MAX => short += 1,
                Err(refused) => return Err(refused),
            }
        }
    }
}

/// Why an item could not be made or linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Above the item limit.
    TooLarge,
    /// No chunk to be had.
    OutOfMemory,
    /// The key's present item is not the expected one.
    Mismatch,
}

/// A written item that nobody can see yet. Dropping it gives its memory back.
#[derive(Debug)]
pub(super) struct Fresh<'s> {
    store: &'s Store,
    loc: Location,
    /// The further chunks of a large item.
    parts: Vec<Location>,
    len_bytes: usize,
    cas: u64,
    inherits: Inherits,
    /// It belongs to the index now.
    linked: bool,
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        if self.linked {
            return;
        }
        // SAFETY: `make` popped the chunk for us, it was not linked, and we are going away.
        unsafe { self.store.slabs.give_back(self.loc, self.len_bytes) };
        // SAFETY: as above; `make` counted them as parts.
        unsafe { self.store.slabs.give_back_parts(&self.parts) };
    }
}

/// What memcached counts for an item beyond key, value and client flags: its header, the key's
/// end, the line end and the CAS id.
const MEMCACHED_EXTRA_BYTES: usize = 48 + 1 + 2 + 8;

/// Longest key, in bytes (protocol.txt).
const KEY_MAX_BYTES: usize = crate::protocol::KEY_MAX_BYTES;

/// The steps that writing verbs are made of. Each is complete in itself; none needs a pin.
impl Store {
    /// Whether such an item is within the item limit, counted as memcached counts.
    pub fn fits(&self, key_bytes: usize, flags: u32, value_bytes: usize) -> bool {
        let client_flags = if flags == 0 { 0 } else { 4 };
        let counted = MEMCACHED_EXTRA_BYTES + client_flags + key_bytes + value_bytes;
        counted <= self.config.item_max_bytes
    }

    /// Writes an item into memory of its own. May evict, and may wait for at most about 100 µs.
    pub(super) fn make(&self, new: &NewItem<'_>) -> Result<Fresh<'_>, Refused> {
        if !self.fits(new.key.len(), new.flags, new.value_len())
            || !(1..=KEY_MAX_BYTES).contains(&new.key.len())
        {
            return Err(Refused::TooLarge);
        }
        let len_bytes = new.len_bytes();
        let is_large = new.value_len() > WHOLE_MAX_BYTES;
        let (loc, parts) = if is_large {
            self.allocate_large(new)?
        } else {
            let class = self.slabs.class_for(len_bytes).ok_or(Refused::TooLarge)?;
            (self.allocate(class, len_bytes, 1).ok_or(Refused::OutOfMemory)?, Vec::new())
        };
        let cas = self.cas.fetch_add(1, Ordering::Relaxed) + 1;
        if !is_large {
            // SAFETY: just popped, for this many bytes; the key's length was checked.
            unsafe { self.slabs.write(loc, new, cas, self.now()) };
        } else {
            // SAFETY: just popped, all of them, for this item; the key's length was checked.
            unsafe { self.slabs.write_large(loc, &parts, new, cas, self.now()) };
        }
        self.note_expiry(new.expiry);
        Ok(Fresh {
            store: self,
            loc,
            parts,
            len_bytes,
            cas,
            inherits: Inherits::default(),
            linked: false,
        })
    }

    /// Chunks for a large item: its own, and those for the other parts.
    fn allocate_large(&self, new: &NewItem<'_>) -> Result<(Location, Vec<Location>), Refused> {
        let id = self.slabs.large_class().ok_or(Refused::TooLarge)?;
        let n_parts = new.n_parts(self.slabs.size(id).bytes());
        let chunks = u32::try_from(n_parts + 1).map_err(|_| Refused::TooLarge)?;
        let mut parts = Vec::with_capacity(n_parts);
        while parts.len() < n_parts {
            let Some(part) = self.allocate(id, 0, chunks) else { break };
            Slabs::count_as_part(&mut self.slabs.lock(id));
            parts.push(part);
        }
        if parts.len() == n_parts
            && let Some(loc) = self.allocate(id, new.len_bytes(), chunks)
        {
            return Ok((loc, parts));
        }
        // SAFETY: popped and counted above, not linked, and given up here.
        unsafe { self.slabs.give_back_parts(&parts) };
        Err(Refused::OutOfMemory)
    }

    /// Makes and links what `modify` decided on.
    fn replace(
        &self,
        hash: KeyHash,
        key: &[u8],
        given: &[u8],
        new: &Replacement,
        item: Option<ItemRef<'_>>,
        expect: Expect,
    ) -> Result<u64, Refused> {
        let nothing = Value::Whole(&[]);
        let (given, present) = (Value::Whole(given), item.map_or(nothing, |item| item.value()));
        let mut digits = itoa::Buffer::new();
        let value = match new.value {
            NewValue::Given => [given, nothing],
            NewValue::Present => [present, nothing],
            NewValue::PresentThenGiven => [present, given],
            NewValue::GivenThenPresent => [given, present],
            NewValue::Number { number, width } => {
                let digits = digits.format(number).as_bytes();
                let blanks = BLANKS.get(..width.saturating_sub(digits.len()));
                [Value::Whole(digits), Value::Whole(blanks.unwrap_or_default())]
            }
        };
        let expiry = new.expiry.or_else(|| item.map(|item| item.expiry())).unwrap_or(0);
        let whole = NewItem { key, flags: new.flags, expiry, value, marks: new.marks };
        let mut fresh = self.make(&whole)?;
        fresh.inherits =
            Inherits { expiry: new.expiry.is_none(), marks: new.keeps, history: new.in_place };
        self.link(hash, key, fresh, expect)
    }

    /// From now on there may be something to sweep.
    pub(super) fn note_expiry(&self, expiry: u32) {
        if expiry != 0 && !self.expiring.load(Ordering::Relaxed) {
            self.expiring.store(true, Ordering::Relaxed);
        }
    }

    /// Puts the item in the place of the key's present one, if that is as expected. Returns its
    /// CAS id.
    pub(super) fn link(
        &self,
        hash: KeyHash,
        key: &[u8],
        mut fresh: Fresh<'_>,
        expect: Expect,
    ) -> Result<u64, Refused> {
        debug_assert!(std::ptr::eq(self, fresh.store), "an item of another store");
        match fresh.store.swap(hash, key, Some((fresh.loc, fresh.inherits)), expect) {
            Ok(_) => {
                fresh.linked = true;
                Ok(fresh.cas)
            }
            Err(UpdateError::Mismatch(_)) => Err(Refused::Mismatch),
            Err(UpdateError::Full) => Err(Refused::OutOfMemory),
        }
    }

    /// Takes the key's item out of sight. Says where it was, if it was a live one.
    pub(super) fn unlink(&self, hash: KeyHash, key: &[u8], expect: Expect) -> Option<Location> {
        self.swap(hash, key, None, expect).unwrap_or_default()
    }

    /// The common step: says where there was a live item. `new` says where the new one is (written,
    /// linked nowhere, and the caller's alone), and what it takes over from the old one.
    pub(super) fn swap(
        &self,
        hash: KeyHash,
        key: &[u8],
        new: Option<(Location, Inherits)>,
        expect: Expect,
    ) -> Result<Option<Location>, UpdateError> {
        let mut gone = Gone::ByClient;
        let is_key = |loc| {
            // SAFETY: the index asks only about locations in buckets that it holds the lock of.
            unsafe { self.slabs.item(loc) }.is_some_and(|item| item.key() == key)
        };
        let mut wanted = new.is_some() && self.ghosts.knows(hash);
        if new.is_some() {
            self.returns.stored(hash);
        }
        let commit = |old: Option<Location>| {
            let mut before = None;
            if let Some(old) = old {
                // SAFETY: `old` stands in a locked bucket.
                before = unsafe { self.slabs.item(old) };
                if let Some(item) = before {
                    wanted |= item.is_visited();
                    if !self.is_live(&item) {
                        gone = Gone::Expired { fetched: item.was_fetched() };
                    }
                }
                // SAFETY: `old` stands in a locked bucket.
                unsafe { self.slabs.set_linked(old, false) };
            }
            if let Some((new, inherits)) = new {
                // SAFETY: `new` is about to stand in a locked bucket; it was written: by `make`, or
                // before a restart.
                unsafe { self.slabs.set_linked(new, true) };
                // SAFETY: `new` is linked, and leaves again only under the locks that are held.
                if let Some(item) = unsafe { self.slabs.item(new) } {
                    if let Some(before) = before {
                        item.take_over(&before, inherits);
                    }
                    if wanted {
                        item.expect_visit();
                    }
                }
            }
        };
        let old = self.change_index(hash, new.map(|(loc, _)| loc), expect, is_key, commit)?;
        if let Some(old) = old {
            // SAFETY: `commit` hid it, and the index gave it to us alone.
            unsafe { self.slabs.retire(old, &self.epochs, gone) };
        }
        Ok(old.filter(|_| gone == Gone::ByClient))
    }

    /// Unlinks the item to make room, or because it has expired, with its class locked. False
    /// when somebody else just did.
    pub(super) fn remove(
        &self,
        class: &mut Class,
        loc: Location,
        item: ItemRef<'_>,
        active: bool,
    ) -> bool {
        let fetched = item.was_fetched();
        let why = if self.is_live(&item) {
            Gone::Evicted { fetched, active }
        } else {
            Gone::Expired { fetched }
        };
        let (hash, expect) = (self.hash(item.key()), Expect::Exactly(Some(loc)));
        // SAFETY: `loc` stands in a locked bucket.
        let hide = |_| unsafe { self.slabs.set_linked(loc, false) };
        if self.change_index(hash, None, expect, |l| l == loc, hide).is_err() {
            return false;
        }
        if let Gone::Evicted { .. } = why {
            let tally = &mut class.tally;
            tally.evicted_expiring += u64::from(item.expiry() != 0);
            tally.evicted_idle_seconds = u64::from(self.now().saturating_sub(item.accessed()));
            self.observer.evicted(&item, class.id, self.now());
            self.returns.gone(hash, class.id.0);
        }
        // SAFETY: we hid it, and the index gave it to us alone; callers come from
        // `Slabs::with_item`, which gives the item's own class.
        unsafe { self.slabs.retire_in(class, loc, &self.epochs, why) };
        true
    }
}

impl Store {
    /// Puts the item in another chunk of its class, with its class locked. It stays the same to
    /// everybody who asks, down to its CAS id. False when there is no chunk, or somebody else just
    /// changed it.
    pub(super) fn relocate(&self, class: &mut Class, loc: Location, item: ItemRef<'_>) -> bool {
        let Some(to) = self.slabs.pop_for_move(class, &item) else { return false };
        let new = NewItem {
            key: item.key(),
            flags: item.flags(),
            expiry: item.expiry(),
            value: [item.value(), Value::Whole(&[])],
            marks: Marks::default(),
        };
        // SAFETY: just popped, from the class that holds an item of the same length.
        unsafe { self.slabs.write(to, &new, item.cas(), item.accessed()) };
        let (hash, expect) = (self.hash(item.key()), Expect::Exactly(Some(loc)));
        let swap = |_| {
            // SAFETY: `loc` stands in a locked bucket.
            unsafe { self.slabs.set_linked(loc, false) };
            // SAFETY: `to` is about to stand there; it was written above.
            unsafe { self.slabs.set_linked(to, true) };
            // SAFETY: `to` is linked, and leaves again only under the locks that are held.
            if let Some(copy) = unsafe { self.slabs.item(to) } {
                let all = Inherits { expiry: true, marks: Marks::ALL, history: true };
                copy.take_over(&item, all);
            }
        };
        if self.index.update(hash, Some(to), expect, |l| l == loc, swap).is_err() {
            // SAFETY: popped above, not linked, and given up here.
            unsafe { self.slabs.give_back_in(class, to, item.len_bytes()) };
            return false;
        }
        // SAFETY: we hid it, and the index gave it to us alone; callers come from
        // `Slabs::with_owner`, which gives the item's own class.
        unsafe { self.slabs.retire_in(class, loc, &self.epochs, Gone::Moved) };
        class.tally.rescued += 1;
        true
    }
}
