//! A study that a signal ends leaves nothing behind: no server, running or stopped, and so no namespace of one.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tools::study::children::ending_signals;

/// Longest wait for a server, or for an end.
const LONGEST: Duration = Duration::from_secs(60);
const MEMCACHED: &str = "memcached=memcached -u nobody -l {address} -p {port} -U 0 -m {memory}";

/// State, and parent, of a process: proc(5), `stat`, fields 3 and 4.
fn state(process: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Programs that this process has started, by name.
fn children(parent: u32) -> Vec<(u32, String)> {
    let all = fs::read_dir("/proc").unwrap();
    let numbers = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let ours = numbers.filter(|process| state(*process).is_some_and(|(_, of)| of == parent));
    ours.filter_map(|process| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        Some((process, name.trim().to_owned()))
    })
    .collect()
}

/// Ends a study by this signal once it has all these programs, and looks for what is left.
fn ended(signal: Signal, through: &str, gnomon: Option<&Path>, programs: &[&str]) {
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gnomon-study"));
    command.args(["tcp", "--through", through, "--server", MEMCACHED, "--memory", "64"]);
    command.args(["--milliseconds", "60000", "--out"]).arg(out.path());
    if let Some(gnomon) = gnomon {
        command.arg("--gnomon").arg(gnomon);
    }
    let mut study = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let servers = loop {
        let servers = children(study.id());
        if programs.iter().all(|program| servers.iter().any(|(_, name)| name == program)) {
            break servers;
        }
        if study.try_wait().unwrap().is_some() || begun.elapsed() > LONGEST {
            panic!("no {programs:?} but {servers:?}: {}", end(study));
        }
        sleep(Duration::from_millis(5));
    };
    kill(Pid::from_raw(study.id().cast_signed()), signal).unwrap();
    let begun = Instant::now();
    while study.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < LONGEST, "it does not end");
        sleep(Duration::from_millis(5));
    }
    let left: Vec<_> = servers.iter().filter(|(id, _)| state(*id).is_some()).collect();
    for (process, _) in &left {
        let _ = kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL);
    }
    assert!(left.is_empty(), "{through}, {signal}: {left:?}");
    assert_eq!(study.wait().unwrap().signal(), Some(signal as i32), "{through}");
}

/// Ends a process, and says what it wrote.
fn end(mut process: Child) -> String {
    let _ = kill(Pid::from_raw(process.id().cast_signed()), Signal::SIGTERM);
    let mut text = String::new();
    let _ = process.stderr.take().unwrap().read_to_string(&mut text);
    let _ = process.wait();
    text
}

/// Without SIGQUIT, which leaves a core file.
fn signals() -> impl Iterator<Item = Signal> {
    ending_signals().unwrap().filter(|signal| *signal != Signal::SIGQUIT)
}

fn is_there(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

#[test]
fn a_signal_ends_the_servers_of_a_study_as_well() {
    if !is_there("memcached", "-V") {
        eprintln!("skipped: memcached is not installed");
        return;
    }
    for signal in signals() {
        ended(signal, "sockets", None, &["memcached"]);
    }
}

#[test]
fn a_signal_ends_stopped_servers_in_namespaces_as_well() {
    let separate = Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
    if !separate.is_ok_and(|status| status.success())
        || !is_there("memcached", "-V")
        || !is_there("ethtool", "--version")
    {
        eprintln!("skipped: no namespaces, or no memcached or ethtool");
        return;
    }
    // One that never gets ready: the study waits, and memcached is stopped meanwhile.
    let dir = tempfile::tempdir().unwrap();
    let gnomon = dir.path().join("gnomon");
    fs::write(&gnomon, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&gnomon, fs::Permissions::from_mode(0o755)).unwrap();
    for signal in signals() {
        ended(signal, "net_tap", Some(&gnomon), &["memcached", "sleep"]);
    }
}
