//! The binary protocol (protocol_binary.txt; where memcached 1.6 differs from it, as memcached).
//!
//! In: bytes, out of which [`parse`] makes commands; and what became of them. Out: packets. In both
//! directions a [`Header`] alone defines which byte of a packet means what.

mod encode;
mod header;
mod parse;
pub mod sasl;
mod status;

pub use encode::refuse;
pub(crate) use encode::{put, put_hit, put_miss, put_row, put_status};
pub use header::{HEADER_BYTES, Header, REQUEST_MAGIC, RESPONSE_MAGIC, opcode};
pub use parse::parse;
pub use status::Status;
