//! A batch in, hints out: room 5's contract.
//!
//! This crate knows no packet I/O and no store. It defines what an engine is ([`Engine`]), what
//! a batch of request metadata looks like ([`layout`]), and, where they are built, the engines
//! that run on a GPU. With the feature `cuda`, the module `cuda` tells which GPUs there are.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod engine;
pub mod layout;
pub mod memory;

pub use engine::{Batch, Engine};
pub use layout::{BadReason, Entry, EntryFlags, Hint, KEYS_MAX, KeyDesc, ReqDesc, Verb, Verdict};
pub use memory::PacketMemory;
