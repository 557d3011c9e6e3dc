//! The command line of the study, its rounds, and the tables that it prints.

use super::reads::{DEPTH, Reads};
use super::stags::Asked;
use crate::output::say;
use crate::report::table::{Draw, Table, table};
use crate::study::frame::{Common, Frame};
use crate::study::load::Shape;
use crate::study::server::{Cpu, Server, named};
use crate::study::tcp::client::Client;
use crate::study::tcp::memory::Memory;
use crate::study::tcp::script::{Script, Verb};
use crate::workload::{Key, values};
use clap::Parser;
use dataplane::rdma::{Rdma, read_len};
use gnomon_client::codec::{Field, Stag};
use serde_json::{Value, json};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

const READS: Table = table! {
    "reads" "A value to a client: one-sided, and over TCP"
    ["bytes by per_core_s user_us system_us cpu_us times_server times_tcp cycles paper_cycles"]
    "CPU time of the server per value, in microseconds: of a worker's turns, from frames in memory, or of the whole process with the kernel's part; what a core gives a second; the first server's CPU time, and the worker's over TCP, divided by it; cycles at the processor's nominal clock beside the paper's figure 2."
    => Draw::Bars { label: "label", y: "CPU us per value", parts: &["user_us", "system_us"] }
};

const STAGS: Table = table! {
    "stags" "What stags cost, over TCP" ["request cpu_us per_core_s beside_without"]
    "CPU time of a worker's turns per request, in microseconds, from frames in memory, values of 1 KB; beside the same request without the stag."
    => Draw::Bars { label: "request", y: "CPU us per request", parts: &["cpu_us"] }
};

/// Sizes of values, how many READs get one, and the cycles of memcached in the paper's figure 2.
const SIZES: [(usize, usize, Option<u64>); 4] = [
    (1_000, 1, Some(46_000)),
    (10_000, 1, Some(84_000)),
    (65_536, 1, None),
    (100_000, 2, Some(289_000)),
];
/// Bytes of every key.
const KEY_BYTES: usize = 24;
/// Connections over TCP, each with one request under way: as many as there are READs, so that each way has the same
/// work at hand.
const CONNECTIONS: usize = DEPTH;
/// Values of the table of stags.
const STAG_VALUE_BYTES: usize = 1_000;

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// A server to start; {port} and {memory} are filled in. Once for each server; the first is the
    /// yardstick.
    #[arg(long = "server", value_name = "NAME=COMMAND", value_parser = named)]
    #[arg(
        default_value = "memcached=memcached -l 127.0.0.1 -p {port} -U 0 -m {memory} -t 1 -u nobody"
    )]
    servers: Vec<(String, String)>,
    /// Items in each store, as in the paper.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    items: u64,
    /// Measurements of each kind.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Length of each measurement, in milliseconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    milliseconds: Option<u64>,
}

/// A way to a value.
enum Side {
    Read { reads: Box<Reads>, per_value: u64 },
    Worker { memory: Box<Memory>, script: Script },
    Server { server: Server, client: Box<Client>, script: Script },
}

/// What measurements of one way gave, together.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    values: u64,
    cpu: Cpu,
}

impl Cost {
    fn us(self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.values.max(1) as f64
    }

    fn cpu_us(self) -> f64 {
        self.us(self.cpu.total())
    }
}

impl Side {
    fn run(&mut self, time: Duration, cost: &mut Cost) -> Result<(), Box<dyn Error>> {
        let system = Duration::ZERO;
        let (values, cpu) = match self {
            Self::Read { reads, per_value } => {
                let (n, user) = reads.run(time, 1)?;
                (n / *per_value, Cpu { user, system })
            }
            Self::Worker { memory, script } => {
                let (n, user) = memory.run(script, (CONNECTIONS, 1), (time, 1))?;
                (n, Cpu { user, system })
            }
            Self::Server { server, client, script } => {
                let before = Cpu::of(server.process())?;
                let n = client.run(script, 1, time)?;
                (n, Cpu::of(server.process())?.since(before))
            }
        };
        cost.values += values;
        cost.cpu.user += cpu.user;
        cost.cpu.system += cpu.system;
        Ok(())
    }
}

