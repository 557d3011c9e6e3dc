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
//! # One set, one get
//!
//! A plain `set`, from `verbs/store.rs`:
//! 1. `hash`: hashes the key, unless the caller has.
//! 2. `session`, `put`: calls the steps below, and keeps what was replaced.
//! 3. `write`, `make`: checks the item limit; `slab` finds the size class.
//! 4. `allocate`: locks the class. If it runs short, `slab/limbo.rs` frees chunks whose epoch
//!    has passed, `slab/pages.rs` adds a page, or `evict` evicts items (`probation`, `slab/hand.rs`;
//!    `round_robin` and `slab/in_turn.rs` where eviction goes round). A class without a page is lent chunks.
//! 5. `slab/free.rs`, `pop`: takes a chunk; `item/fill.rs` writes the item into it.
//!    For those of a burst `reserved` takes the chunks before, under one lock.
//! 6. `write`, `link`: `index` locks both buckets, `replica`, `entry_to_change`, notifies
//!    a GPU's replica, the old item is hidden, the new one published.
//! 7. `session`, `settle`: after a run of sets, or so many replaced items, the old chunks are stamped with
//!    the epoch and wait in limbo until no reader can see them.
//!
//! A `get`, from `verbs/get.rs`, under the caller's guard:
//! 1. `session`, `pin`: publishes the reader's epoch (`epoch`).
//! 2. `index`, `find`: compares tags in two buckets without a lock; a miss counts if neither changed.
//! 3. `slab`, `item`: checks that the location is a chunk; `session` compares the key.
//! 4. `liveness`: neither expired nor flushed.
//! 5. `item/live.rs`, `mark_visited`: sets the recency bit if it is not set.
//! 6. The guard is dropped: the epoch may pass.
//!
//! To read on: `item` (layout and life of a chunk), `epoch`, `slab`, `index`, then `session` (how
//! a look-up and a hint check are put together), `write` and `verbs` (how a command is), `evict`,
//! `probation` and `mover` (where memory comes from when it is all in use).

mod sync;

pub mod clock;
pub mod admin;
mod allocate;
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
mod place;
mod prefix;
mod probation;
mod published;
mod replica;
#[cfg(any(test, feature = "testing"))]
mod renew;
mod reserved;
pub mod restart;
mod evicted_then_stored;
mod round_robin;
mod sizes;
mod slab;
mod slab_pages;
mod store;
mod sweeper;
pub mod stats;
pub mod verbs;
mod write;

pub use clock::Clock;
pub use config::{Eviction, StoreConfig, StoreError};
pub use dump::Cursor;
pub use flush::Liveness;
#[cfg(target_arch = "x86_64")]
pub use hash::lanes as hash_lanes;
pub use hash::{Hasher, KeyHash};
pub use item::{ItemRef, Location, Value};
pub use layout::{PAGE_BYTES, SUM_KEPT_MIN_BYTES};
pub use moving::{Automove, NotMoved};
pub use observer::Evictions;
pub use prefix::PrefixRefused;
pub use replica::StoreSource;
pub use session::{Guard, RESERVED_MAX, Session, Supposed};
pub use slab::Fetched;
pub use slab_pages::{BadSlabPages, SlabPages};
pub use stats::StoreStats;
pub use store::Store;

#[cfg(test)]
mod tests;
