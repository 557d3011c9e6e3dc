//! The meta commands `mg`, `ms`, `md`, `ma`, `me` and `mn` (protocol.txt): two letters, a key, flags.
//!
//! In: a command line, and for `ms` its data block; and what became of it. Out of [`parse`]: a
//! command, or its refusal; out of the encoder: the answer, which repeats flags in the order they
//! came in. Flags mean what they mean to memcached 1.6.18, also where a command has no use for one:
//! it is checked, and nothing follows from it. Of later releases there are C of `mg`, s and N of
//! `ms`, x of `md`, and E.

mod encode;
mod parse;

pub use encode::put_get;
pub(crate) use encode::{put_facts, put_fetched, put_miss, put_sized};
pub use parse::parse;
