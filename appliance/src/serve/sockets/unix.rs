//! A Unix socket, of `-s` or of `--metrics`: made with the mask of its flag, and gone with its owner.
//!
//! A socket that a process left behind is taken away; one that still answers, and a file that is
//! no socket, are left alone and reported.

use super::SocketError;
use crate::startup::plan::UnixPlan;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{AccessFlags, access};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket's place in the file system, given up on drop.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove the Unix socket");
        }
    }
}

/// Listens there. To be called while the process has one thread: the mask is the process's.
pub(super) fn listen(
    plan: &UnixPlan,
    flag: &'static str,
    backlog: i32,
) -> Result<(UnixListener, SocketFile), SocketError> {
    let refused = |source| SocketError::Unix { flag, path: plan.path.clone(), source };
    if is_left_over(&plan.path, flag)? {
        fs::remove_file(&plan.path).map_err(refused)?;
    }
    let address = SockAddr::unix(&plan.path).map_err(refused)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(refused)?;
    socket.set_nonblocking(true).map_err(refused)?;
    let before = umask(Mode::from_bits_truncate(!plan.mask.0 & 0o777));
    let bound = socket.bind(&address);
    umask(before);
    bound.map_err(refused)?;
    let file = SocketFile(plan.path.clone());
    socket.listen(backlog).map_err(refused)?;
    Ok((socket.into(), file))
}

/// Looks whether [`listen`] could, and changes nothing.
pub(super) fn probe(path: &Path, flag: &'static str) -> Result<(), SocketError> {
    if is_left_over(path, flag)? {
        return Ok(());
    }
    // A bare name has an empty parent.
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    access(parent.unwrap_or_else(|| Path::new(".")), AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|e| SocketError::Unix { flag, path: path.to_owned(), source: e.into() })
}

/// Whether an ended process left a socket behind there. Anything else that is there is an error.
fn is_left_over(path: &Path, flag: &'static str) -> Result<bool, SocketError> {
    let owned = || path.to_owned();
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(SocketError::Unix { flag, path: owned(), source }),
        Ok(found) if !found.file_type().is_socket() => {
            Err(SocketError::NotASocket { flag, path: owned() })
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
            _ => Err(SocketError::UnixInUse { flag, path: owned() }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::machine::tests::Tree;
    use crate::startup::flags::FileMask;
    use std::os::unix::fs::PermissionsExt;

    fn plan(t: &Tree, name: &str) -> UnixPlan {
        UnixPlan { path: t.0.join(name), mask: FileMask(0o750) }
    }

    #[test]
    fn a_left_over_socket_gives_way_and_nothing_else_does() {
        let t = Tree::new("unix", &[("file", "precious")]);
        let p = plan(&t, "socket");
        drop(UnixListener::bind(&p.path).unwrap());
        assert!(p.path.exists());
        let (_listener, file) = listen(&p, "-s", 5).unwrap();
        let mode = fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
        let said = listen(&p, "-s", 5).unwrap_err().to_string();
        assert!(said.contains("is in use: "), "{said}");
        assert!(UnixStream::connect(&p.path).is_ok());
        drop(file);
        assert!(!p.path.exists());

        let said = listen(&plan(&t, "file"), "-s", 5).unwrap_err().to_string();
        assert!(said.contains("file is no socket"), "{said}");
        assert_eq!(fs::read_to_string(t.0.join("file")).unwrap(), "precious");
        let said = listen(&plan(&t, "none/socket"), "-s", 5).unwrap_err().to_string();
        assert!(said.starts_with("cannot listen on the Unix socket "), "{said}");
        assert!(listen(&plan(&t, &"x".repeat(200)), "-s", 5).is_err());
    }
}
