//! `gnomon-pcapgen`: see [`tools::trace::cli`]. Exit status: 0 written, 1 not written, 2 bad flag.

use clap::Parser;
use std::process::ExitCode;
use tools::output::tell;

fn main() -> ExitCode {
    match tools::trace::cli::Flags::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tell(format_args!("gnomon-pcapgen: {e}"));
            ExitCode::FAILURE
        }
    }
}
