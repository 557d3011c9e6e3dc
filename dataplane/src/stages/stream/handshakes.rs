//! TLS handshakes: their work on a thread beside the worker, so many of a source.
//!
//! ```text
//!  worker ── to do ──► thread: keys, signatures, certificates ── done ──► worker
//! ```
//!
//! In: sessions that something has come for. Out: the same, advanced. The work takes up to milliseconds, and
//! no reply to others waits for it. Both queues have a place for every connection, and no more are
//! under way than that. A source has half of the connections in handshakes at most; one whose client
//! left meanwhile counts until the thread has done with it. Nothing fails.

use super::tls::{Secure, TlsSessions};
use crossbeam_queue::ArrayQueue;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Thread, current, park_timeout};
use std::time::Duration;

/// Longest handshake.
pub(super) const HANDSHAKE_MAX_NS: u64 = 10_000_000_000;
/// How long the thread sleeps before it looks whether it is to end.
const SLEEP: Duration = Duration::from_millis(100);
/// Bits of an IPv6 address that a source has to itself.
const SOURCE_BITS: u32 = 64;

/// A session on its way.
#[derive(Debug)]
pub(super) struct Job {
    /// What it is known by.
    pub(super) number: u64,
    pub(super) secure: Box<Secure>,
}

/// The way from a worker to the thread that makes its handshakes, and back.
#[derive(Debug)]
pub struct TlsHandshakes {
    to_do: ArrayQueue<Job>,
    done: ArrayQueue<Job>,
    thread: OnceLock<Thread>,
}

impl TlsHandshakes {
    /// For so many connections.
    pub fn new(connections: usize) -> Self {
        let queue = || ArrayQueue::new(connections.max(1));
        Self { to_do: queue(), done: queue(), thread: OnceLock::new() }
    }

    /// Makes handshakes, first come, first served, until `stop` is set. On one thread.
    pub fn run(&self, stop: &AtomicBool) {
        self.thread.get_or_init(current);
        while !stop.load(Ordering::Relaxed) {
            let Some(mut job) = self.to_do.pop() else {
                park_timeout(SLEEP);
                continue;
            };
            job.secure.shake();
            // It has a place: no more are under way.
            let _ = self.done.push(job);
        }
    }
}

/// Handshakes of each source.
#[derive(Debug)]
pub struct Places {
    /// How many each has, of those that have any.
    pub of: HashMap<IpAddr, usize>,
    most: usize,
}

impl Places {
    /// For so many connections in all: a source has half of them.
    pub fn new(connections: usize) -> Self {
        Self { of: HashMap::new(), most: (connections / 2).max(1) }
    }

    /// Whether another handshake of this source may begin; then it has.
    pub fn enter(&mut self, source: IpAddr) -> bool {
        let count = self.of.entry(subnet(source)).or_insert(0);
        let may = *count < self.most;
        *count += usize::from(may);
        may
    }

    /// A handshake of this source is over.
    pub fn leave(&mut self, source: IpAddr) {
        let source = subnet(source);
        if let Some(count) = self.of.get_mut(&source) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of.remove(&source);
            }
        }
    }
}

/// What a worker serves TLS with.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// Who begins sessions.
    pub sessions: Arc<dyn TlsSessions>,
    /// Where handshakes are made, for as many connections as the stage has.
    pub handshakes: Arc<TlsHandshakes>,
}

/// The worker's side.
#[derive(Debug)]
pub(super) struct Tls {
    pub(super) sessions: Arc<dyn TlsSessions>,
    handshakes: Arc<TlsHandshakes>,
    /// Sessions that the thread has, or has done with.
    under_way: usize,
    last_number: u64,
    pub(super) places: Places,
    /// Records on their way: from a receive buffer, and to a send buffer.
    pub(super) records: Vec<u8>,
    pub(super) sealed: Vec<u8>,
    /// What they say.
    pub(super) plain: Vec<u8>,
}

impl Tls {
    /// For so many connections.
    pub(super) fn new(config: TlsConfig, connections: usize) -> Self {
        let TlsConfig { sessions, handshakes } = config;
        Self {
            sessions,
            handshakes,
            under_way: 0,
            last_number: 0,
            places: Places::new(connections),
            records: Vec::new(),
            sealed: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// Hands a session to the thread. The number that it comes back by, or the session if the thread
    /// has too much to do.
    pub(super) fn send(&mut self, secure: Box<Secure>) -> Result<u64, Box<Secure>> {
        if self.under_way >= self.handshakes.done.capacity() {
            return Err(secure);
        }
        let number = self.last_number + 1;
        match self.handshakes.to_do.push(Job { number, secure }) {
            Ok(()) => {
                (self.under_way, self.last_number) = (self.under_way + 1, number);
                if let Some(thread) = self.handshakes.thread.get() {
                    thread.unpark();
                }
                Ok(number)
            }
            Err(Job { secure, .. }) => Err(secure),
        }
    }

    /// A session that the thread has done with.
    #[inline]
    pub(super) fn done(&mut self) -> Option<Job> {
        let job = self.handshakes.done.pop()?;
        self.under_way -= 1;
        Some(job)
    }
}

/// What counts as one source.
fn subnet(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(ip) => {
            IpAddr::V6((ip.to_bits() >> (128 - SOURCE_BITS) << (128 - SOURCE_BITS)).into())
        }
        v4 => v4,
    }
}
