//! Puts the commit and the compiler's version where `-V` and the report can read them.
//!
//! Needs neither git nor a repository: without them the commit is `unknown`.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    // Not for its own path, which is another from each package that has it: cargo takes a missing file for a changed
    // one. A changed script is run in any case.
    println!("cargo::rerun-if-env-changed=RUSTC");
    // Grows with every commit and checkout. Watched only where it exists.
    if let Some(log) = line_of("git", &["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = line_of("git", &["rev-parse", "--short=12", "HEAD"]);
    println!("cargo::rustc-env=GNOMON_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let rustc = line_of(&rustc, &["--version"]);
    println!("cargo::rustc-env=GNOMON_RUSTC={}", rustc.as_deref().unwrap_or("rustc unknown"));
}

/// The first line that a command prints, or `None` when it is missing or fails.
fn line_of(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let line = text.lines().next()?.trim();
    (out.status.success() && !line.is_empty()).then(|| line.to_owned())
}
