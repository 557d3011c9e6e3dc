//! `gnomon-gpu-check`: what a GPU does for us, and what it could do.

use clap::Parser;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tools::gpu_check::plan::{Kind, MINUTES, Plan, Step};
use tools::gpu_check::steps;
use tools::gpu_check::watch;
use tools::output::{say, tell};
use tools::report::Report;

/// Checks and measures a GPU, and writes results.json, report.md and plots.html.
#[derive(Debug, Parser)]
#[command(name = "gnomon-gpu-check", version)]
struct Cli {
    /// What runs the kernels.
    #[arg(long, value_enum, default_value = "cuda")]
    card: Kind,
    /// Which device, as nvidia-smi -L counts them.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// What to do, in this order; by default everything, the most useful first.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Step::ALL, hide_default_value = true)]
    steps: Vec<Step>,
    /// Minutes for all steps together. Each has its part of them, also when it is the only one; the last
    /// one has what is left.
    #[arg(long, default_value_t = MINUTES)]
    minutes: f64,
    /// The test program of the kernels, for the step parity. Fuzz inputs are taken from `corpus` beside
    /// it, if that is there.
    #[arg(long, value_name = "FILE")]
    parity: Option<PathBuf>,
    /// Items in the store, for steps with engines.
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    items: u64,
    /// Items in the index of the step lookup: by default, those of 10 GB.
    #[arg(long, default_value_t = 80_000_000, value_parser = clap::value_parser!(u64).range(1000..=4_000_000_000))]
    index_items: u64,
    /// Smallest sizes: shows that everything works, measures nothing.
    #[arg(long)]
    tiny: bool,
    /// Where to write.
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// End the process in this step, to see that the report and the other steps survive it.
    #[arg(long, value_enum, hide = true)]
    crash: Option<Step>,
    /// Do the steps, in this process.
    #[arg(long, hide = true)]
    worker: bool,
    /// Of the steps only these.
    #[arg(long, value_enum, value_delimiter = ',', hide = true)]
    only: Option<Vec<Step>>,
    /// Seconds that are left for them.
    #[arg(long, hide = true)]
    left: Option<f64>,
}

fn main() -> ExitCode {
    gpu::cuda::set_environment();
    let cli = Cli::parse();
    let page = cli.out.join("report.md");
    let why = match run(&cli) {
        Ok(true) if cli.worker => return ExitCode::SUCCESS,
        Ok(true) => match say(format_args!("gnomon-gpu-check: see {}", page.display())) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(why) => why.to_string(),
        },
        Ok(false) => format!("not all was done; see {}", page.display()),
        Err(why) => why.to_string(),
    };
    tell(format_args!("gnomon-gpu-check: {why}"));
    ExitCode::FAILURE
}

/// Whether all was done.
fn run(cli: &Cli) -> Result<bool, Box<dyn Error>> {
    let whole = Duration::try_from_secs_f64(cli.minutes * 60.0)?;
    let mut plan = Plan {
        card: cli.card,
        device: cli.device,
        steps: cli.only.as_ref().unwrap_or(&cli.steps).clone(),
        minutes: cli.minutes,
        left: cli.left.map_or(Ok(whole), Duration::try_from_secs_f64)?,
        parity: cli.parity.clone(),
        items: cli.items,
        index_items: cli.index_items,
        tiny: cli.tiny,
        out: cli.out.clone(),
        crash: cli.crash,
    };
    // A chosen few have the time that they would have had among all.
    let wanted: Duration = plan.steps.iter().map(|step| plan.limit(*step)).sum();
    plan.left = plan.left.min(wanted.max(Duration::from_secs(1)));
    if !cli.worker {
        return watch::run(&plan);
    }
    watch::end_with_parent();
    let mut report = Report::resume(&cli.out, "results")?;
    let before = report.rows("steps").len();
    steps::run(&plan, &mut report)?;
    let done = |row: &serde_json::Value| {
        row.get("outcome").and_then(|o| o.as_str()).is_some_and(|o| o.starts_with("done"))
    };
    Ok(report.rows("steps").iter().skip(before).all(done))
}
