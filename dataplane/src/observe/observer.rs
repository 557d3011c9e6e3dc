//! The one place where what clients do is counted and shown.
//!
//! In: what each verb did, once, after it did it. Out: counters by verb and size class, hot keys,
//! prefix statistics, the lines of watchers. Without watchers, none of it allocates or locks.
//! Never fails.
//!
//! A function named `..._part` leaves totals to be counted for a whole run. Which ways call what:
//!
//! | way | for each key | behind the last |
//! |---|---|---|
//! | `commands`: `get`, `gat` | `key_part` | `look_ups`, `dead`; `command` |
//! | `commands`: `mg` | `key_or_made` | `dead`; `command` |
//! | `commands`: stores | `before`, `stored` | `command` |
//! | `commands`: other verbs | `before`, the function of the verb | `command` |
//! | `commands`: a run of plain `get`s, unwatched | `unwatched_key_part` | `dead`, `look_ups`, `commands` |
//! | `commands`, `execute`: a plain `set` | `before`, `stored`, `command` | |
//! | `execute`: gets of a batch, and READs (`rdma`) | `key_part` | `look_ups`, `dead` |
//! | `fast_path`: gets, unwatched | `class_hit` if found; `hot_key` of those that `pass_keys` picks | `look_ups` |
//! | `fast_path`: plain `set`s, unwatched | `unwatched_set_part` | `sets` |
//!
//! The kind of the others is recorded where they are timed ([`Latency::record`](super::Latency::record)).

use super::detail::Act;
use super::latency::Kind;
use super::op_counters::OpCounters;
use super::server::Server;
use super::watch::{Seen, Stored};
use memcache::admin::Events;
use memcache::{Arith, Refusal, Store, StoreMode};
use store::Session;
use store::verbs::{self, ArithFailure, Counted, NotStored};

/// Where one thread's requests are counted and shown.
#[derive(Debug, Clone, Copy)]
pub struct Observer<'a> {
    /// The thread's counters.
    pub ops: &'a OpCounters,
    /// Of the process.
    pub server: &'a Server,
}

/// What watchers see before a change: the look-up with which memcached begins each. `None`: no connection
/// watches.
#[derive(Debug, Clone, Copy)]
pub struct Before(Option<Option<Seen>>);

/// How a storage command is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreCount {
    /// As a storage command: not, where the binary protocol refuses a value unread.
    pub command: bool,
    /// As one with a CAS id.
    pub cas: bool,
}

/// How a deletion is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// An item of this size class is gone.
    Hit(usize),
    /// There was none, or none to be deleted.
    Miss,
    /// Neither: the item stays, marked, or as it was.
    Neither,
}

/// Look-ups of keys for replies, of which a run was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookUps {
    /// Keys.
    pub keys: u64,
    /// Of these, found.
    pub hits: u64,
}

impl LookUps {
    /// One key.
    #[inline]
    pub fn one(found: bool) -> Self {
        Self { keys: 1, hits: found.into() }
    }
}

