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

use crate::rdma::Stags;
use store::{Fetched, Guard, ItemRef, KeyHash, LANES, verbs};

/// Requests that are looked up side by side.
pub(super) const ROW: usize = LANES;
/// Rows between one step and the next.
pub(super) const ROWS_AHEAD: usize = 2;
/// Rows under way, and more: a power of two.
const UNDER_WAY: usize = 8;
const _: () = assert!(UNDER_WAY > 2 * ROWS_AHEAD);

/// Requests under way.
pub(super) struct Rows<'g> {
    guard: &'g Guard<'g>,
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
        Self { guard, rows: [row; UNDER_WAY] }
    }

    /// Begins a row. What has no stag is 0.
    #[inline(always)]
    pub(super) fn name(&mut self, row: usize, stags: &Stags, named: [u64; ROW]) {
        let places = stags.places(named);
        for place in places.iter().flatten() {
            self.guard.store().prefetch_near(*place);
        }
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

    /// What each named, and the item, if there is one.
    #[inline(always)]
    pub(super) fn take(&self, row: usize) -> [(Option<KeyHash>, Option<ItemRef<'g>>); ROW] {
        let Row { places, found } = &self.rows[row % UNDER_WAY];
        let items = verbs::eight_by_place(self.guard, places, found);
        let mut taken = [(None, None); ROW];
        for ((taken, place), item) in taken.iter_mut().zip(places).zip(items) {
            *taken = (*place, item);
        }
        taken
    }
}
