//! Who leaves when memory is short, and who stays.

use super::*;

#[test]
fn eviction_keeps_what_is_asked_for() {
    let store = store(4 << 20);
    let mut s = store.session().unwrap();
    let key = |n: u32| format!("key-{n:08}").into_bytes();
    for n in 0..40_000u32 {
        assert_eq!(put(&mut s, &key(n), &[b'v'; 100], 0), Ok(()), "{n}");
        for hot in 0..10 {
            assert!(hot > n || value_of(&mut s, &key(hot)).is_some(), "{hot} at {n}");
        }
    }
    let st = store.stats();
    assert_eq!(st.curr_items + st.evictions, 40_000);
    assert_eq!((st.total_items, st.evicted_active), (40_000, 0));
    // One page in use, one in reserve; at most a sixteenth is kept free ahead.
    let chunks = st.classes[0].total_chunks;
    assert_eq!((st.pages_free, st.classes.len()), (1, 1));
    assert!(st.curr_items >= chunks - 130 && st.evictions > 20_000, "{st:?}");
    let there = (0..40_000).filter(|n| value_of(&mut s, &key(*n)).is_some()).count();
    assert_eq!(there as u64, st.curr_items);
}

/// Sets `keys` of a kind, 100 bytes each, and looks at none.
#[test]
fn what_was_asked_for_survives_a_scan() {
    let store = store(4 << 20);
    let mut s = store.session().unwrap();
    scan(&mut s, "hot", 0..4_000);
    assert_eq!(there(&mut s, "hot", 0..4_000), 4_000);
    // Four times what fits; the hand would have come by twice for each.
    scan(&mut s, "new", 0..40_000);
    let hot = there(&mut s, "hot", 0..4_000);
    assert!(hot > 3_000, "{hot}");
    // The newest are there all the same.
    assert!(there(&mut s, "new", 39_000..40_000) > 950);
}

#[test]
fn who_comes_back_soon_stays() {
    let store = store(4 << 20);
    let mut s = store.session().unwrap();
    scan(&mut s, "old", 0..20_000);
    scan(&mut s, "back", 0..100);
    scan(&mut s, "new", 0..8_000);
    // The hand takes one in sixteen instead of the oldest newcomer.
    assert!(there(&mut s, "back", 0..100) < 20);
    scan(&mut s, "back", 0..100);
    scan(&mut s, "newer", 0..8_000);
    let back = there(&mut s, "back", 0..100);
    assert!(back > 60, "{back}: a few were forgotten");
    assert!(there(&mut s, "newer", 0..100) < 20, "strangers are not kept");
}

#[test]
fn a_new_value_of_what_is_asked_for_need_not_prove_itself() {
    let store = store(4 << 20);
    let mut s = store.session().unwrap();
    scan(&mut s, "old", 0..20_000);
    for _ in 0..2 {
        scan(&mut s, "asked", 0..100);
        there(&mut s, "asked", 0..100);
    }
    scan(&mut s, "asked", 0..100);
    scan(&mut s, "new", 0..8_000);
    assert!(there(&mut s, "asked", 0..100) > 90);
}

#[test]
fn nothing_is_evicted_while_there_are_pages() {
    let store = store(16 << 20);
    let mut s = store.session().unwrap();
    let mut n = 0;
    while store.stats().evictions == 0 {
        for _ in 0..16 {
            assert_eq!(put(&mut s, format!("key-{n:08}").as_bytes(), &[b'v'; 2000], 0), Ok(()));
            n += 1;
        }
    }
    let st = store.stats();
    assert_eq!(st.pages_free, 1);
    let c = &st.classes[0];
    assert!(c.used_chunks + 80 > c.total_chunks && c.total_pages == 7, "{st:?}");
}

fn that_evicts_nothing(memory_bytes: usize) -> Arc<Store> {
    let pages = Pages::Small;
    Store::new(StoreConfig { memory_bytes, evict: false, pages, ..StoreConfig::default() }).unwrap()
}

#[test]
fn without_eviction_a_full_store_refuses() {
    let store = that_evicts_nothing(4 << 20);
    let mut s = store.session().unwrap();
    let key = |n: u32| format!("key-{n:08}").into_bytes();
    let full = (0..).find(|n| put(&mut s, &key(*n), &[1; 1000], 0) != Ok(())).unwrap();
    assert!(full > 1000);
    assert_eq!(put(&mut s, &key(0), &[1; 1000], 0), Err(NotStored::OutOfMemory));
    assert_eq!(value_of(&mut s, &key(0)), None, "a failed set forgets");
    assert_eq!(put(&mut s, &key(0), &[2; 1000], 0), Ok(()), "in the memory of the old");
    assert!((0..full).all(|n| value_of(&mut s, &key(n)).is_some()));
    assert!(delete(&mut s, &key(5)));
    assert_eq!(put(&mut s, &key(full), &[3; 1000], 0), Ok(()));
    let st = store.stats();
    assert_eq!((st.evictions, st.out_of_memory), (0, 2));
}

