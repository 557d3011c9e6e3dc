//! The hit rate study: what a hash table's form costs in misses (MemcachedGPU, section 5.2 and
//! figure 2).
//!
//! In: forms of a table, sizes beside the number of keys, traces. Out: miss rates of gets. As in the
//! paper, the table is first loaded with every key once; then come 95 % gets and 5 % sets, and a get that
//! misses sets. Items are counted, not bytes. [`ways`] has tables with few places for a key,
//! [`chain`] the one with any; [`policy`] says which key is evicted.

pub mod cache;
pub mod chain;
pub mod policy;
pub mod ways;

use super::frame::{Common, Frame};
use crate::output::tell;
use crate::report::table::{Draw, Table, table};
use crate::workload::{Popularity, Sampler};
use cache::{Cache, Layout};
use chain::Chain;
use clap::Parser;
use policy::Policy;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use std::error::Error;
use ways::Ways;

/// Sets among a hundred requests, as in YCSB's workloads B and D.
const SETS: u32 = 5;

/// The traces of figure 2 and the text beside it. The load goes by number, so that popular keys must
/// not be those of low numbers.
const TRACES: [(&str, Popularity); 3] = [
    ("zipf", Popularity::Scrambled(0.99)),
    ("latest", Popularity::Latest(0.99)),
    ("uniform", Popularity::Uniform),
];

const CURVES: Draw = Draw::lines("size", "miss_rate", "curve");
const COLUMNS: &str = "trace size layout ways policy items miss_rate hits_of_full_lru";

const ASSOCIATIVITY: Table = table! {
    "associativity" "Associativity (zipf, LRU)" [COLUMNS]
    "Misses among gets by size of the table, in parts of the number of keys; MemcachedGPU's figure 2."
    => CURVES
};
const LAYOUTS: Table = table! {
    "layouts" "Forms of a table (zipf, LRU, 4 ways)" [COLUMNS]
    "With as many places for a key in a set or neighbourhood."
    => CURVES
};
const POLICIES: Table = table! {
    "policies" "Who leaves (zipf, 16 ways and chaining)" [COLUMNS]
    "LRU, CLOCK and SIEVE within a set, and over all items."
    => CURVES
};
const OTHER_TRACES: Table = table! {
    "traces" "Other traces (LRU, 1 and 16 ways and chaining)" [COLUMNS]
    "YCSB's latest and uniform."
    => CURVES
};

/// What to simulate.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// Keys that are asked for.
    #[arg(long, value_parser = clap::value_parser!(u64).range(64..=100_000_000))]
    keys: Option<u64>,
    /// Requests after the load.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Places of a table, in parts of the number of keys.
    #[arg(long, value_delimiter = ',', default_value = "0.1,0.25,0.5,0.8,1,1.2", value_parser = part)]
    sizes: Vec<f64>,
    /// Places in a set.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32", value_parser = clap::value_parser!(u16).range(1..=32))]
    ways: Vec<u16>,
}

fn part(text: &str) -> Result<f64, String> {
    let part: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if (0.001..=100.0).contains(&part) { Ok(part) } else { Err("from 0.001 to 100".to_owned()) }
}

/// Requests: the key, and whether it is a set.
pub type Trace = Vec<(u64, bool)>;

