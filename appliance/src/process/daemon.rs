//! `-d`: the process in the background, and how that went, for the one that started it.
//!
//! The process starts itself again, in a session of its own and with a pipe for its standard
//! output, and waits until the other serves, which says so there, or ends. So a start that fails
//! fails in the caller's terminal, and `gnomon -d && client` works. Starting again instead
//! of forking leaves nothing behind of the first process but its standard error.

use nix::unistd::{chdir, dup2_stderr, dup2_stdout, setsid};
use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time from the end of its output to its own, where it fails.
const END_MAX: Duration = Duration::from_secs(1);

/// Set for the process in the background.
const DETACHED: &str = "GNOMON_DETACHED";

/// Whether this is the process in the background.
pub fn is_detached() -> bool {
    env::var_os(DETACHED).is_some()
}

/// Starts the process in the background and waits until it serves or ends. Its exit code then is
/// this process's.
///
/// # Errors
/// The OS error to start it.
pub fn detach() -> io::Result<ExitCode> {
    let mut child = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().map(BufReader::new);
    let mut lines = stdout.into_iter().flat_map(|s| s.lines().map_while(Result::ok));
    if lines.any(|line| is_ready(&line)) {
        // Until it has settled, too, and released the pipe.
        lines.for_each(drop);
        return Ok(ExitCode::SUCCESS);
    }
    // It may serve without having been able to say so: then it has released the pipe, and goes on.
    let begun = Instant::now();
    while begun.elapsed() < END_MAX {
        if child.try_wait()?.is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let Some(ended) = child.try_wait()? else { return Ok(ExitCode::SUCCESS) };
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.filter(|&code| code != 0).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Whether this line says that the process serves, as text or as JSON.
fn is_ready(line: &str) -> bool {
    line.starts_with("ready:") || line.starts_with(r#"{"event":"ready""#)
}

/// Begins a session of its own: no terminal's signals reach the process from here on.
///
/// # Errors
/// The OS error.
pub fn begin() -> io::Result<()> {
    Ok(setsid().map(|_| ())?)
}

/// Releases the directory, and opens what [`settle`] needs.
///
/// # Errors
/// The OS error.
pub fn leave() -> io::Result<File> {
    chdir("/")?;
    File::options().write(true).open("/dev/null")
}

/// Releases the pipe and, unless it is to be verbose, standard error, in favour of `nowhere`. To
/// be called when the process has said that it serves.
///
/// # Errors
/// The OS error.
pub fn settle(nowhere: &File, verbose: bool) -> io::Result<()> {
    dup2_stdout(nowhere)?;
    if !verbose {
        dup2_stderr(nowhere)?;
    }
    Ok(())
}
