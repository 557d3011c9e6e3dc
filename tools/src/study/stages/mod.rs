//! The study of stages: where a request's time goes, stage by stage (as the FPGA appliance's figures 7
//! and 8).
//!
//! In: a filled store. Out: nanoseconds of each stage per request, and instructions where valgrind is
//! there to count them, for each kind of request and several sizes of a batch. [`timed`] takes a batch
//! through them, [`callgrind`] counts. The port in memory, which stands in for a NIC, is shown
//! apart. So are GETs that another engine has read and looked up: what is left of `engine` is what the CPU
//! engine does when such a batch comes back. Fails when a request is not answered.

pub mod callgrind;
pub mod timed;

use super::bench::{Bench, Config};
use super::frame::{Common, Frame};
use super::load::{Load, Shape};
use super::median;
use super::oracle_engine::{Foretold, Hints};
use crate::output::say;
use crate::report::table::{Draw, Table, table};
use crate::workload::Popularity;
use clap::Parser;
use driver_shim::ports::memory::{LoopingConfig, looping};
use driver_shim::{Pages, Region, RxChecksum, TxCaps};
use serde_json::{Map, Value, json};
use std::error::Error;
use std::sync::Arc;
use timed::{STAGES, Stages};

/// Keys and values.
const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 64 };
/// Requests whose memory accesses overlap in the CPU engine.
const GROUP: usize = 32;
/// Batches of the size that most is measured with.
const BATCH: usize = 512;
/// Most different requests.
const DIFFERENT_MAX: u64 = 1_000_000;

const COLUMNS: &str = "load batch port rx classify batcher engine execute tx total";

const TABLES: &[Table] = table! {
    "ns" "Nanoseconds per request, stage by stage" [COLUMNS]
        "Medians over batches of 512; the total is without the port in memory. With hints: another engine, whose own time does not count, has read the requests and looked them up."
        => Draw::Bars { label: "load", y: "ns per request", parts: &STAGES };
    "batches" "Nanoseconds per GET, by size of the batch" [COLUMNS]
        "What a request of a small batch costs: less overlaps, each stage is begun more often, and the clock is read more often."
        => Draw::Bars { label: "batch", y: "ns per request", parts: &STAGES };
    "instructions" "Instructions per request, stage by stage" [COLUMNS]
        "Counted by valgrind; the port is within rx and tx here."
        => Draw::Bars { label: "load", y: "instructions per request", parts: &STAGES };
};

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// Items in the store.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    items: Option<u64>,
    /// Requests of each kind.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Do not count instructions.
    #[arg(long)]
    no_instructions: bool,
    /// Only walk, with this load, for a profiler.
    #[arg(long, value_enum)]
    only: Option<Load>,
}

impl Cli {
    /// Measures, prints and writes.
    ///
    /// # Errors
    /// Not enough memory, or a request that is not answered.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        if self.only == Some(Load::Read) {
            return Err("READs are not walked here: gnomon-study path --load read has them".into());
        }
        let items = self.items.unwrap_or_else(|| self.common.pick(1_000_000, 2_000));
        let requests = self.requests.unwrap_or_else(|| self.common.pick(2_000_000, 4_000));
        let config = Config { items, shape: SHAPE, seed: self.common.seed };
        let bench = Bench::new(config)?;
        if let Some(load) = self.only {
            let kind = Kind { load, hints: None, batch: BATCH };
            let batches = walk(&bench, kind, &kind.requests(&bench)?, requests, 0)?.len();
            return Ok(say(batches * BATCH)?);
        }
        let mut frame = Frame::begin("stages", &self.common)?;
        frame.report.fact("items", json!(items))?;
        frame.report.fact("requests", json!(requests))?;
        let loads = [Load::Get, Load::Miss, Load::Multiget, Load::Set];
        let told = [Hints::Hints, Hints::WithHeads].map(|hints| (Load::Get, Some(hints)));
        for (load, hints) in loads.into_iter().map(|load| (load, None)).chain(told) {
            let kind = Kind { load, hints, batch: BATCH };
            frame.report.row("ns", timed(&bench, kind, requests)?)?;
        }
        for &batch in self.common.pick(&[1, 8, 32, 64, 128, 512][..], &[1, 64]) {
            let requests = requests.min(batch as u64 * self.common.pick(20_000, 100));
            let kind = Kind { load: Load::Get, hints: None, batch };
            frame.report.row("batches", timed(&bench, kind, requests)?)?;
        }
        if self.no_instructions || !callgrind::is_there() {
            frame.report.fact("instructions_left_out", json!("no valgrind, or not wanted"))?;
        } else {
            for &load in self.common.pick(&loads[..], &[Load::Get]) {
                let row = self.counted(load, &frame)?;
                frame.report.row("instructions", row)?;
            }
        }
        Ok(frame.end(TABLES)?)
    }

    /// Instructions of each stage. Few items: what is counted does not depend on how many.
    fn counted(&self, load: Load, frame: &Frame) -> Result<Value, Box<dyn Error>> {
        let word = load.name();
        let requests = self.common.pick(20_000, 2_000).to_string();
        let args = ["stages", "--items", "5000", "--requests", &requests, "--only", word];
        let profile = frame.report.dir().join("callgrind.out");
        let (said, costs) = callgrind::run(&args.map(str::to_owned), &profile)?;
        let walked: u64 = said.trim().parse().map_err(|_| format!("it said `{said}`"))?;
        let mut parts = [0.0; STAGES.len()];
        for (part, stage) in parts.iter_mut().zip(STAGES).skip(1) {
            let name = format!("::timed::stage_{stage}");
            let cost: u64 = costs.iter().filter(|(f, _)| f.ends_with(&name)).map(|(_, n)| n).sum();
            if cost == 0 {
                return Err(format!("the profile does not know stage {stage}").into());
            }
            *part = cost as f64 / walked.max(1) as f64;
        }
        Ok(row(Kind { load, hints: None, batch: BATCH }, &parts))
    }
}

