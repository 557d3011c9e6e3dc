//! The store as its callers see it.
#![allow(clippy::unwrap_used)]

mod eviction;
pub(crate) mod filter;
mod joins;
mod large;
mod moves;
mod own_cas;
mod pressure;
mod reserve;

use super::change::{Change, NewValue, Replacement};
use super::index::Expect;
use super::item_flags::Marks;
use super::new_item::NewItem;
use super::slab::Gone;
use super::verbs::{NotDeleted, NotStored, get};
use super::write::Refused;
use super::*;
use base::{Arith, StoreMode};
use driver_shim::Pages;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn store(memory_bytes: usize) -> Arc<Store> {
    let config = StoreConfig { memory_bytes, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    store.clock().hold();
    store
}

fn put(s: &mut Session, key: &[u8], value: &[u8], exptime: i64) -> Result<(), NotStored> {
    set(s, &base::Store::set(key, 7, exptime, value)).map(|_| ())
}

/// Stores, and lets the verb hash the key; returns the CAS id.
fn set(s: &mut Session, what: &base::Store<'_>) -> Result<u64, NotStored> {
    verbs::store(s, None, what).map(|stored| stored.cas)
}

/// What adds one to a number.
fn plus_one(key: &[u8]) -> Arith<'_> {
    Arith {
        key,
        delta: 1,
        decrement: false,
        cas: None,
        initial: None,
        own_cas: None,
        exptime: None,
    }
}

/// Whether a live item is gone.
fn delete(s: &mut Session, key: &[u8]) -> bool {
    verbs::delete(s, None, key).is_some()
}

fn value_of(s: &mut Session, key: &[u8]) -> Option<Vec<u8>> {
    get(&s.pin(), key).map(|i| i.value().to_vec())
}

fn scan(s: &mut Session, kind: &str, keys: std::ops::Range<u32>) {
    for n in keys {
        assert_eq!(put(s, format!("{kind}-{n:08}").as_bytes(), &[b'v'; 100], 0), Ok(()));
    }
}

fn there(s: &mut Session, kind: &str, keys: std::ops::Range<u32>) -> usize {
    keys.filter(|n| value_of(s, format!("{kind}-{n:08}").as_bytes()).is_some()).count()
}

#[test]
fn set_get_delete() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(value_of(&mut s, b"a"), None);
    assert_eq!(put(&mut s, b"a", b"one", 0), Ok(()));
    assert_eq!(put(&mut s, b"b", b"", 0), Ok(()));
    let cas = {
        let g = s.pin();
        let i = get(&g, b"a").unwrap();
        assert_eq!((i.key(), i.value().whole(), i.flags()), (&b"a"[..], Some(&b"one"[..]), 7));
        i.cas()
    };
    assert_eq!(put(&mut s, b"a", b"two", 0), Ok(()));
    assert_eq!(value_of(&mut s, b"a").unwrap(), b"two");
    assert_ne!(get(&s.pin(), b"a").unwrap().cas(), cas);
    assert_eq!(value_of(&mut s, b"b").unwrap(), b"");
    assert!(delete(&mut s, b"a") && !delete(&mut s, b"a"));
    assert_eq!(value_of(&mut s, b"a"), None);
    let st = store.stats();
    assert_eq!((st.curr_items, st.total_items, st.bytes), (1, 3, 35));
}

#[test]
fn hints_are_verified() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"a", b"one", 0), Ok(()));
    assert_eq!(put(&mut s, b"b", b"two", 0), Ok(()));
    let (a, b) =
        (store.propose(store.hash(b"a")).unwrap(), store.propose(store.hash(b"b")).unwrap());
    assert_eq!(store.propose(store.hash(b"c")), None);
    let g = s.pin();
    assert_eq!(g.verify(a, b"a").unwrap().value().whole(), Some(&b"one"[..]));
    assert!(g.verify(a, b"b").is_none());
    assert!(g.verify(Location(a.0 + 1), b"b").is_some(), "the next chunk");
    assert_eq!(b.0, a.0 + 1);
    assert!(g.verify(a, b"a\0").is_none() && g.verify(a, b"").is_none());
    drop(g);
    delete(&mut s, b"a");
    let g = s.pin();
    assert!(g.verify(a, b"a").is_none());
    for n in (0..1 << 16).chain([u32::MAX, u32::MAX - 1, 1 << 31]) {
        store.prefetch_item(Location(n));
        assert!(n == b.0 || g.verify(Location(n), b"b").is_none());
    }
}

