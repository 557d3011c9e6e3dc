//! `watch`: a connection that is sent what happens, a line for each event.
//!
//! ```text
//! executor, store, TCP service ──lines──► a bounded buffer per watcher ──take──► its connection
//! ```
//!
//! In: events, as they happen. Out: lines in memcached's form, `key=value` pairs. While
//! no connection watches, an event costs one load. A watcher that is slow to take its lines loses some, and
//! is sent how many. Fails: there can be so many watchers and no more.

use super::key_text::put_encoded;
use memcache::admin::Events;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use store::{Evictions, Guard, ItemRef};

/// Most watchers at a time, as in memcached.
const WATCHERS_MAX: usize = 20;

/// Bytes of lines that wait for one watcher: memcached's default.
pub const BUFFER_BYTES: usize = 256 << 10;
/// Pause between two looks for lines that a client is to get.
pub const PAUSE_NS: u64 = 20_000_000;

/// All watchers.
#[derive(Debug, Default)]
pub struct Watchers {
    /// The kinds of events that any of them watches.
    wanted: AtomicU8,
    list: Mutex<Vec<Arc<Waiting>>>,
    lines: AtomicU64,
    sent: AtomicU64,
    skipped: AtomicU64,
}

/// Lines that wait for one watcher.
#[derive(Debug)]
struct Waiting {
    events: Events,
    text: Mutex<Text>,
}

#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    lines: u64,
    /// Lines lost since the last one that was not.
    skipped: u64,
}

/// What the watchers have been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) written: u64,
    pub(super) sent: u64,
    pub(super) skipped: u64,
    pub(super) watchers: usize,
}

/// A watcher's side. Nothing more is kept for it when it goes.
#[derive(Debug)]
pub struct Watching {
    all: Arc<Watchers>,
    mine: Arc<Waiting>,
}

/// What a look-up found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its size class, from 0.
    pub class: usize,
    /// Bytes of its value.
    pub bytes: usize,
}

impl Seen {
    /// This item.
    #[inline]
    pub fn of(guard: &Guard<'_>, item: &ItemRef<'_>) -> Self {
        Self { class: guard.store().class_of(item), bytes: item.value().len() }
    }
}

/// What became of a storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored<'a> {
    pub(super) key: &'a [u8],
    pub(super) status: &'static str,
    pub(super) command: &'static str,
    /// Seconds to live; 0 for ever.
    pub(super) ttl: u32,
    /// From 1.
    pub(super) class: usize,
    /// Bytes of the value.
    pub(super) size: usize,
}

impl Watchers {
    /// Whether a connection watches events of one of these kinds.
    #[inline]
    pub fn want(&self, events: Events) -> bool {
        Events(self.wanted.load(Ordering::Relaxed)).has(events)
    }

    /// A new watcher; `None` when there are as many as there can be.
    pub(crate) fn watch(self: &Arc<Self>, events: Events) -> Option<Watching> {
        let mut list = self.list.lock();
        if list.len() == WATCHERS_MAX {
            return None;
        }
        let mine = Arc::new(Waiting { events, text: Mutex::default() });
        list.push(Arc::clone(&mine));
        self.note_wanted(&list);
        Some(Watching { all: Arc::clone(self), mine })
    }

    fn note_wanted(&self, list: &[Arc<Waiting>]) {
        let wanted = list.iter().fold(0, |all, w| all | w.events.0);
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            written: self.lines.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            watchers: self.list.lock().len(),
        }
    }

    /// Begins again to count.
    pub(super) fn reset_counts(&self) {
        for count in [&self.lines, &self.sent, &self.skipped] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Gives the line `type=<kind> [key=<key> ]<rest>` to the watchers of events of this kind.
    #[cold]
    fn tell(&self, events: Events, kind: &str, key: Option<&[u8]>, rest: std::fmt::Arguments<'_>) {
        let gid = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, micros) = (now.as_secs(), now.subsec_micros());
        let mut line = format!("ts={seconds}.{micros:06} gid={gid} type={kind} ").into_bytes();
        if let Some(key) = key {
            line.extend_from_slice(b"key=");
            put_encoded(key, &mut line);
            line.push(b' ');
        }
        line.extend(format!("{rest}\n").bytes());
        for waiting in self.list.lock().iter().filter(|w| w.events.has(events)) {
            let mut text = waiting.text.lock();
            if text.bytes.len() + line.len() > BUFFER_BYTES {
                text.skipped += 1;
                self.skipped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let skipped = std::mem::take(&mut text.skipped);
            if skipped > 0 {
                text.bytes.extend(format!("skipped={skipped}\n").bytes());
            }
            text.bytes.extend_from_slice(&line);
            text.lines += 1;
        }
    }

    /// A key was requested.
    pub(super) fn fetched(&self, key: &[u8], found: Option<Seen>, fd: u64) {
        let status = if found.is_some() { "found" } else { "not_found" };
        let (class, size) = found.map_or((0, 0), |seen| (seen.class + 1, seen.bytes));
        let rest = format_args!("status={status} clsid={class} cfd={fd} size={size}");
        self.tell(Events::FETCHERS, "item_get", Some(key), rest);
    }

    /// A storage command was carried out, or refused.
    pub(super) fn stored(&self, what: &Stored<'_>, fd: u64) {
        let Stored { key, status, command, ttl, class, size } = *what;
        let rest = format_args!(
            "status={status} cmd={command} ttl={ttl} clsid={class} cfd={fd} size={size}"
        );
        self.tell(Events::MUTATIONS, "item_store", Some(key), rest);
    }

    /// An item was deleted by this command.
    pub(super) fn deleted(&self, key: &[u8], gone: Seen, command: &str) {
        let Seen { class, bytes } = gone;
        let rest = format_args!("cmd={command} clsid={} size={bytes}", class + 1);
        self.tell(Events::DELETIONS, "deleted", Some(key), rest);
    }

    /// A connection came. No address: a Unix socket.
    pub fn connected(&self, peer: Option<SocketAddr>, fd: i32) {
        if self.want(Events::CONNECTIONS) {
            let rest = format_args!("{} cfd={fd}", Peer(peer));
            self.tell(Events::CONNECTIONS, "conn_new", None, rest);
        }
    }

    /// A connection ended because of TLS.
    pub fn tls_failed(&self, why: &str, fd: i32) {
        if self.want(Events::CONNECTIONS) {
            let rest = format_args!("fd={fd} msg={why}");
            self.tell(Events::CONNECTIONS, "conntlserr", None, rest);
        }
    }

    /// A connection went.
    pub fn disconnected(&self, peer: Option<SocketAddr>, reason: &str, fd: i32) {
        if self.want(Events::CONNECTIONS) {
            let rest = format_args!("{} reason={reason} cfd={fd}", Peer(peer));
            self.tell(Events::CONNECTIONS, "conn_close", None, rest);
        }
    }
}

