//! The FPGA appliance (FPGA'13), as a model of its modules in clock cycles: figures 7, 8 and 9, its input FIFO under
//! load, and the hit rate of its table.
//!
//! In: lengths of objects, requests. Out: rates, cycles by module, drops and latencies, hit rates, beside what the paper
//! prints. What it states is taken from there; what it does not is derived or fitted, and the table `parameters` says
//! which is which. [`cycles`] has what modules take, [`fifo`] the packet FIFO, [`memory`] the table and the slabs,
//! [`appliance`] the state machines, [`hits`] the hit rates, [`parameters`] that table. Power and cost are in [`super::tco`].

pub mod appliance;
pub mod cycles;
pub mod fifo;
pub mod hits;
pub mod memory;
pub mod parameters;

use super::frame::{Common, Frame};
use crate::report::named;
use crate::report::table::{Draw, Table, table};
use appliance::{Appliance, Counters, Load, Module};
use clap::Parser;
use cycles::Request;
use fifo::FIFO_BYTES;
use memory::Memory;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use std::error::Error;

/// Section 2.3: the mix of the authors' own tests of memcached, 40 GETs to a SET. Figure 9 has GETs and SETs alone.
const GETS_PER_SET: u64 = 40;
/// The length of figure 9 and table 3.
const PRINTED_BYTES: u64 = 128;
/// Section 5.3.1: KOps/s at 128 B, of GETs and of SETs.
const FIGURE_9: f64 = 270.0;
/// Table 3: KOps/s of GETs of 128 B, with one instance and with two.
const TABLE_3: [f64; 2] = [283.0, 566.0];
/// Longest value that fits into a frame with a SET's other fields.
const VALUE_BYTES_MAX: u64 = 1_376;

const RATE: Table = table! {
    "rate" "Rate by size of object (figure 9)"
    ["operation bytes instances kops figure_9 of_figure_9 table_3 of_table_3 kops_streamed limit"]
    "KOps/s: one request at a time, as the paper computes it from its cycles, and streamed, as its FIFOs allow; what limits the latter. Mix: 40 GETs to a SET (section 2.3). The paper prints 270 (5.3.1), and 283 and 566 for GETs (table 3), at 128 B."
    => Draw::lines("bytes", "kops", "curve")
};
const CYCLES: Table = table! {
    "cycles" "Cycles by module (figures 7 and 8)"
    ["request network_input decipher hash hash_read hash_write slab_read slab_write response \
      network_output total"]
    "Of one request in an idle appliance, whose key is in its bucket's first entry. The figures print no numbers; the text prints those of the next table."
    => Draw::Bars { label: "request", y: "cycles", parts: &[
        "network_input", "decipher", "hash", "hash_read", "hash_write", "slab_read", "slab_write",
        "response", "network_output",
    ] }
};
const PRINTED: Table = table! {
    "printed" "What the paper prints in cycles" ["what paper model of_paper source"]
    "Beside the model's. 23 and 42 were used (`parameters`); the others were not. Totals: 125 MHz by the printed rate."
};
const LOAD: Table = table! {
    "load" "The packet FIFO by load (128 B)"
    ["operation load offered_kops served_kops packets dropped dropped_part min_us median_us max_us \
      jitter_us"]
    "Requests arrive by Poisson, no closer than 1 GbE allows (`line`: SETs cannot come faster than they are taken). Packets dropped, all of them whole; microseconds from a request's first byte in to its reply's last byte out. What is dropped is of this many requests, of which the FIFOs take in the first thousands whatever the load. The paper prints neither drops nor latencies; gnomon's are in `gnomon-study latency`."
    => Draw::lines("offered_kops", "dropped_part", "operation")
};
/// What to simulate.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// Lengths of objects in bytes: the paper's, up to what a frame holds.
    #[arg(long, value_delimiter = ',', default_value = "10,32,64,128,512,1024", value_parser = clap::value_parser!(u64).range(1..=VALUE_BYTES_MAX))]
    sizes: Vec<u64>,
    /// Requests of each run.
    #[arg(long, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    requests: Option<u64>,
    /// Bytes of the input FIFO, and of the output FIFO.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(2_048..=1 << 30))]
    fifo: Option<u64>,
    /// Keys of the hit rates.
    #[arg(long, value_parser = clap::value_parser!(u64).range(64..=100_000_000))]
    keys: Option<u64>,
}

named! {
    /// What is asked for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Operation {
        Get = "GET",
        Set = "SET",
        Mix = "mix",
    }
}

/// A run: which requests, and of what length.
#[derive(Debug, Clone, Copy)]
struct Run {
    operation: Operation,
    value_bytes: u64,
    requests: u64,
    fifo_bytes: u64,
    seed: u64,
}