#[test]
fn the_item_limit_is_memcacheds() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    let most = (1 << 20) - 48 - 2 - 2 - 8 - 4;
    let value = vec![b'x'; most + 5];
    assert_eq!(put(&mut s, b"k", &value[..most], 0), Ok(()));
    assert_eq!(value_of(&mut s, b"k").unwrap().len(), most);
    assert_eq!(put(&mut s, b"k", &value[..=most], 0), Err(NotStored::TooLarge));
    assert_eq!(value_of(&mut s, b"k"), None, "a failed set forgets");
    let mut what = base::Store::set(b"k", 0, 0, &value[..most + 4]);
    assert!(set(&mut s, &what).is_ok(), "no flags, four bytes more");
    what.value = &value;
    assert_eq!(set(&mut s, &what), Err(NotStored::TooLarge));
    assert_eq!(put(&mut s, &[b'k'; 250], b"", 0), Ok(()));
    assert_eq!(put(&mut s, &[b'k'; 251], b"", 0), Err(NotStored::TooLarge));
}

#[test]
fn items_expire_and_are_swept() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"never", b"1", 0), Ok(()));
    assert_eq!(put(&mut s, b"gone", b"2", -1), Ok(()));
    assert_eq!(put(&mut s, b"soon", b"3", 10), Ok(()));
    assert_eq!(value_of(&mut s, b"gone"), None);
    assert!(!delete(&mut s, b"gone"), "expired is not there");
    assert!(value_of(&mut s, b"soon").is_some());
    store.clock().skip_ahead(10);
    assert_eq!(value_of(&mut s, b"soon"), None);
    assert_eq!(store.stats().curr_items, 2);
    store.housekeep();
    let st = store.stats();
    assert_eq!((st.curr_items, st.reclaimed, st.expired_unfetched), (1, 2, 1));
    assert_eq!(value_of(&mut s, b"never").unwrap(), b"1");
}

#[test]
fn every_size_is_stored_in_little_memory() {
    let store = store(4 << 20);
    let mut s = store.session().unwrap();
    let value = vec![b'x'; 1 << 20];
    for round in 0..3 {
        for shift in 0..20 {
            let len = (1 << shift) + round;
            assert_eq!(put(&mut s, b"k", &value[..len], 0), Ok(()), "{len} bytes");
            assert_eq!(value_of(&mut s, b"k").unwrap().len(), len);
        }
    }
}

#[test]
fn wrong_configurations_are_refused_in_words() {
    let refuse = |config: StoreConfig| Store::new(config).unwrap_err();
    let d = StoreConfig::default;
    let e = refuse(StoreConfig { memory_bytes: (4 << 20) - 1, ..d() });
    assert!(matches!(e, StoreError::MemoryTooSmall { .. }) && e.to_string().contains("4194304"));
    let e = refuse(StoreConfig { memory_bytes: 1 << 40, ..d() });
    assert!(matches!(e, StoreError::MemoryTooLarge { .. }));
    for item_max_bytes in [0, 1023, (1 << 30) + 1] {
        let e = refuse(StoreConfig { item_max_bytes, ..d() });
        assert!(matches!(e, StoreError::ItemMax { .. }));
    }
    for growth_factor in [0.0, 1.0, -3.0, f64::NAN, f64::INFINITY] {
        let e = refuse(StoreConfig { growth_factor, ..d() });
        assert!(matches!(e, StoreError::GrowthFactor { .. }));
    }
    for item_max_bytes in [1024, 5000, 1 << 20, 2 << 20] {
        for growth_factor in [1.05, 1.25, 2.0, 100.0] {
            let c = StoreConfig { item_max_bytes, growth_factor, memory_bytes: 6 << 20, ..d() };
            let store = Store::new(c).unwrap();
            let mut s = store.session().unwrap();
            let most = vec![0; item_max_bytes - 48 - 2 - 2 - 8 - 4];
            assert_eq!(put(&mut s, b"k", &most, 0), Ok(()));
        }
    }
}

