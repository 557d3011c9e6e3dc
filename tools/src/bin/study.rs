//! `gnomon-study`: how fast, against what.

use clap::{Parser, Subcommand};
use std::error::Error;
use std::process::ExitCode;
use tools::study::{
    batch, fpga, gpu_cache, hitrate, hitrate_live, latency, offline, rdma, schedule, simd, stages,
    tco, tcp, writers,
};

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
    Offline(offline::Cli),
    /// One load on the whole path and nothing else, for `scripts/instructions.sh` and profilers.
    Path(offline::stage::PathCli),
    /// Where a request's time goes, stage by stage.
    Stages(stages::Cli),
    /// Throughput and latency by size of batches and how many are in flight, fixed and adaptive.
    Batch(batch::Cli),
    /// How long clients wait, by load, through a port between two processes.
    Latency(latency::Cli),
    /// The server of the latency study, as a process of its own.
    #[command(hide = true)]
    LatencyServer(latency::server::Cli),
    /// Active lanes and memory accesses of the kernels.
    Simd(simd::Cli),
    /// Misses of a GPU's cache under the kernels' loads, simulated: size, ways.
    Cache(gpu_cache::Cli),
    /// SETs a second of several threads, one item at a time and in bursts, and what that does to hits.
    Writers(writers::Cli),
    /// Miss rates of hash tables, simulated: forms, ways, who leaves.
    Hitrate(hitrate::Cli),
    /// The FPGA appliance as a model of its modules in cycles: rates, drops, latencies, hit rates.
    Fpga(fpga::Cli),
    /// Mega-KV's periodic scheduling: the shortest cycle by input rate, by what a GPU costs.
    Schedule(schedule::Cli),
    /// The papers' tables of cost and energy, recomputed, and your machine beside them.
    Tco(tco::Cli),
    /// Hits among the same requests, and bytes per item, at equal memory: several servers.
    HitrateLive(hitrate_live::cli::Cli),
    /// Requests per second and CPU time per request over TCP, pipelined and not: several servers.
    Tcp(tcp::Cli),
    /// CPU time per one-sided read, beside GETs over TCP here and of other servers, and what stags cost.
    Onesided(rdma::Cli),
}

fn main() -> ExitCode {
    let done: Result<(), Box<dyn Error>> = match Cli::parse().study {
        Study::Offline(args) => args.run(),
        Study::Path(args) => args.run(),
        Study::Stages(args) => args.run(),
        Study::Batch(args) => args.run(),
        Study::Latency(args) => args.run(),
        Study::LatencyServer(args) => args.run(),
        Study::Simd(args) => args.run(),
        Study::Cache(args) => args.run(),
        Study::Writers(args) => args.run(),
        Study::Hitrate(args) => args.run(),
        Study::Fpga(args) => args.run(),
        Study::Schedule(args) => args.run(),
        Study::Tco(args) => args.run(),
        Study::HitrateLive(args) => args.run(),
        Study::Tcp(args) => args.run(),
        Study::Onesided(args) => args.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("gnomon-study: {e}");
            ExitCode::FAILURE
        }
    }
}
