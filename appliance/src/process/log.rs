//! Events on standard error.

use super::output;
use tracing::Level;
use tracing_subscriber::fmt::writer::MakeWriterExt;

/// The target of an event that is made, but not written.
pub(crate) const UNWRITTEN: &str = "unwritten";

/// Writes warnings, and more with each `-v`. What cannot be written is lost, and nothing else.
pub fn begin(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        _ => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer((|| output::Log).with_filter(|event| event.target() != UNWRITTEN))
        .with_target(false)
        // Or a line that cannot be written, as to a pipe without a reader or a full disk, is reported by a
        // macro that panics where that cannot be written either.
        .log_internal_errors(false)
        .init();
}
