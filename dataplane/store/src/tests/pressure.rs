//! Writers for whom memory is short while readers look, and pages that hold nothing any more.

use super::*;
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = PAGE_BYTES;

fn names(kind: &str, n: usize) -> Vec<u8> {
    format!("{kind}-{n:08}").into_bytes()
}

fn append(s: &mut Session, key: &[u8], more: &[u8]) -> Result<u64, NotStored> {
    let what = base::Store { mode: StoreMode::Append, ..base::Store::set(key, 0, 0, more) };
    set(s, &what)
}

fn pages_free(store: &Store) -> u64 {
    store.stats().pages_free
}

/// What a reader holds back is no memory that a class could give: it takes pages as long as there are
/// any.
#[test]
fn a_class_grows_while_a_reader_holds_its_chunks() {
    let store = store(64 * PAGE);
    let (mut reader, mut s) = (store.session().unwrap(), store.session().unwrap());
    let value = vec![b'v'; 300_000];
    assert_eq!(put(&mut s, b"k", &value, 0), Ok(()));
    let g = reader.pin();
    let seen = get(&g, b"k").unwrap();
    for n in 0..100 {
        assert_eq!(put(&mut s, b"k", &value, 0), Ok(()), "set {n}");
        assert!(append(&mut s, b"k", b"w").is_ok(), "append {n}");
        let stale = super::stale(None, Some(300));
        assert!(verbs::invalidate(&mut s, None, b"k", &stale).is_ok(), "invalidate {n}");
    }
    assert!(seen.value() == &value[..]);
    drop(g);
    assert_eq!((store.stats().out_of_memory, store.stats().evictions), (0, 0));
    store.housekeep();
    store.housekeep();
    let class = store.stats().classes.iter().map(|c| c.total_pages).sum::<u64>();
    assert!(class <= 2, "{class} pages for one item");
}

/// A store that is full, and a reader that moves on after a while: writers wait for it.
#[test]
fn a_writer_waits_for_a_reader_that_moves_on() {
    for (n, how) in ["set", "append"].into_iter().enumerate() {
        let store = store(4 * PAGE);
        let (mut reader, mut s) = (store.session().unwrap(), store.session().unwrap());
        let value = vec![b'v'; 900_000];
        (0..20).for_each(|n| assert_eq!(put(&mut s, &names("k", n), &value, 0), Ok(())));
        let key = names("k", 19);
        for (round, held_ms) in [30, 30, 250].into_iter().enumerate() {
            let g = reader.pin();
            assert!(get(&g, &key).is_some());
            // Until nothing is left that is not held.
            let begun = Instant::now();
            thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    (0..12).all(|_| match n {
                        0 => put(&mut s, &key, &value, 0).is_ok(),
                        _ => append(&mut s, &key, b"w").is_ok(),
                    })
                });
                thread::sleep(Duration::from_millis(held_ms));
                drop(g);
                assert!(writer.join().unwrap(), "{how} in round {round}");
            });
            assert!(begun.elapsed() < Duration::from_secs(2));
        }
        assert!(value_of(&mut s, &key).is_some());
        assert_eq!(store.stats().out_of_memory, 0);
    }
}

/// A reader that never moves on: one writer waits for a bounded time, those after it do not.
#[test]
fn nobody_waits_twice_for_a_reader_that_stands_still() {
    let store = store(2 * PAGE);
    let (mut reader, mut s) = (store.session().unwrap(), store.session().unwrap());
    let value = vec![b'v'; 900_000];
    assert_eq!(put(&mut s, b"k", &value, 0), Ok(()));
    let g = reader.pin();
    let took = |s: &mut Session| {
        let begun = Instant::now();
        (put(s, b"k", &value, 0), begun.elapsed())
    };
    let first = (0..20).map(|_| took(&mut s)).find(|(told, _)| told.is_err()).unwrap();
    assert_eq!(first.0, Err(NotStored::OutOfMemory));
    assert!((400..3_000).contains(&first.1.as_millis()), "{first:?}");
    assert_eq!(value_of(&mut s, b"k"), None, "a failed set forgets");
    let others: Vec<_> = (0..20).map(|_| took(&mut s)).collect();
    assert!(others.iter().all(|(told, _)| told.is_err()), "{others:?}");
    // A busy machine may hold up one or the other.
    let waited = others.iter().filter(|(_, time)| *time >= Duration::from_millis(80)).count();
    assert!(waited < 10, "{others:?}");
    drop(g);
    assert_eq!(put(&mut s, b"k", &value, 0), Ok(()));
}

