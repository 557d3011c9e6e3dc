//! Several threads on few keys in very little memory, so that chunks and pages change hands all
//! the time. Every value says whose it is and where it ends; a torn, stale or foreign byte shows.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod helper;

use driver_shim::Pages;
use helper::{delete, set};
use scopeguard::{defer, guard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::restart::TakenUp;
use store::verbs::get;
use store::{ItemRef, Location, Session, Store, StoreConfig, StoreStats};

mod temp_file;
use temp_file::TempFile;

const KEYS: u32 = 200;
const HEAD_BYTES: usize = 12;

/// A small generator (xorshift64): reproducible, and quicker than what it tests.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u32) -> u32 {
        u32::try_from(((self.next() >> 32) * u64::from(n)) >> 32).unwrap()
    }
}

fn key(n: u32) -> Vec<u8> {
    // Keys of different lengths, some a prefix of others.
    format!("k{n}{}", "x".repeat((n % 40) as usize)).into_bytes()
}

fn fill_byte(n: u32, round: u64) -> u8 {
    (u64::from(n) * 31 + round * 17).to_le_bytes()[0] | 1
}

/// Key number, round, and then one and the same byte to the end.
fn write_value(buf: &mut Vec<u8>, n: u32, round: u64, len: usize) {
    buf.clear();
    buf.extend_from_slice(&n.to_le_bytes());
    buf.extend_from_slice(&round.to_le_bytes());
    buf.resize(HEAD_BYTES + len, fill_byte(n, round));
}

/// Checks the item byte by byte and gives its round.
fn check(item: &ItemRef<'_>, n: u32) -> u64 {
    assert_eq!(item.key(), key(n));
    let large;
    let value = match item.value().whole() {
        Some(whole) => whole,
        None => {
            large = item.value().to_vec();
            &large[..]
        }
    };
    assert_eq!(value[..4], n.to_le_bytes(), "a foreign value");
    let round = u64::from_le_bytes(value[4..HEAD_BYTES].try_into().unwrap());
    assert_eq!(item.flags(), n ^ u32::try_from(round & 0xffff).unwrap());
    let fill = fill_byte(n, round);
    assert!(value[HEAD_BYTES..].iter().all(|b| *b == fill), "torn: key {n} round {round}");
    let words = value.chunks(2).map(|p| u64::from(p[0]) << 8 | u64::from(*p.get(1).unwrap_or(&0)));
    let sum = if item.value().whole().is_some() { words.sum::<u64>() % 0xffff } else { 0 };
    assert_eq!(u64::from(item.value_sum()) % 0xffff, sum, "the sum is of another value");
    round
}

fn write(s: &mut Session, buf: &mut Vec<u8>, n: u32, round: u64, len: usize) -> bool {
    write_value(buf, n, round, len);
    let flags = n ^ u32::try_from(round & 0xffff).unwrap();
    set(s, &base::Store::set(&key(n), flags, 0, buf)).is_ok()
}

