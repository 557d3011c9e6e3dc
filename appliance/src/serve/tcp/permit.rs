//! What the connections of one thread share, and the permit that each of them holds.
//!
//! In: connections that are accepted. Out: permits, given back when they end; the last one says so.
//! Never fails.

use super::drain::Ended;
use super::handshake::Handshakes;
use super::handshake_thread::HandshakeThread;
use super::shared::ThreadShared;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// What the connections of one thread share.
pub(super) struct ThreadConns {
    pub(super) shared: ThreadShared,
    /// One for each connection that `-c` allows, over all threads.
    pub(super) permits: Arc<Semaphore>,
    /// A connection that finds no permit is refused; otherwise it waits for one.
    pub(super) refuse_over_limit: bool,
    /// How long draining may take.
    pub(super) drain_max: Duration,
    /// Which thread this is.
    pub(super) number: usize,
    /// Connections of each thread, for whose turn it is to accept.
    pub(super) loads: Arc<[AtomicUsize]>,
    /// Connections that have a permit.
    pub(super) connections: Cell<usize>,
    /// The last of them has gone.
    pub(super) is_empty: Notify,
    pub(super) ended: Arc<Ended>,
    /// Where TLS is spoken.
    pub(super) handshakes: Option<(Arc<Handshakes>, HandshakeThread)>,
}

impl ThreadConns {
    fn set_connections(&self, n: usize) {
        self.connections.set(n);
        if let Some(load) = self.loads.get(self.number) {
            load.store(n, Ordering::Relaxed);
        }
    }
}

/// One of the places that `-c` allows, given back on drop.
pub(super) struct ConnPermit {
    pub(super) thread: Rc<ThreadConns>,
    /// Its place among those that wait, from its first wait on.
    pub(super) place: Option<u32>,
}

impl ConnPermit {
    /// The caller has taken a permit for it.
    pub(super) fn new(thread: Rc<ThreadConns>) -> Self {
        thread.shared.ops.total_connections.inc();
        thread.set_connections(thread.connections.get() + 1);
        Self { thread, place: None }
    }
}

impl Drop for ConnPermit {
    fn drop(&mut self) {
        let thread = &self.thread;
        if let Some(place) = self.place {
            thread.shared.waiting.leave(place);
        }
        thread.shared.ops.closed_connections.inc();
        thread.permits.add_permits(1);
        thread.set_connections(thread.connections.get() - 1);
        if thread.connections.get() == 0 {
            thread.is_empty.notify_one();
        }
    }
}