/// After a flush hardly a new item gives way to a newer one while another thread sweeps, though a busy
/// machine may stop that thread in the middle: the sweeper's lock is held here.
#[test]
fn a_writer_waits_for_the_sweeper_before_it_evicts() {
    let store = store(16 * PAGE);
    let mut s = store.session().unwrap();
    for n in 0..4_000 {
        assert_eq!(put(&mut s, &names("old", n), &[b'o'; 11_000], 0), Ok(()));
    }
    store.flush(0);
    let held = store.sweeper.lock();
    let n_new = 10 * u32::try_from(PAGE / 5_000).unwrap();
    let wrote = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut s = store.session().unwrap();
            (0..n_new).all(|n| put(&mut s, &names("new", n as usize), &[b'n'; 4_000], 0).is_ok())
        });
        thread::sleep(Duration::from_millis(20));
        drop(held);
        writer.join().unwrap()
    });
    assert!(wrote);
    let missing = (0..n_new as usize).filter(|n| value_of(&mut s, &names("new", *n)).is_none());
    // What is swept is free only when its epoch has passed: chunks are evicted once, ahead of need.
    let missing: Vec<_> = missing.collect();
    assert!(missing.len() < n_new as usize / 100, "{missing:?}");
}

/// Two values of which each takes more than half of what there is: one after the other.
#[test]
fn large_values_do_not_wait_for_each_other() {
    let config = StoreConfig {
        memory_bytes: 16 * PAGE,
        item_max_bytes: 12 * PAGE,
        pages: Pages::Small,
        ..StoreConfig::default()
    };
    let store = Store::new(config).unwrap();
    thread::scope(|scope| {
        for n in 0..3 {
            let mut s = store.session().unwrap();
            scope.spawn(move || {
                let value = vec![b'l'; 10 * PAGE];
                for round in 0..20 {
                    let key = names("large", n);
                    assert_eq!(put(&mut s, &key, &value, 0), Ok(()), "{n} in round {round}");
                }
            });
        }
    });
}

/// Fills almost all of memory with items of a size, and says how many there are.
fn fill(store: &Store, s: &mut Session, kind: &str, len: usize) -> usize {
    let value = vec![b'v'; len];
    let before = store.stats().evictions;
    for n in 0.. {
        assert_eq!(put(s, &names(kind, n), &value, 0), Ok(()));
        if store.stats().evictions != before {
            return n + 1;
        }
    }
    0
}

#[test]
fn pages_that_hold_nothing_go_back_at_once() {
    for size in [40, 450, 11_000, 300_000] {
        let store = store(16 * PAGE);
        let mut s = store.session().unwrap();
        let n = fill(&store, &mut s, "k", size);
        assert_eq!(pages_free(&store), 1, "{size}");
        (0..n).for_each(|n| _ = delete(&mut s, &names("k", n)));
        assert!(pages_free(&store) >= 12, "{size}: {} before any housekeeping", pages_free(&store));
        (0..2).for_each(|_| store.housekeep());
        assert_eq!(pages_free(&store), 16, "{size}: {:?}", store.stats());
        // What expires does the same, once it is swept.
        let value = vec![b'v'; size];
        (0..n / 2).for_each(|n| assert_eq!(put(&mut s, &names("k", n), &value, 5), Ok(())));
        assert!(pages_free(&store) < 10);
        store.clock().skip_ahead(5);
        (0..400).for_each(|_| store.housekeep());
        assert_eq!((pages_free(&store), store.stats().curr_items), (16, 0), "{size}");
    }
}

/// A page that is kept because a class is short of free chunks goes when it is not any more.
#[test]
fn a_class_keeps_no_empty_page_beside_free_chunks() {
    let store = store(16 * PAGE);
    let mut s = store.session().unwrap();
    let n = fill(&store, &mut s, "k", 11_000);
    // One item in each page stays, or so.
    let stays = |n: &usize| n.is_multiple_of(150);
    (0..n).filter(|n| !stays(n)).for_each(|n| _ = delete(&mut s, &names("k", n)));
    (0..n).filter(stays).skip(1).for_each(|n| _ = delete(&mut s, &names("k", n)));
    (0..2).for_each(|_| store.housekeep());
    assert!(store.stats().curr_items <= 1 && pages_free(&store) >= 15, "{:?}", store.stats());
}