impl Cli {
    /// Simulates, prints and writes.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("hitrate", &self.common)?;
        let keys = self.keys.unwrap_or_else(|| self.common.pick(200_000, 1_000));
        let requests = self.requests.unwrap_or_else(|| self.common.pick(400_000, 2_000));
        frame.report.fact("keys", json!(keys))?;
        frame.report.fact("requests", json!(requests))?;
        let mut all = Vec::new();
        for (name, popularity) in TRACES {
            let trace = trace(keys, requests, popularity, self.common.seed);
            for size in &self.sizes {
                all.extend(self.tables(name, &trace, keys, *size));
                tell(format_args!("{name}, size {size}"));
            }
        }
        let is = |row: &Value, field: &str, one_of: &[&str]| {
            one_of.iter().any(|value| row.get(field) == Some(&json!(value)))
        };
        let has_ways = |row: &Value, ways: &[u16]| {
            is(row, "layout", &["chaining"])
                || ways.iter().any(|ways| row.get("ways") == Some(&json!(ways)))
        };
        let plain = ["set-associative", "chaining"];
        let select = |which: &dyn Fn(&Value) -> bool| -> Vec<Value> {
            all.iter().filter(|row| which(row)).cloned().collect()
        };
        let zipf_lru = |row: &Value| is(row, "trace", &["zipf"]) && is(row, "policy", &["lru"]);
        frame.show(&ASSOCIATIVITY, &select(&|r| zipf_lru(r) && is(r, "layout", &plain)))?;
        frame.show(&LAYOUTS, &select(&|r| zipf_lru(r) && has_ways(r, &[4])))?;
        frame.show(
            &POLICIES,
            &select(&|r| {
                is(r, "trace", &["zipf"]) && is(r, "layout", &plain) && has_ways(r, &[16])
            }),
        )?;
        let others = select(&|r| {
            is(r, "trace", &["latest", "uniform"])
                && is(r, "policy", &["lru"])
                && is(r, "layout", &plain)
                && has_ways(r, &[1, 16])
        });
        frame.show(&OTHER_TRACES, &others)?;
        frame.report.table("hitrate", all)?;
        Ok(frame.end(&[])?)
    }

    /// Every form of a table of this size, under one trace.
    fn tables(&self, name: &str, trace: &Trace, keys: u64, size: f64) -> Vec<Value> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of items, from 0 up"
        )]
        let items = (keys as f64 * size) as usize;
        let mut full_lru = None;
        let mut rows = Vec::new();
        let mut add = |layout: Layout, ways: Option<u16>, policy: Policy, cache: &mut dyn Cache| {
            let miss_rate = misses(trace, keys, cache);
            // The first of all.
            let full = *full_lru.get_or_insert(1.0 - miss_rate);
            let curve = match (ways, name) {
                (Some(ways), "zipf") => format!("{} {ways} {}", layout.name(), policy.name()),
                (None, "zipf") => format!("{} {}", layout.name(), policy.name()),
                (Some(ways), name) => format!("{name}, {ways} ways"),
                (None, name) => format!("{name}, chaining"),
            };
            rows.push(json!({
                "trace": name, "size": size, "items": items, "layout": layout.name(),
                "ways": ways, "policy": policy.name(), "miss_rate": miss_rate,
                "held": cache.len(), "hits_of_full_lru": (1.0 - miss_rate) / full, "curve": curve,
            }));
        };
        let policies = [Policy::Lru, Policy::Clock, Policy::Sieve];
        for policy in policies {
            add(Layout::Chaining, None, policy, &mut Chain::new(policy, items));
        }
        let layouts =
            [Layout::SetAssociative, Layout::TwoChoice, Layout::Cuckoo, Layout::Hopscotch];
        for layout in layouts {
            for ways in &self.ways {
                for policy in policies {
                    let mut table =
                        Ways::new(layout, policy, items, usize::from(*ways), self.common.seed);
                    add(layout, Some(*ways), policy, &mut table);
                }
            }
        }
        rows
    }
}

/// The requests behind the load.
pub fn trace(keys: u64, requests: u64, popularity: Popularity, seed: u64) -> Trace {
    let Some(mut sampler) = Sampler::new(keys, popularity) else { return Vec::new() };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let request = |_| {
        let set = rng.random_range(0..100) < SETS;
        let key = if set { sampler.write(&mut rng) } else { sampler.read(&mut rng) };
        (key, set)
    };
    (0..requests).map(request).collect()
}

/// Misses among the gets of a trace, behind the load.
pub fn misses(trace: &Trace, keys: u64, cache: &mut dyn Cache) -> f64 {
    for key in 0..keys {
        cache.ask(key);
    }
    let (mut gets, mut misses) = (0_u64, 0_u64);
    for (key, set) in trace {
        let hit = cache.ask(*key);
        if !set {
            gets += 1;
            misses += u64::from(!hit);
        }
    }
    misses as f64 / gets.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_for_all_keys_misses_none_if_a_key_may_be_anywhere() {
        for (_, popularity) in TRACES {
            let trace = trace(1_000, 5_000, popularity, 1);
            assert!(misses(&trace, 1_000, &mut Chain::new(Policy::Lru, 1_000)) == 0.0);
            let mut direct = Ways::new(Layout::SetAssociative, Policy::Lru, 1_000, 1, 1);
            assert!(misses(&trace, 1_000, &mut direct) > 0.05);
        }
    }

    /// Uniform over K keys with a capacity of C: C / K are hits, whichever keys are evicted.
    #[test]
    fn uniform_is_what_arithmetic_says() {
        let trace = trace(10_000, 50_000, Popularity::Uniform, 1);
        for policy in [Policy::Lru, Policy::Clock, Policy::Sieve] {
            let miss_rate = misses(&trace, 10_000, &mut Chain::new(policy, 2_500));
            assert!((miss_rate - 0.75).abs() < 0.01, "{policy:?}: {miss_rate}");
        }
    }

    #[test]
    fn more_ways_are_nearer_to_full_lru() {
        let trace = trace(20_000, 40_000, Popularity::Scrambled(0.99), 1);
        let rate = |ways| {
            let mut table = Ways::new(Layout::SetAssociative, Policy::Lru, 16_000, ways, 1);
            misses(&trace, 20_000, &mut table)
        };
        let full = misses(&trace, 20_000, &mut Chain::new(Policy::Lru, 16_000));
        assert!(rate(1) > rate(4) && rate(4) > rate(16) && rate(16) > full);
    }
}
