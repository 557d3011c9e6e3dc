//! Pages that change hands, and what was in them.

use super::*;
use gpu::index::Feed;

const PAGE: usize = PAGE_BYTES;

/// With the same hash key each time, as some of what is counted here depends on it.
fn store(memory_bytes: usize) -> Arc<Store> {
    let hash_key = Some([7; 16]);
    let config =
        StoreConfig { memory_bytes, hash_key, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    store.clock().hold();
    store
}

fn names(kind: &str, n: u32) -> Vec<u8> {
    format!("{kind}-{n:08}").into_bytes()
}

/// The class of an item with such a key, as `reassign` counts.
fn class_of(store: &Store, value_len: usize) -> i32 {
    i32::try_from(store.class_for(12, value_len, false).unwrap() + 1).unwrap()
}

fn pages_of(store: &Store, value_len: usize) -> u64 {
    let class = class_of(store, value_len);
    store
        .stats()
        .classes
        .iter()
        .find(|c| i64::from(c.class) == class.into())
        .map_or(0, |c| c.total_pages)
}

/// Housekeeping until no page is on its way. The bound is against a page that never comes.
fn settle(store: &Store) {
    let turns = (0..10_000).take_while(|_| {
        store.housekeep();
        store.stats().moving
    });
    assert!(turns.count() < 9_999, "{:?}", store.stats());
}

/// Every chunk of every class is free, in use or in limbo, and what is in use is an item that is
/// found.
fn books_are_right(store: &Arc<Store>, s: &mut Session, keys: &[Vec<u8>]) {
    let st = store.stats();
    let there = keys.iter().filter(|k| value_of(s, k).is_some()).count();
    assert_eq!(there as u64, st.curr_items, "{st:?}");
    for id in store.slabs.class_ids() {
        let class = store.slabs.lock(id);
        assert_eq!(store.slabs.spare(&class) + class.used + class.in_limbo(), class.chunks());
    }
}

#[test]
fn what_has_room_elsewhere_moves_and_stays_the_same() {
    let store = store(8 * PAGE);
    let mut s = store.session().unwrap();
    // Four pages, the last one hardly used.
    let fill = 3_000;
    for n in 0..fill {
        let (key, value) = (names("k", n), [n.to_le_bytes()[0]; 1900]);
        let what = base::Store::set(&key, n, 1000, &value);
        set(&mut s, &what).unwrap();
    }
    // Chunks for a page's worth in the other pages.
    let gone: Vec<u32> = (0..fill).filter(|n| n % 3 == 0).collect();
    gone.iter().for_each(|n| assert!(delete(&mut s, &names("k", *n))));
    settle(&store);
    let told = |s: &mut Session, n: u32| {
        let g = s.pin();
        let key = names("k", n);
        let item = get(&g, &key)?;
        assert_eq!(item.value(), &[n.to_le_bytes()[0]; 1900][..]);
        Some((item.flags(), item.cas(), item.expiry(), item.accessed(), item.value_sum()))
    };
    let before: Vec<_> = (0..fill).map(|n| told(&mut s, n)).collect();
    let pages = pages_of(&store, 1900);
    assert!(pages >= 3);
    let hint = store.propose(store.hash(&names("k", 1)));
    let feed = Arc::new(Feed::new(10_000));
    store.feed_replicas([Arc::clone(&feed)]);
    assert_eq!(store.reassign(class_of(&store, 1900), 0), Ok(()));
    settle(&store);
    let st = store.stats();
    assert_eq!(pages_of(&store, 1900), pages - 1);
    assert!(st.rescued > 0);
    assert_eq!(feed.len() as u64, st.rescued, "a replica reads each moved item's entry again");
    assert_eq!((st.evictions, st.evicted_by_mover), (0, 0));
    assert_eq!((0..fill).map(|n| told(&mut s, n)).collect::<Vec<_>>(), before);
    assert!(hint.is_some());
    let keys: Vec<_> = (0..fill).map(|n| names("k", n)).collect();
    books_are_right(&store, &mut s, &keys);
}

/// A full class gives up a page: what was read stays, wherever it lay.
#[test]
fn who_was_asked_for_survives_the_page() {
    let store = store(8 * PAGE);
    let mut s = store.session().unwrap();
    scan(&mut s, "k", 0..200_000);
    let keys: Vec<_> = (0..200_000).map(|n| names("k", n)).collect();
    let hot: Vec<_> = keys.iter().filter(|k| value_of(&mut s, k).is_some()).step_by(4).collect();
    // No items count as read but these.
    for id in store.slabs.class_ids() {
        let mut class = store.slabs.lock(id);
        for page in 0..store.slabs.n_pages() {
            for n in 0..store.slabs.size(id).per_page {
                store.slabs.with_item(&mut class, page, n, |_, _, item| item.clear_visited());
            }
        }
    }
    hot.iter().for_each(|k| get(&s.pin(), k).unwrap().mark_visited(store.now()));
    let (before, class) = (store.stats(), class_of(&store, 100));
    for moved in 1..=3 {
        assert_eq!(store.reassign(class, 0), Ok(()));
        settle(&store);
        assert_eq!(store.stats().pages_moved - before.pages_moved, moved);
        let left = hot.iter().filter(|k| get(&s.pin(), k).is_some()).count();
        if moved == 1 {
            assert_eq!(left, hot.len(), "the first page costs no item that was asked for");
        }
        assert!(left * 10 > hot.len() * 9, "{left} of {} after {moved}", hot.len());
    }
    let st = store.stats();
    assert!(st.rescued > before.rescued + 10_000 && st.evicted_by_mover > 10_000, "{st:?}");
    books_are_right(&store, &mut s, &keys);
}

#[test]
fn a_lower_limit_moves_what_fits() {
    let store = store(8 * PAGE);
    let mut s = store.session().unwrap();
    let keys: Vec<_> = (0..70_000).map(|n| names("k", n)).collect();
    scan(&mut s, "k", 0..70_000);
    assert_eq!(store.stats().evictions, 0);
    // Every second one: half of all chunks, in all pages.
    keys.iter().step_by(2).for_each(|k| assert!(delete(&mut s, k)));
    let pages = pages_of(&store, 100);
    store.set_limit_bytes((usize::try_from(pages).unwrap() / 2 + 2) * PAGE).unwrap();
    (0..200).for_each(|_| store.housekeep());
    let st = store.stats();
    assert!(pages_of(&store, 100) <= pages / 2 + 2 && st.rescued > 0, "{st:?}");
    assert_eq!((st.evictions, st.curr_items), (0, 35_000));
    books_are_right(&store, &mut s, &keys);
}

/// A reader of an item in the page keeps the old copy for as long as it is pinned, and delays the page.
#[test]
fn a_reader_holds_the_page_and_not_the_item() {
    let store = store(8 * PAGE);
    let (mut reader, mut s) = (store.session().unwrap(), store.session().unwrap());
    for n in 0..3000 {
        assert_eq!(put(&mut s, &names("k", n), &[7; 1900], 0), Ok(()));
    }
    (0..2900).for_each(|n| assert!(delete(&mut s, &names("k", n))));
    store.housekeep();
    let mut g = reader.pin();
    let key = names("k", 2950);
    let old = get(&g, &key).unwrap();
    // Until the page that it lies in is the one.
    while store.stats().rescued == 0 {
        assert_ne!(store.reassign(class_of(&store, 1900), 0), Err(NotMoved::NoSpare));
        (0..20).for_each(|_| store.housekeep());
    }
    (0..100).for_each(|_| store.housekeep());
    assert!(store.stats().moving, "the page waits for the reader");
    assert!(old.value() == &[7; 1900][..]);
    let new = get(&g, &key).unwrap();
    assert_eq!((new.cas(), new.value().len()), (old.cas(), 1900));
    g.refresh();
    drop(g);
    settle(&store);
    assert!(value_of(&mut s, &key).is_some());
}

/// The pace is what is evicted, not the time: without a request nothing moves, however often
/// housekeeping comes round.
#[test]
fn calm_classes_are_left_alone() {
    let store = store(16 * PAGE);
    let mut s = store.session().unwrap();
    scan(&mut s, "old", 0..100_000);
    let value = [b'v'; 2000];
    (0..10_000).for_each(|n| assert_eq!(put(&mut s, &names("new", n), &value, 0), Ok(())));
    settle(&store);
    let moved = store.stats().pages_moved;
    for _ in 0..100 {
        store.clock().skip_ahead(1);
        (0..10).for_each(|_| store.housekeep());
    }
    assert_eq!(store.stats().pages_moved, moved);
}

/// Lengths of values of an item in each class, or in nearly each.
fn strays() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(50), |len| Some(len * 28 / 25)).take_while(|len| *len < 950_000)
}

