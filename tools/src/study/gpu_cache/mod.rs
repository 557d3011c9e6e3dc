//! The cache study: misses of a GPU's first-level cache by its size and its ways (the ISPASS paper's figures
//! 11 and 12).
//!
//! In: what threads of the watched kernels did. Out: of each kernel, by cache, the misses. The threads are
//! made warps again ([`lanes`]); a multiprocessor takes as many blocks as it has room for threads, and its
//! warps have their turns one after the other (round robin), each turn a basic block or an access. What is
//! modelled of the accesses: loads go through the multiprocessor's cache ([`model`]), which is empty when a
//! kernel starts; stores go through it and take no line; loads by acquire and atomic operations go past it. Relaxed
//! loads count as plain ones, although a GPU may serve them from the second level, because they are of its whole scope.
//! What is not: time, barriers between warps, shared memory, and the threads' own. Counted, so the same
//! each time. Fails as the executor does.

pub mod model;

use super::frame::{Common, Frame};
use super::kernels::{BATCH, Case};
use super::lanes::{self, SECTOR_BYTES, WARP, Warp};
use crate::report::table::{Draw, Table, table};
use crate::workload::{Popularity, THETA_DEFAULT};
use clap::Parser;
use gpu::simt::Event;
use model::{Cache, Counts, Shape};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;

/// Threads of a block: two for each of its requests.
const BLOCK: u32 = 256;
/// Requests of the batch: so many that several multiprocessors are full.
const REQUESTS: usize = 4096;
/// Lengths of keys, one as likely as the other: the paper's are shorter than 100 bytes.
const LENGTHS: &[usize] = &[16, 32, 64];

/// Sizes at the ways of the paper's baseline, and the largest without sets.
const SIZES: [&str; 9] = [
    "8k:128:8",
    "16k:128:8",
    "32k:128:8",
    "64k:128:8",
    "128k:128:8",
    "256k:128:8",
    "512k:128:8",
    "1m:128:8",
    "1m:128:full",
];
/// Ways at the size of the paper's baseline.
const WAYS: [&str; 6] =
    ["32k:128:1", "32k:128:2", "32k:128:4", "32k:128:8", "32k:128:16", "32k:128:full"];

const COLUMNS: &str = "kernel cache kilobytes ways loads_per_request misses_per_request \
    miss_percent cold_percent misses_per_1000_steps fetched_bytes_per_request used_once_percent";

const TABLES: &[Table] = table! {
    "sizes" "Misses by size of the cache" [COLUMNS]
        "Loads are a warp's, one for each line; `cold`: misses in a cache of any size; `steps`: basic blocks that a warp enters; `used_once`: lines that one load used before they left. Relaxed loads, as those of the tables, count as plain ones."
        => Draw::over_log("kilobytes", "miss_percent", "kernel");
    "ways" "Misses by ways" [COLUMNS]
        "The same of one size."
        => Draw::over_log("ways", "miss_percent", "kernel");
    "given" "Misses of the caches that were given" [COLUMNS]
        "`--cache`.";
};

/// What to count.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// A cache to count beside the others: its bytes, bytes of a line, ways or `full`. May be given
    /// several times.
    #[arg(long, value_name = "BYTES:LINE:WAYS")]
    cache: Vec<Shape>,
    /// Threads that a multiprocessor has room for, in blocks of 256: so many of a launch share a cache.
    #[arg(long, default_value_t = 1024, value_parser = threads)]
    threads: u32,
}

/// Threads of a multiprocessor: whole blocks, up to more than any GPU has.
fn threads(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(threads) if (BLOCK..=4096).contains(&threads) && threads.is_multiple_of(BLOCK) => {
            Ok(threads)
        }
        _ => Err(format!("whole blocks of {BLOCK} threads, 4096 at most")),
    }
}

/// What the study looks at: the launches of a kernel, and what they answered.
struct Kernel {
    name: String,
    launches: Vec<Vec<Warp>>,
    requests: usize,
}

impl Cli {
    /// Counts, prints and writes.
    ///
    /// # Errors
    /// What the executor says.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("cache", &self.common)?;
        let batch = self.common.pick(REQUESTS, BATCH);
        for (fact, value) in [
            ("requests", json!(batch)),
            ("keys", json!(LENGTHS)),
            ("threads_per_multiprocessor", json!(self.threads)),
        ] {
            frame.report.fact(fact, value)?;
        }
        for setassoc in [true, false] {
            let popularity = Popularity::Scrambled(THETA_DEFAULT);
            let case = Case { lengths: LENGTHS, batch, popularity, ..Case::plain(setassoc) };
            for kernel in kernels(case, self.common.seed)? {
                for (table, shapes) in [("sizes", &SIZES[..]), ("ways", &WAYS)] {
                    for shape in shapes {
                        frame.report.row(table, self.row(&kernel, shape.parse()?))?;
                    }
                }
                for shape in &self.cache {
                    frame.report.row("given", self.row(&kernel, *shape))?;
                }
            }
        }
        Ok(frame.end(TABLES)?)
    }

    fn row(&self, kernel: &Kernel, shape: Shape) -> Value {
        let counts = kernel.launches.iter().map(|warps| count(warps, shape, self.threads));
        let Counts { loads, misses, cold, fetched, lines, used_once } =
            counts.fold(Counts::default(), Counts::plus);
        let steps: u64 = kernel.launches.iter().map(|warps| lanes::sums(warps).steps).sum();
        let per = |n: u64, of: u64| n as f64 / of.max(1) as f64;
        let requests = kernel.requests as u64;
        json!({
            "kernel": kernel.name, "cache": shape.to_string(), "ways": shape.ways,
            "kilobytes": per(shape.bytes, 1024), "sets": shape.sets(),
            "loads_per_request": per(loads, requests),
            "misses_per_request": per(misses, requests),
            "miss_percent": 100.0 * per(misses, loads),
            "cold_percent": 100.0 * per(cold, loads),
            "misses_per_1000_steps": 1000.0 * per(misses, steps),
            "fetched_bytes_per_request": per(fetched * SECTOR_BYTES, requests),
            "used_once_percent": 100.0 * per(used_once, lines),
        })
    }
}

