//! CAS ids that clients want.

use super::*;
use crate::layout::{PAGE_BYTES, WHOLE_MAX_BYTES};

const OWN: u64 = 0xfedc_ba98_7654_3210;

fn put_as(s: &mut Session, key: &[u8], value: &[u8], cas: u64) {
    let what = base::Store { own_cas: Some(cas), ..base::Store::set(key, 7, 0, value) };
    assert_eq!(set(s, &what), Ok(cas));
}

fn cas_of(s: &mut Session, key: &[u8]) -> u64 {
    get(&s.pin(), key).unwrap().cas()
}

#[test]
fn values_of_all_lengths_have_them_and_give_all_memory_back() {
    let (memory_bytes, item_max_bytes) = (64 << 20, 8 << 20);
    let pages = Pages::Small;
    let config = StoreConfig { memory_bytes, item_max_bytes, pages, ..StoreConfig::default() };
    for growth_factor in [1.25, 7.0] {
        let store = Store::new(StoreConfig { growth_factor, ..config.clone() }).unwrap();
        let mut s = store.session().unwrap();
        let bytes: Vec<u8> = (0..7 << 20).map(|n: u32| (n >> 3).to_le_bytes()[0]).collect();
        let whole = WHOLE_MAX_BYTES;
        let edges = [191, 192, 1000, whole - 1, whole, whole + 1, PAGE_BYTES, bytes.len()];
        for len in (0..70).chain(edges) {
            for key in [&b"k"[..], &[b'l'; 33], &[b'm'; 250]] {
                put_as(&mut s, key, &bytes[..len], OWN);
                let g = s.pin();
                let item = get(&g, key).unwrap();
                assert!(item.value() == &bytes[..len] && item.key() == key, "{len}");
                assert_eq!((item.cas(), item.flags()), (OWN, 7), "{len}");
                assert!(item.sequence() < 10_000);
                if len <= whole {
                    assert_eq!(item.value_sum(), base::checksum::sum(&bytes[..len]), "{len}");
                }
                drop(g);
                assert!(delete(&mut s, key));
            }
        }
        (0..4).for_each(|_| store.housekeep());
        let st = store.stats();
        assert_eq!((st.curr_items, st.bytes, st.limbo_chunks), (0, 0, 0), "{st:?}");
    }
}

#[test]
fn what_comes_next_has_one_only_if_it_is_given() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    put_as(&mut s, b"n", b"41", OWN);
    let next = |mode, own_cas, cas| {
        let what = base::Store::set(b"n", 0, 0, b"0");
        base::Store { mode, own_cas, cas, ..what }
    };
    let append = next(StoreMode::Append, None, Some(OWN));
    assert!(set(&mut s, &append).unwrap() < 100);
    assert_eq!(set(&mut s, &append), Err(NotStored::Exists(store.class_for(1, 3, false).unwrap())));
    assert_eq!(set(&mut s, &next(StoreMode::Append, Some(9), None)), Ok(9));
    assert_eq!(value_of(&mut s, b"n").unwrap(), b"4100");
    let mut one = Arith {
        key: b"n",
        delta: 1,
        decrement: false,
        cas: Some(9),
        initial: None,
        own_cas: Some(10),
        exptime: None,
    };
    assert_eq!(
        verbs::arith(&mut s, None, &one).map(|done| (done.number, done.cas)),
        Ok((4101, 10))
    );
    one = Arith { cas: Some(10), own_cas: None, ..one };
    assert!(verbs::arith(&mut s, None, &one).unwrap().cas < 10);
    // Without its value it stays the same to a client that compares; out of date it does not.
    put_as(&mut s, b"n", b"x", OWN);
    let mut what = verbs::Tombstone { stale: false, empty: Some(0), ..stale(Some(OWN), None) };
    assert!(verbs::invalidate(&mut s, None, b"n", &what).is_ok());
    assert_eq!((cas_of(&mut s, b"n"), value_of(&mut s, b"n").unwrap()), (OWN, Vec::new()));
    what = stale(Some(OWN), None);
    assert!(verbs::invalidate(&mut s, None, b"n", &what).is_ok());
    assert!(cas_of(&mut s, b"n") < 100);
    what = verbs::Tombstone { own_cas: Some(OWN), ..stale(None, None) };
    assert!(verbs::invalidate(&mut s, None, b"n", &what).is_ok());
    assert_eq!(cas_of(&mut s, b"n"), OWN);
    // 0 is one, too.
    what = verbs::Tombstone { own_cas: Some(0), ..stale(None, None) };
    assert!(verbs::invalidate(&mut s, None, b"n", &what).is_ok());
    assert_eq!(cas_of(&mut s, b"n"), 0);
    let zero = next(StoreMode::Set, None, Some(0));
    assert!(matches!(set(&mut s, &zero), Err(NotStored::Exists(_))));
}

