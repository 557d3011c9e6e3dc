//! The atomics that the epochs are built on: the standard ones, or loom's under `--cfg loom`, so
//! that the model checker runs the code that ships.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
