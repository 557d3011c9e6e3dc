//! The steps that writing verbs are made of, and eviction, and the moving of items: make an item,
//! link it, take one out of sight.
//!
//! In: what an item is to be made of, hashes, and what is expected to be there. Out: items
//! that readers see in whole or not at all, and chunks in limbo. A step is complete in itself and
//! needs no pin: what it looks at, it holds by the locks of the key's buckets. Fails: [`Refused`].
#![allow(unsafe_code)]

use super::Store;
use super::allocate::{GivenBack, NAPS_MAX, Retries};
use super::change::{NewValue, Replacement};
use super::hash::KeyHash;
use super::index::{Expect, UpdateError};
use super::item::{ItemRef, Location, Value};
use super::item_flags::{Inherits, Marks};
use super::layout::{OWN_CAS_BYTES, WHOLE_MAX_BYTES, len_bytes, n_parts};
use super::new_item::NewItem;
use super::slab::{Class, Gone, Slabs, Unlinked};
use base::{KEY_MAX_BYTES, small_bytes};
use std::mem::{self, ManuallyDrop};
use std::sync::atomic::Ordering;

/// What a number is filled up with behind its digits.
pub(super) const BLANKS: [u8; 128] = [b' '; 128];

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

/// A written item that is not in the index yet. Dropping it gives its memory back.
#[derive(Debug)]
pub(super) struct Fresh<'s> {
    store: &'s Store,
    loc: Location,
    /// The further chunks of a large item.
    parts: Vec<Location>,
    len_bytes: usize,
    /// As clients get to know it.
    cas: u64,
    inherits: Inherits,
}

/// Memory for what a verb makes of an item, and what it turned out to need.
#[derive(Debug, Default)]
pub(super) struct Reservation<'s> {
    pub(super) fresh: Option<Fresh<'s>>,
    pub(super) needs: Needs,
}

/// What memory an item needs beside that for its key.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Needs {
    pub(super) value_len: usize,
    /// Some for a CAS id of the client's own, too.
    own_cas: bool,
    given_back: GivenBack,
    /// Bytes of the value in whose place it comes, if that is a large one.
    held_len: usize,
}

impl Drop for Fresh<'_> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: `make` popped the chunk for us, it was not linked (what is, is not dropped), and we
        // are going away.
        unsafe { self.store.slabs.give_back(self.loc, self.len_bytes) };
        // SAFETY: as above; `make` counted them as parts.
        unsafe { self.store.slabs.give_back_parts(&self.parts) };
    }
}

/// What memcached counts for an item beyond key, value and client flags: its header, the key's
/// end, the line end and the CAS id.
const MEMCACHED_EXTRA_BYTES: usize = 48 + 1 + 2 + 8;

impl Store {
    /// Whether such an item is within the item limit, counted as memcached counts.
    pub fn fits(&self, key_bytes: usize, flags: u32, value_bytes: usize) -> bool {
        let client_flags = if flags == 0 { 0 } else { 4 };
        let counted = MEMCACHED_EXTRA_BYTES + client_flags + key_bytes + value_bytes;
        counted <= self.config.item_max_bytes
    }

