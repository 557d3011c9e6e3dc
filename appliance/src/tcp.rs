//! The protocol over TCP, for what UDP does not carry: mutations, large values, `stats`.
//!
//! In: bytes of kernel connections. Out: replies, in order. Each thread runs a runtime of its own
//! over all listeners, with one store session and one block of counters; connections share
//! nothing else. A connection reads only when everything it owes has been sent, so that a client
//! that does not read holds at most one input and one output buffer.

mod connection;

use crate::affinity;
use connection::Desk;
use dataplane::protocol::Server;
use dataplane::store::Session;
use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

/// How long connections may take to send what they owe when the service stops.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Pause after a failed accept: out of files or memory, which more tries do not mend.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
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
    pub listeners: Vec<TcpListener>,
    /// One store session per thread.
    pub sessions: Vec<Session>,
    /// What `stats` and `version` tell.
    pub server: Arc<Server>,
    /// Most connections at a time, over all threads.
    pub conn_limit: usize,
    /// Largest item, in bytes.
    pub item_max_bytes: usize,
    /// CPUs of the threads.
    pub cpus: Vec<usize>,
}

/// The running service.
#[derive(Debug)]
pub struct TcpService {
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl TcpService {
    /// Starts one thread per session.
    ///
    /// # Errors
    /// [`TcpError`]; threads already started end by themselves.
    pub fn start(config: TcpConfig) -> Result<Self, TcpError> {
        let TcpConfig { listeners, sessions, server, conn_limit, item_max_bytes, cpus } = config;
        let (stop, stopped) = watch::channel(false);
        let open = Arc::new(AtomicUsize::new(0));
        let mut threads = Vec::new();
        for (n, session) in sessions.into_iter().enumerate() {
            let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
            let listeners =
                listeners.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>()?;
            let (server, open, cpus) = (Arc::clone(&server), Arc::clone(&open), cpus.clone());
            let stopped = stopped.clone();
            threads.push(std::thread::Builder::new().name(format!("tcp-{n}")).spawn(
                move || {
                    affinity::keep_on(&cpus);
                    let desk = Desk {
                        session: RefCell::new(session),
                        ops: server.ops(),
                        server,
                        item_max_bytes,
                        stopped,
                    };
                    run(&runtime, listeners, Rc::new(Room { desk, open, conn_limit }));
                },
            )?);
        }
        Ok(Self { threads, stop })
    }

    /// Accepts nothing more, lets connections finish what they are sending, for a bounded time,
    /// and closes them. True when every thread ended well.
    pub fn stop(self) -> bool {
        // Fails only when no thread is left to tell.
        let _ = self.stop.send(true);
        self.threads.into_iter().map(JoinHandle::join).filter(Result::is_err).count() == 0
    }

    /// Whether a thread has ended before it was told to.
    pub fn is_broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
}

/// What the connections of one thread share.
struct Room {
    desk: Desk,
    /// Open connections of all threads.
    open: Arc<AtomicUsize>,
    conn_limit: usize,
}

fn run(runtime: &Runtime, listeners: Vec<TcpListener>, room: Rc<Room>) {
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
async fn accept_on(listener: TcpListener, room: Rc<Room>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot watch a TCP listener"),
    };
    let mut stopped = room.desk.stopped.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|&stop| stop) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => admit(stream, &room, &mut connections),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a TCP connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let _ = timeout(DRAIN_MAX, async { while connections.join_next().await.is_some() {} }).await;
}

fn admit(stream: tokio::net::TcpStream, room: &Rc<Room>, connections: &mut JoinSet<()>) {
    let Some(seat) = Seat::take(room) else {
        room.desk.ops.rejected_connections.inc();
        // A fresh connection's send buffer has room for a line.
        let _ = stream.try_write(TOO_MANY);
        return;
    };
    connections.spawn_local(async move {
        let end = connection::serve(stream, &seat.0.desk).await;
        tracing::debug!(?end, "a TCP connection ended");
    });
}

/// One of the places that `-c` allows, given back on drop.
struct Seat(Rc<Room>);

impl Seat {
    fn take(room: &Rc<Room>) -> Option<Self> {
        let free = |n: usize| (n < room.conn_limit).then_some(n + 1);
        room.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).ok()?;
        room.desk.ops.total_connections.inc();
        Some(Self(Rc::clone(room)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.desk.ops.closed_connections.inc();
    }
}
