//! How the process runs.

use super::{PlanError, absolute};
use crate::startup::flags::{Extended, ServeFlags, Ssl};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A name, and the links behind it that a kernel follows.
const LINKS_MAX: usize = 41;

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

/// Checks that the pid file takes no other file's place, and does not take it along at the end.
pub(super) fn pid_file_apart(flags: &ServeFlags) -> Result<(), PlanError> {
    let Some(pid_file) = &flags.process.pidfile else { return Ok(()) };
    let clients = &flags.clients;
    let named = [
        ("-e", flags.memory_file.as_deref()),
        ("-Y", clients.auth_file.as_deref()),
        ("--config", flags.config.as_deref()),
    ];
    let of_tls = clients.options().filter_map(|option| match option {
        Extended::Ssl(Ssl::ChainCert(path)) => Some(("-o ssl_chain_cert", path.as_path())),
        Extended::Ssl(Ssl::Key(path)) => Some(("-o ssl_key", path.as_path())),
        Extended::Ssl(Ssl::CaCert(path)) => Some(("-o ssl_ca_cert", path.as_path())),
        _ => None,
    });
    let named = named.into_iter().filter_map(|(flag, path)| Some((flag, path?)));
    let is_it = |path: &Path| {
        // The name, and what each link on its way leads to.
        let on_the_way = std::iter::successors(Some(path.to_owned()), |at| {
            let to = at.read_link().ok()?;
            Some(at.parent().map_or_else(|| to.clone(), |dir| dir.join(&to)))
        });
        on_the_way.take(LINKS_MAX).any(|at| are_one(pid_file, &at))
    };
    match named.chain(of_tls).find(|(_, path)| is_it(path)) {
        Some((flag, path)) => Err(PlanError::PidFileIs { flag, path: path.to_owned() }),
        None => Ok(()),
    }
}

/// Whether two names are one, as far as the directories that there are say.
fn are_one(a: &Path, b: &Path) -> bool {
    let [a, b] = [a, b].map(|path| {
        let path = absolute(path);
        let dir = path.parent().and_then(|dir| dir.canonicalize().ok());
        dir.zip(path.file_name()).map_or_else(|| path.clone(), |(dir, name)| dir.join(name))
    });
    a == b
}
