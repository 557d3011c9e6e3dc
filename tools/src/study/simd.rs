//! The SIMD study: how well the kernels keep the lanes of a warp together, and how much memory they
//! touch (the ISPASS paper's figures 10, 13 and 14; MemcachedGPU's figure 5 on divergence).
//!
//! In: batches of requests. Out: of each batch, the share of lanes that were active, and the sectors
//! of 32 bytes that an access of a warp touched, as counted by the SIMT executor's watching build.
//! The counts are those of the kernels' source as the host's compiler splits it into basic blocks;
//! a GPU's compiler may predicate what branches here. They compare cases, and do not change from run
//! to run. Other widths of a warp are counted from what each thread did ([`lanes`]). Fails as the executor does.

use super::frame::{Common, Frame};
use super::kernels::{BATCH, Case, Dialect};
use super::lanes::{self, Sums, WARP};
use crate::report::table::{Draw, Table, table};
use clap::Parser;
use serde_json::{Value, json};
use std::error::Error;

const COLUMNS: &str = "index dialect keys hits batch active_lanes steps_per_request \
    accesses_per_request sectors_per_access sectors_per_request found";

const TABLES: &[Table] = table! {
    "keys" "Lanes by length of keys" [COLUMNS]
        "Keys of one length, and of several in one batch."
        => Draw::Bars { label: "keys", y: "sectors_per_request", parts: &["setassoc", "cuckoo"] };
    "batch" "Active lanes by size of the batch" [COLUMNS]
        "A batch that does not fill its warps leaves lanes idle."
        => Draw::over_log("batch", "active_lanes", "index");
    "hits" "Active lanes by hit rate" [COLUMNS]
        "Percent of the keys that the index has."
        => Draw::lines("hits", "active_lanes", "index");
    "dialect" "ASCII and binary" [COLUMNS]
        "Of a binary request the kernels find the key and look it up, the host reads the rest; `mixed` has every other one so.";
    "width" "Warps of 8 to 64 lanes"
        ["index keys width active_lanes slots_per_request beside_8 accesses_per_request \
          sectors_per_access sectors_per_request"]
        "What each thread did among 32 lanes, its threads made warps of another width again: control flow and accesses are replayed, not run; votes and shuffles stay those of 32, and 64 join two warps of one role (every other one is a helper). `slots`: lanes, idle or not, that a request's basic blocks take; `beside_8`: the slots of 8 lanes over these, which is how fast they are issued by as many lanes, if memory is no limit."
        => Draw::over_log("width", "beside_8", "what");
};

/// Widths of a warp, the narrowest first.
const WIDTHS: [u32; 4] = [8, 16, 32, 64];

/// What to count.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
}

impl Cli {
    /// Counts, prints and writes.
    ///
    /// # Errors
    /// What the executor says.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("simd", &self.common)?;
        let lengths: [&[usize]; 6] = [&[16], &[32], &[64], &[128], &[16, 32], &[16, 32, 64, 128]];
        for setassoc in [true, false] {
            let plain = Case { batch: self.common.pick(BATCH, 64), ..Case::plain(setassoc) };
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
            for lengths in [lengths[0], lengths[5]] {
                // Full, so that each block has warps of every width.
                for row in self.widths(Case { lengths, batch: BATCH, ..plain })? {
                    frame.report.row("width", row)?;
                }
            }
        }
        Ok(frame.end(TABLES)?)
    }

    /// A batch by width of the warps.
    fn widths(&self, case: Case) -> Result<Vec<Value>, Box<dyn Error>> {
        let gets = case.run(self.common.seed, true)?.gets;
        let requests = case.batch as f64;
        let keys = keys(case);
        let mut slots_at_8 = None;
        let row = |width| {
            let Sums { steps, lanes, accesses, sectors } = lanes::sums(&lanes::warps(&gets, width));
            let slots = steps as f64 * f64::from(width);
            json!({
                "index": case.index(), "keys": keys, "width": width,
                "what": format!("{}, {keys}", case.index()),
                "active_lanes": lanes as f64 / slots, "slots_per_request": slots / requests,
                "beside_8": *slots_at_8.get_or_insert(slots) / slots,
                "accesses_per_request": accesses as f64 / requests,
                "sectors_per_access": sectors as f64 / accesses as f64,
                "sectors_per_request": sectors as f64 / requests,
            })
        };
        Ok(WIDTHS.into_iter().map(row).collect())
    }

    fn count(&self, case: Case) -> Result<Value, Box<dyn Error>> {
        let done = case.run(self.common.seed, false)?;
        let (found, counts) = (done.found, done.counts);
        let (steps, lanes) = (counts.steps as f64, counts.lanes as f64);
        let (accesses, sectors) = (counts.accesses as f64, counts.sectors as f64);
        let requests = case.batch as f64;
        let mut row = json!({
            "index": case.index(),
            "dialect": format!("{:?}", case.dialect).to_lowercase(),
            "keys": keys(case), "hits": case.hits, "batch": case.batch, "found": found,
            "active_lanes": lanes / (f64::from(WARP) * steps),
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

/// The lengths of a batch's keys.
fn keys(case: Case) -> String {
    let lengths: Vec<String> = case.lengths.iter().map(ToString::to_string).collect();
    lengths.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn count(case: Case, seed: u64) -> Value {
        let common = Common { out: PathBuf::new(), seed, quick: true };
        Cli { common }.count(case).unwrap()
    }

    fn case(setassoc: bool) -> Case {
        Case { batch: 64, ..Case::plain(setassoc) }
    }

    #[test]
    fn full_warps_of_equal_requests_have_more_active_lanes() {
        let lanes = |case| count(case, 1)["active_lanes"].as_f64().unwrap();
        for setassoc in [true, false] {
            let case = case(setassoc);
            assert_eq!(count(case, 1)["found"], 64);
            assert!(lanes(case) <= 1.0);
            assert!(lanes(case) > lanes(Case { batch: 8, ..case }) * 1.05);
            assert!(lanes(case) > lanes(Case { lengths: &[16, 32, 64, 128], ..case }));
        }
    }

    #[test]
    fn wider_warps_lose_lanes_to_mixed_keys() {
        let common = Common { out: PathBuf::new(), seed: 1, quick: true };
        let case = Case { lengths: &[16, 32, 64, 128], ..Case::plain(true) };
        let rows = Cli { common }.widths(case).unwrap();
        let column =
            |name: &str| rows.iter().map(|r| r[name].as_f64().unwrap()).collect::<Vec<_>>();
        assert_eq!(column("width"), [8.0, 16.0, 32.0, 64.0]);
        assert!((column("beside_8")[0] - 1.0).abs() < 1e-9);
        for name in ["beside_8", "active_lanes", "accesses_per_request"] {
            assert!(column(name).windows(2).all(|two| two[0] > two[1]), "{name}: {rows:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_found_and_counts_do_not_change() {
        let case = case(true);
        assert_eq!(count(Case { hits: 0, ..case }, 3)["found"], 0);
        assert_eq!(count(case, 3), count(case, 3));
        assert_eq!(count(Case { dialect: Dialect::Binary, ..case }, 3)["dialect"], "binary");
    }
}
