//! What is wanted of a device, beside what was measured and what bounds it.
//!
//! In: the figures of the other steps. Out: the table `goals`, a row for each goal, and the roofs that
//! others put beside their own figures. A goal without a figure says which step left it so. Cannot
//! fail.

use super::plan::Step;
use crate::report::Report;
use serde_json::{Value, json};

/// A goal: at least `floor`, better `target`; at most, where less is better.
struct Goal {
    name: &'static str,
    unit: &'static str,
    floor: f64,
    target: f64,
    /// The step that measures it.
    step: Step,
    /// What figures must be to count.
    only: &'static str,
}

macro_rules! goals {
    ($($goal:ident: $step:expr, $floor:literal to $target:literal $unit:literal, $name:literal, $only:literal;)*) => {$(
        const $goal: Goal =
            Goal { name: $name, unit: $unit, floor: $floor, target: $target, step: $step, only: $only };
    )*};
}
goals! {
    LOOK_UPS: Step::Lookup, 4e9 to 10e9 "per second", "index look-ups, from and to the device's memory",
        "";
    STAGE: Step::Stage, 100e6 to 200e6 "requests per second", "GPU stage, from and to the host's memory",
        "";
    END_TO_END: Step::EndToEnd, 60e6 to 150e6 "requests per second", "end to end, with values and checked replies",
        "";
    WHOLE: Step::Whole, 60e6 to 150e6 "requests per second", "whole replies of the device, checked",
        "too few were accepted";
    LATENCY: Step::Latency, 60.0 to 30.0 "microseconds, at most", "p99 of a request at 1 to 10 M/s, gathering included",
        "at some rate no engine kept up";
    SETS: Step::Sets, 5e6 to 25e6 "per second", "index changes beside GETs that lose less than 15 %",
        "at every rate GETs lost more";
}

/// Most of its rate that GETs may lose to SETs.
const LOSS_MAX: f64 = 0.15;

/// Least share of replies that are the device's, where it writes whole ones.
const ACCEPTED_MIN: f64 = 0.9;

