//! Why a run breaks off.

use crate::trace::{GenerateError, ReadError};
use std::io;

/// Why a run breaks off.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The capture cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The workload cannot be made up.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The link is broken.
    #[error("the link to the server broke: {0}")]
    Link(#[from] io::Error),
    /// The histogram cannot be made.
    #[error("no memory for the latency histogram")]
    Histogram,
}
