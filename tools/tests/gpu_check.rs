//! `gnomon-gpu-check`, whole, in its smallest form: over the executor, and over a CUDA driver made
//! of it, which fails where it is ordered to.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The program, given what every test wants.
fn check(out: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gnomon-gpu-check"));
    command
        .args(["--tiny", "--items", "1000", "--index-items", "2000"])
        .args(args)
        .arg("--out")
        .arg(out);
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// A directory with a driver, made once.
fn driver() -> &'static Path {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap().keep();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/simt/make_driver.sh");
        assert!(Command::new(script).arg(&dir).status().unwrap().success());
        dir
    })
}

fn results(out: &Path) -> Value {
    serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap()
}

/// What became of each step, in order.
fn outcomes(results: &Value) -> Vec<(&str, &str)> {
    let steps = results["steps"].as_array().unwrap().iter();
    steps.map(|s| (s["step"].as_str().unwrap(), s["outcome"].as_str().unwrap())).collect()
}

/// Every table has rows, nothing was refused, and no answer was wrong.
fn assert_whole(out: &Path, card: &str) {
    let (results, page) = (results(out), fs::read_to_string(out.join("report.md")).unwrap());
    assert_eq!(results["gpu"], card);
    assert!(outcomes(&results).iter().all(|(_, outcome)| *outcome == "done"), "{results:#}");
    let tables = [
        "sanity",
        "doorbell",
        "host_reads",
        "host_writes",
        "card_reads",
        "fills",
        "lookups",
        "lookups_beside_changes",
        "stage",
        "alone",
        "offered",
        "modes",
        "whole",
        "whole_beside_sets",
        "sets",
        "sets_beside_gets",
        "consolidation",
        "consolidation_course",
        "beside_a_kernel",
        "launches",
        "launch_rates",
        "copies",
        "cpu",
        "sanitizer",
        "workers",
        "load",
        "in_flight",
        "batch",
    ];
    for table in tables {
        let rows = results[table].as_array().unwrap();
        assert!(!rows.is_empty(), "{table}");
        for row in rows {
            assert!(row["refused"].is_null(), "{row}");
            assert!(row["wrong"].is_null() || row["wrong"] == 0, "{row}");
        }
    }
    // All modes, all indexes, and the processor alone; two of them once more with reply headers.
    assert_eq!(results["modes"].as_array().unwrap().len(), 9);
    let works = |row: &Value| row["works"] == true;
    assert!(results["sanity"].as_array().unwrap().iter().all(works), "{results:#}");
    // Every goal has a figure, and what bounds it, or what no busy processor can do.
    for goal in results["goals"].as_array().unwrap() {
        let met = goal["met"].as_str().unwrap();
        if met.ends_with("no engine kept up") || met.ends_with("GETs lost more") {
            continue;
        }
        assert!(goal["measured"].as_f64().unwrap() > 0.0, "{goal}");
        assert!(goal["roof_value"].as_f64().unwrap() > 0.0, "{goal}");
    }
    assert!(page.contains("## Goals") && page.contains("## The whole pipeline: modes"), "{page}");
    assert!(fs::read_to_string(out.join("plots.html")).unwrap().contains("<polyline"));
    // No more than can be taken home from a machine that takes eight.
    assert!(fs::read_dir(out).unwrap().count() <= 3);
}

const ALL_BUT_PARITY: &str = "sanity,roofs,lookup,stage,latency,end-to-end,whole,sets,consolidation,driver,cpu,sanitizer,study";

#[test]
fn everything_runs_on_the_executor() {
    let dir = tempfile::tempdir().unwrap();
    let done = run(&mut check(dir.path(), &["--card", "simt", "--steps", ALL_BUT_PARITY]));
    assert!(done.status.success(), "{done:?}");
    assert_whole(dir.path(), "SIMT executor");
}

#[test]
fn everything_runs_over_a_driver() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--card", "cuda", "--steps", ALL_BUT_PARITY];
    let done = run(check(dir.path(), &args).env("LD_LIBRARY_PATH", driver()));
    assert!(done.status.success(), "{done:?}");
    assert_whole(dir.path(), "SIMT executor as a driver");
}

