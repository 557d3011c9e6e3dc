//! Updates and look-ups of both indexes against a model, and over tables of any bytes.

use crate::requests::{Source, corpus, keys};
use crate::rng::Rng;
use crate::{BATCH, CUCKOO, SETASSOC, SLOT_BYTES, bench, is_executor, put, remove, watched_bench};
use gpu::bench::{Bench, IndexKind};
use gpu::params::UpdateCounts;
use gpu::{Entry, EntryFlags, Hint};
use std::collections::HashMap;

/// What the index says of each key.
pub(crate) fn look_up(bench: &mut Bench, keys: &[&[u8]], now: u32) -> Vec<Option<u32>> {
    let mut found = Vec::new();
    for keys in keys.chunks(BATCH) {
        let entries = ask(bench, keys);
        bench.get(&entries, now, false, 2).unwrap();
        found.extend(answers(bench));
    }
    found
}

/// Entries of gets of these keys, in the bench's slots.
pub(crate) fn ask(bench: &mut Bench, keys: &[&[u8]]) -> Vec<Entry> {
    let flags = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
    let entry = |(slot, key): (usize, &&[u8])| {
        let text = [b"get ", *key, b"\r\n"].concat();
        let len = u16::try_from(16 + text.len()).unwrap();
        let head = [0, 0, 0, 0, len.to_be_bytes()[0], len.to_be_bytes()[1], 0, 0];
        let frame = [&head[..], &[0, 1, 0, 0, 0, 1, 0, 0], &text].concat();
        let slot = u32::try_from(slot).unwrap();
        bench.slot(slot)[..frame.len()].copy_from_slice(&frame);
        Entry { slot, len, flags, ..Entry::default() }
    };
    keys.iter().enumerate().map(entry).collect()
}

/// Where the keys of single gets were found.
pub(crate) fn answers(bench: &Bench) -> impl Iterator<Item = Option<u32>> {
    bench.descs().iter().map(|desc| {
        assert_eq!(desc.n_keys, 1);
        let key = desc.keys[0];
        assert_ne!(key.hint, Hint::UNKNOWN);
        (key.hint == Hint::HIT).then_some(key.location)
    })
}

/// Random changes in batches, none of which names a key twice. What is found is what was put last;
/// what was taken out is not found. Returns the counts, and how many keys were found in the end.
fn against_a_model(
    kind: IndexKind,
    seed: u64,
    n_keys: usize,
    rounds: usize,
) -> (UpdateCounts, usize) {
    let mut rng = Rng(seed);
    let mut bench = bench(kind, seed);
    let keys = keys(&mut rng, n_keys);
    let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut model: HashMap<&[u8], u32> = HashMap::new();
    let mut counts = UpdateCounts::default();
    let mut found = 0;
    for round in 0..rounds {
        let now = u32::try_from(round).unwrap() * 100;
        let n = 1 + rng.below(BATCH.min(n_keys));
        let first = rng.below(keys.len());
        let chosen: Vec<&[u8]> = all.iter().cycle().skip(first).take(n).copied().collect();
        let mut ops = Vec::new();
        for key in chosen {
            if rng.one_in(4) {
                model.remove(key);
                ops.push(remove(key));
            } else {
                let location = rng.number();
                model.insert(key, location);
                ops.push(put(key, location, rng.number(), rng.number()));
            }
        }
        let blocks = u32::try_from(1 + rng.below(20)).unwrap();
        counts = bench.update(&ops, now, blocks).unwrap();
        found = 0;
        for (key, got) in all.iter().zip(look_up(&mut bench, &all, now)) {
            if let Some(location) = got {
                assert_eq!(model.get(key), Some(&location), "{:?}", key.escape_ascii().to_string());
                found += 1;
            }
        }
    }
    (counts, found)
}

#[test]
fn setassoc_with_room_holds_everything() {
    for seed in 0..4 {
        let (counts, found) = against_a_model(SETASSOC, seed, 500, 12);
        assert_eq!((counts.evicted, counts.overflowed), (0, 0));
        assert_eq!(found, (counts.inserted - counts.removed) as usize);
        assert!(counts.replaced > 100 && counts.absent > 0);
    }
}

