//! Where the items are that the next requests read.
//!
//! In: stags of requests that wait. Out: items. Eight requests are a row, and rows are worked on in three
//! steps, each some rows behind the one before, so that what memory owes one row comes while others are
//! worked on:
//!
//! ```text
//! name   the row's stags undone side by side; its index lines prefetched
//! find   the first line, or the second a row later, where the first had nothing; items prefetched
//! take   keys compared with what the index was asked for, by their hashes, side by side
//! ```
//!
//! Nothing fails.

use crate::plain::vector::{self, KEY_BLOCK, Vector};
use crate::rdma::Stags;
use base::speck::LANES;
use store::{Fetched, Guard, ItemRef, KeyHash, Liveness, Store, verbs};

/// Requests that are looked up side by side.
pub(super) const ROW: usize = LANES;
/// Keys that are hashed side by side.
const KEYS: usize = vector::ROW;
const _: () = assert!(ROW.is_multiple_of(KEYS));
/// Rows between one step and the next.
pub(super) const ROWS_AHEAD: usize = 2;
/// Rows under way, and more: a power of two.
const UNDER_WAY: usize = 8;
const _: () = assert!(UNDER_WAY > 2 * ROWS_AHEAD);

/// Requests under way.
pub(super) struct Rows<'g> {
    guard: &'g Guard<'g>,
    liveness: Option<Liveness>,
    rows: [Row<'g>; UNDER_WAY],
}

#[derive(Clone, Copy)]
struct Row<'g> {
    /// `None`: what was named is no stag.
    places: [Option<KeyHash>; ROW],
    /// The first chunks whose tags fit.
    found: [Option<Fetched<'g>>; ROW],
}

impl<'g> Rows<'g> {
    pub(super) fn new(guard: &'g Guard<'g>) -> Self {
        let row = Row { places: [None; ROW], found: [None; ROW] };
        Self { guard, liveness: guard.store().liveness(), rows: [row; UNDER_WAY] }
    }

    /// Begins a row. What has no stag is 0.
    #[inline(always)]
    pub(super) fn name(&mut self, row: usize, stags: &Stags, named: [u64; ROW]) {
        let (places, store) = (stags.places(named), self.guard.store());
        places.iter().flatten().for_each(|place| store.prefetch_near(*place));
        self.rows[row % UNDER_WAY] = Row { places, found: [None; ROW] };
    }

    /// Looks at the first line of each.
    #[inline(always)]
    pub(super) fn find(&mut self, row: usize) {
        let Row { places, found } = &mut self.rows[row % UNDER_WAY];
        for (found, place) in found.iter_mut().zip(places) {
            let Some(place) = *place else { continue };
            *found = self.guard.fetch_near(place);
            if found.is_none() {
                self.guard.store().prefetch_far(place);
            }
        }
    }

    /// Looks at the second line of those whose first had nothing.
    #[inline(always)]
    pub(super) fn find_far(&mut self, row: usize) {
        let Row { places, found } = &mut self.rows[row % UNDER_WAY];
        for (found, place) in found.iter_mut().zip(places) {
            if found.is_none() {
                *found = place.and_then(|place| self.guard.fetch_either(place));
            }
        }
    }

    /// The row, with the hashes of the keys that are where its places are.
    #[inline(always)]
    pub(super) fn take(&self, row: usize, vector: impl Vector) -> Taken<'_, 'g> {
        let row = &self.rows[row % UNDER_WAY];
        let items = row.found.map(|found| found.and_then(Fetched::item));
        let mut hashes = [0; ROW];
        for (hashes, items) in hashes.as_chunks_mut().0.iter_mut().zip(items.as_chunks().0) {
            *hashes = hash(self.guard.store(), items, vector);
        }
        Taken { guard: self.guard, liveness: self.liveness, row, items, hashes }
    }
}

/// A row at its last step.
pub(super) struct Taken<'r, 'g> {
    guard: &'g Guard<'g>,
    liveness: Option<Liveness>,
    row: &'r Row<'g>,
    items: [Option<ItemRef<'g>>; ROW],
    hashes: [u64; ROW],
}

/// What is at the place that a request names.
#[derive(Clone, Copy)]
pub(super) struct Named<'g> {
    /// It is a stag.
    pub(super) is_stag: bool,
    /// And its size class.
    pub(super) item: Option<(ItemRef<'g>, usize)>,
}

impl<'g> Taken<'_, 'g> {
    /// What request `n` of the row named.
    #[inline(always)]
    pub(super) fn named(&self, n: usize) -> Named<'g> {
        let n = n % ROW;
        let Some(place) = self.row.places[n] else { return Named { is_stag: false, item: None } };
        // Nothing with this tag is a miss.
        let Some(found) = self.row.found[n] else { return Named { is_stag: true, item: None } };
        let store = self.guard.store();
        let hash = KeyHash(self.hashes[n]);
        let item = match self.items[n] {
            Some(item)
                if hash.place() == place
                    && self.liveness.map_or_else(|| store.is_live(&item), |l| l.is_live(&item)) =>
            {
                Some((item, found.class()))
            }
            _ => verbs::get_by_place(self.guard, place).map(|item| (item, store.class_of(&item))),
        };
        Named { is_stag: true, item }
    }
}

/// The hashes of these items' keys; of those that there are none of, anything.
#[inline(always)]
fn hash(store: &Store, items: &[Option<ItemRef<'_>>; KEYS], vector: impl Vector) -> [u64; KEYS] {
    let keys = items.map(|item| item.map_or([0; KEY_BLOCK], |item| *item.key_block()));
    let lens = items.map(|item| item.map_or(0, |item| item.key_len()));
    if lens.into_iter().max().is_some_and(|len| usize::from(len) > KEY_BLOCK) {
        return items.map(|item| item.map_or(0, |item| store.hash(item.key()).0));
    }
    vector.hash(store, &keys, lens)
}
