//! Step 1: which frames of a row are requests for the fast path, and the hashes of their keys.
//!
//! In: frames as they came. Out: their lanes, and their index buckets on the way to the cache. Frames
//! are only looked at.

use super::form::Form;
use super::lane::{self, Lane};
use super::read_sets::SetsRead;
use super::totals::{Totals, next_of};
use super::{Pass, left_of};
use crate::plain::Manner;
use crate::plain::family::Family;
use crate::plain::vector::{KEY_BLOCK, ROW, Vector};
use store::KeyHash;

impl Pass<'_, '_> {
    /// Reads the requests of a row. `false`: none of them is for the fast path, nor is any behind them; or the lane for any form
    /// takes the burst from this row on.
    #[inline(always)]
    pub(super) fn read_row<L: Lane>(
        &mut self,
        row: usize,
        (sets, manner): (&mut SetsRead, Manner),
        vector: impl Vector,
    ) -> bool {
        let mut keys = [[0; KEY_BLOCK]; ROW];
        let (mut lens, mut headers) = ([0; ROW], [0; ROW]);
        let (mut read, mut left) = (0, 0);
        let part = self.part.of(row);
        if L::IS_ANY && part == 0 {
            return true;
        }
        let frames = self.burst.get(row * ROW..).unwrap_or_default();
        for n in 0..ROW {
            let Some(frame) = frames.get(n) else { break };
            if L::IS_ANY && part >> n & 1 == 0 {
                continue;
            }
            if !self.region.owns(frame) {
                left |= 1u64 << n;
                continue;
            }
            // No closure in between: where one is not inlined, vector instructions are calls.
            let asked = L::read(frame, self.requests, self.dialects, vector);
            let Some((asked, key)) = asked else {
                left |= 1u64 << n;
                continue;
            };
            keys[n] = *key;
            (lens[n], headers[n]) = (asked.key_len, asked.header);
            read |= 1 << n;
        }
        if left != 0 {
            let left = left << (row * ROW);
            // What stands before its part was noted by the pass that has left it.
            if !L::IS_ANY || row >= self.part.from {
                let others = if L::IS_ANY { 0 } else { self.others::<L>(left & !sets.frames()) };
                if others.count_ones() > 1 {
                    self.others.from = row;
                    return false;
                }
                if read == 0 && !self.goes_on(row, left & !others, (&mut *sets, manner)) {
                    return false;
                }
                self.others.frames |= others;
                self.note_left(left & !others, (&mut *sets, manner));
            }
            if read == 0 {
                return true;
            }
        }
        let store = self.guard.store();
        let hashes = vector.hash(store, &keys, lens);
        for (n, hash) in hashes.into_iter().enumerate() {
            if self.order.holds_back(hash) {
                read &= !(1 << n);
            }
            store.prefetch_near(KeyHash(hash));
        }
        self.lanes.hash[row] = hashes;
        self.lanes.key_len[row] = lens;
        self.lanes.header[row] = headers;
        self.lanes.read |= read << (row * ROW);
        true
    }

    /// Which of these frames, which are left, are gets that the lane for any form may answer: they change nothing.
    #[cold]
    #[inline(never)]
    fn others<L: Lane>(&self, mut left: u64) -> u64 {
        let numbers = std::iter::from_fn(|| next_of(&mut left));
        let may_be = |n: &usize| {
            let of = self.burst.get(*n).and_then(|frame| lane::get_of(frame, self.dialects));
            of.is_some_and(|of| !L::IS_PLAIN || of != (Family::V4, Form::Text))
        };
        numbers.filter(may_be).fold(0, |others, n| others | 1 << n)
    }

    /// Whether what stands behind a row that has nothing for this pass is to be looked at: the row has `set`s alone, and
    /// there is more than these. Other traffic is left without a look.
    #[cold]
    #[inline(never)]
    fn goes_on(&mut self, row: usize, left: u64, (sets, manner): (&mut SetsRead, Manner)) -> bool {
        self.read_sets(left, (&mut *sets, manner));
        let behind = left_of(self.burst, &Totals::default()) & u64::MAX << (row * ROW);
        left & !sets.frames() == 0 && behind & !sets.frames() != 0
    }

    /// Notes what frames may change that are left.
    #[cold]
    #[inline(never)]
    fn note_left(&mut self, mut left: u64, (sets, manner): (&mut SetsRead, Manner)) {
        self.read_sets(left, (&mut *sets, manner));
        while let Some(n) = next_of(&mut left) {
            match (sets.hash(n), self.burst.get(n)) {
                (Some(hash), _) => self.order.hold_back(hash),
                (None, Some(frame)) => {
                    let (plain, store) = (self.requests.plain(), self.guard.store());
                    self.order.note(frame.bytes(), plain, self.dialects, store);
                }
                (None, None) => {}
            }
        }
    }

    fn read_sets(&mut self, left: u64, (sets, manner): (&mut SetsRead, Manner)) {
        let frames = (&*self.burst, self.region);
        sets.read(left, manner, frames, self.requests, self.guard.store());
    }
}