/// What is walked.
#[derive(Debug, Clone, Copy)]
struct Kind {
    load: Load,
    /// What another engine shows.
    hints: Option<Hints>,
    batch: usize,
}

impl Kind {
    fn name(self) -> String {
        let load = self.load.name();
        self.hints.map_or_else(|| load.to_owned(), |hints| format!("{load}, {}", hints.name()))
    }

    fn requests(self, bench: &Bench) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
        let different = bench.config().items.min(DIFFERENT_MAX);
        bench.requests(&[(self.load, 1)], Popularity::Uniform, different)
    }
}

/// Nanoseconds that are left of a GET when a batch comes back from another engine: from its hints to
/// the reply as the port takes it, checksums in software.
///
/// # Errors
/// A request that was not answered, or not by what was reported.
pub fn fill_ns(
    bench: &Bench,
    templates: &[Vec<u8>],
    hints: Hints,
    requests: u64,
) -> Result<f64, Box<dyn Error>> {
    let kind = Kind { load: Load::Get, hints: Some(hints), batch: BATCH };
    let [.., engine, execute, tx] = medians(bench, kind, templates, requests)?;
    Ok(engine + execute + tx)
}

fn timed(bench: &Bench, kind: Kind, requests: u64) -> Result<Value, Box<dyn Error>> {
    Ok(row(kind, &medians(bench, kind, &kind.requests(bench)?, requests)?))
}

/// The median of each stage over all batches: where others are at work too, some take long for
/// reasons of their own.
fn medians(
    bench: &Bench,
    kind: Kind,
    templates: &[Vec<u8>],
    requests: u64,
) -> Result<[f64; STAGES.len()], Box<dyn Error>> {
    let each = walk(bench, kind, templates, requests, requests / kind.batch as u64 / 10)?;
    Ok(std::array::from_fn(|stage| {
        let of = |spent: &[u64; STAGES.len()]| spent.get(stage).copied().unwrap_or(0) as f64;
        median(&mut each.iter().map(of).collect::<Vec<_>>()) / kind.batch as f64
    }))
}

fn row(kind: Kind, parts: &[f64; STAGES.len()]) -> Value {
    let mut row = Map::new();
    row.insert("load".to_owned(), json!(kind.name()));
    row.insert("batch".to_owned(), json!(kind.batch));
    for (stage, part) in STAGES.iter().zip(parts) {
        row.insert((*stage).to_owned(), json!(part));
    }
    row.insert("total".to_owned(), json!(parts.iter().skip(1).sum::<f64>()));
    Value::Object(row)
}

/// Takes at least `requests` requests through the stages, after `warm` batches that do not count.
/// Returns the nanoseconds that each stage took, for each batch.
fn walk(
    bench: &Bench,
    Kind { hints, batch, .. }: Kind,
    templates: &[Vec<u8>],
    requests: u64,
    warm: u64,
) -> Result<Vec<[u64; STAGES.len()]>, Box<dyn Error>> {
    let region = Region::new(u32::try_from(2 * batch + 64)?, Pages::Prefer)?;
    let port = looping(
        &region,
        &LoopingConfig {
            templates: templates.to_vec(),
            queues: 1,
            frames_per_queue: batch,
            rx: RxChecksum::default(),
            tx_caps: TxCaps::default(),
            inspect: None,
        },
    )?;
    let told = hints.map(|hints| Arc::new(Foretold::new(bench, templates, hints)));
    let mut stages = Stages::new(bench, port, &region, batch, GROUP, told.as_ref())?;
    for _ in 0..warm {
        stages.walk(&mut [0; STAGES.len()])?;
    }
    let mut each = Vec::new();
    for _ in 0..requests.div_ceil(batch as u64) {
        let mut spent = [0; STAGES.len()];
        stages.walk(&mut spent)?;
        each.push(spent);
    }
    Ok(each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_room_takes_time_for_every_load() {
        let bench = Bench::new(Config { items: 1_000, shape: SHAPE, seed: 1 }).unwrap();
        let loads = Load::ANSWERED.map(|load| (load, None));
        let told = [Hints::Hints, Hints::WithHeads].map(|hints| (Load::Get, Some(hints)));
        for (load, hints) in loads.into_iter().chain(told) {
            for batch in [1, 96, 512] {
                let kind = Kind { load, hints, batch };
                let templates = kind.requests(&bench).unwrap();
                let each = walk(&bench, kind, &templates, 2_000, 1).unwrap();
                assert_eq!(each.len(), 2_000_usize.div_ceil(batch));
                let spent = |stage: usize| each.iter().map(|spent| spent[stage]).sum::<u64>();
                assert!((0..STAGES.len()).all(|stage| spent(stage) > 0), "{kind:?}");
                let row = timed(&bench, kind, 1_000).unwrap();
                let sum: f64 = STAGES[1..].iter().map(|r| row[*r].as_f64().unwrap()).sum();
                assert!((row["total"].as_f64().unwrap() - sum).abs() < 1e-6);
            }
        }
    }
}