#[test]
fn sessions_are_counted_and_come_back() {
    let config = StoreConfig { memory_bytes: 4 << 20, sessions_max: 1, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let s = store.session().unwrap();
    assert!(matches!(store.session(), Err(StoreError::Sessions { max: 1 })));
    drop(s);
    assert!(store.session().is_ok());
}

#[test]
fn what_a_guard_shows_stays() {
    let store = store(4 << 20);
    let (mut reader, mut writer) = (store.session().unwrap(), store.session().unwrap());
    assert_eq!(put(&mut writer, b"k", &[b'a'; 400_000], 0), Ok(()));
    let mut g = reader.pin();
    let seen = get(&g, b"k").unwrap();
    // Twice the memory, while the reader looks: the writer has to do without, or wait.
    for n in 0..10u8 {
        let _ = put(&mut writer, b"k", &[n; 400_000], 0);
    }
    assert!(seen.value().whole().unwrap().iter().all(|b| *b == b'a'));
    g.refresh();
    assert_eq!(put(&mut writer, b"k", &[b'z'; 400_000], 0), Ok(()));
    assert!(get(&g, b"k").unwrap().value().whole().unwrap().iter().all(|b| *b == b'z'));
}

#[test]
fn an_item_is_out_of_sight_until_it_is_linked() {
    let store = store(4 << 20);
    let mut s = store.session().unwrap();
    let new = NewItem {
        key: b"k",
        flags: 0,
        expiry: 0,
        value: [Value::Whole(b"v"), Value::Whole(b"")],
        sums: [None; 2],
        marks: Marks::default(),
        own_cas: None,
    };
    let fresh = store.make(&new, None, None, || ()).unwrap();
    assert!((0..64).all(|n| s.pin().verify(Location(n), b"k").is_none()));
    drop(fresh);
    assert_eq!((store.stats().curr_items, store.stats().total_items), (0, 0));
    let fresh = store.make(&new, None, None, || ()).unwrap();
    let taken = store.link(store.hash(b"k"), b"k", fresh, Expect::Exactly(Some(Location(9))));
    assert_eq!(taken.map(|_| ()), Err(Refused::Mismatch));
    assert_eq!(store.stats().curr_items, 0);
    let fresh = store.make(&new, None, None, || ()).unwrap();
    assert_eq!(
        store.link(store.hash(b"k"), b"k", fresh, Expect::Exactly(None)).map(|_| ()),
        Ok(())
    );
    assert_eq!((0..64).filter(|n| s.pin().verify(Location(*n), b"k").is_some()).count(), 1);
}

/// What a session has replaced and not given back yet counts as in use, and is there when memory
/// runs out: a full store that evicts nothing takes the same items again and again.
#[test]
fn what_was_replaced_comes_back_when_it_is_needed() {
    let config = StoreConfig {
        memory_bytes: 4 << 20,
        pages: Pages::Small,
        evict: false,
        ..StoreConfig::default()
    };
    let store = Store::new(config).unwrap();
    let mut s = store.session().unwrap();
    let value = vec![b'v'; 100_000];
    let key = |n: usize| format!("k{n}").into_bytes();
    let kept = (0..).take_while(|n| put(&mut s, &key(*n), &value, 0).is_ok()).count();
    assert!((8..100).contains(&kept), "{kept}");
    // Room for one.
    assert!(delete(&mut s, &key(0)));
    for n in (1..kept).cycle().take(5 * kept) {
        let what = key(n);
        let what = base::Store::set(&what, 0, 0, &value);
        assert_eq!(verbs::set(&mut s, None, None, &what).map(|_| ()), Ok(()), "{n}");
    }
    let st = store.stats();
    assert_eq!((st.curr_items, st.evictions), (kept as u64 - 1, 0));
}

/// The old item is out of sight when the new one comes in sight, not when its memory is handed
/// over: the class's lock, which that takes, is held here.
#[test]
fn old_hints_end_when_the_new_item_is_linked() {
    let store = store(8 << 20);
    let (mut s, mut writer) = (store.session().unwrap(), store.session().unwrap());
    assert_eq!(put(&mut s, b"k", b"old", 0), Ok(()));
    let old = store.propose(store.hash(b"k")).unwrap();
    let class = store.slabs.lock(store.slabs.class_for(36).unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || put(&mut writer, b"k", &[b'n'; 999], 0));
        let began = Instant::now();
        while get(&s.pin(), b"k").unwrap().value() == &b"old"[..] {
            // The lock goes with the panic, and the writer ends.
            assert!(began.elapsed() < Duration::from_secs(60), "the new item is not linked");
            std::thread::yield_now();
        }
        assert!(s.pin().verify(old, b"k").is_none());
        drop(class);
        assert_eq!(writer.join().unwrap(), Ok(()));
    });
}

