//! Stores that end and begin again over one memory file.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod helper;

use driver_shim::Pages;
use helper::{delete, set};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use store::restart::{CloseError, TakenUp, Unusable};
use store::verbs::get;
use store::{Session, Store, StoreConfig};

#[allow(dead_code)]
#[path = "../../../fuzz/bodies/restart.rs"]
mod body;
use body::{ENTRIES, LEAD_BYTES, TempFile, config, pristine, reseal};

fn open(config: StoreConfig, path: &Path) -> (Arc<Store>, TakenUp) {
    Store::open(config, path).unwrap()
}

fn put(s: &mut Session, key: &[u8], flags: u32, exptime: i64, value: &[u8]) {
    assert!(set(s, &base::Store::set(key, flags, exptime, value)).is_ok());
}

/// Why the items of this image of a file are not recovered; panics when they are.
fn discarded(image: &[u8]) -> Unusable {
    let file = TempFile::new();
    std::fs::write(&file.0, image).unwrap();
    let (store, taken) = open(config(), &file.0);
    assert_eq!(store.stats().curr_items, 0);
    match taken {
        TakenUp::Discarded(why) => why,
        other => panic!("{other:?}"),
    }
}

#[derive(Debug, PartialEq)]
struct Kept {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    expiry: u32,
}

fn everything(s: &mut Session, n: u32) -> HashMap<u32, Kept> {
    let look = |n: u32| {
        let guard = s.pin();
        let item = get(&guard, &key(n))?;
        let kept = Kept {
            value: item.value().to_vec(),
            flags: item.flags(),
            cas: item.cas(),
            expiry: item.expiry(),
        };
        Some((n, kept))
    };
    (0..n).filter_map(look).collect()
}

fn key(n: u32) -> Vec<u8> {
    format!("{n}-{}", "k".repeat((n % 240) as usize)).into_bytes()
}

/// Mostly small values, some of every size up to the limit.
fn len(n: u32) -> usize {
    match n % 1000 {
        0 => (n as usize * 7919) % 6_000_000,
        1..30 => (n as usize * 31) % 20_000,
        _ => (n as usize * 17) % 400,
    }
}

#[test]
fn tens_of_thousands_of_items_of_all_sizes_come_back_twice() {
    const ITEMS: u32 = 30_000;
    let config = StoreConfig {
        memory_bytes: 256 << 20,
        item_max_bytes: 8 << 20,
        pages: Pages::Small,
        ..StoreConfig::default()
    };
    let file = TempFile::new();
    let (store, taken) = open(config.clone(), &file.0);
    assert_eq!(taken, TakenUp::New);
    let mut s = store.session().unwrap();
    for n in 0..ITEMS {
        let value: Vec<u8> = n.to_le_bytes().into_iter().cycle().take(len(n)).collect();
        put(&mut s, &key(n), n, if n % 3 == 0 { 1000 + i64::from(n) } else { 0 }, &value);
    }
    for n in (0..ITEMS).step_by(5) {
        assert!(delete(&mut s, &key(n)));
    }
    for n in (1..ITEMS).step_by(7) {
        put(&mut s, &key(n), n, 0, b"again");
    }
    // Some under CAS ids of their clients' own, which say nothing of when they were stored.
    for n in (3..ITEMS).step_by(9) {
        let (key, value) = (key(n), n.to_le_bytes().repeat(len(n) / 4));
        let own_cas = Some(n.into());
        let what = base::Store { own_cas, ..base::Store::set(&key, n, 0, &value) };
        assert_eq!(set(&mut s, &what), Ok(n.into()));
    }
    let before = everything(&mut s, ITEMS);
    let (st, now) = (store.stats(), store.now());
    assert!(before.len() > 24_000 && st.evictions == 0, "{st:?}");
    drop(s);
    assert_eq!(store.close().unwrap(), Some(before.len() as u64));

    let mut last_cas = before.values().map(|k| k.cas).max().unwrap();
    for round in 0..2u32 {
        let (store, taken) = open(config.clone(), &file.0);
        let expected = before.len() as u64 + u64::from(round);
        assert_eq!(taken, TakenUp::Kept(expected));
        assert!((now..now + 1000).contains(&store.now()), "the clock goes on");
        let after = store.stats();
        assert_eq!((after.curr_items, after.total_items), (expected, expected));
        assert_eq!((after.pages_free, after.limbo_chunks), (st.pages_free, 0));
        let mut s = store.session().unwrap();
        assert!(everything(&mut s, ITEMS) == before, "value, flags, CAS id, time of expiry");
        put(&mut s, format!("new-{round}").as_bytes(), 0, 0, b"new");
        let cas = get(&s.pin(), format!("new-{round}").as_bytes()).unwrap().cas();
        assert!(cas > last_cas, "no CAS id is given twice");
        last_cas = cas;
        drop(s);
        store.close().unwrap();
    }
}

