//! What a memory file would lie in: the file system, the free space there, and who can write to a
//! file that is there. Nothing is made or changed.

use nix::errno::Errno;
use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use store::restart::Shared;

/// Bytes that `stat` counts a file's blocks in, whatever the file system's are.
const STAT_BLOCK_BYTES: u64 = 512;

/// The place of a memory file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRoom {
    /// The file system.
    pub system: FileSystem,
    /// What the file has already, in bytes.
    pub taken_bytes: u64,
    /// What this user can still have. `None`: the file system has no limit of its own.
    pub free_bytes: Option<u64>,
}

/// Kinds of file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// In memory.
    Tmpfs,
    /// In memory, on huge pages.
    Hugetlbfs {
        /// Of this size.
        page_bytes: u64,
    },
    /// Anything else.
    Disk,
}

/// Why no memory file can be there, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// A device, a directory, a pipe.
    #[error("not a regular file; name one in a tmpfs or a hugetlbfs")]
    NotAFile,
    /// Others have a hand in it.
    #[error(transparent)]
    Shared(#[from] Shared),
    /// The file is there, for others.
    #[error("this user may not read and write it: {}", .0.desc())]
    File(Errno),
    /// There is no file, and none can be made.
    #[error(
        "no file can be made there: {}; make its directory, writable for this user, or name another file",
        .0.desc()
    )]
    Directory(Errno),
    /// The file system does not report.
    #[error("cannot look at its file system: {}", .0.desc())]
    FileSystem(Errno),
}

/// Looks at the place, whether the file is there or not.
///
/// # Errors
/// [`FileFault`].
pub(super) fn look(path: &Path) -> Result<FileRoom, FileFault> {
    let (there, taken_bytes) = match fs::symlink_metadata(path) {
        Ok(m) if !m.is_file() && !m.is_symlink() => return Err(FileFault::NotAFile),
        Ok(m) => {
            // The caller, which has `-u`, checks its owner.
            Shared::check(&m, m.uid())?;
            let allowed = access(path, AccessFlags::R_OK | AccessFlags::W_OK);
            allowed.map_err(FileFault::File)?;
            (path, m.blocks() * STAT_BLOCK_BYTES)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // A bare name has an empty parent.
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            let directory = parent.unwrap_or_else(|| Path::new("."));
            let allowed = access(directory, AccessFlags::W_OK | AccessFlags::X_OK);
            allowed.map_err(FileFault::Directory)?;
            (directory, 0)
        }
        Err(e) => {
            return Err(FileFault::File(Errno::from_raw(e.raw_os_error().unwrap_or_default())));
        }
    };
    let kinds = statfs(there).map_err(FileFault::FileSystem)?;
    let room = statvfs(there).map_err(FileFault::FileSystem)?;
    let system = match kinds.filesystem_type() {
        TMPFS_MAGIC => FileSystem::Tmpfs,
        HUGETLBFS_MAGIC => FileSystem::Hugetlbfs { page_bytes: room.block_size() },
        _ => FileSystem::Disk,
    };
    // Both show 0 of 0 when they were mounted without a limit.
    let free_bytes = (room.blocks() > 0).then(|| room.blocks_available() * room.fragment_size());
    Ok(FileRoom { system, taken_bytes, free_bytes })
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_place_is_looked_at_whether_there_is_a_file_or_not() {
        let tree = Tree::new("memory-file", &[("there", "12345")]);
        fs::set_permissions(tree.0.join("there"), fs::Permissions::from_mode(0o600)).unwrap();
        let (there, not_yet) = (look(&tree.0.join("there")), look(&tree.0.join("not-yet")));
        let (there, not_yet) = (there.unwrap(), not_yet.unwrap());
        assert_eq!(there.system, not_yet.system);
        assert!(there.taken_bytes > 0 && not_yet.taken_bytes == 0);
        assert!(there.free_bytes.is_none_or(|n| n > 0));
        assert!(look(Path::new("a-file-in-the-working-directory")).is_ok());
    }

    #[test]
    fn a_place_where_none_can_be_is_told() {
        let tree = Tree::new("no-memory-file", &[("file", "")]);
        assert_eq!(look(&tree.0), Err(FileFault::NotAFile));
        assert_eq!(look(Path::new("/dev/null")), Err(FileFault::NotAFile));
        assert!(matches!(look(&tree.0.join("none/x")), Err(FileFault::Directory(_))));
        assert!(matches!(look(&tree.0.join("file/x")), Err(FileFault::File(_))));
    }
}