/// Each verb looks and writes in one step: what several threads count adds up, and only one of
/// them adds or swaps.
#[test]
fn verbs_that_look_first_are_one_step() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 2_000;
    let store = store(64 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"n", b"0", 0), Ok(()));
    assert_eq!(put(&mut s, b"t", b"", 0), Ok(()));
    let wins = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut s = store.session().unwrap();
                for round in 0..ROUNDS {
                    let one = plus_one(b"n");
                    verbs::arith(&mut s, None, &one).unwrap();
                    let fresh = round.to_le_bytes();
                    let what =
                        base::Store { mode: StoreMode::Add, ..base::Store::set(&fresh, 0, 0, b"") };
                    if set(&mut s, &what).is_ok() {
                        wins.fetch_add(1, Ordering::Relaxed);
                    }
                    if round % 10 == 0 {
                        let what = base::Store {
                            mode: StoreMode::Append,
                            ..base::Store::set(b"t", 0, 0, b"ab")
                        };
                        assert!(set(&mut s, &what).is_ok());
                    }
                }
            });
        }
    });
    assert_eq!(value_of(&mut s, b"n").unwrap(), (THREADS * ROUNDS).to_string().into_bytes());
    assert_eq!(wins.into_inner(), ROUNDS);
    let text = value_of(&mut s, b"t").unwrap();
    assert_eq!(text, b"ab".repeat(usize::try_from(THREADS * ROUNDS / 10).unwrap()));
}

fn claim(s: &mut Session, key: &[u8]) -> verbs::Claim {
    let what = verbs::Fetch {
        hash: None,
        key,
        touch: None,
        recache: None,
        create: None,
        own_cas: None,
        unnoticed: false,
        room: usize::MAX,
    };
    verbs::fetch(s, &what, &mut Supposed::Nothing, |_| true, |found| found.unwrap().claim).unwrap()
}

fn stale(cas: Option<u64>, exptime: Option<i64>) -> verbs::Tombstone {
    verbs::Tombstone { cas, exptime, stale: true, empty: None, own_cas: None }
}

#[test]
fn stale_values_and_leases() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"k", b"old", 0), Ok(()));
    let cas = get(&s.pin(), b"k").unwrap().cas();
    assert_eq!(
        verbs::invalidate(&mut s, None, b"k", &stale(Some(cas + 1), None)),
        Err(NotDeleted::Exists)
    );
    assert_eq!(
        verbs::invalidate(&mut s, None, b"none", &stale(None, None)),
        Err(NotDeleted::NotFound)
    );
    assert!(verbs::invalidate(&mut s, None, b"k", &stale(Some(cas), Some(100))).is_ok());
    {
        let g = s.pin();
        let item = get(&g, b"k").unwrap();
        assert!(
            item.is_stale() && item.cas() > cas && item.value() == &b"old"[..] && item.flags() == 7
        );
    }
    assert_eq!(claim(&mut s, b"k"), verbs::Claim::Won, "one client fetches anew");
    assert_eq!(claim(&mut s, b"k"), verbs::Claim::Taken);
    // What that one brings, with the CAS id from before it was marked: stale still, and won.
    let mut what =
        base::Store { cas: Some(cas), or_stale: true, ..base::Store::set(b"k", 1, 0, b"x") };
    assert!(set(&mut s, &what).is_ok());
    {
        let g = s.pin();
        let item = get(&g, b"k").unwrap();
        assert!(item.is_stale() && item.is_won() && item.value() == &b"x"[..]);
        assert_ne!(item.expiry(), 0, "for no longer than before");
        what.cas = Some(item.cas());
    }
    assert!(set(&mut s, &what).is_ok());
    {
        let g = s.pin();
        let item = get(&g, b"k").unwrap();
        assert!(!item.is_stale() && !item.is_won() && item.expiry() == 0);
        what.cas = Some(item.cas() + 1);
    }
    assert!(matches!(set(&mut s, &what), Err(NotStored::Exists(_))));
    let cas = get(&s.pin(), b"k").unwrap().cas();
    assert_eq!(verbs::delete_if(&mut s, None, b"k", cas + 1), Err(NotDeleted::Exists));
    assert!(verbs::delete_if(&mut s, None, b"k", cas).is_ok());
    assert_eq!(verbs::delete_if(&mut s, None, b"k", cas), Err(NotDeleted::NotFound));
}

