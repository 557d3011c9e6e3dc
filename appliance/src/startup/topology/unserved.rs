//! A store that serves no client yet.
//!
//! In: an open store. Out: where the start ends before it serves, its items, left in their file for the next
//! start. To be dropped after all else that has the store. Fails: when something still has it, which is logged,
//! and then the next start begins empty.

use std::sync::Arc;
use store::Store;

/// The store, until it serves.
#[derive(Debug)]
pub(super) struct Unserved(pub(super) Option<Arc<Store>>);

impl Drop for Unserved {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(Store::close) {
            tracing::warn!("memory file: its items are discarded: {error}");
        }
    }
}
