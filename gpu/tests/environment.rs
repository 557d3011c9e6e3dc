//! What the driver takes from the environment. Without the test harness, which has threads: nothing may be set beside
//! them.
#![allow(missing_docs)]
#![allow(clippy::expect_used, reason = "tests")]

use gpu::cuda::set_environment;
use std::process::{Command, ExitCode};
use std::{env, thread};

const NAMES: [&str; 2] = ["CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER"];

/// What a process of this program says, that begins with these values in its environment.
fn said(begins_with: [Option<&str>; 2], how: &str) -> String {
    let mut child = Command::new(env::current_exe().expect("this program has a path"));
    child.env("ENVIRONMENT_TEST", how);
    for (name, value) in NAMES.iter().zip(begins_with) {
        match value {
            Some(value) => child.env(name, value),
            None => child.env_remove(name),
        };
    }
    let output = child.output().expect("this program starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn main() -> ExitCode {
    let Ok(how) = env::var("ENVIRONMENT_TEST") else {
        assert_eq!(said([None, None], "alone"), "true 32 PCI_BUS_ID");
        assert_eq!(said([Some("8"), None], "alone"), "true 8 PCI_BUS_ID");
        assert_eq!(said([None, Some("FASTEST_FIRST")], "alone"), "true 32 FASTEST_FIRST");
        assert_eq!(said([Some("8"), Some("PCI_BUS_ID")], "beside a thread"), "true 8 PCI_BUS_ID");
        assert_eq!(said([None, Some("PCI_BUS_ID")], "beside a thread"), "false none PCI_BUS_ID");
        println!("the driver's environment: as it should be");
        return ExitCode::SUCCESS;
    };
    let tell = || {
        let set = set_environment();
        let [queues, order] =
            NAMES.map(|name| env::var(name).unwrap_or_else(|_| "none".to_owned()));
        println!("{set} {queues} {order}");
    };
    if how == "alone" {
        tell();
    } else {
        thread::scope(|scope| {
            scope.spawn(tell);
        });
    }
    ExitCode::SUCCESS
}
