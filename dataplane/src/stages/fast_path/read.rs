//! Step 1: which frames of a row are requests for the fast path, and the hashes of their keys.
//!
//! In: frames as they came. Out: what is known of each, and their index buckets on the way to the cache. Frames
//! are only looked at.

use super::read_sets::SetsRead;
use super::shape::{self, Shape};
use super::totals::{Totals, next_of};
use super::{Pass, left_of};
use crate::plain::FastPathMode;
use crate::plain::vector::{KEY_BLOCK, LONG_BLOCK, ROW, Vector};
use store::KeyHash;

impl Pass<'_, '_> {
    /// Reads the requests of a row. Returns the new number of rows to walk, `rows` at most: fewer, where the pass ends with
    /// this row, or before it because it has nothing for the fast path.
    #[inline(always)]
    pub(super) fn read_row<S: Shape, const SUBSET: bool>(
        &mut self,
        (row, mut rows): (usize, usize),
        (sets, mode): (&mut SetsRead, FastPathMode),
        vector: impl Vector,
    ) -> usize {
        let mut keys = [[0; KEY_BLOCK]; ROW];
        let mut long_keys = [&[0; LONG_BLOCK]; ROW];
        let (mut lens, mut ip_sums) = ([0; ROW], [0; ROW]);
        let (mut read, mut left) = (0, 0);
        let first = if SUBSET { 0 } else { row * ROW };
        let frames = self.burst.get(first..).unwrap_or_default();
        for n in 0..ROW {
            let mut at = n;
            if SUBSET {
                let Some(next) = next_of(&mut self.unread) else { break };
                #[expect(clippy::cast_possible_truncation, reason = "below BURST_MAX")]
                let number = next as u8;
                self.rows.number[row][n] = number;
                at = next;
            }
            let Some(frame) = frames.get(at) else { break };
            if !self.region.owns(frame) {
                left |= 1u64 << at;
                continue;
            }
            // No closure in between: where one is not inlined, vector instructions are calls.
            let asked = S::read(frame, self.matcher, self.dialects, vector);
            let Some((asked, key)) = asked else {
                left |= 1u64 << at;
                continue;
            };
            if S::IS_LONG {
                long_keys[n] = shape::long_key::<S>(frame).unwrap_or(&[0; LONG_BLOCK]);
            } else {
                keys[n] = *key;
            }
            (lens[n], ip_sums[n]) = (asked.key_len, asked.ip_sum);
            read |= 1 << n;
        }
        // While the frames are borrowed, which have these keys.
        let long_hashes = match self.guard.store() {
            store if S::IS_LONG => vector.hash_long(store, long_keys, lens),
            _ => [0; ROW],
        };
        if left != 0 {
            if SUBSET {
                self.note_left(left, (&mut *sets, mode));
            } else {
                let has_any = read != 0;
                rows = self.leave::<S>((row, rows), left << first, has_any, (&mut *sets, mode));
            }
            if read == 0 {
                return rows;
            }
        }
        let store = self.guard.store();
        let hashes = if S::IS_LONG { long_hashes } else { vector.hash(store, &keys, lens) };
        for (n, hash) in hashes.into_iter().enumerate() {
            if self.order.may_change(hash) {
                read &= !(1 << n);
            }
            store.prefetch_near(KeyHash(hash));
        }
        self.rows.hash[row] = hashes;
        self.rows.key_len[row] = lens;
        self.rows.ip_sum[row] = ip_sums;
        self.read |= read << (row * ROW);
        rows
    }

    /// Leaves frames of a row; `has_any`: others of it are requests for this pass. Returns the new number of rows to walk,
    /// `rows` at most: up to this row, where what stands behind is left; without it, where it has other traffic alone.
    #[cold]
    #[inline(never)]
    fn leave<S: Shape>(
        &mut self,
        (row, rows): (usize, usize),
        left: u64,
        has_any: bool,
        (sets, mode): (&mut SetsRead, FastPathMode),
    ) -> usize {
        let others = if S::IS_ANY { 0 } else { self.of_other_shapes(left & !sets.frames(), mode) };
        let behind = left_of(self.burst, &Totals::default()) & u64::MAX << (row * ROW) << ROW;
        if !has_any {
            // The rest of the burst is left without a look, unless these are `set`s.
            self.read_sets(left & !others, (&mut *sets, mode));
            let are_sets = left & !others & !sets.frames() == 0;
            if !are_sets || (behind | others) & !sets.frames() == 0 {
                return row;
            }
        }
        self.to_other |= others;
        if left & !others != 0 {
            self.note_left(left & !others, (&mut *sets, mode));
        }
        // Nothing behind could be answered.
        if self.order.may_change_any() {
            return row + 1;
        }
        if self.to_other.count_ones() as usize > row + 1 {
            self.unread = behind;
            return row + 1;
        }
        rows
    }

    /// Notes what frames may change that are left.
    #[cold]
    #[inline(never)]
    fn note_left(&mut self, mut left: u64, (sets, mode): (&mut SetsRead, FastPathMode)) {
        self.read_sets(left, (&mut *sets, mode));
        while let Some(n) = next_of(&mut left) {
            match (sets.hash(n), self.burst.get(n)) {
                (Some(hash), _) => self.order.add(hash),
                (None, Some(frame)) => {
                    let (plain, store) = (self.matcher.plain(), self.guard.store());
                    self.order.note(frame.bytes(), plain, self.dialects, store);
                }
                (None, None) => {}
            }
        }
    }

    fn read_sets(&mut self, left: u64, (sets, mode): (&mut SetsRead, FastPathMode)) {
        let frames = (&*self.burst, self.region);
        sets.read(left, mode, frames, self.matcher, self.guard.store());
    }
}