/// One item in each class, so that no page is free.
fn one_in_each(s: &mut Session) -> Vec<Vec<u8>> {
    let keys = strays().map(|len| {
        let key = names("stray", u32::try_from(len).unwrap());
        assert_eq!(put(s, &key, &vec![b's'; len], 0), Ok(()));
        key
    });
    keys.collect()
}

/// Asks for each of these keys, and stores those that are not there. Says how many were.
fn ask(store: &Store, s: &mut Session, kind: &str, keys: u32, value_len: usize) -> u32 {
    let value = vec![b'v'; value_len];
    let mut hits = 0;
    for n in 0..keys {
        let key = names(kind, n);
        if get(&s.pin(), &key).is_some() {
            hits += 1;
        } else {
            assert_eq!(put(s, &key, &value, 0), Ok(()));
        }
        if n % 200 == 0 {
            store.housekeep();
        }
    }
    hits
}

#[test]
fn a_busy_class_gets_the_only_pages_of_idle_ones() {
    let store = store(32 * PAGE);
    let mut s = store.session().unwrap();
    one_in_each(&mut s);
    assert_eq!((store.stats().pages_free, pages_of(&store, 2000)), (0, 1));
    // 16 MB, and a page of 2 MB. The class's hand is ahead after half a round of all memory: it takes
    // one of 16 that are evicted. That is 32 passes.
    let passes = (0..60).take_while(|_| ask(&store, &mut s, "hot", 8_000, 2_000) < 8_000).count();
    let st = store.stats();
    assert!(passes < 60 && pages_of(&store, 2000) >= 8, "{passes} passes: {st:?}");
    // Who has what it needs takes no more.
    let moved = st.pages_moved;
    for _ in 0..20 {
        assert_eq!(ask(&store, &mut s, "hot", 8_000, 2_000), 8_000);
        (0..20).for_each(|_| store.housekeep());
    }
    assert!(store.stats().pages_moved <= moved + 1, "{:?}", store.stats());
}

