//! A Unix socket, of `-s` or of `--metrics`: made with the mask of its flag, and gone with its owner.
//!
//! A socket that a process left behind is taken away; one that still answers, and a file that is
//! no socket, are left alone and reported. Nor is one taken away at the end that another process has
//! made there since: the next one may serve while the last still answers its clients.

use super::SocketError;
use crate::startup::plan::UnixPlan;
use nix::libc;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{AccessFlags, access};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The socket's place in the file system, given up on drop, if it is still this socket's.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Its file, not opened: as long as there is a handle, no other file has its number.
    file: File,
}

impl SocketFile {
    /// That of a socket which is bound there.
    fn of(path: &Path) -> io::Result<Self> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket's file, whatever is there by now.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is still there, and not another in its place.
    fn is_there(&self) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let removed = match self.is_there() {
            Ok(true) => fs::remove_file(&self.path),
            Ok(false) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the Unix socket");
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
    let file = SocketFile::of(&plan.path).map_err(refused)?;
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
        Ok(_) => match knock(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
            _ => Err(SocketError::UnixInUse { flag, path: owned() }),
        },
    }
}

/// Connects to the process that listens there, without waiting for it: one that is stopped never answers.
fn knock(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::machine::tests::Tree;
    use crate::startup::flags::FileMask;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;
    use std::thread::spawn;
    use std::time::Duration;

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

    #[test]
    fn an_owner_that_accepts_nothing_is_an_owner() {
        let t = Tree::new("unix-stuck", &[("file", "")]);
        let path = t.0.join("socket");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        let mut clients = Vec::new();
        let full = loop {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            match client.connect(&SockAddr::unix(&path).unwrap()) {
                Ok(()) => clients.push(client),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let (send, found) = channel();
        spawn(move || send.send(probe(&path, "-s")));
        let found = found.recv_timeout(Duration::from_secs(10)).expect("it does not wait");
        assert!(matches!(found, Err(SocketError::UnixInUse { .. })), "{found:?}");
    }

    #[test]
    fn a_socket_that_another_has_made_there_since_stays() {
        let t = Tree::new("unix-next", &[("file", "")]);
        let p = plan(&t, "socket");
        // One that has stopped to listen and still answers, and the one that takes its place.
        let (listener, old) = listen(&p, "-s", 5).unwrap();
        drop(listener);
        let (_listener, new) = listen(&p, "-s", 5).unwrap();
        drop(old);
        assert!(UnixStream::connect(&p.path).is_ok());
        drop(new);
        assert!(!p.path.exists());
        // Nothing is there any more, or something else is.
        let (_listener, gone) = listen(&p, "-s", 5).unwrap();
        fs::remove_file(&p.path).unwrap();
        drop(gone);
        let (_listener, old) = listen(&p, "-s", 5).unwrap();
        fs::remove_file(&p.path).unwrap();
        fs::write(&p.path, "precious").unwrap();
        drop(old);
        assert_eq!(fs::read_to_string(&p.path).unwrap(), "precious");
    }
}
