//! A client's connection and where it comes from: TCP or a Unix socket, the same to all else.

use dataplane::protocol::stats::conns::with_kind;
use socket2::SockRef;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Where connections come from, before a runtime knows it.
#[derive(Debug)]
pub enum Source {
    /// TCP.
    Tcp(std::net::TcpListener),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixListener),
}

impl Source {
    /// A handle of its own on the same listener.
    ///
    /// # Errors
    /// Out of files.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(l) => l.try_clone().map(Self::Tcp),
            Self::Unix(l) => l.try_clone().map(Self::Unix),
        }
    }
}

/// Where connections come from.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn new(source: Source) -> io::Result<Self> {
        match source {
            Source::Tcp(l) => TcpListener::from_std(l).map(Self::Tcp),
            Source::Unix(l) => UnixListener::from_std(l).map(Self::Unix),
        }
    }

    /// The number of its file.
    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(l) => l.as_raw_fd(),
            Self::Unix(l) => l.as_raw_fd(),
        }
    }

    /// Its address, kind first, as `stats conns` has it.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(l) => tcp(l.local_addr().ok()),
            Self::Unix(l) => {
                let address = l.local_addr().ok();
                let path = address.as_ref().and_then(|a| a.as_pathname());
                path.map_or_else(|| "unix:".to_owned(), |p| format!("unix:{}", p.display()))
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(l) => Ok(Stream::Tcp(l.accept().await?.0)),
            Self::Unix(l) => Ok(Stream::Unix(l.accept().await?.0)),
        }
    }
}

fn tcp(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "tcp:".to_owned(), |a| with_kind("tcp", a))
}

/// A client's connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// The number of its file.
    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(s) => s.as_raw_fd(),
            Self::Unix(s) => s.as_raw_fd(),
        }
    }

    /// The client's address; none on a Unix socket.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(s) => s.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// The client's address, kind first, as `stats conns` has it.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(_) => tcp(self.peer()),
            Self::Unix(_) => "unix:".to_owned(),
        }
    }

    /// Sends each write at once.
    pub(super) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        }
    }

    /// Waits until something has come, and takes what there is, as far as there is room behind
    /// `into`. One system call: a read that leaves room has taken everything. 0 at the end.
    /// Nothing is lost when it is dropped.
    pub(super) async fn read_buf(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read_buf(into).await,
            Self::Unix(s) => s.read_buf(into).await,
        }
    }

    /// Whether the kernel has something that was not read.
    pub(super) fn has_unread(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let socket = match self {
            Self::Tcp(s) => SockRef::from(s),
            Self::Unix(s) => SockRef::from(s),
        };
        matches!(socket.peek(&mut byte), Ok(1..))
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.try_write(bytes),
            Self::Unix(s) => s.try_write(bytes),
        }
    }

    /// Waits until some can be sent, and says how much that was.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(bytes).await,
            Self::Unix(s) => s.write(bytes).await,
        }
    }

    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.write_all(bytes).await,
            Self::Unix(s) => s.write_all(bytes).await,
        }
    }

    /// Nothing more will be sent.
    pub(super) fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => SockRef::from(s).shutdown(Shutdown::Write),
            Self::Unix(s) => SockRef::from(s).shutdown(Shutdown::Write),
        }
    }
}
