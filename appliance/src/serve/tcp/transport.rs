//! A client's connection and where it comes from: TCP, TLS or a Unix socket, the same to all else.

use super::pool::SMALL_BYTES;
use super::send_queue::queued_bytes;
use super::tls::{READ_MAX_BYTES, Tls};
use crate::startup::plan::ClientCerts;
use bytes::BufMut;
use dataplane::observe::conns::Address;
use nix::sys::socket::{MsgFlags, recv};
use socket2::SockRef;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Where connections come from, before a runtime has it.
#[derive(Debug)]
pub enum Source {
    /// TCP, and what is asked of clients over TLS, where that is spoken.
    Tcp(std::net::TcpListener, Option<ClientCerts>),
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
            Self::Tcp(l, tls) => Ok(Self::Tcp(l.try_clone()?, *tls)),
            Self::Unix(l) => l.try_clone().map(Self::Unix),
        }
    }

    /// The number of its file.
    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(l, _) => l.as_raw_fd(),
            Self::Unix(l) => l.as_raw_fd(),
        }
    }

    /// Its address, as `stats conns` has it.
    pub(super) fn address(&self) -> Address {
        match self {
            Self::Tcp(l, _) => {
                l.local_addr().map_or_else(|_| Address::Other("tcp:".into()), Address::Tcp)
            }
            Self::Unix(l) => {
                let address = l.local_addr().ok();
                let path = address.as_ref().and_then(|a| a.as_pathname());
                let text = path.map_or_else(String::new, |p| p.display().to_string());
                Address::Other(format!("unix:{text}").into())
            }
        }
    }

    /// A connection that has been made, and the client's address. To be called in a runtime.
    ///
    /// # Errors
    /// `WouldBlock`: there is none.
    pub(super) fn accept_now(&self) -> io::Result<(Stream, Address)> {
        match self {
            Self::Tcp(l, _) => {
                let (stream, from) = l.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Stream::Tcp(TcpStream::from_std(stream)?), Address::Tcp(from)))
            }
            Self::Unix(l) => {
                let (stream, _) = l.accept()?;
                stream.set_nonblocking(true)?;
                let stream = UnixStream::from_std(stream)?;
                Ok((Stream::Unix(stream), Address::Other("unix:".into())))
            }
        }
    }

    /// What is asked of clients over TLS, where that is spoken.
    pub(super) fn tls(&self) -> Option<ClientCerts> {
        match self {
            Self::Tcp(_, tls) => *tls,
            Self::Unix(_) => None,
        }
    }
}

/// The same in a runtime, which is woken for each connection.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn new(source: Source) -> io::Result<Self> {
        match source {
            Source::Tcp(l, _) => TcpListener::from_std(l).map(Self::Tcp),
            Source::Unix(l) => UnixListener::from_std(l).map(Self::Unix),
        }
    }

    /// A connection, and the client's address, as `stats conns` has it.
    pub(super) async fn accept(&self) -> io::Result<(Stream, Address)> {
        // The runtime takes it that something has come. Nothing is read before something has.
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        match self {
            Self::Tcp(l) => {
                let (stream, from) = l.accept().await?;
                let _ = stream.try_io(Interest::READABLE, nothing);
                Ok((Stream::Tcp(stream), Address::Tcp(from)))
            }
            Self::Unix(l) => {
                let (stream, _) = l.accept().await?;
                let _ = stream.try_io(Interest::READABLE, nothing);
                Ok((Stream::Unix(stream), Address::Other("unix:".into())))
            }
        }
    }
}

/// A client's connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Tls>),
}

