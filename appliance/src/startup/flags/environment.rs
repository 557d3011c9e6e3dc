//! Which variables of the environment are flags.
//!
//! In: the command, as clap has it. Out: the same, without those variables that are no flags: empty ones, as a compose
//! file's `${NAME:-}` leaves them, and links that Kubernetes makes for a service named gnomon
//! (`GNOMON_PORT=tcp://10.0.0.1:11211`). Nothing fails.

use clap::builder::{OsStr, Resettable};
use clap::{Arg, Command};
use std::env;

/// What Kubernetes' and Docker's links begin with; no flag's value does.
const LINKS: [&str; 3] = ["tcp://", "udp://", "sctp://"];

pub(super) fn usable(command: Command) -> Command {
    command.mut_subcommands(|command| command.mut_args(without_useless))
}

fn without_useless(arg: Arg) -> Arg {
    let value = arg.get_env().and_then(env::var_os);
    let is_useless = value.is_some_and(|value| {
        let value = value.to_string_lossy();
        value.is_empty() || LINKS.iter().any(|link| value.starts_with(link))
    });
    if is_useless { arg.env(Resettable::<OsStr>::Reset) } else { arg }
}