#[test]
fn a_flush_forgets_what_was_there_and_nothing_else() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"old", b"1", 0), Ok(()));
    store.flush(0);
    assert_eq!(put(&mut s, b"new", b"1", 0), Ok(()));
    assert_eq!((value_of(&mut s, b"old"), delete(&mut s, b"old")), (None, false));
    assert!(value_of(&mut s, b"new").is_some());
    store.flush(10);
    // As memcached has it, a second early.
    store.clock().skip_ahead(8);
    store.housekeep();
    assert!(value_of(&mut s, b"new").is_some());
    store.clock().skip_ahead(1);
    store.housekeep();
    assert_eq!(value_of(&mut s, b"new"), None);
    assert_eq!(put(&mut s, b"new", b"2", 0), Ok(()));
    store.clock().skip_ahead(1);
    (0..4).for_each(|_| store.housekeep());
    assert_eq!(store.stats().curr_items, 1, "the sweeper brings the memory back");
    store.flush(10);
    store.flush(0);
    assert_eq!(put(&mut s, b"later", b"3", 0), Ok(()));
    store.clock().skip_ahead(10);
    store.housekeep();
    assert!(value_of(&mut s, b"later").is_some(), "the later call took the place of the earlier");
    store.flush(1);
    assert_eq!(value_of(&mut s, b"later"), None, "within a second is now");
}

/// What its caller has no room for, no look-up changes.
#[test]
fn what_is_not_taken_stays_as_it_is() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"k", b"value", 50), Ok(()));
    let before = get(&s.pin(), b"k").unwrap().expiry();
    let refused = verbs::touch(&s.pin(), None, b"k", -1, |_| false).map(|_| ());
    assert_eq!(refused, Err(verbs::TooLong(5)));
    let what = verbs::Fetch {
        hash: None,
        key: b"k",
        touch: Some(before + 7),
        recache: Some(verbs::Recache { before: before + 100, touched: true }),
        create: None,
        own_cas: None,
        unnoticed: false,
        room: usize::MAX,
    };
    let mut seen = None;
    let shown = std::cell::Cell::new(None);
    let refuse = |found: &verbs::Found<'_>| {
        shown.set(Some((found.claim, found.expiry)));
        false
    };
    let refused = verbs::fetch(&mut s, &what, &mut Supposed::Nothing, refuse, |_| seen = Some(()));
    assert_eq!((refused, seen), (Err(verbs::TooLong(5)), None));
    assert_eq!(shown.get(), Some((verbs::Claim::Won, before)));
    assert_eq!(get(&s.pin(), b"k").unwrap().expiry(), before);
    assert_eq!(claim(&mut s, b"k"), verbs::Claim::None);
    let taken = |found: Option<verbs::Found<'_>>| found.map(|f| (f.claim, f.expiry));
    let done = verbs::fetch(&mut s, &what, &mut Supposed::Nothing, |_| true, taken);
    assert_eq!(done, Ok(shown.get()));
    assert_eq!(get(&s.pin(), b"k").unwrap().expiry(), before + 7);
    assert_eq!(claim(&mut s, b"k"), verbs::Claim::Taken);
}

