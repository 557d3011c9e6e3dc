//! What the device has in its rows, as the host decides it: which key has which way, and for which form of request.
//!
//! In: hashes, each with a form of request. Out: the way that each has, or may have. The updater alone has it, so nothing is locked here
//! or on the device: a way is named at most once in a turn, whose changes are one launch. Ways of a set
//! are given out in turns. Never fails; a set all of whose ways were named in this turn has none to give.

use super::filter::Filter;
use super::form::Form;
use crate::params::WAYS;
use std::sync::Arc;

/// No key.
const EMPTY: u64 = 0;
/// Turns for which a way stays its key's, however many others want it: most of a second under load. Else keys
/// of a set that is too small for them would drive each other out, turn by turn, and be rejected meanwhile.
const TURNS_KEPT: u16 = 1 << 11;

/// What an updater of rows has beside what others have.
pub(super) struct Rows {
    pub(super) filter: Arc<Filter>,
    pub(super) ways: Ways,
    /// Hashes that were queued before the present epoch and have not been taken.
    pub(super) left: usize,
    /// The epoch before the present one, until it is applied.
    pub(super) applying: Option<u64>,
}

impl Rows {
    pub(super) fn new(filter: &Arc<Filter>, n_sets: u32) -> Self {
        let (filter, ways) = (Arc::clone(filter), Ways::new(n_sets));
        Self { filter, ways, left: 0, applying: None }
    }
}

/// Which key has which way.
#[derive(Debug)]
pub(super) struct Ways {
    n_sets: u32,
    /// Of each way the hash of its key, or [`EMPTY`].
    hashes: Box<[u64]>,
    uses: Box<[Use]>,
    /// The number of the present one. It wraps around, which costs a way a turn, or keeps it for a few.
    turn: u16,
}

/// What a way is used for, and since when.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    /// The turn in which it was named last.
    named: u16,
    /// In which it became its key's.
    given: u16,
    /// What its reply is to.
    form: Form,
}

/// A way that a key gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) way: u32,
    /// It was the key's already, for this form.
    pub(super) own: bool,
    /// The hash of the key that loses it.
    pub(super) evicted: Option<u64>,
}

impl Ways {
    pub(super) fn new(n_sets: u32) -> Self {
        let ways = n_sets as usize * WAYS;
        let uses = vec![Use::default(); ways].into();
        Self { n_sets, hashes: vec![EMPTY; ways].into(), uses, turn: 0 }
    }

