//! A store made new in the memory that it has, for tests that need very many new ones.
//!
//! In: a store that no other thread uses. Out: the same, as when it was made, without a call of
//! the system or a page of memory touched for the first time. Chunks keep their bytes, which
//! are not read before they are written. Never fails.

use super::epoch::Epochs;
use super::flush::Flushed;
use super::index::Expect;
use super::moving::Mover;
use super::observer::{Observer, Replicas};
use super::sweeper::Sweeper;
use super::{Clock, Store};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

impl Store {
    /// Forgets all items, settings, counts and the time. A memory file stays in use.
    pub fn renew(&mut self) {
        self.forget_all();
        self.assign_pages();
    }

    /// [`Self::renew`], but no class has a page.
    pub(super) fn forget_all(&mut self) {
        self.empty_index();
        // Each field by its name, so that none is forgotten.
        let Self {
            slabs,
            index: _,
            epochs,
            hasher: _,
            clock,
            cas,
            flushed,
            ghosts,
            returns,
            prefixes,
            mover,
            sweeper,
            large: _,
            waited_in_vain,
            expiring,
            sweeper_off,
            turns,
            observer,
            replicas,
            config,
            file: _,
            published: _,
        } = self;
        slabs.renew();
        *epochs = Epochs::new(config.sessions_max);
        *clock = Clock::new();
        *cas = AtomicU64::new(0);
        *flushed = Flushed::default();
        ghosts.renew();
        returns.renew();
        prefixes.renew();
        *mover = Mutex::new(Mover::new(slabs.sizes().len()));
        *sweeper = Mutex::new(Sweeper::default());
        *waited_in_vain = AtomicU64::new(u64::MAX);
        *expiring = AtomicBool::new(false);
        *sweeper_off = AtomicBool::new(false);
        *turns = AtomicU64::new(0);
        *observer = Observer::default();
        *replicas = Replicas::default();
    }

    /// Takes every item out of the index. Whatever is in there is in a chunk.
    fn empty_index(&self) {
        for page in 0..self.slabs.n_pages() {
            let Some((id, carved)) = self.slabs.page(page) else { continue };
            let chunk_bytes = self.slabs.size(id).bytes();
            let mut class = self.slabs.lock(id);
            for n in 0..carved {
                self.slabs.with_item(&mut class, page, n, |_, loc, item| {
                    // Of a damaged image, where it was given up: never got into the index.
                    if !item.fits(chunk_bytes) {
                        return;
                    }
                    let hash = self.hash(item.key());
                    let look = |at| (at == loc).then_some(());
                    // Fails if it is not in there, and then there is nothing to do.
                    if let Ok(entry) = self.index.entry(hash, false, Expect::Any, look) {
                        entry.set(None);
                    }
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Store, StoreConfig, verbs};
    use driver_shim::Pages;
    use std::sync::Arc;

    const SKIPPED_SECONDS: u32 = 1_500;

    /// Everything that leaves a trace: evictions, an item of many chunks, expiry, flushes of all
    /// kinds, settings.
    fn use_up(store: &Arc<Store>) -> Vec<bool> {
        let mut session = store.session().unwrap();
        let mut stored = Vec::new();
        for n in 0..12_000u32 {
            let key = format!("p:{n}");
            let value = vec![b'v'; (n as usize * 7) % 2_000];
            let what = base::Store::set(key.as_bytes(), n, 1_000 * i64::from(n % 3), &value);
            stored.push(verbs::store(&mut session, None, &what).is_ok());
        }
        let large = vec![b'l'; 3 << 20];
        stored.push(
            verbs::store(&mut session, None, &base::Store::set(b"large", 0, 0, &large)).is_ok(),
        );
        store.flush_prefix(b"p").unwrap();
        store.flush(5_000);
        store.clock().skip_ahead(SKIPPED_SECONDS);
        store.set_sweeper(false);
        store.set_limit_bytes(8 << 20).unwrap();
        (0..20).for_each(|_| store.housekeep());
        stored
    }

    #[test]
    fn a_renewed_store_is_a_new_one() {
        let config = StoreConfig {
            memory_bytes: 12 << 20,
            item_max_bytes: 4 << 20,
            pages: Pages::Small,
            hash_key: Some([3; 16]),
            ..StoreConfig::default()
        };
        let new = Store::new(config.clone()).unwrap().stats();
        let mut store = Store::new(config).unwrap();
        let mut before = None;
        for _ in 0..3 {
            let stored = use_up(&store);
            let used = store.stats();
            assert!(used.evictions > 0 && used.curr_items > 0);
            let now = (stored, used);
            assert_eq!(
                *before.get_or_insert_with(|| now.clone()),
                now,
                "the same as the first time"
            );
            Arc::get_mut(&mut store).unwrap().renew();
            assert_eq!(store.stats(), new);
            assert_eq!((store.now(), store.is_sweeping()), (2, false));
            let occupied = (0..12_000)
                .filter(|n| store.propose(store.hash(format!("p:{n}").as_bytes())).is_some());
            assert_eq!(occupied.count(), 0, "the index is empty");
        }
    }
}
