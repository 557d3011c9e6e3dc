//! `gnomon-study`: how fast, against what.

use clap::{Args, Parser, Subcommand};
use serde_json::json;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use tools::study::hitrate::{self, Shape as TraceShape, Trace};
use tools::study::load::{Load, Shape};
use tools::study::memcached::Memcached;
use tools::study::memory::Lines;
use tools::study::offline::{Bench, Config};
use tools::study::server::named;
use tools::study::tcp;
use tools::workload::Sizes;

/// Most distinct request frames that are prepared.
const FRAMES_MAX: u64 = 4_000_000;

/// Experiments on the data plane, each with its yardstick in the same run.
#[derive(Debug, Parser)]
#[command(name = "gnomon-study", version)]
struct Cli {
    #[command(subcommand)]
    study: Study,
}

#[derive(Debug, Subcommand)]
enum Study {
    /// CPU time per request on the whole path, from frames in memory; beside it what memory gives,
    /// and memcached.
    Offline(Offline),
    /// One load on the whole path and nothing else, for `scripts/instructions.sh` and profilers.
    Path(Path),
    /// Hits among the same requests, and bytes per item, at equal memory: several servers.
    Hitrate(Hitrate),
    /// Requests per second and CPU time per request over TCP, pipelined and not: several servers.
    Tcp(tcp::Cli),
}

/// The store and what is asked of it.
#[derive(Debug, Args)]
struct Stage {
    /// Items in the store.
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    items: u64,
    /// Bytes per key.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(10..=250))]
    key_size: u16,
    /// Bytes per value.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    value_size: u16,
    /// Requests per measurement.
    #[arg(long, default_value_t = 8_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Requests whose memory accesses overlap.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512))]
    group: u16,
    /// Seed of the random keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Stage {
    fn config(&self) -> Config {
        Config {
            items: self.items,
            shape: Shape {
                key_bytes: usize::from(self.key_size),
                value_bytes: usize::from(self.value_size),
            },
            requests: self.requests,
            frames: self.items.min(FRAMES_MAX),
            seed: self.seed,
        }
    }
}

#[derive(Debug, Parser)]
struct Offline {
    #[command(flatten)]
    stage: Stage,
    /// Measurements of each kind; the median is shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// UDP requests to memcached; 0 leaves it out.
    #[arg(long, default_value_t = 300_000)]
    memcached_requests: u64,
}

#[derive(Debug, Parser)]
struct Path {
    #[command(flatten)]
    stage: Stage,
    /// What is asked.
    #[arg(long, value_enum, default_value = "get")]
    load: Load,
}

#[derive(Debug, Parser)]
struct Hitrate {
    /// A server to start, afresh for each trace; {port} and {memory} are filled in. Once for each
    /// server.
    #[arg(long = "server", required = true, value_name = "NAME=COMMAND", value_parser = named)]
    servers: Vec<(String, String)>,
    /// Memory for items, in megabytes.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory: u64,
    /// Traces.
    #[arg(
        long = "trace",
        value_enum,
        value_delimiter = ',',
        default_value = "zipf099,zipf08,scan,shift"
    )]
    traces: Vec<TraceShape>,
    /// Keys that requests are drawn from.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,
    /// Requests in a trace.
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(2..))]
    requests: u64,
    /// Bytes per value: one size, A..B, or a list with weights.
    #[arg(long, default_value = "16..384")]
    value_size: Sizes,
    /// The same after the shift of a shifting trace.
    #[arg(long, default_value = "400..900")]
    shifted_size: Sizes,
    /// Seed of the requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().study {
        Study::Offline(args) => offline_study(&args),
        Study::Path(args) => path_study(&args),
        Study::Hitrate(args) => hitrate_study(&args),
        Study::Tcp(args) => args.run().map_err(Into::into),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("gnomon-study: {e}");
            ExitCode::FAILURE
        }
    }
}

