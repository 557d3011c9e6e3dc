//! The batch study: throughput and latency against the size of batches and how many are in flight,
//! fixed and adaptive side by side (the ISPASS paper's figures 7 and 8; MemcachedGPU, section 5.3).
//!
//! In: a store. Out: for the CPU engine, and for the kernels on the SIMT executor, what a closed loop
//! gets through and how long a request took, for each size; and what an open loop sees at parts of
//! the peak. The worker, its batcher and its dispatcher are the real ones; the port is in memory, so
//! that the times are the server's own. The executor's times say nothing about a GPU's: they show
//! that the same machinery runs, and how batches form.

use super::bench::{Bench, Config, Manner};
use super::engine::{Beside, Way};
use super::frame::{Common, Frame};
use super::load::{Load, Shape};
use super::paced::{Pace, Paced};
use super::thread_cpu;
use crate::plot::Axis;
use crate::report::table::{Draw, Table, table};
use crate::workload::Popularity;
use clap::Parser;
use dataplane::stages::batch::{BatchMode, BatchPolicy};
use driver_shim::{Pages, Region};
use gpu::card::Card;
use gpu::index::IndexKind;
use gpu::offload::Mode;
use gpu::simt::SimtCard;
use serde_json::{Value, json};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Keys and values.
const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 64 };
/// Requests whose memory accesses overlap in the CPU engine.
const GROUP: usize = 32;
/// Frames of an open loop: requests that can wait, the server's own queue aside.
const OPEN_FRAMES: usize = 4096;
/// Longest time for a batch on the executor, which others' work may slow down.
const DEADLINE: Duration = Duration::from_secs(20);
/// Longest measurement: a rate that is not reached must not keep it for ever.
const MEASURE_MAX: Duration = Duration::from_secs(60);

const COLUMNS: &str = "engine mode batch in_flight load offered_per_s per_s mean_batch cpu_ns \
    p50_us p95_us p99_us";

const TABLES: &[Table] = table! {
    "throughput" "Throughput by batch size, closed loop" [COLUMNS]
        "As many requests under way as two batches of the CPU engine hold, or one more than are in flight."
        => Draw::over_log("batch", "per_s", "curve");
    "latency" "Latency by batch size, closed loop"
        ["engine mode batch in_flight p50_us p95_us p99_us"]
        "The same measurements: large batches wait for their own requests."
        => Draw::Lines { x: Axis::log("batch"), y: Axis::log("p95_us"), by: "curve" };
    "in_flight" "Throughput by batches in flight" [COLUMNS]
        "The kernels on the SIMT executor."
        => Draw::over_log("in_flight", "per_s", "curve");
    "load" "Latency by load, open loop, batches of 512" [COLUMNS]
        "From when a request is due to when its reply leaves, at parts of the closed loop's peak. A fixed batch waits to be filled, at most 1 ms; an adaptive one for nothing."
        => Draw::Lines { x: Axis::linear("load"), y: Axis::log("p95_us"), by: "curve" };
};

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// Items in the store.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    items: Option<u64>,
    /// Requests per measurement with the CPU engine.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests per measurement on the SIMT executor.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    simt_requests: Option<u64>,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// Batches in flight on the executor, and whether it gets everything; `None`: the CPU engine.
    simt: Option<(usize, bool)>,
    mode: BatchMode,
    batch: usize,
    pace: Pace,
}

