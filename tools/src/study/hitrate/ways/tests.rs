use super::super::chain::Chain;
use super::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const LAYOUTS: [Layout; 4] =
    [Layout::SetAssociative, Layout::TwoChoice, Layout::Cuckoo, Layout::Hopscotch];
const POLICIES: [Policy; 3] = [Policy::Lru, Policy::Clock, Policy::Sieve];

/// Keys whose first set is `set`, and second, if any, `other`.
fn keys_of(table: &Ways, set: usize, other: usize) -> impl Iterator<Item = u64> + '_ {
    (0..).filter(move |key| table.sets(*key) == (set, other))
}

#[test]
fn direct_mapped_keys_of_one_place_push_each_other_out() {
    let mut t = Ways::new(Layout::SetAssociative, Policy::Lru, 4, 1, 1);
    let (a, b) = {
        let mut keys = keys_of(&t, 2, 2);
        (keys.next().unwrap(), keys.next().unwrap())
    };
    let c = keys_of(&t, 3, 3).next().unwrap();
    let asked = [a, a, b, c, a, c, b, b];
    assert_eq!(asked.map(|k| t.ask(k)), [false, true, false, false, false, true, false, true]);
    assert_eq!(t.len(), 2);
}

#[test]
fn a_second_choice_makes_room_where_one_set_is_full() {
    let full = |layout| {
        let mut t = Ways::new(layout, Policy::Lru, 8, 2, 1);
        let second = if layout == Layout::TwoChoice { 1 } else { 0 };
        let keys: Vec<u64> = keys_of(&t, 0, second).take(4).collect();
        keys.iter().for_each(|k| assert!(!t.ask(*k)));
        keys.iter().filter(|k| t.ask(**k)).count()
    };
    // Two places in one set: each key pushes out the one before the last, round and round.
    assert_eq!(full(Layout::SetAssociative), 0);
    assert_eq!(full(Layout::TwoChoice), 4);
}

#[test]
fn two_choices_fill_the_emptier_set_first() {
    let mut t = Ways::new(Layout::TwoChoice, Policy::Lru, 8, 2, 1);
    let keys: Vec<u64> = keys_of(&t, 0, 1).take(2).collect();
    keys.iter().for_each(|k| assert!(!t.ask(*k)));
    assert_eq!((t.key(0), t.key(2)), (Some(keys[0]), Some(keys[1])));
}

#[test]
fn cuckoo_moves_items_to_their_other_bucket() {
    let mut t = Ways::new(Layout::Cuckoo, Policy::Lru, 3, 1, 1);
    let a = keys_of(&t, 0, 1).next().unwrap();
    let b = keys_of(&t, 1, 2).next().unwrap();
    let c = keys_of(&t, 0, 1).nth(1).unwrap();
    assert!(!t.ask(a) && !t.ask(b));
    assert_eq!((t.key(0), t.key(1), t.key(2)), (Some(a), Some(b), None));
    // Both of c's are taken: b moves on to bucket 2.
    assert!(!t.ask(c));
    assert_eq!((t.key(0), t.key(1), t.key(2)), (Some(a), Some(c), Some(b)));
    assert!(t.ask(a) && t.ask(b) && t.ask(c));
    // No way to a free place: the least recent of its two, a, leaves.
    let d = keys_of(&t, 0, 1).nth(2).unwrap();
    assert!(!t.ask(d));
    assert!(t.ask(b) && t.ask(c) && t.ask(d));
}

#[test]
fn hopscotch_brings_a_free_place_near() {
    let mut t = Ways::new(Layout::Hopscotch, Policy::Lru, 8, 2, 1);
    let at = |t: &Ways, home: usize, n: usize| keys_of(t, home, home).nth(n).unwrap();
    let (a, b, c, d) = (at(&t, 0, 0), at(&t, 0, 1), at(&t, 1, 0), at(&t, 1, 1));
    // a at 0, b at 1, c (home 1) at 2.
    assert!(!t.ask(a) && !t.ask(b) && !t.ask(c));
    assert_eq!((t.key(0), t.key(1), t.key(2)), (Some(a), Some(b), Some(c)));
    // d (home 1): 3 is free, but too far; c cannot go there, nor b. b, older than c, leaves.
    assert!(!t.ask(d));
    assert_eq!((t.key(1), t.key(2), t.key(3)), (Some(d), Some(c), None));
    let e = at(&t, 2, 0);
    // e (home 2) finds 3, and g (home 3) finds 4.
    let f = at(&t, 2, 1);
    assert!(!t.ask(e));
    assert_eq!(t.key(3), Some(e));
    let g = at(&t, 3, 0);
    assert!(!t.ask(g));
    assert_eq!(t.key(4), Some(g));
    // f (home 2): 5 is free; g (home 3) may not stand there, nor e: who has been longest leaves.
    assert!(!t.ask(f));
    assert_eq!((t.key(2), t.key(3), t.key(4), t.key(5)), (Some(f), Some(e), Some(g), None));
    // e at 3, g (home 4) at 4, h (home 3): 5 is free, and g may stand there.
    let mut t = Ways::new(Layout::Hopscotch, Policy::Lru, 8, 2, 1);
    let (e, g, h) = (at(&t, 3, 0), at(&t, 4, 0), at(&t, 3, 1));
    assert!(!t.ask(e) && !t.ask(g) && !t.ask(h));
    assert_eq!((t.key(3), t.key(4), t.key(5)), (Some(e), Some(h), Some(g)));
}

/// One set of all places is a cache without conflicts.
#[test]
fn one_set_is_as_good_as_chaining() {
    for policy in POLICIES {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut set = Ways::new(Layout::SetAssociative, policy, 32, 32, 1);
        let mut chain = Chain::new(policy, 32);
        for n in 0..20_000 {
            let key = rng.random_range(0..100u64).min(rng.random_range(0..100));
            assert_eq!(set.ask(key), chain.ask(key), "{policy:?}, request {n}");
        }
    }
}

/// The key read last is there; no key is there twice; a table fills as far as it can.
#[test]
fn tables_hold_together() {
    for layout in LAYOUTS {
        for policy in POLICIES {
            for ways in [1, 4, 16] {
                let mut t = Ways::new(layout, policy, 256, ways, 3);
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(ways as u64);
                for n in 0..3_000 {
                    let key = rng.random_range(0..600u64);
                    t.ask(key);
                    assert!(t.ask(key), "{layout:?} {policy:?} {ways}");
                    if n % 500 == 0 {
                        let mut keys: Vec<u64> = t.places.iter().filter_map(|p| p.key).collect();
                        let all = keys.len();
                        keys.sort_unstable();
                        keys.dedup();
                        assert_eq!(all, t.len());
                        assert_eq!(keys.len(), all, "{layout:?} {policy:?} {ways}");
                        assert!(keys.iter().all(|k| {
                            let places = t.candidates(*k);
                            places.iter().any(|p| t.key(*p) == Some(*k))
                        }));
                    }
                }
                assert!(t.len() > 150, "{layout:?} {policy:?} {ways}: {}", t.len());
            }
        }
    }
}
