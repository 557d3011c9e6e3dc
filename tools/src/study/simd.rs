//! The SIMD study: how well the kernels keep the lanes of a warp together, and how much memory they
//! touch (the ISPASS paper's figures 10 and 13; MemcachedGPU's figure 5 on divergence).
//!
//! In: batches of requests. Out: of each batch, the share of lanes that were active, and the sectors
//! of 32 bytes that an access of a warp touched, as counted by the SIMT executor's watching build.
//! The counts are those of the kernels' source as the host's compiler splits it into basic blocks;
//! a GPU's compiler may predicate what branches here. They compare cases, and do not change from run
//! to run. Fails as the executor does.

use super::frame::{Common, Frame};
use super::load::SERVER;
use crate::plot::Axis;
use crate::report::table::{Draw, Table};
use clap::Parser;
use driver_shim::ports::memory::{MAC, PEER_MAC};
use gnomon_client::codec::{Protocol, udp};
use gpu::bench::{Bench, IndexKind, Sizes};
use gpu::card::Card;
use gpu::params::{HashKey, Op};
use gpu::simt::SimtCard;
use gpu::{Entry, Hint};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use store::{Store, StoreConfig};
use wire::build::UdpFrame;

/// Bytes of a packet's place.
const SLOT_BYTES: u32 = 2048;
/// Most requests in a batch.
const BATCH_MAX: usize = 512;
/// Blocks of a launch: each takes a part of the batch.
const BLOCKS: u32 = 4;
/// Lanes of a warp.
const LANES: f64 = 32.0;
/// Keys of each length.
const KEYS: usize = 512;
/// Bytes of the headers up to UDP's, without options.
const L3: u8 = 14;
const L4: u8 = 34;

const COLUMNS: &[&str] = &[
    "index",
    "dialect",
    "keys",
    "hits",
    "batch",
    "active_lanes",
    "steps_per_request",
    "accesses_per_request",
    "sectors_per_access",
    "sectors_per_request",
    "found",
];

const TABLES: [Table; 4] = [
    Table {
        name: "keys",
        title: "Lanes by length of keys",
        says: "Keys of one length, and of several in one batch.",
        columns: COLUMNS,
        plot: Some(Draw::Bars {
            label: "keys",
            y: "sectors_per_request",
            parts: &["setassoc", "cuckoo"],
        }),
    },
    Table {
        name: "batch",
        title: "Active lanes by size of the batch",
        says: "A batch that does not fill its warps leaves lanes idle.",
        columns: COLUMNS,
        plot: Some(Draw::Lines {
            x: Axis::log("batch"),
            y: Axis::linear("active_lanes"),
            by: "index",
        }),
    },
    Table {
        name: "hits",
        title: "Active lanes by hit rate",
        says: "Percent of the keys that the index has.",
        columns: COLUMNS,
        plot: Some(Draw::Lines {
            x: Axis::linear("hits"),
            y: Axis::linear("active_lanes"),
            by: "index",
        }),
    },
    Table {
        name: "dialect",
        title: "ASCII and binary",
        says: "Of a binary request the kernels find the key and look it up, the host reads the rest; `mixed` has every other one so.",
        columns: COLUMNS,
        plot: None,
    },
];

/// What to count.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
}

/// How a request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Ascii,
    Binary,
    /// Every other one.
    Mixed,
}

/// One batch.
#[derive(Debug, Clone, Copy)]
struct Case {
    setassoc: bool,
    dialect: Dialect,
    lengths: &'static [usize],
    /// Of a hundred.
    hits: u32,
    batch: usize,
}

impl Case {
    fn index(self) -> &'static str {
        if self.setassoc { "setassoc" } else { "cuckoo" }
    }
}