/// What was flushed is in no item's way, however soon memory is needed for another size.
#[test]
fn what_comes_after_a_flush_finds_all_of_memory() {
    // Or the thread that sweeps up is held up before it gives back anything.
    const SWEPT_ALONE: usize = 51;
    for turns in [0, 1, 50, SWEPT_ALONE] {
        let store = store(32 * PAGE);
        let mut s = store.session().unwrap();
        let value = [b'v'; 4096];
        for round in 0..3 {
            fill(&store, &mut s, "old", 11_000);
            store.flush(0);
            if turns == SWEPT_ALONE {
                while store.flushed.is_unswept() {
                    store.sweep();
                }
            } else {
                (0..turns).for_each(|_| store.housekeep());
            }
            // All pages but the reserve, and one that is being filled.
            let n = 30 * (PAGE / 4_992);
            (0..n).for_each(|n| assert_eq!(put(&mut s, &names("new", n), &value, 0), Ok(())));
            let there = (0..n).filter(|n| value_of(&mut s, &names("new", *n)).is_some()).count();
            assert_eq!(there, n, "round {round} after {turns} turns");
        }
    }
}

/// The same where pages of many small items are to become a few large ones.
#[test]
fn what_comes_after_a_flush_of_small_items_finds_memory_too() {
    for (n, long) in [(40, 400_000), (5000, 4096)] {
        let store = store(32 * PAGE);
        let mut s = store.session().unwrap();
        let full = (0..).take_while(|n| {
            put(&mut s, &names("old", *n), b"v", 0).unwrap();
            store.stats().evictions == 0
        });
        assert!(full.count() > 400_000);
        store.flush(0);
        let value = vec![b'v'; long];
        (0..n).for_each(|n| assert_eq!(put(&mut s, &names("new", n), &value, 0), Ok(())));
        let there = (0..n).filter(|n| value_of(&mut s, &names("new", *n)).is_some()).count();
        assert_eq!(there, n, "of {long} bytes");
    }
}

/// Pages that a reader still holds back are memory all the same: nothing that is alive makes room
/// meanwhile.
#[test]
fn nothing_is_evicted_while_pages_are_on_their_way() {
    let store = store(8 * PAGE);
    let (mut reader, mut s) = (store.session().unwrap(), store.session().unwrap());
    let n = fill(&store, &mut s, "k", 11_000);
    // The last ones of each page go together.
    let last = |n: &usize| n.is_multiple_of(150);
    (0..n).filter(|n| !last(n)).for_each(|n| _ = delete(&mut s, &names("k", n)));
    store.housekeep();
    (0..n).filter(last).for_each(|n| _ = delete(&mut s, &names("k", n)));
    assert!(pages_free(&store) < 4);
    store.epochs.advance();
    let g = reader.pin();
    store.housekeep();
    assert_eq!(pages_free(&store), 8);
    let (before, value) = (store.stats().evictions, vec![b'v'; 900_000]);
    thread::scope(|scope| {
        let writer =
            scope.spawn(|| (0..8).all(|n| put(&mut s, &names("large", n), &value, 0).is_ok()));
        thread::sleep(Duration::from_millis(30));
        drop(g);
        assert!(writer.join().unwrap());
    });
    assert_eq!(store.stats().evictions, before);
    assert!((0..8).all(|n| value_of(&mut s, &names("large", n)).is_some()));
}

/// Whichever item would go next: what is appended to stays, and another one goes for its new value.
#[test]
fn what_is_appended_to_is_not_evicted_for_that() {
    for (memory_bytes, len, keys) in [(16 << 20, 900_000, 30), (4 << 20, 60_000, 90)] {
        let key = |n: u32| format!("key-{n:08}").into_bytes();
        let mut appended = 0;
        for at in 0.. {
            let store = store(memory_bytes);
            let mut s = store.session().unwrap();
            for n in 0..keys {
                assert_eq!(put(&mut s, &key(n), &vec![b'v'; len], 0), Ok(()));
                store.housekeep();
            }
            // Not read, as far as the hand knows: `value_of` leaves no mark.
            let is_there = |n: &u32| value_of(&mut s, &key(*n)).is_some();
            let there: Vec<u32> = (0..keys).filter(is_there).collect();
            let Some(n) = there.get(at) else { break };
            assert!(append(&mut s, &key(*n), b"0123456789").is_ok(), "key {n} of {there:?}");
            let value = value_of(&mut s, &key(*n)).unwrap();
            assert_eq!((value.len(), &value[len..]), (len + 10, &b"0123456789"[..]));
            appended += 1;
        }
        assert!(appended > 5, "{appended}");
    }
}

