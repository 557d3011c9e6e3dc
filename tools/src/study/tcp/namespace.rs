//! Network namespaces without a name: one is there for as long as this process holds it or a process in it runs.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::{process, thread};

/// A network namespace.
#[derive(Debug)]
pub(super) struct Namespace(File);

impl Namespace {
    /// A new one; its loopback is up.
    ///
    /// # Errors
    /// The kernel's: it takes CAP_SYS_ADMIN.
    pub(super) fn new() -> io::Result<Self> {
        let made = elsewhere(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| {
                io::Error::new(io::Error::from(e).kind(), format!("a network namespace: {e}"))
            })?;
            File::open("/proc/thread-self/ns/net").map(Self)
        })?;
        made.command("ip link set lo up")?;
        Ok(made)
    }

    /// What a thread in it makes of this: sockets that it opens and processes that it starts stay there.
    ///
    /// # Errors
    /// `work`'s, or the kernel's.
    pub(super) fn enter<R: Send>(
        &self,
        work: impl FnOnce() -> io::Result<R> + Send,
    ) -> io::Result<R> {
        elsewhere(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET)?;
            work()
        })
    }

    /// Runs a command, words separated by blanks, to its end.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub(super) fn command(&self, line: &str) -> io::Result<()> {
        let mut words = line.split_whitespace();
        let failed = |why: String| io::Error::other(format!("`{line}`: {why}"));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        let output = self.enter(|| command.output()).map_err(|e| failed(e.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// A path by which other programs find it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd())
    }
}

/// What a thread of its own makes of this: whatever it changes of itself ends with it.
fn elsewhere<R: Send>(work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    let joined = thread::scope(|scope| scope.spawn(work).join());
    joined.unwrap_or_else(|_| Err(io::Error::other("a thread ended early")))
}
