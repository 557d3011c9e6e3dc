//! The file of `-P`: the process's number, for those who want to signal it.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Names that are tried for a file beside the one that it will take the place of.
const NAMES_MAX: usize = 100;

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot write the pid file {path}: {source}; check -P, and that the user of -u may write there"
)]
pub struct PidFileError {
    path: PathBuf,
    source: io::Error,
}

/// The file, removed on drop.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Open, so that no other file gets its number. To be compared without a read: the sandbox allows none.
    file: File,
}

impl PidFile {
    /// Looks whether the file can have that name, and touches nothing.
    ///
    /// # Errors
    /// There is no such directory, or something else is there: a device or a socket would be lost, and a FIFO
    /// waited for.
    pub fn may_be(path: &Path) -> Result<(), PidFileError> {
        let source = match fs::metadata(path) {
            Ok(there) if there.is_file() => return Ok(()),
            Ok(_) => io::Error::other("it is there, and is no file"),
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && path.parent().is_some_and(Path::is_dir) =>
            {
                return Ok(());
            }
            Err(error) => error,
        };
        Err(PidFileError { path: path.to_owned(), source })
    }

    /// Writes the process's number to the file, which appears whole. Warns where that of another process that runs
    /// is lost.
    ///
    /// # Errors
    /// The OS error, or something else has that name.
    pub fn write(path: &Path) -> Result<Self, PidFileError> {
        Self::may_be(path)?;
        if let Some(pid) = running(path) {
            tracing::warn!(path = %path.display(), pid, "the pid file named a process that runs");
        }
        let failed = |source| PidFileError { path: path.to_owned(), source };
        let (beside, mut file) = new_beside(path).map_err(failed)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())
            .and_then(|()| fs::rename(&beside, path))
            .inspect_err(|_| {
                // What a full disk took of it.
                let _ = fs::remove_file(&beside);
            })
            .map_err(failed)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Whether the name is still this file's, and not another's that took its place.
    fn is_there(&self) -> io::Result<bool> {
        let (own, there) = (self.file.metadata()?, fs::symlink_metadata(&self.path)?);
        Ok((own.dev(), own.ino()) == (there.dev(), there.ino()))
    }
}

/// A new file beside this one. Whatever has a name that it could have is not ours, and stays.
fn new_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = |n| {
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.{n}", std::process::id()));
        PathBuf::from(beside)
    };
    let mut n = 0;
    loop {
        let beside = name(n);
        match File::create_new(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < NAMES_MAX => n += 1,
            file => return file.map(|file| (beside, file)),
        }
    }
}

/// The process that the file names, if there is one, and it is not this one.
fn running(path: &Path) -> Option<i32> {
    let pid = fs::read_to_string(path).ok()?.trim().parse().ok().filter(|pid| *pid > 0)?;
    let is_other = u32::try_from(pid) != Ok(std::process::id());
    let runs = kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH);
    (is_other && runs).then_some(pid)
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let removed = self.is_there().and_then(|there| match there {
            true => fs::remove_file(&self.path),
            false => Ok(()),
        });
        if let Err(error) = removed {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the pid file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::machine::tests::Tree;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_file_comes_whole_and_goes_at_the_end() {
        let t = Tree::new("pid", &[("pid", "1 and much more from an earlier run\n")]);
        let path = t.0.join("pid");
        let file = PidFile::write(&path).unwrap();
        let own = format!("{}\n", std::process::id());
        assert_eq!(fs::read_to_string(&path).unwrap(), own);
        drop(file);
        assert!(!path.exists() && fs::read_dir(&t.0).unwrap().next().is_none());
        let file = PidFile::write(&path).unwrap();
        assert_eq!(running(&path), None, "its own");
        fs::write(t.0.join("new"), "1\n").unwrap();
        fs::rename(t.0.join("new"), &path).unwrap();
        assert_eq!(running(&path), Some(1));
        for nobody in ["", "0", "-1", "x", "999999999"] {
            fs::write(t.0.join("other"), nobody).unwrap();
            assert_eq!(running(&t.0.join("other")), None, "{nobody}");
        }
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n", "another process's");
        let taken = t.0.join(format!("pid.{}.0", std::process::id()));
        fs::write(&taken, "another's").unwrap();
        drop(PidFile::write(&path).unwrap());
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(&taken).unwrap(), "another's");
        drop(UnixListener::bind(t.0.join("socket")).unwrap());
        for (path, said) in [
            ("none/pid", "No such file"),
            ("", "is no file"),
            ("socket", "is no file"),
            (&"n".repeat(300), "too long"),
        ] {
            let refused = PidFile::write(&t.0.join(path)).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        assert!(t.0.join("socket").exists());
        let said = PidFile::write(&t.0.join("none/pid")).unwrap_err().to_string();
        assert!(said.starts_with("cannot write the pid file "), "{said}");
    }
}
