//! `docs/configuration.md`: every flag of every command, in the groups of `--help`.
//!
//! In: clap's description of the flags. Out: Markdown. A cell holds what clap holds, so that a flag
//! cannot change without the page; a test compares.

use crate::startup::flags::Cli;
use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const HEAD: &str = "\
# Configuration

<!-- Made from the code: `gnomon man --markdown >docs/configuration.md`. A test compares. -->

Every flag of every command. `gnomon COMMAND --help` prints the same, and `gnomon man DIR` writes it as
manual pages. [Operations](operations.md) describes how the command line, the environment and a file of
flags (`/etc/gnomon.conf`) rank, what memcached's letters do here, and who is answered over UDP;
[security](security.md), [GPU](gpu.md), [metrics](metrics.md) and [sizing](sizing.md) have pages of
their own.

A flag with an environment variable can be set by it. A value that is out of range is refused with
the range. Flags without a command mean `serve`. One variable is no flag: `MEMCACHED_PORT_FILENAME`
names a file to which `serve` writes the ports in use.
";

const COLUMNS: &str = "\
| flag | environment | default | meaning |
|---|---|---|---|
";

/// `docs/configuration.md`.
pub fn reference() -> String {
    let root = Cli::command();
    let mut text = String::from(HEAD);
    let mut told: Vec<(String, String)> = Vec::new();
    for command in root.get_subcommands() {
        let name = command.get_name();
        let about = sentence(command.get_about());
        let flags = groups(command);
        // Writing to a String cannot fail.
        let _ = write!(text, "\n## `gnomon {name}`\n\n{about}\n");
        match told.iter().find(|(_, other)| *other == flags) {
            Some((other, _)) => {
                let _ =
                    write!(text, "\nIt takes what [`gnomon {other}`](#gnomon-{other}) takes.\n");
            }
            None => {
                text.push_str(&flags);
                told.push((name.to_owned(), flags));
            }
        }
    }
    text
}

/// The tables of a command, one for each heading, in the order in which headings first come.
fn groups(command: &Command) -> String {
    let mut groups: Vec<(&str, String)> = Vec::new();
    for arg in command.get_arguments() {
        let heading = arg.get_help_heading().unwrap_or_else(|| match arg.is_positional() {
            true => "Arguments",
            false => "Options",
        });
        let row = row(arg);
        match groups.iter_mut().find(|(name, _)| *name == heading) {
            Some((_, rows)) => rows.push_str(&row),
            None => groups.push((heading, row)),
        }
    }
    let one = groups.len() == 1;
    groups.into_iter().fold(String::new(), |text, (heading, rows)| match one {
        true => format!("{text}\n{COLUMNS}{rows}"),
        false => format!("{text}\n### {heading}\n\n{COLUMNS}{rows}"),
    })
}

fn row(arg: &Arg) -> String {
    let environment = arg.get_env().map(|name| code(&name.to_string_lossy()));
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| code(&value.to_string_lossy())).collect();
    format!(
        "| {} | {} | {} | {} |\n",
        spelling(arg),
        environment.unwrap_or_default(),
        defaults.join(", "),
        meaning(arg)
    )
}

/// Every way to write the flag, with what its value is called.
fn spelling(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default().join(" ");
    let values = match arg.get_num_args().is_some_and(|count| count.min_values() == 0) {
        true => format!("[{values}]"),
        false => values,
    };
    if arg.is_positional() {
        return code(&match arg.is_last_set() {
            true => format!("-- {values} …"),
            false => values,
        });
    }
    let short = arg.get_short().map(|letter| format!("-{letter}"));
    let long = arg.get_long().into_iter().chain(arg.get_visible_aliases().into_iter().flatten());
    let mut names: Vec<String> = short.into_iter().chain(long.map(|l| format!("--{l}"))).collect();
    if let Some(last) = names.last_mut().filter(|_| takes_value(arg)) {
        let _ = write!(last, " {values}");
    }
    names.iter().map(|name| code(name)).collect::<Vec<_>>().join(", ")
}

/// What it says, what its values are, and how several are written.
fn meaning(arg: &Arg) -> String {
    let mut text = sentence(arg.get_help()).replace('|', "\\|");
    let values = arg.get_possible_values();
    if takes_value(arg) && !values.is_empty() {
        let values: Vec<String> = values
            .iter()
            .map(|value| match value.get_help() {
                None => code(value.get_name()),
                Some(help) => {
                    let help = help.to_string();
                    format!("{}: {}", code(value.get_name()), help.trim_end_matches('.'))
                }
            })
            .collect();
        let _ = write!(text, " Values: {}.", values.join("; "));
    }
    if let Some(between) = arg.get_value_delimiter() {
        let _ = write!(text, " Several in one value: {} between them.", code(&between.to_string()));
    }
    text
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// clap leaves the last full stop out.
fn sentence(text: Option<&StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    format!("{}.", text.trim_end_matches('.'))
}

/// In a table a bar divides cells even in code.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/configuration.md");

    #[test]
    fn the_page_about_configuration_is_made_from_the_code() {
        assert!(PAGE == reference(), "make it anew: gnomon man --markdown >docs/configuration.md");
    }

    #[test]
    fn each_flag_and_variable_of_each_command_has_a_row() {
        let text = reference();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
        for command in Cli::command().get_subcommands() {
            for arg in command.get_arguments() {
                let Some(long) = arg.get_long() else { continue };
                let names = |row: &&&str| {
                    let flag = row.split(" | ").next().unwrap();
                    flag.contains(&format!("`--{long}")) || flag.contains(&format!(" --{long}"))
                };
                let row = rows.iter().find(names).unwrap_or_else(|| panic!("--{long} has no row"));
                if let Some(name) = arg.get_env() {
                    assert!(row.contains(&*name.to_string_lossy()), "{row}");
                }
                assert_eq!(row.replace("\\|", "").matches('|').count(), 5, "{row}");
            }
        }
        assert!(text.contains("`--port SPEC`") && text.contains("`;` between them"), "{text}");
        assert!(text.contains(&format!("### Arguments\n\n{COLUMNS}| `-- EAL …` |")), "{text}");
    }
}
