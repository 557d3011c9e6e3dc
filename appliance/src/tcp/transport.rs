//! A client's connection and where it comes from: TCP or a Unix socket, the same to all else.

use socket2::SockRef;
use std::io;
use std::net::Shutdown;
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

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(l) => Ok(Stream::Tcp(l.accept().await?.0)),
            Self::Unix(l) => Ok(Stream::Unix(l.accept().await?.0)),
        }
    }
}

/// A client's connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Sends each write at once.
    pub(super) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        }
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.readable().await,
            Self::Unix(s) => s.readable().await,
        }
    }

    pub(super) fn try_read_buf(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.try_read_buf(into),
            Self::Unix(s) => s.try_read_buf(into),
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.writable().await,
            Self::Unix(s) => s.writable().await,
        }
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.try_write(bytes),
            Self::Unix(s) => s.try_write(bytes),
        }
    }

    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.writable().await?;
            match self.try_write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Nothing more will be sent.
    pub(super) fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => SockRef::from(s).shutdown(Shutdown::Write),
            Self::Unix(s) => SockRef::from(s).shutdown(Shutdown::Write),
        }
    }
}
