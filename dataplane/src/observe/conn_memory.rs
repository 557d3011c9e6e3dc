//! Memory of connections: what the one account for their buffers holds, and whom it refused.
//!
//! In: charges and refusals, from every thread that serves connections. Out: rows of `stats`,
//! metrics. Never fails.

use std::sync::atomic::{AtomicU64, Ordering};

/// The account's figures. Each is written by many threads, when a buffer is large enough to be
/// charged: not for every request.
#[derive(Debug, Default)]
pub struct ConnMemory {
    limit_bytes: AtomicU64,
    used_bytes: AtomicU64,
    used_max_bytes: AtomicU64,
    charges: AtomicU64,
    waiting: AtomicU64,
    waits: AtomicU64,
    requests_refused: AtomicU64,
    replies_refused: AtomicU64,
    stalled: AtomicU64,
}

/// What they are at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ConnMemoryNow {
    /// Most bytes that buffers of connections may take (`--conn-memory`).
    pub limit_bytes: u64,
    /// Bytes charged.
    pub used_bytes: u64,
    /// The most that were charged at one time.
    pub used_max_bytes: u64,
    /// Connections with something charged.
    pub charges: u64,
    /// Connections that wait for memory.
    pub waiting: u64,
    /// Times that a connection had to wait.
    pub waits: u64,
    /// Requests refused because there was no memory to read them.
    pub requests_refused: u64,
    /// Replies refused because there was no memory to write them.
    pub replies_refused: u64,
    /// Connections that held memory others waited for, and moved too little: their request was
    /// refused, or they were closed.
    pub stalled: u64,
}

impl ConnMemory {
    /// Says how much there is.
    pub fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// So many bytes were charged to one more connection.
    pub fn take(&self, bytes: u64) {
        let before = self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used_max_bytes.fetch_max(before + bytes, Ordering::Relaxed);
        self.charges.fetch_add(1, Ordering::Relaxed);
    }

    /// What [`Self::take`] charged is given back.
    pub fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.charges.fetch_sub(1, Ordering::Relaxed);
    }

    /// Of what [`Self::take`] charged, so much is given back already.
    pub fn shrink(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A connection waits for memory.
    pub fn begin_wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// It waits no longer.
    pub fn end_wait(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// A request was refused because there was no memory to read it.
    pub fn refuse_request(&self) {
        self.requests_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A reply was refused because there was no memory to write it.
    pub fn refuse_reply(&self) {
        self.replies_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection held memory that others waited for, and moved too little.
    pub fn stall(&self) {
        self.stalled.fetch_add(1, Ordering::Relaxed);
    }

    /// Everything, as it is now.
    pub fn now(&self) -> ConnMemoryNow {
        let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
        ConnMemoryNow {
            limit_bytes: get(&self.limit_bytes),
            used_bytes: get(&self.used_bytes),
            used_max_bytes: get(&self.used_max_bytes),
            charges: get(&self.charges),
            waiting: get(&self.waiting),
            waits: get(&self.waits),
            requests_refused: get(&self.requests_refused),
            replies_refused: get(&self.replies_refused),
            stalled: get(&self.stalled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_and_given_back_is_counted() {
        let memory = ConnMemory::default();
        memory.set_limit(100);
        memory.take(30);
        memory.take(40);
        memory.give_back(30);
        memory.begin_wait();
        memory.begin_wait();
        memory.end_wait();
        let want = ConnMemoryNow {
            limit_bytes: 100,
            used_bytes: 40,
            used_max_bytes: 70,
            charges: 1,
            waiting: 1,
            waits: 2,
            ..ConnMemoryNow::default()
        };
        assert_eq!(memory.now(), want);
    }
}