    /// Ways in all.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.hashes.len()).unwrap_or(0)
    }

    /// A turn begins: all ways may be named again.
    pub(super) fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    fn first(&self, hash: u64) -> usize {
        // The product of two numbers of 32 bits, without the low half, is less than the second.
        let set = ((hash >> 32) * u64::from(self.n_sets)) >> 32;
        usize::try_from(set).unwrap_or(0) * WAYS
    }

    fn ways(&self, hash: u64) -> std::ops::Range<usize> {
        let first = self.first(hash);
        first..first + WAYS
    }

    fn used(&self, way: usize) -> Use {
        self.uses.get(way).copied().unwrap_or_default()
    }

    fn at(&self, hash: u64, form: Form) -> Option<usize> {
        let held =
            |way: &usize| self.hashes.get(*way) == Some(&hash) && self.used(*way).form == form;
        self.ways(hash).find(held).filter(|_| hash != EMPTY)
    }

    /// For which forms the key of this hash has ways.
    pub(super) fn forms(&self, hash: u64) -> impl Iterator<Item = Form> {
        let held = move |way: &usize| hash != EMPTY && self.hashes.get(*way) == Some(&hash);
        self.ways(hash).filter(held).map(|way| self.used(way).form)
    }

    /// Has the memory that says where the keys of these hashes are on its way to the cache.
    pub(super) fn fetch(&self, hashes: &[u64]) {
        // Loads that do not depend on each other, so that they wait together.
        let first = |hash: &u64| self.hashes.get(self.first(*hash)).copied().unwrap_or(EMPTY);
        let last =
            |hash: &u64| self.hashes.get(self.first(*hash) + WAYS - 1).copied().unwrap_or(EMPTY);
        let all = hashes.iter().fold(0, |all, hash| all ^ first(hash) ^ last(hash));
        std::hint::black_box(all);
    }

    /// Whether the key of this hash has a way for this form.
    pub(super) fn has(&self, hash: u64, form: Form) -> bool {
        self.at(hash, form).is_some()
    }

    /// A way of its set for a key that has none: an empty one, or the one that has been its key's for longest.
    fn vacant(&self, hash: u64) -> Option<usize> {
        let age = |way: &usize| self.turn.wrapping_sub(self.used(*way).given);
        let empty = |way: &usize| self.hashes.get(*way) == Some(&EMPTY);
        let mut open = self.ways(hash).filter(|way| self.used(*way).named != self.turn);
        let found = open.clone().find(empty);
        found.or_else(|| open.by_ref().max_by_key(age).filter(|way| age(way) >= TURNS_KEPT))
    }

    /// Whether a key that has no way would get one.
    pub(super) fn has_room(&self, hash: u64) -> bool {
        hash != EMPTY && self.vacant(hash).is_some()
    }

    /// The way of the key of this hash for this form: its own, or one that is vacant. Names it.
    pub(super) fn place(&mut self, hash: u64, form: Form) -> Option<Placed> {
        if hash == EMPTY {
            return None;
        }
        let own = self.at(hash, form);
        let way = own.or_else(|| self.vacant(hash))?;
        let (held, used) = (self.hashes.get_mut(way)?, self.uses.get_mut(way)?);
        let before = std::mem::replace(held, hash);
        used.named = self.turn;
        if own.is_none() {
            (used.given, used.form) = (self.turn, form);
        }
        let evicted = (own.is_none() && before != EMPTY).then_some(before);
        Some(Placed { way: u32::try_from(way).ok()?, own: own.is_some(), evicted })
    }

    /// Takes the key of this hash out, for this form. Names its way.
    pub(super) fn remove(&mut self, hash: u64, form: Form) -> Option<u32> {
        let way = self.at(hash, form)?;
        let (held, used) = (self.hashes.get_mut(way)?, self.uses.get_mut(way)?);
        (*held, used.named) = (EMPTY, self.turn);
        u32::try_from(way).ok()
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.hashes.fill(EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Verb;

    /// A hash of this set of two, and of this number.
    fn hash(set: u64, n: u64) -> u64 {
        set << 63 | n
    }

    #[test]
    fn a_key_keeps_its_way_and_others_take_the_oldest() {
        let mut ways = Ways::new(2);
        for n in 1..=16 {
            ways.begin_turn();
            let placed = ways.place(hash(1, n), Form::GET).unwrap();
            assert_eq!(
                placed,
                Placed { way: 15 + u32::try_from(n).unwrap(), own: false, evicted: None }
            );
        }
        ways.begin_turn();
        assert_eq!(
            ways.place(hash(1, 3), Form::GET),
            Some(Placed { way: 18, own: true, evicted: None })
        );
        assert_eq!(
            (ways.has_room(hash(1, 99)), ways.place(hash(1, 99), Form::GET)),
            (false, None),
            "all young"
        );
        (0..TURNS_KEPT).for_each(|_| ways.begin_turn());
        // What changes now is as old as before.
        assert_eq!(
            ways.place(hash(1, 1), Form::GET),
            Some(Placed { way: 16, own: true, evicted: None })
        );
        ways.begin_turn();
        assert!(ways.has_room(hash(1, 99)));
        let evicted = Some(hash(1, 1));
        assert_eq!(
            ways.place(hash(1, 99), Form::GET),
            Some(Placed { way: 16, own: false, evicted })
        );
        assert!(
            !ways.has(hash(1, 1), Form::GET)
                && ways.has(hash(1, 99), Form::GET)
                && !ways.has(hash(0, 3), Form::GET)
        );
        assert_eq!(ways.remove(hash(1, 2), Form::GET), Some(17));
        assert_eq!(ways.remove(hash(1, 2), Form::GET), None);
        ways.begin_turn();
        assert_eq!(
            ways.place(hash(1, 100), Form::GET),
            Some(Placed { way: 17, own: false, evicted: None })
        );
        ways.clear();
        assert!(!ways.has(hash(1, 100), Form::GET));
    }

    #[test]
    fn a_way_is_named_once_in_a_turn() {
        let mut ways = Ways::new(1);
        ways.begin_turn();
        for n in 1..=16 {
            assert!(ways.place(n, Form::GET).is_some());
        }
        assert_eq!(ways.remove(5, Form::GET), Some(4));
        assert_eq!(ways.place(17, Form::GET), None);
        ways.begin_turn();
        assert_eq!(ways.place(17, Form::GET), Some(Placed { way: 4, own: false, evicted: None }));
        assert_eq!(ways.place(0, Form::GET), None, "that would be no key");
    }

    #[test]
    fn a_key_has_a_way_for_each_form() {
        let [gets, meta] = [Form::of(Verb::GETS), Form::of_meta(b" v")].map(Option::unwrap);
        let mut ways = Ways::new(1);
        ways.begin_turn();
        for (form, way) in [(Form::GET, 0), (gets, 1), (meta, 2)] {
            assert_eq!(ways.place(7, form), Some(Placed { way, own: false, evicted: None }));
        }
        assert_eq!(ways.forms(7).collect::<Vec<_>>(), [Form::GET, gets, meta]);
        assert_eq!(ways.remove(7, gets), Some(1));
        assert!(ways.has(7, Form::GET) && !ways.has(7, gets));
        ways.begin_turn();
        assert_eq!(ways.place(7, Form::GET), Some(Placed { way: 0, own: true, evicted: None }));
        assert_eq!((ways.forms(7).count(), ways.forms(0).count()), (2, 0));
    }
}
