//! Who leaves a full place: LRU, CLOCK or SIEVE.
//!
//! In: the items of which one must leave, and where the hand stood. Out: which one. The items are
//! the few that share a set; [`super::chain`] does the same for all of a cache at once.

use crate::report::named;
use clap::ValueEnum;

named! {
    /// Who leaves.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
    pub enum Policy {
        /// Whoever was asked for longest ago.
        Lru = "lru",
        /// A hand goes round the places; who was asked for since it last came by is spared once.
        Clock = "clock",
        /// A hand goes from the oldest to the newest; who was asked for since it last came by is spared
        /// once. New items come behind the newest, not where the hand is (Zhang et al., NSDI 2024).
        Sieve = "sieve",
    }
}

/// A place for an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Whose it is.
    pub key: Option<u64>,
    /// When it was last read.
    pub touched: u64,
    /// When it came.
    pub born: u64,
    /// Asked for since the hand last came by.
    pub visited: bool,
}

impl Place {
    /// Notes a read.
    pub fn touch(&mut self, now: u64) {
        self.touched = now;
        self.visited = true;
    }
}

impl Policy {
    /// Which of the places `among` must be made free; all of them are taken. `hand` is where it
    /// goes on: a number in `among` for CLOCK, a time of birth for SIEVE.
    pub fn victim(self, places: &mut [Place], among: &[usize], hand: &mut u64) -> Option<usize> {
        let at = |places: &[Place], i: &usize| places.get(*i).copied().unwrap_or_default();
        match self {
            Self::Lru => among.iter().copied().min_by_key(|i| at(places, i).touched),
            Self::Clock => {
                let start = usize::try_from(*hand).unwrap_or(0) % among.len().max(1);
                let (n, victim) =
                    spare(places, among.iter().copied().enumerate().cycle().skip(start), among)?;
                *hand = n as u64 + 1;
                Some(victim)
            }
            Self::Sieve => {
                let mut by_age = among.to_vec();
                by_age.sort_unstable_by_key(|i| at(places, i).born);
                let start = by_age.partition_point(|i| at(places, i).born < *hand);
                let round = by_age.iter().copied().enumerate().cycle().skip(start);
                let (n, victim) = spare(places, round, among)?;
                // Behind the newest there is nothing: it begins anew, with the oldest.
                *hand = by_age.get(n + 1).map_or(0, |next| at(places, next).born);
                Some(victim)
            }
        }
    }
}

/// The first of a round that is not spared. In a second round none is.
fn spare(
    places: &mut [Place],
    round: impl Iterator<Item = (usize, usize)>,
    among: &[usize],
) -> Option<(usize, usize)> {
    round
        .take(2 * among.len())
        .find(|(_, i)| places.get_mut(*i).is_some_and(|place| !std::mem::take(&mut place.visited)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places with these (touched, born, visited).
    fn places(all: &[(u64, u64, bool)]) -> Vec<Place> {
        let place = |&(touched, born, visited)| Place { key: Some(1), touched, born, visited };
        all.iter().map(place).collect()
    }

    #[test]
    fn lru_takes_the_one_asked_for_longest_ago() {
        let mut p = places(&[(5, 1, true), (3, 2, true), (9, 0, false)]);
        assert_eq!(Policy::Lru.victim(&mut p, &[0, 1, 2], &mut 0), Some(1));
        assert_eq!(Policy::Lru.victim(&mut p, &[2, 0], &mut 0), Some(0));
    }

    #[test]
    fn clock_spares_once_and_goes_on_where_it_stopped() {
        let mut p = places(&[(0, 0, true), (0, 1, false), (0, 2, false)]);
        let mut hand = 0;
        assert_eq!(Policy::Clock.victim(&mut p, &[0, 1, 2], &mut hand), Some(1));
        assert!(!p[0].visited);
        assert_eq!(Policy::Clock.victim(&mut p, &[0, 1, 2], &mut hand), Some(2));
        assert_eq!(Policy::Clock.victim(&mut p, &[0, 1, 2], &mut hand), Some(0));
        p.iter_mut().for_each(|p| p.visited = true);
        assert_eq!(Policy::Clock.victim(&mut p, &[0, 1, 2], &mut hand), Some(1));
    }

    #[test]
    fn sieve_goes_from_old_to_new_whatever_the_places() {
        // By age: 2, 0, 1.
        let mut p = places(&[(0, 10, false), (0, 20, false), (0, 5, true)]);
        let mut hand = 0;
        assert_eq!(Policy::Sieve.victim(&mut p, &[0, 1, 2], &mut hand), Some(0));
        // A newer one took its place: the hand goes on with 20, then 30, then round to 5.
        p[0].born = 30;
        assert_eq!(Policy::Sieve.victim(&mut p, &[0, 1, 2], &mut hand), Some(1));
        p[1].born = 40;
        p[0].visited = true;
        p[1].visited = true;
        assert_eq!(Policy::Sieve.victim(&mut p, &[0, 1, 2], &mut hand), Some(2));
    }
}
