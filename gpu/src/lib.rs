//! A batch in, hints out: stage 5's contract.
//!
//! This crate uses no packet I/O and no store. It defines what an engine is ([`Engine`]), what
//! a batch of request metadata looks like ([`layout`]), and the engine over a device ([`offload`])
//! with the index that it looks into ([`index`]). A device is a GPU, or the SIMT executor. With the feature `cuda`, the module `cuda` shows which GPUs there are.

pub mod bench;
pub mod card;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod engine;
#[cfg(any(test, feature = "testing"))]
pub mod faulty;
pub mod host;
pub mod index;
pub mod layout;
#[cfg(feature = "simt")]
mod layout_check;
pub mod memory;
pub mod offload;
pub mod params;
#[cfg(feature = "simt")]
pub mod simt;
pub mod tables;
pub mod vitals;

pub use engine::{Batch, Engine, Outcome, Prepared};
pub use host::Column;
pub use layout::{
    BadReason, Entry, EntryFlags, Hint, KEYS_MAX, KeyDesc, ReplyHead, ReqDesc, RowFacts, Verb,
    Verdict, WholeReply,
};
pub use memory::PacketMemory;
