//! Steps that other programs do: the kernels' tests, and NVIDIA's compute-sanitizer.
//!
//! In: a program, a limit. Out: what it counted, and its last words when it failed. It is killed when its
//! time is over. Fails when the program does, or cannot be started.

use super::plan::{Kind, Plan};
use super::{Extent, Result};
use crate::report::Report;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Lines of a failed program's that are kept.
const LINES_KEPT: usize = 40;

/// How a program ended.
struct Ended {
    /// `None`: killed, for its time was over.
    status: Option<ExitStatus>,
    said: String,
    seconds: f64,
}

impl Ended {
    fn last_lines(&self) -> String {
        let lines: Vec<&str> = self.said.lines().collect();
        lines.get(lines.len().saturating_sub(LINES_KEPT)..).unwrap_or_default().join("\n")
    }
}

/// Runs a program to its end or the step's, with all that it starts; its standard input stays open for
/// as long.
fn run(command: &mut Command, until: Instant) -> Result<Ended> {
    let begun = Instant::now();
    let mut child = command
        // Of its own: a checker's end would leave what it checks.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|why| format!("{}: {why}", command.get_program().display()))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = |from: Option<Box<dyn std::io::Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut from) = from {
                let _ = from.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = read(out.map(|out| Box::new(out) as _));
    let err = read(err.map(|err| Box::new(err) as _));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= until {
            killpg(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGKILL)?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let said = [out, err].map(|said| said.join().unwrap_or_default()).concat();
    Ok(Ended { status, said, seconds: begun.elapsed().as_secs_f64() })
}

/// Runs the kernels' tests on this device.
///
/// # Errors
/// There is no such program, or a test fails, or there is no time for all.
pub(super) fn parity(plan: &Plan, extent: Extent, report: &mut Report) -> Result<()> {
    let program = plan.parity.as_ref().ok_or("no --parity program")?;
    let mut command = Command::new(program);
    // In a bundle, the fuzz inputs lie beside it.
    let corpus = program.with_file_name("corpus");
    if corpus.is_dir() {
        command.env("GNOMON_TEST_CORPUS", corpus);
    }
    if plan.tiny && std::env::var_os("SIMT_PACKETS").is_none() {
        command.env("SIMT_PACKETS", "4000");
    }
    // One by one, over one device.
    command.args(["--test-threads", "1"]).env("GNOMON_TEST_CARD", plan.card.name());
    let ended = run(&mut command, extent.until)?;
    let count = |word: &str| ended.said.lines().filter(|line| line.ends_with(word)).count();
    let (passed, failed) = (count("... ok"), count("... FAILED"));
    let good = ended.status.is_some_and(|status| status.success()) && passed > 0;
    report.row(
        "parity",
        json!({ "device": plan.card.name(), "passed": passed, "failed": failed,
                "seconds": ended.seconds, "said": (!good).then(|| ended.last_lines()) }),
    )?;
    match ended.status {
        _ if good => Ok(()),
        None => Err(format!("the tests took too long; {passed} had passed").into()),
        Some(_) => Err("the kernels do not do what the CPU engine does".into()),
    }
}

/// Runs a small case under NVIDIA's checker, which finds what a plain run may survive.
///
/// # Errors
/// It found something, or there was no time for it.
pub(super) fn sanitizer(plan: &Plan, extent: Extent, report: &mut Report) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = ["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin"];
    let dirs = std::env::split_paths(&path).chain(known.map(PathBuf::from));
    let found = dirs.map(|dir| dir.join("compute-sanitizer")).find(|file| file.is_file());
    let Some(checker) = found.filter(|_| plan.card == Kind::Cuda) else {
        let result = "there is none on this machine";
        report.row("sanitizer", json!({ "tool": "compute-sanitizer", "result": result }))?;
        return Ok(());
    };
    let tools = ["memcheck", "racecheck"];
    let each = extent.until.saturating_duration_since(Instant::now()) / 2;
    let mut bad = Vec::new();
    for tool in tools {
        let out = plan.out.join(tool);
        let ended = run(
            Command::new(&checker)
                .args(["--tool", tool, "--error-exitcode", "9"])
                .arg(std::env::current_exe()?)
                .args(["--worker", "--tiny", "--items", "1000", "--index-items", "1000"])
                .args(["--card", "cuda", "--device", &plan.device.to_string()])
                .args(["--steps", "sanity", "--out"])
                .arg(&out),
            Instant::now() + each,
        );
        let _ = std::fs::remove_dir_all(&out);
        let ended = ended?;
        let result = match ended.status {
            None => "no time for all of it".to_owned(),
            Some(status) if status.success() => "nothing found".to_owned(),
            Some(status) => format!("{status}"),
        };
        let good = ended.status.is_some_and(|status| status.success());
        report.row(
            "sanitizer",
            json!({ "tool": tool, "result": result, "seconds": ended.seconds,
                    "said": (!good).then(|| ended.last_lines()) }),
        )?;
        if !good {
            bad.push(format!("{tool}: {result}"));
        }
    }
    if bad.is_empty() { Ok(()) } else { Err(bad.join(", ").into()) }
}