impl Run {
    /// Requests of a run: GETs of keys that are there, SETs of new ones.
    fn requests(&self, keys: u64) -> Vec<Request> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let value_bytes = self.value_bytes;
        let is_set = |n| match self.operation {
            Operation::Get => false,
            Operation::Set => true,
            Operation::Mix => n % (GETS_PER_SET + 1) == GETS_PER_SET,
        };
        let request = |n| match is_set(n) {
            true => Request { key: keys + n, set: true, value_bytes },
            false => Request { key: rng.random_range(0..keys), set: false, value_bytes },
        };
        (0..self.requests).map(request).collect()
    }

    /// An instance after the load ("the initial accesses are interleaved to populate the cache", 5.1), with room for all:
    /// a bucket holds an item on average in one of eight entries.
    fn serve(&self, load: Load) -> Counters {
        let keys = (self.requests / 2).max(1);
        let items = usize::try_from(keys + self.requests).unwrap_or(usize::MAX);
        let slab = memory::slab_of(self.value_bytes);
        let mut slots = [1; memory::SLAB_BYTES.len()];
        slots[slab] = items;
        let mut memory = Memory::new(items * 8, &slots, self.seed);
        for key in 0..keys {
            memory.set(key, slab, 0);
        }
        Appliance::new(memory, self.fifo_bytes).run(&self.requests(keys), load, self.seed)
    }

    /// The same on as many instances, each with its own memory, port and clients (5.2.1), and their rates added.
    fn kops(&self, instances: u64, load: Load) -> (f64, Counters) {
        let run = |n| Self { seed: self.seed.wrapping_add(n), ..*self }.serve(load);
        let all: Vec<Counters> = (0..instances).map(run).collect();
        let kops = all.iter().map(Counters::rate).sum::<f64>() / 1e3;
        (kops, all.into_iter().next().unwrap_or_default())
    }
}

/// What a stream waits for: the busiest of what runs side by side. The wire is busy between frames, too.
fn limit(of: &Counters) -> &'static str {
    let spent = |module| of.spent(module);
    let (input, output) = (spent(Module::NetworkInput), spent(Module::NetworkOutput));
    let all: u64 = Module::ALL.into_iter().map(spent).sum();
    let gaps = |frames: u64| frames * cycles::WIRE_GAP_CYCLES;
    let parts = [
        (input + gaps(of.offered), "network input"),
        (output + gaps(of.served()), "network output"),
    ];
    parts
        .into_iter()
        .chain([(all - input - output, "controller")])
        .max()
        .map_or("", |(_, name)| name)
}

/// A request alone: its counters.
fn alone(set: bool, value_bytes: u64) -> Counters {
    let mut memory = Memory::new(64, &[1; memory::SLAB_BYTES.len()], 1);
    if !set {
        memory.set(1, memory::slab_of(value_bytes), 0);
    }
    let request = Request { key: 1, set, value_bytes };
    Appliance::new(memory, FIFO_BYTES).run(&[request], Load::OneAtATime, 1)
}

fn rates(run: Run, sizes: &[u64]) -> Vec<Value> {
    let mut rows = Vec::new();
    for operation in Operation::ALL {
        for (instances, table_3) in [1, 2].into_iter().zip(TABLE_3) {
            for value_bytes in sizes.iter().copied() {
                let run = Run { operation, value_bytes, ..run };
                let (kops, _) = run.kops(instances, Load::OneAtATime);
                let (streamed, counters) = run.kops(instances, Load::Every(0.0));
                let printed = value_bytes == PRINTED_BYTES && operation != Operation::Mix;
                let figure_9 = (printed && instances == 1).then_some(FIGURE_9);
                let table_3 = (printed && operation == Operation::Get).then_some(table_3);
                rows.push(json!({
                    "operation": operation.name(), "bytes": value_bytes, "instances": instances, "kops": kops,
                    "figure_9": figure_9, "of_figure_9": figure_9.map(|paper| kops / paper),
                    "table_3": table_3, "of_table_3": table_3.map(|paper| kops / paper),
                    "kops_streamed": streamed, "limit": limit(&counters),
                    "curve": format!("{} {instances}", operation.name()),
                }));
            }
        }
    }
    rows
}

fn by_module(sizes: &[u64]) -> Vec<Value> {
    let mut rows = Vec::new();
    for (set, name) in [(true, "SET"), (false, "GET")] {
        for bytes in sizes {
            let counters = alone(set, *bytes);
            let mut row = json!({ "request": format!("{name} {bytes}"), "total": counters.cycles });
            for module in Module::ALL {
                // A module that the request does not need has no figure.
                let spent = Some(counters.spent(module)).filter(|spent| *spent > 0);
                row[module.name()] = json!(spent);
            }
            rows.push(row);
        }
    }
    rows
}

