//! Chunks that a session takes for items to come are used, or given back.

use super::{get, store};
use crate::verbs::{self, HashedSet};
use crate::{Session, StoreStats};

fn set(s: &mut Session, key: &str, len: usize) {
    let value = vec![b'v'; len];
    let (key, value) = (key.as_bytes(), &value);
    let hash = s.store().hash(key);
    let what = HashedSet { hash, key, value, value_sum: None, flags: 0, exptime: 0 };
    verbs::set_reserved(s, what).unwrap();
}

fn stats(s: &mut Session) -> StoreStats {
    s.settle();
    s.store().stats()
}

#[test]
fn what_is_not_used_is_given_back() {
    let store = store(8 << 20);
    let mut s = store.session().unwrap();
    let nothing = stats(&mut s);
    // Of several classes, more than are taken, and one that is large.
    for lens in [&[10, 10, 500, 10][..], &[10; 50], &[3 << 20], &[]] {
        s.reserve(lens.iter().map(|len| (1, *len)));
        let settled = stats(&mut s);
        assert_eq!((settled.curr_items, settled.bytes), (nothing.curr_items, nothing.bytes));
        assert_eq!(settled.total_items, nothing.total_items);
    }
    // Reserved twice.
    (0..2).for_each(|_| s.reserve([(1, 10)].into_iter()));
    drop(s);
    let mut s = store.session().unwrap();
    assert_eq!(stats(&mut s).curr_items, 0);
}

#[test]
fn counts_are_those_without() {
    let (with, without) = (store(8 << 20), store(8 << 20));
    let (mut a, mut b) = (with.session().unwrap(), without.session().unwrap());
    for round in 0..200usize {
        let lens = [10, 10 + round % 300, 700, 10];
        // What is reserved need not be what is stored then.
        let reserved = if round % 3 == 0 { [700, 10, 11, 10] } else { lens };
        a.reserve(reserved.iter().map(|len| (1, *len)));
        for (key, len) in ["a", "b", "c", "d"].into_iter().zip(lens) {
            set(&mut a, key, len);
            set(&mut b, key, len);
        }
        let [a, b] = [&mut a, &mut b].map(stats);
        assert_eq!((a.curr_items, a.bytes), (b.curr_items, b.bytes));
        assert_eq!((a.total_items, a.evictions), (b.total_items, b.evictions));
    }
    assert_eq!(get(&a.pin(), b"c").unwrap().value().len(), 700);
}
