//! The store: the truth, as far as clients can see (D1).
//!
//! ```text
//!              propose(hash)                 ┌────────── index ──────────┐  hash → location
//! engine ────────────────────────────────────►  buckets, seqlocks        │
//! execute ── session.pin() ── guard.verify ──►───────── slabs ───────────┤  location → item
//!                          └─ guard.find ────►  pages, classes, limbo    │
//! verbs::set, delete ── make, link, retire ──►  epochs, hand, sweeper ───┘
//! ```
//!
//! In: keys, values, and locations from anywhere, each of them possibly wrong. Out: items,
//! borrowed for as long as their reader is pinned. The store owns all item memory. A look-up takes
//! no lock, allocates nothing and writes nothing shared but an item's recency bit, when that is
//! not set yet. Writers lock a size class and two index buckets for some dozens of instructions.
//! Fails: at start-up with a [`StoreError`]; later only by refusing an item that is too large or
//! for which no memory can be found.
//!
//! To read on: `item` (layout and life of a chunk), `epoch`, `slab`, `index`, then `session` (how
//! a look-up and a hint check are put together), `write` and `verbs` (how a command is), `evict`,
//! `probation` and `mover` (where memory comes from when it is all in use).

mod sync;

pub mod clock;
pub mod admin;
pub mod dump;
pub mod epoch;
mod balance;
mod change;
mod config;
mod drain;
mod evict;
mod flush;
mod hash;
mod index;
mod item;
mod layout;
mod new_item;
mod liveness;
mod session;
mod item_flags;
mod mover;
mod moving;
mod observer;
mod prefix;
mod probation;
mod replica;
#[cfg(any(test, feature = "testing"))]
mod renew;
pub mod restart;
mod evicted_then_stored;
mod sizes;
mod slab;
mod state;
mod sweeper;
pub mod stats;
pub mod verbs;
mod write;

pub use clock::Clock;
pub use config::{StoreConfig, StoreError};
pub use dump::Cursor;
pub use flush::Liveness;
pub use hash::KeyHash;
pub use item::{ItemRef, Location, Value};
pub use layout::{PAGE_BYTES, SUM_KEPT_MIN_BYTES};
pub use moving::{Automove, NotMoved};
pub use observer::Evictions;
pub use prefix::PrefixRefused;
pub use replica::StoreSource;
pub use session::{Guard, Session, Supposed};
pub use slab::Fetched;
pub use state::Store;
pub use stats::StoreStats;

#[cfg(test)]
mod tests;
