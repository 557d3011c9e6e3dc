//! What the data plane's other crates share: a few types of requests, and work on bytes.
//!
//! The crates `wire` and `store` know nothing of each other and nothing of how requests are parsed.
//! What one of them and another crate must mean the same by stands here, and only that. Types that
//! drivers or engines define (addresses, hash keys, index invalidations) stand in `driver-shim` and
//! `gpu`. Nothing here allocates, fails or keeps state.

/// `Debug` of a type whose parts have none: its name, and these of its parts.
#[macro_export]
macro_rules! opaque {
    ($kind:ident $(<$life:lifetime>)? $(, |$it:ident| $part:ident: $value:expr)?) => {
        impl std::fmt::Debug for $kind $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $it = self;)?
                f.debug_struct(stringify!($kind))
                    $(.field(stringify!($part), &$value))?
                    .finish_non_exhaustive()
            }
        }
    };
}

pub mod checksum;
pub mod crc32;
pub mod memory_file;
pub mod request;
pub mod small_bytes;
pub mod speck;

pub use request::{Arith, Claim, KEY_MAX_BYTES, Store, StoreMode};
