//! The protocol over TCP and Unix sockets, for what UDP does not carry: mutations, large values,
//! `stats`.
//!
//! In: bytes of kernel connections. Out: replies, in order. Each thread runs a runtime of its own
//! over all listeners, with one store session and one block of counters; connections share
//! nothing else. A connection reads only when everything it owes has been sent, and what it holds
//! beyond a few kilobytes is charged to one account (`pool`).

mod connection;
mod desk;
mod drain;
mod input;
mod large;
mod pool;
mod transport;

pub use drain::Drained;
pub(crate) use pool::{RESERVE_BYTES, THREAD_BYTES};
pub use transport::Source;

use crate::affinity;
use crate::allocator;
use crate::credentials::Credentials;
use crate::health::Sparing;
use crate::plan::ClientsPlan;
use connection::PARTING_MAX;
use dataplane::protocol::Server;
use dataplane::protocol::admission::Users;
use dataplane::store::Session;
use desk::{Desk, End};
use drain::{Drain, Ended};
use input::Spare;
use pool::Pool;
use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};
use transport::{Listener, Stream};

/// Pause after a failed accept: out of files or memory, which more tries do not mend.
const ACCEPT_PAUSE_US: u64 = 20_000;
const ACCEPT_PAUSE: Duration = Duration::from_micros(ACCEPT_PAUSE_US);
/// What a connection over the limit is told, in memcached's words.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// No runtime, thread or listener.
    #[error(
        "cannot start a TCP thread: {0}; lower -t or raise the limits on open files and threads"
    )]
    Start(#[from] io::Error),
}

/// What the service is made of.
#[derive(Debug)]
pub struct TcpConfig {
    /// Non-blocking listeners; every thread accepts from all of them.
    pub listeners: Vec<Source>,
    /// One store session per thread.
    pub sessions: Vec<Session>,
    /// What `stats` and `version` tell.
    pub server: Arc<Server>,
    /// Most connections at a time, over all threads.
    pub conn_limit: usize,
    /// Most memory for what connections have sent and not been answered, and been answered and not
    /// taken, in bytes.
    pub conn_memory_bytes: usize,
    /// Largest item, in bytes.
    pub item_max_bytes: usize,
    /// How connections are treated.
    pub clients: ClientsPlan,
    /// Whom clients must be, where they must authenticate.
    pub credentials: Option<Arc<Credentials>>,
    /// CPUs of the threads.
    pub cpus: Vec<usize>,
}

/// The running service.
#[derive(Debug)]
pub struct TcpService {
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<Option<Drain>>,
    drain_max: Duration,
    ended: Arc<Ended>,
}

impl TcpService {
    /// Starts one thread per session.
    ///
    /// # Errors
    /// [`TcpError`]; threads already started end by themselves.
    pub fn start(config: TcpConfig) -> Result<Self, TcpError> {
        let TcpConfig { listeners, sessions, server, conn_limit, item_max_bytes, cpus, .. } =
            config;
        let figures = Arc::clone(&server.conn_memory);
        let memory = config.conn_memory_bytes;
        let pool = Arc::new(Pool::new(figures, memory, conn_limit, sessions.len()));
        let ClientsPlan { requests_per_turn, refuse_over_limit, .. } = config.clients;
        let idle_max = match config.clients.idle_timeout_seconds {
            0 => None,
            n => Some(Duration::from_secs(n.into())),
        };
        let drain_max = Duration::from_secs(config.clients.drain_seconds.into());
        let ended = Arc::new(Ended::default());
        let (stop, stopped) = watch::channel(None);
        let seats = Arc::new(Semaphore::new(conn_limit));
        let mut threads = Vec::new();
        for (n, session) in sessions.into_iter().enumerate() {
            let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
            let listeners =
                listeners.iter().map(Source::try_clone).collect::<io::Result<Vec<_>>>()?;
            let (server, seats, cpus) = (Arc::clone(&server), Arc::clone(&seats), cpus.clone());
            let stopped = stopped.clone();
            let users = config.credentials.clone().map(|c| -> Arc<dyn Users> { c });
            let (pool, ended) = (Arc::clone(&pool), Arc::clone(&ended));
            threads.push(std::thread::Builder::new().name(format!("tcp-{n}")).spawn(
                move || {
                    affinity::keep_on(&cpus);
                    allocator::prepare_thread();
                    let desk = Desk {
                        session: RefCell::new(session),
                        ops: server.ops(),
                        server,
                        item_max_bytes,
                        requests_per_turn,
                        users,
                        idle_max,
                        stopped,
                        pool,
                        large_turn: Semaphore::new(1),
                        spare_input: Spare::default(),
                        spare_output: Spare::default(),
                    };
                    let room = Room { desk, seats, refuse_over_limit, drain_max, ended };
                    run(&runtime, listeners, Rc::new(room));
                },
            )?);
        }
        Ok(Self { threads, stop, drain_max, ended })
    }

    /// Accepts nothing more, answers what clients have sent, for a bounded time, and closes their
    /// connections, calling `meanwhile` again and again. What became of them, or nothing when a
    /// thread did not end well.
    pub fn stop(self, mut meanwhile: impl FnMut()) -> Option<Drained> {
        // Fails only when no thread is left to tell.
        let _ = self.stop.send(Some(Drain::new(self.drain_max)));
        while !self.threads.iter().all(JoinHandle::is_finished) {
            meanwhile();
        }
        let ended = self.threads.into_iter().map(JoinHandle::join);
        // Each is waited for.
        let broken = ended.filter(Result::is_err).count();
        (broken == 0).then(|| self.ended.totals())
    }

    /// Whether a thread has ended before it was told to.
    pub fn is_broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
}

