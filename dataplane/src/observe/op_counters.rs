//! What one thread has done, and the sums over all of them.
//!
//! In: what the [`Observer`](super::Observer) saw of verbs; what connections do is counted by those
//! who serve them. Out: totals. Each thread writes a block of its own; readers may be a moment
//! behind. Never fails.

use super::classes::ClassOps;
use super::hotkeys::HotKeys;
use super::latency::Latency;
use crate::counters::Counter;

macro_rules! op_counters {
    (
        verbs { $($(#[doc = $doc:literal])* $name:ident)* }
        others { $($(#[doc = $other_doc:literal])* $other:ident)* }
    ) => {
        /// Operations carried out by one thread. That thread alone writes them, on cache lines of its
        /// own. What verbs do is counted by the [`Observer`](super::Observer) alone.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct OpCounters {
            $($(#[doc = $doc])* pub(super) $name: Counter,)*
            $($(#[doc = $other_doc])* pub $other: Counter,)*
            /// By size class.
            pub(super) classes: ClassOps,
            /// How long requests took.
            pub latency: Latency,
            /// Which keys are requested most.
            pub(super) hot_keys: HotKeys,
            /// Gauge: the file descriptor of the connection whose request is being answered; 0
            /// for UDP.
            pub client: Counter,
            /// Gauge: listeners where nothing is accepted for now.
            pub not_accepting: Counter,
            /// Bytes that are copied in the time that `stats` and dumps took, for rates.
            pub(crate) listing_bytes: Counter,
        }

        /// The sum of every thread's [`OpCounters`].
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct OpTotals {
            $($(#[doc = $doc])* pub $name: u64,)*
            $($(#[doc = $other_doc])* pub $other: u64,)*
        }

        impl OpTotals {
            pub(super) fn take(&mut self, ops: &OpCounters) {
                $(self.$name += ops.$name.get();)*
                $(self.$other += ops.$other.get();)*
            }

            pub(super) fn less(self, before: &Self) -> Self {
                Self {
                    $($name: self.$name.saturating_sub(before.$name),)*
                    $($other: self.$other.saturating_sub(before.$other),)*
                }
            }
        }
    };
}

op_counters! {
verbs {
    /// Keys requested.
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
    /// Items refused for lack of memory.
    store_no_memory
}
others {
    /// Request bytes taken from clients.
    bytes_read
    /// Reply bytes given to clients.
    bytes_written
    /// TCP connections accepted.
    total_connections
    /// TCP connections closed.
    closed_connections
    /// TCP connections refused for lack of a free connection slot (`-c`).
    rejected_connections
    /// Connections closed because nothing came for too long.
    idle_kicks
    /// Turns that a connection ended with requests left.
    conn_yields
    /// Times that no connection could be accepted, for lack of files, memory, or a free slot that it waits for.
    accept_failures
    /// Microseconds in which nothing was accepted because of that.
    accept_paused_us
    /// Connections ended because there was no memory for what they asked or sent.
    malloc_fails
    /// Attempts to authenticate.
    auth_cmds
    /// Attempts to authenticate that failed.
    auth_errors
    /// TLS sessions begun anew.
    tls_sessions
    /// TLS handshakes that failed.
    tls_handshake_errors
    /// TLS connections ended by what was no record of theirs.
    tls_proto_errors
    /// TLS connections closed because their source had too many handshakes under way.
    tls_refused
}
}

impl OpCounters {
    /// Keys that this thread has looked up for replies.
    pub(crate) fn keys_looked_up(&self) -> u64 {
        self.cmd_get.get().wrapping_add(self.cmd_touch.get())
    }
}
