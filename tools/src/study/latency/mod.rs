//! The latency study: how long clients wait, by load (MemcachedGPU's figure 3, Mega-KV's figure 17), or by
//! mix of key lengths and hit rate (`mix`: MemcachedGPU's figure 5).
//!
//! In: a port pair, loads as parts of the peak. Out: percentiles of the round trip as an open-loop
//! client sees it, from when each request was due, and of the time that it was inside the server, for
//! adaptive batches, for fixed ones of 512, and for a worker that sleeps when nothing has come (`--energy manage`), which
//! at last has loads that change at once from the least to the most and back. The pair is DPDK's memif between two processes, or a
//! pair of rings between two threads of this one. [`client`] sends requests, [`server`] answers. A request that
//! gets no answer is counted as lost; a wrong answer ends the study.

pub mod asked;
pub mod client;
#[cfg(feature = "dpdk")]
mod memif;
mod mix;
mod mode;
pub mod rounds;
pub mod server;

use super::bench::{Bench, Config};
use super::frame::{Common, Frame};
use super::load::Shape;
use crate::plot::Axis;
use crate::report::table::{Draw, Table, table};
use asked::{Asked, KeyMix, VALUE_BYTES, asked};
use clap::{Parser, ValueEnum};
use client::Client;
use mix::Cases;
use mode::Mode;
use rounds::{Answering, Rounds, row};
use serde_json::json;
use std::error::Error;
use std::time::Duration;

/// Keys and values.
const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: VALUE_BYTES };
/// Packet slots: both rings full, and as many again on their way.
const SLOTS: u32 = 8192;

const LOADS: [f64; 9] = [0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95];

/// Steps of load.
const STEPS: [f64; 4] = [0.01, 0.95, 0.01, 0.95];

const TABLES: &[Table] = table! {
    "rtt" "Round trips by load, open loop"
        ["mode load offered_per_s per_s lost p50_us p95_us p99_us p99_least_us p99_most_us max_us \
          inside_p50_us inside_p95_us inside_p99_us cpu_percent"]
        "Microseconds from when a request was due to its reply; `inside`: from the server's receive burst to its transmit burst. Of several rounds the one in the middle by p99, the quietest one's and the worst one's p99 beside it; `lost`, in all rounds: due, and not answered or not even sent; `cpu_percent`, what the server's thread had of a processor."
        => Draw::Lines { x: Axis::linear("load"), y: Axis::log("p95_us"), by: "mode" };
    "inside" "Time inside the server by load"
        ["mode load inside_p50_us inside_p99_us inside_max_us"]
        "The 99th percentile of the same."
        => Draw::Lines { x: Axis::linear("load"), y: Axis::log("inside_p99_us"), by: "mode" };
    "mix" "Round trips by mix of key lengths and hit rate, open loop"
        ["mode keys hit_rate hit_percent peak_per_s of_parts offered_per_s per_s lost checked mean_us \
          p50_us p95_us p99_us p99_least_us p99_most_us"]
        "Each at the same rate, 4/13 of the first peak, as `rtt`; `hit_percent`: replies with an item; `of_parts`: the peak over what the peaks of the mix's lengths come to. Peaks are measured in the first mode alone."
        => Draw::lines("hit_rate", "mean_us", "what");
};

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
    /// Items in the store, so many that each hit rate can be had.
    #[arg(long, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    items: Option<u64>,
    /// Measurements of each load.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: Option<u64>,
    /// Length of each measurement, in milliseconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    milliseconds: Option<u64>,
    /// Instead of loads: key lengths in bytes with weights, such as 16,32,64,128 or 16:3,128:1. Each length by
    /// itself and all of them, at one rate. 16 alone, where only hit rates are given.
    #[arg(long, value_name = "MIX")]
    key_mix: Option<KeyMix>,
    /// Percent of these requests that are for a stored key; the others must miss. May be given several
    /// times. 100 where only a mix is given.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    hit_rate: Vec<u32>,
}

