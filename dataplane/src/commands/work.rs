//! The work of commands beside their place in a batch, and how much work one datagram may cause.
//!
//! In: what the session and the counters say before and after commands of a datagram, or of one turn of
//! a connection. Out: whether the next command may still be carried out, and how many requests of their source's
//! rate all of it is worth. Work is counted in bytes copied; what is not copying counts as so many bytes as
//! are copied in the time that it takes (`docs/decisions/0026-work-over-udp.md`).
//! Never fails.

use super::ctx::Ctx;
use crate::observe::OpCounters;
use crate::policy::REQUEST_BYTES;
use store::Session;

/// A command: read, carried out, answered in a line.
const COMMAND_BYTES: u64 = 1 << 10;

/// A key that was looked up for a reply, or listed.
const KEY_BYTES: u64 = 1 << 10;

/// A `stats`: all counters of all threads, and the lock of every class.
pub(super) const STATS_BYTES: u64 = 128 << 10;

/// A chunk that a dump looked at.
const CHUNK_BYTES: u64 = 256;

/// Counts a walk that looked at so many chunks, and listed so many keys.
pub(super) fn count_walk(ctx: &Ctx<'_>, chunks: u32, keys: u64) {
    let work = u64::from(chunks) * CHUNK_BYTES + keys * KEY_BYTES;
    ctx.observer.ops.listing_bytes.add(work);
}

/// Once the commands of a datagram have copied so much within the store, those behind them are
/// refused. What replies copy is bounded by the datagrams of a reply, and how many commands there
/// are by the length of a packet.
const DATAGRAM_BYTES_MAX: u64 = 256 << 10;

/// The work of one datagram, or of one turn of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    copied_before: u64,
    keys_before: u64,
    listing_before: u64,
    commands: u64,
}

impl Work {
    /// Before the first command.
    pub(crate) fn begin(session: &Session, ops: &OpCounters) -> Self {
        Self {
            copied_before: session.copied_bytes(),
            keys_before: ops.keys_looked_up(),
            listing_before: ops.listing_bytes.get(),
            commands: 0,
        }
    }

    /// Whether the commands so far leave nothing for another.
    #[inline]
    pub(crate) fn is_done(&self, session: &Session, ops: &OpCounters) -> bool {
        self.in_store(session, ops) >= DATAGRAM_BYTES_MAX
    }

    /// So many more commands are carried out, or refused.
    #[inline]
    pub(crate) fn count(&mut self, commands: u64) {
        self.commands += commands;
    }

    /// Requests of a rate that all of it is worth.
    pub(crate) fn requests(&self, session: &Session, ops: &OpCounters, reply_bytes: u64) -> u64 {
        let keys = ops.keys_looked_up().saturating_sub(self.keys_before);
        let in_memory = self.in_store(session, ops).saturating_add(reply_bytes);
        in_memory.saturating_add(self.commands * COMMAND_BYTES + keys * KEY_BYTES) / REQUEST_BYTES
    }

    #[inline]
    fn in_store(&self, session: &Session, ops: &OpCounters) -> u64 {
        let copied = session.copied_bytes().saturating_sub(self.copied_before);
        copied.saturating_add(ops.listing_bytes.get().saturating_sub(self.listing_before))
    }
}
