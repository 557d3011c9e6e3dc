//! The number of queues to a device, as the environment has it. Without the test harness, which has
//! threads: nothing may be set beside them.
#![allow(missing_docs)]
#![allow(clippy::expect_used, reason = "tests")]

use gpu::cuda::use_all_connections;
use std::process::{Command, ExitCode};
use std::{env, thread};

const NAME: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// What a process of this program says, that begins with this number in its environment.
fn said(begins_with: Option<&str>, how: &str) -> String {
    let mut child = Command::new(env::current_exe().expect("this program has a path"));
    child.env_remove(NAME).env("CONNECTIONS_TEST", how);
    if let Some(number) = begins_with {
        child.env(NAME, number);
    }
    let output = child.output().expect("this program starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn main() -> ExitCode {
    let Ok(how) = env::var("CONNECTIONS_TEST") else {
        assert_eq!(said(None, "alone"), "true 32");
        assert_eq!(said(Some("8"), "alone"), "true 8");
        assert_eq!(said(None, "beside a thread"), "false none");
        println!("the number of queues: as it should be");
        return ExitCode::SUCCESS;
    };
    let tell = || {
        let set = use_all_connections();
        println!("{set} {}", env::var(NAME).unwrap_or_else(|_| "none".to_owned()));
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
