//! Which passes a burst takes: one over the lane of its first request; and, if it has gets for other lanes, up to two
//! others.
//!
//! In: a burst as it came. Out: gets of one key are replies; the others are as they came. A get for another
//! lane leaves a gap in its row, which costs less than to close it while there are few. Once there are more gaps than
//! rows, what stands behind is divided, and goes into passes over some frames, whose rows have none.
//!
//! **Order**: the last pass is over what changes nothing, as was seen before, and the others note what may change something.

use super::Pass;
use super::form::Form;
use super::lane::{self, Any, Beginning, Binary, Kind, Long, Meta, OverV6, PLAIN, Plain};
use super::read_sets::SetsRead;
use super::totals::{Totals, next_of};
use crate::plain::Manner;
use crate::plain::family::Family;
use crate::plain::vector::{Vector, Work};

impl Pass<'_, '_> {
    /// Answers the gets of a burst.
    #[inline(always)]
    pub(super) fn answer<const BY_PORT: bool>(
        mut self,
        sets: &mut SetsRead,
        manner: Manner,
    ) -> Totals {
        if let Some(first) = self.burst.first().and_then(lane::of) {
            self.own = first;
        }
        self.walk_over::<false, BY_PORT>(self.own, (&mut *sets, manner));
        if self.left | self.others != 0 {
            self.answer_rest::<BY_PORT>((sets, manner));
        }
        self.totals
    }

    /// Answers what the first pass has left to others.
    #[cold]
    #[inline(never)]
    fn answer_rest<const BY_PORT: bool>(&mut self, (sets, manner): (&mut SetsRead, Manner)) {
        let others = self.others_of(self.left, manner);
        self.others |= others;
        self.left &= !others;
        if self.left != 0 {
            self.walk_over::<true, BY_PORT>(self.own, (&mut *sets, manner));
        }
        self.left = self.others;
        if self.left != 0 {
            self.walk_over::<true, BY_PORT>(self.other, (sets, manner));
        }
    }

    /// One pass, over the lane for these.
    #[inline(always)]
    fn walk_over<const SOME: bool, const BY_PORT: bool>(
        &mut self,
        kind: Kind,
        (sets, manner): (&mut SetsRead, Manner),
    ) {
        (self.read, self.far) = (0, 0);
        match kind {
            PLAIN => self.walk::<Plain, SOME, BY_PORT>(sets, manner),
            (Family::V4, Form::Long) => self.walk::<Long, SOME, BY_PORT>(sets, manner),
            (Family::V6, Form::Text) => self.walk::<OverV6, SOME, BY_PORT>(sets, manner),
            (Family::V4, Form::Meta) => self.walk::<Meta, SOME, BY_PORT>(sets, manner),
            (Family::V4, Form::Binary) => self.walk::<Binary, SOME, BY_PORT>(sets, manner),
            _ => self.walk::<Any, SOME, BY_PORT>(sets, manner),
        }
    }

    /// Which of these frames are gets for another lane, and nothing else, whatever else is wrong with them.
    pub(super) fn others_of(&mut self, among: u64, manner: Manner) -> u64 {
        let others;
        (others, self.other) = manner.carry_out(Others { pass: self, among });
        others
    }
}

/// The look for gets of other lanes.
struct Others<'o, 'p, 'g> {
    pass: &'o Pass<'p, 'g>,
    among: u64,
}

impl Work for Others<'_, '_, '_> {
    /// Which frames are ones, and what all that have been met are.
    type Done = (u64, Kind);

    #[inline(always)]
    fn run(self, vector: impl Vector) -> Self::Done {
        let Self { pass, mut among } = self;
        let (mut others, mut other) = (0, pass.other);
        let own = Beginning::of(pass.own);
        // What the one before was.
        let (mut kind, mut begins) = (other, Beginning::of(other));
        while let Some(n) = next_of(&mut among) {
            let Some(frame) = pass.burst.get(n) else { break };
            if own.is_of(frame) {
                continue;
            }
            if !begins.is_of(frame) {
                let Some(odd) = lane::of(frame) else { continue };
                (kind, begins) = (odd, Beginning::of(odd));
                if !begins.is_of(frame) {
                    continue;
                }
            }
            if lane::is_get(frame, kind, pass.dialects, vector) {
                other = if pass.others | others == 0 || kind == other { kind } else { ANY };
                others |= 1 << n;
            }
        }
        (others, other)
    }
}

/// Gets of several kinds: only the lane for any takes them all, as it takes frames with a tag.
const ANY: Kind = (Family::Tagged, Form::Text);
