//! Workloads: keys, values, sizes, popularity and clients; workloads by name ([`models`])
//! and traces of real caches ([`mod@csv`]).
//!
//! Everything is a pure function of a key's index or of a seed, so that two programs, or two
//! runs, that share the parameters agree on every byte. A value describes itself: a reader that has
//! the key can see whether the value is one that this module made for it.

pub mod cli;
pub mod clients;
pub mod csv;
pub mod fits;
pub mod keys;
pub mod models;
pub mod permutation;
pub mod popularity;
pub mod recorded;
pub mod requests;
pub mod sizes;
pub mod values;

pub use cli::WorkloadFlags;
pub use clients::Clients;
pub use models::{Mix, Model, Writes};
pub use popularity::{Popularity, Sampler, THETA_DEFAULT};
pub use requests::{Key, Op, Request, Requests, Workload, WorkloadError};
pub use sizes::{BadSizes, Sizes};

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `x`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
