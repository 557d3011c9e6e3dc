//! Many connections to one server, driven by one thread.
//!
//! In: a script, and how many requests each connection sends at a time. Out: how many were
//! answered. Fails: a connection, a reply that is not to the byte what it must be, or none in time.

use super::script::Script;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest wait for any reply.
const ANSWER_MAX_MS: u16 = 20_000;
/// Most that is read at once.
const READ_BYTES: usize = 64 << 10;
/// Most connections that are heard of at once.
const EVENTS_MAX: usize = 256;

/// Requests that items are loaded with at a time.
const LOAD_DEPTH: usize = 64;

/// The connections.
#[derive(Debug)]
pub struct Client {
    epoll: Epoll,
    connections: Vec<Connection>,
    random: Xoshiro256PlusPlus,
    read: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    sent: usize,
    /// Of all requests that were sent.
    reply: Vec<u8>,
    /// So much of it has come.
    come: usize,
}

impl Client {
    /// Opens `connections`, at least one.
    ///
    /// # Errors
    /// The sockets'.
    pub fn connect(server: SocketAddr, connections: usize, seed: u64) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let connections = (0..connections as u64)
            .map(|n| {
                let stream = TcpStream::connect(server)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let edges = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
                epoll.add(&stream, EpollEvent::new(edges, n))?;
                Ok(Connection { stream, request: vec![], sent: 0, reply: vec![], come: 0 })
            })
            .collect::<io::Result<_>>()?;
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ok(Self { epoll, connections, random, read: vec![0; READ_BYTES] })
    }

    /// Asks for the server's version on each connection.
    ///
    /// # Errors
    /// Not all are served: the server refused some, closed them, or leaves them waiting.
    pub fn are_served(&mut self) -> io::Result<()> {
        let end = Instant::now() + Duration::from_millis(ANSWER_MAX_MS.into());
        for c in &mut self.connections {
            // One that is closed does not answer.
            let _ = c.stream.write_all(b"version\r\n");
        }
        let all = self.connections.len();
        let served =
            self.connections.iter_mut().filter_map(|c| c.is_served(end).ok()?.then_some(()));
        match served.count() {
            served if served == all => Ok(()),
            served => Err(io::Error::other(format!(
                "only {served} of {all} idle connections are served: has the server a limit, or a time for them?"
            ))),
        }
    }

    /// Sends every request of the script once, over one connection.
    ///
    /// # Errors
    /// See the module.
    pub fn load(&mut self, script: &Script) -> io::Result<()> {
        let Some(first) = self.connections.first_mut() else { return Ok(()) };
        for start in (0..script.len()).step_by(LOAD_DEPTH) {
            let end = script.len().min(start + LOAD_DEPTH as u64);
            first.begin(script, start..end)?;
            while !first.is_done() {
                wait(&self.epoll, &mut [EpollEvent::empty()])?;
                first.go_on(&mut self.read)?;
            }
        }
        Ok(())
    }

    /// Sends requests of the script, drawn at random, `depth` at a time on each connection, for
    /// this long. The number that was answered.
    ///
    /// # Errors
    /// See the module.
    pub fn run(&mut self, script: &Script, depth: u64, time: Duration) -> io::Result<u64> {
        let end = Instant::now() + time;
        let Self { epoll, connections, random, read } = self;
        let keys = script.len().max(1);
        let mut draw = |_: u64| random.random_range(0..keys);
        for c in connections.iter_mut() {
            c.begin(script, (0..depth).map(&mut draw))?;
        }
        let (mut answered, mut waiting) = (0, connections.len());
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        while waiting > 0 {
            let ready = wait(epoll, &mut events)?;
            let over = Instant::now() >= end;
            for event in events.iter().take(ready) {
                let n = usize::try_from(event.data()).unwrap_or(usize::MAX);
                let Some(c) = connections.get_mut(n).filter(|c| !c.is_done()) else { continue };
                c.go_on(read)?;
                if c.is_done() {
                    answered += depth;
                    if over {
                        waiting -= 1;
                    } else {
                        c.begin(script, (0..depth).map(&mut draw))?;
                    }
                }
            }
        }
        Ok(answered)
    }
}

