//! `watch`: a connection that is told what happens, a line for each event.
//!
//! ```text
//! executor, store, TCP service ──lines──► a bounded buffer per watcher ──take──► its connection
//! ```
//!
//! Enters: events, as they happen. Leaves: lines in memcached's form, `key=value` pairs. While
//! nobody watches, an event costs one load. Whoever is slow to take its lines loses some, and
//! is told how many. Fails: there can be so many watchers and no more.

use super::keys::put_encoded;
use crate::store::{Evictions, ItemRef};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most watchers at a time, as in memcached.
const WATCHERS_MAX: usize = 20;

/// Bytes of lines that wait for one watcher: memcached's default.
pub const BUFFER_BYTES: usize = 256 << 10;

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events(u8);

impl Events {
    /// Keys asked for.
    pub const FETCHERS: Self = Self(1);
    /// Items stored, or refused.
    pub const MUTATIONS: Self = Self(2);
    /// Items that made room.
    pub const EVICTIONS: Self = Self(4);
    /// Connections that come and go.
    pub const CONNECTIONS: Self = Self(8);

    /// The kinds that a client means by these words; none at all are fetchers. `None` for a word
    /// that memcached does not know. What it knows and cannot happen here is accepted.
    pub(super) fn named<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut all = None;
        for word in words {
            let one = match word {
                b"fetchers" => Self::FETCHERS,
                b"mutations" => Self::MUTATIONS,
                b"evictions" => Self::EVICTIONS,
                b"connevents" => Self::CONNECTIONS,
                b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" | b"rawcmds" => Self(0),
                _ => return None,
            };
            all = Some(Self(all.unwrap_or(Self(0)).0 | one.0));
        }
        Some(all.unwrap_or(Self::FETCHERS))
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// All watchers.
#[derive(Debug, Default)]
pub struct Watchers {
    /// What any of them wants.
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

/// What the watchers have been told.
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
    /// Whether anybody watches events of one of these kinds.
    #[inline]
    pub fn want(&self, events: Events) -> bool {
        Events(self.wanted.load(Ordering::Relaxed)).has(events)
    }

    /// A new watcher; `None` when there are as many as there can be.
    pub(super) fn watch(self: &Arc<Self>, events: Events) -> Option<Watching> {
        let mut list = self.list.lock();
        if list.len() == WATCHERS_MAX {
            return None;
        }
        let mine = Arc::new(Waiting { events, text: Mutex::default() });
        list.push(Arc::clone(&mine));
        self.heed(&list);
        Some(Watching { all: Arc::clone(self), mine })
    }

    fn heed(&self, list: &[Arc<Waiting>]) {
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

    /// Gives the line `type=<kind> [key=<key> ]<rest>` to those who want events of this kind.
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

    /// A key was asked for. `found` is the class, from 0, and the bytes of the value.
    pub(super) fn fetched(&self, key: &[u8], found: Option<(usize, usize)>, fd: u64) {
        let status = if found.is_some() { "found" } else { "not_found" };
        let (class, size) = found.map_or((0, 0), |(class, size)| (class + 1, size));
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

    /// A connection came. No address: a Unix socket.
    pub fn connected(&self, peer: Option<SocketAddr>, fd: i32) {
        if self.want(Events::CONNECTIONS) {
            let rest = format_args!("{} cfd={fd}", Peer(peer));
            self.tell(Events::CONNECTIONS, "conn_new", None, rest);
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
        self.all.heed(&list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(words: &[&[u8]]) -> Option<Events> {
        Events::named(words.iter().copied())
    }

    #[test]
    fn words_name_events() {
        assert_eq!(named(&[]), Some(Events::FETCHERS));
        assert_eq!(named(&[b"mutations", b"evictions"]), Some(Events(6)));
        assert_eq!(named(&[b"sysevents"]), Some(Events(0)));
        assert_eq!(named(&[b"fetchers", b"bogus"]), None);
    }

    #[test]
    fn each_watcher_is_told_what_it_wants() {
        let all: Arc<Watchers> = Arc::default();
        let gets = all.watch(Events::FETCHERS).unwrap();
        let conns = all.watch(Events::CONNECTIONS).unwrap();
        assert!(all.want(Events::FETCHERS) && !all.want(Events::MUTATIONS));
        all.fetched(b"a b", Some((3, 17)), 9);
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
