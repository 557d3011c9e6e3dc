//! `gnomon-gpu-check`, whole, in its smallest form: over the executor, and over a CUDA driver made
//! of it.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn check(out: &Path, args: &[&str], libraries: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gnomon-gpu-check"))
        .args(["--tiny", "--items", "1000", "--steps", "micro,cpu,study", "--seconds", "120"])
        .args(args)
        .arg("--out")
        .arg(out)
        .env("LD_LIBRARY_PATH", libraries)
        .output()
        .unwrap()
}

/// Every table has rows, and no reply was wrong.
fn assert_whole(out: &Path, card: &str) {
    let page = fs::read_to_string(out.join("report.md")).unwrap();
    let results = fs::read(out.join("results.json")).unwrap();
    let results: Value = serde_json::from_slice(&results).unwrap();
    assert_eq!(results["card"], card);
    assert_eq!(results.get("error"), None, "{results:#}");
    let tables = [
        "doorbell",
        "beside_a_kernel",
        "launches",
        "launch_rates",
        "host_reads",
        "copies",
        "card_reads",
        "cpu",
        "modes",
        "workers",
        "load",
        "sets",
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
    // All modes, all indexes, and the processor alone.
    assert_eq!(results["modes"].as_array().unwrap().len(), 7);
    assert!(page.contains("## The whole pipeline: modes and indexes"), "{page}");
    assert!(fs::read_to_string(out.join("card_reads.svg")).unwrap().contains("<polyline"));
}

#[test]
fn everything_runs_on_the_executor() {
    let dir = tempfile::tempdir().unwrap();
    let done = check(dir.path(), &["--card", "simt"], Path::new(""));
    assert!(done.status.success(), "{done:?}");
    assert_whole(dir.path(), "SIMT executor");
}

#[test]
fn everything_runs_over_a_driver() {
    let (driver, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/simt/make_driver.sh");
    assert!(Command::new(script).arg(driver.path()).status().unwrap().success());
    let done = check(dir.path(), &["--card", "cuda"], driver.path());
    assert!(done.status.success(), "{done:?}");
    assert_whole(dir.path(), "SIMT executor as a driver");
}

#[test]
fn without_a_driver_that_is_what_is_said() {
    let (nothing, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A library of that name that is not the driver's hides one that may be installed.
    fs::write(nothing.path().join("libcuda.so"), "").unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(nothing.path().join("libcuda.so"))
        .status();
    assert!(compiled.unwrap().success());
    let done = check(dir.path(), &["--card", "cuda"], nothing.path());
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        said.contains("gnomon-gpu-check: the driver: libcuda has no function cuInit"),
        "{said}"
    );
    let page = fs::read_to_string(dir.path().join("report.md")).unwrap();
    assert!(page.contains("libcuda has no function cuInit"), "{page}");
}
