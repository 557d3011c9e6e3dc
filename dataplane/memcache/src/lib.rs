//! The memcached protocol: bytes to [`Command`]s, and what became of them to bytes.
//!
//! [`text`], with [`meta`] for commands of two letters, and [`binary`] parse and encode, as the
//! [`dialect`] has it. Nothing here uses a store, or counts.

pub mod admin;
mod base64_key;
pub mod binary;
pub mod command;
pub mod dialect;
mod far_end;
mod glance;
pub mod meta;
pub mod outcome;
mod parsed;
mod refusal;
pub mod sink;
pub mod text;

pub use admin::Admin;
pub use command::{
    Arith, Command, Delete, Echo, Fetch, Form, Get, KEY_MAX_BYTES, Keys, Leave, Reads, Refused,
    Store, StoreMode, Touch, Verb, Words,
};
pub use dialect::{Dialect, Dialects};
pub use far_end::FarEnd;
pub use glance::{Glance, glance};
pub use outcome::{
    Body, Claim, Facts, Fetched, Hit, Number, Outcome, ReadBy, Reply, Stag, Ttl, Ttls, Unstored,
};
pub use parsed::Parsed;
pub use refusal::{Fault, Refusal};
pub use sink::Sink;
pub use text::{PlainSet, plain_get, plain_set};