/// Neither takes the other's pages back and forth, nor do those that have none.
#[test]
fn two_busy_classes_among_idle_ones_settle() {
    let store = store(32 * PAGE);
    let mut s = store.session().unwrap();
    one_in_each(&mut s);
    // 32 MB each.
    let both = |s: &mut Session| {
        ask(&store, s, "some", 16_000, 2_000);
        ask(&store, s, "more", 4_000, 8_000);
    };
    (0..100).for_each(|_| both(&mut s));
    let (some, more) = (pages_of(&store, 2000), pages_of(&store, 8000));
    let moved = store.stats().pages_moved;
    (0..100).for_each(|_| both(&mut s));
    assert_eq!((pages_of(&store, 2000), pages_of(&store, 8000)), (some, more));
    assert!(some >= 8 && more >= 8, "{some} and {more}: {:?}", store.stats());
    assert!(store.stats().pages_moved <= moved + 2, "{:?}", store.stats());
}

/// Where nothing is evicted, an only page stays where it is, and so does what lies in it.
#[test]
fn without_eviction_no_only_page_is_taken() {
    let pages = Pages::Small;
    let config = StoreConfig { memory_bytes: 32 * PAGE, evict: false, pages, ..Default::default() };
    let store = Store::new(config).unwrap();
    let mut s = store.session().unwrap();
    let keys = strays().filter_map(|len| {
        let key = names("stray", u32::try_from(len).unwrap());
        put(&mut s, &key, &vec![b's'; len], 0).ok().map(|()| key)
    });
    let keys: Vec<_> = keys.collect();
    assert!(keys.len() >= 32);
    for n in 0..20_000 {
        let _ = put(&mut s, &names("hot", n), &[b'v'; 2000], 0);
        if n % 100 == 0 {
            store.housekeep();
        }
    }
    store.set_limit_bytes(4 * PAGE).unwrap();
    (0..100).for_each(|_| store.housekeep());
    assert!(keys.iter().all(|key| value_of(&mut s, key).is_some()));
    assert_eq!((store.stats().pages_moved, store.stats().evictions), (0, 0));
}