/// A value of a size that nothing else has, in a store full of small items: no item but it could go for the new value.
#[test]
fn what_is_appended_to_alone_in_its_class_stays() {
    for len in [700_000, 1_500_000, 2_300_000] {
        let config = StoreConfig { item_max_bytes: 4 << 20, ..StoreConfig::default() };
        let store =
            Store::new(StoreConfig { memory_bytes: 12 * PAGE, pages: Pages::Small, ..config })
                .unwrap();
        let mut s = store.session().unwrap();
        let fill = |s: &mut Session, from: usize| {
            let evicted = store.stats().evictions;
            for n in from.. {
                assert_eq!(put(s, &names("small", n), &[b'v'; 300], 0), Ok(()));
                if store.stats().evictions > evicted + 100 {
                    return n;
                }
            }
            0
        };
        let filled = fill(&mut s, 0);
        assert_eq!(put(&mut s, b"big", &vec![b'v'; len], 0), Ok(()));
        fill(&mut s, filled + 1);
        for n in 1..=20 {
            let done = append(&mut s, b"big", b"0123456789");
            assert!(done.is_ok(), "{n} of {len}: {done:?}");
            assert_eq!(value_of(&mut s, b"big").map(|value| value.len()), Some(len + 10 * n));
        }
        // What becomes too long is refused, and the value stays.
        let more = vec![b'w'; 4 << 20];
        assert_eq!(append(&mut s, b"big", &more), Err(NotStored::TooLarge));
        assert_eq!(value_of(&mut s, b"big").map(|value| value.len()), Some(len + 200));
    }
}

/// A hold ends with what it was for, whatever became of that: the item can be evicted then.
#[test]
fn nothing_is_held_for_ever() {
    let config = StoreConfig { memory_bytes: 4 * PAGE, evict: false, ..StoreConfig::default() };
    let store = Store::new(StoreConfig { pages: Pages::Small, ..config }).unwrap();
    let mut s = store.session().unwrap();
    // A look-up would undo it.
    let of = |s: &mut Session, key: &[u8], hold: bool| {
        let guard = s.pin();
        let (_, item) = guard.present(store.hash(key), key).unwrap();
        if hold {
            item.hold();
        }
        item.is_held()
    };
    assert_eq!(put(&mut s, b"number", b"1000", 0), Ok(()));
    // As an item is moved, or changed in its place, while it is held.
    assert!(of(&mut s, b"number", true));
    assert!(verbs::arith(&mut s, None, &plus_one(b"number")).is_ok());
    assert!(!of(&mut s, b"number", false), "what is made of it is another one");
    // No memory for a change.
    for n in 0.. {
        if put(&mut s, &names("full", n), &[b'v'; 30_000], 0).is_err() {
            break;
        }
    }
    assert_eq!(append(&mut s, b"number", &[b'x'; 30_000]), Err(NotStored::OutOfMemory));
    assert!(!of(&mut s, b"number", false), "refused");
    assert!(of(&mut s, b"number", true));
    assert_eq!(append(&mut s, b"number", &[b'x'; 30_000]), Err(NotStored::OutOfMemory));
    assert!(!of(&mut s, b"number", false), "refused again");
}

#[test]
fn an_item_that_was_read_before_stays_held_when_it_is_read() {
    let store = store(8 * PAGE);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"k", b"v", 0), Ok(()));
    let guard = s.pin();
    let item = get(&guard, b"k").unwrap();
    item.hold();
    assert!(get(&guard, b"k").is_some_and(|item| item.is_held()));
    item.release();
    assert!(!item.is_held() && item.is_visited());
}

/// Numbers below others (Marsaglia, Xorshift RNGs, 2003).
fn by_chance(mut seed: usize) -> impl FnMut(usize) -> usize {
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    }
}

/// Of `n` gets by chance, each followed by a set by chance, how many found an item of those that have so many bytes.
fn hits_of(store: &Arc<Store>, lens: &[usize], n: u32) -> u32 {
    let mut s = store.session().unwrap();
    let value = vec![b'v'; *lens.iter().max().unwrap()];
    let (mut by_chance, mut hits) = (by_chance(7), 0);
    for turn in 0..n {
        let [asked, stored] = [0; 2].map(|_| by_chance(lens.len()));
        hits += u32::from(get(&s.pin(), &names("k", asked)).is_some());
        assert_eq!(put(&mut s, &names("k", stored), &value[..lens[stored]], 0), Ok(()));
        s.settle();
        if turn % 200 == 0 {
            store.housekeep();
        }
    }
    hits
}

