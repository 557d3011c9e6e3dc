//! The Rust `memcache` crate against a live server: every method of its classic client, in ASCII and
//! in the binary protocol, over TCP and UDP, and of its two clients that speak the meta protocol.
//!
//! ```text
//! memcache-battery HOST:PORT [--label TEXT] [--memcached]
//! ```
//!
//! Prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed. `--memcached` leaves
//! out what memcached itself cannot do.

mod classic;
mod meta;

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for what takes a second or two.
const EVENTUALLY: Duration = Duration::from_secs(20);
/// How long to wait for a reply.
pub const REPLY: Duration = Duration::from_secs(30);

/// Why a check failed: the library's own error, or one of ours in words.
pub type Checked = Result<(), Box<dyn std::error::Error>>;

/// A key that no other check and no other run uses.
pub fn new_key() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("rust-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Fails unless both are equal.
pub fn same<T: PartialEq + Debug>(got: T, wanted: T, what: &str) -> Checked {
    if got == wanted {
        return Ok(());
    }
    let show = |value: &T| format!("{value:?}").chars().take(200).collect::<String>();
    Err(format!("{what}: {} instead of {}", show(&got), show(&wanted)).into())
}

/// Fails unless the condition is true.
pub fn holds(condition: bool, what: &str) -> Checked {
    if condition { Ok(()) } else { Err(what.into()) }
}

/// Waits until the condition is true; fails when it does not become so.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Checked {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > EVENTUALLY {
            return Err(format!("after {EVENTUALLY:?}: {what}").into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Counts and prints.
pub struct Battery {
    /// `HOST:PORT`, the same for TCP and UDP.
    pub server: String,
    label: String,
    failures: usize,
}

impl Battery {
    /// Runs one check and prints what became of it.
    pub fn check(&mut self, name: &str, body: impl FnOnce() -> Checked) {
        match body() {
            Ok(()) => println!("ok      {}{name}", self.label),
            Err(why) => {
                self.failures += 1;
                println!("FAILED  {}{name}: {why}", self.label);
            }
        }
    }
}

fn main() -> ExitCode {
    let mut battery = Battery { server: String::new(), label: String::new(), failures: 0 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--label" => battery.label = arguments.next().unwrap_or_default(),
            _ => battery.server = argument,
        }
    }
    if battery.server.is_empty() {
        eprintln!("usage: memcache-battery HOST:PORT [--label TEXT]");
        return ExitCode::from(2);
    }
    classic::checks(&mut battery);
    meta::checks(&mut battery);
    if battery.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
