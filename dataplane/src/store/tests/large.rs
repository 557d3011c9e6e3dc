//! Values of more than a page.

use super::*;
use crate::store::item::WHOLE_MAX_BYTES;
use crate::store::verbs::ArithFailure;

fn large_store(memory_bytes: usize) -> Arc<Store> {
    let pages = Pages::Small;
    let item_max_bytes = memory_bytes / 2;
    Store::new(StoreConfig { memory_bytes, item_max_bytes, pages, ..StoreConfig::default() })
        .unwrap()
}

/// Bytes that tell where they stand.
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
        let what = protocol::Store { mode, ..protocol::Store::set(b"k", 0, 0, &whole[range]) };
        assert!(set(&mut s, &what).is_ok());
    }
    assert!(get(&s.pin(), b"k").unwrap().value() == &whole[..]);
    let one =
        Arith { key: b"k", delta: 1, decrement: false, cas: None, initial: None, exptime: None };
    assert_eq!(verbs::arith(&mut s, &one), Err(ArithFailure::NonNumeric));
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