impl Cli {
    /// Measures and prints.
    ///
    /// # Errors
    /// A server that does not start, or a value that is not what it must be.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("onesided", &self.common)?;
        let clock_mhz = clock_mhz();
        for (fact, value) in [
            ("items", json!(self.items)),
            ("key_bytes", json!(KEY_BYTES)),
            ("connections", json!(CONNECTIONS)),
            ("reads_under_way", json!(DEPTH)),
            ("rounds", json!(self.rounds())),
            ("milliseconds", json!(self.time().as_millis())),
            ("clock_mhz", json!(clock_mhz)),
        ] {
            frame.report.fact(fact, value)?;
        }
        for (bytes, reads, paper) in SIZES {
            let costs = self.values(bytes, reads)?;
            for row in self.rows(bytes, paper, &costs, clock_mhz) {
                frame.report.row("reads", row)?;
            }
        }
        for row in self.stags()? {
            frame.report.row("stags", row)?;
        }
        frame.end(&[READS, STAGS])?;
        Ok(say("every value as it must be")?)
    }

    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or_else(|| self.common.pick(9, 1))
    }

    fn time(&self) -> Duration {
        let time = self.milliseconds.unwrap_or_else(|| self.common.pick(1000, 50));
        Duration::from_millis(time)
    }

    /// Items: fewer where values are long, so that they fit the connection's and the test's memory.
    fn items(&self) -> u64 {
        self.common.pick(self.items, self.items.min(100))
    }

    fn memory_mb(&self, bytes: usize) -> u64 {
        // The largest classes take a page of 1 MB for a few items each.
        64 + self.items() * (bytes as u64 + 1024) * 2 / (1 << 20)
    }

    /// What each way to a value of so many bytes costs: servers, a worker over TCP, READs.
    fn values(&self, bytes: usize, reads: usize) -> Result<Vec<Cost>, Box<dyn Error>> {
        let script = |verb| Script::new(verb, self.items(), KEY_BYTES, bytes);
        let memory_mb = self.memory_mb(bytes);
        let mut sides = Vec::new();
        for (_, command) in &self.servers {
            let server = Server::start(command, memory_mb)?;
            let mut client = Box::new(Client::connect(server.address(), CONNECTIONS, 1)?);
            client.load(&script(Verb::Set))?;
            sides.push(Side::Server { server, client, script: script(Verb::Get) });
        }
        let memory_bytes = usize::try_from(memory_mb << 20)?;
        let memory = Box::new(Memory::connect(CONNECTIONS, memory_bytes, None)?);
        memory.fill((0..self.items()).map(|index| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            Key { index, bytes: KEY_BYTES }.append(&mut key);
            values::append(index, 0, bytes, &mut value);
            (key, values::flags(index), value)
        }))?;
        sides.push(Side::Worker { memory, script: script(Verb::Get) });
        let shape = Shape { key_bytes: KEY_BYTES, value_bytes: bytes / reads };
        let items = self.items() * reads as u64;
        let per_value = reads as u64;
        let reads = Box::new(Reads::new(items, shape, self.common.seed)?);
        sides.push(Side::Read { reads, per_value });
        self.measured(&mut sides)
    }

    /// Every way in turn, round by round; every other round goes the other way around.
    fn measured(&self, sides: &mut [Side]) -> Result<Vec<Cost>, Box<dyn Error>> {
        let mut costs = vec![Cost::default(); sides.len()];
        let time = self.time();
        for round in 0..self.rounds() {
            let mut order: Vec<_> = sides.iter_mut().zip(&mut costs).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for (side, cost) in order {
                // Caches and branch predictors first.
                side.run(time / 20, &mut Cost::default())?;
                side.run(time, cost)?;
            }
        }
        Ok(costs)
    }

    fn rows(
        &self,
        bytes: usize,
        paper: Option<u64>,
        costs: &[Cost],
        clock_mhz: Option<f64>,
    ) -> Vec<Value> {
        let servers = self.servers.iter().map(|(name, _)| format!("GET over TCP, {name}"));
        let ours = ["GET over TCP, a worker", "READ, a worker"].map(str::to_owned);
        let [.., worker, _] = costs else { return Vec::new() };
        let (worker, server) = (worker.cpu_us(), costs.first().map_or(f64::NAN, |c| c.cpu_us()));
        let row = |(n, (by, cost)): (usize, (String, &Cost))| {
            let cpu_us = cost.cpu_us();
            json!({
                "bytes": bytes, "label": format!("{by}, {bytes} B"), "by": by,
                "per_core_s": 1e6 / cpu_us,
                "user_us": cost.us(cost.cpu.user), "system_us": cost.us(cost.cpu.system),
                "cpu_us": cpu_us, "times_server": server / cpu_us, "times_tcp": worker / cpu_us,
                "cycles": clock_mhz.map(|mhz| cpu_us * mhz),
                "paper_cycles": paper.filter(|_| n == 0),
            })
        };
        servers.chain(ours).zip(costs).enumerate().map(row).collect()
    }

    /// What requests with and without stags cost.
    fn stags(&self) -> Result<Vec<Value>, Box<dyn Error>> {
        let rdma = Arc::new(Rdma::default());
        let memory_bytes = usize::try_from(self.memory_mb(STAG_VALUE_BYTES) << 20)?;
        let mut memory = Memory::connect(CONNECTIONS, memory_bytes, Some(Arc::clone(&rdma)))?;
        let len = read_len(KEY_BYTES, STAG_VALUE_BYTES).ok_or("too long to be read")?;
        let len = u32::try_from(len)?;
        let scripts = Asked::ALL.map(|asked| {
            let stag = |key: &[u8]| Stag { id: rdma.stags.of(memory.hash(key)), len };
            asked.script((self.items(), KEY_BYTES), STAG_VALUE_BYTES, stag)
        });
        let mut costs = [Cost::default(); Asked::ALL.len()];
        let [set, ..] = &scripts;
        memory.load(set)?;
        for round in 0..self.rounds() {
            let mut order: Vec<_> = scripts.iter().zip(&mut costs).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for (script, cost) in order {
                memory.run(script, (CONNECTIONS, 1), (self.time() / 20, 1))?;
                let (n, user) = memory.run(script, (CONNECTIONS, 1), (self.time(), 1))?;
                cost.values += n;
                cost.cpu.user += user;
            }
        }
        let row = |(n, (asked, cost)): (usize, (Asked, &Cost))| {
            // Each stands behind the same without a stag.
            let without = costs.get(n / 2 * 2).map_or(f64::NAN, |cost| cost.cpu_us());
            let cpu_us = cost.cpu_us();
            json!({ "request": asked.name(), "cpu_us": cpu_us, "per_core_s": 1e6 / cpu_us,
                "beside_without": cpu_us / without })
        };
        Ok(Asked::ALL.into_iter().zip(&costs).enumerate().map(row).collect())
    }
}

/// The clock that the kernel says the processor has.
fn clock_mhz() -> Option<f64> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("cpu MHz"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}