/// What is asked: one thing at several loads, or several things at one.
enum Question {
    Loads { requests: Vec<Asked>, peak: Option<f64> },
    Mixes(Cases),
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
            ("rounds", json!(self.rounds().n)),
            ("milliseconds", json!(self.rounds().length.as_secs_f64() * 1e3)),
        ] {
            frame.report.fact(fact, value)?;
        }
        let mix = self.key_mix.clone().unwrap_or_default();
        let shapes = mix.shapes();
        // Of each length as many.
        let items = items.div_ceil(shapes.len() as u64);
        let config = Config { items, shape: SHAPE, seed: self.common.seed };
        let mut question = self.question(&mix, items)?;
        match self.between {
            Between::Ring => {
                let bench = Bench::with_shapes(config, &shapes)?;
                for mode in Mode::ALL {
                    server::beside(&bench, mode, |queues, region, inside| {
                        let mut client = Client::new(queues, region);
                        self.ask(&mut question, &mut frame, mode, &mut client, inside)
                    })?;
                }
            }
            #[cfg(feature = "dpdk")]
            Between::Memif => {
                let dpdk = memif::Dpdk::start()?;
                for (number, mode) in Mode::ALL.into_iter().enumerate() {
                    let mut server = server::Process::start(&self.common, items, &mix, mode)?;
                    let mut port = dpdk.client(number, server.socket())?;
                    let queues = port.queues.pop().ok_or("the port has no queue")?;
                    let mut client = Client::new(queues, dpdk.region());
                    self.ask(&mut question, &mut frame, mode, &mut client, &mut server)?;
                }
            }
            #[cfg(not(feature = "dpdk"))]
            Between::Memif => return Err("built without DPDK: use --between ring".into()),
        }
        Ok(frame.end(TABLES)?)
    }

    /// What is asked, of a server that has so many items of each length.
    fn question(&self, mix: &KeyMix, items: u64) -> Result<Question, Box<dyn Error>> {
        let seed = self.common.seed;
        // The client asks for no more than these.
        let n = items.min(100_000);
        if self.key_mix.is_none() && self.hit_rate.is_empty() {
            return Ok(Question::Loads { requests: asked(mix, 100, n, n, seed)?, peak: None });
        }
        let rates = if self.hit_rate.is_empty() { &[100][..] } else { &self.hit_rate };
        Ok(Question::Mixes(Cases::new(mix, rates, items, n.min(20_000), seed)?))
    }

    fn ask(
        &self,
        question: &mut Question,
        frame: &mut Frame,
        mode: Mode,
        client: &mut Client<'_>,
        server: &mut dyn Answering,
    ) -> Result<(), Box<dyn Error>> {
        match question {
            Question::Loads { requests, peak } => {
                self.loads(requests, frame, mode, peak, client, server)
            }
            Question::Mixes(cases) => cases.measure(self.rounds(), frame, mode, client, server),
        }
    }

    /// Short ones: a guest's processor is now and then away for some milliseconds, and all that come
    /// then wait. A round in which that happens is one of many, and its p99 is in the table.
    fn rounds(&self) -> Rounds {
        Rounds {
            n: self.rounds.unwrap_or_else(|| self.common.pick(25, 1)),
            length: Duration::from_millis(
                self.milliseconds.unwrap_or_else(|| self.common.pick(60, 50)),
            ),
            seed: self.common.seed,
        }
    }

    /// All loads, as parts of the peak, which the first server's closed loop gives.
    fn loads(
        &self,
        requests: &[Asked],
        frame: &mut Frame,
        mode: Mode,
        peak: &mut Option<f64>,
        client: &mut Client<'_>,
        server: &mut dyn Answering,
    ) -> Result<(), Box<dyn Error>> {
        let rounds = self.rounds();
        rounds.warm(requests, client)?;
        let peak = match *peak {
            Some(peak) => peak,
            None => {
                let most = rounds.peak(requests, client)?;
                frame.report.fact("peak_per_s", json!(most))?;
                *peak.insert(most)
            }
        };
        let steps = if mode == Mode::Sleeping { &STEPS[..] } else { &[] };
        for &load in self.common.pick(&LOADS[..], &[0.05, 0.5]).iter().chain(steps) {
            let offered = peak * load;
            let row = row((mode, load, offered), rounds.open(requests, offered, client, server)?)?;
            frame.report.row("inside", row.clone())?;
            frame.report.row("rtt", row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// A server with `items` items, asked about as many as `told`; to the first row or the error.
    fn ask(items: u64, told: u64, hit_rate: u32) -> Result<Value, Box<dyn Error>> {
        let flags =
            ["", "--quick", "--between", "ring", "--milliseconds", "20", "--key-mix", "16,64"];
        let cli = Cli::try_parse_from(flags)?;
        let dir = tempfile::tempdir()?;
        let common = Common { out: dir.path().to_owned(), ..cli.common.clone() };
        let mut frame = Frame::begin("latency", &common)?;
        let mix = cli.key_mix.clone().ok_or("no mix")?;
        let config = Config { items, shape: SHAPE, seed: 1 };
        let bench = Bench::with_shapes(config, &mix.shapes())?;
        let mut question = Question::Mixes(Cases::new(&mix, &[hit_rate], told, 500, 1)?);
        let mode = Mode::Adaptive;
        server::beside(&bench, mode, |queues, region, inside| {
            cli.ask(&mut question, &mut frame, mode, &mut Client::new(queues, region), inside)
        })?;
        Ok(frame.report.rows("mix").last().cloned().unwrap_or_default())
    }

    #[test]
    fn all_hit_or_none_as_was_asked_for() {
        for hit_rate in [0, 100] {
            // Where a server waits for a CPU longer than its ring lasts, some of a try are lost; not of each of ten.
            let mut tries = (0..10).map(|_| ask(1_000, 1_000, hit_rate).unwrap());
            let row = tries.find(|row| row["lost"] == 0).unwrap();
            assert_eq!((&row["keys"], &row["hit_rate"]), (&json!("16:1,64:1"), &json!(hit_rate)));
            assert_eq!(row["hit_percent"], f64::from(hit_rate), "{row}");
            assert!(row["checked"].as_u64() > Some(0), "{row}");
            assert!(row["mean_us"].as_f64() > Some(0.0), "{row}");
            assert!(row["of_parts"].as_f64() > Some(0.0), "{row}");
        }
    }

    #[test]
    fn a_miss_of_a_stored_key_is_wrong_and_so_is_a_hit_of_another() {
        for (items, told, hit_rate) in [(100, 1_000, 100), (1_000, 100, 0)] {
            let error = ask(items, told, hit_rate).unwrap_err().to_string();
            assert!(error.contains("wrong replies") && !error.starts_with("0 "), "{error}");
        }
        assert!(ask(100, 100, 0).is_ok());
    }

    #[test]
    fn bad_flags_say_what_is_good() {
        for (flags, why) in
            [(["--key-mix", "5"], "lengths are 10 to 250"), (["--hit-rate", "101"], "0..=100")]
        {
            let error = Cli::try_parse_from([&[""][..], &flags].concat()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
