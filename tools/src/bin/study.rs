//! `gnomon-study`: how fast, against what.

use clap::{Parser, Subcommand};
use std::error::Error;
use std::process::ExitCode;
use tools::output::tell;
use tools::study::{
    batch, children, consolidation, fpga, gpu_cache, hitrate, hitrate_live, latency, offline, rdma,
    schedule, simd, stages, tco, tcp, writers,
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
    /// GETs beside another user of the GPU, by the size of its launches.
    Consolidation(consolidation::Cli),
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

impl Study {
    fn run(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Offline(args) => args.run(),
            Self::Path(args) => args.run(),
            Self::Stages(args) => args.run(),
            Self::Batch(args) => args.run(),
            Self::Latency(args) => args.run(),
            Self::LatencyServer(args) => args.run(),
            Self::Simd(args) => args.run(),
            Self::Cache(args) => args.run(),
            Self::Consolidation(args) => args.run(),
            Self::Writers(args) => args.run(),
            Self::Hitrate(args) => args.run(),
            Self::Fpga(args) => args.run(),
            Self::Schedule(args) => args.run(),
            Self::Tco(args) => args.run(),
            Self::HitrateLive(args) => args.run(),
            Self::Tcp(args) => args.run(),
            Self::Onesided(args) => args.run(),
        }
    }
}

fn main() -> ExitCode {
    gpu::cuda::set_environment();
    let cli = Cli::parse();
    let done = children::watch_signals().map_err(Into::into).and_then(|()| cli.study.run());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tell(format_args!("gnomon-study: {e}"));
            ExitCode::FAILURE
        }
    }
}