/// What filling an index and looking a batch up in it are to the study.
fn kernels(case: Case, seed: u64) -> Result<[Kernel; 2], Box<dyn Error>> {
    let done = case.run(seed, true)?;
    if done.found != case.batch {
        return Err(format!("{} of {} keys were found", done.found, case.batch).into());
    }
    let warps = |events: &Vec<Event>| lanes::warps(events, WARP);
    let kernel = |what: &str, launches: Vec<Vec<Warp>>, requests| Kernel {
        name: format!("{what}_{}", case.index()),
        launches,
        requests,
    };
    let updates = done.updates.iter().map(warps).collect();
    Ok([
        kernel("get", vec![warps(&done.gets)], case.batch),
        kernel("update", updates, case.keys() * case.lengths.len()),
    ])
}

/// What the caches of a launch's multiprocessors count, all together.
fn count(warps: &[Warp], shape: Shape, threads: u32) -> Counts {
    let mut blocks: BTreeMap<u32, Vec<&Warp>> = BTreeMap::new();
    for warp in warps {
        blocks.entry(warp.block).or_default().push(warp);
    }
    let warps_max = (threads / WARP) as usize;
    let per_block = blocks.values().map(Vec::len).max().unwrap_or(1);
    let blocks: Vec<Vec<&Warp>> = blocks.into_values().collect();
    let shares = blocks.chunks((warps_max / per_block).max(1));
    shares.map(|share| of_one(&share.concat(), shape)).fold(Counts::default(), Counts::plus)
}

/// What one multiprocessor's cache counts, whose warps take turns.
fn of_one(warps: &[&Warp], shape: Shape) -> Counts {
    let mut cache = Cache::new(shape);
    let turns = warps.iter().map(|warp| warp.turns.len()).max().unwrap_or(0);
    for turn in 0..turns {
        for turn in warps.iter().filter_map(|warp| warp.turns.get(turn)) {
            if turn.access == Event::READ {
                cache.load(&turn.sectors);
            }
        }
    }
    cache.counts()
}

#[cfg(test)]
mod tests {
    use super::super::lanes::Turn;
    use super::*;
    use std::path::PathBuf;

    fn warp(block: u32, accesses: &[(u32, &[u64])]) -> Warp {
        let turn = |(access, sectors): &(u32, &[u64])| Turn {
            lanes: 1,
            access: *access,
            sectors: sectors.to_vec(),
        };
        Warp { block, turns: accesses.iter().map(turn).collect() }
    }

    #[test]
    fn warps_of_a_multiprocessor_take_turns_and_share_its_cache() {
        let (read, step) = (Event::READ, &[][..]);
        // The second warp loads the first one's line one turn later; a step is no load.
        let warps = [
            warp(0, &[(read, &[0]), (read, &[4])]),
            warp(0, &[(read, step), (read, &[0])]),
            warp(1, &[(read, &[0]), (read, &[0])]),
        ];
        // One line: 0 comes, block 1 finds it, 4 puts it out, and it comes twice more.
        let one_line: Shape = "128:128:1".parse().unwrap();
        let together = count(&warps, one_line, 1024);
        assert_eq!((together.loads, together.misses, together.cold), (5, 3, 2));
        // Two blocks with a cache each.
        let apart = count(&warps, one_line, 64);
        assert_eq!((apart.loads, apart.misses, apart.cold), (5, 4, 3));
    }

    #[test]
    fn only_plain_loads_go_through_the_cache() {
        let others = [Event::WRITE, Event::POLL, Event::ATOMIC].map(|a| (a, &[0, 1][..]));
        let warps = [warp(0, &others), warp(0, &[(Event::READ, &[0, 1])])];
        let counts = count(&warps, "1k:128:2".parse().unwrap(), 1024);
        assert_eq!((counts.loads, counts.misses, counts.fetched), (1, 1, 2));
    }

    #[test]
    fn kernels_miss_less_in_a_larger_cache_and_the_same_each_time() {
        let cli = Cli::parse_from(["", "--quick"]);
        assert_eq!(cli.common.out, PathBuf::from("study"));
        for setassoc in [true, false] {
            let case = || kernels(Case { lengths: LENGTHS, ..Case::plain(setassoc) }, 1).unwrap();
            let (once, again) = (case(), case());
            for (kernel, again) in once.iter().zip(&again) {
                let row = |shape: &str| cli.row(kernel, shape.parse().unwrap());
                let miss = |shape: &str| row(shape)["miss_percent"].as_f64().unwrap();
                let (small, large) = (miss("2k:128:8"), miss("1m:128:full"));
                assert!(small > large, "{}: {small} {large}", kernel.name);
                assert!(large >= row("1m:128:full")["cold_percent"].as_f64().unwrap());
                assert_eq!(row("8k:128:8"), cli.row(again, "8k:128:8".parse().unwrap()));
            }
        }
    }

    #[test]
    fn a_bad_cache_is_an_error_that_says_why() {
        for (bad, why) in
            [("32k", "is no cache"), ("32k:100:8", "power of two"), ("1k:128:3", "multiple")]
        {
            let error = Cli::try_parse_from(["", "--cache", bad]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(Cli::try_parse_from(["", "--threads", "16"]).is_err());
    }
}
