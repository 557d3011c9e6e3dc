use super::*;
use scopeguard::defer;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A bijection on 64 bits (splitmix64): distinct numbers, distinct hashes.
fn hash(n: u64) -> KeyHash {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    KeyHash(z ^ (z >> 31))
}

/// Puts `new` in the place of the location for which `is_key` is true, if that is as expected.
fn update(
    ix: &Index,
    n: u64,
    new: Option<Location>,
    expect: Expect,
    is_key: impl Fn(Location) -> bool,
) -> Result<Option<Location>, UpdateError> {
    let entry = ix.entry(hash(n), new.is_some(), expect, |loc| is_key(loc).then_some(()))?;
    let old = entry.present().map(|(loc, ())| loc);
    entry.set(new);
    Ok(old)
}

fn put(ix: &Index, n: u32) -> Result<Option<Location>, UpdateError> {
    let loc = Location(n);
    update(ix, n.into(), Some(loc), Expect::Any, |l| l == loc)
}

fn has(ix: &Index, n: u32) -> bool {
    ix.find(hash(u64::from(n)), |l| (l.0 == n).then_some(())).is_some()
}

#[test]
fn tags_match_lane_by_lane() {
    let ix = Index::new(1, Pages::Small, &[]).unwrap();
    let b = ix.bucket(0);
    assert_eq!(b.matches(0), 0xff);
    for (slot, tag) in [(0, 1u16), (1, 0x8000), (2, 0xffff), (3, 0x7fff), (5, 1), (7, 0x8000)] {
        b.set_tag(slot, tag);
    }
    assert_eq!(b.matches(1), 0b0010_0001);
    assert_eq!(b.matches(0x8000), 0b1000_0010);
    assert_eq!(b.matches(0xffff), 0b0000_0100);
    assert_eq!(b.matches(0x7fff), 0b0000_1000);
    assert_eq!(b.matches(0), 0b0101_0000);
    assert_eq!(b.tag(2), 0xffff);
}

#[test]
fn the_other_bucket_of_the_other_is_the_first() {
    for items in [1, 100, 12_345, 1 << 15] {
        let ix = Index::new(items, Pages::Small, &[]).unwrap();
        for n in 0..5_000 {
            let (tag, b) = ix.place(hash(n));
            let o = ix.other(b, tag);
            assert!(o < ix.n_buckets as usize);
            assert_eq!(ix.other(o, tag), b);
        }
    }
}

#[test]
fn a_tag_is_found_in_the_first_bucket_or_else_in_either() {
    let ix = Index::new(20_000, Pages::Small, &[]).unwrap();
    (0..20_000).for_each(|n| assert_eq!(put(&ix, n), Ok(None)));
    let (mut near, mut far, mut nowhere) = (0, 0, 0);
    for n in 0..40_000 {
        let (hash, (tag, b)) = (hash(n), ix.place(hash(n)));
        let pair = [b, ix.other(b, tag)].map(|b| ix.bucket(b));
        let [first, second] = pair.map(|bucket| bucket.first(tag));
        assert_eq!(ix.near_now(hash), first);
        assert_eq!(ix.either_now(hash), first.or(second));
        near += u32::from(first.is_some());
        far += u32::from(first.is_none() && second.is_some());
        nowhere += u32::from(first.is_none() && second.is_none());
    }
    assert!(near > 10_000 && far > 2_000 && nowhere > 19_000, "{near} {far} {nowhere}");
}

#[test]
fn fills_to_its_design_load_without_a_failure() {
    for items in [500usize, 32_768, 200_000] {
        let ix = Index::new(items, Pages::Small, &[]).unwrap();
        let n = u32::try_from(items).unwrap();
        assert!(items * 100 <= ix.slots() * LOAD_PERCENT && ix.slots() < items * 108 / 100);
        for i in 0..n {
            assert_eq!(put(&ix, i), Ok(None), "entry {i} of {items}");
        }
        assert!((0..n).all(|i| has(&ix, i)));
        assert!((n..2 * n).all(|i| !has(&ix, i)));
        let used: usize = (0..ix.n_buckets as usize)
            .map(|b| SLOTS - ix.bucket(b).matches(0).count_ones() as usize)
            .sum();
        assert_eq!(used, items, "nothing twice");
    }
}

#[test]
fn full_is_an_error_and_loses_nothing() {
    let ix = Index::new(2_000, Pages::Small, &[]).unwrap();
    let failed = (0..4_000).find(|&i| put(&ix, i) == Err(UpdateError::Full)).unwrap();
    assert!(failed as usize * 100 >= ix.slots() * 97, "full at {failed} of {}", ix.slots());
    assert!((0..failed).all(|i| has(&ix, i)));
    let gone = update(&ix, 7, None, Expect::Any, |l| l.0 == 7);
    assert_eq!(gone, Ok(Some(Location(7))));
    assert!(!has(&ix, 7));
}

#[test]
fn expectations_are_held() {
    let ix = Index::new(10, Pages::Small, &[]).unwrap();
    let (a, b) = (Location(1), Location(2));
    let up = |new, expect| update(&ix, 0, new, expect, |_| true);
    assert_eq!(up(Some(a), Expect::Exactly(Some(b))), Err(UpdateError::Mismatch(None)));
    assert_eq!(up(Some(a), Expect::Exactly(None)), Ok(None));
    assert_eq!(up(Some(b), Expect::Exactly(None)), Err(UpdateError::Mismatch(Some(a))));
    assert_eq!(up(Some(b), Expect::Exactly(Some(a))), Ok(Some(a)));
    assert_eq!(up(None, Expect::Exactly(Some(a))), Err(UpdateError::Mismatch(Some(b))));
    assert_eq!(up(None, Expect::Exactly(Some(b))), Ok(Some(b)));
    assert_eq!(up(None, Expect::Any), Ok(None));
}

