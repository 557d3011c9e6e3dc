//! What the data plane's other crates share: a few types of requests, and work on bytes.
//!
//! The crates `wire` and `store` know nothing of each other and nothing of how requests are parsed.
//! What one of them and another crate must mean the same by stands here, and only that. Types that
//! drivers or engines define (addresses, hash keys, index invalidations) stand in `driver-shim` and
//! `gpu`. Nothing here allocates, fails or keeps state.

pub mod checksum;
pub mod crc32;
pub mod memory_file;
pub mod request;
pub mod small_bytes;
pub mod speck;

pub use request::{Arith, Claim, KEY_MAX_BYTES, Store, StoreMode};
