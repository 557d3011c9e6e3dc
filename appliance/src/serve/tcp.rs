//! The protocol over TCP and Unix sockets, for what UDP does not carry: mutations, large values,
//! `stats`.
//!
//! In: bytes of kernel connections. Out: replies, in order. Each thread runs a runtime of its own
//! over all listeners, with one store session and one block of counters; connections share
//! nothing else. A connection reads only when everything it owes has been sent, and what it holds
//! beyond a few kilobytes is charged to one account (`pool`).

mod connection;
mod shared;
mod drain;
mod handshake;
mod input;
mod large;
mod pool;
mod permit;
mod served;
mod tls;
mod transport;
mod waiting;

pub use drain::Drained;
pub(crate) use pool::{RESERVE_BYTES, THREAD_BYTES};
pub(crate) use tls::TLS_BYTES;
pub use transport::Source;

use crate::host::affinity;
use crate::observe::health::Sparing;
use crate::process::allocator;
use crate::serve::credentials::Credentials;
use crate::serve::tls::Certificates;
use crate::startup::plan::ClientsPlan;
use connection::PARTING_MAX;
use dataplane::commands::admission::Users;
use dataplane::observe::Server;
use drain::{Drain, Ended};
use handshake::Handshakes;
use input::Spare;
use permit::{ConnPermit, ThreadConns};
use pool::Pool;
use served::Served;
use shared::ThreadShared;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::Session;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinSet, LocalSet, spawn_local, yield_now};
use tokio::time::{sleep, timeout};
use transport::{Listener, Stream};
use waiting::Waiting;

/// Pause after a failed accept: out of files or memory, which more tries do not mend.
const ACCEPT_PAUSE_US: u64 = 20_000;
const ACCEPT_PAUSE: Duration = Duration::from_micros(ACCEPT_PAUSE_US);
/// What a connection over the limit is sent, in memcached's words.
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
    /// What `stats` and `version` show.
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
    /// What TLS is spoken with, where it is.
    pub certificates: Option<Arc<Certificates>>,
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
        let handshakes = config.certificates.map(|c| Arc::new(Handshakes::new(c, conn_limit)));
        // What records and handshakes in part may take is set aside.
        let of_tls = if handshakes.is_some() { conn_limit.saturating_mul(TLS_BYTES) } else { 0 };
        let memory = config.conn_memory_bytes.saturating_sub(of_tls);
        let pool = Arc::new(Pool::new(figures, memory, conn_limit, sessions.len()));
        let ClientsPlan { requests_per_turn, refuse_over_limit, .. } = config.clients;
        let idle_max = match config.clients.idle_timeout_seconds {
            0 => None,
            n => Some(Duration::from_secs(n.into())),
        };
        let drain_max = Duration::from_secs(config.clients.drain_seconds.into());
        let ended = Arc::new(Ended::default());
        let (stop, stopped) = watch::channel(None);
        let permits = Arc::new(Semaphore::new(conn_limit));
        let mut threads = Vec::new();
        for (n, session) in sessions.into_iter().enumerate() {
            let helper_cpus = cpus.clone();
            let runtime = Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .thread_name(format!("tls-{n}"))
                .max_blocking_threads(1)
                .on_thread_start(move || {
                    affinity::keep_on(&helper_cpus);
                    allocator::prepare_thread();
                })
                .build()?;
            let listeners =
                listeners.iter().map(Source::try_clone).collect::<io::Result<Vec<_>>>()?;
            let (server, permits, cpus) = (Arc::clone(&server), Arc::clone(&permits), cpus.clone());
            let stopped = stopped.clone();
            let users = config.credentials.clone().map(|c| -> Arc<dyn Users> { c });
            let (pool, ended) = (Arc::clone(&pool), Arc::clone(&ended));
            let handshakes = handshakes.clone();
            threads.push(std::thread::Builder::new().name(format!("tcp-{n}")).spawn(
                move || {
                    affinity::keep_on(&cpus);
                    allocator::prepare_thread();
                    let shared = ThreadShared {
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
                        waiting: Waiting::default(),
                        spare_input: Spare::of_input(),
                        spare_output: Spare::of_output(),
                        kept: Cell::new(0),
                    };
                    let thread = ThreadConns {
                        shared,
                        permits,
                        refuse_over_limit,
                        drain_max,
                        connections: Cell::new(0),
                        is_empty: Notify::new(),
                        ended,
                        handshakes,
                    };
                    run(&runtime, listeners, Rc::new(thread));
                },
            )?);
        }
        Ok(Self { threads, stop, drain_max, ended })
    }

    /// Accepts nothing more, answers what clients have sent, for a bounded time, and closes their
    /// connections, calling `meanwhile` again and again. What became of them, or nothing when a
    /// thread did not end well.
    pub fn stop(self, mut meanwhile: impl FnMut()) -> Option<Drained> {
        // Fails only when no thread is left to show.
        let _ = self.stop.send(Some(Drain::new(self.drain_max)));
        while !self.threads.iter().all(JoinHandle::is_finished) {
            meanwhile();
        }
        let ended = self.threads.into_iter().map(JoinHandle::join);
        // Each is waited for.
        let broken = ended.filter(Result::is_err).count();
        (broken == 0).then(|| self.ended.totals())
    }

    /// Whether a thread has ended before it was ordered to.
    pub fn is_broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
}