/// As if the process had been down for so many seconds.
fn closed_earlier(image: &[u8], seconds: u64) -> Vec<u8> {
    let mut image = image.to_vec();
    let at = image[48..56].try_into().map(u64::from_le_bytes).unwrap();
    image[48..56].copy_from_slice(&(at.wrapping_sub(seconds)).to_le_bytes());
    reseal(&mut image);
    image
}

#[test]
fn time_goes_on_while_it_is_down() {
    let file = TempFile::new();
    std::fs::write(&file.0, closed_earlier(pristine(), 1_500_000)).unwrap();
    let (store, taken) = open(config(), &file.0);
    // `another` had 1,000,000 seconds, `expires` 2,000,000.
    assert_eq!(taken, TakenUp::Kept(5));
    assert!(store.now() >= 1_500_000);
    let mut s = store.session().unwrap();
    assert!(get(&s.pin(), b"another").is_none() && get(&s.pin(), b"expires").is_some());
    put(&mut s, b"soon", 0, 1000, b"");
    put(&mut s, b"late", 0, 5000, b"");
    drop(s);
    store.close().unwrap();
    let image = closed_earlier(&std::fs::read(&file.0).unwrap(), 3600);
    std::fs::write(&file.0, image).unwrap();
    let (store, taken) = open(config(), &file.0);
    assert_eq!(taken, TakenUp::Kept(6));
    let mut s = store.session().unwrap();
    assert!(get(&s.pin(), b"soon").is_none());
    let left = get(&s.pin(), b"late").unwrap().expiry() - store.now();
    assert!((1300..=1401).contains(&left), "{left} seconds left of 1400");
    store.clock().skip_ahead(left);
    store.housekeep();
    assert_eq!(store.stats().curr_items, 5, "the sweeper knows that there is something to sweep");
}

#[test]
fn what_was_flushed_stays_dead() {
    let file = TempFile::new();
    std::fs::write(&file.0, pristine()).unwrap();
    let (store, _) = open(config(), &file.0);
    let mut s = store.session().unwrap();
    store.flush(0);
    put(&mut s, b"after", 0, 0, b"");
    drop(s);
    store.close().unwrap();
    let (store, taken) = open(config(), &file.0);
    assert_eq!(taken, TakenUp::Kept(1));
    let mut s = store.session().unwrap();
    assert!(get(&s.pin(), b"k").is_none() && get(&s.pin(), b"after").is_some());
    // To come, and not while it is down; and then while it is.
    store.flush(1000);
    drop(s);
    store.close().unwrap();
    let (store, taken) = open(config(), &file.0);
    assert_eq!(taken, TakenUp::Kept(1));
    store.clock().skip_ahead(900);
    store.close().unwrap();
    let image = closed_earlier(&std::fs::read(&file.0).unwrap(), 200);
    std::fs::write(&file.0, image).unwrap();
    let (store, taken) = open(config(), &file.0);
    assert_eq!(taken, TakenUp::Kept(0));
    let mut s = store.session().unwrap();
    put(&mut s, b"later", 0, 0, b"");
    store.clock().skip_ahead(1000);
    store.housekeep();
    assert!(get(&s.pin(), b"later").is_some(), "it was done once");
}

#[test]
fn a_system_clock_that_was_set_changes_little() {
    let back = closed_earlier(pristine(), 10_000_000u64.wrapping_neg());
    let file = TempFile::new();
    std::fs::write(&file.0, back).unwrap();
    let (store, taken) = open(config(), &file.0);
    assert_eq!(taken, TakenUp::Kept(6), "no time has passed");
    assert!(get(&store.session().unwrap().pin(), b"another").is_some());
    let mut image = pristine().to_vec();
    image[48..56].copy_from_slice(&0u64.to_le_bytes());
    image[44..48].copy_from_slice(&(u32::MAX / 2).to_le_bytes());
    reseal(&mut image);
    assert_eq!(discarded(&image), Unusable::Clock);
}

