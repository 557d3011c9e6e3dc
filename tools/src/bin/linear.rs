//! `gnomon-linear`: see [`tools::linear::cli`]. Exit status: 0 all well, 1 not linearizable or
//! could not run, 2 bad flag.

use clap::Parser;
use std::process::ExitCode;
use tools::linear::cli::Flags;
use tools::output::tell;

fn main() -> ExitCode {
    match Flags::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            tell(format_args!("gnomon-linear: {e}"));
            ExitCode::FAILURE
        }
    }
}