/// What is returned while another thread looks at items, 20 µs at a time.
fn beside_a_reader<R>(store: &Arc<Store>, work: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut reader = store.session().unwrap();
            while !stop.load(Ordering::Relaxed) {
                let _pinned = reader.pin();
                let since = Instant::now();
                while since.elapsed() < Duration::from_micros(20) {
                    std::hint::spin_loop();
                }
            }
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// A class without a page waits for what others lend it, however often it was lent some: a page that is taken from them
/// comes no sooner, and costs all that is in it.
#[test]
fn chunks_that_readers_look_at_are_waited_for() {
    let mut by_chance = by_chance(5);
    let lens: Vec<usize> = (0..4_000)
        .map(|_| match by_chance(100) {
            0..20 => 1 + by_chance(16),
            20..85 => 16 + by_chance(10_000),
            _ => 10_000 + by_chance(880_000),
        })
        .collect();
    let alone = hits_of(&store(12 << 20), &lens, 20_000);
    let store = store(12 << 20);
    let beside = beside_a_reader(&store, || hits_of(&store, &lens, 20_000));
    let st = store.stats();
    assert!(beside * 2 > alone, "{beside} hits, {alone} alone, {} pages moved", st.pages_moved);
    assert_eq!(st.out_of_memory, 0);
}

/// Its class has no page, and the class that lends it a chunk keeps one for changes.
#[test]
fn a_counter_in_a_lent_chunk_goes_on_when_memory_is_full() {
    let config = StoreConfig { evict: false, ..StoreConfig::default() };
    let config = StoreConfig { memory_bytes: 2 * PAGE, pages: Pages::Small, ..config };
    let store = Store::new(config).unwrap();
    let mut s = store.session().unwrap();
    let fill = |s: &mut Session| {
        let refused = |n: &usize| put(s, &names("k", *n), &[b'v'; 1_000], 0).is_err();
        (0..).find(refused).unwrap()
    };
    let full = fill(&mut s);
    (full - 3..full).for_each(|n| assert!(delete(&mut s, &names("k", n))));
    assert_eq!(put(&mut s, b"counter", b"1", 0), Ok(()));
    fill(&mut s);
    let mut count = |to: std::ops::Range<u64>| {
        to.into_iter().all(|n| {
            verbs::arith(&mut s, None, &plus_one(b"counter")).is_ok_and(|now| now.number == n)
        })
    };
    assert!(count(2..100));
    assert!(beside_a_reader(&store, || count(100..300)));
}

/// A reader has seen the chunk that the class of a counter keeps for changes, another one that of its lender, which is
/// the one that comes back.
#[test]
fn a_counter_in_a_lent_chunk_waits_for_the_chunk_that_comes_back() {
    let config = StoreConfig { evict: false, ..StoreConfig::default() };
    let config = StoreConfig { memory_bytes: 2 * PAGE, pages: Pages::Small, ..config };
    let store = Store::new(config).unwrap();
    let mut s = store.session().unwrap();
    (0..4).for_each(|n| assert_eq!(put(&mut s, &names("long", n), &[b'v'; 1_000], 0), Ok(())));
    assert_eq!(put(&mut s, b"own", b"1", 0), Ok(()));
    let refused = |s: &mut Session, n: &usize| put(s, &names("k", *n), b"v", 0).is_err();
    let full = (0..).find(|n| refused(&mut s, n)).unwrap();
    assert!(delete(&mut s, &names("k", full - 1)));
    assert_eq!(put(&mut s, b"lent", b"1", 0), Ok(()));
    assert!((full..full + 99).any(|n| refused(&mut s, &n)));
    let mut count = |key| verbs::arith(&mut s, None, &plus_one(key)).map(|now| now.number);
    let (mut one, mut other) = (store.session().unwrap(), store.session().unwrap());
    let first = one.pin();
    assert_eq!(count(b"own").ok(), Some(2));
    store.epochs.advance();
    let second = other.pin();
    assert_eq!(count(b"lent").ok(), Some(2));
    thread::scope(|scope| {
        let waits = scope.spawn(|| count(b"lent"));
        thread::sleep(Duration::from_millis(30));
        drop(first);
        thread::sleep(Duration::from_millis(30));
        drop(second);
        assert_eq!(waits.join().unwrap().ok(), Some(3));
    });
}
