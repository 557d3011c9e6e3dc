//! Instructions of each stage, counted by valgrind over this very program.
//!
//! In: the arguments to run it with. Out: instructions of functions, callees included. Counts are the
//! same each time, whatever else the machine does, but for the C library's copies, which depend on
//! the processor. Fails when valgrind does; whether there is one can be asked.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether there is a valgrind.
pub fn is_there() -> bool {
    let asked = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// What a run of this program with `args` printed, and the instructions of its functions by name.
/// `profile` is a file to write to, which is removed.
///
/// # Errors
/// It could not be run, or failed.
pub fn run(args: &[String], profile: &Path) -> io::Result<(String, HashMap<String, u64>)> {
    let output = Command::new("valgrind")
        .args(["-q", "--tool=callgrind", "--dump-line=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(args)
        .output()?;
    let text = std::fs::read_to_string(profile);
    let _ = std::fs::remove_file(profile);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("valgrind: {said}")));
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), inclusive(&text?)))
}

/// Instructions of each function, callees included, in a callgrind profile. What calls itself is
/// counted more than once.
fn inclusive(profile: &str) -> HashMap<String, u64> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut costs: HashMap<String, u64> = HashMap::new();
    let mut function = "";
    for line in profile.lines() {
        let named = ["fn=", "cfn="].iter().find_map(|kind| {
            let (id, name) = line.strip_prefix(kind)?.split_once(')')?;
            Some((*kind, id, name.trim_start()))
        });
        if let Some((kind, id, name)) = named {
            if !name.is_empty() {
                names.insert(id, name);
            }
            if kind == "fn=" {
                function = names.get(id).copied().unwrap_or_default();
            }
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            // A place, and the cost: its own, or a callee's behind a line that calls it.
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            *costs.entry(function.to_owned()).or_default() += cost.unwrap_or(0);
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callees_are_counted_with_their_callers() {
        let profile = "events: Ir\nfl=(1) a.rs\nfn=(1) main\n1 10\ncfn=(2) room\ncalls=2 5\n+3 40\n\
                       fn=(2)\n* 30\ncob=(1)\ncfn=(3) leaf\ncalls=1 1\n-1 10\n\nfn=(3)\n7 10\n";
        let costs = inclusive(profile);
        let want = [("main", 50), ("room", 40), ("leaf", 10)];
        assert_eq!(costs.len(), want.len());
        for (name, cost) in want {
            assert_eq!(costs[name], cost, "{name}");
        }
    }
}
