//! What clients have done, and who is shown it.
//!
//! In: what verbs did, by way of the [`Observer`], once each; what connections and engines report.
//! Out: the pages of `stats`, one file each, metrics, the lines of `watch`. Each thread counts in a
//! block of its own; a page is made when it is requested, and nothing of that is on the way of other
//! requests. Never fails.

mod classes;
mod conn_memory;
pub mod conns;
pub(crate) mod detail;
mod general;
pub mod hotkeys;
pub(crate) mod key_text;
pub mod latency;
mod observer;
mod op_counters;
mod pages;
mod rows;
mod server;
mod settings;
pub mod tls;
mod tuning;
pub mod watch;

pub use classes::{ClassCount, ClassOps};
pub use conn_memory::{ConnMemory, ConnMemoryNow};
pub use conns::{Conn, ConnSlots, ConnState, Conns};
pub use detail::Detail;
pub use hotkeys::HotKeys;
pub use key_text::encoded;
pub use latency::{Distribution, Kind, Latency, Transport};
pub use observer::{Before, Deletion, LookUps, Observer, StoreCount};
pub use op_counters::{OpCounters, OpTotals};
pub use pages::{Overview, overview};
pub use rows::{EngineFacts, Page, Rows};
pub use server::Server;
pub use watch::Seen;
