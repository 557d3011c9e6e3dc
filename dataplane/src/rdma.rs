//! What one-sided reads share: queue pairs, opened over TCP and read by any worker, and stags.
//!
//! ```text
//! TCP, any thread:  `rdma` ── QueuePairs::open ──► Handle, closed when it is dropped
//!                   `mg k g` ── Stags::of ──► stag
//! worker:           READ ── QueuePairs::pair ──► Pair::judge    (stages/rdma)
//!                        └─ Stags::place ──► where the item is
//! ```
//!
//! All memory is taken at the start. A worker never waits for a pair: one that another thread holds
//! is busy, and the client tries again. Opening and closing lock; they are rare.

mod pair;
mod pairs;
mod stag;

pub use pair::{Between, Pair, Verdict};
pub use pairs::{Handle, Opened, QueuePairs, Unopened};
pub use stag::Stags;

use std::sync::Arc;

/// Bytes of the head of what a READ of a stag gets.
pub const HEAD_BYTES: usize = 32;
/// Bytes behind it all, by which a client knows that it has one version.
pub const TAIL_BYTES: usize = 8;
/// Most bytes of one READ: a value of 64 KB with the longest key, its head and its end.
pub const READ_MAX_BYTES: usize = (64 << 10) + HEAD_BYTES + base::KEY_MAX_BYTES + TAIL_BYTES;

/// One-sided reads of one process.
#[derive(Debug)]
pub struct Rdma {
    /// What keys are called by.
    pub stags: Stags,
    /// Who may read.
    pub pairs: Arc<QueuePairs>,
}

impl Default for Rdma {
    fn default() -> Self {
        Self { stags: Stags::new(), pairs: Arc::new(QueuePairs::new()) }
    }
}

/// Bytes of a READ that gets all of an item. `None`: longer than is read at once.
pub fn read_len(key_len: usize, value_len: usize) -> Option<usize> {
    let len = HEAD_BYTES + key_len + TAIL_BYTES;
    len.checked_add(value_len).filter(|len| *len <= READ_MAX_BYTES)
}
