//! Pages of classes that never move, and eviction in turn: the store against a model of both.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod helper;

use driver_shim::Pages;
use helper::{delete, set};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::restart::TakenUp;
use store::verbs::get;
use store::{Automove, Eviction, NotMoved, Session, SlabPages, Store, StoreConfig, StoreError};

mod temp_file;
use temp_file::TempFile;

const MB: usize = 1 << 20;

/// Chunk sizes and pages. A page has 2 MB.
const LAYOUT: [(usize, u32); 4] = [(512, 1), (1024, 2), (2048, 3), (65_536, 1)];

/// Value lengths of which one and no other class holds the items.
const LENGTHS: [usize; 4] = [400, 900, 1900, 3000];

/// Keys: twice as many as there are chunks.
const KEYS: u32 = 20_000;

fn config(eviction: Eviction) -> StoreConfig {
    StoreConfig {
        memory_bytes: 16 * MB,
        slab_pages: Some(SlabPages::new(LAYOUT).unwrap()),
        eviction,
        pages: Pages::Small,
        ..StoreConfig::default()
    }
}

/// A small generator (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(((self.0 >> 32) * u64::from(n)) >> 32).unwrap()
    }
}

/// A size class as the paper has it: slots, which of them are invalid, and where the round goes on.
struct Round {
    slots: Vec<Option<u32>>,
    invalid: BTreeSet<usize>,
    next: usize,
}

/// Which key lies where.
struct Model {
    classes: Vec<Round>,
    places: HashMap<u32, (usize, usize)>,
    evictions: u64,
}

impl Model {
    fn new() -> Self {
        let class = |(size, pages): (usize, u32)| {
            let slots = 2 * MB / size * pages as usize;
            Round { slots: vec![None; slots], invalid: (0..slots).collect(), next: 0 }
        };
        Self { classes: LAYOUT.map(class).into(), places: HashMap::new(), evictions: 0 }
    }

    /// The new item is written before the old one of its key is given up.
    fn set(&mut self, key: u32, class: usize) {
        let round = &mut self.classes[class];
        let invalid =
            round.invalid.range(round.next..).next().or_else(|| round.invalid.first()).copied();
        let slot = invalid.unwrap_or(round.next % round.slots.len());
        round.invalid.remove(&slot);
        if let Some(victim) = round.slots[slot].replace(key) {
            self.places.remove(&victim);
            self.evictions += 1;
        }
        round.next = slot + 1;
        if let Some(old) = self.places.insert(key, (class, slot)) {
            self.invalidate(old);
        }
    }

    fn delete(&mut self, key: u32) -> bool {
        let old = self.places.remove(&key);
        old.into_iter().for_each(|old| self.invalidate(old));
        old.is_some()
    }

    fn invalidate(&mut self, (class, slot): (usize, usize)) {
        self.classes[class].slots[slot] = None;
        self.classes[class].invalid.insert(slot);
    }
}

fn name(key: u32) -> Vec<u8> {
    format!("key-{key:06}").into_bytes()
}

fn put(s: &mut Session, key: u32, value: &[u8]) -> bool {
    set(s, &base::Store::set(&name(key), 0, 0, value)).is_ok()
}

fn is_there(s: &mut Session, key: u32) -> bool {
    get(&s.pin(), &name(key)).is_some()
}

fn assert_same_survivors(s: &mut Session, model: &Model) {
    for key in 0..KEYS {
        assert_eq!(is_there(s, key), model.places.contains_key(&key), "key {key}");
    }
    assert_eq!(s.store().stats().evictions, model.evictions);
}

#[test]
fn survivors_are_those_of_a_model_over_a_million_operations() {
    let store = Store::new(config(Eviction::RoundRobin)).unwrap();
    let mut s = store.session().unwrap();
    let (mut random, mut model) = (Random(7), Model::new());
    let value = vec![b'v'; 3000];
    for operation in 0..1_000_000 {
        let key = random.below(KEYS);
        match random.below(10) {
            0..5 => {
                let class = random.below(4) as usize;
                assert!(put(&mut s, key, &value[..LENGTHS[class]]));
                model.set(key, class);
            }
            5..9 => {
                assert_eq!(is_there(&mut s, key), model.places.contains_key(&key), "{operation}");
            }
            _ => assert_eq!(delete(&mut s, &name(key)), model.delete(key), "{operation}"),
        }
        // Whatever is done beside requests, it changes nothing.
        if operation % 5000 == 0 {
            store.housekeep();
        }
        if operation % 100_000 == 0 {
            assert_same_survivors(&mut s, &model);
        }
    }
    assert_same_survivors(&mut s, &model);
    assert!(model.evictions > 100_000, "{}", model.evictions);
    assert_pages(&store);
}

fn assert_pages(store: &Store) {
    let have = store.stats().classes.into_iter().map(|c| (c.chunk_size, c.total_pages));
    let want = LAYOUT.map(|(size, pages)| (size as u64, u64::from(pages)));
    assert_eq!(have.collect::<Vec<_>>(), want);
}

