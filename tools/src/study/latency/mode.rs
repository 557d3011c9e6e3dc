//! How the server of the study works: the ways that are measured beside one another.

use clap::ValueEnum;
use dataplane::stages::batch::BatchMode;

/// How the server works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Batches wait for nothing.
    Adaptive,
    /// They wait to be filled.
    Fixed,
    /// They wait for nothing, and the worker sleeps when nothing has come (`--energy manage`).
    Sleeping,
}

impl Mode {
    /// Those of a study, in their order.
    pub const ALL: [Self; 3] = [Self::Adaptive, Self::Fixed, Self::Sleeping];

    pub(super) fn batches(self) -> BatchMode {
        match self {
            Self::Adaptive | Self::Sleeping => BatchMode::Adaptive,
            Self::Fixed => BatchMode::Fixed,
        }
    }

    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Fixed => "fixed, 512",
            Self::Sleeping => "sleeping",
        }
    }
}
