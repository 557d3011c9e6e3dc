//! Which class is to give a page, and which to get it.
//!
//! A class's hand goes round as fast as the class needs room. If all of item memory were one class,
//! one hand would go round over all of it; here each class's hand is compared with that one. A
//! class whose hand has come less far keeps items that are not read for longer than others can, and is to
//! give a page, if what it evicted last was missed less (`evicted_then_stored.rs`), page for page. A class
//! whose hand is ahead gets it. To give a page costs the giver some of its hand's way (`drain.rs`),
//! and that brings it back in step.
//!
//! In: how far each hand has come, and who was missed. Out: classes. What is evicted sets the
//! pace, not time. Never fails.

use std::mem;

/// A class as it is now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) pages: u32,
    pub(super) chunks: u32,
    /// Few of these are in use, or no more than there is room for in larger chunks; and pages are few.
    pub(super) little_used: bool,
    /// It has no page, and is due one.
    pub(super) due: bool,
    /// Items stored so far.
    pub(super) stored: u64,
    /// Chunks that the hand has judged so far.
    pub(super) steps: u64,
    /// Evictions so far, those for the mover left out.
    pub(super) evicted: u64,
    /// The share of what it evicted that was stored again soon.
    pub(super) missed: f64,
}

/// How a class stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Standing {
    steps: u64,
    evicted: u64,
    /// Items that were stored, when it was last asked whether it keeps a page.
    stored: u64,
    pub(super) pages: u32,
    /// Items that will be missed with one page less, or would not be with one more.
    pub(super) worth: f64,
    /// Rounds that the hand is ahead of the common one; negative when it is behind.
    ahead: f64,
    /// It evicted since the last look.
    pub(super) busy: bool,
    /// It can do without its only page, and nothing was stored in it in the last turn.
    pub(super) sparse: bool,
    due: bool,
    /// Items that were stored when the last turn ended, and by now.
    stored_by_then: u64,
    stored_now: u64,
}

impl Standing {
    /// How much of its hand's way a page costs: the hand goes over the page at least.
    fn cost(&self) -> f64 {
        1.0 / f64::from(self.pages)
    }

    /// How far ahead its hand will be when it has given a page.
    fn ahead_after(&self) -> f64 {
        self.ahead + self.cost()
    }

    /// Whether its hand is behind by so many pages at least.
    pub(super) fn is_behind(&self, pages: f64) -> bool {
        self.ahead + pages * self.cost() <= 0.0
    }
}

/// Rounds that a hand can be ahead or behind. What is further off is long ago.
const AHEAD_MAX: f64 = 1.0;

/// How many pages a giver's hand must be behind: half a page, as if rounded.
pub(super) const OUT_OF_STEP: f64 = 0.5;

/// The same when any class may be the giver.
pub(super) const ANYBODY: f64 = f64::NEG_INFINITY;

/// All classes.
#[derive(Debug)]
pub(super) struct Balance(Box<[Standing]>);

impl Balance {
    pub(super) fn new(n_classes: usize) -> Self {
        Self(vec![Standing::default(); n_classes].into())
    }

    /// Takes note of how far each hand has come.
    pub(super) fn look(&mut self, seen: impl Iterator<Item = Seen>) {
        let (mut way, mut all) = (0.0, 0.0);
        for (class, seen) in self.0.iter_mut().zip(seen) {
            // Counts can be reset, and then be less than they were.
            let steps = seen.steps.saturating_sub(class.steps);
            class.busy = seen.evicted > class.evicted;
            (class.due, class.stored_now) = (seen.due, seen.stored);
            let rests = class.stored_by_then == seen.stored;
            class.sparse = rests && seen.pages == 1 && seen.little_used;
            (class.steps, class.evicted, class.pages) = (seen.steps, seen.evicted, seen.pages);
            if seen.pages == 0 {
                (class.ahead, class.worth) = (0.0, 0.0);
                continue;
            }
            let (pages, chunks) = (f64::from(seen.pages), f64::from(seen.chunks));
            class.worth = seen.missed * chunks / pages;
            let rounds = u32::try_from(steps).map_or(f64::MAX, f64::from) / chunks;
            let rounds = rounds.min(2.0 * AHEAD_MAX);
            class.ahead += rounds;
            way += rounds * pages;
            all += pages;
        }
        if all > 0.0 {
            for class in self.0.iter_mut().filter(|class| class.pages > 0) {
                class.ahead = (class.ahead - way / all).clamp(-AHEAD_MAX, AHEAD_MAX);
            }
        }
    }