#[test]
fn a_lower_limit_takes_only_pages_too() {
    let store = store(32 * PAGE);
    let mut s = store.session().unwrap();
    let keys = one_in_each(&mut s);
    let used = || store.stats().classes.iter().map(|c| c.total_pages).sum::<u64>();
    assert_eq!(used(), 32);
    store.set_limit_bytes(4 * PAGE).unwrap();
    (0..400).for_each(|_| store.housekeep());
    assert_eq!(used(), 4);
    books_are_right(&store, &mut s, &keys);
    // And no further.
    (0..400).for_each(|_| store.housekeep());
    assert_eq!(used(), 4);
    let more = (0..3_000).all(|n| put(&mut s, &names("more", n), &[b'm'; 2000], 0).is_ok());
    (0..400).for_each(|_| store.housekeep());
    assert!(more && used() <= 4, "{:?}", store.stats());
}

/// Items that are asked for while the hand of all memory would go round once keep their class's only page.
#[test]
fn only_pages_that_are_asked_for_stay() {
    let store = store(16 * PAGE);
    let mut s = store.session().unwrap();
    let (small, large) = (|n| names("small", n), |n| names("large", n));
    (0..8_000).for_each(|n| assert_eq!(put(&mut s, &small(n), &[b's'; 100], 0), Ok(())));
    (0..100).for_each(|n| assert_eq!(put(&mut s, &large(n), &[b'l'; 15_000], 0), Ok(())));
    assert_eq!((pages_of(&store, 100), pages_of(&store, 15_000)), (1, 1));
    // 8 MB of 64 in each round.
    for round in 0..80 {
        ask(&store, &mut s, ["a", "b", "c", "d", "e", "f", "g", "h"][round % 8], 4_000, 2_000);
        let there = (0..8_000).filter(|n| value_of(&mut s, &small(*n)).is_some()).count();
        let larger = (0..100).filter(|n| value_of(&mut s, &large(*n)).is_some()).count();
        assert_eq!((there, larger), (8_000, 100), "{:?}", store.stats());
    }
    assert!(pages_of(&store, 2_000) >= 12);
}

/// The few items of classes that use little of their pages find room in chunks of others, and the pages go to who needs
/// them.
#[test]
fn a_few_items_of_each_size_stay_beside_a_busy_class() {
    let store = store(32 * PAGE);
    let mut s = store.session().unwrap();
    let keys = one_in_each(&mut s);
    let pass = |s: &mut Session| {
        let hot = ask(&store, s, "hot", 8_000, 2_000);
        let there = keys.iter().zip(strays()).filter(|(key, len)| {
            let there = get(&s.pin(), key).is_some();
            assert!(there || put(s, key, &vec![b's'; *len], 0).is_ok());
            there
        });
        (there.count(), hot)
    };
    let all = (keys.len(), 8_000);
    assert!((0..20).all(|_| pass(&mut s).0 > 0));
    let moved = store.stats().pages_moved;
    assert!((0..40).all(|_| pass(&mut s) == all), "{:?}", store.stats());
    assert!(store.stats().pages_moved <= moved + 2, "{:?}", store.stats());
}

/// The items of classes with one page each find room in larger chunks: no page takes any with it.
#[test]
fn what_lies_in_an_only_page_moves_to_larger_chunks() {
    let store = store(16 * PAGE);
    let mut s = store.session().unwrap();
    let lens = [100, 170, 240, 360, 500];
    let mut keys = Vec::new();
    for len in lens {
        for n in 0..500 {
            let key = names("k", u32::try_from(len).unwrap() * 1_000 + n);
            assert_eq!(put(&mut s, &key, &vec![b'v'; len], 0), Ok(()));
            keys.push(key);
        }
    }
    assert!(lens.iter().all(|len| pages_of(&store, *len) == 1));
    store.set_limit_bytes(2 * PAGE).unwrap();
    (0..200).for_each(|_| store.housekeep());
    let st = store.stats();
    assert!(st.pages_moved > 0 && st.rescued >= 1_000, "{st:?}");
    assert_eq!((st.evictions, st.curr_items), (0, 2_500));
    books_are_right(&store, &mut s, &keys);
}

