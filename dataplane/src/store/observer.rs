//! Who wants to know of evictions.
//!
//! Enters: once, somebody who wants to know; then every live item that makes room for another one,
//! just before it goes. Never fails.

use super::ItemRef;
use super::slab::ClassId;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Is told of evictions, with the lock of the item's size class held: must be quick, and must not
/// ask the store anything.
pub trait Evictions: Send + Sync {
    /// This item goes, at `now` on the store's clock. Classes count from 1.
    fn evicted(&self, item: &ItemRef<'_>, class: u32, now: u32);
}

/// The listener, if any.
#[derive(Default)]
pub(super) struct Observer(OnceLock<Arc<dyn Evictions>>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl Observer {
    #[inline]
    pub(super) fn evicted(&self, item: &ItemRef<'_>, class: ClassId, now: u32) {
        if let Some(listener) = self.0.get() {
            listener.evicted(item, u32::from(class.0) + 1, now);
        }
    }
}

impl super::Store {
    /// Names the one who is told of evictions. The first call counts.
    pub fn observe_evictions(&self, listener: Arc<dyn Evictions>) {
        let _ = self.observer.0.set(listener);
    }
}
