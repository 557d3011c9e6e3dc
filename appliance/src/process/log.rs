//! Events on standard error.

use tracing::Level;
use tracing_subscriber::fmt::writer::MakeWriterExt;

/// The target of an event that is made, but not written.
pub(crate) const UNWRITTEN: &str = "unwritten";

/// Writes warnings, and more with each `-v`.
pub fn begin(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        _ => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr.with_filter(|event| event.target() != UNWRITTEN))
        .with_target(false)
        .init();
}
