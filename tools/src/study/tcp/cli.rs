//! The command line of the study, its rounds, and the table that it prints.

use super::client::Client;
use super::script::{KEY_BYTES, Script, Verb};
use crate::study::server::{Cpu, Server, named};
use clap::Parser;
use std::io;
use std::time::{Duration, Instant};

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
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
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of each measurement, in milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    milliseconds: u64,
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

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
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
        println!(
            "tcp: {} connections and {} idle ones, {} keys of {KEY_BYTES} B, values of {value_bytes} B, \
             closed loop, {} rounds of {} ms, medians",
            self.connections, self.idle, self.keys, self.rounds, self.milliseconds
        );
        println!(
            "{:14} {:12} {:>10} {:>8} {:>8} {:>8} {:>9} {:>9} (spread)",
            "", "server", "requests/s", "user us", "sys us", "CPU us", "CPU ratio", "rate ratio"
        );
        let mut answered = 0;
        for verb in &self.verbs {
            let script = Script::new(*verb, self.keys, value_bytes);
            for depth in &self.depths {
                let samples = self.samples(&mut sides, &script, *depth, &mut answered)?;
                self.print(&format!("{verb:?}").to_lowercase(), *depth, &samples);
            }
        }
        println!("{answered} requests, every reply as it must be");
        Ok(())
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
        let time = Duration::from_millis(self.milliseconds);
        for round in 0..self.rounds {
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

    fn print(&self, verb: &str, depth: u64, samples: &[Vec<Sample>]) {
        let Some(first) = samples.first() else { return };
        let first_cpu_us = Sample::cpu_us(first, Cpu::total);
        for ((name, _), these) in self.servers.iter().zip(samples) {
            let mut ratios: Vec<_> =
                these.iter().zip(first).map(|(s, f)| s.rate() / f.rate()).collect();
            let ratio = median(&mut ratios);
            let (least, most) = (ratios.first().unwrap_or(&ratio), ratios.last().unwrap_or(&ratio));
            let cpu_us = Sample::cpu_us(these, Cpu::total);
            println!(
                "{:14} {name:12} {:>10.0} {:>8.2} {:>8.2} {cpu_us:>8.2} {:>9.2} {ratio:>9.2} ({least:.2} to {most:.2})",
                format!("{verb}, depth {depth}"),
                median(&mut these.iter().map(Sample::rate).collect::<Vec<_>>()),
                Sample::cpu_us(these, |cpu| cpu.user),
                Sample::cpu_us(these, |cpu| cpu.system),
                cpu_us / first_cpu_us,
            );
        }
    }
}

fn median(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
