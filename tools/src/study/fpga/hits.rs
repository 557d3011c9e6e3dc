//! Hit rates of the FPGA appliance's table, beside LRU and CLOCK, under the Zipf trace of [`super::super::hitrate`].
//!
//! In: a number of keys. Out: right answers among GETs by the size of the cache; the caches and the trace are that study's.
//! First every key is set, then come 95 % GETs and 5 % SETs, and a GET that misses sets. CLOCK by class is gnomon's hand,
//! without its probation; `gnomon-study hitrate-live` has all of gnomon. Nothing fails.

use super::memory::{self, Memory};
use crate::report::table::{Draw, Table, table};
use crate::study::hitrate::cache::{Cache, Layout};
use crate::study::hitrate::chain::Chain;
use crate::study::hitrate::policy::Policy;
use crate::study::hitrate::ways::Ways;
use crate::study::hitrate::{Trace, misses, trace};
use crate::workload::{Popularity, mix};
use serde_json::{Value, json};

/// Sizes of the cache, in parts of the keys.
const PARTS: [f64; 5] = [0.1, 0.25, 0.5, 0.8, 1.0];
/// Entries of the hash table for each slot, at least: their number is a power of two. The paper gives the hash what memory
/// the slabs leave (4.3.5), and no numbers.
const ENTRIES: [usize; 3] = [1, 2, 4];
/// Lengths of mixed values: the paper's (5.1).
const LENGTHS: [u64; 6] = [10, 32, 64, 128, 512, 1_024];

const CURVES: Draw = Draw::lines("size", "hit_rate", "curve");

/// Values of one length.
pub const HITS: Table = table! {
    "hits" "Hit rates (zipf 0.99, values of 64 B)"
    ["size cache entries_per_slot hit_rate hits_of_lru stale"]
    "Right answers among GETs, by slots in parts of the keys. FPGA: buckets of four, round robin. As the paper describes a SET, it compares no keys: an older entry of its key stays, and a GET may find that one (`stale`, no hits here); `replaces` removes it first."
    => CURVES
};

/// Values of several lengths.
pub const PAGES: Table = table! {
    "pages" "Fixed pages (zipf 0.99, values of 10 to 1,024 B)"
    ["pages size cache entries_per_slot hit_rate hits_of_lru stale"]
    "The same where each slab has its bytes from the start: alike for all slabs, or by what the values need, as an operator sets it who knows them; LRU and CLOCK within a slab. `hits_of_lru`: of LRU by need. Items are counted: slabs alike hold more small ones."
    => CURVES
};

/// The length of a key's value, of the mixed ones.
fn length(key: u64) -> u64 {
    LENGTHS.into_iter().cycle().nth((mix(!key) % 6) as usize).unwrap_or(64)
}

fn mixed(key: u64) -> usize {
    memory::slab_of(length(key))
}

fn single(_: u64) -> usize {
    memory::slab_of(64)
}

/// A cache for each slab.
struct BySlab(Vec<Chain>, fn(u64) -> usize);

impl Cache for BySlab {
    fn ask(&mut self, key: u64) -> bool {
        self.0.get_mut((self.1)(key)).is_some_and(|cache| cache.ask(key))
    }

    fn len(&self) -> usize {
        self.0.iter().map(Cache::len).sum()
    }
}

/// The appliance's table under a trace.
struct Played {
    hit_rate: f64,
    stale: f64,
}

/// Plays a trace behind the load.
fn play(
    trace: &Trace,
    keys: u64,
    memory: &mut Memory,
    slab: fn(u64) -> usize,
    replaces: bool,
) -> Played {
    let mut newest = vec![0; usize::try_from(keys).unwrap_or(0)];
    let (mut gets, mut hits, mut stale) = (0_u64, 0_u64, 0_u64);
    let load = (0..keys).map(|key| (key, true));
    for (n, (key, set)) in (1..).zip(load.chain(trace.iter().copied())) {
        let Some(newest) = usize::try_from(key).ok().and_then(|key| newest.get_mut(key)) else {
            continue;
        };
        let found = memory.get(key).version;
        if !set {
            gets += 1;
            hits += u64::from(found == Some(*newest));
            stale += u64::from(found.is_some_and(|version| version != *newest));
        }
        if set || found.is_none() {
            if replaces {
                memory.remove(key);
            }
            memory.set(key, slab(key), n);
            *newest = n;
        }
    }
    let part = |n: u64| n as f64 / gets.max(1) as f64;
    Played { hit_rate: part(hits), stale: part(stale) }
}

