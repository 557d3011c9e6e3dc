//! Where a study's words and files go, and what it says where they cannot.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A study without measurements, which is over at once.
fn tco(out: &Path, stdout: impl Into<Stdio>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gnomon-study"));
    command.args(["tco", "--out"]).arg(out).stdout(stdout).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs it; what it says of errors, and its status.
fn run(args: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gnomon-study"));
    said(&command.args(args).output().unwrap())
}

fn said(output: &Output) -> (String, Option<i32>) {
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

/// That all files are there.
fn is_whole(out: &Path) {
    let report = fs::read(out.join("tco.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert!(report["seconds"].is_number(), "{report:#}");
    for table in ["ownership", "energy", "comparison"] {
        assert!(out.join(format!("tco-{table}.svg")).exists(), "{table}");
    }
    assert_eq!(fs::read_dir(out).unwrap().count(), 4, "nothing else is left there");
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (said, status) = said(&tco(dir.path(), writer).wait_with_output().unwrap());
    assert!(status == Some(0) && !said.contains("panicked"), "{status:?}: {said}");
    assert!(!said.contains("gnomon-study:"), "{said}");
    is_whole(dir.path());
}

#[test]
fn a_full_standard_output_is_said_and_the_files_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (said, status) = said(&tco(dir.path(), full).wait_with_output().unwrap());
    let why = "gnomon-study: standard output: No space left on device";
    assert!(status == Some(1) && said.contains(why), "{status:?}: {said}");
    is_whole(dir.path());
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("afile");
    fs::write(&file, "").unwrap();
    let (why, status) = said(&tco(&file, Stdio::null()).wait_with_output().unwrap());
    let name = format!("gnomon-study: {}: ", file.display());
    assert!(status == Some(1) && why.contains(&name), "{status:?}: {why}");
    let taken = dir.path().join("tco-energy.svg");
    fs::create_dir(&taken).unwrap();
    let (why, status) = said(&tco(dir.path(), Stdio::null()).wait_with_output().unwrap());
    let name = format!("gnomon-study: {}: ", taken.display());
    assert!(status == Some(1) && why.contains(&name), "{status:?}: {why}");
}

#[test]
fn studies_at_once_may_write_to_one_place() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..4 {
        let all: Vec<_> = (0..8).map(|_| tco(dir.path(), Stdio::null())).collect();
        for study in all {
            let (why, status) = said(&study.wait_with_output().unwrap());
            assert_eq!(status, Some(0), "{why}");
        }
    }
    is_whole(dir.path());
}

#[test]
fn idle_connections_that_a_server_refuses_are_said() {
    if Command::new("memcached").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: memcached is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let server = "m=memcached -c 30 -l {address} -p {port} -U 0 -m {memory} -t 1 -u nobody";
    let args = ["tcp", "--quick", "--out", out, "--server", server, "--connections", "2"];
    let ask = |idle| run(&[&args[..], &["--idle", idle, "--milliseconds", "10"]].concat());
    let (why, status) = ask("10");
    assert_eq!(status, Some(0), "{why}");
    let (why, status) = ask("60");
    assert!(status == Some(1) && why.contains("of 60 idle connections"), "{status:?}: {why}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let few = ["path", "--items", "1000"];
    for (args, reason) in [
        (&[&few[..], &["--requests", "1"]].concat()[..], "--requests"),
        (&[&few[..], &["--load", "read", "--beside", "whole-replies"]].concat(), "READ"),
        (&["stages", "--only", "read", "--out", out], "READ"),
    ] {
        let (why, status) = run(args);
        assert!(status == Some(1) && why.contains(reason), "{args:?}, {status:?}: {why}");
        assert!(!why.contains("what it must be"), "{args:?}: {why}");
    }
}