/// What is renewed after it was found dead, and before its bucket is locked, stays, as its client knows.
#[test]
fn what_is_renewed_in_time_is_not_swept() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"k", b"v", 10), Ok(()));
    store.clock().skip_ahead(9);
    assert!(verbs::touch(&s.pin(), None, b"k", 100, |_| true).unwrap().is_some());
    let remove = |why: fn(bool) -> Gone| {
        let loc = store.propose(store.hash(b"k")).unwrap();
        let class = &mut store.slabs.lock(store.slabs.class_of(loc).unwrap());
        let (page, chunk) = (0, 0);
        let gone = store.slabs.with_item(class, page, chunk, |class, at, item| {
            assert_eq!(at, loc);
            store.remove_for(why(item.was_fetched()), class, loc, item)
        });
        gone.unwrap()
    };
    assert!(!remove(|fetched| Gone::Expired { fetched }));
    assert_eq!(value_of(&mut s, b"k").unwrap(), b"v");
    assert_eq!((store.stats().curr_items, store.stats().limbo_chunks), (1, 0));
    // The bucket is not left locked, and the item can go.
    assert_eq!(put(&mut s, b"k2", b"v", 0), Ok(()));
    store.clock().skip_ahead(200);
    assert!(remove(|fetched| Gone::Expired { fetched }));
    assert_eq!((value_of(&mut s, b"k"), store.stats().curr_items), (None, 1));
}

#[test]
fn a_touch_moves_the_end() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"k", b"v", 5), Ok(()));
    assert!(verbs::touch(&s.pin(), None, b"k", 50, |_| true).unwrap().is_some());
    assert!(verbs::touch(&s.pin(), None, b"none", 50, |_| true).unwrap().is_none());
    store.clock().skip_ahead(49);
    assert!(value_of(&mut s, b"k").is_some());
    let what = base::Store { mode: StoreMode::Append, ..base::Store::set(b"k", 0, 0, b"w") };
    assert!(set(&mut s, &what).is_ok());
    store.clock().skip_ahead(1);
    assert_eq!(value_of(&mut s, b"k"), None, "what is appended to keeps its end");
    assert!(verbs::touch(&s.pin(), None, b"k", 50, |_| true).unwrap().is_none());
}

/// What was made of an item that is flushed meanwhile does not outlive it.
#[test]
fn what_is_made_of_a_flushed_item_is_made_again() {
    for flush in [|store: &Store| store.flush(0), |store: &Store| store.flush_prefix(b"k").unwrap()]
    {
        let store = store(4 << 20);
        let mut s = store.session().unwrap();
        assert_eq!(put(&mut s, b"k:1", b"old", 0), Ok(()));
        let mut seen = Vec::new();
        let done = s.modify(store.hash(b"k:1"), b"k:1", b"new", |store, item| {
            seen.push(item.is_some());
            if item.is_none() {
                return Change::None("gone");
            }
            flush(store);
            let (flags, expiry, own_cas, in_place) = (0, None, None, false);
            let (marks, keeps) = (Marks::default(), Marks::default());
            let value = NewValue::PresentThenGiven;
            let new = Replacement { value, flags, expiry, marks, keeps, own_cas, in_place };
            Change::Replace(new, "made")
        });
        assert_eq!(done, Ok(("gone", None)));
        assert_eq!(seen, [true, false]);
        assert_eq!(value_of(&mut s, b"k:1"), None);
    }
}

#[test]
fn what_is_made_while_a_flush_is_under_way_does_not_outlive_it() {
    let store = store(4 << 20);
    let mut s = store.session().unwrap();
    assert_eq!(put(&mut s, b"k:1", b"10", 0), Ok(()));
    let is_made = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let made = store.flushed.flush(|| {
            let last = store.cas.load(Ordering::SeqCst);
            let made = scope.spawn(|| {
                let number = verbs::arith(&mut s, None, &plus_one(b"k:1")).map(|done| done.number);
                is_made.store(true, Ordering::Relaxed);
                number
            });
            // It has its number, and time to go on.
            while store.cas.load(Ordering::SeqCst) == last && !made.is_finished() {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_millis(20));
            assert!(!is_made.load(Ordering::Relaxed), "of what is about to be flushed");
            store.flushed.up_to.fetch_max(last, Ordering::AcqRel);
            made
        });
        assert!(made.join().unwrap().is_err(), "there is nothing to be made of any more");
    });
}