/// As memcached, which changes these where they stand: counters go on, and what is stale can be said to be.
#[test]
fn without_eviction_changes_go_on_in_a_full_store() {
    const THREADS: usize = 4;
    let store = that_evicts_nothing(8 << 20);
    let mut s = store.session().unwrap();
    let counter = |n: usize| format!("counter-{n:08}").into_bytes();
    (0..THREADS).for_each(|n| assert_eq!(put(&mut s, &counter(n), b"10", 0), Ok(())));
    while put(&mut s, format!("filling-{:08}", store.stats().curr_items).as_bytes(), b"10", 0)
        .is_ok()
    {}
    assert!(store.stats().curr_items > 50_000);
    std::thread::scope(|scope| {
        for n in 0..THREADS {
            let mut s = store.session().unwrap();
            scope.spawn(move || {
                for round in 1..=5000 {
                    let key = counter(n);
                    let what = plus_one(&key);
                    let done = verbs::arith(&mut s, None, &what).map(|done| done.number);
                    assert_eq!(done, Ok(10 + round), "{n}");
                    let stale = super::stale(None, Some(300));
                    assert!(verbs::invalidate(&mut s, None, &counter(n), &stale).is_ok());
                }
            });
        }
    });
    // No other item may have it.
    assert_eq!(put(&mut s, b"one-more-00000000", b"10", 0), Err(NotStored::OutOfMemory));
    assert_eq!(store.stats().evictions, 0);
}

#[test]
fn without_eviction_what_is_dead_makes_room_though_no_sweeper_runs() {
    for flushed in [true, false] {
        let store = that_evicts_nothing(4 << 20);
        store.set_sweeper(false);
        let mut s = store.session().unwrap();
        let key = |n: u32| format!("key-{n:08}").into_bytes();
        let full = (0..).find(|n| put(&mut s, &key(*n), &[1; 1000], 100) != Ok(())).unwrap();
        if flushed {
            store.flush(0);
        } else {
            store.clock().skip_ahead(100);
        }
        for n in full..2 * full {
            assert_eq!(put(&mut s, &key(n), &[2; 1000], 0), Ok(()), "{n}, {flushed}");
        }
        assert_eq!(put(&mut s, b"one more", &[2; 1000], 0), Err(NotStored::OutOfMemory));
    }
}

#[test]
fn without_eviction_no_session_keeps_what_it_replaced() {
    let store = that_evicts_nothing(4 << 20);
    let [mut a, mut b] = [(); 2].map(|()| store.session().unwrap());
    let key = |n: u32| format!("key-{n:08}").into_bytes();
    let full = (0..).find(|n| put(&mut a, &key(*n), &[1; 1000], 0) != Ok(())).unwrap();
    (0..5).for_each(|n| assert!(delete(&mut a, &key(n))));
    store.housekeep();
    let set = |s: &mut Session, n| {
        let key = key(n);
        verbs::set(s, None, None, &base::Store::set(&key, 0, 0, &[2; 1000])).is_ok()
    };
    assert!((10..15).all(|n| set(&mut a, n)));
    assert!((20..full).all(|n| set(&mut b, n)));
}

#[test]
fn no_class_starves() {
    for megabytes in [4, 8, 64] {
        let store = store(megabytes << 20);
        let mut s = store.session().unwrap();
        for n in 0..(megabytes << 20) / 100 {
            assert_eq!(put(&mut s, format!("key-{n:08}").as_bytes(), &[b'v'; 60], 0), Ok(()));
        }
        let mut replaced = 0;
        // One large value after the other, each of a class that has no page yet.
        for bytes in [500_000, 300_000, 200_000, 120_000, 70_000, 40_000, 20_000] {
            replaced += u64::from(value_of(&mut s, b"large").is_some());
            assert_eq!(put(&mut s, b"large", &vec![b'x'; bytes], 0), Ok(()), "{bytes}");
            assert_eq!(value_of(&mut s, b"large").unwrap().len(), bytes);
        }
        (0..5).for_each(|_| store.housekeep());
        let st = store.stats();
        assert!(megabytes < 64 || st.pages_moved > 0);
        // With fewer pages than classes, no class's only page is taken for a reserve.
        assert!(megabytes < 64 || st.pages_free > 0, "the reserve is filled again");
        // A large value may also have been evicted for the next one.
        assert!((0..=replaced).contains(&(st.total_items - st.curr_items - st.evictions)));
    }
}

