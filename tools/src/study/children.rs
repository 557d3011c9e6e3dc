//! Processes that are there for a study, and end with it, however it ends.
//!
//! In: commands, files of sockets that processes make. Out: running processes, which are killed, and files, which are removed,
//! when they are dropped, or when SIGTERM, SIGINT or SIGQUIT ends this process: a signal of those drops nothing. Fails
//! as the kernel does.

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io, thread};

/// What is to end.
static LEFT: Mutex<Left> = Mutex::new(Left { processes: Vec::new(), files: Vec::new() });

struct Left {
    /// Not waited for yet: the number of each is still its own.
    processes: Vec<u32>,
    files: Vec<PathBuf>,
}

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signals that end this process, but for those that it was started to ignore: a shell has its background jobs ignore
/// SIGINT.
///
/// # Errors
/// proc(5) is not there.
pub fn ending_signals() -> io::Result<impl Iterator<Item = Signal>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let ignored = ignored.ok_or(io::ErrorKind::InvalidData)?;
    let all = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT];
    Ok(all.into_iter().filter(move |signal| ignored >> (*signal as i32 - 1) & 1 == 0))
}

/// From now on ends what is left before a signal ends this process. Before any other thread is started: so that signals interrupt
/// none, which could end the process before.
///
/// # Errors
/// The kernel's.
pub fn watch_signals() -> io::Result<()> {
    let signals: SigSet = ending_signals()?.collect();
    signals.thread_block()?;
    let end = move || {
        let Ok(signal) = signals.wait() else { return };
        // Kept to the end: nothing is started any more.
        let left = left();
        let all: Vec<_> = left.processes.iter().map(|id| Pid::from_raw(id.cast_signed())).collect();
        for process in &all {
            let _ = kill(*process, Signal::SIGKILL);
        }
        for process in all {
            let _ = waitpid(process, None);
        }
        for file in &left.files {
            let _ = fs::remove_file(file);
        }
        let _ = signals.thread_unblock();
        let _ = raise(signal);
    };
    thread::Builder::new().name("signals".to_owned()).spawn(end).map(drop)
}

/// A process. Ended when dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut left = left();
        let child = command.spawn()?;
        left.processes.push(child.id());
        Ok(Self(child))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its standard output, where that is a pipe.
    pub fn stdout(&mut self) -> Option<&mut ChildStdout> {
        self.0.stdout.as_mut()
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut left = left();
        let ended = self.0.try_wait()?;
        if ended.is_some() {
            left.processes.retain(|id| *id != self.0.id());
        }
        Ok(ended)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut left = left();
        let _ = self.0.kill();
        let _ = self.0.wait();
        left.processes.retain(|id| *id != self.0.id());
    }
}

/// The file of a socket that a process makes. Removed when dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// Where it will be.
    pub fn at(path: PathBuf) -> Self {
        left().files.push(path.clone());
        Self(path)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        left().files.retain(|path| *path != self.0);
    }
}