#[test]
fn other_settings_discard() {
    let file = TempFile::new();
    for other in [
        StoreConfig { memory_bytes: 6 << 20, ..config() },
        StoreConfig { item_max_bytes: 1 << 19, ..config() },
        StoreConfig { growth_factor: 1.25, ..config() },
        StoreConfig { chunk_min_bytes: 500, ..config() },
    ] {
        std::fs::write(&file.0, pristine()).unwrap();
        let (store, taken) = open(other, &file.0);
        let TakenUp::Discarded(why) = taken else { panic!("{taken:?}") };
        let said = why.to_string();
        assert!(said.contains("made with -m 4 -I 1048576 -f 2 (-n, --slab-pages: "), "{said}");
        let mut s = store.session().unwrap();
        put(&mut s, b"x", 0, 0, b"y");
        drop(s);
        // And back: what the other one left is not taken either.
        store.close().unwrap();
        let (store, taken) = open(config(), &file.0);
        assert!(matches!(taken, TakenUp::Discarded(Unusable::Settings { .. })), "{taken:?}");
        assert_eq!(store.stats().curr_items, 0);
    }
    // What may differ.
    std::fs::write(&file.0, pristine()).unwrap();
    let other = StoreConfig { evict: false, pages: Pages::Prefer, sessions_max: 1, ..config() };
    assert!(matches!(open(other, &file.0).1, TakenUp::Kept(_)));
}

#[test]
fn each_bit_of_the_metadata_counts() {
    let file = TempFile::new();
    let mut discards = 0;
    // The header, two entries, the checksum.
    for at in 0..ENTRIES + 2 * 8 + 4 {
        for bit in 0..8 {
            let mut image = pristine().to_vec();
            image[at] ^= 1 << bit;
            std::fs::write(&file.0, &image).unwrap();
            match Store::open(config(), &file.0) {
                // Not ours, by its first bytes.
                Err(e) => assert!(at < 8 && e.to_string().contains("something else"), "{e}"),
                Ok((store, TakenUp::Discarded(_))) => {
                    discards += 1;
                    assert_eq!(store.stats().curr_items, 0);
                }
                Ok((_, taken)) => panic!("byte {at}, bit {bit}: {taken:?}"),
            }
        }
    }
    assert_eq!(discards, (ENTRIES + 20 - 8) * 8);
}

#[test]
fn each_bit_of_an_item_counts() {
    // The first item, and the first one of the next page.
    for (start, step) in [(LEAD_BYTES, 1), (LEAD_BYTES + (2 << 20), 7)] {
        for bit in (0..64 * 8).step_by(step) {
            let mut image = pristine().to_vec();
            image[start + bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(discarded(&image), Unusable::Damaged(_)));
        }
    }
}

/// Up to eight changes at random places of the metadata and the pages, the checksums made right
/// in every second file: discarded whole, or what is served is right, and never a crash.
#[test]
fn ten_thousand_corrupted_files_do_no_harm() {
    let mut state = 1u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()
    };
    for n in 0..10_000u32 {
        let [changes, one_length_in_eight, ..] = random();
        let mut input = vec![(n & 1) as u8 | u8::from(one_length_in_eight < 32) << 1];
        if one_length_in_eight < 32 {
            let [a, b, c, ..] = random();
            input.extend([a % 97, b, c]);
        }
        for _ in 0..=changes % 8 {
            let ([where_to, near, ..], [a, b, flip, ..]) = (random(), random());
            // Most of what there is lies at the beginning of each page.
            let far = if near < 224 { [0, a % 2, b] } else { [near, a, b] };
            input.extend([where_to, far[0], far[1], far[2], flip.max(1)]);
        }
        body::run_of_many(&input, 64, 16);
    }
}

#[test]
fn what_no_store_writes_is_discarded_for_all_its_checksums() {
    let first = LEAD_BYTES;
    for (what, at, bytes) in [
        ("a key that leaves its chunk", first + 2, &[250][..]),
        ("no key", first + 2, &[0]),
        ("a key too long", first + 2, &[255]),
        ("a value that leaves its chunk", first + 4, &[34]),
        ("a value that leaves the store", first + 4, &[255, 255, 255, 255]),
        ("no CAS id", first + 16, &[0]),
        ("a CAS id to come", first + 16, &[7]),
        ("a key that is there twice", first + 2 * 64 + 32, b"a"),
        ("a class that is none", ENTRIES + 3, &[100]),
        ("more chunks than a page has", ENTRIES, &[1, 0x80, 0]),
        ("flushed items to come", 64, &[7]),
    ] {
        let mut image = pristine().to_vec();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        reseal(&mut image);
        assert!(matches!(discarded(&image), Unusable::Damaged(_)), "{what}");
    }
}