/// Waits until something can be read or written; shows how many events there are.
fn wait(epoll: &Epoll, events: &mut [EpollEvent]) -> io::Result<usize> {
    match epoll.wait(events, EpollTimeout::from(ANSWER_MAX_MS))? {
        0 => Err(ErrorKind::TimedOut.into()),
        n => Ok(n),
    }
}

impl Connection {
    /// Whether a version comes until then.
    fn is_served(&mut self, end: Instant) -> io::Result<bool> {
        self.stream.set_nonblocking(false)?;
        let mut said = Vec::new();
        while !said.ends_with(b"\n") {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            let mut some = [0; 64];
            match self.stream.read(&mut some)? {
                0 => return Ok(false),
                n => said.extend_from_slice(some.get(..n).unwrap_or_default()),
            }
        }
        self.stream.set_nonblocking(true)?;
        Ok(said.starts_with(b"VERSION"))
    }

    /// Sends the script's requests with these numbers, as far as they go out at once.
    fn begin(&mut self, script: &Script, numbers: impl Iterator<Item = u64>) -> io::Result<()> {
        self.request.clear();
        self.reply.clear();
        (self.sent, self.come) = (0, 0);
        for exchange in numbers.filter_map(|n| script.exchange(n)) {
            self.request.extend_from_slice(&exchange.request);
            self.reply.extend_from_slice(&exchange.reply);
        }
        self.send()
    }

    /// Every reply has come.
    fn is_done(&self) -> bool {
        self.come == self.reply.len()
    }

    fn send(&mut self) -> io::Result<()> {
        while let Some(rest) = self.request.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends what is left to send, and compares what has come.
    fn go_on(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.send()?;
        while !self.is_done() {
            let n = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            let came = buffer.get(..n).unwrap_or_default();
            if self.reply.get(self.come..self.come + n) != Some(came) {
                let text = String::from_utf8_lossy(came).into_owned();
                return Err(io::Error::new(ErrorKind::InvalidData, format!("wrong reply: {text}")));
            }
            self.come += n;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Verb;
    use super::*;
    use std::net::TcpListener;

    /// Runs against a server that answers each request with `reply`, but the fifth with `fifth`.
    fn run(reply: &'static [u8], fifth: &'static [u8]) -> io::Result<u64> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let script = Script::new(Verb::Set, 1, 24, 9);
        let mut request = script.exchange(0).unwrap().request.clone();
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            for n in 1.. {
                let answer = if n == 5 { fifth } else { reply };
                let done = stream.read_exact(&mut request).and_then(|()| stream.write_all(answer));
                if done.is_err() || answer.is_empty() {
                    break;
                }
            }
        });
        let mut client = Client::connect(address, 1, 1)?;
        client.load(&script)?;
        client.run(&script, 5, Duration::from_millis(50))
    }

    #[test]
    fn connections_that_are_closed_or_refused_are_counted() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut client = Client::connect(listener.local_addr().unwrap(), 4, 1).unwrap();
        let mut far: Vec<_> = (0..4).map(|_| listener.accept().unwrap().0).collect();
        let answer = |far: &mut [TcpStream]| {
            for stream in far {
                stream.write_all(b"VERSION 1\r\n").unwrap();
            }
        };
        answer(&mut far);
        client.are_served().unwrap();
        far.pop();
        far.pop().unwrap().write_all(b"ERROR Too many open connections\r\n").unwrap();
        answer(&mut far);
        let error = client.are_served().unwrap_err().to_string();
        assert!(error.contains("2 of 4 idle connections"), "{error}");
    }

    #[test]
    fn replies_are_counted_and_compared() {
        let answered = run(b"STORED\r\n", b"STORED\r\n").unwrap();
        assert!(answered >= 5 && answered.is_multiple_of(5), "{answered}");
        let kind = |fifth| run(b"STORED\r\n", fifth).unwrap_err().kind();
        assert_eq!(kind(b"STORED\r\r"), ErrorKind::InvalidData);
        let ended = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(ended.contains(&kind(b"")));
    }
}