impl Observer<'_> {
    /// A command was carried out, or refused.
    #[inline]
    pub fn command(self, kind: Kind) {
        self.ops.latency.note(kind);
    }

    /// So many of one kind were.
    #[inline]
    pub fn commands(self, kind: Kind, n: u64) {
        self.ops.latency.note_all(kind, n);
    }

    /// One key of a get was looked up: all but [`Self::look_ups`].
    #[inline]
    pub fn key_part(self, key: &[u8], found: Option<Seen>, touched: bool) {
        self.hit_or_miss(key, found.map(|seen| seen.class), touched);
        self.fetched(key, found);
    }

    /// One key was looked up by `mg`, which may have made the item. A key not found is not touched.
    pub(crate) fn key_or_made(self, key: &[u8], found: Option<Seen>, made: bool, touched: bool) {
        self.hit_or_miss(key, found.map(|seen| seen.class), touched);
        self.fetched(key, found.filter(|_| !made));
        self.look_ups(LookUps::one(found.is_some()), touched && found.is_some());
    }

    #[inline]
    fn hit_or_miss(self, key: &[u8], class: Option<usize>, touched: bool) {
        self.server.detail.count(key, if class.is_some() { Act::Hit } else { Act::Miss });
        self.unwatched_key_part(key, class, touched);
    }

    /// One key was found in this size class, or not, where no connection watches and no prefix is counted: all but
    /// [`Self::look_ups`].
    #[inline(always)]
    pub fn unwatched_key_part(self, key: &[u8], class: Option<usize>, touched: bool) {
        self.ops.hot_keys.see(key);
        match class {
            Some(class) if touched => self.ops.classes.touch_hits(class),
            Some(class) => self.class_hit(class),
            None => {}
        }
    }

    /// A key of a get was found in this size class: neither [`Self::look_ups`] nor [`Self::hot_key`].
    #[inline(always)]
    pub fn class_hit(self, class: usize) {
        self.ops.classes.get_hits(class);
    }

    /// So many keys were requested. How many of them come before the next that is to be shown to
    /// [`Self::hot_key`]; `None`: all.
    #[inline]
    pub(crate) fn pass_keys(self, keys: u64) -> Option<u64> {
        self.ops.hot_keys.pass(keys)
    }

    /// A key was requested: only for the list of hot keys.
    #[inline(always)]
    pub fn hot_key(self, key: &[u8]) {
        self.ops.hot_keys.see(key);
    }

    /// A run of keys was looked up, to be given a new exptime or not.
    #[inline]
    pub fn look_ups(self, run: LookUps, touched: bool) {
        let ops = self.ops;
        let (asked, hits, misses) = match touched {
            true => (&ops.cmd_touch, &ops.touch_hits, &ops.touch_misses),
            false => (&ops.cmd_get, &ops.get_hits, &ops.get_misses),
        };
        asked.add(run.keys);
        hits.add(run.hits);
        misses.add(run.keys - run.hits);
    }

    /// Misses of this thread's session that found a dead item.
    pub fn dead(self, session: &Session) {
        let (expired, flushed) = session.dead_found();
        self.ops.get_expired.set(expired);
        self.ops.get_flushed.set(flushed);
    }

    /// The look-up before a change, if a connection watches.
    #[inline]
    pub fn before(self, session: &mut Session, key: &[u8]) -> Before {
        let watched = self.server.watchers.want(Events::FETCHERS);
        Before(watched.then(|| look(session, key)))
    }

    #[inline]
    fn looked(self, key: &[u8], before: Before) {
        if let Before(Some(found)) = before {
            self.fetched(key, found);
        }
    }

    /// Shows a look-up.
    #[inline]
    fn fetched(self, key: &[u8], found: Option<Seen>) {
        if self.server.watchers.want(Events::FETCHERS) {
            self.server.watchers.fetched(key, found, self.ops.client.get());
        }
    }

    /// A storage command was carried out, or refused by the store.
    #[inline(always)]
    pub fn stored(
        self,
        session: &mut Session,
        what: &Store<'_>,
        before: Before,
        result: Result<verbs::Stored, NotStored>,
        count: StoreCount,
    ) {
        self.looked(what.key, before);
        // As memcached, which counts a store once it has memory for what came.
        let joins = matches!(what.mode, StoreMode::Append | StoreMode::Prepend);
        let has_memory = match result {
            Err(NotStored::OutOfMemory) => false,
            Err(NotStored::TooLarge) => joins,
            _ => true,
        };
        if count.command && has_memory {
            self.storage_commands(1);
        }
        self.ops.hot_keys.see(what.key);
        self.server.detail.count(what.key, Act::Set);
        let own_cas = what.own_cas.is_some();
        if has_memory {
            self.class_set(session, what.key, what.value.len(), own_cas);
        }
        if count.cas {
            self.cas(result);
        }
        self.refused_by_store(result);
        if self.server.watchers.want(Events::MUTATIONS) {
            self.show_stored(session, what, result, count.cas);
        }
    }

    /// A plain `set` was carried out, or refused by the store, where no connection watches and no prefix is
    /// counted: all but [`Self::sets`].
    #[inline(always)]
    pub fn unwatched_set_part(
        self,
        session: &Session,
        key: &[u8],
        value_len: usize,
        result: Result<verbs::Stored, NotStored>,
    ) {
        self.ops.hot_keys.see(key);
        match result {
            Ok(_) => self.class_set(session, key, value_len, false),
            Err(_) => self.refused_by_store(result),
        }
    }

    /// So many plain `set`s were carried out, or refused by the store: the latter, as a part of them.
    #[inline]
    pub fn sets(self, n: u64, refused: u64) {
        self.storage_commands(n - refused);
        self.commands(Kind::Store, n);
    }

    #[inline(always)]
    fn refused_by_store(self, result: Result<verbs::Stored, NotStored>) {
        match result {
            Err(NotStored::TooLarge) => self.too_large(),
            Err(NotStored::OutOfMemory) => self.no_memory(),
            _ => {}
        }
    }

    #[inline]
    fn storage_commands(self, n: u64) {
        self.ops.cmd_set.add(n);
    }

    /// A storage command of an item of this size.
    #[inline(always)]
    fn class_set(self, session: &Session, key: &[u8], value_len: usize, own_cas: bool) {
        if let Some(class) = session.store().class_for(key.len(), value_len, own_cas) {
            self.ops.classes.cmd_set(class);
        }
    }

    fn too_large(self) {
        self.ops.store_too_large.inc();
    }

    fn no_memory(self) {
        self.ops.store_no_memory.inc();
    }

    /// A store with a CAS id.
    fn cas(self, result: Result<verbs::Stored, NotStored>) {
        match result {
            Ok(stored) => {
                self.ops.cas_hits.inc();
                self.ops.classes.cas_hits(stored.class.unwrap_or(usize::MAX));
            }
            Err(NotStored::Exists(class)) => {
                self.ops.cas_badval.inc();
                self.ops.classes.cas_badval(class);
            }
            Err(NotStored::NotFound) => self.ops.cas_misses.inc(),
            Err(_) => {}
        }
    }

    #[cold]
    fn show_stored(
        self,
        session: &mut Session,
        what: &Store<'_>,
        result: Result<verbs::Stored, NotStored>,
        cas: bool,
    ) {
        let guard = session.pin();
        let (store, clock) = (guard.store(), guard.store().clock());
        // Of what was joined, all of it is shown.
        let joined = matches!(what.mode, StoreMode::Append | StoreMode::Prepend) && result.is_ok();
        let item = joined.then(|| guard.find(store.hash(what.key), what.key)).flatten();
        let (expiry, class, size) = match item {
            Some(item) => (item.expiry(), Some(store.class_of(&item)), item.value().len()),
            None => {
                let (size, own_cas) = (what.value.len(), what.own_cas.is_some());
                let class = store.class_for(what.key.len(), size, own_cas);
                (clock.expiry(what.exptime), class, size)
            }
        };
        let stored = Stored {
            key: what.key,
            status: status(result),
            command: if cas { "cas" } else { what.mode.name() },
            ttl: expiry.saturating_sub(clock.now()),
            class: class.map_or(0, |class| class + 1),
            size,
        };
        self.server.watchers.stored(&stored, self.ops.client.get());
    }

    /// A request was refused by its parser. `forgotten` is the key of a `set` that failed.
    pub fn refused(self, session: &mut Session, why: Refusal, forgotten: Option<&[u8]>) {
        match why {
            Refusal::TooLarge => self.too_large(),
            Refusal::OutOfMemoryReading => self.no_memory(),
            // It was a storage command, and had all of its data.
            Refusal::BadDataChunk => self.storage_commands(1),
            _ => {}
        }
        let Some(key) = forgotten else { return };
        if self.server.watchers.want(Events::MUTATIONS) {
            let status = status(Err(NotStored::TooLarge));
            let refused = Stored { key, status, command: "set", ttl: 0, class: 0, size: 0 };
            self.server.watchers.stored(&refused, self.ops.client.get());
        }
        // What was there is still there.
        let before = self.before(session, key);
        self.looked(key, before);
    }

    /// What a deletion is about to find, if a connection watches.
    pub(crate) fn doomed(self, session: &mut Session, key: &[u8]) -> Option<Seen> {
        if self.server.watchers.want(Events::DELETIONS) { look(session, key) } else { None }
    }

    /// An item that was there was deleted by this command, and a connection watches.
    pub(crate) fn show_deleted(self, key: &[u8], gone: Seen, command: &str) {
        self.server.watchers.deleted(key, gone, command);
    }

    /// A key was deleted, or not.
    pub fn deleted(self, key: &[u8], before: Before, how: Deletion) {
        self.looked(key, before);
        self.ops.hot_keys.see(key);
        self.server.detail.count(key, Act::Delete);
        match how {
            Deletion::Hit(class) => {
                self.ops.delete_hits.inc();
                self.ops.classes.delete_hits(class);
            }
            Deletion::Miss => self.ops.delete_misses.inc(),
            Deletion::Neither => {}
        }
    }

    /// A number was counted, or not.
    pub fn counted(
        self,
        session: &Session,
        before: Before,
        what: &Arith<'_>,
        result: Result<Counted, ArithFailure>,
    ) {
        self.looked(what.key, before);
        self.ops.hot_keys.see(what.key);
        let ops = self.ops;
        match (what.decrement, result) {
            (false, Ok(Counted { class: Some(class), .. })) => {
                ops.incr_hits.inc();
                ops.classes.incr_hits(class);
            }
            (true, Ok(Counted { class: Some(class), .. })) => {
                ops.decr_hits.inc();
                ops.classes.decr_hits(class);
            }
            (false, Err(ArithFailure::NotFound)) => ops.incr_misses.inc(),
            (true, Err(ArithFailure::NotFound)) => ops.decr_misses.inc(),
            _ => {}
        }
        if let (Some(initial), Ok(Counted { created: true, .. })) = (what.initial, result) {
            self.show_created(session, what, initial);
        }
    }

    /// Shows a number that was not there before counting: memcached looks again, and adds it.
    fn show_created(self, session: &Session, what: &Arith<'_>, (number, exptime): (u64, i64)) {
        let key = what.key;
        self.fetched(key, None);
        if self.server.watchers.want(Events::MUTATIONS) {
            let (store, size) = (session.store(), itoa::Buffer::new().format(number).len());
            let ttl = store.clock().expiry(exptime).saturating_sub(store.clock().now());
            let class = store.class_for(key.len(), size, what.own_cas.is_some());
            let class = class.map_or(0, |class| class + 1);
            let added = Stored { key, status: "stored", command: "add", ttl, class, size };
            self.server.watchers.stored(&added, self.ops.client.get());
        }
    }

    /// A key was given a new exptime, or not, and nothing is sent of it. `class` is the item's.
    pub fn touched(self, key: &[u8], before: Before, class: Option<usize>) {
        self.looked(key, before);
        self.unwatched_key_part(key, class, true);
        self.look_ups(LookUps::one(class.is_some()), true);
    }

    /// Everything was forgotten, or all keys of a prefix.
    pub fn flushed(self) {
        self.ops.cmd_flush.inc();
    }

    /// A client read an item's metadata (`me`).
    pub(crate) fn asked_about(self, key: &[u8], before: Before) {
        self.ops.cmd_meta.inc();
        self.looked(key, before);
    }
}

#[cold]
fn look(session: &mut Session, key: &[u8]) -> Option<Seen> {
    let guard = session.pin();
    guard.find(guard.store().hash(key), key).map(|item| Seen::of(&guard, &item))
}

/// What watchers are shown became of a storage command.
fn status(result: Result<verbs::Stored, NotStored>) -> &'static str {
    match result {
        Ok(_) => "stored",
        Err(NotStored::Exists(_)) => "exists",
        Err(NotStored::NotFound) => "not_found",
        Err(NotStored::Condition) => "not_stored",
        Err(NotStored::TooLarge) => "too_large",
        Err(NotStored::OutOfMemory) => "no_memory",
    }
}