/// Each step that uses the device, when the device fails in it, one way or the other: it is named with
/// what was wrong, and the one behind it is done, by another process.
#[test]
fn a_step_that_fails_is_named_and_costs_no_other() {
    let steps = [
        "sanity",
        "roofs",
        "lookup",
        "stage",
        "latency",
        "end-to-end",
        "whole",
        "sets",
        "consolidation",
        "driver",
        "study",
    ];
    // A launch that breaks the context, in some the first, in some a later one; no memory; a process that
    // ends within the driver.
    let plans = [
        ("cuLaunchKernel 700 0", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cuLaunchKernel 719 5", "CUDA_ERROR_LAUNCH_FAILED"),
        ("cuMemAlloc 2 0", "memory left"),
        ("cuStreamCreateWithPriority 0 0", "ended by signal 6"),
        ("answers 1 0", "wrong: request 0"),
    ];
    let each = steps.into_iter().enumerate().map(|(n, step)| (step, plans[n % 4]));
    for (step, (plan, why)) in each.chain([("sanity", plans[4])]) {
        let dir = tempfile::tempdir().unwrap();
        let (out, mark) = (dir.path().join("out"), dir.path().join("failed"));
        let next = if step == "driver" { "roofs" } else { "driver" };
        let args = ["--card", "cuda", "--steps", &format!("{step},{next}")];
        let done = run(check(&out, &args)
            .env("LD_LIBRARY_PATH", driver())
            .env("GNOMON_DRIVER_PLAN", format!("{plan} {}", mark.display())));
        assert_eq!(done.status.code(), Some(1), "{step}: {done:?}");
        assert!(mark.exists(), "{step} made no such call");
        let (results, page) = (results(&out), fs::read_to_string(out.join("report.md")).unwrap());
        let outcome = if why.contains("signal") { "crashed" } else { "failed" };
        assert_eq!(outcomes(&results), [(step, outcome), (next, "done")], "{results:#}");
        let said = results["steps"][0]["why"].as_str().unwrap();
        assert!(said.contains(why), "{step}: {said}");
        assert!(page.contains(&format!("| {step} | {outcome} |")), "{page}");
        assert!(results["doorbell"].is_array() || results["launches"].is_array());
    }
}

/// A program that stands in for one that is not there: a shell's lines, in a file of this name.
fn program(dir: &Path, name: &str, lines: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let file = dir.join(name);
    fs::write(&file, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

/// What became of `step` and of the one behind it, which is done whatever happens; and its row.
fn failed_by_a_program(command: &mut Command, out: &Path, step: &str, why: &str) -> Value {
    let done = run(command);
    let (results, page) = (results(out), fs::read_to_string(out.join("report.md")).unwrap());
    let outcome = if why.is_empty() { "done" } else { "failed" };
    assert_eq!(done.status.code(), Some(i32::from(!why.is_empty())), "{done:?}");
    let outcomes = outcomes(&results);
    assert_eq!(outcomes[0], (step, outcome), "{results:#}");
    assert!(outcomes[1].0 == "cpu" && outcomes[1].1.starts_with("done"), "{results:#}");
    let said = results["steps"][0]["why"].as_str().unwrap_or_default();
    assert!(said.contains(why), "{said}");
    assert!(page.contains(&format!("| {step} | {outcome} |")), "{page}");
    results[step].as_array().and_then(|rows| rows.first()).cloned().unwrap_or_default()
}

/// The kernels' tests, in whatever way they do not pass.
#[test]
fn tests_that_fail_hang_or_are_not_there_cost_no_other_step() {
    let dir = tempfile::tempdir().unwrap();
    let check_with = |out: &Path, parity: &Path, minutes: &str| {
        let args = ["--card", "simt", "--steps", "parity,cpu", "--minutes", minutes];
        let mut command = check(out, &args);
        command.arg("--parity").arg(parity);
        command
    };
    let differ = "the kernels do not do what the CPU engine does";
    let lines = "echo 'test a ... ok'; echo 'test b ... FAILED'";
    for (name, end, minutes, why) in [
        ("wrong", "exit 101", "8", differ),
        ("crashes", "kill -ABRT $$", "8", differ),
        // What it started goes with it, or its words would never end.
        ("hangs", "sleep 1000; echo", "0.8", "the tests took too long; 1 had passed"),
        ("nothing", "exec true", "8", ""),
    ] {
        let lines = if why.is_empty() { "echo 'test a ... ok'" } else { lines };
        let parity = program(dir.path(), name, &format!("{lines}\n{end}"));
        let out = dir.path().join(name).with_extension("out");
        let mut command = check_with(&out, &parity, minutes);
        let row = failed_by_a_program(&mut command, &out, "parity", why);
        assert_eq!(row["passed"], 1, "{row}");
        assert_eq!(row["failed"], i32::from(!why.is_empty()), "{row}");
    }
    let out = dir.path().join("out");
    let mut command = check_with(&out, &dir.path().join("no-such-program"), "8");
    failed_by_a_program(&mut command, &out, "parity", "no-such-program: No such file");
}

/// NVIDIA's checker, when it finds something, hangs, is not there, or finds nothing: then it has run
/// the smallest sanity.
#[test]
fn a_checker_that_finds_something_or_hangs_costs_no_other_step() {
    let found = "========= Invalid __global__ write of size 4 bytes";
    for (name, lines, minutes, why, result) in [
        (
            "finds",
            &*format!("echo '{found}'; exit 9"),
            "8",
            "memcheck: exit status: 9",
            "exit status: 9",
        ),
        ("hangs", "sleep 1000; echo", "0.8", "no time for all of it", "no time for all of it"),
        ("runs", "shift 4; exec \"$@\"", "8", "", "nothing found"),
        ("none", "", "8", "", "there is none on this machine"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        if !lines.is_empty() {
            program(dir.path(), "compute-sanitizer", lines);
        }
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let out = dir.path().join("out");
        let args = ["--card", "cuda", "--steps", "sanitizer,cpu", "--minutes", minutes];
        let mut command = check(&out, &args);
        command.env("LD_LIBRARY_PATH", driver()).env("PATH", path);
        let row = failed_by_a_program(&mut command, &out, "sanitizer", why);
        assert_eq!(row["result"], result, "{name}: {row}");
        assert!(name != "finds" || row["said"].as_str().unwrap().contains(found), "{row}");
    }
}

/// Whatever hangs, all ends in the time that was given.
#[test]
fn a_step_that_hangs_does_not_take_more_time_than_there_is() {
    let dir = tempfile::tempdir().unwrap();
    // The device is busy for ever.
    let args = ["--card", "cuda", "--steps", "roofs,cpu", "--minutes", "0.5"];
    let begun = std::time::Instant::now();
    let done = run(check(dir.path(), &args)
        .env("LD_LIBRARY_PATH", driver())
        .env("GNOMON_DRIVER_PLAN", "stall 1 0"));
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    // Half a minute times the two steps' part of eight minutes, and what it takes to be killed.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    let results = results(dir.path());
    assert_eq!(outcomes(&results)[0], ("roofs", "killed"), "{results:#}");
    assert_eq!(outcomes(&results).len(), 2, "{results:#}");
}

/// A process that ends in a step is one step less, and nothing else.
#[test]
fn a_crash_costs_one_step() {
    for step in ["sanity", "latency", "cpu"] {
        let dir = tempfile::tempdir().unwrap();
        let args = ["--card", "simt", "--steps", "sanity,latency,cpu,driver", "--crash", step];
        let done = run(&mut check(dir.path(), &args));
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        let results = results(dir.path());
        let outcomes = outcomes(&results);
        let steps: Vec<&str> = outcomes.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, ["sanity", "latency", "cpu", "driver"]);
        for (name, outcome) in outcomes {
            assert_eq!(outcome, if name == step { "crashed" } else { "done" }, "{name}");
        }
        let page = fs::read_to_string(dir.path().join("report.md")).unwrap();
        assert!(page.contains("its process was ended by signal 6"), "{page}");
        assert!(results["launches"].as_array().is_some(), "{results:#}");
    }
}

#[test]
fn without_a_driver_that_is_what_is_said() {
    let (nothing, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A library of that name that is not the driver's hides one that may be installed.
    let compiled = Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(nothing.path().join("libcuda.so"))
        .status();
    assert!(compiled.unwrap().success());
    let args = ["--card", "cuda", "--steps", "sanity,stage,cpu"];
    let done = run(check(dir.path(), &args).env("LD_LIBRARY_PATH", nothing.path()));
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let results = results(dir.path());
    // What needs none is done all the same.
    assert_eq!(outcomes(&results), [("sanity", "failed"), ("stage", "failed"), ("cpu", "done")]);
    let page = fs::read_to_string(dir.path().join("report.md")).unwrap();
    assert!(page.contains("the driver: libcuda has no function cuInit"), "{page}");
    let why = results["goals"][1]["met"].as_str().unwrap();
    assert!(why.starts_with("not measured: stage failed the driver"), "{why}");
}
