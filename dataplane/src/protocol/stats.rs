//! What `stats` and `version` report, and the counters behind it.

use super::command::Refusal;
use super::dialect::Dialects;
use super::sink::Sink;
use crate::counters::Counter;
use crate::store::verbs::{ArithFailure, Counted, NotStored};
use crate::store::{PAGE_BYTES, Store};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

macro_rules! op_counters {
    ($($(#[doc = $doc:literal])* $name:ident)*) => {
        /// Operations carried out by one thread. That thread alone writes them, on cache lines
        /// of its own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct OpCounters { $($(#[doc = $doc])* pub $name: Counter,)* }

        /// The sum of every thread's [`OpCounters`].
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct OpTotals { $($(#[doc = $doc])* pub $name: u64,)* }

        impl OpTotals {
            fn take(&mut self, ops: &OpCounters) { $(self.$name += ops.$name.get();)* }
        }
    };
}

op_counters! {
    /// Keys asked for.
    cmd_get
    /// Storage commands.
    cmd_set
    /// Keys found.
    get_hits
    /// Keys not found.
    get_misses
    /// Keys to be given a new exptime.
    cmd_touch
    /// Questions about items themselves (`me`).
    cmd_meta
    /// Keys given one.
    touch_hits
    /// Keys to be given one that were not found.
    touch_misses
    /// Calls to forget everything.
    cmd_flush
    /// Stores with a CAS id that was the item's.
    cas_hits
    /// Stores with a CAS id of a key that was not there.
    cas_misses
    /// Stores with a CAS id that was not the item's.
    cas_badval
    /// Increments of a key that was there.
    incr_hits
    /// Increments of a key that was not.
    incr_misses
    /// Decrements of a key that was there.
    decr_hits
    /// Decrements of a key that was not.
    decr_misses
    /// Deletes of a key that was there.
    delete_hits
    /// Deletes of a key that was not.
    delete_misses
    /// Request bytes taken from clients.
    bytes_read
    /// Reply bytes given to clients.
    bytes_written
    /// TCP connections accepted.
    total_connections
    /// TCP connections closed.
    closed_connections
    /// TCP connections refused for want of room.
    rejected_connections
    /// Connections closed because nothing came for too long.
    idle_kicks
    /// Turns that a connection ended with requests left.
    conn_yields
    /// Attempts to authenticate.
    auth_cmds
    /// Attempts to authenticate that failed.
    auth_errors
}

impl OpCounters {
    /// Counts a store with a CAS id.
    pub(super) fn count_cas(&self, result: Result<(), NotStored>) {
        match result {
            Ok(()) => self.cas_hits.inc(),
            Err(NotStored::Exists) => self.cas_badval.inc(),
            Err(NotStored::NotFound) => self.cas_misses.inc(),
            Err(_) => {}
        }
    }

    /// Counts an increment or decrement of a number that was there, or of none.
    pub(super) fn count_arith(&self, decrement: bool, result: &Result<Counted, ArithFailure>) {
        match (decrement, result) {
            (false, Ok(Counted { created: false, .. })) => self.incr_hits.inc(),
            (true, Ok(Counted { created: false, .. })) => self.decr_hits.inc(),
            (false, Err(ArithFailure::NotFound)) => self.incr_misses.inc(),
            (true, Err(ArithFailure::NotFound)) => self.decr_misses.inc(),
            _ => {}
        }
    }
}

/// What the whole process knows, shared by every thread that answers clients.
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
    started: Instant,
    ops: Mutex<Vec<Arc<OpCounters>>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Server {
    /// A server over `store`.
    pub fn new(store: Arc<Store>, version: String) -> Self {
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
            started: Instant::now(),
            ops: Mutex::new(Vec::new()),
        }
    }

    /// What clients are told of an item's CAS number.
    #[inline]
    pub fn cas_shown(&self, cas: u64) -> u64 {
        if self.cas_enabled { cas } else { 0 }
    }

    /// What is to be compared with an item's CAS number when a client expects this one.
    #[inline]
    pub fn cas_expected(&self, cas: u64) -> u64 {
        // No item gets as far as the last number.
        if self.cas_enabled { cas } else { u64::MAX }
    }

    /// A block of counters for one more thread.
    pub fn ops(&self) -> Arc<OpCounters> {
        let ops = Arc::new(OpCounters::default());
        self.ops.lock().push(Arc::clone(&ops));
        ops
    }

    /// The sum over all threads.
    pub fn totals(&self) -> OpTotals {
        let mut totals = OpTotals::default();
        for ops in self.ops.lock().iter() {
            totals.take(ops);
        }
        totals
    }
}

/// Writes the reply to `stats [what]`.
pub fn write(what: Option<&[u8]>, server: &Server, out: &mut impl Sink) {
    match what {
        None => general(server, out),
        Some(b"settings") => {
            for (name, value) in &server.settings {
                line(out, name, value);
            }
        }
        Some(b"items") => items(server, out),
        Some(b"slabs") => slabs(server, out),
        // As memcached without `-o track_sizes`.
        Some(b"sizes") => line(out, "sizes_status", "disabled"),
        Some(_) => return out.put(Refusal::Error.line()),
    }
    out.put(b"END\r\n");
}

fn line(out: &mut impl Sink, name: &str, value: impl fmt::Display) {
    out.put(format!("STAT {name} {value}\r\n").as_bytes());
}

fn general(server: &Server, out: &mut impl Sink) {
    let ops = server.totals();
    let store = server.store.stats();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    line(out, "pid", std::process::id());
    line(out, "uptime", server.started.elapsed().as_secs());
    line(out, "time", unix);
    line(out, "version", &server.version);
    line(out, "pointer_size", usize::BITS);
    line(out, "max_connections", server.max_connections);
    line(out, "curr_connections", ops.total_connections.saturating_sub(ops.closed_connections));
    line(out, "total_connections", ops.total_connections);
    line(out, "rejected_connections", ops.rejected_connections);
    line(out, "cmd_get", ops.cmd_get);
    line(out, "cmd_set", ops.cmd_set);
    line(out, "cmd_flush", ops.cmd_flush);
    line(out, "cmd_touch", ops.cmd_touch);
    line(out, "cmd_meta", ops.cmd_meta);
    line(out, "get_hits", ops.get_hits);
    line(out, "get_misses", ops.get_misses);
    line(out, "delete_misses", ops.delete_misses);
    line(out, "delete_hits", ops.delete_hits);
    line(out, "incr_misses", ops.incr_misses);
    line(out, "incr_hits", ops.incr_hits);
    line(out, "decr_misses", ops.decr_misses);
    line(out, "decr_hits", ops.decr_hits);
    line(out, "cas_misses", ops.cas_misses);
    line(out, "cas_hits", ops.cas_hits);
    line(out, "cas_badval", ops.cas_badval);
    line(out, "touch_hits", ops.touch_hits);
    line(out, "touch_misses", ops.touch_misses);
    line(out, "auth_cmds", ops.auth_cmds);
    line(out, "auth_errors", ops.auth_errors);
    line(out, "idle_kicks", ops.idle_kicks);
    line(out, "bytes_read", ops.bytes_read);
    line(out, "bytes_written", ops.bytes_written);
    line(out, "limit_maxbytes", store.limit_maxbytes);
    line(out, "threads", server.threads);
    line(out, "conn_yields", ops.conn_yields);
    line(out, "hash_bytes", store.index_bytes);
    line(out, "bytes", store.bytes);
    line(out, "curr_items", store.curr_items);
    line(out, "total_items", store.total_items);
    line(out, "evictions", store.evictions);
    line(out, "evicted_unfetched", store.evicted_unfetched);
    line(out, "expired_unfetched", store.expired_unfetched);
    line(out, "reclaimed", store.reclaimed);
}

/// Per size class, what became of its items.
fn items(server: &Server, out: &mut impl Sink) {
    for c in server.store.stats().classes {
        let mut row = |name, value| line(out, &format!("items:{}:{name}", c.class), value);
        row("number", c.curr_items);
        row("mem_requested", c.mem_requested);
        row("evicted", c.evicted);
        row("evicted_unfetched", c.evicted_unfetched);
        row("evicted_active", c.evicted_active);
        row("outofmemory", c.out_of_memory);
        row("reclaimed", c.reclaimed);
        row("expired_unfetched", c.expired_unfetched);
    }
}

/// Per size class, where the memory is.
fn slabs(server: &Server, out: &mut impl Sink) {
    let store = server.store.stats();
    for c in &store.classes {
        let mut row = |name, value| line(out, &format!("{}:{name}", c.class), value);
        row("chunk_size", c.chunk_size);
        row("chunks_per_page", c.chunks_per_page);
        row("total_pages", c.total_pages);
        row("total_chunks", c.total_chunks);
        row("used_chunks", c.used_chunks);
        row("free_chunks", c.total_chunks.saturating_sub(c.used_chunks));
        // memcached's count of chunks never used since their page came; it too says 0.
        row("free_chunks_end", 0);
    }
    line(out, "active_slabs", store.classes.len());
    let pages: u64 = store.classes.iter().map(|c| c.total_pages).sum();
    line(out, "total_malloced", pages * PAGE_BYTES as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::sink::Buffer;
    use crate::store::{StoreConfig, verbs};
    use driver_shim::Pages;

    fn ask(what: &[u8], server: &Server) -> String {
        let mut bytes = Vec::new();
        write(Some(what), server, &mut Buffer { bytes: &mut bytes, max_bytes: 0 });
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_class_with_an_item_has_its_rows() {
        let config =
            StoreConfig { memory_bytes: 8 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let server = Server::new(Arc::clone(&store), String::new());
        assert_eq!(ask(b"items", &server), "END\r\n");
        assert_eq!(
            ask(b"slabs", &server),
            "STAT active_slabs 0\r\nSTAT total_malloced 0\r\nEND\r\n"
        );
        let mut session = store.session().unwrap();
        for (key, len) in [(&b"a"[..], 10), (b"b", 10), (b"c", 1000)] {
            let value = &vec![b'v'; len];
            let request = crate::protocol::Store::set(key, 0, 0, value);
            verbs::store(&mut session, &request).unwrap();
        }
        let items = ask(b"items", &server);
        let count = |text: &str, part: &str| text.lines().filter(|l| l.contains(part)).count();
        assert_eq!(count(&items, ":number 2"), 1, "{items}");
        assert_eq!(count(&items, ":number 1"), 1, "{items}");
        let slabs = ask(b"slabs", &server);
        assert_eq!(count(&slabs, ":used_chunks "), 2, "{slabs}");
        assert_eq!(count(&slabs, "STAT active_slabs 2"), 1, "{slabs}");
        assert_eq!(count(&slabs, "STAT total_malloced 4194304"), 1, "{slabs}");
        assert_eq!(ask(b"sizes", &server), "STAT sizes_status disabled\r\nEND\r\n");
        assert_eq!(ask(b"bogus", &server), "ERROR\r\n");
    }
}
