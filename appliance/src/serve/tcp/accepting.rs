//! Accepting connections: by one thread at a time at each listener.
//!
//! In: listeners that all threads share. Out: connections, each served by the thread that accepted it. Were all
//! threads to wait at a listener, each connection would wake all of them. So they have turns: it is the turn of
//! one thread until another has clearly fewer connections. Nothing fails: what cannot be accepted is tried again.

use super::permit::{ConnPermit, ThreadConns};
use super::served::Served;
use super::shared::ThreadShared;
use super::transport::{Listener, Source, Stream};
use crate::observe::health::Sparing;
use crate::process::allocator;
use crate::startup::plan::ClientCerts;
use dataplane::observe::conns::Address;
use std::fmt::Display;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::{spawn_local, yield_now};
use tokio::time::sleep;

/// Pause after a failed accept: out of files or memory, which more tries do not mend.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Connections that are accepted at the end, at most: the kernel's queue (net.core.somaxconn).
const LEFT_MAX: usize = 4096;
/// What a connection over the limit is sent, in memcached's words.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";
/// The thread whose turn it is may have this part more connections than another, so that a flood of them does
/// not wake two threads for each;
const UNEVEN: usize = 8;
/// and so many at most, so that those which come together are spread too.
const UNEVEN_MAX: usize = 4;

/// Whose turn it is to accept at a listener.
#[derive(Debug)]
pub(super) struct Turns {
    turn: AtomicUsize,
    /// Wakes the thread whose turn has come, each its own.
    come: Box<[Notify]>,
    /// Connections of each thread.
    loads: Arc<[AtomicUsize]>,
}

impl Turns {
    /// For threads with these numbers of connections, which they keep.
    pub(super) fn new(loads: &Arc<[AtomicUsize]>) -> Self {
        let come = loads.iter().map(|_| Notify::new()).collect();
        Self { turn: AtomicUsize::new(0), come, loads: Arc::clone(loads) }
    }

    /// Waits until it is this thread's turn.
    async fn come(&self, thread: usize) {
        while self.turn.load(Ordering::Acquire) != thread
            && let Some(come) = self.come.get(thread)
        {
            come.notified().await;
        }
    }

    /// Who is to accept after this thread: itself, unless another has clearly fewer connections.
    fn next(&self, thread: usize) -> usize {
        let loads = || self.loads.iter().map(|load| load.load(Ordering::Relaxed)).enumerate();
        let own = loads().nth(thread).map_or(0, |(_, load)| load);
        match loads().min_by_key(|(_, load)| *load) {
            Some((other, load)) if own > load + (load / UNEVEN).min(UNEVEN_MAX) => other,
            _ => thread,
        }
    }

    fn pass_to(&self, thread: usize) {
        self.turn.store(thread, Ordering::Release);
        if let Some(come) = self.come.get(thread) {
            come.notify_one();
        }
    }
}

/// Accepts, in turn with the other threads, until the drain has begun.
pub(super) async fn accept_on(source: Source, turns: Arc<Turns>, thread: Rc<ThreadConns>) {
    let _entered = thread.shared.server.conns.enter(source.fd(), source.address(), None);
    accept_until(thread.shared.stop_accepting(), &source, &turns, &thread).await;
    accept_left(&source, &thread).await;
}

/// Accepts what the kernel still has: a thread that got no processor has not accepted all that came before the stop, and
/// closing the listener would reset it.
async fn accept_left(source: &Source, thread: &Rc<ThreadConns>) {
    let address: Arc<str> = source.address().to_string().into();
    for _ in 0..LEFT_MAX {
        if thread.shared.is_over() {
            return;
        }
        match source.accept_now() {
            Ok(accepted) => serve(accepted, source.tls(), &address, thread).await,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => return,
        }
    }
}

/// Serves a fresh connection, if there is a permit for it.
async fn serve(
    (mut stream, from): (Stream, Address),
    tls: Option<ClientCerts>,
    address: &Arc<str>,
    thread: &Rc<ThreadConns>,
) {
    if let Some(permit) = acquire(&mut stream, tls.is_some(), thread).await {
        spawn_local(Served::new((stream, from), permit, tls, Arc::clone(address)));
    }
}

/// Accepts until it has stopped, however many clients would go on to connect.
async fn accept_until(
    stop: impl Future<Output = ()>,
    source: &Source,
    turns: &Turns,
    thread: &Rc<ThreadConns>,
) {
    let address: Arc<str> = source.address().to_string().into();
    let tls = source.tls();
    let mut stop = pin!(stop);
    let mut lines = Sparing::default();
    while !thread.shared.is_over() {
        tokio::select! {
            biased;
            () = &mut stop => return,
            () = turns.come(thread.number) => {}
        }
        // Watched only as long as it is this thread's turn.
        let listener = match source.try_clone().and_then(Listener::new) {
            Ok(listener) => listener,
            Err(error) => {
                pause(&thread.shared, &mut lines, error).await;
                continue;
            }
        };
        while turns.next(thread.number) == thread.number && !thread.shared.is_over() {
            // What a connection is made of cannot fail: it is not made when memory has run out.
            while allocator::is_short() && thread.shared.drain().is_none() {
                pause(&thread.shared, &mut lines, "memory has run out").await;
            }
            tokio::select! {
                biased;
                () = &mut stop => return,
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => {
                        serve(accepted, tls, &address, thread).await;
                        // Requests have their turn among connections that are made or refused.
                        yield_now().await;
                    }
                    Err(error) => pause(&thread.shared, &mut lines, error).await,
                },
            }
        }
        drop(listener);
        turns.pass_to(turns.next(thread.number));
    }
}

/// Waits before the next try to accept.
async fn pause(shared: &ThreadShared, lines: &mut Sparing, why: impl Display) {
    if let Some(more) = lines.allows(Instant::now()) {
        tracing::warn!(more, "cannot accept a connection: {why}");
    }
    not_accepting(shared, sleep(ACCEPT_PAUSE)).await;
}

/// Waits for this. Nothing is accepted meanwhile, as is counted.
async fn not_accepting<T>(shared: &ThreadShared, wait: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    shared.ops.accept_failures.inc();
    shared.ops.not_accepting.inc();
    let done = wait.await;
    shared.ops.not_accepting.set(shared.ops.not_accepting.get().saturating_sub(1));
    shared.ops.accept_paused_us.add(u64::try_from(begun.elapsed().as_micros()).unwrap_or(0));
    done
}

/// A permit for a fresh connection. Where all are taken it is refused one, or waits; nothing more is
/// accepted meanwhile. `None` when there is none to be had.
async fn acquire(stream: &mut Stream, tls: bool, thread: &Rc<ThreadConns>) -> Option<ConnPermit> {
    let permits = || Arc::clone(&thread.permits);
    let mut permit = permits().try_acquire_owned().ok();
    if permit.is_none() && !thread.refuse_over_limit {
        let wait = async {
            tokio::select! {
                biased;
                permit = permits().acquire_owned() => permit.ok(),
                () = thread.shared.over() => None,
            }
        };
        permit = Some(not_accepting(&thread.shared, wait).await?);
    }
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
