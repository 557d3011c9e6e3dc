//! `gnomon-replay`: see [`tools::replay::cli`]. Exit status: 0 all well, 1 could not run, 2 bad
//! flag, 3 wrong answers or too many lost.

use clap::Parser;
use std::process::ExitCode;
use tools::output::tell;
use tools::replay::cli::{Flags, Verdict};

fn main() -> ExitCode {
    match Flags::parse().run() {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(3),
        Err(e) => {
            tell(format_args!("gnomon-replay: {e}"));
            ExitCode::FAILURE
        }
    }
}