/// Fills the store with items of 1,000 bytes, and says how many are there.
fn fill(store: &Store, s: &mut Session) -> u64 {
    let full = (0..).take_while(|n| {
        assert_eq!(put(s, format!("fill-{n:08}").as_bytes(), &[b'v'; 1000], 0), Ok(()));
        store.stats().evictions == 0
    });
    assert!(full.count() > 10_000);
    (0..20).for_each(|_| store.housekeep());
    store.stats().curr_items
}

#[test]
fn one_item_of_each_further_size_costs_few_others() {
    let sizes = [100, 200, 300, 500, 2000, 3000, 5000, 8000, 12_000, 20_000, 50_000, 100_000];
    for megabytes in [16, 64] {
        let store = store(megabytes << 20);
        let mut s = store.session().unwrap();
        let before = fill(&store, &mut s);
        for len in sizes {
            let key = format!("further-{len}").into_bytes();
            assert_eq!(put(&mut s, &key, &vec![b'f'; len], 0), Ok(()));
            (0..20).for_each(|_| store.housekeep());
        }
        for len in sizes {
            let there = value_of(&mut s, format!("further-{len}").as_bytes());
            assert!(there.is_some_and(|value| value == vec![b'f'; len]), "{len}");
        }
        let st = store.stats();
        // Three pages of 1,820, for those that are up to 8,000, 32,000 and 100,000 bytes.
        assert!(st.pages_moved <= 3 && before - st.curr_items < 5_500, "{before}: {st:?}");
    }
}

/// The last page goes to the fourth size, and none is taken for a reserve from those that have a few items.
#[test]
fn a_store_with_hardly_anything_in_it_keeps_that() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    let lens = [100, 1_000, 10_000, 100_000];
    let keys: Vec<_> = lens.iter().map(|len| format!("key-{len}").into_bytes()).collect();
    for (key, len) in keys.iter().zip(lens) {
        assert_eq!(put(&mut s, key, &vec![b'v'; len], 0), Ok(()));
        (0..20).for_each(|_| store.housekeep());
    }
    let st = store.stats();
    assert_eq!((st.pages_free, st.evictions, st.pages_moved), (0, 0, 0), "{st:?}");
    assert!(keys.iter().all(|key| value_of(&mut s, key).is_some()));
}

/// As soon as chunks of others were as much as a page is.
#[test]
fn a_size_that_stays_gets_a_page() {
    let store = store(16 << 20);
    let mut s = store.session().unwrap();
    fill(&store, &mut s);
    let pages = || {
        let st = store.stats();
        st.classes.iter().find(|c| c.chunk_size == 320).map_or(0, |c| c.total_pages)
    };
    for n in 0..2_000 {
        // Of 1,152 bytes each.
        assert_eq!(pages() > 0, n > (2_usize << 20).div_ceil(1152), "{n}");
        assert_eq!(put(&mut s, format!("new-{n:08}").as_bytes(), &[b'n'; 250], 0), Ok(()));
    }
    assert_eq!(store.stats().out_of_memory, 0);
}

#[test]
fn pages_follow_the_load() {
    let store = store(32 << 20);
    let mut s = store.session().unwrap();
    for n in 0..60_000 {
        assert_eq!(put(&mut s, format!("old-{n:08}").as_bytes(), &[b'v'; 450], 0), Ok(()));
    }
    let pages = |chunk: u64| {
        let st = store.stats();
        st.classes.iter().find(|c| c.chunk_size >= chunk).map_or(0, |c| c.total_pages)
    };
    assert_eq!(pages(500), 15);
    for second in 0..60 {
        for n in 0..4_000 {
            assert_eq!(
                put(&mut s, format!("new-{second}-{n:08}").as_bytes(), &[b'v'; 2000], 0),
                Ok(())
            );
        }
        store.clock().skip_ahead(1);
        (0..4).for_each(|_| store.housekeep());
    }
    // How many exactly is a matter of which keys are watched (`evicted_then_stored.rs`).
    assert!((1..=4).contains(&pages(500)), "the old class keeps a little: {}", pages(500));
    assert_eq!(pages(500) + pages(2000), 15);
}
