//! What clients with a mapping of the memory file see: places of items, and the words that say whether they hold.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod helper;
#[allow(dead_code)]
mod temp_file;

use base::memory_file::Place;
use driver_shim::Pages;
use helper::{delete, set};
use std::fs::{File, copy};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use store::{PAGE_BYTES, Session, Store, StoreConfig, verbs};
use temp_file::TempFile;

const LEAD: u64 = 2 << 20;

/// The words, as docs/shared-reads.md has them.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    generation: u64,
    clock: u64,
    flushed: u64,
    ask: u64,
}

fn config(shared_reads: bool) -> StoreConfig {
    let memory_bytes = 8 * PAGE_BYTES;
    StoreConfig { memory_bytes, shared_reads, pages: Pages::Small, ..StoreConfig::default() }
}

fn open(path: &Path, shared_reads: bool) -> (Arc<Store>, Session) {
    let (store, _) = Store::open(config(shared_reads), path).unwrap();
    let session = store.session().unwrap();
    (store, session)
}

fn bytes<const N: usize>(path: &Path, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    File::open(path).unwrap().read_exact_at(&mut bytes, at).unwrap();
    bytes
}

fn words(path: &Path) -> Words {
    let word = |n: u64| u64::from_ne_bytes(bytes(path, 0x14_0000 + 8 * n));
    Words { generation: word(0), clock: word(1), flushed: word(2), ask: word(3) }
}

/// How often the page of this place has left a class.
fn left(path: &Path, place: &Place) -> u32 {
    u32::from_ne_bytes(bytes(path, 0x18_0000 + 4 * ((place.offset - LEAD) / PAGE_BYTES as u64)))
}

fn put(s: &mut Session, key: &str, value: &[u8]) {
    assert!(set(s, &base::Store::set(key.as_bytes(), 7, 0, value)).is_ok());
}

fn place(s: &mut Session, key: &str) -> Option<Place> {
    let hash = s.store().hash(key.as_bytes());
    s.pin().place(hash, key.as_bytes())
}

/// State, number and key of what lies there.
fn lies(path: &Path, place: &Place) -> (u8, u64, Vec<u8>) {
    let header: [u8; 32] = bytes(path, place.offset);
    let key: [u8; 3] = bytes(path, place.offset + 32);
    (header[0], u64::from_ne_bytes(*header[16..].first_chunk().unwrap()), key.to_vec())
}

#[test]
fn an_item_lies_where_its_place_says_until_it_is_hidden() {
    let file = TempFile::new();
    let (store, mut s) = open(&file.0, true);
    assert!(store.has_places() && place(&mut s, "sun").is_none());
    put(&mut s, "sun", b"shine");
    let first = place(&mut s, "sun").unwrap();
    assert_eq!(lies(&file.0, &first), (2, first.number, b"sun".to_vec()));
    assert_eq!((first.left, first.generation), (0, words(&file.0).generation));
    // Each way to end it hides it before the call returns, or says that it is to be asked for.
    put(&mut s, "sun", b"dusk");
    assert_eq!(lies(&file.0, &first).0, 3, "replaced");
    let second = place(&mut s, "sun").unwrap();
    assert!(second.number > first.number);
    assert!(verbs::touch(&s.pin(), None, b"sun", 100, |_| true).unwrap().is_some());
    assert_eq!(place(&mut s, "sun"), Some(second), "another expiry time moves nothing");
    assert!(delete(&mut s, b"sun"));
    assert_eq!((lies(&file.0, &second).0, place(&mut s, "sun")), (3, None), "deleted");
    // A large one has no place.
    let large = StoreConfig { item_max_bytes: 8 << 20, ..config(true) };
    let other = TempFile::new();
    let mut s = Store::open(large, &other.0).unwrap().0.session().unwrap();
    put(&mut s, "sun", &vec![0; 2 << 20]);
    assert_eq!(place(&mut s, "sun"), None);
    // Without the flag, or a file, there are no places.
    let (plain, third) = (Store::new(config(true)).unwrap(), TempFile::new());
    let mut s = plain.session().unwrap();
    put(&mut s, "sun", b"shine");
    assert!(!plain.has_places() && place(&mut s, "sun").is_none());
    let (store, _) = open(&third.0, false);
    assert!(!store.has_places() && words(&third.0).generation == 0);
}

