//! The store against a map: whatever is done to both, they agree, but that the store may forget
//! when it is short of memory.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod helper;

use driver_shim::Pages;
use helper::{delete, set};
use proptest::prelude::*;
use std::collections::HashMap;
use store::restart::TakenUp;
use store::verbs::{NotStored, get};
use store::{Location, Store, StoreConfig};

mod temp_file;
use temp_file::TempFile;

#[derive(Debug, Clone)]
enum Op {
    Set { key: u8, len: usize, exptime: i64 },
    Delete { key: u8 },
    Get { key: u8 },
    Hint { key: u8, location: u32 },
    Skip { seconds: u32 },
    Restart,
    Housekeep,
}

fn ops(len: impl Strategy<Value = usize> + Clone + 'static) -> impl Strategy<Value = Vec<Op>> {
    let exptime = prop_oneof![5 => Just(0i64), 1 => Just(-1), 3 => 1i64..20, 1 => Just(2_592_001)];
    let op = prop_oneof![
        6 => (0u8..30, len, exptime).prop_map(|(key, len, exptime)| Op::Set { key, len, exptime }),
        2 => (0u8..30).prop_map(|key| Op::Delete { key }),
        6 => (0u8..30).prop_map(|key| Op::Get { key }),
        2 => (0u8..30, prop_oneof![0u32..2_000, any::<u32>()])
            .prop_map(|(key, location)| Op::Hint { key, location }),
        1 => (1u32..8).prop_map(|seconds| Op::Skip { seconds }),
        1 => Just(Op::Housekeep),
        1 => Just(Op::Restart),
    ];
    prop::collection::vec(op, 1..400)
}

struct Entry {
    value: Vec<u8>,
    flags: u32,
    expiry: u32,
}

/// Keys of 1 to 250 bytes.
fn key_of(n: u8) -> Vec<u8> {
    vec![b'a' + n % 26; 1 + usize::from(n) * 249 / 29]
}

/// Runs `ops` on both. With `exact`, the store has room for everything and must forget nothing.
fn run(ops: Vec<Op>, memory_bytes: usize, exact: bool) {
    let hash_key = Some(*b"a fixed hash key");
    let config =
        StoreConfig { memory_bytes, hash_key, pages: Pages::Small, ..StoreConfig::default() };
    let file = TempFile::new();
    let (mut store, _) = Store::open(config.clone(), &file.0).unwrap();
    let mut s = store.session().unwrap();
    let mut model: HashMap<u8, Entry> = HashMap::new();
    for (i, op) in ops.into_iter().enumerate() {
        match op {
            Op::Set { key, len, exptime } => {
                let flags = u32::try_from(i).unwrap() * u32::from(key % 2);
                let value: Vec<u8> = (0..len).map(|b| (b + i).to_le_bytes()[0]).collect();
                let k = key_of(key);
                let outcome = set(&mut s, &base::Store::set(&k, flags, exptime, &value));
                let counted = 48 + k.len() + 1 + len + 2 + 8 + if flags == 0 { 0 } else { 4 };
                assert_eq!(outcome == Err(NotStored::TooLarge), counted > 1 << 20);
                assert!(outcome != Err(NotStored::OutOfMemory), "nobody else is looking");
                model.remove(&key);
                if outcome.is_ok() {
                    let expiry = store.clock().expiry(exptime);
                    model.insert(key, Entry { value, flags, expiry });
                }
            }
            Op::Delete { key } => {
                let was = model.remove(&key).is_some_and(|e| !store.clock().has_passed(e.expiry));
                let deleted = delete(&mut s, &key_of(key));
                assert!(if exact { deleted == was } else { was || !deleted });
            }
            Op::Get { key } => {
                let g = s.pin();
                let found = get(&g, &key_of(key));
                let live = model.get(&key).filter(|e| !store.clock().has_passed(e.expiry));
                match (found, live) {
                    (Some(item), Some(e)) => {
                        assert_eq!(
                            (item.value().whole(), item.flags()),
                            (Some(&e.value[..]), e.flags)
                        );
                    }
                    (Some(item), None) => panic!("{item:?} should be gone"),
                    (None, Some(_)) => assert!(!exact, "key {key} was lost"),
                    (None, None) => {}
                }
            }
            Op::Hint { key, location } => {
                let (g, k) = (s.pin(), key_of(key));
                store.prefetch_item(Location(location));
                if let Some(item) = g.verify(Location(location), &k) {
                    let e = &model[&key];
                    assert!(!store.clock().has_passed(e.expiry));
                    assert_eq!((item.key(), item.value().whole()), (&k[..], Some(&e.value[..])));
                }
            }
            Op::Skip { seconds } => store.clock().skip_ahead(seconds),
            Op::Housekeep => store.housekeep(),
            Op::Restart => {
                drop(s);
                store.close().unwrap();
                let (next, taken) = Store::open(config.clone(), &file.0).unwrap();
                assert!(matches!(taken, TakenUp::Kept(_)), "{taken:?}");
                store = next;
                s = store.session().unwrap();
            }
        }
    }
    let st = store.stats();
    assert!(!exact || st.evictions == 0);
    assert!(st.curr_items <= model.len() as u64);
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn agrees_with_a_map(ops in ops(prop_oneof![0usize..2_000, 0usize..20_000])) {
        run(ops, 64 << 20, true);
    }

    #[test]
    fn forgets_but_never_lies_when_memory_is_short(
        ops in ops(prop_oneof![4 => 0usize..2_000, 2 => 0usize..200_000, 1 => 900_000usize..1_100_000])
    ) {
        run(ops, 4 << 20, false);
    }
}