/// Writes its own keys, with rising rounds, and deletes some.
fn writer(store: &Arc<Store>, which: u32, rounds: Range<u64>, largest: u32, refused: &AtomicU64) {
    let mut s = store.session().unwrap();
    let (mut random, mut buf) = (Random(0x9e37 + u64::from(which)), Vec::new());
    for round in rounds {
        let n = random.below(KEYS / 2) * 2 + which;
        let len = match random.below(100) {
            0 => 200_000 + random.below(largest - 200_000),
            1..10 => random.below(20_000),
            _ => random.below(900),
        };
        if random.below(5) == 0 {
            delete(&mut s, &key(n));
            assert!(get(&s.pin(), &key(n)).is_none(), "deleted by its only writer");
        } else if write(&mut s, &mut buf, n, round, len as usize) {
            // It may have been evicted already; if not, it is this one.
            if let Some(item) = get(&s.pin(), &key(n)) {
                assert_eq!(check(&item, n), round, "one's own write");
            }
        } else {
            assert!(get(&s.pin(), &key(n)).is_none(), "a failed set forgets");
            refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reads by key, by proposal, by old hints and by random numbers. What it sees of a key never
/// goes back in time, whichever way it asks.
fn reader(store: &Arc<Store>, seed: u64, stop: &AtomicBool) -> u64 {
    let mut s = store.session().unwrap();
    let mut random = Random(seed);
    let mut seen = vec![0u64; KEYS as usize];
    let mut hints = vec![Location(0); KEYS as usize];
    let mut hits = 0;
    while !stop.load(Ordering::Relaxed) {
        let g = s.pin();
        for _ in 0..4 {
            let n = random.below(KEYS);
            let (k, at) = (key(n), n as usize);
            let item = match random.below(4) {
                0 => g.verify(hints[at], &k),
                1 => {
                    let hint = store.propose(store.hash(&k));
                    hints[at] = hint.unwrap_or(hints[at]);
                    hint.and_then(|h| g.verify(h, &k))
                }
                2 => g.verify(Location(random.below(1 << 17)), &k),
                _ => get(&g, &k),
            };
            if let Some(item) = item {
                let round = check(&item, n);
                assert!(round >= seen[at], "key {n} went back from {} to {round}", seen[at]);
                seen[at] = round;
                hits += 1;
                // Still the same after others had time to reuse it.
                assert_eq!(check(&item, n), round);
            }
        }
    }
    hits
}

/// Writers, readers and housekeeping on one store, until the writers are done.
fn storm(store: &Arc<Store>, rounds: Range<u64>, largest: u32) -> StoreStats {
    let (stop, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    let stored_before = store.stats().total_items;
    std::thread::scope(|scope| {
        let readers = [1, 2].map(|seed| {
            let stop = &stop;
            scope.spawn(move || reader(store, seed, stop))
        });
        let keeper = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                store.housekeep();
                std::thread::yield_now();
            }
        });
        let writers = [0, 1].map(|which| {
            let refused = &refused;
            let rounds = rounds.clone();
            scope.spawn(move || writer(store, which, rounds, largest, refused))
        });
        let ends = writers.map(|w| w.join());
        stop.store(true, Ordering::Relaxed);
        keeper.join().unwrap();
        let hits: u64 = readers.map(|r| r.join().unwrap()).iter().sum();
        for end in ends {
            end.unwrap();
        }
        assert!(hits > 1_000, "the readers saw something: {hits}");
    });
    let st = store.stats();
    // Sets are refused while a reader that lost the CPU holds back what was freed. How many is the
    // scheduler's affair; a store that refuses them all is at fault.
    let (refused, stored) = (refused.into_inner(), st.total_items - stored_before);
    assert!(stored > 0, "{refused} refused, {st:?}");
    st
}

/// Every chunk in use is a key that is found, and comes back when that is deleted.
fn nothing_leaks(store: &Arc<Store>) {
    let st = store.stats();
    let mut s = store.session().unwrap();
    let there = (0..KEYS).filter(|n| get(&s.pin(), &key(*n)).is_some()).count();
    assert_eq!(there as u64, st.curr_items, "every chunk in use is a key that is found");
    for n in 0..KEYS {
        delete(&mut s, &key(n));
    }
    (0..3).for_each(|_| store.housekeep());
    let st = store.stats();
    assert_eq!((st.curr_items, st.bytes, st.limbo_chunks), (0, 0, 0), "nothing leaks");
}

/// Two pages for two dozen sizes, and twelve; and values of several pages. With the rounds, and the
/// longest value.
const TIGHT: [(usize, u64, u32); 3] =
    [(4 << 20, 3_000, 500_000), (24 << 20, 30_000, 500_000), (64 << 20, 10_000, 7_000_000)];

fn tight(memory_bytes: usize, largest: u32) -> StoreConfig {
    let item_max_bytes = (largest as usize).next_power_of_two();
    StoreConfig { memory_bytes, item_max_bytes, pages: Pages::Small, ..StoreConfig::default() }
}

#[test]
fn nothing_torn_stale_or_foreign_is_ever_seen() {
    for (memory_bytes, rounds, largest) in TIGHT {
        let store = Store::new(tight(memory_bytes, largest)).unwrap();
        let st = storm(&store, 1..rounds, largest);
        assert!(st.evictions > 0 && st.pages_moved > 0, "{st:?}");
        nothing_leaks(&store);
    }
}

/// Readers ask for the same keys while their pages are taken, again and again: what is never
/// replaced nor evicted is never missed, and never another.
#[test]
fn items_that_move_are_never_missed() {
    const FIXED: u32 = 100;
    const OTHERS: u32 = 20;
    const LEN: usize = 40_000;
    let config =
        StoreConfig { memory_bytes: 16 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let (mut s, mut buf) = (store.session().unwrap(), Vec::new());
    for n in 0..FIXED {
        assert!(write(&mut s, &mut buf, n, 1, LEN));
    }
    let class = i32::try_from(store.class_for(20, HEAD_BYTES + LEN, false).unwrap() + 1).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [1, 2].map(|seed| {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let (mut s, mut random) = (store.session().unwrap(), Random(seed));
                let (mut hints, mut hits) = (vec![Location(0); FIXED as usize], 0u64);
                while !stop.load(Ordering::Relaxed) {
                    let n = random.below(FIXED);
                    let (g, k) = (s.pin(), key(n));
                    let item = get(&g, &k)?;
                    assert_eq!(check(&item, n), 1);
                    if let Some(item) = g.verify(hints[n as usize], &k) {
                        assert_eq!(check(&item, n), 1);
                    }
                    hints[n as usize] = store.propose(store.hash(&k)).unwrap_or(Location(0));
                    hits += 1;
                }
                Some(hits)
            })
        });
        // A page comes, others' items fill it up, and another page goes.
        let stopping = guard((), |()| stop.store(true, Ordering::Relaxed));
        for round in 1..100_000 {
            if store.stats().rescued >= 500 {
                break;
            }
            let n = FIXED + u32::try_from(round % u64::from(OTHERS)).unwrap();
            write(&mut s, &mut buf, n, round, LEN);
            if round % 20 == 0 {
                // Four pages have room for all, and for what is replaced.
                let pages: u64 = store.stats().classes.iter().map(|c| c.total_pages).sum();
                let (from, to) = if pages > 4 { (class, 0) } else { (0, class) };
                let _ = store.reassign(from, to);
            }
            store.housekeep();
            std::thread::yield_now();
        }
        drop(stopping);
        for reader in readers {
            let hits = reader.join().unwrap();
            assert!(hits.is_some_and(|n| n > 0), "an item was missed: {:?}", store.stats());
        }
    });
    let st = store.stats();
    assert!(st.rescued >= 500 && st.evictions == 0, "{st:?}");
    (0..3).for_each(|_| store.housekeep());
    nothing_leaks(&store);
}