    /// The class that needs a page most, if any does, and what the page is worth to it.
    pub(super) fn needy(&self) -> Option<(usize, f64)> {
        let busy = self.0.iter().enumerate().filter(|(_, c)| c.busy && c.ahead > 0.0);
        busy.max_by(|(_, a), (_, b)| a.ahead.total_cmp(&b.ahead)).map(|(n, c)| (n, c.worth))
    }

    /// A turn of housekeeping ends.
    pub(super) fn end_turn(&mut self) {
        self.0.iter_mut().for_each(|class| class.stored_by_then = class.stored_now);
    }

    /// Whether a class has no page and is due one.
    pub(super) fn is_any_due(&self) -> bool {
        self.0.iter().any(|class| class.due)
    }

    /// Whether the class may keep a page: its only one, or one that is worth more than so much to it.
    pub(super) fn may_keep(&self, n: usize, dear: f64) -> bool {
        self.0.get(n).is_some_and(|c| !c.sparse && (c.pages == 1 || c.worth > dear))
    }

    /// Whether items were stored in the class since it was asked so last, or `asked` says that
    /// any was asked for: `stored` is how many were stored so far. Then its hand has gone over a page.
    pub(super) fn keeps_page(&mut self, n: usize, stored: u64, asked: bool) -> bool {
        let Some(class) = self.0.get_mut(n) else { return false };
        let keeps = mem::replace(&mut class.stored, stored) != stored || asked;
        if keeps {
            class.ahead = (class.ahead + class.cost()).min(AHEAD_MAX);
        }
        keeps
    }

    /// Among classes that may give a page, whose hand would be furthest behind after that: one that
    /// is now behind by so many pages at least.
    pub(super) fn giver(
        &self,
        behind: f64,
        may: impl Fn(usize, &Standing) -> bool,
    ) -> Option<usize> {
        self.0
            .iter()
            .enumerate()
            .filter(|(n, c)| c.pages > 0 && may(*n, c))
            .filter(|(_, c)| c.is_behind(behind))
            .min_by(|(_, a), (_, b)| a.ahead_after().total_cmp(&b.ahead_after()))
            .map(|(n, _)| n)
    }

