//! The store's side of a replica of the index: reports the hashes whose entries the replica is to read
//! again, and what is in the index for them then.
//!
//! In: once, a [`Feed`]; then hashes whose index entry is about to change or that a reader found to be
//! wrong in the replica. Out: by the feed the hashes, and by [`StoreSource`] what is there at the
//! time of asking. So the replica ends up right whatever was lost or came twice on the way. Without
//! a replica a change of the index costs one look at a pointer. Never fails; a full feed forgets.

use super::index::{Entry, Expect, UpdateError};
use super::layout::len_bytes;
use super::{Guard, ItemRef, KeyHash, Location, Session, Store};
use gpu::index::{Form, Found, Source};
use gpu::layout::ROW_TEXT_MAX;

impl Store {
    /// Has the replica, if there is one, look at this hash again. One that has whole replies gets that to requests of this
    /// form, if there is one, and the item, which is of this size class, is small enough for it.
    #[inline(always)]
    pub fn invalidate(&self, hash: KeyHash, asked: Option<(Form, usize)>) {
        // Most rows have the key and the value.
        let most = self.slabs.class_for(len_bytes(0, ROW_TEXT_MAX));
        let is_small = |class: usize| most.is_some_and(|most| class <= most.0.into());
        let form = asked.and_then(|(form, class)| is_small(class).then_some(form));
        self.replicas.note(hash, form);
    }

    /// The only way to an entry of the index for writers: it is locked, nothing has changed yet, and the
    /// replica's feed has been notified. `comes`: an item is to be put there.
    #[inline(always)]
    pub(super) fn entry_to_change<T: Copy>(
        &self,
        hash: KeyHash,
        comes: bool,
        expect: Expect,
        look: impl Fn(Location) -> Option<T> + Copy,
    ) -> Result<Entry<'_, T>, UpdateError> {
        let entry = self.index.entry(hash, comes, expect, look)?;
        if comes || entry.present().is_some() {
            self.replicas.change(hash);
        }
        Ok(entry)
    }
}

impl Guard<'_> {
    /// The live item whose key has this hash, and where it is, after every change that the replica's feed was
    /// notified of before this call.
    pub(super) fn at_hash(&self, hash: KeyHash) -> Option<(Location, ItemRef<'_>)> {
        let store = self.store();
        store.index.wait_for_writers(hash);
        store.index.find(hash, |loc| {
            let item = self.at(loc).filter(|item| store.hash(item.key()) == hash)?;
            store.is_live(&item).then_some((loc, item))
        })
    }
}

/// Answers what is at a hash now.
#[derive(Debug)]
pub struct StoreSource {
    session: Session,
    /// Whether clients get CAS ids.
    cas_enabled: bool,
}

/// Hashes that are answered under one pin: memory waits for it.
const HASHES_PER_PIN: usize = 64;

impl StoreSource {
    /// Answers by way of a session of its own. Without CAS ids clients get 0 for each.
    pub fn new(session: Session, cas_enabled: bool) -> Self {
        Self { session, cas_enabled }
    }
}

impl Source for StoreSource {
    fn look(&mut self, hashes: &[u64], tell: &mut dyn FnMut(u64, Option<Found<'_>>)) {
        for hashes in hashes.chunks(HASHES_PER_PIN) {
            let guard = self.session.pin();
            let store = guard.store();
            for hash in hashes {
                store.prefetch(KeyHash(*hash));
            }
            for hash in hashes {
                store.propose(KeyHash(*hash)).into_iter().for_each(|at| store.prefetch_item(at));
            }
            for &hash in hashes {
                let found = guard.at_hash(KeyHash(hash));
                let found = found.map(|(location, item)| Found {
                    location: location.0,
                    cas: if self.cas_enabled { item.cas() } else { 0 },
                    flags: item.flags(),
                    value_len: u32::try_from(item.value().len()).unwrap_or(u32::MAX),
                    key: item.key(),
                    value: item.value().whole().unwrap_or_default(),
                    expiry: item.expiry(),
                    class: u8::try_from(store.class_of(&item)).unwrap_or(u8::MAX),
                    marked: item.is_stale() || item.is_won() || item.has_base64_key(),
                });
                tell(hash, found);
            }
        }
    }

    fn now(&self) -> u32 {
        self.session.store().now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StoreConfig, verbs};
    use driver_shim::Pages;
    use gpu::index::Feed;
    use std::sync::Arc;

    fn told(source: &mut StoreSource, keys: &[&[u8]]) -> Vec<Option<(Vec<u8>, u32, u32)>> {
        let hashes: Vec<u64> = keys.iter().map(|k| source.session.store().hash(k).0).collect();
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
        store.feed_replicas([Arc::clone(&feed)]);
        let mut session = store.session().unwrap();
        let mut source = StoreSource::new(store.session().unwrap(), true);
        let mut set = |key: &[u8], flags: u32, value: &[u8]| {
            let request = base::Store::set(key, flags, 0, value);
            verbs::store(&mut session, None, &request).unwrap();
        };
        set(b"a", 7, b"one");
        assert_eq!(feed.len(), 1);
        set(b"a", 8, b"three");
        set(b"b", 0, b"");
        assert_eq!(feed.len(), 3);
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        let want = [Some((b"a".to_vec(), 8, 5)), Some((b"b".to_vec(), 0, 0)), None];
        assert_eq!(told(&mut source, &keys), want);
        assert!(verbs::delete(&mut session, None, b"a").is_some());
        assert!(verbs::delete(&mut session, None, b"a").is_none());
        assert_eq!(feed.len(), 4);
        assert_eq!(told(&mut source, &keys[..1]), [None]);
    }
}