/// Slots of each slab for a part of the keys: by what the values need, or as many bytes alike for each slab in use.
fn slots(keys: u64, part: f64, slab: fn(u64) -> usize, alike: bool) -> Vec<usize> {
    let mut of = vec![0.0; memory::SLAB_BYTES.len()];
    for key in 0..keys {
        of[slab(key)] += part;
    }
    let used = of.iter().filter(|n| **n > 0.0).count() as f64;
    let size = |slab: usize| memory::SLAB_BYTES[slab] as f64;
    let bytes: f64 = of.iter().enumerate().map(|(slab, n)| n * size(slab)).sum();
    let slots = |(slab, n): (usize, &f64)| match (*n > 0.0, alike) {
        (false, _) => 0,
        (true, false) => whole(*n),
        (true, true) => whole(bytes / used / size(slab)),
    };
    of.iter().enumerate().map(slots).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of slots")]
fn whole(slots: f64) -> usize {
    slots as usize
}

/// The requests that both tables play.
pub fn zipf(keys: u64, seed: u64) -> Trace {
    trace(keys, 2 * keys, Popularity::Scrambled(0.99), seed)
}

/// Rows of [`PAGES`].
pub fn pages(trace: &Trace, keys: u64, seed: u64) -> Vec<Value> {
    let mut rows = Vec::new();
    for part in PARTS {
        let by_need = slots(keys, part, mixed, false);
        let lru = chains(trace, keys, Policy::Lru, &by_need);
        for (pages, alike) in [("by need", false), ("alike", true)] {
            let slots = slots(keys, part, mixed, alike);
            let mut add = |cache: &str, entries: Option<f64>, hit_rate: f64, stale: Option<f64>| {
                rows.push(json!({
                    "pages": pages, "size": part, "cache": cache, "entries_per_slot": entries, "hit_rate": hit_rate,
                    "hits_of_lru": hit_rate / lru, "stale": stale, "curve": format!("{cache}, {pages}"),
                }));
            };
            add("LRU", None, chains(trace, keys, Policy::Lru, &slots), None);
            add("CLOCK", None, chains(trace, keys, Policy::Clock, &slots), None);
            let all: usize = slots.iter().sum();
            let mut memory = Memory::new(2 * all, &slots, seed);
            let entries = memory.entries() as f64 / all.max(1) as f64;
            let played = play(trace, keys, &mut memory, mixed, true);
            add("FPGA, replaces", Some(entries), played.hit_rate, Some(played.stale));
        }
    }
    rows
}

/// Rows of [`HITS`].
pub fn rows(trace: &Trace, keys: u64, seed: u64) -> Vec<Value> {
    let mut rows = Vec::new();
    for part in PARTS {
        one_length(&mut rows, trace, keys, part, seed);
    }
    rows
}

/// Hit rate of a policy within each slab.
fn chains(trace: &Trace, keys: u64, policy: Policy, slots: &[usize]) -> f64 {
    let caches = slots.iter().map(|n| Chain::new(policy, *n)).collect();
    1.0 - misses(trace, keys, &mut BySlab(caches, mixed))
}

/// All values in one slab.
fn one_length(rows: &mut Vec<Value>, trace: &Trace, keys: u64, part: f64, seed: u64) {
    let slots = slots(keys, part, single, false);
    let items: usize = slots.iter().sum();
    let rate = |cache: &mut dyn Cache| 1.0 - misses(trace, keys, cache);
    let lru = rate(&mut Chain::new(Policy::Lru, items));
    let mut add =
        |cache: &str, factor: Option<usize>, entries, hit_rate: f64, stale: Option<f64>| {
            let curve =
                factor.map_or_else(|| cache.to_owned(), |n| format!("{cache}, {n} entries a slot"));
            let entries: Option<f64> = entries;
            rows.push(json!({
                "size": part, "cache": cache, "entries_per_slot": entries, "hit_rate": hit_rate,
                "hits_of_lru": hit_rate / lru, "stale": stale, "curve": curve,
            }));
        };
    add("LRU", None, None, lru, None);
    add("CLOCK", None, None, rate(&mut Chain::new(Policy::Clock, items)), None);
    let mut ways = Ways::new(Layout::SetAssociative, Policy::Lru, items, memory::ENTRIES, seed);
    add("LRU in sets of 4", None, None, rate(&mut ways), None);
    for factor in ENTRIES {
        for (name, replaces) in [("FPGA", false), ("FPGA, replaces", true)] {
            let mut memory = Memory::new(factor * items, &slots, seed);
            let entries = memory.entries() as f64 / items.max(1) as f64;
            let played = play(trace, keys, &mut memory, single, replaces);
            add(name, Some(factor), Some(entries), played.hit_rate, Some(played.stale));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 4_000;

    fn few() -> Trace {
        trace(KEYS, 20_000, Popularity::Scrambled(0.99), 1)
    }

    /// With room for all keys, no bucket full and older entries removed, nothing is missed; without the last, GETs are stale.
    #[test]
    fn room_for_all_misses_nothing_and_duplicates_are_stale() {
        let slots = slots(KEYS, 20.0, single, false);
        let play =
            |replaces| play(&few(), KEYS, &mut Memory::new(1 << 20, &slots, 1), single, replaces);
        let replaces = play(true);
        assert!(replaces.hit_rate == 1.0 && replaces.stale == 0.0, "{}", replaces.hit_rate);
        let described = play(false);
        assert!(described.stale > 0.05, "{}", described.stale);
        // Copies of a popular key push other keys out of its bucket.
        let found = described.stale + described.hit_rate;
        assert!(found < 1.0 && found > 0.9, "{found}");
    }

    /// Round robin does not see what is popular: it hits less often than LRU, and more often than no cache.
    #[test]
    fn round_robin_is_below_lru() {
        let trace = few();
        let lru = 1.0 - misses(&trace, KEYS, &mut Chain::new(Policy::Lru, 1_000));
        let slots = slots(KEYS, 0.25, single, false);
        assert_eq!(slots.iter().sum::<usize>(), 1_000);
        let played = play(&trace, KEYS, &mut Memory::new(4_000, &slots, 1), single, true);
        assert!(played.hit_rate < lru && played.hit_rate > 0.5 * lru, "{} {lru}", played.hit_rate);
    }

    #[test]
    fn pages_alike_have_as_many_bytes() {
        let bytes = |slots: &[usize]| -> u64 {
            slots.iter().zip(memory::SLAB_BYTES).map(|(n, bytes)| *n as u64 * bytes).sum()
        };
        let (need, alike) = (slots(KEYS, 0.5, mixed, false), slots(KEYS, 0.5, mixed, true));
        assert!(bytes(&need).abs_diff(bytes(&alike)) < 5 * 1_024, "{need:?} {alike:?}");
        assert!(alike[0] > 3 * need[0] && alike[5] < need[5], "{need:?} {alike:?}");
    }
}
