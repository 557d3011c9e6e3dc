//! The memory file, which holds the items: access checks, lock, reserved space.
//!
//! In: a path. Out: the file, open, locked and ours alone. Fails: with a [`MemoryFileError`]
//! that says what is wrong with it and what to do.

use crate::published::Published;
use driver_shim::mapping::{reserve, write_start};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf, absolute};

/// Why a file cannot be the store's memory.
#[derive(Debug, thiserror::Error)]
#[error("memory file {}: {why}", path.display())]
pub struct MemoryFileError {
    path: PathBuf,
    why: Refusal,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("cannot open it: {0}; its directory must be there and writable")]
    Open(io::Error),
    #[error("not a regular file; name one in a tmpfs or a hugetlbfs")]
    NotAFile,
    #[error(transparent)]
    Shared(#[from] Shared),
    #[error("another process uses it; give each a file of its own")]
    Busy,
    #[error("it holds something else, and is left as it is; remove it, or name another")]
    Foreign,
    #[error("cannot read it: {0}")]
    Read(io::Error),
    #[error(
        "cannot set {bytes} bytes aside for it: {source}; make its file system larger, lower the memory limit, or name a file in a tmpfs or a hugetlbfs"
    )]
    Full { bytes: u64, source: io::Error },
    #[error(
        "cannot set {bytes} bytes aside for it: fallocate: {source}; its file system must have that call, and the seccomp profile of a container must allow it"
    )]
    Reserve { bytes: u64, source: io::Error },
    #[error(
        "cannot set {0} bytes aside for it: the limit on the size of files (ulimit -f, LimitFSIZE=) is lower; raise it, or lower the memory limit"
    )]
    Limit(u64),
    #[error("cannot write to it: {0}")]
    Write(io::Error),
    #[error(
        "its name is no longer there, or leads to another file: it was removed, replaced or unmounted"
    )]
    Gone,
}

/// Another user can read or write the file, and so change what clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Shared {
    /// A symbolic link: its owner chooses the target.
    #[error("it is a symbolic link; name the file itself")]
    Link,
    /// The user who made it.
    #[error(
        "it belongs to user {0}, neither to root nor to who serves; remove it, so that this start makes its own"
    )]
    Owner(u32),
    /// Permissions of group and others.
    #[error(
        "its mode is {0:o}, so that others read or change the items; remove it, or chmod 600 it if no other user can have written to it"
    )]
    Mode(u32),
    /// Hard links.
    #[error("it has {0} names (hard links), of which others may have one; remove it")]
    Names(u64),
}

impl Shared {
    /// What is wrong with a file for the user `uid` (and root), by its metadata, not followed.
    ///
    /// # Errors
    /// The first thing that is.
    pub fn check(file: &Metadata, uid: u32) -> Result<(), Self> {
        let mode = file.mode() & 0o7777;
        match file {
            _ if file.is_symlink() => Err(Self::Link),
            _ if file.uid() != 0 && file.uid() != uid => Err(Self::Owner(file.uid())),
            _ if mode & 0o077 != 0 => Err(Self::Mode(mode)),
            _ if file.nlink() != 1 => Err(Self::Names(file.nlink())),
            _ => Ok(()),
        }
    }
}

/// The file, ours alone as long as this lives.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    pub(super) file: File,
    path: PathBuf,
    pub(super) generation: u64,
}

impl MemoryFile {
    /// Opens the file, made for its owner alone if it was not there, and locks it. One that
    /// users other than root and `uid` can read or write is refused.
    pub(super) fn open(path: &Path, uid: u32) -> Result<Self, MemoryFileError> {
        let refused = |why| MemoryFileError { path: path.to_owned(), why };
        // Asked before it is opened, because opening some devices does something.
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Err(refused(Refusal::NotAFile));
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlag::O_NOFOLLOW.bits());
        let file = options.open(path).map_err(|e| {
            let is_link = e.raw_os_error() == Some(Errno::ELOOP as i32);
            refused(if is_link { Shared::Link.into() } else { Refusal::Open(e) })
        })?;
        let found = file.metadata().map_err(|e| refused(Refusal::Open(e)))?;
        Shared::check(&found, uid).map_err(|why| refused(why.into()))?;
        match file.try_lock() {
            // Where the process is when it is looked for again may be another directory.
            Ok(()) => Ok(Self {
                file,
                path: absolute(path).map_err(|e| refused(Refusal::Open(e)))?,
                generation: 0,
            }),
            Err(TryLockError::WouldBlock) => Err(refused(Refusal::Busy)),
            Err(TryLockError::Error(e)) => Err(refused(Refusal::Open(e))),
        }
    }

    pub(super) fn refused(&self, why: Refusal) -> MemoryFileError {
        MemoryFileError { path: self.path.clone(), why }
    }

    pub(super) fn len(&self) -> Result<u64, MemoryFileError> {
        Ok(self.file.metadata().map_err(|e| self.refused(Refusal::Read(e)))?.len())
    }

    /// Gives the file its length, all of it set aside, in memory of these NUMA nodes.
    pub(super) fn reserve(&self, bytes: u64, nodes: &[u32]) -> Result<(), MemoryFileError> {
        reserve(&self.file, bytes, nodes).map_err(|source| {
            self.refused(match source.kind() {
                io::ErrorKind::FileTooLarge => Refusal::Limit(bytes),
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::OutOfMemory => Refusal::Full { bytes, source },
                _ => Refusal::Reserve { bytes, source },
            })
        })
    }

    /// The words for clients who read items here. They are ended.
    pub(crate) fn published(&self) -> Result<Published, MemoryFileError> {
        Published::of(&self.file).map_err(|e| self.refused(Refusal::Write(e)))
    }

    pub(super) fn write(&self, start: &[u8]) -> Result<(), MemoryFileError> {
        write_start(&self.file, start).map_err(|e| self.refused(Refusal::Write(e)))
    }

    /// Whether the next start can find the file: its name still leads to it. A directory that this process may no longer search
    /// hides that, and all that is known then is that it has a name.
    pub(super) fn is_named(&self) -> Result<(), MemoryFileError> {
        let held = self.file.metadata().map_err(|e| self.refused(Refusal::Read(e)))?;
        let is_there = match std::fs::symlink_metadata(&self.path) {
            Ok(named) => (named.dev(), named.ino()) == (held.dev(), held.ino()),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => held.nlink() > 0,
            Err(_) => false,
        };
        if is_there { Ok(()) } else { Err(self.refused(Refusal::Gone)) }
    }
}