/// With few sizes a large value's chunk is a page, and some large values need no other.
#[test]
fn a_large_item_in_one_chunk_is_kept() {
    let config = StoreConfig {
        memory_bytes: 12 << 20,
        item_max_bytes: 4 << 20,
        growth_factor: 7.0,
        ..config()
    };
    let file = TempFile::new();
    let (store, _) = open(config.clone(), &file.0);
    let mut s = store.session().unwrap();
    let value = vec![0x7f; (2 << 20) - 60];
    put(&mut s, b"huge", 0, 0, &value);
    drop(s);
    store.close().unwrap();
    let (store, taken) = open(config, &file.0);
    assert_eq!(taken, TakenUp::Kept(1));
    let mut s = store.session().unwrap();
    assert!(get(&s.pin(), b"huge").unwrap().value() == &value[..]);
    assert!(delete(&mut s, b"huge"));
}

/// A value that lies in several chunks.
#[test]
fn the_parts_of_a_large_item_are_its_own() {
    let config = StoreConfig { memory_bytes: 12 << 20, item_max_bytes: 4 << 20, ..config() };
    let file = TempFile::new();
    let (store, _) = open(config.clone(), &file.0);
    let mut s = store.session().unwrap();
    let value: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251).to_le_bytes()[0]).collect();
    put(&mut s, b"huge", 0, 0, &value);
    put(&mut s, b"other", 0, 0, &value);
    drop(s);
    store.close().unwrap();
    let image = std::fs::read(&file.0).unwrap();
    let reopen = |image: &[u8]| {
        std::fs::write(&file.0, image).unwrap();
        let (store, taken) = open(config.clone(), &file.0);
        let mut s = store.session().unwrap();
        let there = get(&s.pin(), b"huge").is_some_and(|item| item.value() == &value[..]);
        (taken, there)
    };
    assert_eq!(reopen(&image), (TakenUp::Kept(2), true));
    let with_key = |key: &[u8]| {
        let chunks = (LEAD_BYTES..image.len()).step_by(64);
        chunks.into_iter().find(|at| image[*at] == 2 && image[at + 32..].starts_with(key)).unwrap()
    };
    let (item, other) = (with_key(b"huge"), with_key(b"other"));
    let number = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let list = item + 32 + 4;
    let n_parts = number(list) as usize;
    assert_eq!(n_parts, 5);
    let place = |n: usize| list + 8 + 4 * n;
    let part = item.wrapping_add_signed(number(place(0)).cast_signed() as isize * 64);
    let others_part = number(other + 32 + 5 + 8).cast_signed() as isize * 64;
    let stolen = (other.wrapping_add_signed(others_part).cast_signed() - item.cast_signed()) / 64;
    let word = |n: usize| u32::try_from(n).unwrap();
    for (what, at, number) in [
        ("a part twice", place(1), number(place(0))),
        ("another item's part", place(1), i32::try_from(stolen).unwrap().cast_unsigned()),
        ("itself", place(1), 0),
        ("no chunk", place(1), 1),
        ("outside", place(1), 1 << 30),
        ("fewer parts", list, word(n_parts - 1)),
        ("no parts", list, 0),
        ("parts without end", list, u32::MAX),
        ("more here than there is room for", list + 4, 1 << 20),
        ("less here", list + 4, 7),
        ("a longer part", part + 4, 1 << 20),
        ("a part too long for its chunk", part + 4, u32::MAX),
        ("a part of nobody", part + 8, 3),
        ("a part that is free", part, 0),
        ("a longer value", item + 4, 3_000_001),
        ("as long as it goes", item + 4, u32::MAX),
    ] {
        let mut image = image.clone();
        image[at..at + 4].copy_from_slice(&number.to_le_bytes());
        reseal(&mut image);
        let (taken, there) = reopen(&image);
        assert!(matches!(taken, TakenUp::Discarded(Unusable::Damaged(_))), "{what}: {taken:?}");
        assert!(!there);
    }
    // Parts whose item is gone are free again.
    let mut orphans = image;
    orphans[item] = 3;
    reseal(&mut orphans);
    std::fs::write(&file.0, &orphans).unwrap();
    let (store, taken) = open(config.clone(), &file.0);
    assert_eq!(taken, TakenUp::Kept(1));
    let mut s = store.session().unwrap();
    delete(&mut s, b"other");
    (0..3).for_each(|_| store.housekeep());
    let used: u64 = store.stats().classes.iter().map(|c| c.used_chunks).sum();
    assert_eq!((used, store.stats().bytes), (0, 0));
}