#[test]
fn setassoc_without_room_evicts() {
    for seed in 0..4 {
        let kind = IndexKind::Setassoc { n_sets: [1, 2, 3, 1, 2] };
        let (counts, found) = against_a_model(kind, seed, 500, 12);
        assert!(counts.evicted > 100 && counts.overflowed == 0, "{counts:?}");
        assert_eq!(found, (counts.inserted - counts.removed - counts.evicted) as usize);
        assert!(found > 100, "{found}");
    }
}

#[test]
fn cuckoo_with_room_holds_everything() {
    for seed in 0..4 {
        // 500 keys in 640 cells at most.
        let kind = IndexKind::Cuckoo { n_buckets: 64, kicks_max: 32 };
        let (counts, found) = against_a_model(kind, seed, 440, 12);
        assert_eq!((counts.evicted, counts.overflowed), (0, 0), "{counts:?}");
        assert_eq!(found, (counts.inserted - counts.removed) as usize);
        assert!(counts.replaced > 100 && counts.absent > 0);
    }
}

/// Threads that come second look for another empty cell before they move anything: a quarter full,
/// nothing has to move.
#[test]
fn cuckoo_moves_nothing_while_cells_are_empty() {
    for seed in 1..5 {
        let kind = IndexKind::Cuckoo { n_buckets: 64, kicks_max: 32 };
        let mut rng = Rng(seed);
        let mut bench = bench(kind, seed);
        let keys = keys(&mut rng, 128);
        let ops: Vec<_> = keys.iter().map(|key| put(key, 3, 0, 0)).collect();
        let counts = bench.update(&ops, 1, 1).unwrap();
        assert_eq!((counts.inserted, counts.moved, counts.overflowed), (128, 0, 0));
    }
}

#[test]
fn cuckoo_without_room_overflows() {
    for seed in 0..4 {
        let kind = IndexKind::Cuckoo { n_buckets: 32, kicks_max: 8 };
        let (counts, found) = against_a_model(kind, seed, 500, 12);
        // On a GPU all insertions of a batch run at once, and come in each other's way: an H100 moved 33.
        let moved = if is_executor() { 50 } else { 10 };
        assert!(counts.overflowed > 50 && counts.moved > moved, "{counts:?}");
        assert_eq!(found, (counts.inserted - counts.removed) as usize);
        assert!(found > 200, "{found}");
    }
}

#[test]
fn what_was_found_last_stays_longest() {
    let kind = IndexKind::Setassoc { n_sets: [1, 0, 0, 0, 0] };
    for seed in 0..4 {
        let mut bench = bench(kind, seed);
        let keys: Vec<Vec<u8>> = (0..17u8).map(|n| vec![b'a' + n]).collect();
        let ops: Vec<_> = keys[..16].iter().map(|k| put(k, 1, 0, 0)).collect();
        bench.update(&ops, 1, 1).unwrap();
        let mut old = Vec::new();
        for (n, key) in keys[..16].iter().enumerate() {
            if n != 11 {
                old.push(key.as_slice());
            }
        }
        assert!(look_up(&mut bench, &old, 5).iter().all(Option::is_some));
        let counts = bench.update(&[put(&keys[16], 2, 0, 0)], 6, 1).unwrap();
        assert_eq!((counts.inserted, counts.evicted), (17, 1));
        let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let lost: Vec<usize> = look_up(&mut bench, &all, 7)
            .iter()
            .enumerate()
            .filter_map(|(n, found)| found.is_none().then_some(n))
            .collect();
        assert_eq!(lost, [11]);
    }
}

/// A lock that no warp of the launch holds keeps nobody out, and the first to take it keeps all others
/// out: one set, more warps than one, and every change is there in the end.
#[test]
fn a_lock_left_behind_is_taken_by_one_at_a_time() {
    let kind = IndexKind::Setassoc { n_sets: [1, 0, 0, 0, 0] };
    for (seed, left) in (0..4).zip([1, 0xdead_beef, u32::MAX, 7]) {
        let mut bench = bench(kind, seed);
        let keys: Vec<Vec<u8>> = (0..16u8).map(|n| vec![b'a' + n]).collect();
        let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        // The first launch, whose number a lock may have by chance, has nothing to do with it.
        bench.update(&[remove(b"none")], 1, 1).unwrap();
        for (round, ops) in all.chunks(4).enumerate() {
            let lock = bench.tables().next().unwrap().get_mut(16..20).unwrap();
            lock.copy_from_slice(&left.to_ne_bytes());
            let ops: Vec<_> = ops.iter().map(|key| put(key, 9, 0, 0)).collect();
            let counts = bench.update(&ops, 1, 1).unwrap();
            assert_eq!((counts.inserted as usize, counts.evicted), (4 * (round + 1), 0));
        }
        assert!(look_up(&mut bench, &all, 2).iter().all(|found| *found == Some(9)), "seed {seed}");
    }
}

