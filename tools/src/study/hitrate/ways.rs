//! Tables in which a key has few places: set-associative, two-choice, cuckoo, hopscotch.
//!
//! In: a key. Out: whether it was there; if not, it is now, and where none of its places was free
//! another has left. Items and their places alone are modelled, no bytes. Nothing fails.

use super::cache::{Cache, Layout};
use super::policy::{Place, Policy};
use std::collections::{HashMap, VecDeque};

/// Most buckets that a cuckoo insertion looks through for a way to a free place.
const CUCKOO_BUCKETS_MAX: usize = 256;
/// Farthest that a hopscotch insertion looks for a free place, in neighbourhoods.
const HOPSCOTCH_REACH: usize = 32;

/// A table.
#[derive(Debug)]
pub struct Ways {
    layout: Layout,
    policy: Policy,
    /// Places in a set; of a neighbourhood.
    ways: usize,
    places: Vec<Place>,
    /// Places that are taken.
    held: usize,
    /// Where the hand of each set stopped; of each neighbourhood.
    hands: Vec<u64>,
    now: u64,
    seed: u64,
}

impl Ways {
    /// An empty table of about `items` places: whole sets of `ways`. [`Layout::Chaining`] is
    /// [`super::chain`]'s, and here like [`Layout::SetAssociative`].
    pub fn new(layout: Layout, policy: Policy, items: usize, ways: usize, seed: u64) -> Self {
        let ways = ways.max(1);
        let (places, hands) = if layout == Layout::Hopscotch {
            (items.max(ways), items.max(ways))
        } else {
            let sets = (items / ways).max(1);
            (sets * ways, sets)
        };
        let places = vec![Place::default(); places];
        Self { layout, policy, ways, places, held: 0, hands: vec![0; hands], now: 0, seed }
    }

    /// The first and the second set of a key; the same, where there is but one. For hopscotch, its
    /// home.
    fn sets(&self, key: u64) -> (usize, usize) {
        let set = |salt: u64| {
            let hash = crate::workload::mix(key ^ crate::workload::mix(self.seed ^ salt));
            // Less than the number of sets.
            usize::try_from((u128::from(hash) * self.hands.len() as u128) >> 64).unwrap_or(0)
        };
        match self.layout {
            Layout::TwoChoice | Layout::Cuckoo => (set(1), set(2)),
            Layout::SetAssociative | Layout::Hopscotch | Layout::Chaining => (set(1), set(1)),
        }
    }

    /// The places of a set.
    fn set(&self, set: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, n) = match self.layout {
            Layout::Hopscotch => (set, self.places.len()),
            _ => (set * self.ways, usize::MAX),
        };
        (first..first + self.ways).map(move |place| place % n)
    }

    /// All places that a key may have.
    fn candidates(&self, key: u64) -> Vec<usize> {
        let (first, second) = self.sets(key);
        let other = (first != second).then_some(second);
        self.set(first).chain(other.into_iter().flat_map(|set| self.set(set))).collect()
    }

    fn key(&self, place: usize) -> Option<u64> {
        self.places.get(place).and_then(|place| place.key)
    }

    fn free(&self, set: usize) -> Option<usize> {
        self.set(set).find(|place| self.key(*place).is_none())
    }

    /// A free place for a key, found or made.
    fn room(&mut self, key: u64) -> Option<usize> {
        if self.held == self.places.len() {
            return None;
        }
        let (first, second) = self.sets(key);
        match self.layout {
            Layout::SetAssociative | Layout::Chaining => self.free(first),
            Layout::TwoChoice => {
                let taken = |set| self.set(set).filter(|p| self.key(*p).is_some()).count();
                let (a, b) =
                    if taken(second) < taken(first) { (second, first) } else { (first, second) };
                self.free(a).or_else(|| self.free(b))
            }
            Layout::Cuckoo => self.kick(first, second),
            Layout::Hopscotch => self.hop(first),
        }
    }

    /// The shortest way from either bucket to one with a free place, each item on it moved one step
    /// along; the place that this leaves free.
    fn kick(&mut self, first: usize, second: usize) -> Option<usize> {
        // How a bucket was reached: the place whose item would move there.
        let mut from: HashMap<usize, Option<usize>> =
            HashMap::from([(first, None), (second, None)]);
        let mut queue = VecDeque::from([first, second]);
        let mut end = None;
        while let Some(bucket) = queue.pop_front() {
            if let Some(free) = self.free(bucket) {
                end = Some((bucket, free));
                break;
            }
            for place in self.set(bucket) {
                let Some(key) = self.key(place) else { continue };
                let (a, b) = self.sets(key);
                let other = if a == bucket { b } else { a };
                if from.len() < CUCKOO_BUCKETS_MAX && !from.contains_key(&other) {
                    from.insert(other, Some(place));
                    queue.push_back(other);
                }
            }
        }
        let (mut bucket, mut free) = end?;
        while let Some(Some(place)) = from.get(&bucket).copied() {
            self.places.swap(place, free);
            (bucket, free) = (place / self.ways, place);
        }
        Some(free)
    }

    /// A free place in the neighbourhood of `home`, or the nearest one beyond, moved here by
    /// exchanging it with items that may go farther (Herlihy et al., DISC 2008).
    fn hop(&mut self, home: usize) -> Option<usize> {
        let n = self.places.len();
        let reach = (HOPSCOTCH_REACH * self.ways).min(n);
        let mut free = (0..reach).find(|step| self.key((home + step) % n).is_none())?;
        while free >= self.ways {
            // The farthest back whose item may stand at the free place.
            let from = (free + 1 - self.ways..free).find(|step| {
                let key = self.key((home + step) % n);
                key.is_some_and(|key| (home + free + n - self.sets(key).0) % n < self.ways)
            })?;
            self.places.swap((home + from) % n, (home + free) % n);
            free = from;
        }
        Some((home + free) % n)
    }
}

impl Cache for Ways {
    fn ask(&mut self, key: u64) -> bool {
        self.now += 1;
        let candidates = self.candidates(key);
        if let Some(&at) = candidates.iter().find(|place| self.key(**place) == Some(key)) {
            if let Some(place) = self.places.get_mut(at) {
                place.touch(self.now);
            }
            return true;
        }
        let room = self.room(key).or_else(|| {
            let set = self.sets(key).0;
            let hand = self.hands.get_mut(set)?;
            self.policy.victim(&mut self.places, &candidates, hand)
        });
        if let Some(place) = room.and_then(|room| self.places.get_mut(room)) {
            self.held += usize::from(place.key.is_none());
            *place = Place { key: Some(key), touched: self.now, born: self.now, visited: false };
        }
        false
    }

    fn len(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests;
