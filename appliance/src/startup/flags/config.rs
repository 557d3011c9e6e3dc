//! `--config FILE`: flags in a file, one a line, as Debian's `memcached.conf` has them.
//!
//! In: what was typed. Out: the same with the file's flags in front, but for those that the command
//! line or the environment has, too: these win. `#` begins a comment line; a line that begins with
//! `--` and a blank holds arguments for DPDK.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Longest file.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("--config {path}: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
    /// A line that is no flag, or not a flag of this command.
    #[error("{path}:{line}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What clap says.
        why: String,
    },
}

/// Arguments, and which of them came from where.
#[derive(Debug)]
pub(super) struct Merged {
    /// What clap is to parse.
    pub(super) args: Vec<OsString>,
    /// The file's flags that count, by their ids in clap, with their lines.
    from_file: BTreeMap<String, usize>,
    path: Option<PathBuf>,
    /// What the file has that has no effect, one a line.
    pub(super) notes: Vec<String>,
}

/// Puts the file's flags into `args`, if they name one. `args` begin with the program and the
/// command's name.
pub(super) fn merge(root: &Command, args: Vec<OsString>) -> Result<Merged, ConfigError> {
    let mut merged = Merged { args, from_file: BTreeMap::new(), path: None, notes: Vec::new() };
    // Whatever is wrong with them is said when they are parsed in earnest.
    let typed = root.clone().ignore_errors(true).try_get_matches_from(&merged.args);
    let Some((name, typed)) = typed.ok().and_then(|mut m| m.remove_subcommand()) else {
        return Ok(merged);
    };
    let path = typed.try_get_one::<PathBuf>("config").ok().flatten().cloned();
    let (Some(path), Some(command)) = (path, root.find_subcommand(&name)) else {
        return Ok(merged);
    };
    let text = read(&path).map_err(|why| ConfigError::Unreadable { path: path.clone(), why })?;
    let (mut flags, mut eal) = (Vec::new(), Vec::new());
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        let tokens = tokens(text);
        let wrong = |why: String| ConfigError::Line { path: path.clone(), line, why };
        let Some(first) = tokens.first() else { continue };
        if first == "logfile" {
            // Debian's script around memcached opens it.
            let path = path.display();
            merged.notes.push(format!(
                "{path}:{line}: logfile has no effect: what happens goes to standard error, for the service manager to keep"
            ));
            continue;
        }
        if !first.starts_with('-') {
            return Err(wrong(format!("'{first}' is no flag: flags begin with - or --")));
        }
        let ids = given(command, &name, &tokens).map_err(wrong)?;
        if ids.iter().any(|id| id == "config" || id == "print_config") {
            return Err(wrong(format!("{first} has no place in a file")));
        }
        if ids.iter().any(|id| is_set(&typed, id)) {
            continue;
        }
        for id in ids {
            merged.from_file.insert(id, line);
        }
        if first == "--" { &mut eal } else { &mut flags }
            .extend(tokens.into_iter().map(OsString::from));
    }
    let behind_command = 2.min(merged.args.len());
    merged.args.splice(behind_command..behind_command, flags);
    merged.args.extend(eal);
    merged.path = Some(path);
    Ok(merged)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_MAX_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 > FILE_MAX_BYTES {
        true => Err(io::Error::other("it has more than 1 MB, and is no file of flags")),
        // Some editors begin a file with a mark of its encoding.
        false => Ok(text.trim_start_matches('\u{feff}').to_owned()),
    }
}

/// A flag and, behind the first blank, its value; or `--` and arguments for DPDK.
fn tokens(line: &str) -> Vec<String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Vec::new();
    }
    if line.starts_with("-- ") {
        return line.split_whitespace().map(str::to_owned).collect();
    }
    match line.split_once(char::is_whitespace) {
        Some((flag, value)) => vec![flag.to_owned(), value.trim().to_owned()],
        None => vec![line.to_owned()],
    }
}

