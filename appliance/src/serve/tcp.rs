//! The protocol over the kernel's TCP and Unix sockets, with every command: of kernel addresses always, of a
//! `--port` with `--tcp kernel`. Otherwise workers serve the port's TCP (`dataplane::stages::stream`).
//!
//! In: bytes of kernel connections. Out: replies, in order. Each thread runs a runtime of its own, with one
//! store session and one block of counters; connections share nothing else.
//!
//! ```text
//! accepting ─► served ─► connection::converse ─► Input::receive ─► answer_all ─► shared::answer ─► send
//!                         └► large: requests and replies of more than a few kilobytes
//! ```
//!
//! Threads accept in turn (`accepting`). A connection reads only when everything it owes has been sent, and what it holds
//! beyond a few kilobytes is charged to one account (`pool`).

mod accepting;
mod connection;
mod shared;
mod drain;
mod handshake;
mod handshake_thread;
mod input;
mod large;
mod pool;
mod permit;
mod send_queue;
mod served;
mod tls;
mod transport;
mod waiting;

pub use drain::Drained;
pub(crate) use pool::{RESERVE_BYTES, THREAD_BYTES};
pub(crate) use tls::TLS_BYTES;
pub use transport::Source;

use crate::host::affinity;
use crate::process::allocator;
use crate::serve::credentials::Credentials;
use crate::serve::tls::Certificates;
use crate::startup::plan::ClientsPlan;
use accepting::{Turns, accept_on};
use connection::PARTING_MAX;
use dataplane::commands::Ahead;
use dataplane::commands::login::Users;
use dataplane::observe::Server;
use drain::{Drain, Ended};
use handshake::Handshakes;
use handshake_thread::HandshakeThread;
use input::Spare;
use permit::ThreadConns;
use pool::Pool;
use shared::ThreadShared;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;
use store::Session;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::timeout;
use waiting::Waiting;

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
        let loads: Arc<[AtomicUsize]> = sessions.iter().map(|_| AtomicUsize::new(0)).collect();
        let listeners: Vec<(Source, Arc<Turns>)> =
            listeners.into_iter().map(|l| (l, Arc::new(Turns::new(&loads)))).collect();
        let mut threads = Vec::new();
        for (n, session) in sessions.into_iter().enumerate() {
            let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
            let beside = |all: &Arc<Handshakes>| {
                let cpus = cpus.clone();
                let thread = HandshakeThread::start(n, move || {
                    affinity::keep_on(&cpus);
                    allocator::prepare_thread();
                });
                io::Result::Ok((Arc::clone(all), thread?))
            };
            let handshakes = handshakes.as_ref().map(beside).transpose()?;
            let own = |(l, turns): &(Source, Arc<Turns>)| Ok((l.try_clone()?, Arc::clone(turns)));
            let listeners = listeners.iter().map(own).collect::<io::Result<Vec<_>>>()?;
            let loads = Arc::clone(&loads);
            let (server, permits, cpus) = (Arc::clone(&server), Arc::clone(&permits), cpus.clone());
            let stopped = stopped.clone();
            let users = config.credentials.clone().map(|c| -> Arc<dyn Users> { c });
            let (pool, ended) = (Arc::clone(&pool), Arc::clone(&ended));
            threads.push(std::thread::Builder::new().name(format!("tcp-{n}")).spawn(
                move || {
                    affinity::keep_on(&cpus);
                    allocator::prepare_thread();
                    let shared = ThreadShared {
                        session: RefCell::new(session),
                        ahead: RefCell::new(Ahead::new(item_max_bytes, requests_per_turn)),
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
                        number: n,
                        loads,
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

fn run(runtime: &Runtime, listeners: Vec<(Source, Arc<Turns>)>, thread: Rc<ThreadConns>) {
    let local = LocalSet::new();
    local.block_on(runtime, async {
        let mut accepting = JoinSet::new();
        for (listener, turns) in listeners {
            accepting.spawn_local(accept_on(listener, turns, Rc::clone(&thread)));
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
