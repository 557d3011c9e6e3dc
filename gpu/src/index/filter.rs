//! The invalidation filter: whether what the device has of a key is still what the store has.
//!
//! ```text
//! writer, under the key's bucket locks:  raise(hash), which queues the hash too ─► publish, unlock
//! updater:                      advance ─► all that is queued: look, write rows ─► applied
//! worker:                       stamp ─► batch to the device and back ─► accepts(signature, stamp)?
//! ```
//!
//! In: hashes before their keys change, and before the device's memory does; batches' stamps. Out:
//! whether a reply that the device made is right at this moment. A word, chosen by bits of the hash, holds
//! the epoch of the last change of any key that has these bits. A stamp says up to which epoch changes
//! were on the device when its batch was sent. Nothing has changed since then, neither in the store nor
//! on the device, for a word that is no higher. Changes of all keys at once are numbers beside that. Never
//! fails; several keys share a word, so that a change of one rejects a reply about another now and then.
//!
//! `docs/decisions/0038-complete-replies.md` has the argument, `gpu/tests/loom_filter.rs` a model.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Words of a filter: half a megabyte, which stays in the second-level cache.
pub const FILTER_WORDS: usize = 1 << 16;

/// What the device has of a key's hash: these bits. Never 0. Keys with the same signature share
/// a word of the filter.
#[inline]
pub fn signature(hash: u64) -> u32 {
    let low = (hash & 0xffff_ffff) as u32;
    low.max(1)
}

/// What was on the device when a batch was sent there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Changes of epochs up to this one.
    applied: u64,
    /// Changes of all keys, up to this one.
    cleared: u64,
}

/// Why a reply is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Its key, or one with the same bits, has changed since, or the change is on its way.
    Changed,
    /// All keys have, or may have.
    Cleared,
}

/// The words, and the epochs.
#[derive(Debug)]
pub struct Filter {
    /// The epoch of the last change. A power of two.
    words: Box<[AtomicU64]>,
    /// What writers raise words to. The updater moves it on.
    epoch: AtomicU64,
    /// Changes of epochs up to this one are on the device.
    applied: AtomicU64,
    /// Changes of all keys: flushes, and hashes that found no room in the queue.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The number of them that had begun, and ended, when the device was last emptied.
    cleared: AtomicU64,
}

impl Filter {
    /// A filter of `words` words, a power of two ([`FILTER_WORDS`]).
    pub fn new(words: usize) -> Self {
        let words = (0..words.next_power_of_two()).map(|_| AtomicU64::new(0)).collect();
        // Words of 0 are no higher than what was applied before anything changed.
        Self {
            words,
            epoch: AtomicU64::new(1),
            applied: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
        }
    }

    #[inline]
    fn word(&self, signature: u32) -> Option<&AtomicU64> {
        self.words.get(signature as usize & self.words.len().wrapping_sub(1))
    }

    /// Never lowers it: several keys share a word.
    #[inline]
    fn lift(&self, signature: u32, epoch: u64) {
        if let Some(word) = self.word(signature)
            && word.load(Ordering::Relaxed) < epoch
        {
            word.fetch_max(epoch, Ordering::Relaxed);
        }
    }

    /// The key of this hash is about to change: to be called before any reader can see that, by a writer that
    /// the updater waits for if it finds the hash in the queue. `queue` puts it there; false: no room.
    #[inline]
    pub fn raise(&self, hash: u64, queue: impl FnOnce() -> bool) {
        let signature = signature(hash);
        let mut epoch = self.epoch.load(Ordering::Relaxed);
        self.lift(signature, epoch);
        if !queue() {
            // The updater will not look at it. All that is on the device goes, and is looked at anew.
            self.change_all(|| ());
        }
        // This fence, and the updater's behind a new epoch: either this load sees that epoch, or the updater
        // finds the hash in the queue before it says that all before the new epoch is applied.
        fence(Ordering::SeqCst);
        loop {
            let now = self.epoch.load(Ordering::Relaxed);
            if now == epoch {
                return;
            }
            epoch = now;
            self.lift(signature, epoch);
            fence(Ordering::SeqCst);
        }
    }

    /// `publish` changes what is there for more keys than can be named.
    pub fn change_all(&self, publish: impl FnOnce()) {
        self.begin_change_of_all();
        publish();
        self.end_change_of_all();
    }

    /// What is there for more keys than can be named is about to change.
    pub fn begin_change_of_all(&self) {
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// It has changed. To be called once after each beginning.
    pub fn end_change_of_all(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// For a batch that is about to be sent.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        let cleared = self.cleared.load(Ordering::Acquire);
        Stamp { applied: self.applied.load(Ordering::Acquire), cleared }
    }

    /// Whether what the device said of a key with this signature, in a batch of this stamp, is what the
    /// store has at this moment, but for the item's expiry.
    ///
    /// # Errors
    /// Why it may not be.
    #[inline]
    pub fn accepts(&self, signature: u32, stamp: Stamp) -> Result<(), Stale> {
        if self.begun.load(Ordering::Acquire) != stamp.cleared {
            return Err(Stale::Cleared);
        }
        let word = self.word(signature).map_or(u64::MAX, |word| word.load(Ordering::Acquire));
        if word <= stamp.applied { Ok(()) } else { Err(Stale::Changed) }
    }

    /// Whether an updater has begun.
    pub fn is_in_use(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) > 1
    }