/// A lock that cannot be had leaves the change to the host, and the kernel ends.
#[test]
fn a_lock_that_is_never_given_back_stops_its_set_and_no_more() {
    let mut bench = bench(IndexKind::Setassoc { n_sets: [1, 1, 0, 0, 0] }, 0);
    let lock = bench.tables().next().unwrap().get_mut(16..20).unwrap();
    // The number of the first launch.
    lock.copy_from_slice(&1u32.to_ne_bytes());
    let counts = bench.update(&[put(b"k", 1, 0, 0), put(&[b'k'; 17], 2, 0, 0)], 1, 1).unwrap();
    assert_eq!((counts.inserted, counts.overflowed), (1, 1));
    assert_eq!(look_up(&mut bench, &[b"k", &[b'k'; 17]], 1), [None, Some(2)]);
}

#[test]
fn no_table_no_hint() {
    for kind in [
        IndexKind::Setassoc { n_sets: [0, 0, 0, 0, 0] },
        IndexKind::Cuckoo { n_buckets: 0, kicks_max: 8 },
    ] {
        let mut bench = bench(kind, 3);
        let counts = bench.update(&[put(b"k", 1, 0, 0), remove(b"k")], 1, 1).unwrap();
        assert_eq!((counts.inserted, counts.overflowed, counts.absent), (0, 1, 1));
        let entries = ask(&mut bench, &[b"k"]);
        bench.get(&entries, 1, false, 1).unwrap();
        assert_eq!(bench.descs()[0].keys[0].hint, Hint::UNKNOWN);
    }
    // Longer keys have a table, short ones have not: they go to the next larger.
    let mut bench = bench(IndexKind::Setassoc { n_sets: [0, 4, 0, 0, 0] }, 3);
    let counts = bench.update(&[put(b"k", 1, 0, 0), put(&[b'k'; 33], 1, 0, 0)], 1, 1).unwrap();
    assert_eq!((counts.inserted, counts.overflowed), (1, 1));
    assert_eq!(look_up(&mut bench, &[b"k"], 1), [Some(1)]);
}

/// Any bytes in the tables: whatever is found, kernels end, and every access is to memory that is
/// theirs, which the executor watches.
#[test]
fn tables_of_any_bytes() {
    let mut rng = Rng(77);
    let keys = keys(&mut rng, 200);
    for (round, kind) in [SETASSOC, CUCKOO, SETASSOC, CUCKOO].into_iter().enumerate() {
        let (mut bench, _card) = watched_bench(kind, round as u64);
        for table in bench.tables() {
            match round {
                0 | 1 => table.iter_mut().for_each(|b| *b = rng.byte()),
                _ => table.fill(0xff),
            }
        }
        let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        look_up(&mut bench, &all, 1);
        let ops: Vec<_> = keys
            .iter()
            .enumerate()
            .map(|(n, k)| if n % 3 == 0 { remove(k) } else { put(k, 5, 6, 7) })
            .collect();
        let counts = bench.update(&ops, 9, 5).unwrap();
        let done = counts.inserted + counts.replaced + counts.removed + counts.absent;
        assert_eq!((done + counts.overflowed) as usize, ops.len());
        let mut source = Source { rng: Rng(round as u64), keys: keys.clone(), corpus: corpus() };
        for turn in 0..2 {
            let packets: Vec<_> =
                (0..BATCH).map(|s| source.packet(u32::try_from(s).unwrap(), SLOT_BYTES)).collect();
            for p in &packets {
                let off = usize::from(p.entry.off);
                let end = off + p.bytes.len();
                if let Some(to) = bench.slot(p.entry.slot).get_mut(off..end) {
                    to.copy_from_slice(&p.bytes);
                }
            }
            let entries: Vec<_> = packets.iter().map(|p| p.entry).collect();
            bench.get(&entries, turn, true, 3).unwrap();
        }
    }
}
