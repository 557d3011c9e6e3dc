//! How the process runs.

use super::absolute;
use crate::startup::flags::ServeFlags;
use serde::Serialize;
use std::path::PathBuf;

/// How the process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessPlan {
    /// In the background.
    pub daemon: bool,
    /// Where its number is written.
    pub pid_file: Option<PathBuf>,
    /// Whom to become, when started by root.
    pub user: Option<String>,
    /// It may leave core dumps.
    pub core_dumps: bool,
    /// None of its memory may be swapped out.
    pub lock_memory: bool,
    /// It gives up what serving does not need.
    pub sandbox: bool,
}

pub(super) fn process(flags: &ServeFlags) -> ProcessPlan {
    let process = &flags.process;
    ProcessPlan {
        daemon: process.daemon,
        pid_file: process.pidfile.as_deref().map(absolute),
        user: process.user.clone(),
        core_dumps: process.enable_coredumps,
        lock_memory: process.lock_memory,
        sandbox: !process.no_sandbox,
    }
}
