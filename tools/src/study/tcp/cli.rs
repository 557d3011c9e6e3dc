//! The command line of the study, its rounds, and the table that it prints.

use super::client::Client;
use super::memory::{CONNECTIONS_MAX, Memory};
use super::script::{Script, Verb};
use super::wire::{Kind, Tcp, Wire};
use crate::output::{about, say};
use crate::report::table::{Draw, Table, table};
use crate::study::frame::{Common, Frame};
use crate::study::median;
use crate::study::server::{Cpu, Server, named};
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TABLE: Table = table! {
    "tcp" "Requests over TCP, closed loop"
    ["case server per_s user_us system_us cpu_us cpu_ratio rate_ratio least_ratio most_ratio"]
    "Medians; CPU time of the server's whole process per request, in microseconds, or of a worker's turns, whose rate is what its core could do; ratios to the first server, and their spread over the rounds."
    => Draw::Bars { label: "label", y: "CPU us per request", parts: &["user_us", "system_us"] }
};

/// What lies between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Through {
    /// Kernel sockets, for all servers.
    Sockets,
    /// A worker of gnomon's is given frames in memory; the other servers have kernel sockets.
    Memory,
    /// gnomon behind DPDK's net_tap, by the workers and by the kernel; the other servers behind a veth cable.
    #[value(name = "net_tap")]
    NetTap,
    /// The same behind DPDK's af_packet, on a veth cable.
    #[value(name = "af_packet")]
    AfPacket,
    /// The same behind DPDK's memif, with DPDK's testpmd at the other end.
    Memif,
}

impl Through {
    fn wire(self) -> Option<Kind> {
        match self {
            Self::Sockets | Self::Memory => None,
            Self::NetTap => Some(Kind::NetTap),
            Self::AfPacket => Some(Kind::AfPacket),
            Self::Memif => Some(Kind::Memif),
        }
    }
}

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// What lies between client and server; but for `sockets`, gnomon is one more server. A wire takes root: each of
    /// its ends is in a network namespace of its own.
    #[arg(long, value_enum, default_value = "sockets")]
    through: Through,
    /// gnomon's program, for a wire. Default: the one beside this one
    #[arg(long, value_name = "FILE")]
    gnomon: Option<PathBuf>,
    /// A server to start; {address}, {port} and {memory} are filled in. Once for each server; the first is the
    /// yardstick.
    #[arg(long = "server", value_name = "NAME=COMMAND", value_parser = named)]
    servers: Vec<(String, String)>,
    /// What is asked.
    #[arg(long = "verb", value_enum, value_delimiter = ',', default_value = "set,get")]
    verbs: Vec<Verb>,
    /// Requests that a connection sends at a time.
    #[arg(long = "depth", value_delimiter = ',', default_value = "1,16", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    depths: Vec<u64>,
    /// Connections that ask; several numbers are measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "8", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    connections: Vec<u32>,
    /// Connections beside them that ask nothing while it is measured.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=50_000))]
    idle: u32,
    /// Keys, of which each request draws one.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    keys: u64,
    /// Bytes per key.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(11..=250))]
    key_size: u32,
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
    /// Requests of each measurement, through memory, instead of a time: for profilers.
    #[arg(long, conflicts_with_all = ["milliseconds", "servers"])]
    requests: Option<u64>,
}

/// A server under load.
enum Side {
    Sockets { server: Server, client: Box<Client>, idle: Box<Client> },
    Wire { wire: Wire, client: Box<Client>, idle: Box<Client> },
    Memory { memory: Box<Memory>, connections: usize, least: u64 },
}

