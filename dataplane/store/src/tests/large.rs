//! Values of more than a page.

use super::*;
use crate::layout::WHOLE_MAX_BYTES;
use crate::verbs::ArithFailure;

fn large_store(memory_bytes: usize) -> Arc<Store> {
    let pages = Pages::Small;
    let item_max_bytes = memory_bytes / 2;
    Store::new(StoreConfig { memory_bytes, item_max_bytes, pages, ..StoreConfig::default() })
        .unwrap()
}

/// Bytes that show where they stand.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 16).to_le_bytes()[0]).collect()
}

#[test]
fn large_values_come_back_as_they_went() {
    let store = large_store(128 << 20);
    let mut s = store.session().unwrap();
    let whole = pattern(64 << 20);
    let most_in_one = WHOLE_MAX_BYTES;
    for len in [most_in_one, most_in_one + 1, (2 << 20) + 17, 10_000_000, (64 << 20) - 400] {
        for key in [&b"k"[..], &[b'l'; 250]] {
            assert_eq!(put(&mut s, key, &whole[..len], 0), Ok(()), "{len}");
            let g = s.pin();
            let item = get(&g, key).unwrap();
            assert_eq!((item.key(), item.flags(), item.value().len()), (key, 7, len));
            assert!(item.value() == &whole[..len], "{len}");
            assert_eq!(item.value().pieces().count() == 1, len <= most_in_one);
            drop(g);
            assert_eq!(store.stats().curr_items, 1);
            assert!(delete(&mut s, key));
        }
    }
    assert_eq!(put(&mut s, b"k", &whole, 0), Err(NotStored::TooLarge));
    (0..4).for_each(|_| store.housekeep());
    let st = store.stats();
    assert_eq!((st.curr_items, st.bytes, st.limbo_chunks), (0, 0, 0), "{st:?}");
    assert!(st.classes.iter().all(|c| c.used_chunks == 0));
}

/// With few sizes a large value's chunk is a whole page, and one that just misses being in one piece
/// needs no other. Its bytes are the client's, and say nothing of where parts are.
#[test]
fn a_large_value_may_fit_one_chunk() {
    let (memory_bytes, item_max_bytes) = (64 << 20, 8 << 20);
    let pages = Pages::Small;
    let few = StoreConfig {
        growth_factor: 7.0,
        memory_bytes,
        item_max_bytes,
        pages,
        ..StoreConfig::default()
    };
    let store = Store::new(few).unwrap();
    let mut s = store.session().unwrap();
    let value = vec![0x7f; PAGE_BYTES];
    for len in [WHOLE_MAX_BYTES + 1, WHOLE_MAX_BYTES + 100, PAGE_BYTES - 60, PAGE_BYTES] {
        for key in [&b"k"[..], &[b'l'; 243], &[b'm'; 244], &[b'n'; 250]] {
            for key in [key, b"other"] {
                assert_eq!(put(&mut s, key, &value[..len], 0), Ok(()), "{len}");
                assert!(get(&s.pin(), key).unwrap().value() == &value[..len], "{len}");
            }
            // A page goes to another class, and one of the two makes way.
            let class = i32::try_from(store.class_for(key.len(), len, false).unwrap() + 1).unwrap();
            assert_eq!(store.reassign(class, 0), Ok(()));
            (0..20).for_each(|_| store.housekeep());
            let still = [key, b"other"]
                .map(|key| get(&s.pin(), key).map(|item| item.value() == &value[..len]));
            assert!(!still.contains(&Some(false)), "{len}");
            let (still, other) = (still[0], still[1]);
            assert_eq!(delete(&mut s, b"other"), other.is_some());
            let more =
                base::Store { mode: StoreMode::Append, ..base::Store::set(key, 0, 0, b"more") };
            assert_eq!(set(&mut s, &more).is_ok(), still.is_some());
            assert_eq!(delete(&mut s, key), still.is_some());
        }
    }
    (0..4).for_each(|_| store.housekeep());
    let st = store.stats();
    assert_eq!((st.curr_items, st.bytes, st.limbo_chunks), (0, 0, 0), "{st:?}");
    assert!(st.classes.iter().all(|c| c.used_chunks == 0));
}

#[test]
fn large_values_are_joined() {
    let store = large_store(64 << 20);
    let mut s = store.session().unwrap();
    let whole = pattern(9_000_000);
    assert_eq!(put(&mut s, b"k", &whole[1_500_000..3_000_000], 0), Ok(()));
    for (mode, range) in [
        (StoreMode::Append, 3_000_000..4_500_001),
        (StoreMode::Prepend, 0..1_500_000),
        (StoreMode::Append, 4_500_001..9_000_000),
    ] {
        let what = base::Store { mode, ..base::Store::set(b"k", 0, 0, &whole[range]) };
        assert!(set(&mut s, &what).is_ok());
    }
    assert!(get(&s.pin(), b"k").unwrap().value() == &whole[..]);
    let one = plus_one(b"k");
    assert_eq!(verbs::arith(&mut s, None, &one), Err(ArithFailure::NonNumeric));
}

#[test]
fn large_values_find_room_among_small_ones_and_the_other_way_round() {
    let store = large_store(64 << 20);
    let mut s = store.session().unwrap();
    let whole = pattern(30_000_000);
    for round in 0..3u32 {
        for n in 0..700_000u32 {
            let key = (n + round * 700_000).to_le_bytes();
            assert_eq!(put(&mut s, &key, &[b's'; 40], 0), Ok(()), "{n}");
        }
        assert_eq!(put(&mut s, b"large", &whole, 0), Ok(()), "{:?}", store.stats());
        assert!(get(&s.pin(), b"large").unwrap().value() == &whole[..]);
        assert_eq!(put(&mut s, b"other", &whole[..20_000_000], 0), Ok(()), "{:?}", store.stats());
        assert!(get(&s.pin(), b"other").unwrap().value() == &whole[..20_000_000]);
    }
    assert!(store.stats().evictions > 0 && store.stats().pages_moved > 0);
}
