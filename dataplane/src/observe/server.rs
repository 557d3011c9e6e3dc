//! State of the whole process, shared by every thread that answers clients.
//!
//! In: what start-up found, what administrators set, and a block of counters from each thread. Out:
//! sums over the threads since counting last began. Never fails.

use super::classes::ClassCount;
use super::conn_memory::ConnMemory;
use super::conns::Conns;
use super::detail::Detail;
use super::hotkeys;
use super::latency::{self, Distribution};
use super::op_counters::{OpCounters, OpTotals};
use super::rows::{EngineFacts, Rows};
use super::tls::Refresh;
use super::tuning::Tuning;
use super::watch::Watchers;
use crate::rdma::Rdma;
use memcache::Dialects;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::Store;

/// State of the whole process, shared by every thread that answers clients.
pub struct Server {
    /// The store.
    pub store: Arc<Store>,
    /// What `version` says.
    pub version: String,
    /// `stats settings`, in order.
    pub settings: Vec<(&'static str, String)>,
    /// Threads that serve clients.
    pub threads: usize,
    /// Most TCP connections at once.
    pub max_connections: usize,
    /// What clients may speak.
    pub dialects: Dialects,
    /// `flush_all` is carried out (`-F` forbids it).
    pub flush_allowed: bool,
    /// `shutdown` is carried out (`-A` allows it).
    pub shutdown_allowed: bool,
    /// Clients see items' CAS numbers (`-C`: each is 0, and none is ever as expected).
    pub cas_enabled: bool,
    /// `lru_crawler metadump` and `stats cachedump` are carried out.
    pub dump_allowed: bool,
    /// `watch` is carried out.
    pub watch_allowed: bool,
    /// Files kept for other things than connections.
    pub reserved_fds: u64,
    /// Prefix statistics.
    pub detail: Detail,
    /// Clients that watch what happens.
    pub watchers: Arc<Watchers>,
    /// Open connections.
    pub conns: Arc<Conns>,
    /// Memory of their buffers.
    pub conn_memory: Arc<ConnMemory>,
    /// What administrators have set while it runs.
    pub tuning: Tuning,
    /// One-sided reads, where those are answered.
    pub rdma: Option<Arc<Rdma>>,
    /// The owner of the certificates, where TLS is spoken.
    pub tls: Option<Arc<dyn Refresh>>,
    engine: OnceLock<Arc<dyn EngineFacts>>,
    late_settings: OnceLock<Vec<(&'static str, String)>>,
    stop_asked: AtomicBool,
    keep_asked: AtomicBool,
    started: Instant,
    ops: Mutex<Vec<Arc<OpCounters>>>,
    /// What had been counted when counting began again.
    before: Mutex<Baseline>,
}

#[derive(Debug, Default)]
struct Baseline {
    ops: OpTotals,
    classes: Vec<ClassCount>,
    latency: latency::Totals,
}

base::opaque!(Server, |it| version: it.version);

impl Server {
    /// A server over `store`.
    pub fn new(store: Arc<Store>, version: String) -> Self {
        let detail = Detail::new(store.config().prefix_delimiter, false);
        let watchers: Arc<Watchers> = Arc::default();
        store.observe_evictions(Arc::clone(&watchers) as _);
        Self {
            store,
            version,
            settings: Vec::new(),
            threads: 1,
            max_connections: 0,
            dialects: Dialects::default(),
            flush_allowed: true,
            shutdown_allowed: false,
            cas_enabled: true,
            dump_allowed: true,
            watch_allowed: true,
            reserved_fds: 0,
            detail,
            watchers,
            conns: Arc::default(),
            conn_memory: Arc::default(),
            tuning: Tuning::default(),
            rdma: None,
            tls: None,
            engine: OnceLock::new(),
            late_settings: OnceLock::new(),
            stop_asked: AtomicBool::new(false),
            keep_asked: AtomicBool::new(false),
            started: Instant::now(),
            ops: Mutex::new(Vec::new()),
            before: Mutex::default(),
        }
    }

    /// Names the one who describes engines. The first call counts.
    pub fn tell_engine(&self, facts: Arc<dyn EngineFacts>) {
        let _ = self.engine.set(facts);
    }

    /// Adds to `stats settings` what start-up learns last. The first call counts.
    pub fn tell_settings(&self, settings: Vec<(&'static str, String)>) {
        let _ = self.late_settings.set(settings);
    }

    /// What clients get of a item's CAS number.
    #[inline]
    pub(crate) fn cas_shown(&self, cas: u64) -> u64 {
        if self.cas_enabled { cas } else { 0 }
    }

    /// What is to be compared with an item's CAS number when a client expects this one.
    #[inline]
    pub(crate) fn cas_expected(&self, cas: u64) -> u64 {
        // No item gets as far as the last number.
        if self.cas_enabled { cas } else { u64::MAX }
    }

    /// The same for what a change compares before it is made. `None`: nothing, because without CAS ids that of
    /// each item is 0, as a meta command knows it.
    pub(crate) fn cas_compared(&self, cas: u64, is_meta: bool) -> Option<u64> {
        let is_none = is_meta && !self.cas_enabled && cas == 0;
        (!is_none).then(|| self.cas_expected(cas))
    }

    /// The CAS id that a client sets for an item. Without CAS ids it does not count.
    #[inline]
    pub fn own_cas(&self, cas: Option<u64>) -> Option<u64> {
        cas.filter(|_| self.cas_enabled)
    }

    /// A block of counters for one more thread.
    pub fn ops(&self) -> Arc<OpCounters> {
        let ops = Arc::new(OpCounters::default());
        self.ops.lock().push(Arc::clone(&ops));
        ops
    }

    /// The sum over all threads, since start-up.
    pub fn totals(&self) -> OpTotals {
        let mut totals = OpTotals::default();
        for ops in self.ops.lock().iter() {
            totals.take(ops);
        }
        totals
    }

    /// Whether connections are accepted at each listener.
    pub(super) fn is_accepting(&self) -> bool {
        self.ops.lock().iter().all(|ops| ops.not_accepting.get() == 0)
    }

    /// The same since counting last began, by `stats reset` or at start-up.
    pub fn counted(&self) -> OpTotals {
        self.totals().less(&self.before.lock().ops)
    }

    /// The sum over all threads by size class, since counting last began.
    pub(super) fn counted_by_class(&self) -> Vec<ClassCount> {
        let mut counts = self.totals_by_class();
        for (count, before) in counts.iter_mut().zip(&self.before.lock().classes) {
            count.subtract(before);
        }
        counts
    }

    pub(super) fn totals_by_class(&self) -> Vec<ClassCount> {
        let mut totals = vec![ClassCount::default(); self.store.classes()];
        for ops in self.ops.lock().iter() {
            ops.classes.add_to(&mut totals);
        }
        totals
    }

    /// How long requests took, since counting last began: one for each transport and kind.
    pub fn distributions(&self) -> Vec<Distribution> {
        self.latencies_counted().distributions()
    }

    pub(crate) fn latencies_counted(&self) -> latency::Totals {
        let mut totals = self.latencies();
        totals.subtract(&self.before.lock().latency);
        totals
    }

    fn latencies(&self) -> latency::Totals {
        let mut totals = latency::Totals::default();
        for ops in self.ops.lock().iter() {
            totals.take(&ops.latency);
        }
        totals
    }

    /// Writes the page of the keys that are requested most.
    pub(crate) fn hot_keys(&self, rows: &mut impl Rows) {
        hotkeys::page(self.ops.lock().iter().map(|ops| &ops.hot_keys), rows);
    }

    /// Who reports on engines.
    pub(super) fn engine(&self) -> Option<&dyn EngineFacts> {
        self.engine.get().map(AsRef::as_ref)
    }

    /// Settings that start-up learned last.
    pub(super) fn late_settings(&self) -> &[(&'static str, String)] {
        self.late_settings.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// How long it has run.
    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Begins again to count all that is counted, but for what is there now.
    pub fn reset(&self) {
        self.store.reset_counts();
        self.detail.forget();
        self.watchers.reset_counts();
        for ops in self.ops.lock().iter() {
            ops.hot_keys.forget();
        }
        let (ops, classes) = (self.totals(), self.totals_by_class());
        *self.before.lock() = Baseline { ops, classes, latency: self.latencies() };
    }

    /// Requests that the process end, and keep the items where it has a memory file.
    pub(crate) fn ask_to_stop(&self, keep: bool) {
        self.keep_asked.fetch_or(keep, Ordering::Relaxed);
        self.stop_asked.store(true, Ordering::Relaxed);
    }

    /// Whether a client has asked to keep the items.
    pub fn is_keep_asked(&self) -> bool {
        self.keep_asked.load(Ordering::Relaxed)
    }

    /// Whether a client has asked the process to end.
    pub fn is_stop_asked(&self) -> bool {
        self.stop_asked.load(Ordering::Relaxed)
    }
}