/// Pages that are used by a quarter go to who needs them, and what lies in them stays.
#[test]
fn pages_that_are_hardly_used_are_put_together_for_a_busy_class() {
    let store = store(16 * PAGE);
    let mut s = store.session().unwrap();
    let lens: Vec<usize> =
        strays().filter(|len| (50..1_900).contains(len)).step_by(2).take(15).collect();
    let mut keys = Vec::new();
    for len in &lens {
        for n in 0..u32::try_from(PAGE / 4 / (len + 60)).unwrap() {
            keys.push((names(&format!("k{len}"), n), *len));
        }
    }
    let some = |s: &mut Session| {
        let there = keys.iter().filter(|(key, len)| {
            let there = get(&s.pin(), key).is_some();
            assert!(there || put(s, key, &vec![b'v'; *len], 0).is_ok());
            there
        });
        there.count()
    };
    some(&mut s);
    (0..40).for_each(|_| {
        ask(&store, &mut s, "hot", 4_000, 4_000);
        some(&mut s);
    });
    assert!(pages_of(&store, 4_000) >= 6, "{:?}", store.stats());
    assert_eq!(some(&mut s), keys.len());
}

/// What is missed keeps its pages when further sizes turn up that no client asks for twice: they do not go back and forth.
#[test]
fn pages_that_are_asked_for_are_not_taken_for_sizes_that_are_not() {
    let store = store(16 * PAGE);
    let mut s = store.session().unwrap();
    // More than fits, so that it is known what its pages are worth.
    (0..8).for_each(|_| _ = ask(&store, &mut s, "old", 16_000, 1_900));
    let before = pages_of(&store, 1_900);
    for (n, len) in [2_300, 2_900, 3_600, 4_500, 5_600, 7_000, 8_800].into_iter().enumerate() {
        for round in 0..4 {
            ask(&store, &mut s, &format!("new{n}{round}"), 1_000, len);
            ask(&store, &mut s, "old", 12_000, 1_900);
        }
    }
    let hits = ask(&store, &mut s, "old", 12_000, 1_900);
    assert!(
        store.stats().pages_moved < 12 && pages_of(&store, 1_900) + 2 >= before,
        "{before} before: {:?}",
        store.stats()
    );
    assert!(hits > 11_000, "{hits}");
}

/// A client that waits for a page of another class costs no item that was just stored, read or not.
#[test]
fn who_was_just_stored_survives_the_page_that_is_taken_at_once() {
    let store = store(12 * PAGE);
    let mut s = store.session().unwrap();
    let hot = names("hot", 0);
    for n in 0..24_000 {
        assert_eq!(put(&mut s, &names("old", n), &[b'v'; 1_000], 0), Ok(()));
    }
    assert_eq!(put(&mut s, &hot, &[b'h'; 1_000], 0), Ok(()));
    let place = || store.propose(store.hash(&hot)).unwrap();
    let mut places = vec![place()];
    for (n, len) in (0..).zip([300, 60, 30_000, 6_000, 90_000]) {
        assert_eq!(put(&mut s, &names("new", n), &vec![b'n'; len], 0), Ok(()));
        places.push(place());
    }
    assert!(store.stats().evicted_by_mover > 1_000, "{:?}", store.stats());
    places.dedup();
    assert!(places.len() > 1 && value_of(&mut s, &hot).is_some(), "{places:?}");
}

/// Nor does it cost much more than the page, where a reader holds up the epoch and nothing that is evicted comes back.
#[test]
fn a_page_that_is_taken_at_once_costs_little_more_beside_a_reader() {
    let store = store(12 * PAGE);
    let mut s = store.session().unwrap();
    let mut n = 0;
    while store.stats().evictions == 0 {
        assert_eq!(put(&mut s, &names("old", n), &[b'v'; 1_000], 0), Ok(()));
        n += 1;
    }
    (0..n).step_by(2).for_each(|n| _ = get(&s.pin(), &names("old", n)));
    let mut reader = store.session().unwrap();
    let reading = reader.pin();
    // The first of these have pages of the reserve.
    let refused = [300, 60, 30_000, 6_000, 90_000, 400_000]
        .into_iter()
        .find(|len| put(&mut s, &names("new", 0), &vec![b'n'; *len], 0).is_err());
    let (of_page, evicted) = (PAGE as u64 / 1_000, store.stats().evicted_by_mover);
    assert!(refused.is_some() && evicted > of_page / 2, "{refused:?}, {evicted}");
    assert!(evicted < of_page + 500, "{evicted} for a page of {of_page}");
    drop(reading);
    assert_eq!(put(&mut s, &names("new", 0), &vec![b'n'; refused.unwrap()], 0), Ok(()));
}