/// A full class does not take from others, and what is too large for all is refused.
#[test]
fn pages_stay_with_their_classes() {
    for eviction in [Eviction::Clock, Eviction::RoundRobin] {
        let store = Store::new(config(eviction)).unwrap();
        assert_pages(&store);
        let mut s = store.session().unwrap();
        let value = vec![b'v'; 100_000];
        for key in 0..KEYS {
            assert!(put(&mut s, key, &value[..900]));
        }
        assert!(put(&mut s, 0, &value[..60_000]));
        assert!(!put(&mut s, 0, &value));
        assert_eq!(store.reassign(2, 3), Err(NotMoved::NoSpare));
        assert!(store.set_limit_bytes(8 * MB).is_err());
        store.set_automove(Automove::Eager);
        (0..100).for_each(|_| store.housekeep());
        assert_pages(&store);
        store.flush(0);
        (0..100).for_each(|_| store.housekeep());
        assert_pages(&store);
        assert_eq!(store.stats().pages_moved, 0);
        let st = store.stats();
        assert_eq!((st.pages_total, st.pages_free, st.limit_maxbytes), (7, 0, 14 * MB as u64));
    }
}

#[test]
fn more_pages_than_memory_has_are_refused() {
    let config = StoreConfig { memory_bytes: 13 * MB, ..config(Eviction::Clock) };
    assert!(matches!(Store::new(config), Err(StoreError::SlabPages { pages: 7, .. })));
}

/// Where pages stay, so do items: a class whose chunks wait for a reader takes none of another class.
#[test]
fn a_reader_that_stalls_costs_no_other_class_its_items() {
    for eviction in [Eviction::Clock, Eviction::RoundRobin] {
        let layout = [(1024, 1), (65_536, 1)];
        let slab_pages = Some(SlabPages::new(layout).unwrap());
        let store = Store::new(StoreConfig { slab_pages, ..config(eviction) }).unwrap();
        let (mut reader, mut writer) = (store.session().unwrap(), store.session().unwrap());
        for key in 0..20 {
            assert!(put(&mut writer, key, &[b'v'; 3000]));
        }
        let pinned = reader.pin();
        let stored = (100..5000).filter(|key| put(&mut writer, *key, &[b'v'; 900])).count();
        assert!((2048..4900).contains(&stored), "{stored}, with {eviction:?}");
        drop(pinned);
        for key in 0..20 {
            assert!(is_there(&mut writer, key), "{key}, with {eviction:?}");
        }
        assert!(put(&mut writer, 5000, &[b'v'; 900]), "the reader has moved on");
    }
}

/// The only chunk of its class is the item's own: a longer one has no place, and the item stays.
#[test]
fn a_change_that_needs_a_second_chunk_of_one_is_refused() {
    let slab_pages = Some(SlabPages::new([(1024, 1), (2 * MB, 1)]).unwrap());
    let store = Store::new(StoreConfig { slab_pages, ..config(Eviction::RoundRobin) }).unwrap();
    let mut s = store.session().unwrap();
    assert!(put(&mut s, 1, &vec![b'v'; 600_000]));
    let (mode, key) = (base::StoreMode::Append, name(1));
    let longer = base::Store { mode, ..base::Store::set(&key, 0, 0, b"w") };
    assert!(set(&mut s, &longer).is_err());
    assert!(is_there(&mut s, 1));
    assert!(put(&mut s, 2, &vec![b'v'; 600_000]), "it may go for another");
    assert!(!is_there(&mut s, 1));
}

/// Classes without pages of their own from the start: they take what there is, and give it up to others.
#[test]
fn in_turn_where_pages_move() {
    let store = Store::new(StoreConfig {
        memory_bytes: 8 * MB,
        eviction: Eviction::RoundRobin,
        pages: Pages::Small,
        ..StoreConfig::default()
    });
    let store = store.unwrap();
    let mut s = store.session().unwrap();
    for (round, length) in (0..).zip([100, 5_000, 600_000, 100, 2_000, 40_000, 100]) {
        let value = vec![b'v'; length];
        for key in 0..40_000 * 100 / u32::try_from(length).unwrap() + 10 {
            assert!(put(&mut s, key, &value));
            assert!(is_there(&mut s, key), "{key} of {length} bytes");
            if key % 50 == 0 {
                store.housekeep();
            }
        }
        assert!(round == 0 || store.stats().evictions > 0);
    }
    assert!(store.stats().pages_moved > 0);
}

