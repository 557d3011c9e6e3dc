//! The latency study: how long clients wait, by load (MemcachedGPU's figure 3, Mega-KV's figure 17).
//!
//! In: a port pair, loads as parts of the peak. Out: percentiles of the round trip as an open-loop
//! client sees it, from when each request was due, and of the time that it was inside the server, for
//! adaptive batches and for fixed ones of 512. The pair is DPDK's memif between two processes, or a
//! pair of rings between two threads of this one. [`client`] sends requests, [`server`] answers. A request that
//! gets no answer is counted as lost; a wrong answer ends the study.

pub mod client;
#[cfg(feature = "dpdk")]
mod memif;
pub mod server;

use super::bench::{Bench, Config};
use super::frame::{Common, Frame};
use super::load::{Load, Shape};
use super::median;
use super::paced::Pace;
use crate::plot::Axis;
use crate::report::table::{Draw, Table};
use crate::workload::Popularity;
use clap::{Parser, ValueEnum};
use client::{Client, Outcome};
use dataplane::stages::batch::BatchMode;
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;

/// Keys and values.
const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 64 };
/// Requests under way when the peak is measured.
const WINDOW: usize = 256;
/// Packet slots: both rings full, and as many again on their way.
const SLOTS: u32 = 8192;

const LOADS: [f64; 9] = [0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95];

const TABLES: [Table; 2] = [
    Table {
        name: "rtt",
        title: "Round trips by load, open loop",
        says: "Microseconds from when a request was due to its reply; `inside`: from the server's receive burst to its transmit burst. Of several rounds the one in the middle by p99, the quietest one's and the worst one's p99 beside it; `lost`, in all rounds.",
        columns: &[
            "mode",
            "load",
            "offered_per_s",
            "per_s",
            "lost",
            "p50_us",
            "p95_us",
            "p99_us",
            "p99_least_us",
            "p99_most_us",
            "max_us",
            "inside_p50_us",
            "inside_p95_us",
            "inside_p99_us",
        ],
        plot: Some(Draw::Lines { x: Axis::linear("load"), y: Axis::log("p95_us"), by: "mode" }),
    },
    Table {
        name: "inside",
        title: "Time inside the server by load",
        says: "The 99th percentile of the same.",
        columns: &["mode", "load", "inside_p50_us", "inside_p99_us", "inside_max_us"],
        plot: Some(Draw::Lines {
            x: Axis::linear("load"),
            y: Axis::log("inside_p99_us"),
            by: "mode",
        }),
    },
];

/// What is between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Between {
    /// DPDK's memif, and a process at either end.
    Memif,
    /// Rings in memory, and a thread at either end.
    Ring,
}

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// The port pair.
    #[arg(long, value_enum, default_value = if cfg!(feature = "dpdk") { "memif" } else { "ring" })]
    between: Between,
    /// Items in the store.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    items: Option<u64>,
    /// Measurements of each load.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: Option<u64>,
    /// Length of each measurement, in milliseconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    milliseconds: Option<u64>,
}

/// A server that answers, in this process or another.
trait Answering {
    /// What requests took inside since it was asked last.
    fn inside(&mut self) -> Result<Value, Box<dyn Error>>;
}