#[test]
fn flushes_and_the_clock_are_said() {
    let file = TempFile::new();
    let (store, mut s) = open(&file.0, true);
    put(&mut s, "a:sun", b"shine");
    let sun = place(&mut s, "a:sun").unwrap();
    store.flush_prefix(b"a").unwrap();
    assert!(words(&file.0).ask >= sun.number && place(&mut s, "a:sun").is_none());
    // When no item is left of what was flushed, all others may be read again.
    for _ in 0..3 {
        store.clock().skip_ahead(1);
        (0..200).for_each(|_| store.housekeep());
    }
    assert_eq!((words(&file.0).ask, lies(&file.0, &sun).0 != 2), (0, true));
    put(&mut s, "sun", b"shine");
    let sun = place(&mut s, "sun").unwrap();
    store.flush(2);
    assert!(words(&file.0).flushed < sun.number);
    store.clock().skip_ahead(2);
    store.housekeep();
    assert!(words(&file.0).flushed >= sun.number && place(&mut s, "sun").is_none());
    put(&mut s, "sun", b"shine");
    assert!(words(&file.0).flushed < place(&mut s, "sun").unwrap().number);
    store.flush(0);
    assert!(words(&file.0).flushed >= sun.number && place(&mut s, "sun").is_none());
    store.clock().skip_ahead(100);
    store.housekeep();
    assert_eq!(words(&file.0).clock, u64::from(store.now()));
}

#[test]
fn an_item_that_moves_leaves_a_page_that_is_never_taken_for_the_same() {
    let file = TempFile::new();
    let (store, mut s) = open(&file.0, true);
    let value = vec![1; 10_000];
    for n in 0..400 {
        put(&mut s, &format!("key-{n}"), &value);
    }
    let keys: Vec<String> = (0..400).map(|n| format!("key-{n}")).collect();
    let before: Vec<Option<Place>> = keys.iter().map(|key| place(&mut s, key)).collect();
    let class = i32::try_from(store.class_for(5, 10_000, false).unwrap() + 1).unwrap();
    assert_eq!(store.reassign(class, 0), Ok(()));
    for _ in 0..10_000 {
        store.housekeep();
        if store.stats().pages_moved == 1 {
            break;
        }
    }
    assert_eq!(store.stats().pages_moved, 1);
    let mut moved = 0;
    for (key, before) in keys.iter().zip(before) {
        let (Some(before), Some(now)) = (before, place(&mut s, key)) else { continue };
        assert_eq!(now.number, before.number);
        if now.offset != before.offset {
            moved += 1;
            assert!(left(&file.0, &before) > before.left, "the page has left since");
            assert_ne!(lies(&file.0, &before).0, 2);
        } else {
            assert_eq!((left(&file.0, &before), now), (before.left, before));
        }
    }
    assert!(moved > 20, "{moved}");
}

#[test]
fn a_file_is_named_anew_by_each_start_and_by_none_at_the_end() {
    let file = TempFile::new();
    let (store, mut s) = open(&file.0, true);
    put(&mut s, "sun", b"shine");
    let first = place(&mut s, "sun").unwrap();
    let unclean = TempFile::new();
    copy(&file.0, &unclean.0).unwrap();
    drop(s);
    assert_eq!(store.close().unwrap(), Some(1));
    assert_eq!(words(&file.0).generation, 0);
    let (store, mut s) = open(&file.0, true);
    let second = place(&mut s, "sun").unwrap();
    assert_eq!((second.offset, second.number), (first.offset, first.number));
    assert!(second.generation != first.generation && words(&file.0).flushed < second.number);
    // What was flushed before the end stays so.
    store.flush(0);
    let flushed = words(&file.0).flushed;
    put(&mut s, "sun", b"again");
    drop(s);
    store.close().unwrap();
    let (store, mut s) = open(&file.0, true);
    assert_eq!(words(&file.0).flushed, flushed);
    assert!(place(&mut s, "sun").is_some_and(|sun| sun.number > flushed));
    // A process that ends without a word, as far as it says a word, and one that could not.
    drop((s, store));
    assert_eq!(words(&file.0).generation, 0);
    assert_eq!(words(&unclean.0).generation, first.generation);
    let fewer = StoreConfig { memory_bytes: 4 * PAGE_BYTES, ..config(false) };
    drop(Store::open(fewer, &unclean.0).unwrap());
    assert_eq!(words(&unclean.0).generation, 0, "by whatever start comes next");
}