impl Side {
    /// Sends requests, `depth` at a time on each connection, for this long.
    fn run(&mut self, script: &Script, depth: u64, time: Duration) -> io::Result<Sample> {
        match self {
            Self::Sockets { server, client, .. } => {
                Sample::of(server.process(), || client.run(script, depth, time))
            }
            Self::Wire { wire, client, .. } => {
                let run = || client.run(script, depth, time);
                wire.running(|| Sample::of(wire.process(), run))
            }
            Self::Memory { memory, connections, least } => {
                let (requests, user) = memory.run(script, (*connections, depth), (time, *least))?;
                let cpu = Cpu { user, system: Duration::ZERO };
                Ok(Sample { requests, wall: user, cpu })
            }
        }
    }

    /// That the connections that ask nothing are still open.
    fn keeps_idle(&mut self) -> io::Result<()> {
        match self {
            Self::Sockets { idle, .. } => idle.are_served(),
            Self::Wire { wire, idle, .. } => wire.running(|| idle.are_served()),
            Self::Memory { .. } => Ok(()),
        }
    }
}

/// What one measurement gave.
#[derive(Debug, Clone, Copy)]
struct Sample {
    requests: u64,
    wall: Duration,
    cpu: Cpu,
}

impl Sample {
    /// While a server answers so many requests.
    fn of(process: u32, run: impl FnOnce() -> io::Result<u64>) -> io::Result<Self> {
        let (before, begun) = (Cpu::of(process)?, Instant::now());
        let requests = run()?;
        Ok(Self { requests, wall: begun.elapsed(), cpu: Cpu::of(process)?.since(before) })
    }

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
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        if self.through == Through::Sockets && self.servers.is_empty() {
            return Err("no server: --server, or another --through".into());
        }
        if self.through != Through::Memory && self.requests.is_some() {
            return Err("--requests needs --through memory".into());
        }
        if self.through.wire().is_none() && self.gnomon.is_some() {
            return Err("--gnomon needs --through net_tap, af_packet or memif".into());
        }
        let mut frame = Frame::begin("tcp", &self.common)?;
        for (fact, value) in [
            ("connections", json!(self.connections)),
            ("idle_connections", json!(self.idle)),
            ("keys", json!(self.keys)),
            ("key_bytes", json!(self.key_size)),
            ("value_bytes", json!(self.value_size)),
            ("rounds", json!(self.rounds())),
            ("milliseconds", json!(self.milliseconds())),
        ] {
            frame.report.fact(fact, value)?;
        }
        let mut answered = 0;
        for &connections in &self.connections {
            let mut sides = self.sides(connections as usize)?;
            for verb in &self.verbs {
                let script = self.script(*verb);
                for depth in &self.depths {
                    let samples = self.samples(&mut sides, &script, *depth, &mut answered)?;
                    let verb = format!("{verb:?}").to_lowercase();
                    let case = match self.connections.len() {
                        1 => format!("{verb}, depth {depth}"),
                        _ => format!("{verb}, {connections} connections, depth {depth}"),
                    };
                    for row in rows(&case, &sides, &samples) {
                        frame.report.row("tcp", row)?;
                    }
                }
            }
            for (name, side) in &mut sides {
                side.keeps_idle().map_err(|e| about(name, &e))?;
            }
        }
        frame.report.fact("answered", json!(answered))?;
        frame.end(&[TABLE])?;
        Ok(say(format_args!("{answered} requests, every reply as it must be"))?)
    }

    fn script(&self, verb: Verb) -> Script {
        Script::new(verb, self.keys, self.key_size as usize, self.value_size as usize)
    }

    /// The servers, by name, loaded, with so many connections each that ask.
    fn sides(&self, connections: usize) -> Result<Vec<(String, Side)>, Box<dyn Error>> {
        let (sets, idle) = (self.script(Verb::Set), self.idle as usize);
        let connect = |address| {
            let mut client = Box::new(Client::connect(address, connections, 1)?);
            let mut idle = Box::new(Client::connect(address, idle, 1)?);
            idle.are_served()?;
            client.load(&sets)?;
            Ok::<_, io::Error>((client, idle))
        };
        let over = |wire: Wire| {
            let (client, idle) = wire.running(|| wire.enter(|| connect(wire.address())))?;
            Ok::<_, io::Error>(Side::Wire { wire, client, idle })
        };
        let mut sides = Vec::new();
        for (name, command) in &self.servers {
            let side = if self.through.wire().is_some() {
                over(Wire::cable(command, self.memory)?)?
            } else {
                let server = Server::start(command, self.memory)?;
                let (client, idle) = connect(server.address())?;
                Side::Sockets { server, client, idle }
            };
            sides.push((name.clone(), side));
        }
        if let Some(kind) = self.through.wire() {
            let program = match &self.gnomon {
                Some(program) => program.clone(),
                None => std::env::current_exe()?.with_file_name("gnomon"),
            };
            for (name, tcp) in [("gnomon, kernel", Tcp::Kernel), ("gnomon, workers", Tcp::Worker)] {
                let wire = Wire::gnomon(&program, kind, tcp, self.memory, connections + idle)?;
                sides.push((name.to_owned(), over(wire)?));
            }
        }
        if self.through == Through::Memory {
            if connections + idle > CONNECTIONS_MAX {
                return Err(format!("at most {CONNECTIONS_MAX} connections").into());
            }
            let memory_bytes = usize::try_from(self.memory << 20)?;
            let mut memory = Box::new(Memory::connect(connections + idle, memory_bytes, None)?);
            memory.load(&sets)?;
            let least = self.requests.unwrap_or(0);
            let side = Side::Memory { memory, connections, least };
            sides.push(("gnomon, in memory".to_owned(), side));
        }
        Ok(sides)
    }

    fn rounds(&self) -> u32 {
        let usual = if self.requests.is_some() { 1 } else { 9 };
        self.rounds.unwrap_or_else(|| self.common.pick(usual, 1))
    }

    fn milliseconds(&self) -> u64 {
        self.milliseconds.unwrap_or_else(|| self.common.pick(1000, 100))
    }

    /// The samples of each server, round by round. Every other round goes the other way around.
    fn samples(
        &self,
        sides: &mut [(String, Side)],
        script: &Script,
        depth: u64,
        answered: &mut u64,
    ) -> io::Result<Vec<Vec<Sample>>> {
        let mut samples = vec![Vec::new(); sides.len()];
        let time = match self.requests {
            None => Duration::from_millis(self.milliseconds()),
            Some(_) => Duration::ZERO,
        };
        for round in 0..self.rounds() {
            let mut order: Vec<_> = sides.iter_mut().zip(&mut samples).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for ((_, side), samples) in order {
                if !time.is_zero() {
                    // Caches and branch predictors first.
                    side.run(script, depth, time / 20)?;
                }
                let sample = side.run(script, depth, time)?;
                *answered += sample.requests;
                samples.push(sample);
            }
        }
        Ok(samples)
    }
}

fn rows(case: &str, sides: &[(String, Side)], samples: &[Vec<Sample>]) -> Vec<Value> {
    let Some(first) = samples.first() else { return Vec::new() };
    let first_cpu_us = Sample::cpu_us(first, Cpu::total);
    let row = |((name, _), these): (&(String, Side), &Vec<Sample>)| {
        let mut ratios: Vec<_> =
            these.iter().zip(first).map(|(s, f)| s.rate() / f.rate()).collect();
        let ratio = median(&mut ratios);
        let cpu_us = Sample::cpu_us(these, Cpu::total);
        json!({
            "case": case, "server": name, "label": format!("{name}, {case}"),
            "per_s": median(&mut these.iter().map(Sample::rate).collect::<Vec<_>>()),
            "user_us": Sample::cpu_us(these, |cpu| cpu.user),
            "system_us": Sample::cpu_us(these, |cpu| cpu.system),
            "cpu_us": cpu_us, "cpu_ratio": cpu_us / first_cpu_us, "rate_ratio": ratio,
            // Sorted by the median.
            "least_ratio": ratios.first(), "most_ratio": ratios.last(),
        })
    };
    sides.iter().zip(samples).map(row).collect()
}