#[test]
fn a_flushed_prefix_stays_dead() {
    for is_sweeper_on in [true, false] {
        let file = TempFile::new();
        let (store, _) = open(config(), &file.0);
        let mut s = store.session().unwrap();
        put(&mut s, b"user:1", 0, 0, b"");
        store.set_sweeper(is_sweeper_on);
        store.flush_prefix(b"user").unwrap();
        put(&mut s, b"user:2", 0, 0, b"");
        drop(s);
        assert_eq!(store.close().unwrap(), Some(1));
        let (store, taken) = open(config(), &file.0);
        assert_eq!(taken, TakenUp::Kept(1));
        assert!(get(&store.session().unwrap().pin(), b"user:2").is_some());
    }
}

#[test]
fn a_cut_file_is_discarded() {
    let whole = pristine();
    assert_eq!(whole.len(), 6 << 20);
    let edges = [8, 9, 75, 76, 77, 91, 92, 95, 96, 4096, LEAD_BYTES - 1, LEAD_BYTES];
    let more = (1..48).map(|n| n * whole.len() / 48 + n);
    for len in edges.into_iter().chain(more) {
        discarded(&whole[..len]);
    }
    let longer = [whole, b"x"].concat();
    assert!(matches!(discarded(&longer), Unusable::Length { is: 6_291_457, should: 6_291_456 }));
    let file = TempFile::new();
    std::fs::write(&file.0, &whole[..7]).unwrap();
    assert!(Store::open(config(), &file.0).is_err(), "too little to be known for ours");
    std::fs::write(&file.0, b"").unwrap();
    assert_eq!(open(config(), &file.0).1, TakenUp::New);
}

#[test]
fn an_unclean_end_discards() {
    let file = TempFile::new();
    for _ in 0..2 {
        std::fs::write(&file.0, pristine()).unwrap();
        let (store, taken) = open(config(), &file.0);
        assert!(matches!(taken, TakenUp::Kept(_)));
        drop(store);
        let (store, taken) = open(config(), &file.0);
        assert_eq!(taken, TakenUp::Discarded(Unusable::Unclean));
        assert_eq!(store.stats().curr_items, 0);
    }
}

#[test]
fn another_release_is_told_from_damage() {
    let mut image = pristine().to_vec();
    image[8] = 1;
    let why = discarded(&image);
    assert_eq!(why, Unusable::Version(1));
    assert!(why.to_string().contains("format 1 and this release has format 2"));
}

#[test]
fn nobody_elses_file_is_touched() {
    let file = TempFile::new();
    for foreign in [&b"#!/bin/sh\n"[..], &[0; 1 << 16], b"gnomonM"] {
        std::fs::write(&file.0, foreign).unwrap();
        let e = Store::open(config(), &file.0).unwrap_err().to_string();
        assert!(e.contains("something else") && e.contains("remove it"), "{e}");
        assert_eq!(std::fs::read(&file.0).unwrap(), foreign);
    }
    let refuse = |path: &str| Store::open(config(), Path::new(path)).unwrap_err().to_string();
    assert!(refuse("/").contains("not a regular file"));
    assert!(refuse("/dev/null").contains("not a regular file"));
    assert!(refuse("/nowhere/at/all").contains("its directory must be there"));
}

#[test]
fn items_in_a_file_without_its_name_are_lost() {
    type Meanwhile = fn(&Path) -> std::io::Result<()>;
    let replaced: Meanwhile = |path| {
        std::fs::rename(path, path.with_extension("old"))?;
        std::fs::write(path, b"of somebody else")
    };
    for meanwhile in [(|path| std::fs::remove_file(path)) as Meanwhile, replaced] {
        let file = TempFile::new();
        let (store, _) = open(config(), &file.0);
        put(&mut store.session().unwrap(), b"k", 0, 0, b"v");
        meanwhile(&file.0).unwrap();
        let why = store.close().unwrap_err().to_string();
        assert!(why.contains("removed, replaced or unmounted"), "{why}");
        let _ = std::fs::remove_file(file.0.with_extension("old"));
    }
}

#[test]
fn one_store_a_file() {
    let file = TempFile::new();
    let (store, _) = open(config(), &file.0);
    let e = Store::open(config(), &file.0).unwrap_err().to_string();
    assert!(e.contains("another process uses it"), "{e}");
    drop(store);
    open(config(), &file.0);
}

#[test]
fn a_store_in_use_is_not_closed() {
    let file = TempFile::new();
    let (store, _) = open(config(), &file.0);
    let s = store.session().unwrap();
    assert!(matches!(store.close(), Err(CloseError::InUse)));
    drop(s);
    assert_eq!(open(config(), &file.0).1, TakenUp::Discarded(Unusable::Unclean));
    let plain = Store::new(config()).unwrap();
    assert_eq!(plain.close().unwrap(), None, "there is no file");
}

#[test]
fn a_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let file = TempFile::new();
    open(config(), &file.0);
    assert_eq!(std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
}
