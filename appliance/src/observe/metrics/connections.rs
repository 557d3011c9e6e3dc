//! The memory of TCP connections: what the one account for their buffers holds, and whom it refused.
//!
//! In: the account's figures. Out: a family for each.

use super::family::{Field, counter, fields, gauge};
use dataplane::observe::ConnMemoryNow;

/// In the order of the page.
pub(super) static MEMORY: &[Field<ConnMemoryNow>] = fields! { &[], m;
    gauge "gnomon_connections_memory_limit_bytes" "Most memory for requests and replies of TCP connections (`--conn-memory`)." m.limit_bytes;
    gauge "gnomon_connections_memory_used_bytes" "What of it is charged." m.used_bytes;
    gauge "gnomon_connections_memory_used_max_bytes" "The most that was charged at one time." m.used_max_bytes;
    gauge "gnomon_connections_memory_waiting" "Connections that wait for memory, for three seconds at most." m.waiting;
    counter "gnomon_connections_memory_waits_total" "Times that a connection had to wait for memory." m.waits;
    counter "gnomon_connections_requests_refused_total" "Requests refused because there was no memory to read them." m.requests_refused;
    counter "gnomon_connections_replies_refused_total" "Replies refused, or connections closed, because there was no memory for what is to be sent." m.replies_refused;
    counter "gnomon_connections_stalled_total" "Requests refused, or connections closed, that moved less than 64 KB in a second and held memory that others waited for." m.stalled;
};
