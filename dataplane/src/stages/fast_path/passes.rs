//! Which passes a burst takes: one for the shape of its first request; and, if it has gets of other shapes, up to two
//! others.
//!
//! In: a burst as it came. Out: gets of one key are replies; the others are as they came. A get of another
//! shape leaves a gap in its row, which costs less than to close it while there are few. Once there are more gaps than
//! rows, what stands behind is divided, and goes into passes over some frames, whose rows have none.
//!
//! **Order**: the last pass is over what changes nothing, as was seen before, and the others note what may change something.

use super::Pass;
use super::form::GetForm;
use super::read_sets::SetsRead;
use super::shape::{self, Any, Beginning, Binary, FamilyAndForm, Long, Meta, OverV6, PLAIN, Plain};
use super::totals::{Totals, next_of};
use crate::plain::FastPathMode;
use crate::plain::family::Family;
use crate::plain::vector::{Compiled, Vector};

impl Pass<'_, '_> {
    /// Answers the gets of a burst.
    #[inline(always)]
    pub(super) fn answer<const CSUM_OFFLOAD: bool>(
        mut self,
        sets: &mut SetsRead,
        mode: FastPathMode,
    ) -> Totals {
        if let Some(first) = self.burst.first().and_then(shape::of) {
            self.own_kind = first;
        }
        self.walk_over::<false, CSUM_OFFLOAD>(self.own_kind, (&mut *sets, mode));
        if self.unread | self.to_other != 0 {
            self.answer_rest::<CSUM_OFFLOAD>((sets, mode));
        }
        self.totals
    }

    /// Answers what the first pass has left to others.
    #[cold]
    #[inline(never)]
    fn answer_rest<const CSUM_OFFLOAD: bool>(
        &mut self,
        (sets, mode): (&mut SetsRead, FastPathMode),
    ) {
        let found = self.of_other_shapes(self.unread, mode);
        self.to_other |= found;
        self.unread &= !found;
        if self.unread != 0 {
            self.walk_over::<true, CSUM_OFFLOAD>(self.own_kind, (&mut *sets, mode));
        }
        self.unread = self.to_other;
        if self.unread != 0 {
            self.walk_over::<true, CSUM_OFFLOAD>(self.other_kind, (sets, mode));
        }
    }

    /// One pass, for the shape of these.
    #[inline(always)]
    fn walk_over<const SUBSET: bool, const CSUM_OFFLOAD: bool>(
        &mut self,
        kind: FamilyAndForm,
        (sets, mode): (&mut SetsRead, FastPathMode),
    ) {
        (self.read, self.missed) = (0, 0);
        match kind {
            PLAIN => self.walk::<Plain, SUBSET, CSUM_OFFLOAD>(sets, mode),
            (Family::V4, GetForm::Long) => self.walk::<Long, SUBSET, CSUM_OFFLOAD>(sets, mode),
            (Family::V6, GetForm::Text) => self.walk::<OverV6, SUBSET, CSUM_OFFLOAD>(sets, mode),
            (Family::V4, GetForm::Meta) => self.walk::<Meta, SUBSET, CSUM_OFFLOAD>(sets, mode),
            (Family::V4, GetForm::Binary) => self.walk::<Binary, SUBSET, CSUM_OFFLOAD>(sets, mode),
            _ => self.walk::<Any, SUBSET, CSUM_OFFLOAD>(sets, mode),
        }
    }

    /// Which of these frames are gets of another shape, and nothing else, whatever else is wrong with them.
    pub(super) fn of_other_shapes(&mut self, among: u64, mode: FastPathMode) -> u64 {
        let found;
        // To `OtherShapes::run` below, compiled for this CPU's vectors.
        (found, self.other_kind) = mode.run_on_this_cpu(OtherShapes { pass: self, among });
        found
    }
}

/// The look for gets of other shapes.
struct OtherShapes<'o, 'p, 'g> {
    pass: &'o Pass<'p, 'g>,
    among: u64,
}

impl Compiled for OtherShapes<'_, '_, '_> {
    /// Which frames are ones, and what all that have been met are.
    type Done = (u64, FamilyAndForm);

    #[inline(always)]
    fn run(self, vector: impl Vector) -> Self::Done {
        let Self { pass, mut among } = self;
        let (mut found, mut found_kind) = (0, pass.other_kind);
        let own = Beginning::of(pass.own_kind);
        // What the one before was.
        let (mut kind, mut begins) = (found_kind, Beginning::of(found_kind));
        while let Some(n) = next_of(&mut among) {
            let Some(frame) = pass.burst.get(n) else { break };
            if own.is_of(frame) {
                continue;
            }
            if !begins.is_of(frame) {
                let Some(odd) = shape::of(frame) else { continue };
                (kind, begins) = (odd, Beginning::of(odd));
                if !begins.is_of(frame) {
                    continue;
                }
            }
            if shape::is_get(frame, kind, pass.dialects, vector) {
                found_kind =
                    if pass.to_other | found == 0 || kind == found_kind { kind } else { ANY };
                found |= 1 << n;
            }
        }
        (found, found_kind)
    }
}

/// Gets of several kinds: only the shape for any takes them all, as it takes frames with a tag.
const ANY: FamilyAndForm = (Family::Tagged, GetForm::Text);