impl Cli {
    /// Measures, prints and writes.
    ///
    /// # Errors
    /// Not enough memory, a request that was lost, or what the executor says.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("batch", &self.common)?;
        let items = self.items.unwrap_or_else(|| self.common.pick(1_000_000, 2_000));
        let config = Config { items, shape: SHAPE, seed: self.common.seed };
        let bench = Bench::new(config)?;
        frame.report.fact("items", json!(items))?;
        let sizes = self.common.pick(&[1, 4, 16, 64, 128, 256, 512, 1024][..], &[16, 64]);
        let modes = [BatchMode::Adaptive, BatchMode::Fixed];
        let mut peak = 0.0_f64;
        for mode in modes {
            for &batch in sizes {
                let case = Case { simt: None, mode, batch, pace: Pace::Closed };
                let row = self.measure(&bench, case, None)?;
                peak = peak.max(row.get("per_s").and_then(Value::as_f64).unwrap_or(0.0));
                frame.report.row("latency", row.clone())?;
                frame.report.row("throughput", row)?;
            }
        }
        frame.report.fact("peak_per_s", json!(peak))?;
        let loads = self.common.pick(&[0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9][..], &[0.2, 0.5]);
        for mode in modes {
            for &load in loads {
                let pace = Pace::Open(peak * load);
                let case = Case { simt: None, mode, batch: 512, pace };
                frame.report.row("load", self.measure(&bench, case, Some(load))?)?;
            }
        }
        drop(bench);
        // Fewer items: the kernels run on the processor.
        let items = items.min(self.common.pick(100_000, 1_000));
        let bench = Bench::new(Config { items, ..config })?;
        for mode in modes {
            for &batch in self.common.pick(&[32, 128, 512][..], &[32]) {
                let case = Case { simt: Some((2, true)), mode, batch, pace: Pace::Closed };
                let row = self.measure(&bench, case, None)?;
                frame.report.row("latency", row.clone())?;
                frame.report.row("throughput", row)?;
            }
            for in_flight in self.common.pick(&[1, 2, 4][..], &[1, 2]) {
                let simt = Some((*in_flight, true));
                let batch = self.common.pick(128, 32);
                let case = Case { simt, mode, batch, pace: Pace::Closed };
                frame.report.row("in_flight", self.measure(&bench, case, None)?)?;
            }
        }
        // Left to itself, the dispatcher gives the executor no more than it is worth.
        let case = Case {
            simt: Some((2, false)),
            mode: BatchMode::Adaptive,
            batch: 512,
            pace: Pace::Closed,
        };
        frame.report.row("throughput", self.measure(&bench, case, None)?)?;
        Ok(frame.end(TABLES)?)
    }

    fn measure(
        &self,
        bench: &Bench,
        case: Case,
        load: Option<f64>,
    ) -> Result<Value, Box<dyn Error>> {
        let Case { simt, mode, batch: size, pace } = case;
        let in_flight = simt.map_or(1, |(in_flight, _)| in_flight);
        let frames = if pace == Pace::Closed { size * (in_flight + 1) } else { OPEN_FRAMES };
        let region = Region::new(u32::try_from(frames + 64)?, Pages::Prefer)?;
        let templates = bench.requests(
            &[(Load::Get, 1)],
            Popularity::Uniform,
            bench.config().items.min(100_000),
        )?;
        let paced = Paced::new(&region, templates, frames, pace, self.common.seed)?;
        let card: Arc<dyn Card> = Arc::new(SimtCard::new(self.common.seed));
        let beside: Option<Beside> = match simt {
            Some((in_flight_max, forced)) => {
                let (kind, deadline) = (IndexKind::SetAssoc, DEADLINE);
                let (mode, heads) = (Mode::Launch, false);
                let multiprocessors = u32::MAX;
                let way =
                    Way { mode, kind, in_flight_max, deadline, forced, heads, multiprocessors };
                Some(bench.beside(&card, way, &region)?)
            }
            None => None,
        };
        let offload = beside.as_ref().map(|beside| beside.engine(size)).transpose()?;
        let batch = BatchPolicy { size, mode, in_flight_max: in_flight, ..BatchPolicy::default() };
        let manner = Manner { group: GROUP, batch, offload };
        let mut worker = bench.worker(&paced.info(), paced.queues(), &region, manner)?;
        let counters = worker.counters();
        let requests = match simt {
            Some(_) => self.simt_requests.unwrap_or_else(|| self.common.pick(20_000, 300)),
            None => self.requests.unwrap_or_else(|| self.common.pick(2_000_000, 5_000)),
        };
        // A slow schedule is not waited for: a second of it says as much.
        let requests = match pace {
            Pace::Open(per_s) if self.common.quick => requests.min(whole(per_s / 10.0)),
            Pace::Open(per_s) => requests.min(whole(per_s)),
            Pace::Closed => requests,
        };
        let warm = Instant::now();
        while paced.answered() < requests / 10 && warm.elapsed() < MEASURE_MAX {
            worker.turn();
        }
        paced.restart();
        let (batches, batched) = (counters.batches.get(), counters.batched.get());
        let by_card = counters.gpu_batched.get();
        let (cpu, begun) = (thread_cpu(), Instant::now());
        while paced.answered() < requests && begun.elapsed() < MEASURE_MAX {
            worker.turn();
        }
        let (cpu, wall) = (thread_cpu() - cpu, begun.elapsed());
        let (answered, latency) = (paced.answered(), paced.latency());
        let batched = counters.batched.get() - batched;
        let by_card = counters.gpu_batched.get() - by_card;
        let batches = (counters.batches.get() - batches).max(1);
        worker.drain();
        drop(worker);
        beside.map_or(Ok(()), |beside| beside.is_well())?;
        let ledger = counters.ledger();
        if answered == 0 || !ledger.balances() || ledger.dropped.iter().any(|(_, n)| *n > 0) {
            return Err(format!("requests were lost: {ledger:?}").into());
        }
        let engine = match simt {
            None => "cpu",
            Some((_, true)) => "simt",
            Some((_, false)) => "cpu and simt",
        };
        let mode = if mode == BatchMode::Fixed { "fixed" } else { "adaptive" };
        let us = |q| latency.value_at_quantile(q) as f64 / 1e3;
        Ok(json!({
            "engine": engine, "mode": mode, "batch": size, "in_flight": in_flight, "load": load,
            "offered_per_s": match pace { Pace::Open(per_s) => Some(per_s), Pace::Closed => None },
            "requests": answered, "per_s": answered as f64 / wall.as_secs_f64(),
            "mean_batch": batched as f64 / batches as f64, "by_card": by_card,
            "cpu_ns": super::per(cpu, answered),
            "p50_us": us(0.5), "p95_us": us(0.95), "p99_us": us(0.99), "max_us": us(1.0),
            "curve": format!("{engine}, {mode}"),
        }))
    }
}

/// The whole number below, at least 1.
fn whole(n: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 up")]
    let n = n.max(1.0) as u64;
    n
}