/// What the connections of one thread share.
struct Room {
    desk: Desk,
    /// One for each connection that `-c` allows, over all threads.
    seats: Arc<Semaphore>,
    /// A connection that finds no seat is refused; otherwise it waits for one.
    refuse_over_limit: bool,
    /// How long draining may take.
    drain_max: Duration,
    ended: Arc<Ended>,
}

fn run(runtime: &Runtime, listeners: Vec<Source>, room: Rc<Room>) {
    let local = LocalSet::new();
    local.block_on(runtime, async {
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn_local(accept_on(listener, Rc::clone(&room)));
        }
        while accepting.join_next().await.is_some() {}
    });
}

/// Accepts until told to stop, then waits for its connections.
async fn accept_on(source: Source, room: Rc<Room>) {
    let listener = match Listener::new(source) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot watch a listener"),
    };
    let address: Arc<str> = listener.address().into();
    let entered = room.desk.server.conns.enter(listener.fd(), listener.address(), None);
    let mut stop = pin!(room.desk.stop_accepting());
    let mut connections = JoinSet::new();
    let mut lines = Sparing::default();
    while !room.desk.is_over() {
        // What a connection is made of cannot fail: it is not made when memory has run out.
        while allocator::is_short() && room.desk.drain().is_none() {
            pause(&room.desk, &mut lines, "memory has run out").await;
        }
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    if let Some(seat) = seat(&stream, &room).await {
                        connections.spawn_local(serve(stream, seat, Arc::clone(&address)));
                    }
                }
                Err(error) => pause(&room.desk, &mut lines, error).await,
            },
            () = &mut stop => break,
        }
    }
    drop((listener, entered));
    // Each has bounds of its own.
    let most = room.drain_max + PARTING_MAX;
    let _ = timeout(most, async { while connections.join_next().await.is_some() {} }).await;
    room.ended.count_cut(connections.len());
}

/// Waits before the next try to accept.
async fn pause(desk: &Desk, lines: &mut Sparing, why: impl Display) {
    if let Some(more) = lines.allows(Instant::now()) {
        tracing::warn!(more, "cannot accept a connection: {why}");
    }
    desk.ops.accept_failures.inc();
    sleep(ACCEPT_PAUSE).await;
    desk.ops.accept_paused_us.add(ACCEPT_PAUSE_US);
}

/// Serves a connection to its end.
#[expect(clippy::manual_async_fn, reason = "arguments of an async fn are in its future twice")]
fn serve(mut stream: Stream, seat: Seat, listener: Arc<str>) -> impl Future<Output = ()> {
    async move {
        let desk = &seat.room.desk;
        let (peer, fd) = (stream.peer(), stream.fd());
        let conn = desk.server.conns.enter(fd, stream.address(), Some(Arc::clone(&listener)));
        desk.server.watchers.connected(peer, fd);
        let end = connection::serve(&mut stream, desk, &conn).await;
        match end {
            End::Service { .. } => seat.room.ended.count_drained(),
            End::Cut => seat.room.ended.count_cut(1),
            _ => {}
        }
        desk.server.watchers.disconnected(peer, end.reason(), fd);
        tracing::debug!(?end, "a connection ended");
    }
}

/// A seat for a fresh connection. Where all are taken it is refused one, or waits; nothing more is
/// accepted here meanwhile. `None` when there is none to be had.
async fn seat(stream: &Stream, room: &Rc<Room>) -> Option<Seat> {
    let seats = Arc::clone(&room.seats);
    let permit = if room.refuse_over_limit {
        seats.try_acquire_owned().ok()
    } else {
        tokio::select! {
            biased;
            permit = seats.acquire_owned() => permit.ok(),
            () = room.desk.over() => return None,
        }
    };
    let Some(permit) = permit else {
        room.desk.ops.rejected_connections.inc();
        // A fresh connection's send buffer has room for a line.
        let _ = stream.try_write(TOO_MANY);
        return None;
    };
    room.desk.ops.total_connections.inc();
    Some(Seat { room: Rc::clone(room), _permit: permit })
}

/// One of the places that `-c` allows, given back on drop.
struct Seat {
    room: Rc<Room>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.desk.ops.closed_connections.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataplane::store::{Store, StoreConfig};
    use driver_shim::Pages;

    /// What a connection takes of user memory while it waits, beside what tokio has for a task and
    /// for a socket.
    const CONNECTION_MAX_BYTES: usize = 960;

    #[test]
    fn a_connection_that_waits_is_small() {
        let config =
            StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let server = Arc::new(Server::new(Arc::clone(&store), String::new()));
        let (_stop, stopped) = watch::channel(None);
        let desk = Desk {
            session: RefCell::new(store.session().unwrap()),
            ops: server.ops(),
            item_max_bytes: 1 << 20,
            requests_per_turn: 20,
            users: None,
            idle_max: None,
            stopped,
            pool: Arc::new(Pool::new(Arc::default(), 1 << 24, 1, 1)),
            large_turn: Semaphore::new(1),
            spare_input: Spare::default(),
            spare_output: Spare::default(),
            server,
        };
        let seats = Arc::new(Semaphore::new(1));
        let (drain_max, ended) = (Duration::ZERO, Arc::default());
        let room = Rc::new(Room { desk, seats, refuse_over_limit: true, drain_max, ended });
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let bytes = runtime.block_on(async {
            let (ours, _theirs) = tokio::net::UnixStream::pair().unwrap();
            let stream = Stream::Unix(ours);
            let seat = seat(&stream, &room).await.unwrap();
            size_of_val(&serve(stream, seat, "".into()))
        });
        assert!(bytes <= CONNECTION_MAX_BYTES, "{bytes} bytes");
    }
}
