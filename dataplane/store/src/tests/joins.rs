//! Values made of the present one and more: their bytes, their sums, and what was copied for them.

use super::*;
use base::StoreMode;
use base::checksum;
use proptest::prelude::*;

fn join(s: &mut Session, mode: StoreMode, key: &[u8], value: &[u8]) {
    let what = base::Store { mode, ..base::Store::set(key, 0, 0, value) };
    verbs::store(s, None, &what).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The sum of a value that was put together is that of its bytes, at odd places too and whether
    /// the piece before had one kept or not.
    #[test]
    fn a_joined_value_has_the_sum_of_its_bytes(
        first in prop::collection::vec(any::<u8>(), 0..400),
        more in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..300)), 1..12),
    ) {
        let store = store(8 << 20);
        let mut s = store.session().unwrap();
        put(&mut s, b"k", &first, 0).unwrap();
        let mut want = first;
        for (front, piece) in more {
            let before = s.copied_bytes();
            if front {
                join(&mut s, StoreMode::Prepend, b"k", &piece);
                want = [piece, want].concat();
            } else {
                join(&mut s, StoreMode::Append, b"k", &piece);
                want.extend(piece);
            }
            prop_assert_eq!(s.copied_bytes() - before, want.len() as u64);
            let g = s.pin();
            let item = get(&g, b"k").unwrap();
            prop_assert!(item.value() == &want[..]);
            prop_assert_eq!(item.value_sum(), checksum::sum(&want));
        }
    }
}

#[test]
fn what_is_refused_or_plainly_set_copies_nothing() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    put(&mut s, b"k", &[b'x'; 1000], 0).unwrap();
    let what = base::Store::set(b"none", 0, 0, b"y");
    let what = base::Store { mode: StoreMode::Append, ..what };
    assert_eq!(verbs::store(&mut s, None, &what).map(|_| ()), Err(NotStored::Condition));
    let what =
        base::Store { mode: StoreMode::Append, ..base::Store::set(b"k", 0, 0, &[b'z'; 1 << 20]) };
    assert_eq!(verbs::store(&mut s, None, &what).map(|_| ()), Err(NotStored::TooLarge));
    assert_eq!(s.copied_bytes(), 0);
}

/// An item that grows passes class after class, each with a page of its own. Those that it has left are free.
#[test]
fn an_item_that_grows_in_a_small_store_is_not_refused_for_pages_that_hold_nothing() {
    let config = StoreConfig { memory_bytes: 16 << 20, evict: false, ..StoreConfig::default() };
    let store = Store::new(StoreConfig { pages: Pages::Small, ..config }).unwrap();
    let mut s = store.session().unwrap();
    put(&mut s, b"k", b"", 0).unwrap();
    for _ in 0..3000 {
        join(&mut s, StoreMode::Append, b"k", b"1234567");
    }
    assert_eq!(get(&s.pin(), b"k").unwrap().value().len(), 3000 * 7);
    // What is full still says so.
    let mut refused = 0;
    for n in 0..6000_u32 {
        let key = n.to_le_bytes();
        let what = base::Store::set(&key, 0, 0, &[b'x'; 4000]);
        refused += u32::from(verbs::store(&mut s, None, &what).is_err());
    }
    assert!(refused > 2000, "{refused}");
}

/// Two chunks serve an item that is appended to without end: it takes no larger ones before it needs
/// them.
#[test]
fn appends_climb_no_classes() {
    let store = store(64 << 20);
    let mut s = store.session().unwrap();
    put(&mut s, b"k", &[b'x'; 300_000], 0).unwrap();
    let class = |s: &mut Session| {
        let g = s.pin();
        let item = get(&g, b"k").unwrap();
        store.class_of(&item)
    };
    let before = class(&mut s);
    assert_eq!(Some(before), store.class_for(1, 300_000, false));
    for _ in 0..1000 {
        join(&mut s, StoreMode::Append, b"k", b"y");
    }
    assert_eq!(class(&mut s), before);
    let stats = store.stats();
    assert_eq!((stats.evictions, stats.curr_items), (0, 1));
}
