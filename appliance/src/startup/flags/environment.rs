//! Which variables of the environment are flags.
//!
//! In: the command, as clap has it. Out: the same, without those variables that are no flags: empty ones, as a compose
//! file's `${NAME:-}` leaves them, and links that Kubernetes makes for a service named gnomon
//! (`GNOMON_PORT=tcp://10.0.0.1:11211`). And errors, which are put down to the variable that they come from. Nothing fails.

use clap::builder::{OsStr, Resettable};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
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

/// The error, which clap puts down to a flag whether that was given or a variable was.
pub(super) fn named(mut command: Command, mut error: Error) -> Error {
    // Before that no flag can be shown.
    command.build();
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let is_it = |arg: &&Arg| match (error.kind(), arg.get_env().and_then(env::var_os)) {
        (ErrorKind::InvalidUtf8, Some(value)) => value.to_str().is_none(),
        (_, Some(value)) => {
            context(ContextKind::InvalidArg) == Some(arg.to_string().as_str())
                && context(ContextKind::InvalidValue) == value.to_str()
        }
        (_, None) => false,
    };
    let mut args = command.get_subcommands().flat_map(Command::get_arguments);
    let variable = args.find(is_it).and_then(|arg| arg.get_env()?.to_str());
    let Some(variable) = variable.map(|name| format!("{name}, of the environment")) else {
        return error;
    };
    if error.kind() == ErrorKind::InvalidUtf8 {
        return Error::raw(ErrorKind::InvalidUtf8, format!("{variable}, is not UTF-8\n"));
    }
    error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    error
}