impl Cli {
    /// Counts, prints and writes.
    ///
    /// # Errors
    /// What the executor says.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("simd", &self.common)?;
        let plain = Case {
            setassoc: true,
            dialect: Dialect::Ascii,
            lengths: &[16],
            hits: 100,
            batch: self.common.pick(BATCH_MAX, 64),
        };
        let lengths: [&[usize]; 6] = [&[16], &[32], &[64], &[128], &[16, 32], &[16, 32, 64, 128]];
        for setassoc in [true, false] {
            let plain = Case { setassoc, ..plain };
            for lengths in lengths {
                frame.report.row("keys", self.count(Case { lengths, ..plain })?)?;
            }
            for &batch in self.common.pick(&[8, 32, 64, 128, 256, 512][..], &[8, 64]) {
                frame.report.row("batch", self.count(Case { batch, ..plain })?)?;
            }
            for hits in [0, 50, 85, 100] {
                frame.report.row("hits", self.count(Case { hits, ..plain })?)?;
            }
            for dialect in [Dialect::Ascii, Dialect::Binary, Dialect::Mixed] {
                frame.report.row("dialect", self.count(Case { dialect, ..plain })?)?;
            }
        }
        Ok(frame.end(&TABLES)?)
    }

    fn count(&self, case: Case) -> Result<Value, Box<dyn Error>> {
        let seed = self.common.seed;
        let card = Arc::new(SimtCard::watching(seed));
        let sizes =
            Sizes { slots: u32::try_from(BATCH_MAX)?, slot_bytes: SLOT_BYTES, batch: BATCH_MAX };
        let kind = if case.setassoc {
            IndexKind::Setassoc { n_sets: [256; 5] }
        } else {
            IndexKind::Cuckoo { n_buckets: 1024, kicks_max: 32 }
        };
        let key: Arc<dyn Card> = Arc::clone(&card) as _;
        let mut bench = Bench::new(&key, kind, HashKey::default(), sizes)?;
        // For its hash alone.
        let memory_bytes = 4 << 20;
        let config = StoreConfig { memory_bytes, hash_key: Some([0; 16]), ..Default::default() };
        let store = Store::new(config)?;
        for length in case.lengths {
            let keys: Vec<Vec<u8>> = (0..KEYS).map(|i| name(i, *length)).collect();
            let ops: Vec<(Op, &[u8])> = keys
                .iter()
                .map(|key| (Op { hash: store.hash(key).0, location: 1, ..Op::default() }, &key[..]))
                .collect();
            bench.update(&ops, 1, BLOCKS)?;
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut entries = Vec::new();
        for slot in 0..case.batch {
            let i = rng.random_range(0..KEYS);
            let length = case.lengths.get(rng.random_range(0..case.lengths.len()));
            let hit = rng.random_range(0..100) < case.hits;
            let key = name(if hit { i } else { KEYS + i }, length.copied().unwrap_or(16));
            let binary = match case.dialect {
                Dialect::Ascii => false,
                Dialect::Binary => true,
                Dialect::Mixed => slot % 2 == 1,
            };
            let bytes = request(&key, binary).ok_or("a request does not fit a frame")?;
            let slot = u32::try_from(slot)?;
            let place = bench.slot(slot);
            place.get_mut(..bytes.len()).ok_or("no such slot")?.copy_from_slice(&bytes);
            let len = u16::try_from(bytes.len())?;
            entries.push(Entry { slot, len, l3: L3, l4: L4, ..Entry::default() });
        }
        let before = card.counts();
        bench.get(&entries, 2, true, BLOCKS)?;
        let after = card.counts();
        let found = bench.descs().iter().filter(|d| d.keys.iter().any(|k| k.hint == Hint::HIT));
        let found = found.count();
        let n = |after: u64, before: u64| (after - before) as f64;
        let (steps, lanes) = (n(after.steps, before.steps), n(after.lanes, before.lanes));
        let accesses = n(after.accesses, before.accesses);
        let sectors = n(after.sectors, before.sectors);
        let requests = case.batch as f64;
        let lengths: Vec<String> = case.lengths.iter().map(ToString::to_string).collect();
        let mut row = json!({
            "index": case.index(),
            "dialect": format!("{:?}", case.dialect).to_lowercase(),
            "keys": lengths.join(", "), "hits": case.hits, "batch": case.batch, "found": found,
            "active_lanes": lanes / (LANES * steps),
            "steps_per_request": steps / requests,
            "accesses_per_request": accesses / requests,
            "sectors_per_access": sectors / accesses,
            "sectors_per_request": sectors / requests,
        });
        if let Value::Object(row) = &mut row {
            row.insert(case.index().to_owned(), json!(sectors / requests));
        }
        Ok(row)
    }
}

/// The name of a key: its number, filled up.
fn name(i: usize, length: usize) -> Vec<u8> {
    format!("{i:0length$}").into_bytes()
}

/// A get of one key.
fn request(key: &[u8], binary: bool) -> Option<Vec<u8>> {
    let protocol = if binary { Protocol::Binary } else { Protocol::Ascii };
    let mut payload = udp::header(1).to_vec();
    protocol.get([key].iter(), &mut payload);
    UdpFrame {
        src_mac: PEER_MAC,
        dst_mac: MAC,
        vlans: &[],
        src: SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 40_000)),
        dst: SocketAddr::from(SERVER),
        payload: &payload,
    }
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn count(case: Case, seed: u64) -> Value {
        let common = Common { out: PathBuf::new(), seed, quick: true };
        Cli { common }.count(case).unwrap()
    }

    const CASE: Case =
        Case { setassoc: true, dialect: Dialect::Ascii, lengths: &[16], hits: 100, batch: 64 };

    #[test]
    fn full_warps_of_equal_requests_have_more_active_lanes() {
        let lanes = |case| count(case, 1)["active_lanes"].as_f64().unwrap();
        for setassoc in [true, false] {
            let case = Case { setassoc, ..CASE };
            assert_eq!(count(case, 1)["found"], 64);
            assert!(lanes(case) <= 1.0);
            assert!(lanes(case) > lanes(Case { batch: 8, ..case }) * 1.05);
            assert!(lanes(case) > lanes(Case { lengths: &[16, 32, 64, 128], ..case }));
        }
    }

    #[test]
    fn what_is_not_there_is_not_found_and_counts_do_not_change() {
        let case = Case { hits: 0, ..CASE };
        assert_eq!(count(case, 3)["found"], 0);
        assert_eq!(count(CASE, 3), count(CASE, 3));
        assert_eq!(count(Case { dialect: Dialect::Binary, ..CASE }, 3)["dialect"], "binary");
    }
}
