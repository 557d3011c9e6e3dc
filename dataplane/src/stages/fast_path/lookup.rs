//! Step 2: where the items of a row are, by their tags.
//!
//! In: hashes whose buckets were prefetched some rows ago. Out: locations, and the items on the way
//! to the cache. A location is only a proposal, as any engine's.

use super::totals::next_of;
use super::{Pass, bits_of};
use crate::plain::vector::ROW;
use store::KeyHash;

impl Pass<'_, '_> {
    /// Looks at the first bucket of those requests of a row that are `sought`. Most items are there; for the others,
    /// which are `missed` so far, the second one is prefetched.
    #[inline(always)]
    pub(super) fn look_up_row(&mut self, row: usize, sought: u64) {
        let (guard, mut left) = (self.guard, bits_of(sought, row));
        let (hashes, found) = (&self.rows.hash[row], &mut self.rows.found[row]);
        let mut missed = 0;
        while let Some(n) = next_of(&mut left) {
            let hash = KeyHash(hashes[n]);
            found[n] = guard.fetch_near(hash);
            if found[n].is_none() {
                guard.store().prefetch_far(hash);
                missed |= 1 << n;
            }
        }
        self.missed |= missed << (row * ROW);
    }

    /// Looks at both buckets of those requests of a row whose first had nothing: an item may have moved there from the
    /// second meanwhile.
    #[inline(always)]
    pub(super) fn look_up_either(&mut self, row: usize) {
        let (guard, mut left) = (self.guard, bits_of(self.missed, row));
        let (hashes, found) = (&self.rows.hash[row], &mut self.rows.found[row]);
        while let Some(n) = next_of(&mut left) {
            // Nothing here is a miss: at one moment neither bucket had it.
            if let Some(fetched) = guard.fetch_either(KeyHash(hashes[n])) {
                found[n] = Some(fetched);
                self.missed &= !(1 << (row * ROW + n));
            }
        }
    }
}