impl Cli {
    /// Measures, prints and writes.
    ///
    /// # Errors
    /// A port that cannot be had, or a wrong reply.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("latency", &self.common)?;
        let items = self.items.unwrap_or_else(|| self.common.pick(1_000_000, 2_000));
        for (fact, value) in [
            ("items", json!(items)),
            ("between", json!(format!("{:?}", self.between).to_lowercase())),
            ("rounds", json!(self.rounds())),
            ("milliseconds", json!(self.length().as_secs_f64() * 1e3)),
        ] {
            frame.report.fact(fact, value)?;
        }
        let config = Config { items, shape: SHAPE, seed: self.common.seed };
        // The client has the same items.
        let few = Config { items: items.min(100_000), ..config };
        let templates =
            Bench::new(few)?.requests(&[(Load::Get, 1)], Popularity::Uniform, few.items)?;
        match self.between {
            Between::Ring => {
                let bench = Bench::new(config)?;
                let mut peak = None;
                for mode in [BatchMode::Adaptive, BatchMode::Fixed] {
                    server::beside(&bench, mode, |queues, region, inside| {
                        let mut client = Client::new(queues, region, &templates, SHAPE);
                        self.loads(&mut frame, mode, &mut peak, &mut client, inside)
                    })?;
                }
            }
            #[cfg(feature = "dpdk")]
            Between::Memif => {
                let dpdk = memif::Dpdk::start()?;
                let mut peak = None;
                for (number, mode) in
                    [BatchMode::Adaptive, BatchMode::Fixed].into_iter().enumerate()
                {
                    let mut server = server::Process::start(&self.common, config, mode)?;
                    let mut port = dpdk.client(number, server.socket())?;
                    let queues = port.queues.pop().ok_or("the port has no queue")?;
                    let mut client = Client::new(queues, dpdk.region(), &templates, SHAPE);
                    self.loads(&mut frame, mode, &mut peak, &mut client, &mut server)?;
                }
            }
            #[cfg(not(feature = "dpdk"))]
            Between::Memif => return Err("built without DPDK: use --between ring".into()),
        }
        Ok(frame.end(&TABLES)?)
    }

    /// Short ones: a guest's processor is now and then away for some milliseconds, and all that come
    /// then wait. A round in which that happens is one of many, and its p99 is in the table.
    fn length(&self) -> Duration {
        Duration::from_millis(self.milliseconds.unwrap_or_else(|| self.common.pick(60, 50)))
    }

    fn rounds(&self) -> u64 {
        self.rounds.unwrap_or_else(|| self.common.pick(25, 1))
    }

    /// All loads, as parts of the peak, which the first server's closed loop gives.
    fn loads(
        &self,
        frame: &mut Frame,
        mode: BatchMode,
        peak: &mut Option<f64>,
        client: &mut Client<'_>,
        server: &mut dyn Answering,
    ) -> Result<(), Box<dyn Error>> {
        let seed = self.common.seed;
        // The first requests find cold caches, and a port that is not up yet.
        client.run(Pace::Closed, WINDOW, self.length() / 4, seed)?;
        let peak = match *peak {
            Some(peak) => peak,
            None => {
                let mut most = Vec::new();
                for _ in 0..self.rounds() {
                    most.push(client.run(Pace::Closed, WINDOW, self.length(), seed)?.per_s());
                }
                let most = median(&mut most);
                frame.report.fact("peak_per_s", json!(most))?;
                *peak.insert(most)
            }
        };
        let name = if mode == BatchMode::Fixed { "fixed, 512" } else { "adaptive" };
        for &load in self.common.pick(&LOADS[..], &[0.05, 0.5]) {
            let offered = peak * load;
            let mut rounds = Vec::new();
            for round in 0..self.rounds() {
                server.inside()?;
                let pace = Pace::Open(offered);
                let seed = seed.wrapping_add(round);
                let outcome = client.run(pace, usize::MAX, self.length(), seed)?;
                rounds.push((outcome, server.inside()?));
            }
            let row = row((name, load, offered), rounds)?;
            frame.report.row("inside", row.clone())?;
            frame.report.row("rtt", row)?;
        }
        Ok(())
    }
}

/// What the rounds of one load come to.
fn row(
    (mode, load, offered): (&str, f64, f64),
    mut rounds: Vec<(Outcome, Value)>,
) -> Result<Value, Box<dyn Error>> {
    for (Outcome { wrong, answered, .. }, _) in &rounds {
        if *wrong > 0 || *answered == 0 {
            return Err(format!("{wrong} wrong replies, {answered} in all").into());
        }
    }
    let us = |outcome: &Outcome, q| outcome.rtt.value_at_quantile(q) as f64 / 1e3;
    let lost: u64 = rounds.iter().map(|(outcome, _)| outcome.lost).sum();
    rounds.sort_by_key(|(outcome, _)| outcome.rtt.value_at_quantile(0.99));
    let p99 = |round: Option<&(Outcome, Value)>| round.map(|(outcome, _)| us(outcome, 0.99));
    let (least, most) = (p99(rounds.first()), p99(rounds.last()));
    let (outcome, inside) = rounds.get(rounds.len() / 2).ok_or("no round")?;
    let inside = |field| inside.get(field).cloned().unwrap_or_default();
    Ok(json!({
        "mode": mode, "load": load, "offered_per_s": offered, "per_s": outcome.per_s(),
        "requests": outcome.sent, "answered": outcome.answered, "lost": lost,
        "checked": outcome.checked,
        "p50_us": us(outcome, 0.5), "p95_us": us(outcome, 0.95), "p99_us": us(outcome, 0.99),
        "p99_least_us": least, "p99_most_us": most, "max_us": us(outcome, 1.0),
        "inside_p50_us": inside("p50_us"), "inside_p95_us": inside("p95_us"),
        "inside_p99_us": inside("p99_us"), "inside_max_us": inside("max_us"),
    }))
}