/// Where a connection comes from.
struct Peer(Option<SocketAddr>);

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(a) => write!(f, "rip={} rport={} transport=tcp", a.ip(), a.port()),
            None => write!(f, "rip=unix rport=0 transport=local"),
        }
    }
}

impl Evictions for Watchers {
    fn evicted(&self, item: &ItemRef<'_>, class: u32, now: u32) {
        if self.want(Events::EVICTIONS) {
            let fetched = if item.was_fetched() { "yes" } else { "no" };
            let ttl = match item.expiry() {
                0 => -1,
                expiry => i64::from(expiry) - i64::from(now),
            };
            let idle = now.saturating_sub(item.accessed());
            let size = item.value().len();
            let rest =
                format_args!("fetch={fetched} ttl={ttl} la={idle} clsid={class} size={size}");
            self.tell(Events::EVICTIONS, "eviction", Some(item.key()), rest);
        }
    }
}

impl Watching {
    /// Moves the lines that wait to the end of `to`.
    pub fn take(&self, to: &mut Vec<u8>) {
        let mut text = self.mine.text.lock();
        to.append(&mut text.bytes);
        self.all.sent.fetch_add(std::mem::take(&mut text.lines), Ordering::Relaxed);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut list = self.all.list.lock();
        list.retain(|w| !Arc::ptr_eq(w, &self.mine));
        self.all.note_wanted(&list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_watcher_is_told_what_it_wants() {
        let all: Arc<Watchers> = Arc::default();
        let gets = all.watch(Events::FETCHERS).unwrap();
        let conns = all.watch(Events::CONNECTIONS).unwrap();
        assert!(all.want(Events::FETCHERS) && !all.want(Events::MUTATIONS));
        all.fetched(b"a b", Some(Seen { class: 3, bytes: 17 }), 9);
        all.fetched(b"c", None, 9);
        all.connected(Some(([127, 0, 0, 1], 99).into()), 5);
        let lines = |w: &Watching| {
            let mut text = Vec::new();
            w.take(&mut text);
            String::from_utf8(text).unwrap()
        };
        let text = lines(&gets);
        let mut of = text.lines().map(|l| l.split_once(" gid=").unwrap());
        assert_eq!(
            of.next().unwrap().1,
            "1 type=item_get key=a%20b status=found clsid=4 cfd=9 size=17"
        );
        let (ts, rest) = of.next().unwrap();
        assert_eq!(rest, "2 type=item_get key=c status=not_found clsid=0 cfd=9 size=0");
        assert!(ts.strip_prefix("ts=").unwrap().parse::<f64>().unwrap() > 1e9);
        let conn = "gid=3 type=conn_new rip=127.0.0.1 rport=99 transport=tcp cfd=5\n";
        assert!(lines(&conns).ends_with(conn));
        assert_eq!(lines(&gets), "");
        drop(gets);
        assert!(!all.want(Events::FETCHERS) && all.want(Events::CONNECTIONS));
        assert_eq!(all.counts(), Counts { written: 3, sent: 3, skipped: 0, watchers: 1 });
    }

    #[test]
    fn a_slow_watcher_loses_lines_and_is_told_how_many() {
        let all: Arc<Watchers> = Arc::default();
        let slow = all.watch(Events::FETCHERS).unwrap();
        for _ in 0..BUFFER_BYTES / 50 {
            all.fetched(&[b'k'; 100], None, 1);
        }
        let lost = all.counts().skipped;
        assert!(lost > 0);
        let mut text = Vec::new();
        slow.take(&mut text);
        assert!(text.len() <= BUFFER_BYTES && text.ends_with(b"size=0\n"));
        text.clear();
        all.fetched(b"k", None, 1);
        slow.take(&mut text);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().next().unwrap(), format!("skipped={lost}"));
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn there_are_so_many_watchers_and_no_more() {
        let all: Arc<Watchers> = Arc::default();
        let mut some: Vec<_> =
            (0..WATCHERS_MAX).map(|_| all.watch(Events::FETCHERS).unwrap()).collect();
        assert!(all.watch(Events::FETCHERS).is_none());
        some.pop();
        assert!(all.watch(Events::FETCHERS).is_some());
    }
}
