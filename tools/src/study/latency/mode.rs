//! How the server of the study works: the ways that are measured beside one another.

use crate::report::named;
use clap::ValueEnum;
use dataplane::stages::batch::BatchMode;

named! {
    /// How the server works.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
    pub enum Mode {
        /// Batches wait for nothing.
        Adaptive = "adaptive",
        /// They wait to be filled.
        Fixed = "fixed, 512",
        /// They wait for nothing, and the worker sleeps when nothing has come (`--energy manage`).
        Sleeping = "sleeping",
    }
}

impl Mode {
    pub(super) fn batches(self) -> BatchMode {
        match self {
            Self::Adaptive | Self::Sleeping => BatchMode::Adaptive,
            Self::Fixed => BatchMode::Fixed,
        }
    }
}
