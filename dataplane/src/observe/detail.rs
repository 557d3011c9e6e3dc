//! `stats detail`: gets, hits, sets and deletes by the prefix of their keys.
//!
//! In: keys, while it is switched on. Out: a line per prefix. Off, it costs a request one
//! load of a flag. On, each request takes one lock that all threads share, and a new prefix
//! allocates. The number of prefixes is bounded: what comes later is counted under no name. Never
//! fails.

use super::key_text::put_plain;
use super::rows::Page;
use memcache::KEY_MAX_BYTES;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most prefixes that are distinguished: some megabytes of memory.
const PREFIXES_MAX: usize = 10_000;

/// What `stats detail` answers when it was asked something else.
pub(crate) const USAGE: Page = Page::Line(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n");

/// The prefixes, and whether they are counted.
#[derive(Debug)]
pub struct Detail {
    on: AtomicBool,
    /// Ends a prefix (`-D`). A key without it has none.
    delimiter: u8,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    by_prefix: BTreeMap<Box<[u8]>, Count>,
    /// Requests whose prefix is not in the full table.
    others: Count,
}

/// What was done under one prefix.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// What is done with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Requested, and not found.
    Miss,
    /// Requested, and found.
    Hit,
    /// Stored.
    Set,
    /// Deleted.
    Delete,
}

impl Detail {
    /// Prefixes up to `delimiter`, counted from the beginning or not.
    pub fn new(delimiter: u8, on: bool) -> Self {
        Self { on: AtomicBool::new(on), delimiter, counts: Mutex::default() }
    }

    /// Whether prefixes are counted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Counts, if it is on.
    #[inline]
    pub fn count(&self, key: &[u8], act: Act) {
        if self.is_on() {
            self.count_now(key, act);
        }
    }

    #[cold]
    fn count_now(&self, key: &[u8], act: Act) {
        let end = key.iter().position(|b| *b == self.delimiter);
        let Some(prefix) = end.and_then(|end| key.get(..end)) else { return };
        debug_assert!(prefix.len() < KEY_MAX_BYTES);
        let mut counts = self.counts.lock();
        let counts = &mut *counts;
        let room = counts.by_prefix.len() < PREFIXES_MAX;
        let count = match counts.by_prefix.get_mut(prefix) {
            Some(count) => count,
            None if room => counts.by_prefix.entry(prefix.into()).or_default(),
            None => &mut counts.others,
        };
        match act {
            Act::Miss => count.gets += 1,
            Act::Hit => {
                count.gets += 1;
                count.hits += 1;
            }
            Act::Set => count.sets += 1,
            Act::Delete => count.deletes += 1,
        }
    }

    /// Forgets all counts.
    pub(super) fn forget(&self) {
        *self.counts.lock() = Counts::default();
    }

    /// Carries out `stats detail <what>`.
    pub(crate) fn page(&self, what: &[u8]) -> Page {
        match what {
            b"on" | b"off" => {
                self.on.store(what == b"on", Ordering::Relaxed);
                Page::Line(b"OK\r\n")
            }
            b"dump" => Page::Text(self.dump()),
            _ => USAGE,
        }
    }

    fn dump(&self) -> Vec<u8> {
        let counts = self.counts.lock();
        let mut text = Vec::new();
        let mut line = |prefix: &[u8], c: &Count| {
            text.extend_from_slice(b"PREFIX ");
            put_plain(prefix, &mut text);
            let Count { gets, hits, sets, deletes } = c;
            text.extend(format!(" get {gets} hit {hits} set {sets} del {deletes}\r\n").bytes());
        };
        for (prefix, count) in &counts.by_prefix {
            line(prefix, count);
        }
        if counts.by_prefix.len() == PREFIXES_MAX {
            // No prefix of a key is empty and holds a blank.
            line(b"(others)", &counts.others);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_prefix_while_it_is_on() {
        let detail = Detail::new(b':', false);
        detail.count(b"user:1", Act::Set);
        assert_eq!(detail.page(b"dump"), Page::Text(Vec::new()));
        assert_eq!(detail.page(b"on"), Page::Line(b"OK\r\n"));
        for act in [Act::Set, Act::Hit, Act::Hit, Act::Miss, Act::Delete] {
            detail.count(b"user:1:x", act);
        }
        detail.count(b"no prefix", Act::Set);
        let dump = Page::Text(b"PREFIX user get 3 hit 2 set 1 del 1\r\n".to_vec());
        assert_eq!(detail.page(b"dump"), dump);
        detail.page(b"off");
        detail.count(b"user:1", Act::Set);
        assert_eq!(detail.page(b"dump"), dump);
        detail.forget();
        assert_eq!(detail.page(b"dump"), Page::Text(Vec::new()));
        assert_eq!(detail.page(b"bogus"), USAGE);
    }

    #[test]
    fn a_prefix_ends_no_line() {
        let detail = Detail::new(b':', true);
        detail.count(b"pre\r\nEND\r\n:x", Act::Set);
        let dump = b"PREFIX pre%0D%0AEND%0D%0A get 0 hit 0 set 1 del 0\r\n";
        assert_eq!(detail.page(b"dump"), Page::Text(dump.to_vec()));
    }

    #[test]
    fn prefixes_beyond_the_bound_are_counted_together() {
        let detail = Detail::new(b'/', true);
        for i in 0..PREFIXES_MAX + 3 {
            detail.count(format!("{i}/").as_bytes(), Act::Delete);
        }
        let Page::Text(text) = detail.page(b"dump") else { panic!() };
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), PREFIXES_MAX + 1);
        assert!(text.ends_with("PREFIX (others) get 0 hit 0 set 0 del 3\r\n"));
    }
}