/// A flush goes by when an item was stored, which its client's number does not say.
#[test]
fn they_say_nothing_of_when_an_item_was_stored() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    put_as(&mut s, b"old", b"", u64::MAX);
    put_as(&mut s, b"a:old", b"", u64::MAX);
    store.flush(0);
    put_as(&mut s, b"new", b"", 1);
    put_as(&mut s, b"a:new", b"", 1);
    assert_eq!((value_of(&mut s, b"old"), value_of(&mut s, b"a:old")), (None, None));
    assert_eq!((cas_of(&mut s, b"new"), cas_of(&mut s, b"a:new")), (1, 1));
    put_as(&mut s, b"a:old", b"", u64::MAX);
    store.flush_prefix(b"a").unwrap();
    put_as(&mut s, b"a:new", b"", 1);
    assert_eq!((value_of(&mut s, b"a:old"), cas_of(&mut s, b"a:new")), (None, 1));
    put_as(&mut s, b"old", b"", u64::MAX);
    let liveness = store.liveness();
    assert!(liveness.is_none_or(|h| h.is_live(&get(&s.pin(), b"old").unwrap())));
}

#[test]
fn an_item_that_moves_keeps_it() {
    let store = store(16 << 20);
    let mut s = store.session().unwrap();
    let key = |n: u64| n.to_le_bytes();
    (0..3000).for_each(|n| put_as(&mut s, &key(n), &[7; 1900], OWN + n));
    (0..3000).filter(|n| n % 3 == 0).for_each(|n| assert!(delete(&mut s, &key(n))));
    let class = i32::try_from(store.class_for(8, 1908, false).unwrap() + 1).unwrap();
    (0..4).for_each(|_| store.housekeep());
    assert_eq!(store.reassign(class, 0), Ok(()));
    (0..40).for_each(|_| store.housekeep());
    let st = store.stats();
    assert!(st.rescued > 0 && st.evictions == 0, "{st:?}");
    for n in (0..3000).filter(|n| n % 3 != 0) {
        assert_eq!(
            (cas_of(&mut s, &key(n)), value_of(&mut s, &key(n)).unwrap().len()),
            (OWN + n, 1900)
        );
    }
}

#[test]
fn a_look_up_makes_an_item_with_one() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    let (key, own_cas) = (&b"k"[..], Some(OWN));
    let what = verbs::Fetch {
        hash: None,
        key,
        touch: None,
        recache: None,
        create: Some(0),
        own_cas,
        unnoticed: false,
        room: usize::MAX,
    };
    for made in [true, false] {
        let found = |found: Option<verbs::Found<'_>>| found.map(|f| (f.cas, f.created));
        let what = verbs::Fetch { own_cas: if made { own_cas } else { Some(1) }, ..what };
        let found = verbs::fetch(&mut s, &what, &mut Supposed::Nothing, |_| true, found).unwrap();
        assert_eq!(found, Some((OWN, made)));
    }
}

/// Where memory has to be waited for, it is enough for this too.
#[test]
fn memory_that_was_waited_for_has_room_for_it() {
    let config =
        StoreConfig { memory_bytes: 8 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(StoreConfig { evict: false, ..config }).unwrap();
    let mut s = store.session().unwrap();
    put_as(&mut s, b"k", b"v", OWN);
    let mut n = 0u64;
    while put(&mut s, &n.to_le_bytes(), b"", 0).is_ok() {
        n += 1;
    }
    assert!(n > 1000);
    (0..n).for_each(|n| assert!(delete(&mut s, &n.to_le_bytes())));
    (0..100u64).for_each(|n| put_as(&mut s, &n.to_le_bytes(), b"", OWN - n));
    (0..100u64).for_each(|n| assert_eq!(cas_of(&mut s, &n.to_le_bytes()), OWN - n));
}