    /// Another class than this one, whose page is worth least: for a client that waits. An only page that is used
    /// is the last to go: what it is worth shows when its class evicts, and it may never have.
    pub(super) fn cheapest(&self, except: usize) -> Option<usize> {
        let only = |c: &Standing| c.pages == 1 && !c.sparse;
        let worth = |c: &Standing| if c.sparse { 0.0 } else { c.worth };
        let others = self.0.iter().enumerate().filter(|(n, c)| c.pages > 0 && *n != except);
        others
            .min_by(|(_, a), (_, b)| {
                let worth = worth(a).total_cmp(&worth(b));
                let ahead = a.ahead_after().total_cmp(&b.ahead_after());
                only(a).cmp(&only(b)).then(worth).then(ahead)
            })
            .map(|(n, _)| n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Seen = Seen {
        pages: 10,
        chunks: 1000,
        little_used: false,
        due: false,
        stored: 0,
        steps: 0,
        evicted: 0,
        missed: 0.0,
    };

    /// A class whose hand has made `steps`, in order to evict.
    fn busy(steps: u64) -> Seen {
        Seen { steps, evicted: steps, ..CALM }
    }

    fn any(balance: &Balance, behind: f64) -> Option<usize> {
        balance.giver(behind, |_, _| true)
    }

    #[test]
    fn whose_hand_stands_still_gives_to_whose_goes_round() {
        let mut b = Balance::new(4);
        let nobody = Seen { pages: 0, chunks: 0, ..CALM };
        b.look([CALM, busy(200), CALM, nobody].into_iter());
        assert_eq!(b.needy(), Some((1, 0.0)));
        // A fifth of a round of one class in three: behind by a fifteenth, and a page is a tenth.
        assert_eq!(any(&b, 0.5), Some(0));
        assert_eq!(any(&b, 0.7), None);
        assert_eq!(b.giver(0.5, |n, _| n != 0), Some(2));
        assert_eq!(b.giver(ANYBODY, |n, _| n == 1), Some(1), "wanted whoever gives it");
        assert_eq!(b.giver(ANYBODY, |n, _| n == 3), None, "who has none gives none");
        // The first one gives, which costs its hand some of its way: now it is the other's turn.
        let gave = Seen { pages: 9, chunks: 900, steps: 150, ..CALM };
        b.look([gave, busy(200), CALM, nobody].into_iter());
        assert_eq!((any(&b, 0.5), b.needy()), (Some(2), None));
    }

    #[test]
    fn hands_in_step_give_nothing_however_far_they_go() {
        let mut b = Balance::new(2);
        for steps in (0..100_000).step_by(500) {
            b.look([busy(steps), busy(steps)].into_iter());
            assert_eq!((any(&b, 0.5), b.needy()), (None, None), "at {steps}");
        }
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let mut b = Balance::new(2);
        b.look([CALM, busy(u64::MAX)].into_iter());
        // Two rounds of the other way make up for anything.
        let mut back = CALM;
        for steps in (0..=4_000).step_by(500) {
            back = busy(steps);
            b.look([back, busy(u64::MAX)].into_iter());
        }
        assert_eq!(any(&b, 0.5), Some(1));
        b.look([back, busy(0)].into_iter());
        assert_eq!(any(&b, 0.5), Some(1), "reset counts are no way backwards");
    }

    #[test]
    fn a_page_is_worth_what_is_missed_on_it() {
        let mut b = Balance::new(2);
        let missed = |missed| Seen { missed, ..CALM };
        b.look([missed(0.5), missed(0.25)].into_iter());
        assert_eq!(b.giver(ANYBODY, |_, class| class.worth < 50.0), Some(1));
        assert_eq!(b.giver(ANYBODY, |_, class| class.worth < 25.0), None);
    }

    #[test]
    fn who_must_have_a_page_takes_the_cheapest() {
        let mut b = Balance::new(4);
        let missed = |missed| Seen { missed, ..CALM };
        let behind = busy(100);
        let nobody = Seen { pages: 0, chunks: 0, ..CALM };
        b.look([missed(0.5), Seen { missed: 0.25, ..behind }, missed(0.1), nobody].into_iter());
        assert_eq!((any(&b, ANYBODY), b.cheapest(3)), (Some(0), Some(2)));
        assert_eq!(b.cheapest(2), Some(1));
        // With as much to lose, it is whose hand is furthest behind.
        b.look([missed(0.5), Seen { missed: 0.5, ..behind }, missed(0.5), nobody].into_iter());
        assert_eq!(b.cheapest(2), Some(0));
        // An only page goes last, whatever is known of it, unless it is hardly used.
        let only = Seen { pages: 1, chunks: 100, ..CALM };
        b.look([missed(0.5), only, nobody, nobody].into_iter());
        assert_eq!(b.cheapest(3), Some(0));
        b.look([missed(0.5), Seen { little_used: true, ..only }, nobody, nobody].into_iter());
        assert_eq!(b.cheapest(3), Some(1));
        b.look([only, nobody, nobody, nobody].into_iter());
        assert_eq!((b.cheapest(3), b.cheapest(0)), (Some(0), None));
    }

    #[test]
    fn who_may_keep_a_page() {
        let mut b = Balance::new(4);
        let only = Seen { pages: 1, chunks: 100, ..CALM };
        let sparse = Seen { little_used: true, ..only };
        b.look([Seen { missed: 0.5, ..CALM }, CALM, only, sparse].into_iter());
        assert!(b.may_keep(0, 49.0) && !b.may_keep(0, 51.0), "worth 50");
        assert!(!b.may_keep(1, 0.0) && b.may_keep(2, 1e9) && !b.may_keep(3, 0.0));
        // It keeps a page as long as it is used, and not when it is asked again at once.
        assert!(b.keeps_page(0, 1, false) && b.keeps_page(0, 1, true));
        assert!(!b.keeps_page(0, 1, false));
    }
}