/// The ids of the flags in one line.
fn given(command: &Command, name: &str, tokens: &[String]) -> Result<Vec<String>, String> {
    let words = std::iter::once(name).chain(tokens.iter().map(String::as_str));
    let matches =
        command.clone().try_get_matches_from(words).map_err(|error| first_line(&error))?;
    let set = matches
        .ids()
        .filter(|id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine));
    Ok(set.map(|id| id.to_string()).collect())
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Whether the command line or the environment says so.
fn is_set(matches: &ArgMatches, id: &str) -> bool {
    matches!(matches.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// `--print-config`: every setting that is not the default, as a file that `--config` takes, each
/// with its source.
pub(super) fn print(command: &Command, matches: &ArgMatches, merged: &Merged) -> String {
    let mut text = String::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        if !is_set(matches, id) || id == "config" || id == "print_config" {
            continue;
        }
        let source = match (matches.value_source(id), merged.from_file.get(id), &merged.path) {
            (Some(ValueSource::EnvVariable), ..) => {
                format!("environment, {}", arg.get_env().unwrap_or_default().display())
            }
            (_, Some(line), Some(path)) => format!("{}:{line}", path.display()),
            _ => "command line".to_owned(),
        };
        let _ = writeln!(text, "# {source}");
        for value in values(matches, arg, id) {
            let _ = writeln!(text, "{value}");
        }
    }
    text
}

/// The lines that say what `matches` say of one flag.
fn values(matches: &ArgMatches, arg: &clap::Arg, id: &str) -> Vec<String> {
    let Some(long) = arg.get_long() else {
        let all = matches.get_raw(id).into_iter().flatten().map(OsStr::to_string_lossy);
        return vec![format!("-- {}", all.collect::<Vec<_>>().join(" "))];
    };
    match arg.get_action() {
        clap::ArgAction::SetTrue if matches.get_flag(id) => vec![format!("--{long}")],
        clap::ArgAction::SetTrue => Vec::new(),
        clap::ArgAction::Count => vec![format!("--{long}"); usize::from(matches.get_count(id))],
        _ => matches
            .get_raw(id)
            .into_iter()
            .flatten()
            .map(|value| format!("--{long} {}", value.to_string_lossy()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory;
    use std::fs;

    struct Conf(PathBuf);

    impl Conf {
        fn new(name: &str, text: &str) -> Self {
            let name = format!("gnomon-config-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::write(&path, text).unwrap();
            Self(path)
        }
    }

    impl Drop for Conf {
        fn drop(&mut self) {
            if self.0.is_file() {
                let _ = fs::remove_file(&self.0);
            }
        }
    }

    fn with(file: &Conf, args: &[&str]) -> Result<Merged, ConfigError> {
        let path = file.0.to_str().unwrap();
        let all = ["gnomon", "serve", "--config", path].into_iter().chain(args.iter().copied());
        merge(&Cli::command(), all.map(OsString::from).collect())
    }

    fn printed(file: &Conf, args: &[&str]) -> String {
        let merged = with(file, args).unwrap();
        let root = Cli::command();
        let matches = root.clone().try_get_matches_from(&merged.args).unwrap();
        let (name, matches) = matches.subcommand().unwrap();
        print(root.find_subcommand(name).unwrap(), matches, &merged)
    }

    #[test]
    fn a_file_in_the_way_of_debian_is_understood() {
        let file = Conf::new(
            "debian",
            "\u{feff}# memcached default config file\n\n-d\n-m 64\n-p 11212\n-u memcache\n\
             logfile /var/log/memcached.log\n\
             -l 127.0.0.1\n-l ::1\n  -c 2048  \n-P /run/gnomon.pid\n-vv\n--huge=on\n\
             -- --file-prefix=x --no-pci\n",
        );
        let path = file.0.display();
        let text = printed(&file, &["-c", "99", "-p", "5"]);
        for line in [
            "--daemon",
            "--memory-limit 64",
            "--user memcache",
            "--listen 127.0.0.1",
            "--listen ::1",
            "--pidfile /run/gnomon.pid",
            "--huge on",
            "--conn-limit 99",
            "--tcp-port 5",
            "-- --file-prefix=x --no-pci",
            "# command line",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing:\n{text}");
        }
        assert!(text.contains(&format!("# {path}:4\n--memory-limit 64\n")), "{text}");
        assert_eq!(text.matches("--verbose\n").count(), 2, "{text}");
        // With the blank: the process id in the file's name may have any digits.
        assert!(!text.contains(" 2048") && !text.contains(" 11212"), "{text}");
        // What it prints, it understands, to the same end.
        let again = Conf::new("again", &text);
        let strip =
            |s: &str| s.lines().filter(|l| !l.starts_with('#')).collect::<Vec<_>>().join("\n");
        assert_eq!(strip(&printed(&again, &[])), strip(&text));
    }

    #[test]
    fn lines_that_are_wrong_are_named() {
        for (text, wrong) in [
            ("-m 64\nlog /var/log/x\n", ":2: 'log' is no flag"),
            ("--memroy 64\n", ":1: unexpected argument '--memroy'"),
            ("-m many\n", ":1: invalid value 'many'"),
            ("-m\n", ":1: a value is required"),
            ("--config /x\n", ":1: --config has no place in a file"),
            ("serve\n", ":1: 'serve' is no flag"),
        ] {
            let file = Conf::new("wrong", text);
            let said = with(&file, &[]).unwrap_err().to_string();
            assert!(said.contains(wrong), "{said}");
        }
        let endless = Conf(PathBuf::from("/dev/zero"));
        let said = with(&endless, &[]).unwrap_err().to_string();
        assert!(said.ends_with("is no file of flags"), "{said}");
        let gone = Conf(PathBuf::from("/nowhere/gnomon.conf"));
        assert!(matches!(with(&gone, &[]), Err(ConfigError::Unreadable { .. })));
    }

    #[test]
    fn without_a_file_nothing_changes() {
        let args: Vec<OsString> = ["gnomon", "serve", "-m", "64"].map(OsString::from).into();
        assert_eq!(merge(&Cli::command(), args.clone()).unwrap().args, args);
    }
}
