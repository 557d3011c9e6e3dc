//! The file of `-P`: the process's number, for those who want to signal it.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, Write};
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
pub struct PidFile(PathBuf);

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
            Err(_) if path.parent().is_some_and(Path::is_dir) => return Ok(()),
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
        file.write_all(own().as_bytes())
            .and_then(|()| fs::rename(&beside, path))
            .inspect_err(|_| {
                // What a full disk took of it.
                let _ = fs::remove_file(&beside);
            })
            .map_err(failed)?;
        Ok(Self(path.to_owned()))
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

/// What stands in this process's.
fn own() -> String {
    format!("{}\n", std::process::id())
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // One that another process has written since is that one's.
        if fs::read_to_string(&self.0).is_ok_and(|text| text != own()) {
            return;
        }
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove the pid file");
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
        assert_eq!(fs::read_to_string(&path).unwrap(), own());
        drop(file);
        assert!(!path.exists() && fs::read_dir(&t.0).unwrap().next().is_none());
        let file = PidFile::write(&path).unwrap();
        assert_eq!(running(&path), None, "its own");
        fs::write(&path, "1\n").unwrap();
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
        for (path, said) in
            [("none/pid", "No such file"), ("", "is no file"), ("socket", "is no file")]
        {
            let refused = PidFile::write(&t.0.join(path)).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        assert!(t.0.join("socket").exists());
        let said = PidFile::write(&t.0.join("none/pid")).unwrap_err().to_string();
        assert!(said.starts_with("cannot write the pid file "), "{said}");
    }
}
