//! `gnomon-study`: how fast, against what.

use clap::{Parser, Subcommand};
use serde_json::json;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use tools::study::hitrate::{self, Shape, Trace};
use tools::study::memcached::Memcached;
use tools::study::offline::{self, Bench, Config, Run};
use tools::workload::Sizes;

/// Experiments on the data plane, each with its yardstick in the same run.
#[derive(Debug, Parser)]
#[command(name = "gnomon-study", version)]
struct Cli {
    #[command(subcommand)]
    study: Study,
}

#[derive(Debug, Subcommand)]
enum Study {
    /// CPU time per GET on the whole path, from frames in memory; memcached's beside it.
    Offline(Offline),
    /// Hits among the same requests, and bytes per item, at equal memory: several servers.
    Hitrate(Hitrate),
}

#[derive(Debug, Parser)]
struct Offline {
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
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(2..=512))]
    group: u16,
    /// Measurements of each kind; the median is shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// Seed of the random keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// UDP requests to memcached; 0 leaves it out.
    #[arg(long, default_value_t = 300_000)]
    memcached_requests: u64,
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
    traces: Vec<Shape>,
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

fn named(text: &str) -> Result<(String, String), String> {
    let (name, command) = text.split_once('=').ok_or("write NAME=COMMAND")?;
    Ok((name.to_owned(), command.to_owned()))
}

fn main() -> ExitCode {
    let done = match Cli::parse().study {
        Study::Offline(args) => offline_study(&args),
        Study::Hitrate(args) => hitrate_study(&args),
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
    let (key_bytes, value_bytes) = (usize::from(args.key_size), usize::from(args.value_size));
    let config = Config {
        items: args.items,
        key_bytes,
        value_bytes,
        requests: args.requests,
        frames: args.items.min(4_000_000),
        seed: args.seed,
    };
    let bench = Bench::new(config)?;
    let stats = bench.store().stats();
    println!(
        "offline: {} items of {key_bytes} B keys and {value_bytes} B values, uniform, seed {}",
        args.items, args.seed
    );
    println!(
        "items on {}, index on {}; one worker, {} GETs a measurement, median of {}",
        stats.item_memory.name(),
        stats.index_memory.name(),
        args.requests,
        args.rounds
    );
    // Side by side: one round of everything, then the next, so that a slow minute of a shared
    // machine hits all alike.
    let group = usize::from(args.group);
    let cases = [
        ("whole path, group prefetch", group, true),
        ("whole path, one by one, no prefetch", 1, true),
        ("group prefetch, checksums by the port", group, false),
    ];
    let mut port = Vec::new();
    let mut runs: [Vec<Run>; 3] = Default::default();
    for _ in 0..args.rounds {
        port.push(bench.port_alone()?);
        for ((_, group, software), runs) in cases.iter().zip(&mut runs) {
            runs.push(bench.whole_path(*group, *software)?);
        }
    }
    let port_ns = median(&mut port);
    println!();
    println!("{:40} {:>12} {:>10} {:>12}", "", "CPU ns/req", "M req/s", "of the first");
    println!(
        "{:40} {port_ns:>12.1} {:>10.1}",
        "the memory port alone (not part of a NIC's work)",
        1e3 / port_ns
    );
    let mut first = None;
    for ((name, ..), runs) in cases.iter().zip(&runs) {
        let ns = median(&mut runs.iter().map(|r| r.cpu_ns).collect::<Vec<_>>());
        let first = *first.get_or_insert(ns);
        println!("{name:40} {ns:>12.1} {:>10.2} {:>11.2}x", 1e3 / ns, ns / first);
    }
    let checked: u64 = runs.iter().flatten().map(|r| r.checked).sum();
    let wrong: u64 = runs.iter().flatten().map(|r| r.wrong).sum();
    println!("replies checked to the byte: {checked}, wrong: {wrong}");
    if wrong > 0 || checked == 0 {
        return Err("a reply was not what it must be".into());
    }
    if args.memcached_requests > 0 {
        against_memcached(args, config, first.unwrap_or(f64::NAN))?;
    }
    Ok(())
}

fn against_memcached(args: &Offline, config: Config, ours_ns: f64) -> Result<(), Box<dyn Error>> {
    let item_bytes = (config.key_bytes + config.value_bytes + 80) as u64;
    let memory_mb = usize::try_from((config.items * item_bytes) >> 20)? * 3 / 2 + 64;
    let server = Memcached::start(memory_mb).map_err(|e| format!("cannot start memcached: {e}"))?;
    let key = |i| offline::key(i, config.key_bytes);
    server.load(config.items, key, |i| offline::value(i, config.value_bytes))?;
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
