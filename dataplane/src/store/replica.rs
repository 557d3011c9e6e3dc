//! Whoever keeps a replica of the index: told where to look again, and answered when he does.
//!
//! Enters: once, a [`Feed`]; then hashes whose index entry has changed or that somebody found to be
//! wrong in the replica. Leaves: by the feed the hashes, and by [`StoreSource`] what is there at the
//! time of asking. So the replica ends up right whatever was lost or came twice on the way. Without
//! a replica a change of the index costs one look at a pointer. Never fails; a full feed forgets.

use super::index::Entry;
use super::{Guard, ItemRef, KeyHash, Location, Session, Store};
use gpu::index::{Feed, Found, Source};
use gpu::params::HashKey;
use std::sync::{Arc, OnceLock};

/// The feed, if somebody wants one.
#[derive(Debug, Default)]
pub(super) struct Replica(OnceLock<Arc<Feed>>);

impl Store {
    /// Names the feed of the one replica that there can be. The first call counts.
    pub fn feed_replica(&self, feed: Arc<Feed>) {
        let _ = self.replica.0.set(feed);
    }

    /// Has the replica, if there is one, look at this hash again.
    #[inline]
    pub fn look_again(&self, hash: KeyHash) {
        if let Some(feed) = self.replica.0.get() {
            feed.note(hash.0);
        }
    }

    /// The only way to the index for writers ([`Entry::set`]): whoever keeps a replica is told.
    #[inline(always)]
    pub(super) fn change_index<T: Copy>(
        &self,
        hash: KeyHash,
        entry: Entry<'_, T>,
        new: Option<Location>,
    ) {
        let old = entry.present().map(|(loc, _)| loc);
        entry.set(new);
        if old != new {
            self.look_again(hash);
        }
    }

    /// What keys are hashed with, for an engine that does the same. It leaves this process by no
    /// way: who knows it can choose keys that collide.
    pub fn hash_key(&self) -> HashKey {
        self.hasher.key()
    }
}

/// What is known beforehand of the next look-up, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Supposed {
    /// Nothing, or nobody looked.
    #[default]
    Nothing,
    /// The item may be here.
    At(Location),
    /// A replica of the index does not have it.
    Unknown,
    /// It was there.
    Right,
    /// It was not.
    Wrong,
}

impl Guard<'_> {
    /// The live item whose key has this hash, and where it is.
    pub(super) fn at_hash(&self, hash: KeyHash) -> Option<(Location, ItemRef<'_>)> {
        let store = self.store();
        store.index.find(hash, |loc| {
            let item = self.at(loc).filter(|item| store.hash(item.key()) == hash)?;
            store.is_live(&item).then_some((loc, item))
        })
    }
}

/// Answers what is at a hash now.
#[derive(Debug)]
pub struct StoreSource(Session);

/// Hashes that are answered under one pin: memory waits for it.
const HASHES_PER_PIN: usize = 64;

impl StoreSource {
    /// Answers by way of a session of its own.
    pub fn new(session: Session) -> Self {
        Self(session)
    }
}

impl Source for StoreSource {
    fn look(&mut self, hashes: &[u64], tell: &mut dyn FnMut(u64, Option<Found<'_>>)) {
        for hashes in hashes.chunks(HASHES_PER_PIN) {
            let guard = self.0.pin();
            let store = guard.store();
            for hash in hashes {
                store.prefetch(KeyHash(*hash));
            }
            for &hash in hashes {
                let found = guard.at_hash(KeyHash(hash));
                let found = found.map(|(location, item)| Found {
                    location: location.0,
                    flags: item.flags(),
                    value_len: u32::try_from(item.value().len()).unwrap_or(u32::MAX),
                    key: item.key(),
                });
                tell(hash, found);
            }
        }
    }

    fn now(&self) -> u32 {
        self.0.store().now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;
    use crate::store::{StoreConfig, verbs};
    use driver_shim::Pages;

    fn told(source: &mut StoreSource, keys: &[&[u8]]) -> Vec<Option<(Vec<u8>, u32, u32)>> {
        let hashes: Vec<u64> = keys.iter().map(|k| source.0.store().hash(k).0).collect();
        let mut answers = Vec::new();
        source.look(&hashes, &mut |hash, found| {
            assert_eq!(hash, hashes[answers.len()]);
            answers.push(found.map(|f| (f.key.to_vec(), f.flags, f.value_len)));
        });
        answers
    }

    #[test]
    fn every_change_is_told_and_answered_with_what_is_there_now() {
        let config =
            StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let feed = Arc::new(Feed::new(16));
        store.feed_replica(Arc::clone(&feed));
        let mut session = store.session().unwrap();
        let mut source = StoreSource::new(store.session().unwrap());
        let mut set = |key: &[u8], flags: u32, value: &[u8]| {
            let request = protocol::Store::set(key, flags, 0, value);
            verbs::store(&mut session, &request).unwrap();
        };
        set(b"a", 7, b"one");
        assert_eq!(feed.len(), 1);
        set(b"a", 8, b"three");
        set(b"b", 0, b"");
        assert_eq!(feed.len(), 3);
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        let want = [Some((b"a".to_vec(), 8, 5)), Some((b"b".to_vec(), 0, 0)), None];
        assert_eq!(told(&mut source, &keys), want);
        assert!(verbs::delete(&mut session, b"a") && !verbs::delete(&mut session, b"a"));
        assert_eq!(feed.len(), 4);
        assert_eq!(told(&mut source, &keys[..1]), [None]);
    }
}