    /// A new epoch begins. What is queued now holds all changes of the one before, which is returned.
    pub fn advance(&self) -> u64 {
        let before = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(before + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        before
    }

    /// The updater is about to write to the device, where what it writes, or what stands there, has this
    /// signature: no batch that is out is to be believed.
    pub fn rewrite(&self, signature: u32) {
        self.lift(signature, self.epoch.load(Ordering::Relaxed));
    }

    /// All changes up to this epoch are on the device, and nothing is being written there.
    pub fn apply(&self, epoch: u64) {
        self.applied.store(epoch, Ordering::Release);
    }

    /// Whether the device must be emptied: the number to give to [`Self::clear`] then. `None` also while
    /// a change of all keys is not over.
    pub fn is_to_clear(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        (begun == ended && begun != self.cleared.load(Ordering::Relaxed)).then_some(begun)
    }

    /// The device was empty after this number was returned; it has now what the store had since.
    pub fn clear(&self, number: u64) {
        self.cleared.store(number, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const HASH: u64 = 0x1234_5678_9abc_def0;
    const SIGNATURE: u32 = 0x9abc_def0;

    /// The updater's part, without a device.
    fn settle(filter: &Filter) {
        let before = filter.advance();
        filter.apply(before);
        if let Some(number) = filter.is_to_clear() {
            filter.clear(number);
        }
    }

    #[test]
    fn a_change_rejects_what_was_sent_before_it_was_applied() {
        let filter = Filter::new(1 << 4);
        let sent_before = filter.stamp();
        assert_eq!(filter.accepts(SIGNATURE, sent_before), Ok(()));
        let mut queued = 0;
        filter.raise(HASH, || {
            queued += 1;
            true
        });
        assert_eq!(queued, 1);
        let sent_between = filter.stamp();
        settle(&filter);
        for stamp in [sent_before, sent_between] {
            assert_eq!(filter.accepts(SIGNATURE, stamp), Err(Stale::Changed));
            assert_eq!(filter.accepts(SIGNATURE ^ 1, stamp), Ok(()), "another word");
            assert_eq!(filter.accepts(SIGNATURE ^ 16, stamp), Err(Stale::Changed), "the same");
        }
        assert_eq!(filter.accepts(SIGNATURE, filter.stamp()), Ok(()));
    }

    #[test]
    fn what_the_updater_writes_is_believed_a_turn_later() {
        let filter = Filter::new(1 << 4);
        let before = filter.advance();
        filter.rewrite(SIGNATURE);
        filter.apply(before);
        assert_eq!(filter.accepts(SIGNATURE, filter.stamp()), Err(Stale::Changed));
        settle(&filter);
        assert_eq!(filter.accepts(SIGNATURE, filter.stamp()), Ok(()));
    }

    /// The updater moves on while a writer queues its hash: too late for that turn's look.
    #[test]
    fn a_hash_that_is_queued_late_counts_for_the_next_epoch() {
        let filter = Filter::new(1);
        let mut before = 0;
        filter.raise(HASH, || {
            before = filter.advance();
            true
        });
        filter.apply(before);
        assert_eq!(filter.accepts(SIGNATURE, filter.stamp()), Err(Stale::Changed));
        settle(&filter);
        assert_eq!(filter.accepts(SIGNATURE, filter.stamp()), Ok(()));
    }

    #[test]
    fn nothing_is_taken_from_a_flush_until_the_device_was_emptied() {
        let filter = Filter::new(1);
        let sent_before = filter.stamp();
        filter.change_all(|| {
            assert_eq!(filter.accepts(SIGNATURE, sent_before), Err(Stale::Cleared));
            assert_eq!(filter.is_to_clear(), None, "not yet");
        });
        settle(&filter);
        assert_eq!(filter.accepts(SIGNATURE, sent_before), Err(Stale::Cleared));
        assert_eq!(filter.accepts(SIGNATURE, filter.stamp()), Ok(()));
        assert_eq!(filter.is_to_clear(), None);
    }

    #[test]
    fn a_hash_without_room_clears_all() {
        let filter = Filter::new(1 << 4);
        filter.raise(HASH, || false);
        assert_eq!(filter.accepts(SIGNATURE ^ 1, filter.stamp()), Err(Stale::Cleared));
        settle(&filter);
        assert_eq!(filter.accepts(SIGNATURE ^ 1, filter.stamp()), Ok(()));
    }

    #[test]
    fn signatures_are_never_0() {
        assert_eq!(signature(0xffff_ffff_0000_0000), 1);
        assert_eq!(signature(HASH), SIGNATURE);
    }
}