/// A look-up that meets a bucket in the middle of a change waits for its end.
#[test]
fn a_miss_in_a_locked_bucket_does_not_count() {
    let ix = Index::new(100, Pages::Small, &[]).unwrap();
    put(&ix, 1).unwrap();
    let (tag, b) = ix.place(hash(1));
    let locked = ix.lock(b, ix.other(b, tag));
    let home = ix.bucket(b);
    let slot = slots_in(home.matches(tag)).next().unwrap();
    home.set_tag(slot, 0);
    let asked = AtomicBool::new(false);
    std::thread::scope(|s| {
        let reader = s.spawn(|| {
            asked.store(true, Ordering::Relaxed);
            has(&ix, 1)
        });
        let began = Instant::now();
        while !asked.load(Ordering::Relaxed) {
            assert!(began.elapsed() < Duration::from_secs(60), "the reader does not start");
            std::thread::yield_now();
        }
        (0..1_000).for_each(|_| std::thread::yield_now());
        home.set_tag(slot, tag);
        drop(locked);
        assert!(reader.join().unwrap());
    });
}

/// An entry that moves to the bucket that was searched first, between the two searches.
#[test]
fn a_miss_over_a_move_does_not_count() {
    let ix = Index::new(100, Pages::Small, &[]).unwrap();
    let (tag, first) = ix.place(hash(1));
    let (first, second) = (ix.bucket(first), ix.bucket(ix.other(first, tag)));
    let enter = |b: &Bucket, slot, loc, tag| {
        b.set_location(slot, Location(loc));
        b.set_tag(slot, tag);
    };
    enter(first, 5, 77, tag);
    enter(second, 0, 1, tag);
    let mut moved = false;
    let found = ix.find(hash(1), |loc| {
        if loc.0 == 77 && !moved {
            moved = true;
            [first, second].iter().for_each(|b| b.lock());
            enter(first, 2, 1, tag);
            second.set_tag(0, 0);
            [first, second].iter().for_each(|b| b.unlock());
        }
        (loc.0 == 1).then_some(())
    });
    assert!(moved && found.is_some());
}

/// Keys that stay put are never missed while others are inserted (and so displace them).
#[test]
fn displacement_hides_nobody() {
    let ix = Index::new(4_000, Pages::Small, &[]).unwrap();
    let stop = AtomicBool::new(false);
    for i in 0..2_000 {
        put(&ix, i).unwrap();
    }
    std::thread::scope(|s| {
        defer! { stop.store(true, Ordering::Relaxed) }
        s.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) || rounds == 0 {
                assert!((0..2_000).all(|i| has(&ix, i)));
                rounds += 1;
            }
        });
        for _ in 0..20 {
            for i in 2_000..4_000 {
                put(&ix, i).unwrap();
            }
            for i in 2_000..4_000 {
                let gone = update(&ix, i.into(), None, Expect::Any, |l| l.0 == i);
                assert_eq!(gone, Ok(Some(Location(i))));
            }
        }
    });
}

/// Several writers, each with keys of its own, in a table so full that every insert moves
/// others: in the end each key is where its writer left it, once.
#[test]
fn writers_do_not_lose_each_others_keys() {
    const WRITERS: u32 = 4;
    const KEYS: u32 = 1_000;
    const GENERATIONS: u32 = 16;
    let ix = Index::new(KEYS as usize * 94 / 100, Pages::Small, &[]).unwrap();
    let key_of = |l: Location| l.0 / GENERATIONS;
    let left = std::thread::scope(|s| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let ix = &ix;
                s.spawn(move || {
                    let mut there = vec![None; (KEYS / WRITERS) as usize];
                    for round in 0..60_000u32 {
                        let random = hash(u64::from(round) << 8 | u64::from(w)).0;
                        let n = u32::try_from(random % u64::from(KEYS / WRITERS)).unwrap();
                        let key = n * WRITERS + w;
                        let old = there[n as usize];
                        let new = (random >> 32 & 31 != 0)
                            .then(|| Location(key * GENERATIONS + round % GENERATIONS));
                        let expect = Expect::Exactly(old);
                        let is_key = |l| key_of(l) == key;
                        let did = update(ix, key.into(), new, expect, is_key);
                        match did {
                            Ok(was) => {
                                assert_eq!(was, old, "key {key} in round {round}");
                                there[n as usize] = new;
                            }
                            Err(e) => assert_eq!(e, UpdateError::Full, "key {key}"),
                        }
                        let find = |l| (key_of(l) == key).then_some(l);
                        assert_eq!(ix.find(hash(key.into()), find), there[n as usize]);
                    }
                    there
                })
            })
            .collect();
        writers.into_iter().flat_map(|w| w.join().unwrap()).flatten().collect::<Vec<_>>()
    });
    let buckets = (0..ix.n_buckets as usize).map(|b| ix.bucket(b));
    let mut found: Vec<u32> = buckets
        .flat_map(|b| (0..SLOTS).filter(|s| b.tag(*s) != 0).map(|s| b.location(s).0))
        .collect();
    let mut left: Vec<u32> = left.iter().map(|l| l.0).collect();
    found.sort_unstable();
    left.sort_unstable();
    assert_eq!(found, left);
}
