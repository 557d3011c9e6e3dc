//! The SIMT executor: the kernels' own sources, compiled by the C++ compiler and run on the CPU
//! over fibers (`gpu/simt`). So that every line of a kernel runs on every machine; not for speed.

mod card;
mod ffi;

pub use card::{Hostile, SimtCard};
pub use ffi::{Event, WatchCounts};

/// What the kernels' compiler says of the shared layouts.
#[cfg(test)]
pub(crate) fn layouts() -> impl Iterator<Item = u32> {
    ffi::layouts().iter().copied()
}
