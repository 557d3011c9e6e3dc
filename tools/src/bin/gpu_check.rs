//! `gnomon-gpu-check`: what a GPU does for us, and what it could do.

use clap::{Parser, ValueEnum};
use gpu::card::Card;
use gpu::cuda::CudaCard;
use gpu::simt::SimtCard;
use serde_json::json;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tools::gpu_check::micro::Micro;
use tools::gpu_check::study::Study;
use tools::gpu_check::{Extent, cpu, page};
use tools::report::Report;

/// Checks and measures a GPU, and writes results.json, report.md and plots.
#[derive(Debug, Parser)]
#[command(name = "gnomon-gpu-check", version)]
struct Cli {
    /// What runs the kernels.
    #[arg(long, value_enum, default_value = "cuda")]
    card: Kind,
    /// Which device, as nvidia-smi -L counts them.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// What to do, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "parity,micro,cpu,study")]
    steps: Vec<Step>,
    /// Time for each step, in seconds. What is under way when it ends is finished.
    #[arg(long, value_delimiter = ',', default_value = "90,150,30,240")]
    seconds: Vec<u64>,
    /// The test program of the kernels; without it, parity is left out. Fuzz inputs are taken from
    /// `corpus` beside it, if that is there.
    #[arg(long, value_name = "FILE")]
    parity: Option<PathBuf>,
    /// Items in the store.
    #[arg(long, default_value_t = 8_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    items: u64,
    /// Smallest sizes: shows that everything works, measures nothing.
    #[arg(long)]
    tiny: bool,
    /// Where to write.
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The kernels on the processor.
    Simt,
    /// An NVIDIA GPU.
    Cuda,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// The kernels against the CPU engine.
    Parity,
    /// What the card and the way to it can do.
    Micro,
    /// What the processor can do.
    Cpu,
    /// The whole pipeline.
    Study,
}

fn main() -> ExitCode {
    gpu::cuda::use_all_connections();
    let cli = Cli::parse();
    let begun = Instant::now();
    let done = Report::new(&cli.out, "results").map_err(Box::from).and_then(|mut report| {
        let done = run(&cli, &mut report);
        if let Err(why) = &done {
            report.fact("error", json!(why.to_string()))?;
        }
        report.fact("seconds", json!(begun.elapsed().as_secs_f64()))?;
        // What there is, also of a run that failed.
        page::write(&report)?;
        done
    });
    match done {
        Ok(()) => {
            println!("gnomon-gpu-check: see {}", cli.out.join("report.md").display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("gnomon-gpu-check: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let card: Arc<dyn Card> = match cli.card {
        Kind::Simt => Arc::new(SimtCard::default()),
        Kind::Cuda => Arc::new(CudaCard::open(cli.device)?),
    };
    let facts = card.facts();
    report.fact("card", json!(facts.name))?;
    report.fact("multiprocessors", json!(facts.multiprocessors))?;
    report.fact("memory_gb", json!(facts.memory_bytes >> 30))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    report.fact("processors", json!(processors))?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    report.fact("arguments", json!(arguments.join(" ")))?;
    for (number, step) in cli.steps.iter().enumerate() {
        let seconds = cli.seconds.get(number).or_else(|| cli.seconds.last()).copied().unwrap_or(60);
        let limit = Duration::from_secs(seconds);
        let extent = Extent { tiny: cli.tiny, until: Instant::now() + limit };
        match step {
            Step::Parity => match &cli.parity {
                Some(program) => parity(cli.card, program, limit, report)?,
                None => report.fact("parity_left_out", json!("no --parity program"))?,
            },
            Step::Micro => Micro::new(&card, extent)?.run(report)?,
            Step::Cpu => cpu::run(report, &extent)?,
            Step::Study => Study::new(&card, cli.items, extent)?.run(report)?,
        }
    }
    Ok(())
}

/// Runs the kernels' tests on this card.
fn parity(
    card: Kind,
    program: &std::path::Path,
    limit: Duration,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let name = if card == Kind::Cuda { "cuda" } else { "simt" };
    let begun = Instant::now();
    let mut command = Command::new(program);
    // In a bundle, the fuzz inputs lie beside it.
    let corpus = program.with_file_name("corpus");
    if corpus.is_dir() {
        command.env("GNOMON_TEST_CORPUS", corpus);
    }
    // One by one: each opens the card.
    let mut child = command
        .args(["--test-threads", "1"])
        .env("GNOMON_TEST_CARD", name)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map_err(|why| format!("{}: {why}", program.display()))?;
    while child.try_wait()?.is_none() {
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Err(format!("the kernels' tests took more than {} s", limit.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let count = |word: &str| said.lines().filter(|line| line.ends_with(word)).count();
    let (passed, failed) = (count("... ok"), count("... FAILED"));
    report.row(
        "parity",
        json!({ "card": name, "passed": passed, "failed": failed,
                "seconds": begun.elapsed().as_secs_f64() }),
    )?;
    if !output.status.success() || passed == 0 {
        print!("{said}");
        return Err("the kernels do not do what the CPU engine does".into());
    }
    Ok(())
}