fn offline_study(args: &Offline) -> Result<(), Box<dyn Error>> {
    let config = args.stage.config();
    let Config { items, requests, seed, shape, .. } = config;
    let Shape { key_bytes, value_bytes } = shape;
    let bench = Bench::new(config)?;
    let stats = bench.store().stats();
    // As much as the items take, so that the caches help as little.
    let mut lines = Lines::new(usize::try_from(items)? * shape.item_bytes())?;
    println!(
        "offline: {} items of {key_bytes} B keys and {value_bytes} B values, uniform, seed {}",
        items, seed
    );
    println!(
        "items on {}, index on {}, {} MB of lines on {}; one worker, {} requests a measurement, \
         median of {}",
        stats.item_memory.name(),
        stats.index_memory.name(),
        lines.len_bytes() >> 20,
        lines.kind().name(),
        requests,
        args.rounds
    );
    let (get, set) = (bench.requests(Load::Get)?, bench.requests(Load::Set)?);
    let group = usize::from(args.stage.group);
    let mut rows = [
        Row::new(format!("random lines, {group} at a time"), Case::Lines(group)),
        Row::new("random lines, one by one", Case::Lines(1)),
        Row::new("look-ups alone, group prefetch", Case::LookUps(group)),
        Row::new("look-ups alone, one by one, no prefetch", Case::LookUps(1)),
        Row::new("the memory port alone (no part of a NIC's work)", Case::Port),
        Row::new("whole path, GET, group prefetch", Case::Path(Load::Get, group, true)),
        Row::new("whole path, GET, one by one, no prefetch", Case::Path(Load::Get, 1, true)),
        Row::new("whole path, GET, checksums by the port", Case::Path(Load::Get, group, false)),
        Row::new("whole path, SET", Case::Path(Load::Set, group, true)),
    ];
    let (mut checked, mut wrong) = (0, 0);
    // Side by side: one round of everything, then the next, so that a slow minute of a shared
    // machine hits all alike.
    for _ in 0..args.rounds {
        for row in &mut rows {
            row.ns.push(match row.case {
                Case::Lines(group) => lines.read(group, requests, seed),
                Case::LookUps(group) => bench.lookups(group)?,
                Case::Port => bench.port_alone(&get)?,
                Case::Path(load, group, software) => {
                    let frames = if load == Load::Set { &set } else { &get };
                    let run = bench.whole_path(load, frames, group, software)?;
                    checked += run.checked;
                    wrong += run.wrong;
                    run.cpu_ns
                }
            });
        }
    }
    println!();
    println!("{:48} {:>10} {:>9} {:>13}", "", "CPU ns", "M/s", "of the lines");
    let line_ns = rows.first_mut().map_or(f64::NAN, |row| median(&mut row.ns));
    for row in &mut rows {
        let ns = median(&mut row.ns);
        println!("{:48} {ns:>10.1} {:>9.2} {:>12.1}%", row.name, 1e3 / ns, 100.0 * line_ns / ns);
    }
    let mut ns = |case| {
        let row = rows.iter_mut().find(|row| row.case == case);
        row.map_or(f64::NAN, |row| median(&mut row.ns))
    };
    let path_ns = ns(Case::Path(Load::Get, group, true));
    println!(
        "group prefetch makes look-ups {:.2} times as fast, the whole path {:.2} times",
        ns(Case::LookUps(1)) / ns(Case::LookUps(group)),
        ns(Case::Path(Load::Get, 1, true)) / path_ns
    );
    println!("replies checked to the byte: {checked}, wrong: {wrong}");
    if wrong > 0 || checked == 0 {
        return Err("a reply was not what it must be".into());
    }
    if args.memcached_requests > 0 {
        against_memcached(args, config, path_ns)?;
    }
    Ok(())
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// Random lines, so many at a time.
    Lines(usize),
    /// Look-ups, so many at a time.
    LookUps(usize),
    /// The port alone.
    Port,
    /// A load on the whole path, in groups, with checksums in software or without.
    Path(Load, usize, bool),
}

