//! Whom the process becomes (`-u`), and what it takes while it still may: core dumps (`-r`) and
//! locked memory (`-k`).

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, User, fchownat, geteuid, setgid, setgroups, setuid};
use std::fs::File;
use std::path::{Path, PathBuf};

/// What was refused.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum PrivilegeError {
    #[error("-u {0}: this machine has no such user")]
    NoSuchUser(String),
    #[error("-u {name}: cannot look the user up: {source}")]
    LookUp { name: String, source: Errno },
    #[error(
        "-u {name}: cannot become this user: {source}; does the process have CAP_SETUID and CAP_SETGID?"
    )]
    Become { name: String, source: Errno },
    /// A file of the process's that is to be the user's.
    #[error(
        "-u {name}: cannot give {path} to this user: {source}; does the process have CAP_CHOWN?"
    )]
    Give { name: String, path: PathBuf, source: Errno },
    /// `-r` under a hard limit of 0.
    #[error(
        "-r: core dumps are forbidden to this process: raise the limit (ulimit -Hc, LimitCORE=)"
    )]
    NoCoreDumps,
}

/// A user to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    uid: Uid,
    gid: Gid,
}

impl Identity {
    /// The user of this name, when it is for this process to become it: only root can, and for
    /// other users `-u` means nothing, as in memcached.
    ///
    /// # Errors
    /// [`PrivilegeError`].
    pub fn find(name: &str) -> Result<Option<Self>, PrivilegeError> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        match User::from_name(name) {
            Ok(Some(User { uid, gid, .. })) => Ok(Some(Self { name: name.to_owned(), uid, gid })),
            Ok(None) => Err(PrivilegeError::NoSuchUser(name.to_owned())),
            Err(source) => Err(PrivilegeError::LookUp { name: name.to_owned(), source }),
        }
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Gives this user the file, which was at `path`: whatever another process has put there since stays as it is.
    ///
    /// # Errors
    /// The OS error.
    pub fn give(&self, file: &File, path: &Path) -> Result<(), PrivilegeError> {
        let (uid, gid) = (Some(self.uid), Some(self.gid));
        fchownat(file, "", uid, gid, AtFlags::AT_EMPTY_PATH).map_err(|source| {
            PrivilegeError::Give { name: self.name.clone(), path: path.to_owned(), source }
        })
    }

    /// Makes every thread of the process this user's, for good.
    ///
    /// # Errors
    /// The OS error. Part of the rights may be gone by then: the process must end.
    pub fn assume(&self) -> Result<(), PrivilegeError> {
        if self.uid.is_root() {
            return Ok(());
        }
        setgroups(&[self.gid])
            .and_then(|()| setgid(self.gid))
            .and_then(|()| setuid(self.uid))
            .map_err(|source| self.refused(source))
    }

    fn refused(&self, source: Errno) -> PrivilegeError {
        PrivilegeError::Become { name: self.name.clone(), source }
    }
}

/// Lets the process leave core dumps as large as its limits allow.
///
/// # Errors
/// [`PrivilegeError::NoCoreDumps`].
pub fn raise_core_limit() -> Result<(), PrivilegeError> {
    if setrlimit(Resource::RLIMIT_CORE, RLIM_INFINITY, RLIM_INFINITY).is_ok() {
        return Ok(());
    }
    match getrlimit(Resource::RLIMIT_CORE) {
        Ok((_, hard)) if hard > 0 => {
            setrlimit(Resource::RLIMIT_CORE, hard, hard).map_err(|_| PrivilegeError::NoCoreDumps)
        }
        _ => Err(PrivilegeError::NoCoreDumps),
    }
}

/// A process that changed its user leaves no core dumps unless it says so.
pub fn stay_dumpable() {
    if let Err(error) = set_dumpable(true) {
        tracing::warn!(%error, "-r: there will be no core dumps");
    }
}

/// Takes the limit on locked memory away, where the process may.
pub fn raise_lock_limit() {
    // Refused without the right to; then what is allowed is locked.
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
}

/// Locks all memory there is, and where nothing limits it, all that is still to come. What cannot
/// be locked is reported and not fatal, as in memcached.
pub fn lock_memory() {
    let unlimited =
        matches!(getrlimit(Resource::RLIMIT_MEMLOCK), Ok((soft, _)) if soft == RLIM_INFINITY);
    let mut what = MlockAllFlags::MCL_CURRENT;
    // Under a limit, memory mapped later would be refused, because it could not be locked.
    what.set(MlockAllFlags::MCL_FUTURE, unlimited);
    if let Err(error) = mlockall(what) {
        tracing::warn!(%error, "-k: memory is not locked; raise the limit (ulimit -l, LimitMEMLOCK=)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_looks_users_up() {
        let nobody = Identity::find("nobody");
        let stranger = Identity::find("no such user");
        if geteuid().is_root() {
            assert_eq!(nobody.unwrap().unwrap().name, "nobody");
            let said = stranger.unwrap_err().to_string();
            assert_eq!(said, "-u no such user: this machine has no such user");
        } else {
            assert_eq!(nobody.unwrap(), None);
            assert_eq!(stranger.unwrap(), None);
        }
    }
}