impl Stream {
    /// The number of its file.
    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(s) => s.as_raw_fd(),
            Self::Unix(s) => s.as_raw_fd(),
            Self::Tls(s) => s.socket().as_raw_fd(),
        }
    }

    /// Our address and the client's, over TCP in the clear.
    pub(super) fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        match self {
            Self::Tcp(s) => Some((s.local_addr().ok()?.ip(), s.peer_addr().ok()?.ip())),
            Self::Tls(_) | Self::Unix(_) => None,
        }
    }

    /// Waits until something has come, and takes what there is, as far as there is space behind
    /// `into`. One system call: a read that leaves space has taken everything. 0 at the end.
    /// Nothing is lost when it is dropped.
    pub(super) async fn read_buf(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read_buf(into).await,
            Self::Unix(s) => s.read_buf(into).await,
            Self::Tls(s) => poll_fn(|cx| s.poll_read(into, cx)).await,
        }
    }

    /// Whether the kernel has more that was not read than was `seen`, [`SMALL_BYTES`] at most.
    pub(super) fn has_unread(&self, seen: usize) -> bool {
        let mut bytes = [MaybeUninit::uninit(); SMALL_BYTES + 1];
        let bytes = bytes.get_mut(..=seen).unwrap_or_default();
        let socket = match self {
            Self::Tcp(s) => SockRef::from(s),
            Self::Unix(s) => SockRef::from(s),
            Self::Tls(s) if s.has_unread() => return true,
            Self::Tls(s) => SockRef::from(s.socket()),
        };
        socket.peek(bytes).is_ok_and(|come| come > seen)
    }

    /// Whether a record has come in part, which no reader can see yet.
    pub(super) fn holds_part(&self) -> bool {
        matches!(self, Self::Tls(s) if s.holds_part())
    }

    /// Throws away what was peeked at and is still in the socket: closing with bytes unread would
    /// reset the connection, and take from the client replies that have not arrived yet.
    pub(super) fn discard(&self) {
        if self.can_peek() {
            let _ = recv(self.fd(), &mut [0; SMALL_BYTES], MsgFlags::empty());
        }
    }

    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.try_write(bytes),
            Self::Unix(s) => s.try_write(bytes),
            Self::Tls(s) => s.try_write(bytes),
        }
    }

    /// Sends pieces, one behind the other, as far as they are taken at once. If they are not the `last`, more follows
    /// soon, and the end may wait for it. Not over TLS: what goes there is made first.
    pub(super) fn try_send(&self, pieces: [&[u8]; 3], last: bool) -> io::Result<usize> {
        let pieces = pieces.map(IoSlice::new);
        let flags = if last { 0 } else { nix::libc::MSG_MORE };
        let send = |socket: SockRef<'_>| socket.send_vectored_with_flags(&pieces, flags);
        match self {
            Self::Tcp(s) => s.try_io(Interest::WRITABLE, || send(SockRef::from(s))),
            Self::Unix(s) => s.try_io(Interest::WRITABLE, || send(SockRef::from(s))),
            Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether there may be something to read, or the end; wakes the task when there is.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(s) => s.poll_read_ready(cx),
            Self::Unix(s) => s.poll_read_ready(cx),
            Self::Tls(s) if s.has_unread() || s.is_ended() => Poll::Ready(Ok(())),
            Self::Tls(s) => s.socket().poll_read_ready(cx),
        }
    }

    /// Waits until there is something to read, or the end.
    pub(super) async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }

    /// Waits until some can be sent.
    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.writable().await,
            Self::Unix(s) => s.writable().await,
            Self::Tls(s) => s.socket().writable().await,
        }
    }

    /// Takes what there is, as far as there is space behind `into`, and so much at most; over TLS whole
    /// records.
    pub(super) fn try_read_buf(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.try_read_buf(&mut into.limit(most)),
            Self::Unix(s) => s.try_read_buf(&mut into.limit(most)),
            Self::Tls(s) => match s.poll_read(into, &mut Context::from_waker(Waker::noop())) {
                Poll::Ready(come) => come,
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }

    /// The space that a read must find, which would make more of it otherwise: twice as much as there was.
    pub(super) fn needs_room(&self) -> usize {
        match self {
            Self::Tcp(_) | Self::Unix(_) => 0,
            Self::Tls(_) => READ_MAX_BYTES,
        }
    }

    /// Whether what has come can be looked at and left where it is: not where it must be decrypted.
    pub(super) fn can_peek(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    /// Waits until there is more than was `seen`, or the end, and copies what there is. It stays
    /// in the socket.
    pub(super) fn poll_peek(
        &self,
        into: &mut [u8],
        seen: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_readable(cx))?;
            let ended = self.is_ended();
            let peek = || match recv(self.fd(), into, MsgFlags::MSG_PEEK)? {
                come if come == 0 || come > seen || ended => Ok(come),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            };
            let come = match self {
                Self::Tcp(s) => s.try_io(Interest::READABLE, peek),
                Self::Unix(s) => s.try_io(Interest::READABLE, peek),
                Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
            };
            match come {
                // Readiness is cleared: what comes next wakes the task.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                come => return Poll::Ready(come),
            }
        }
    }

    /// Whether nothing comes behind what has come.
    fn is_ended(&self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        let ready = match self {
            Self::Tcp(s) => pin!(s.ready(Interest::READABLE)).poll(cx),
            Self::Unix(s) => pin!(s.ready(Interest::READABLE)).poll(cx),
            Self::Tls(_) => return false,
        };
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Reads bytes that were peeked at.
    pub(super) fn read_exact(&self, into: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while let Some(rest) = into.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match recv(self.fd(), rest, MsgFlags::empty())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => at += read,
            }
        }
        Ok(())
    }

    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.write_all(bytes).await,
            Self::Unix(s) => s.write_all(bytes).await,
            Self::Tls(s) => {
                let mut at = 0;
                while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
                    at += s.write(rest).await?;
                }
                Ok(())
            }
        }
    }

    /// Bytes that were written and that the client has not taken, as far as the kernel knows.
    pub(super) fn queued_bytes(&self) -> usize {
        queued_bytes(match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Unix(s) => s.as_fd(),
            Self::Tls(s) => s.socket().as_fd(),
        })
    }

    /// Bytes held of what was written and has not left.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Tcp(_) | Self::Unix(_) => 0,
            Self::Tls(s) => s.held_bytes(),
        }
    }

    /// Nothing more will be sent.
    pub(super) fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => SockRef::from(&*s).shutdown(Shutdown::Write),
            Self::Unix(s) => SockRef::from(&*s).shutdown(Shutdown::Write),
            Self::Tls(s) => s.shutdown(),
        }
    }
}
