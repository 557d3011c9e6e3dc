//! The watchdog of the process that does the steps.
//!
//! In: a plan. Out: the report, whole, whatever became of that process: a step that ended it, or that
//! does not end, is noted with what it said last, and another process does the rest. Uses no device
//! itself. Fails when the report cannot be written, or a process cannot be started.

use super::Result;
use super::plan::{Plan, Step};
use super::steps::record;
use crate::output::tell;
use crate::report::Report;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time for what is under way when a step's time ends.
const GRACE: Duration = Duration::from_secs(20);
/// Longest time for a process that was killed to be gone.
const KILL_MAX: Duration = Duration::from_secs(5);
/// How often the process is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Has the steps done; true if all were. Ends when the plan's time does, but for what a process takes
/// to be killed and to note it.
///
/// # Errors
/// The report cannot be written, or no process started.
pub fn run(plan: &Plan) -> Result<bool> {
    let begun = Instant::now();
    let mut report = Report::new(&plan.out, "results")?;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    report.fact("processors", json!(processors))?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    report.fact("arguments", json!(format!("`{}`", arguments.join(" "))))?;
    let mut next = 0;
    while let Some(rest) = plan.steps.get(next..).filter(|rest| !rest.is_empty()) {
        let ended = process(plan, rest, begun)?;
        report = Report::resume(&plan.out, "results")?;
        if let Some((step, seconds)) = running(&report).or_else(|| {
            // Not even the first was begun.
            let none = report.rows("steps").len() == next;
            rest.first().filter(|_| none).map(|step| (*step, 0.0))
        }) {
            let took = Duration::from_secs_f64(seconds.max(0.0));
            record(&mut report, step, ended.outcome, took, Some(ended.why))?;
        }
        next = report.rows("steps").len();
    }
    report.fact("seconds", json!(begun.elapsed().as_secs_f64()))?;
    super::page::write(&report)?;
    let done =
        |row: &Value| row.get("outcome").is_some_and(|o| o == "done" || o == "done, cut short");
    Ok(report.rows("steps").iter().all(done))
}

/// The step that a report says is under way, and its time so far or, of a report that is not written any
/// more, its limit.
fn running(report: &Report) -> Option<(Step, f64)> {
    let running = report.get("running").filter(|running| !running.is_null())?;
    let name = running.get("step")?.as_str()?;
    let step = Step::ALL.into_iter().find(|step| step.name() == name)?;
    Some((step, running.get("seconds")?.as_f64()?))
}

/// How a process ended.
struct Ended {
    outcome: &'static str,
    why: String,
}

/// Has a process do the steps, in the time that began at `begun`.
fn process(plan: &Plan, steps: &[Step], begun: Instant) -> Result<Ended> {
    // Its last step ends early enough for what is then under way.
    let left = plan.left.saturating_sub(begun.elapsed());
    let left = left - GRACE.min(left / 10);
    let end = (begun + plan.left).max(Instant::now() + KILL_MAX);
    let names: Vec<&str> = steps.iter().map(|step| step.name()).collect();
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .args(["--worker", "--only", &names.join(",")])
        .args(["--left", &left.as_secs_f64().to_string()])
        // Open as long as this process is there.
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let last = Arc::new(Mutex::new(String::new()));
    let reader = child.stderr.take().map(|said| {
        let last = Arc::clone(&last);
        thread::spawn(move || pass_on(BufReader::new(said), &last))
    });
    let killed = wait(plan, &mut child, end)?;
    // One that is in the midst of a call of the driver may not even end by that.
    let begun = Instant::now();
    let status = loop {
        match child.try_wait()? {
            None if begun.elapsed() < KILL_MAX => thread::sleep(LOOK),
            status => break status,
        }
    };
    if let (Some(reader), Some(_)) = (reader, status) {
        let _ = reader.join();
    }
    let said = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let how = match (killed.clone(), status) {
        (Some(killed), None) => format!("{killed}, which did not end it"),
        (Some(killed), _) => killed,
        (None, status) => status.map_or_else(String::new, ending),
    };
    let why = if said.is_empty() { how } else { format!("{how}; it said last: {said}") };
    Ok(Ended { outcome: if killed.is_some() { "killed" } else { "crashed" }, why })
}

/// Waits for the end of the process; kills it when a step takes far too long, or there is no time left
/// for any, and says so.
fn wait(plan: &Plan, child: &mut Child, end: Instant) -> Result<Option<String>> {
    let (mut step, mut since) = (None, Instant::now());
    while child.try_wait()?.is_none() {
        let now = Report::resume(&plan.out, "results").ok().as_ref().and_then(running);
        if now != step {
            (step, since) = (now, Instant::now());
        }
        let limit = step.map_or(GRACE, |(_, seconds)| GRACE + Duration::from_secs_f64(seconds));
        if since.elapsed() > limit || Instant::now() > end {
            child.kill()?;
            let took = since.elapsed().as_secs();
            return Ok(Some(format!("it did not end, and was killed after {took} s")));
        }
        thread::sleep(LOOK);
    }
    Ok(None)
}

fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("its process was ended by signal {signal}"),
        (_, Some(code)) => format!("its process ended with status {code}"),
        _ => "its process ended".to_owned(),
    }
}

/// Passes lines on to where this process says things, and keeps the last that is no figure.
fn pass_on(lines: impl BufRead, last: &Mutex<String>) {
    for line in lines.lines().map_while(std::result::Result::ok) {
        tell(&line);
        let figure = line.contains(": {") && line.ends_with('}');
        if !figure && !line.trim().is_empty() {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
        }
    }
}

/// Ends this process when its parent is gone: it would never be ended, and the device is in use.
pub fn end_with_parent() {
    thread::spawn(|| {
        let mut nothing = [0];
        // The parent never writes there; a read ends when it is gone.
        while matches!(std::io::stdin().read(&mut nothing), Ok(n) if n > 0) {}
        std::process::abort();
    });
}