fn run(runtime: &Runtime, listeners: Vec<Source>, thread: Rc<ThreadConns>) {
    let local = LocalSet::new();
    local.block_on(runtime, async {
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn_local(accept_on(listener, Rc::clone(&thread)));
        }
        let waiting = Rc::clone(&thread);
        let woken = spawn_local(async move {
            waiting.shared.stopping().await;
            waiting.shared.waiting.wake_all();
        });
        while accepting.join_next().await.is_some() {}
        woken.abort();
        // Each has bounds of its own.
        let most = thread.drain_max + PARTING_MAX;
        let all = async {
            while thread.connections.get() > 0 {
                thread.is_empty.notified().await;
            }
        };
        let _ = timeout(most, all).await;
        thread.ended.count_cut(thread.connections.get());
    });
}

/// Accepts until the drain begins.
async fn accept_on(source: Source, thread: Rc<ThreadConns>) {
    let listener = match Listener::new(source) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot watch a listener"),
    };
    let _entered = thread.shared.server.conns.enter(listener.fd(), listener.address(), None);
    accept_until(thread.shared.stop_accepting(), &listener, &thread).await;
}

/// Accepts until it has stopped, however many clients would go on to connect.
async fn accept_until(
    stop: impl Future<Output = ()>,
    listener: &Listener,
    thread: &Rc<ThreadConns>,
) {
    let address: Arc<str> = listener.address().to_string().into();
    let tls = listener.tls();
    let mut stop = pin!(stop);
    let mut lines = Sparing::default();
    while !thread.shared.is_over() {
        // What a connection is made of cannot fail: it is not made when memory has run out.
        while allocator::is_short() && thread.shared.drain().is_none() {
            pause(&thread.shared, &mut lines, "memory has run out").await;
        }
        tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((mut stream, from)) => {
                    if let Some(permit) = acquire(&mut stream, tls.is_some(), thread).await {
                        let stream = (stream, from);
                        spawn_local(Served::new(stream, permit, tls, Arc::clone(&address)));
                        // Requests have their turn among connections that are made.
                        yield_now().await;
                    }
                }
                Err(error) => pause(&thread.shared, &mut lines, error).await,
            },
        }
    }
}

/// Waits before the next try to accept.
async fn pause(shared: &ThreadShared, lines: &mut Sparing, why: impl Display) {
    if let Some(more) = lines.allows(Instant::now()) {
        tracing::warn!(more, "cannot accept a connection: {why}");
    }
    shared.ops.accept_failures.inc();
    sleep(ACCEPT_PAUSE).await;
    shared.ops.accept_paused_us.add(ACCEPT_PAUSE_US);
}

/// A permit for a fresh connection. Where all are taken it is refused one, or waits; nothing more is
/// accepted here meanwhile. `None` when there is none to be had.
async fn acquire(stream: &mut Stream, tls: bool, thread: &Rc<ThreadConns>) -> Option<ConnPermit> {
    let permits = Arc::clone(&thread.permits);
    let permit = if thread.refuse_over_limit {
        permits.try_acquire_owned().ok()
    } else {
        tokio::select! {
            biased;
            permit = permits.acquire_owned() => permit.ok(),
            () = thread.shared.over() => return None,
        }
    };
    let Some(permit) = permit else {
        thread.shared.ops.rejected_connections.inc();
        // A fresh connection's send buffer holds a line; nothing is said in the clear where
        // TLS is spoken.
        if !tls {
            let _ = stream.try_write(TOO_MANY);
        }
        return None;
    };
    // Given back with the permit.
    permit.forget();
    Some(ConnPermit::new(Rc::clone(thread)))
}

#[cfg(test)]
mod tests;
