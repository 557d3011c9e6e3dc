//! The file of `-P`: the process's number, for those who want to signal it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
    /// Writes the process's number to the file, which appears whole.
    ///
    /// # Errors
    /// The OS error.
    pub fn write(path: &Path) -> Result<Self, PidFileError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".tmp");
        fs::write(&beside, own())
            .and_then(|()| fs::rename(&beside, path))
            .map_err(|source| PidFileError { path: path.to_owned(), source })?;
        Ok(Self(path.to_owned()))
    }
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

    #[test]
    fn the_file_comes_whole_and_goes_at_the_end() {
        let t = Tree::new("pid", &[("pid", "1 and much more from an earlier run\n")]);
        let path = t.0.join("pid");
        let file = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), own());
        drop(file);
        assert!(!path.exists() && fs::read_dir(&t.0).unwrap().next().is_none());
        let file = PidFile::write(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n", "another process's");
        let said = PidFile::write(&t.0.join("none/pid")).unwrap_err().to_string();
        assert!(said.starts_with("cannot write the pid file "), "{said}");
    }
}