/// A figure, what it was measured with, and what bounds it.
type Figure = (f64, String, Option<(&'static str, f64)>);

/// Writes the table anew.
///
/// # Errors
/// The report cannot be written.
pub fn write(report: &mut Report) -> std::io::Result<()> {
    let rows = vec![
        row(report, &LOOK_UPS, look_ups(report)),
        row(report, &STAGE, best(report, "stage", "requests_per_s", |_| true, packets(report))),
        row(
            report,
            &END_TO_END,
            best(report, "modes", "requests_per_s", by_device, packets(report)),
        ),
        row(report, &LATENCY, latency(report)),
        row(
            report,
            &SETS,
            best(report, "sets_beside_gets", "changes_per_s", cheap, changes(report)),
        ),
        row(report, &WHOLE, best(report, "whole", "requests_per_s", accepted, packets(report))),
    ];
    report.table("goals", rows)
}

fn row(report: &Report, goal: &Goal, figure: Option<Figure>) -> Value {
    let Goal { name, unit, floor, target, step, .. } = goal;
    let wanted = json!({ "goal": name, "unit": unit, "floor": floor, "target": target });
    let mut row = wanted.as_object().cloned().unwrap_or_default();
    let mut say = |key: &str, value: Value| row.insert(key.to_owned(), value);
    let Some((measured, by, roof)) = figure else {
        say("met", json!(format!("not measured: {}", why_not(report, *step, goal.only))));
        return Value::Object(row);
    };
    let reaches =
        |wanted: f64| if floor < target { measured >= wanted } else { measured <= wanted };
    let met = match () {
        () if reaches(*target) => "target",
        () if reaches(*floor) => "floor",
        () => "no",
    };
    say("measured", json!(measured));
    say("by", json!(by));
    say("met", json!(met));
    if let Some((what, roof)) = roof {
        say("roof", json!(what));
        say("roof_value", json!(roof));
        say("of_roof", json!(measured / roof));
    }
    Value::Object(row)
}

/// What became of a step that left no figure.
fn why_not(report: &Report, step: Step, only: &str) -> String {
    let steps = report.rows("steps").iter();
    let mut rows = steps.filter(|row| row.get("step") == Some(&json!(step.name())));
    match rows.next_back() {
        None => format!("{} was not begun", step.name()),
        Some(row) => {
            let text = |field| row.get(field).and_then(Value::as_str).unwrap_or_default();
            let (outcome, why) = (text("outcome"), text("why"));
            let why = if outcome.starts_with("done") { only } else { why };
            format!("{} {outcome} {why}", step.name()).trim_end().to_owned()
        }
    }
}

fn number(row: &Value, field: &str) -> Option<f64> {
    row.get(field)?.as_f64()
}

fn greatest(
    report: &Report,
    table: &str,
    field: &str,
    which: impl Fn(&Value) -> bool,
) -> Option<(f64, Value)> {
    let rows = report.rows(table).iter().filter(|row| which(row));
    let figures = rows.filter_map(|row| Some((number(row, field)?, row.clone())));
    figures.max_by(|a, b| a.0.total_cmp(&b.0))
}

fn best(
    report: &Report,
    table: &str,
    field: &str,
    which: impl Fn(&Value) -> bool,
    roof: Option<(&'static str, f64)>,
) -> Option<Figure> {
    let (figure, row) = greatest(report, table, field, which)?;
    Some((figure, case(&row), roof))
}

/// What distinguishes a row from the others.
fn case(row: &Value) -> String {
    let fields = ["engine", "index", "workers", "batch", "heads", "checksums", "offered_per_s"];
    let known = fields.iter().filter_map(|field| {
        let value = row.get(field).filter(|value| !value.is_null())?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some(format!("{field} {text}"))
    });
    known.collect::<Vec<_>>().join(", ")
}

fn by_device(row: &Value) -> bool {
    row.get("engine").is_some_and(|engine| engine != "cpu")
}

fn accepted(row: &Value) -> bool {
    number(row, "accepted").is_some_and(|share| share > ACCEPTED_MIN)
}

fn cheap(row: &Value) -> bool {
    number(row, "loss").is_some_and(|loss| loss < LOSS_MAX)
}

fn look_ups(report: &Report) -> Option<Figure> {
    let (figure, row) = greatest(report, "lookups", "per_s", |_| true)?;
    let roof = number(&row, "roof_per_s").map(|roof| ("random reads of the device's memory", roof));
    Some((figure, case(&row), roof))
}

/// The worst of the rates offered, each with the engine and batch that suit it best.
fn latency(report: &Report) -> Option<Figure> {
    let rows: Vec<&Value> = report.rows("offered").iter().collect();
    let mut rates: Vec<f64> = rows.iter().filter_map(|row| number(row, "offered_per_s")).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let mut worst: Option<(f64, String)> = None;
    for rate in rates {
        let at = rows.iter().filter(|row| number(row, "offered_per_s") == Some(rate));
        let kept_up = at.filter(|row| row.get("kept_up") == Some(&json!(true)));
        let times = kept_up.filter_map(|row| Some((number(row, "request_us_p99")?, *row)));
        let (time, row) = times.min_by(|a, b| a.0.total_cmp(&b.0))?;
        if worst.as_ref().is_none_or(|(worst, _)| time > *worst) {
            worst = Some((time, case(row)));
        }
    }
    let bell = report.rows("doorbell").iter().filter_map(|row| number(row, "us_p50"));
    let roof = bell.reduce(f64::min).map(|us| ("a word to a kernel that stays and back, p50", us));
    worst.map(|(time, by)| (time, by, roof))
}

/// What bounds requests that a device takes from the host's memory: packets that it reads there
/// while it writes.
pub(super) fn packets(report: &Report) -> Option<(&'static str, f64)> {
    let which = |row: &Value| {
        row.get("writes") == Some(&json!(true))
            && row.get("random") == Some(&json!(true))
            && row.get("item_bytes") == Some(&json!(96))
    };
    let (rate, _) = greatest(report, "host_reads", "reads_per_s", which)?;
    Some(("reads of packets with writes, by the device", rate))
}

/// What bounds changes: the update kernel with the device to itself.
fn changes(report: &Report) -> Option<(&'static str, f64)> {
    let (rate, _) = greatest(report, "fills", "changes_per_s", |_| true)?;
    Some(("changes with the device to themselves", rate))
}

/// What bounds replies that so many threads fill.
pub(super) fn fills(report: &Report, workers: usize) -> Option<(&'static str, f64)> {
    let which = |row: &Value| row.get("what") == Some(&json!("value fill, 64 B"));
    let (each, _) = greatest(report, "cpu", "per_s_and_thread", which)?;
    Some(("value fill, by the processor", each * workers as f64))
}

/// What bounds an index of `gigabytes`: random reads of items of that many bytes in as much memory,
/// or in the least that is more.
pub(super) fn lines(report: &Report, gigabytes: f64, item_bytes: u32) -> Option<f64> {
    let rows = report.rows("card_reads").iter();
    let rows = rows.filter(|row| row.get("item_bytes") == Some(&json!(item_bytes)));
    let mut rates: Vec<(f64, f64)> = rows
        .filter_map(|row| Some((number(row, "memory_gb")?, number(row, "reads_per_s")?)))
        .collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let enough = rates.iter().find(|(size, _)| *size >= gigabytes).or_else(|| rates.last());
    enough.map(|(_, rate)| *rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goals(report: &Report) -> Vec<(String, Value)> {
        let rows = report.rows("goals").iter();
        rows.map(|row| (row["met"].as_str().unwrap().to_owned(), row.clone())).collect()
    }

    #[test]
    fn a_goal_without_a_figure_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::new(dir.path(), "results").unwrap();
        let failed = json!({ "step": "stage", "outcome": "failed", "why": "no driver" });
        report.row("steps", failed).unwrap();
        write(&mut report).unwrap();
        let met: Vec<String> = goals(&report).into_iter().map(|(met, _)| met).collect();
        assert_eq!(met.len(), 6);
        assert_eq!(met[0], "not measured: lookup was not begun");
        assert_eq!(met[1], "not measured: stage failed no driver");
    }

    #[test]
    fn figures_are_held_against_floor_target_and_roof() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::new(dir.path(), "results").unwrap();
        for (batch, rate) in [(512, 150e6), (64, 90e6)] {
            let row = json!({ "engine": "graph cuckoo", "batch": batch, "requests_per_s": rate });
            report.row("stage", row).unwrap();
        }
        let row = json!({ "item_bytes": 96, "random": true, "writes": true, "reads_per_s": 300e6 });
        report.row("host_reads", row).unwrap();
        for (engine, rate) in [("cpu", 500e6), ("graph cuckoo", 10e6)] {
            let row = json!({ "engine": engine, "requests_per_s": rate });
            report.row("modes", row).unwrap();
        }
        // At the higher rate the quicker one did not keep up.
        for (rate, us, kept_up) in
            [(1e6, 20.0, true), (1e6, 15.0, true), (10e6, 5.0, false), (10e6, 40.0, true)]
        {
            let row = json!({ "offered_per_s": rate, "request_us_p99": us, "kept_up": kept_up });
            report.row("offered", row).unwrap();
        }
        for (rate, loss) in [(50e6, 0.4), (30e6, 0.1)] {
            report.row("sets_beside_gets", json!({ "changes_per_s": rate, "loss": loss })).unwrap();
        }
        write(&mut report).unwrap();
        let met = goals(&report);
        let (stage, row) = &met[1];
        assert_eq!((stage.as_str(), &row["measured"]), ("floor", &json!(150e6)));
        assert_eq!(
            (&row["of_roof"], &row["by"]),
            (&json!(0.5), &json!("engine graph cuckoo, batch 512"))
        );
        assert_eq!((met[2].0.as_str(), &met[2].1["measured"]), ("no", &json!(10e6)));
        assert_eq!((met[3].0.as_str(), &met[3].1["measured"]), ("floor", &json!(40.0)));
        assert_eq!((met[4].0.as_str(), &met[4].1["measured"]), ("target", &json!(30e6)));
    }

    #[test]
    fn the_roof_of_an_index_is_that_of_memory_as_large() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::new(dir.path(), "results").unwrap();
        for (size, rate) in [(8.0, 5e9), (2.0, 9e9), (32.0, 3e9)] {
            let row = json!({ "memory_gb": size, "item_bytes": 64, "reads_per_s": rate });
            report.row("card_reads", row).unwrap();
        }
        assert_eq!(lines(&report, 4.0, 64), Some(5e9));
        assert_eq!(lines(&report, 100.0, 64), Some(3e9));
        assert_eq!(lines(&report, 4.0, 32), None);
    }
}