    /// Writes an item into memory of its own. May evict, and may wait as [`Retries`] allows:
    /// `before_waiting` may give back what the caller still has.
    ///
    /// Inlined, and [`Self::link`] too, so that a `Fresh` is nowhere but in registers.
    #[inline(always)]
    pub(super) fn make(
        &self,
        new: &NewItem<'_>,
        given_back: GivenBack,
        retries: Option<&mut Retries>,
        before_waiting: impl FnOnce(),
    ) -> Result<Fresh<'_>, Refused> {
        if !self.fits(new.key.len(), new.flags, new.value_len())
            || !(1..=KEY_MAX_BYTES).contains(&new.key.len())
        {
            return Err(Refused::TooLarge);
        }
        let (loc, sequence, parts) = match new.value_len() > WHOLE_MAX_BYTES {
            true => {
                before_waiting();
                self.make_large(new, retries)?
            }
            false => {
                let len_bytes = new.len_bytes();
                let class = self.slabs.class_for(len_bytes).ok_or(Refused::TooLarge)?;
                let loc = self.allocate(class, len_bytes, (1, given_back), retries, before_waiting);
                let loc = loc.ok_or(Refused::OutOfMemory)?;
                let sequence = self.next_in_sequence();
                // SAFETY: just popped for this many bytes; the key's length was checked.
                unsafe { self.slabs.write(loc, new, sequence, self.now()) };
                (loc, sequence, Vec::new())
            }
        };
        self.note_expiry(new.expiry);
        Ok(Fresh {
            store: self,
            loc,
            parts,
            len_bytes: new.len_bytes(),
            cas: new.own_cas.unwrap_or(sequence),
            inherits: Inherits::default(),
        })
    }

    pub(super) fn next_in_sequence(&self) -> u64 {
        self.cas.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The same for one that needs several chunks: where it is, its number, its further chunks.
    #[inline(never)]
    fn make_large(
        &self,
        new: &NewItem<'_>,
        retries: Option<&mut Retries>,
    ) -> Result<(Location, u64, Vec<Location>), Refused> {
        let lens = (new.key.len(), new.value_len(), new.len_bytes());
        let (loc, parts) = self.allocate_large(lens, 0, retries)?;
        let sequence = self.next_in_sequence();
        // SAFETY: just popped, all of them, for this item; the key's length was checked.
        unsafe { self.slabs.write_large(loc, &parts, new, sequence, self.now()) };
        Ok((loc, sequence, parts))
    }

    /// Chunks for a large item: its own, and those for the other parts. The lengths are its key's, its
    /// value's and that of all; `held_len` is that of a large value which is there and is not evicted for it.
    fn allocate_large(
        &self,
        (key_len, value_len, len_bytes): (usize, usize, usize),
        held_len: usize,
        mut retries: Option<&mut Retries>,
    ) -> Result<(Location, Vec<Location>), Refused> {
        let id = self.slabs.large_class().ok_or(Refused::TooLarge)?;
        let size = self.slabs.size(id);
        let of = |value_len| n_parts(key_len, value_len, size.bytes());
        let (n_parts, held) = (of(value_len), if held_len > 0 { of(held_len) + 1 } else { 0 });
        let chunks = u32::try_from(n_parts + 1 + held).map_err(|_| Refused::TooLarge)?;
        let most = match self.config.slab_pages {
            None => self.slabs.limit_pages() * size.per_page,
            Some(_) => self.slabs.lock(id).chunks(),
        };
        if chunks > most {
            return Err(Refused::OutOfMemory);
        }
        let alone = match &retries {
            Some(_) => self.large.try_lock_for(NAPS_MAX),
            None => self.large.try_lock(),
        };
        let _alone = alone.ok_or(Refused::OutOfMemory)?;
        let mut parts = Vec::with_capacity(n_parts);
        while parts.len() < n_parts {
            let part = self.allocate(id, 0, (chunks, None), retries.as_deref_mut(), || ());
            let Some(part) = part else { break };
            Slabs::count_as_part(&mut self.slabs.lock(id));
            parts.push(part);
        }
        if parts.len() == n_parts
            && let Some(loc) = self.allocate(id, len_bytes, (chunks, None), retries, || ())
        {
            return Ok((loc, parts));
        }
        // SAFETY: popped and counted above, not linked, and given up here.
        unsafe { self.slabs.give_back_parts(&parts) };
        Err(Refused::OutOfMemory)
    }

    /// Memory for an item with a key of this length; what it needs is within bounds. A caller that waits for it must not be pinned: others may wait for it to unpin.
    #[cold]
    pub(super) fn reserve(
        &self,
        key_len: usize,
        Needs { value_len, own_cas, given_back, held_len }: Needs,
        retries: &mut Retries,
    ) -> Result<Fresh<'_>, Refused> {
        let own_cas = if own_cas { OWN_CAS_BYTES } else { 0 };
        let len_bytes = len_bytes(key_len, value_len) + own_cas;
        let (loc, parts) = match value_len > WHOLE_MAX_BYTES {
            true => {
                self.allocate_large((key_len, value_len, len_bytes), held_len, Some(retries))?
            }
            false => {
                let class = self.slabs.class_for(len_bytes).ok_or(Refused::TooLarge)?;
                let loc = self.allocate(class, len_bytes, (1, given_back), Some(retries), || ());
                (loc.ok_or(Refused::OutOfMemory)?, Vec::new())
            }
        };
        let inherits = Inherits::default();
        Ok(Fresh { store: self, loc, parts, len_bytes, cas: 0, inherits })
    }

    /// [`Self::make`] in memory that was reserved, if it fits in there.
    #[cold]
    fn make_in<'s>(
        &'s self,
        mut fresh: Fresh<'s>,
        new: &NewItem<'_>,
    ) -> Result<Fresh<'s>, Refused> {
        let Some(size) = self.slabs.class_of(fresh.loc).map(|id| self.slabs.size(id).bytes())
        else {
            return Err(Refused::OutOfMemory);
        };
        let large = new.value_len() > WHOLE_MAX_BYTES;
        let fits = match large {
            true => !fresh.parts.is_empty() && new.n_parts(size) == fresh.parts.len(),
            false => fresh.parts.is_empty() && new.len_bytes() <= size,
        };
        if !fits || !self.fits(new.key.len(), new.flags, new.value_len()) {
            drop(fresh);
            return self.make(new, None, None, || ());
        }
        self.slabs.recount(fresh.loc, fresh.len_bytes, new.len_bytes());
        let sequence = self.next_in_sequence();
        (fresh.len_bytes, fresh.cas) = (new.len_bytes(), new.own_cas.unwrap_or(sequence));
        if large {
            // SAFETY: popped by `reserve`, all of them, of the large class, and as many as needed; the
            // key is that of a look-up.
            unsafe { self.slabs.write_large(fresh.loc, &fresh.parts, new, sequence, self.now()) };
        } else {
            // SAFETY: popped by `reserve`, and long enough; the key is that of a look-up.
            unsafe { self.slabs.write(fresh.loc, new, sequence, self.now()) };
        }
        self.note_expiry(new.expiry);
        Ok(fresh)
    }

    /// Makes and links what `modify` decided on, in `room` if there is some, without waiting for more. What it is made
    /// of is not evicted for that.
    pub(super) fn replace<'s>(
        &'s self,
        hash: KeyHash,
        key: &[u8],
        given: &[u8],
        new: &Replacement,
        (item, expect): (Option<ItemRef<'_>>, Expect),
        room: &mut Reservation<'s>,
    ) -> Result<u64, Refused> {
        let nothing = Value::Whole(&[]);
        let (given, present) = (Value::Whole(given), item.map_or(nothing, |item| item.value()));
        // The sum of bytes that are there already is taken over, where it is kept.
        let sum = || item.and_then(|item| item.kept_sum());
        let mut digits = itoa::Buffer::new();
        let mut sums = [None; 2];
        let value = match new.value {
            NewValue::Given => [given, nothing],
            NewValue::Present => {
                sums = [sum(), None];
                [present, nothing]
            }
            NewValue::PresentThenGiven => {
                sums = [sum(), None];
                [present, given]
            }
            NewValue::GivenThenPresent => {
                sums = [None, sum()];
                [given, present]
            }
            NewValue::Number { number, width } => {
                let digits = digits.format(number).as_bytes();
                let blanks = BLANKS.get(..width.saturating_sub(digits.len()));
                [Value::Whole(digits), Value::Whole(blanks.unwrap_or_default())]
            }
        };
        let expiry = new.expiry.or_else(|| item.map(|item| item.expiry())).unwrap_or(0);
        let Replacement { flags, marks, own_cas, .. } = *new;
        let whole = NewItem { key, flags, expiry, value, sums, marks, own_cas };
        let its_class = |item| self.slabs.class_of(self.slabs.arena().location(&item));
        let given_back = item.and_then(its_class);
        let held_len = item.filter(ItemRef::is_large).map_or(0, |item| item.value_len());
        let (value_len, own_cas) = (whole.value_len(), own_cas.is_some());
        room.needs = Needs { value_len, own_cas, given_back, held_len };
        if let Some(item) = item {
            item.hold();
        }
        let made = match room.fresh.take() {
            Some(fresh) => self.make_in(fresh, &whole),
            None => self.make(&whole, given_back, None, || ()),
        };
        let linked = made.and_then(|mut fresh| {
            fresh.inherits = Inherits {
                expiry: new.expiry.is_none(),
                marks: new.keeps,
                history: new.in_place,
                made_of_it: item.is_some(),
            };
            self.link(hash, key, fresh, expect)
        });
        // While memory is waited for it is held on; then `Session::modify` ends that.
        if let (Some(item), Err(Refused::TooLarge | Refused::Mismatch)) = (item, &linked) {
            item.release();
        }
        let (cas, old) = linked?;
        self.retire(old);
        Ok(cas)
    }

    /// From now on there may be something to sweep.
    pub(super) fn note_expiry(&self, expiry: u32) {
        if expiry != 0 && !self.expiring.load(Ordering::Relaxed) {
            self.expiring.store(true, Ordering::Relaxed);
        }
    }

    /// Puts the item in the place of the key's present one, if that is as expected. Returns its
    /// CAS id, and what was there.
    #[inline(always)]
    pub(super) fn link(
        &self,
        hash: KeyHash,
        key: &[u8],
        fresh: Fresh<'_>,
        expect: Expect,
    ) -> Result<(u64, Option<Unlinked>), Refused> {
        debug_assert!(std::ptr::eq(self, fresh.store), "an item of another store");
        let mut fresh = ManuallyDrop::new(fresh);
        match fresh.store.swap(hash, key, Some((fresh.loc, fresh.inherits)), expect) {
            Ok(old) => {
                // The chunks are the index's now; the list of them was ours.
                drop(mem::take(&mut fresh.parts));
                Ok((fresh.cas, old))
            }
            Err(why) => {
                drop(ManuallyDrop::into_inner(fresh));
                Err(match why {
                    UpdateError::Mismatch(_) => Refused::Mismatch,
                    UpdateError::Full => Refused::OutOfMemory,
                })
            }
        }
    }

    /// Takes the key's item out of sight. Says where it was, if it was a live one.
    #[inline(never)]
    pub(super) fn unlink(&self, hash: KeyHash, key: &[u8], expect: Expect) -> Option<Location> {
        let old = self.swap(hash, key, None, expect).unwrap_or_default();
        let live = old.as_ref().filter(|old| old.why == Gone::ByClient).map(|old| old.loc);
        self.retire(old);
        live
    }

    /// Retires what [`Self::link`] took the places of.
    pub(super) fn retire(&self, unlinked: impl IntoIterator<Item = Unlinked>) {
        // SAFETY: `swap` hid each, and the index gave it to its caller alone, who gives it up here:
        // there are no others that have an `Unlinked`.
        unsafe { self.slabs.retire(unlinked, &self.epochs) };
    }

    /// The common step: says what was there, to be retired. `new` says where the new item is
    /// (written, linked nowhere, and the caller's alone), and what it takes over from the old one.
    #[inline(always)]
    pub(super) fn swap(
        &self,
        hash: KeyHash,
        key: &[u8],
        new: Option<(Location, Inherits)>,
        expect: Expect,
    ) -> Result<Option<Unlinked>, UpdateError> {
        let mut wanted = new.is_some() && self.ghosts.knows(hash);
        if new.is_some() {
            self.returns.stored(hash);
        }
        let look = |loc| {
            // SAFETY: the index calls this only with locations in buckets that it holds the lock of.
            let item = unsafe { self.slabs.indexed(loc) };
            item.filter(|item| small_bytes::equal(item.key(), key))
        };
        let entry = self.entry_to_change(hash, new.is_some(), expect, look)?;
        let old = entry.present();
        let mut why = Gone::ByClient;
        if let Some((old, item)) = old {
            wanted |= item.is_visited();
            // Flushed or expired since it was looked at, or about to be; which of both is asked in this order.
            if new.is_some_and(|(_, inherits)| inherits.made_of_it)
                && (self.flushed.is_under_way() || !self.is_live(&item))
            {
                return Err(UpdateError::Mismatch(Some(old)));
            }
            if !self.is_live(&item) {
                why = Gone::Expired { fetched: item.was_fetched() };
            }
            // SAFETY: `old` stands in a locked bucket.
            unsafe { self.slabs.set_linked(old, false) };
        }
        if let Some((new, inherits)) = new {
            // SAFETY: `new` is about to stand in a locked bucket; it was written: by `make` or
            // `put_reserved`, or before a restart.
            unsafe { self.slabs.set_linked(new, true) };
            // SAFETY: `new` is linked, and leaves again only under the locks that are held.
            if let Some(item) = unsafe { self.slabs.indexed(new) } {
                if let Some((_, before)) = &old {
                    item.take_over(before, inherits);
                }
                if wanted {
                    item.expect_visit();
                }
            }
        }
        entry.set(new.map(|(loc, _)| loc));
        Ok(old.map(|(loc, _)| Unlinked { loc, why }))
    }

    /// Unlinks the item to make room, or because it is dead, with its class locked. False when another
    /// thread just did, or renewed it.
    pub(super) fn remove(
        &self,
        class: &mut Class,
        loc: Location,
        item: ItemRef<'_>,
        active: bool,
    ) -> bool {
        let fetched = item.was_fetched();
        let why = match self.is_live(&item) {
            true => Gone::Evicted { fetched, active },
            false => Gone::Expired { fetched },
        };
        self.remove_for(why, class, loc, item)
    }

    /// [`Self::remove`] for this reason.
    pub(super) fn remove_for(
        &self,
        why: Gone,
        class: &mut Class,
        loc: Location,
        item: ItemRef<'_>,
    ) -> bool {
        let (hash, expect) = (self.hash(item.key()), Expect::Exactly(Some(loc)));
        let look = |at| (at == loc).then_some(());
        let Ok(entry) = self.entry_to_change(hash, false, expect, look) else { return false };
        // Renewed since it was looked at, as its client knows.
        if matches!(why, Gone::Expired { .. }) && self.is_live(&item) {
            return false;
        }
        // SAFETY: `loc` stands in a locked bucket.
        unsafe { self.slabs.set_linked(loc, false) };
        entry.set(None);
        if let Gone::Evicted { .. } = why {
            let tally = &mut class.tally;
            tally.evicted_expiring += u64::from(item.expiry() != 0);
            tally.evicted_idle_seconds = u64::from(self.now().saturating_sub(item.accessed()));
            self.observer.evicted(&item, class.id, self.now());
            self.returns.gone(hash, class.id.0);
        }
        // SAFETY: we hid it, and the index gave it to us alone; callers come from
        // `Slabs::with_item`, which gives the item's own class.
        unsafe { self.slabs.retire_in(class, loc, self.epochs.stamp(), why) };
        true
    }
}

