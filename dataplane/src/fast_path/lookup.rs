//! Step 2: where the items of a row are, by their tags.
//!
//! In: hashes whose buckets were prefetched some rows ago. Out: locations, and the items on the way
//! to the cache. A location is only a proposal, as any engine's.

use super::{Pass, ROW, bits_of};
use crate::store::KeyHash;

impl Pass<'_, '_> {
    /// Looks at the first bucket of each request of a row. Most items are there; for the others the
    /// second one is prefetched.
    #[inline(always)]
    pub(super) fn look_up_row(&mut self, row: usize) {
        let (guard, read) = (self.guard, bits_of(self.lanes.read, row));
        let (hashes, found) = (&self.lanes.hash[row], &mut self.lanes.found[row]);
        for n in 0..ROW {
            if read >> n & 1 == 0 {
                continue;
            }
            let hash = KeyHash(hashes[n]);
            match guard.store().propose_near(hash) {
                Some(location) => found[n] = guard.fetch(location),
                None => {
                    guard.store().prefetch_far(hash);
                    self.lanes.far |= 1 << (row * ROW + n);
                }
            }
        }
    }

    /// Looks at the second bucket of those requests of a row whose first had nothing.
    #[inline(always)]
    pub(super) fn look_up_far(&mut self, row: usize) {
        let (guard, far) = (self.guard, bits_of(self.lanes.far, row));
        if far == 0 {
            return;
        }
        let (hashes, found) = (&self.lanes.hash[row], &mut self.lanes.found[row]);
        for n in 0..ROW {
            // Nothing here is a miss: at one moment neither bucket had it.
            if far >> n & 1 == 1
                && let Some(location) = guard.store().propose(KeyHash(hashes[n]))
            {
                found[n] = guard.fetch(location);
                self.lanes.far &= !(1 << (row * ROW + n));
            }
        }
    }
}
