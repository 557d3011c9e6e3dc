//! The command line of the study, its rounds, and the table that it prints.

use super::client::Client;
use super::script::{KEY_BYTES, Script, Verb};
use crate::report::table::{Draw, Table};
use crate::study::frame::{Common, Frame};
use crate::study::median;
use crate::study::server::{Cpu, Server, named};
use clap::Parser;
use serde_json::{Value, json};
use std::io;
use std::time::{Duration, Instant};

const TABLE: Table = Table {
    name: "tcp",
    title: "Requests over TCP, closed loop",
    says: "Medians; CPU time of the server's whole process per request, in microseconds; ratios to the first server, and their spread over the rounds.",
    columns: &[
        "case",
        "server",
        "per_s",
        "user_us",
        "system_us",
        "cpu_us",
        "cpu_ratio",
        "rate_ratio",
        "least_ratio",
        "most_ratio",
    ],
    plot: Some(Draw::Bars {
        label: "label",
        y: "CPU us per request",
        parts: &["user_us", "system_us"],
    }),
};

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// A server to start; {port} and {memory} are filled in. Once for each server; the first is the
    /// yardstick.
    #[arg(long = "server", required = true, value_name = "NAME=COMMAND", value_parser = named)]
    servers: Vec<(String, String)>,
    /// What is asked.
    #[arg(long = "verb", value_enum, value_delimiter = ',', default_value = "set,get")]
    verbs: Vec<Verb>,
    /// Requests that a connection sends at a time.
    #[arg(long = "depth", value_delimiter = ',', default_value = "1,16", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    depths: Vec<u64>,
    /// Connections that ask.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Connections beside them that never ask.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    idle: u32,
    /// Keys, of which each request draws one.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    keys: u64,
    /// Bytes per value.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    value_size: u32,
    /// Memory for items, in megabytes.
    #[arg(short, long, default_value_t = 256)]
    memory: u64,
    /// Measurements of each kind.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Length of each measurement, in milliseconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    milliseconds: Option<u64>,
}

/// A server under load.
struct Side {
    server: Server,
    client: Client,
    _idle: Client,
}

/// What one measurement gave.
#[derive(Debug, Clone, Copy)]
struct Sample {
    requests: u64,
    wall: Duration,
    cpu: Cpu,
}

impl Sample {
    fn rate(&self) -> f64 {
        self.requests as f64 / self.wall.as_secs_f64()
    }

    /// Microseconds per request in `part` of the CPU time, over all samples: the kernel counts in
    /// hundredths of a second, too coarse for one of them.
    fn cpu_us(all: &[Self], part: impl Fn(Cpu) -> Duration) -> f64 {
        let requests: u64 = all.iter().map(|s| s.requests).sum();
        let time: Duration = all.iter().map(|s| part(s.cpu)).sum();
        time.as_secs_f64() * 1e6 / requests.max(1) as f64
    }
}

impl Cli {
    /// Measures and prints.
    ///
    /// # Errors
    /// A server that does not start, or a reply that is not what it must be.
    pub fn run(&self) -> io::Result<()> {
        let value_bytes = self.value_size as usize;
        let mut sides = Vec::new();
        for (_, command) in &self.servers {
            let server = Server::start(command, self.memory)?;
            let mut client = Client::connect(server.address(), self.connections as usize, 1)?;
            let _idle = Client::connect(server.address(), self.idle as usize, 1)?;
            client.load(&Script::new(Verb::Set, self.keys, value_bytes))?;
            sides.push(Side { server, client, _idle });
        }
        let mut frame = Frame::begin("tcp", &self.common)?;
        for (fact, value) in [
            ("connections", json!(self.connections)),
            ("idle_connections", json!(self.idle)),
            ("keys", json!(self.keys)),
            ("key_bytes", json!(KEY_BYTES)),
            ("value_bytes", json!(value_bytes)),
            ("rounds", json!(self.rounds())),
            ("milliseconds", json!(self.milliseconds())),
        ] {
            frame.report.fact(fact, value)?;
        }
        let mut answered = 0;
        for verb in &self.verbs {
            let script = Script::new(*verb, self.keys, value_bytes);
            for depth in &self.depths {
                let samples = self.samples(&mut sides, &script, *depth, &mut answered)?;
                for row in self.rows(&format!("{verb:?}").to_lowercase(), *depth, &samples) {
                    frame.report.row("tcp", row)?;
                }
            }
        }
        frame.report.fact("answered", json!(answered))?;
        frame.end(&[TABLE])?;
        println!("{answered} requests, every reply as it must be");
        Ok(())
    }

    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or_else(|| self.common.pick(9, 1))
    }

    fn milliseconds(&self) -> u64 {
        self.milliseconds.unwrap_or_else(|| self.common.pick(1000, 100))
    }

    /// The samples of each server, round by round. Every other round goes the other way around.
    fn samples(
        &self,
        sides: &mut [Side],
        script: &Script,
        depth: u64,
        answered: &mut u64,
    ) -> io::Result<Vec<Vec<Sample>>> {
        let mut samples = vec![Vec::new(); sides.len()];
        let time = Duration::from_millis(self.milliseconds());
        for round in 0..self.rounds() {
            let mut order: Vec<_> = sides.iter_mut().zip(&mut samples).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for (side, samples) in order {
                // Caches and branch predictors first.
                side.client.run(script, depth, time / 20)?;
                let (before, begun) = (side.server.cpu()?, Instant::now());
                let n = side.client.run(script, depth, time)?;
                let (wall, cpu) = (begun.elapsed(), side.server.cpu()?.since(before));
                samples.push(Sample { requests: n, wall, cpu });
                *answered += n;
            }
        }
        Ok(samples)
    }

    fn rows(&self, verb: &str, depth: u64, samples: &[Vec<Sample>]) -> Vec<Value> {
        let Some(first) = samples.first() else { return Vec::new() };
        let first_cpu_us = Sample::cpu_us(first, Cpu::total);
        let row = |((name, _), these): (&(String, String), &Vec<Sample>)| {
            let mut ratios: Vec<_> =
                these.iter().zip(first).map(|(s, f)| s.rate() / f.rate()).collect();
            let ratio = median(&mut ratios);
            let cpu_us = Sample::cpu_us(these, Cpu::total);
            json!({
                "case": format!("{verb}, depth {depth}"), "server": name,
                "label": format!("{name}, {verb} {depth}"),
                "per_s": median(&mut these.iter().map(Sample::rate).collect::<Vec<_>>()),
                "user_us": Sample::cpu_us(these, |cpu| cpu.user),
                "system_us": Sample::cpu_us(these, |cpu| cpu.system),
                "cpu_us": cpu_us, "cpu_ratio": cpu_us / first_cpu_us, "rate_ratio": ratio,
                // Sorted by the median.
                "least_ratio": ratios.first(), "most_ratio": ratios.last(),
            })
        };
        self.servers.iter().zip(samples).map(row).collect()
    }
}