/// A case, and what it took in each round, in nanoseconds.
#[derive(Debug)]
struct Row {
    name: String,
    case: Case,
    ns: Vec<f64>,
}

impl Row {
    fn new(name: impl Into<String>, case: Case) -> Self {
        Self { name: name.into(), case, ns: Vec::new() }
    }
}

fn path_study(args: &Path) -> Result<(), Box<dyn Error>> {
    let bench = Bench::new(args.stage.config())?;
    let group = usize::from(args.stage.group);
    let run = bench.whole_path(args.load, &bench.requests(args.load)?, group, true)?;
    println!("{} answered, {} checked, {} wrong", run.answered, run.checked, run.wrong);
    if run.wrong > 0 || run.checked == 0 {
        return Err("a reply was not what it must be".into());
    }
    Ok(())
}

fn against_memcached(args: &Offline, config: Config, ours_ns: f64) -> Result<(), Box<dyn Error>> {
    let Shape { key_bytes, value_bytes } = config.shape;
    let item_bytes = (key_bytes + value_bytes + 80) as u64;
    let memory_mb = usize::try_from((config.items * item_bytes) >> 20)? * 3 / 2 + 64;
    let server = Memcached::start(memory_mb).map_err(|e| format!("cannot start memcached: {e}"))?;
    let key = |i| config.shape.key(i);
    server.load(config.items, key, |i| config.shape.value(i))?;
    let cost = server.ask(args.memcached_requests, |n| {
        // Knuth's multiplicative hash: spread over all items, no two alike in a row.
        key(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % config.items)
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a count below 2^52")]
    let ns = cost.cpu.as_secs_f64() * 1e9 / cost.answered.max(1) as f64;
    println!();
    println!(
        "memcached, one thread, UDP on loopback: {ns:.0} ns of CPU per request (user and system), \
         {} of {} answered, {} hits",
        cost.answered, args.memcached_requests, cost.hits
    );
    println!("gnomon's whole path takes 1/{:.0} of that", ns / ours_ns);
    Ok(())
}

fn hitrate_study(args: &Hitrate) -> Result<(), Box<dyn Error>> {
    println!(
        "hitrate: {} MB, {} requests a trace for {} keys of {} B, values of {} B (later {}), seed {}",
        args.memory,
        args.requests,
        args.keys,
        hitrate::client::KEY_BYTES,
        args.value_size,
        args.shifted_size,
        args.seed
    );
    println!(
        "{:8} {:12} {:>8} {:>8} {:>9} {:>10} {:>9} {:>8} {:>8}",
        "trace",
        "server",
        "hits",
        "2nd half",
        "items",
        "key+value",
        "overhead",
        "slabs",
        "resident"
    );
    let commands: Vec<&str> = args.servers.iter().map(|(_, command)| command.as_str()).collect();
    let mut all = Vec::new();
    for shape in &args.traces {
        let trace = Trace {
            shape: *shape,
            keys: args.keys,
            length: args.requests,
            values: args.value_size.clone(),
            shifted: args.shifted_size.clone(),
            seed: args.seed,
        };
        let trace_name = format!("{shape:?}").to_lowercase();
        for ((name, _), score) in
            args.servers.iter().zip(hitrate::play(&trace, &commands, args.memory)?)
        {
            println!(
                "{trace_name:8} {name:12} {:>7.3}% {:>7.3}% {:>9} {:>8.1} B {:>7.1} B {:>5} MB {:>5} MB",
                100.0 * score.hit_rate(),
                100.0 * score.late_hit_rate(),
                score.items,
                score.item_bytes(),
                score.overhead_bytes(),
                score.memory_bytes >> 20,
                score.resident_bytes >> 20
            );
            all.push(json!({ "trace": trace_name, "server": name, "score": score.json() }));
        }
    }
    if let Some(file) = &args.json {
        fs::write(file, format!("{:#}\n", json!({ "memory_mb": args.memory, "scores": all })))?;
    }
    Ok(())
}

fn median(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