fn printed() -> Vec<Value> {
    let (set, get) = (alone(true, PRINTED_BYTES), alone(false, PRINTED_BYTES));
    let total = |kops: f64| cycles::CLOCK_HZ / kops / 1e3;
    let row = |(what, paper, model, source): (&str, f64, u64, &str)| {
        let of_paper = model as f64 / paper;
        json!({ "what": what, "paper": paper, "model": model, "of_paper": of_paper, "source": source })
    };
    let hash = "hash decoder, 60 B, mixes of 6 and 7 cycles";
    [
        ("hash decoder, 64 B", 23.0, get.spent(Module::Hash), "5.2.2"),
        (hash, 34.0, cycles::hash(60, (6, 7)), "4.3.4, about"),
        ("hash read, 64 B", 42.0, get.spent(Module::HashRead), "5.2.2"),
        ("GET of 128 B in all", total(FIGURE_9), get.cycles, "5.3.1, nearly"),
        ("GET of 128 B in all", total(TABLE_3[0]), get.cycles, "table 3"),
        ("SET of 128 B in all", total(FIGURE_9), set.cycles, "5.3.1, nearly"),
    ]
    .map(row)
    .to_vec()
}

fn loads(run: Run) -> Vec<Value> {
    let mut rows = Vec::new();
    for operation in Operation::ALL {
        let run = Run { operation, value_bytes: PRINTED_BYTES, ..run };
        let (streamed, _) = run.kops(1, Load::Every(0.0));
        let of = |part: f64| Load::Every(cycles::CLOCK_HZ / (streamed * 1e3 * part));
        let loads = [0.5, 0.8, 0.9, 0.95, 1.05, 1.2]
            .map(|part| (format!("{part} of streamed"), of(part)))
            .into_iter()
            .chain([("line".to_owned(), Load::Every(0.0))]);
        for (name, load) in
            [("one at a time".to_owned(), Load::OneAtATime)].into_iter().chain(loads)
        {
            let mut counters = run.serve(load);
            counters.latencies.sort_unstable();
            let us = |cycles: Option<&u64>| cycles.map(|c| *c as f64 / cycles::CLOCK_HZ * 1e6);
            let all = &counters.latencies;
            let (min, max) = (us(all.first()), us(all.last()));
            let offered = counters.offered as f64;
            rows.push(json!({
                "operation": operation.name(), "load": name,
                "offered_kops": offered / counters.offered_cycles.max(1) as f64 * cycles::CLOCK_HZ / 1e3,
                "served_kops": counters.rate() / 1e3, "packets": counters.offered,
                "dropped": counters.dropped, "dropped_part": counters.dropped as f64 / offered,
                "min_us": min, "median_us": us(all.get(all.len() / 2)), "max_us": max,
                "jitter_us": max.zip(min).map(|(max, min)| max - min),
            }));
        }
    }
    rows
}

impl Cli {
    /// Simulates, prints and writes.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let common = &self.common;
        let mut frame = Frame::begin("fpga", common)?;
        let requests = self.requests.unwrap_or_else(|| common.pick(100_000, 500));
        let fifo_bytes = self.fifo.unwrap_or_else(|| common.pick(FIFO_BYTES, 4_096));
        let keys = self.keys.unwrap_or_else(|| common.pick(200_000, 1_000));
        for (fact, value) in [("requests", requests), ("fifo_bytes", fifo_bytes), ("keys", keys)] {
            frame.report.fact(fact, json!(value))?;
        }
        let run = Run {
            operation: Operation::Get,
            value_bytes: PRINTED_BYTES,
            requests,
            fifo_bytes,
            seed: common.seed,
        };
        frame.report.table("rate", rates(run, &self.sizes))?;
        frame.report.table("cycles", by_module(&self.sizes))?;
        frame.report.table("printed", printed())?;
        frame.report.table("load", loads(run))?;
        let trace = hits::zipf(keys, common.seed);
        frame.report.table("hits", hits::rows(&trace, keys, common.seed))?;
        frame.report.table("pages", hits::pages(&trace, keys, common.seed))?;
        frame.report.table("parameters", parameters::rows(fifo_bytes))?;
        Ok(frame.end(&[
            RATE,
            CYCLES,
            PRINTED,
            LOAD,
            hits::HITS,
            hits::PAGES,
            parameters::PARAMETERS,
        ])?)
    }
}

#[cfg(test)]
mod tests;
