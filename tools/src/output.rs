//! Standard output and standard error, and errors that name what they are about.
//!
//! In: text. Out: the same on a stream, at once. A reader of the standard output that has gone has seen enough, and
//! is no failure; what else keeps text from it is. What keeps text from the standard error is nowhere to be said.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes this line to the standard output.
///
/// # Errors
/// It cannot be written, and not because its reader has gone.
pub fn say(line: impl Display) -> io::Result<()> {
    print(format!("{line}\n").as_bytes())
}

/// Writes this to the standard output, as it is.
///
/// # Errors
/// As of [`say`].
pub fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(about("standard output", &e)),
        _ => Ok(()),
    }
}

/// Writes this line to the standard error, if that can be.
pub fn tell(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The same error, and what it is about.
pub fn about(what: impl Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