/// With nobody looking there is nothing to wait for: what refuses then is the store's own fault,
/// whatever the scheduler does.
#[test]
fn alone_in_tight_memory_a_writer_is_not_refused() {
    for (memory_bytes, rounds, largest) in TIGHT {
        let store = Store::new(tight(memory_bytes, largest)).unwrap();
        let refused = AtomicU64::new(0);
        writer(&store, 0, 1..rounds, largest, &refused);
        let st = store.stats();
        assert!(st.evictions > 0, "{st:?}");
        assert_eq!(refused.into_inner(), 0, "{st:?}");
    }
}

/// The same, over restarts: whatever state the pages are left in, the next store takes it up.
#[test]
fn a_store_taken_up_is_as_good_as_new() {
    for (memory_bytes, rounds, largest) in TIGHT {
        let config = tight(memory_bytes, largest);
        let file = TempFile::new();
        let open = || Store::open(config.clone(), &file.0).unwrap();
        let ((mut store, _), mut moved) = (open(), 0);
        for restart in 0..4 {
            let begin = restart * rounds / 4;
            let st = storm(&store, begin + 1..begin + rounds / 4, largest);
            moved += st.pages_moved;
            let items = st.curr_items;
            assert_eq!(store.close().unwrap(), Some(items));
            let (next, taken) = open();
            assert_eq!(taken, TakenUp::Kept(items));
            let mut s = next.session().unwrap();
            for n in 0..KEYS {
                if let Some(item) = get(&s.pin(), &key(n)) {
                    check(&item, n);
                }
            }
            drop(s);
            if restart % 2 == 1 {
                nothing_leaks(&next);
            }
            store = next;
        }
        assert!(moved > 0);
    }
}

/// Two writers of one key: whoever comes last is what stays, and no chunk is lost or freed twice.
#[test]
fn writers_of_one_key_do_not_lose_memory() {
    let config =
        StoreConfig { memory_bytes: 64 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    std::thread::scope(|scope| {
        for t in 0..3u64 {
            let store = &store;
            scope.spawn(move || {
                let (mut s, mut buf) = (store.session().unwrap(), Vec::new());
                let mut random = Random(t + 77);
                for i in 0..20_000u64 {
                    let n = random.below(3);
                    match random.below(3) {
                        0 => {
                            delete(&mut s, &key(n));
                        }
                        _ => {
                            write(&mut s, &mut buf, n, i * 3 + t, random.below(300) as usize);
                        }
                    }
                    if let Some(item) = get(&s.pin(), &key(n)) {
                        check(&item, n);
                    }
                }
            });
        }
    });
    let mut s = store.session().unwrap();
    let there = (0..3).filter(|n| get(&s.pin(), &key(*n)).is_some()).count();
    let st = store.stats();
    assert_eq!((st.curr_items, st.evictions), (there as u64, 0));
}

/// Once the new value of a key is out, no old hint leads to the old one, and the other way round:
/// while the old one is out, no hint leads to the new one.
#[test]
fn hints_and_look_ups_agree_on_the_order() {
    let config =
        StoreConfig { memory_bytes: 8 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let (stop, k) = (AtomicBool::new(false), key(1));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut s, mut buf) = (store.session().unwrap(), Vec::new());
            defer! { stop.store(true, Ordering::Relaxed) }
            for round in 1..150_000 {
                write(&mut s, &mut buf, 1, round, 8);
            }
        });
        let mut s = store.session().unwrap();
        // Where the value was, the last few times: it comes back there.
        let (mut hints, mut last, mut at) = ([Location(0); 8], 0, 0);
        while !stop.load(Ordering::Relaxed) {
            let g = s.pin();
            let hint = store.propose(store.hash(&k)).unwrap_or(Location(0));
            if hints.iter().all(|h| *h != hint) {
                at = (at + 1) % hints.len();
                hints[at] = hint;
            }
            let found = get(&g, &k);
            for item in found.into_iter().chain(hints.iter().filter_map(|h| g.verify(*h, &k))) {
                let round = check(&item, 1);
                assert!(round >= last, "{round} after {last}");
                last = round;
            }
        }
        assert!(last > 0);
        writer.join().unwrap();
    });
}
