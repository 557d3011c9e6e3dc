//! What `stats` and `version` report, and the counters behind it.
//!
//! Enters: what threads count, one block each, and what the store knows. Leaves: pages of rows, one
//! file a page, in whatever form a [`Rows`] gives them. A page is made when it is asked for:
//! it allocates and takes locks, and nothing of that is on the way of other requests. Fails: a
//! page that does not exist says so in memcached's words.

mod classes;
mod conn_memory;
pub mod conns;
pub mod detail;
mod general;
pub mod hotkeys;
pub mod latency;
mod settings;

pub use classes::{ClassCount, ClassOps};
pub use conn_memory::{ConnMemory, ConnMemoryNow};
pub use conns::{Conn, ConnSlots, ConnState, Conns};
pub use detail::Detail;
pub use hotkeys::HotKeys;
pub use latency::{Distribution, Kind, Latency, Transport};

use super::command::Refusal;
use super::dialect::Dialects;
use super::keys::put_plain;
use super::sink::Sink;
use super::tuning::Tuning;
use super::watch::Watchers;
use crate::counters::Counter;
use crate::store::verbs::{ArithFailure, Counted, NotStored};
use crate::store::{Cursor, Session, Store};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

macro_rules! op_counters {
    ($($(#[doc = $doc:literal])* $name:ident)*) => {
        /// Operations carried out by one thread. That thread alone writes them, on cache lines
        /// of its own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct OpCounters {
            $($(#[doc = $doc])* pub $name: Counter,)*
            /// By size class.
            pub classes: ClassOps,
            /// How long requests took.
            pub latency: Latency,
            /// Which keys are asked for most.
            pub hot_keys: HotKeys,
            /// Gauge: the file descriptor of the connection whose request is being answered; 0
            /// for UDP.
            pub client: Counter,
        }

        /// The sum of every thread's [`OpCounters`].
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct OpTotals { $($(#[doc = $doc])* pub $name: u64,)* }

        impl OpTotals {
            fn take(&mut self, ops: &OpCounters) { $(self.$name += ops.$name.get();)* }

            fn less(self, before: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(before.$name),)* }
            }
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
    /// Questions about items themselves (`me`).
    cmd_meta
    /// Keys not found because their item had expired.
    get_expired
    /// Keys not found because their item had been flushed.
    get_flushed
    /// Items refused because of their size.
    store_too_large
    /// Items refused for want of memory.
    store_no_memory
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
    /// Times that no connection could be accepted, for want of files or memory.
    accept_failures
    /// Microseconds in which nothing was accepted because of that.
    accept_paused_us
    /// Connections ended because there was no memory for what they asked or sent.
    malloc_fails
    /// Attempts to authenticate.
    auth_cmds
    /// Attempts to authenticate that failed.
    auth_errors
}

impl OpCounters {
    /// Counts the misses of this thread's session that found a dead item.
    pub(crate) fn count_dead(&self, session: &Session) {
        let (expired, flushed) = session.dead_found();
        self.get_expired.set(expired);
        self.get_flushed.set(flushed);
    }

    /// Counts a store with a CAS id. `class` is that of the item that was there, if any.
    pub(super) fn count_cas(&self, result: Result<(), NotStored>, class: Option<usize>) {
        let class = class.unwrap_or(usize::MAX);
        match result {
            Ok(()) => {
                self.cas_hits.inc();
                self.classes.cas_hits(class);
            }
            Err(NotStored::Exists) => {
                self.cas_badval.inc();
                self.classes.cas_badval(class);
            }
            Err(NotStored::NotFound) => self.cas_misses.inc(),
            Err(_) => {}
        }
    }

    /// Counts an increment or decrement of a number that was there, in `class`, or of none.
    pub(super) fn count_arith(
        &self,
        decrement: bool,
        result: &Result<Counted, ArithFailure>,
        class: Option<usize>,
    ) {
        let class = class.unwrap_or(usize::MAX);
        match (decrement, result) {
            (false, Ok(Counted { created: false, .. })) => {
                self.incr_hits.inc();
                self.classes.incr_hits(class);
            }
            (true, Ok(Counted { created: false, .. })) => {
                self.decr_hits.inc();
                self.classes.decr_hits(class);
            }
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

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("version", &self.version).finish_non_exhaustive()
    }
}

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
            engine: OnceLock::new(),
            late_settings: OnceLock::new(),
            stop_asked: AtomicBool::new(false),
            keep_asked: AtomicBool::new(false),
            started: Instant::now(),
            ops: Mutex::new(Vec::new()),
            before: Mutex::default(),
        }
    }

    /// Names the one who tells of engines. The first call counts.
    pub fn tell_engine(&self, facts: Arc<dyn EngineFacts>) {
        let _ = self.engine.set(facts);
    }

    /// Adds to `stats settings` what start-up learns last. The first call counts.
    pub fn tell_settings(&self, settings: Vec<(&'static str, String)>) {
        let _ = self.late_settings.set(settings);
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

    /// The sum over all threads, since start-up.
    pub fn totals(&self) -> OpTotals {
        let mut totals = OpTotals::default();
        for ops in self.ops.lock().iter() {
            totals.take(ops);
        }
        totals
    }

    /// The same since counting last began, by `stats reset` or at start-up.
    pub fn counted(&self) -> OpTotals {
        self.totals().less(&self.before.lock().ops)
    }

    /// The sum over all threads by size class, since counting last began.
    fn counted_by_class(&self) -> Vec<ClassCount> {
        let mut counts = self.totals_by_class();
        for (count, before) in counts.iter_mut().zip(&self.before.lock().classes) {
            count.subtract(before);
        }
        counts
    }

    fn totals_by_class(&self) -> Vec<ClassCount> {
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

    fn latencies_counted(&self) -> latency::Totals {
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

    /// Begins again to count all that is counted, but for what is there now.
    pub fn reset(&self) {
        self.store.reset_counts();
        self.detail.forget();
        for ops in self.ops.lock().iter() {
            ops.hot_keys.forget();
        }
        let (ops, classes) = (self.totals(), self.totals_by_class());
        *self.before.lock() = Baseline { ops, classes, latency: self.latencies() };
    }

    /// Asks the process to end, and to keep the items where there is something to keep them in.
    pub fn ask_to_stop(&self, keep: bool) {
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

/// Tells of the engines: what they are, and what they have done.
pub trait EngineFacts: Send + Sync {
    /// Names and values, in order.
    fn rows(&self, row: &mut dyn FnMut(&str, &dyn fmt::Display));
}

/// Takes the rows of a page, in order.
pub trait Rows {
    /// Takes one.
    fn row(&mut self, name: &str, value: &dyn fmt::Display);
}

/// Rows as ASCII clients get them: `STAT <name> <value>`.
#[derive(Debug)]
struct Lines<'a, S: Sink>(&'a mut S);

impl<S: Sink> Rows for Lines<'_, S> {
    fn row(&mut self, name: &str, value: &dyn fmt::Display) {
        self.0.put(format!("STAT {name} {value}\r\n").as_bytes());
    }
}

/// A page about the whole, which collectors read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overview {
    /// `stats`.
    General,
    /// `stats settings`.
    Settings,
    /// `stats items`.
    Items,
    /// `stats slabs`.
    Slabs,
    /// `stats engine`.
    Engine,
}

/// Writes the rows of such a page, for which nobody need be a client.
pub fn overview(page: Overview, server: &Server, rows: &mut impl Rows) {
    match page {
        Overview::General => general::page(server, rows),
        Overview::Settings => settings::page(server, rows),
        Overview::Items => classes::items(server, rows),
        Overview::Slabs => classes::slabs(server, rows),
        Overview::Engine => {
            if let Some(engine) = server.engine.get() {
                engine.rows(&mut |name, value| rows.row(name, value));
            }
        }
    }
}

/// What comes behind the rows of a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Page {
    /// The end of the rows.
    Rows,
    /// No rows, but text with its line ends, and then the end.
    Text(Vec<u8>),
    /// This line, in memcached's words, and nothing else.
    Line(&'static [u8]),
}

/// Makes the page `what`, which may have arguments: `None` or nothing for the general one.
pub fn page(
    what: Option<&[u8]>,
    server: &Server,
    session: &mut Session,
    rows: &mut impl Rows,
) -> Page {
    let words = what.unwrap_or_default().split(|&b| b == b' ').filter(|w| !w.is_empty());
    let words: arrayvec::ArrayVec<&[u8], 4> = words.take(4).collect();
    match words.as_slice() {
        [] => overview(Overview::General, server, rows),
        [b"settings", ..] => overview(Overview::Settings, server, rows),
        [b"items", ..] => overview(Overview::Items, server, rows),
        [b"slabs", ..] => overview(Overview::Slabs, server, rows),
        // As memcached without `-o track_sizes`.
        [b"sizes" | b"sizes_disable", ..] => rows.row("sizes_status", &"disabled"),
        [b"sizes_enable", ..] => {
            rows.row("sizes_status", &"error");
            rows.row("sizes_error", &"sizes are not tracked by this server");
        }
        [b"conns", ..] => server.conns.page(rows),
        [b"latency", ..] => server.latencies_counted().page(rows),
        [b"engine", ..] => overview(Overview::Engine, server, rows),
        [b"hotkeys", ..] => hotkeys::page(server.ops.lock().iter().map(|o| &o.hot_keys), rows),
        [b"reset", ..] => {
            server.reset();
            return Page::Line(b"RESET\r\n");
        }
        [b"detail", what, ..] => return server.detail.page(what),
        [b"detail"] => return detail::USAGE,
        [b"cachedump", class, limit, ..] => return cachedump(class, limit, server, session),
        [b"cachedump", ..] => {
            return Page::Line(b"CLIENT_ERROR bad command line\r\n");
        }
        _ => return Page::Line(Refusal::Error.line()),
    }
    Page::Rows
}

/// Writes the reply to `stats [what]`.
pub fn write(what: Option<&[u8]>, server: &Server, session: &mut Session, out: &mut impl Sink) {
    match page(what, server, session, &mut Lines(out)) {
        Page::Rows => out.put(b"END\r\n"),
        Page::Text(text) => {
            out.put(&text);
            out.put(b"END\r\n");
        }
        Page::Line(line) => out.put(line),
    }
}

/// Most bytes of a `stats cachedump`, as in memcached, and most chunks looked at for one.
const CACHEDUMP_MAX_BYTES: usize = 2 << 20;
const CACHEDUMP_CHUNKS: u32 = 1 << 18;

/// The last class that memcached may have.
const CLASS_MAX: usize = 63;

/// Some items of a class: `ITEM <key> [<bytes> b; <expiry> s]`.
fn cachedump(class: &[u8], limit: &[u8], server: &Server, session: &mut Session) -> Page {
    if !server.dump_allowed {
        return Page::Line(b"CLIENT_ERROR stats cachedump not allowed\r\n");
    }
    let number = |word| std::str::from_utf8(word).ok()?.parse::<u32>().ok();
    let (Some(class), Some(limit)) = (number(class), number(limit)) else {
        return Page::Line(Refusal::BadLineFormat.line());
    };
    if class as usize > server.store.classes().max(CLASS_MAX) {
        return Page::Line(b"CLIENT_ERROR Illegal slab id\r\n");
    }
    let (mut text, mut items) = (Vec::new(), 0);
    let guard = session.pin();
    let clock = server.store.clock();
    let wanted = |c| c == class;
    guard.walk(Cursor::default(), CACHEDUMP_CHUNKS, wanted, |item, _| {
        let expiry = match item.expiry() {
            0 => 0,
            expiry => clock.unix(expiry),
        };
        text.extend_from_slice(b"ITEM ");
        put_plain(item.key(), &mut text);
        text.extend(format!(" [{} b; {expiry} s]\r\n", item.value().len()).bytes());
        items += 1;
        items != limit && text.len() < CACHEDUMP_MAX_BYTES
    });
    Page::Text(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::sink::Buffer;
    use crate::store::{StoreConfig, verbs};
    use driver_shim::Pages;

    fn ask(what: &[u8], server: &Server) -> String {
        let mut bytes = Vec::new();
        let mut session = server.store.session().unwrap();
        let mut buffer = Buffer::new(&mut bytes, 0);
        write(Some(what), server, &mut session, &mut buffer);
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