/// Items in several chunks go as a whole.
#[test]
fn in_turn_with_large_items() {
    let store = Store::new(StoreConfig {
        memory_bytes: 16 * MB,
        item_max_bytes: 8 * MB,
        slab_pages: Some(SlabPages::new([(64, 1), (512 << 10, 5)]).unwrap()),
        eviction: Eviction::RoundRobin,
        pages: Pages::Small,
        ..StoreConfig::default()
    });
    let store = store.unwrap();
    let mut s = store.session().unwrap();
    let value = vec![b'v'; 12 * MB];
    for key in 0..200 {
        let length = [3 * MB, 100, 400_000, 2 * MB, 10][key as usize % 5];
        assert!(put(&mut s, key, &value[..length]));
        assert_eq!(get(&s.pin(), &name(key)).unwrap().value().len(), length);
    }
    // More chunks than its class will ever have: refused at once.
    let begun = std::time::Instant::now();
    (0..20).for_each(|_| {
        assert!(put(&mut s, 0, &value[..7 * MB]));
    });
    let one = SlabPages::new([(64, 1), (512 << 10, 1)]).unwrap();
    let small =
        Store::new(StoreConfig { slab_pages: Some(one), ..store.config().clone() }).unwrap();
    let mut s = small.session().unwrap();
    (0..20).for_each(|_| {
        assert!(!put(&mut s, 0, &value[..3 * MB]));
    });
    assert!(begun.elapsed().as_secs() < 5);
}

/// Writers and readers of a full class: a value is whole, and a key's own.
#[test]
fn in_turn_beside_readers() {
    let store = Store::new(StoreConfig {
        slab_pages: Some(SlabPages::new([(1024, 1), (65_536, 4)]).unwrap()),
        ..config(Eviction::RoundRobin)
    });
    let store = store.unwrap();
    let stop = AtomicBool::new(false);
    let value_of = |key: u32, length: usize| vec![key.to_le_bytes()[0]; length];
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|which| {
                let mut s = Arc::clone(&store).session().unwrap();
                scope.spawn(move || {
                    let mut random = Random(which + 1);
                    for _ in 0..5_000 {
                        let key = random.below(4_000);
                        let length = if random.below(9) == 0 { 60_000 } else { 800 };
                        let value = value_of(key, length);
                        match random.below(8) {
                            0 => drop(delete(&mut s, &name(key))),
                            1 => {
                                let name = name(key);
                                let what = base::Store::set(&name, 0, 0, &value[..1]);
                                let mode = base::StoreMode::Append;
                                let _ = set(&mut s, &base::Store { mode, ..what });
                            }
                            _ => assert!(put(&mut s, key, &value), "there is always a victim"),
                        }
                    }
                })
            })
            .collect();
        let read = || {
            let mut s = store.session().unwrap();
            let mut random = Random(99);
            while !stop.load(Ordering::Relaxed) {
                let guard = s.pin();
                for _ in 0..4 {
                    let key = random.below(4_000);
                    if let Some(item) = get(&guard, &name(key)) {
                        let value = item.value().to_vec();
                        assert!(value.iter().all(|byte| *byte == key.to_le_bytes()[0]), "{key}");
                    }
                }
            }
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        for writer in writers {
            while !writer.is_finished() {
                store.housekeep();
                std::thread::yield_now();
            }
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    store.housekeep();
    let st = store.stats();
    // Nothing was lost on the way.
    for class in &st.classes {
        assert!(class.used_chunks > class.total_chunks / 2 && class.limbo_chunks == 0, "{class:?}");
        assert_eq!(class.curr_items, class.used_chunks);
    }
    let there = (0..4_000).filter(|key| is_there(&mut store.session().unwrap(), *key)).count();
    assert_eq!(there as u64, st.curr_items);
}

/// The next start goes on in a full class, and finds nothing where the pages are others.
#[test]
fn items_outlive_a_restart_with_the_same_pages() {
    let file = TempFile::new();
    let fill = |store: &Arc<Store>, from: u32| {
        let mut s = store.session().unwrap();
        for key in from..from + 3_000 {
            assert!(put(&mut s, key, &[b'v'; 1900]));
        }
    };
    // What was written by the other policy has pages that are not carved to their ends.
    let (store, _) = Store::open(config(Eviction::Clock), &file.0).unwrap();
    let mut s = store.session().unwrap();
    assert!(set(&mut s, &base::Store::set(b"one", 0, 0, b"")).is_ok());
    drop(s);
    store.close().unwrap();
    for kept in [1, 3_001] {
        let (store, taken) = Store::open(config(Eviction::RoundRobin), &file.0).unwrap();
        assert_eq!(taken, TakenUp::Kept(kept));
        assert_pages(&store);
        fill(&store, u32::try_from(kept).unwrap());
        assert_pages(&store);
        assert_eq!(store.stats().curr_items, 3_001 + (kept - 1) / 3_000 * 72);
        store.close().unwrap();
    }
    let pages = SlabPages::new([(512, 2), (1024, 2), (2048, 2), (65_536, 1)]).unwrap();
    let other = StoreConfig { slab_pages: Some(pages), ..config(Eviction::RoundRobin) };
    let (_, taken) = Store::open(other, &file.0).unwrap();
    assert!(matches!(taken, TakenUp::Discarded(_)), "{taken:?}");
}
