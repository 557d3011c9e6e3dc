//! The listeners for evictions and for changes to the index.
//!
//! In: once, a listener and the feeds of replicas; then every live item that makes room for another
//! one, just before it goes, and every hash whose index entry has changed. Never fails.

use super::hash::KeyHash;
use super::item::ItemRef;
use super::slab::ClassId;
use gpu::index::{Feed, Form};
use std::sync::{Arc, OnceLock};

/// Called with each eviction, with the lock of the item's size class held: must be quick, and must not
/// ask the store anything.
pub trait Evictions: Send + Sync {
    /// This item goes, at `now` on the store's clock. Classes count from 1.
    fn evicted(&self, item: &ItemRef<'_>, class: u32, now: u32);
}

/// The listener, if any.
#[derive(Default)]
pub(super) struct Observer(OnceLock<Arc<dyn Evictions>>);

base::opaque!(Observer);

impl Observer {
    pub(super) fn set(&self, listener: Arc<dyn Evictions>) {
        let _ = self.0.set(listener);
    }

    #[inline]
    pub(super) fn evicted(&self, item: &ItemRef<'_>, class: ClassId, now: u32) {
        if let Some(listener) = self.0.get() {
            listener.evicted(item, u32::from(class.0) + 1, now);
        }
    }
}

/// The feeds of the replicas of the index, one for each GPU: each hears of each hash whose entry is about to
/// change.
#[derive(Debug, Default)]
pub(super) struct Replicas(OnceLock<Box<[Arc<Feed>]>>);

impl Replicas {
    pub(super) fn set(&self, feeds: Box<[Arc<Feed>]>) {
        let _ = self.0.set(feeds);
    }

    #[inline(always)]
    pub(super) fn note(&self, hash: KeyHash, form: Option<Form>) {
        if let Some(feeds) = self.0.get() {
            feeds.iter().for_each(|feed| feed.note(hash.0, form));
        }
    }

    /// Before the entry of this hash changes, under its bucket locks.
    #[inline(always)]
    pub(super) fn change(&self, hash: KeyHash) {
        if let Some(feeds) = self.0.get() {
            feeds.iter().for_each(|feed| feed.change(hash.0));
            #[cfg(test)]
            crate::tests::filter::notified(hash);
        }
    }

    /// Before the item of this hash changes in its place, under its bucket locks.
    #[inline(always)]
    pub(super) fn change_item(&self, hash: KeyHash) {
        if let Some(feeds) = self.0.get() {
            feeds.iter().for_each(|feed| feed.change_item(hash.0));
            #[cfg(test)]
            crate::tests::filter::notified(hash);
        }
    }

    /// Around what changes all items, or some that are not known.
    pub(super) fn change_all<R>(&self, publish: impl FnOnce() -> R) -> R {
        let feeds = self.0.get().map(AsRef::as_ref).unwrap_or_default();
        feeds.iter().for_each(|feed| feed.begin_change_of_all());
        let published = publish();
        feeds.iter().for_each(|feed| feed.end_change_of_all());
        published
    }
}
