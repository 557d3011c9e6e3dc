//! A connection to a server, over TCP or a Unix socket, and the bytes of replies that have come over it.
//!
//! Fails: the socket; a server that says nothing in time, or ends; what is no reply. Any of these ends the
//! connection: what comes after it would answer another request than the last.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for the next bytes of an answer, and for all of them together but the last.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Room for what one read brings, at the start.
const BUFFER_BYTES: usize = 1 << 16;

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }

    fn set_timeouts(&self, longest: Duration) -> io::Result<()> {
        let longest = Some(longest);
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(longest)?;
                stream.set_write_timeout(longest)
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(longest)?;
                stream.set_write_timeout(longest)
            }
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    buffer: Vec<u8>,
    /// What has come and was not taken yet lies from here to there.
    start: usize,
    end: usize,
    /// Something failed.
    broken: bool,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// The socket's.
    pub fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, ANSWER_MAX)?;
        stream.set_nodelay(true)?;
        Self::over(Stream::Tcp(stream))
    }

    /// Connects to `HOST:PORT`, a name or an address: to the first of its addresses that takes the connection.
    ///
    /// # Errors
    /// The text is of another form, the name is not known, or the socket's; they say which server it was.
    pub fn open_named(server: &str) -> io::Result<Self> {
        let failed = |e: io::Error| io::Error::new(e.kind(), format!("`{server}`: {e}"));
        let addresses = server.to_socket_addrs().map_err(|e| {
            let why = format!("{e}; write HOST:PORT, such as localhost:11211");
            failed(io::Error::new(e.kind(), why))
        })?;
        let mut last = io::Error::new(ErrorKind::NotFound, "a name without an address");
        for address in addresses {
            match Self::open(address) {
                Ok(connection) => return Ok(connection),
                Err(e) => last = e,
            }
        }
        Err(failed(last))
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// The socket's.
    pub fn open_unix(server: &Path) -> io::Result<Self> {
        Self::over(Stream::Unix(UnixStream::connect(server)?))
    }

    fn over(stream: Stream) -> io::Result<Self> {
        stream.set_timeouts(ANSWER_MAX)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, broken: false })
    }

    /// This end's address, and the server's.
    ///
    /// # Errors
    /// The socket's; `Unsupported` for a Unix socket.
    pub fn between(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        match &self.stream {
            Stream::Tcp(stream) => Ok((stream.local_addr()?, stream.peer_addr()?)),
            Stream::Unix(_) => {
                Err(io::Error::new(ErrorKind::Unsupported, "a Unix socket has no address"))
            }
        }
    }

    /// Sends.
    ///
    /// # Errors
    /// The socket's; `NotConnected` after any failure.
    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.whole()?;
        let sent = self.stream.write_all(request);
        self.broken = sent.is_err();
        sent
    }

    fn whole(&self) -> io::Result<()> {
        match self.broken {
            true => Err(io::Error::new(ErrorKind::NotConnected, "the connection failed before")),
            false => Ok(()),
        }
    }

    /// Waits until `take` finds what it looks for at the start of what has come: it gives that and
    /// what follows.
    ///
    /// # Errors
    /// The socket's, and `take`'s; `NotConnected` after any failure.
    pub fn receive<T, E: From<io::Error>>(
        &mut self,
        take: impl FnMut(&[u8]) -> Result<Option<(T, &[u8])>, E>,
    ) -> Result<T, E> {
        self.whole()?;
        let taken = self.taken(take);
        self.broken = taken.is_err();
        taken
    }

    fn taken<T, E: From<io::Error>>(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Result<Option<(T, &[u8])>, E>,
    ) -> Result<T, E> {
        let begun = Instant::now();
        loop {
            let come = self.buffer.get(self.start..self.end).unwrap_or_default();
            if let Some((taken, rest)) = take(come)? {
                self.start = self.end - rest.len();
                return Ok(taken);
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                self.buffer.resize(2 * self.end, 0);
            }
            if begun.elapsed() > ANSWER_MAX {
                return Err(io::Error::from(ErrorKind::TimedOut).into());
            }
            match self.stream.read(self.buffer.get_mut(self.end..).unwrap_or_default()) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(n) => self.end += n,
                // A signal, or the process was stopped for a while.
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Bytes that have come and were not taken.
    pub fn left(&self) -> usize {
        self.end - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::super::reply::{Reply, Value, parse};
    use super::*;
    use crate::codec::Protocol::Ascii;
    use std::net::TcpListener;

    #[test]
    fn a_server_has_a_name_or_an_address() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["localhost", "127.0.0.1"] {
            Connection::open_named(&format!("{host}:{port}")).unwrap();
        }
        drop(listener);
        for (server, why) in [
            (format!("localhost:{port}"), "refused"),
            ("localhost".to_owned(), "write HOST:PORT"),
            ("localhost:http".to_owned(), "write HOST:PORT"),
        ] {
            let error = Connection::open_named(&server).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{server}`: ")) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn replies_in_pieces_and_several_at_once() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let value = vec![b'v'; 3 * BUFFER_BYTES];
        let text = [b"VALUE k 0 196608\r\n", &value[..], b"\r\nEND\r\nSTORED\r\n"].concat();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            for piece in text.chunks(50_000) {
                stream.write_all(piece).unwrap();
            }
        });
        let mut connection = Connection::open(address).unwrap();
        let mut replies = Vec::new();
        for _ in 0..3 {
            let one = connection.receive(|come| {
                io::Result::Ok(parse(Ascii, come)?.map(|(reply, rest)| match reply {
                    Reply::Value(Value { data, .. }) => (format!("{}", data.len()), rest),
                    other => (format!("{other:?}"), rest),
                }))
            });
            replies.push(one.unwrap());
        }
        server.join().unwrap();
        assert_eq!(replies, ["196608", "End", "Stored"]);
        let end = connection.receive(|_| io::Result::Ok(None::<((), &[u8])>)).unwrap_err();
        assert_eq!((end.kind(), connection.left()), (ErrorKind::UnexpectedEof, 0));
        assert_eq!(connection.send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
    }

    #[test]
    fn an_answer_that_comes_too_late_answers_nothing() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        connection.stream.set_timeouts(Duration::from_millis(20)).unwrap();
        let mut line = || {
            connection.send(b"version\r\n")?;
            connection.receive(|come| Ok((!come.is_empty()).then_some(((), &[][..]))))
        };
        let late: io::Error = line().unwrap_err();
        assert!(matches!(late.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{late}");
        server.write_all(b"VERSION 1\r\n").unwrap();
        assert_eq!(line().unwrap_err().kind(), ErrorKind::NotConnected);
    }
}