impl Store {
    /// Puts the item in another chunk of its class, or in one of class `home`, which has larger ones, with
    /// these locked. It stays the same to readers, down to its CAS id. False when there is no chunk, or
    /// another thread just changed it.
    pub(super) fn relocate(
        &self,
        class: &mut Class,
        mut home: Option<&mut Class>,
        loc: Location,
        item: ItemRef<'_>,
    ) -> bool {
        let comes = home.is_some();
        let to = self.slabs.pop_for_move(home.as_deref_mut().unwrap_or(class), &item, comes);
        let Some(to) = to else { return false };
        let new = NewItem {
            key: item.key(),
            flags: item.flags(),
            expiry: item.expiry(),
            value: [item.value(), Value::Whole(&[])],
            sums: [item.kept_sum(), None],
            marks: Marks::default(),
            own_cas: item.own_cas(),
        };
        // SAFETY: just popped, from the class that holds an item of the same length, or from a larger one.
        unsafe { self.slabs.write(to, &new, item.sequence(), item.accessed()) };
        let (hash, expect) = (self.hash(item.key()), Expect::Exactly(Some(loc)));
        let look = |at| (at == loc).then_some(());
        let Ok(entry) = self.entry_to_change(hash, true, expect, look) else {
            // SAFETY: popped above, not linked, and given up here.
            unsafe { self.slabs.give_back_in(home.unwrap_or(class), to, item.len_bytes()) };
            return false;
        };
        // SAFETY: `loc` stands in a locked bucket.
        unsafe { self.slabs.set_linked(loc, false) };
        // SAFETY: `to` is about to stand there; it was written above.
        unsafe { self.slabs.set_linked(to, true) };
        // SAFETY: `to` is linked, and leaves again only under the locks that are held.
        if let Some(copy) = unsafe { self.slabs.item(to) } {
            let all =
                Inherits { expiry: true, marks: Marks::ALL, history: true, ..Inherits::default() };
            copy.take_over(&item, all);
        }
        entry.set(Some(to));
        // SAFETY: we hid it, and the index gave it to us alone; callers come from
        // `Slabs::with_owner`, which gives the item's own class.
        unsafe { self.slabs.retire_in(class, loc, self.epochs.stamp(), Gone::Moved) };
        class.tally.rescued += 1;
        true
    }
}
