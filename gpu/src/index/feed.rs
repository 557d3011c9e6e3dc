//! The index invalidation queue: hashes whose entries a replica of the store's index must read again.
//!
//! In: hashes of keys whose index entry has changed, from any thread. Out: the same, in some order,
//! to one reader. Bounded and without locks. A hash says nothing of the change: the reader reads from the
//! store what is there at that time, so that neither order nor repetition matters. Fails when
//! full: the hash is counted and forgotten, which leaves a hint stale until a request finds it wrong.
//!
//! With a [`Filter`] changes are queued before they are published, and one that finds no room has the device
//! emptied. Hashes that a request only found missing there wait in a queue of their own: those may be
//! forgotten at no price.
//!
//! A reader with nothing to do sleeps, and the next hash wakes it. Writers pay for that with one
//! load; the one that finds the reader asleep pays for a system call.

use super::filter::Filter;
use super::form::Form;
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// A bounded queue of hashes.
#[derive(Debug)]
pub struct Feed {
    hashes: ArrayQueue<u64>,
    /// What is raised before each change, where the device writes whole replies.
    filter: Option<Filtered>,
    lost: AtomicU64,
    /// The reader sleeps, or is about to.
    asleep: AtomicBool,
    /// The thread to wake. Locked by the reader before it sleeps, and by the thread that wakes it.
    reader: Mutex<Option<Thread>>,
}

#[derive(Debug)]
struct Filtered {
    filter: Arc<Filter>,
    /// Hashes that were asked for and that the device does not have.
    wanted: ArrayQueue<(u64, Form)>,
}

/// Wanted hashes that wait: the next requests for those that find no room ask again.
const WANTED_MAX: usize = 1 << 12;

impl Feed {
    /// A queue of `capacity` hashes.
    pub fn new(capacity: usize) -> Self {
        Self::filtered(capacity, None)
    }

    /// The same; changes raise the words of `filter`, if there is one.
    pub fn filtered(capacity: usize, filter: Option<Arc<Filter>>) -> Self {
        let filter = filter.map(|filter| Filtered { filter, wanted: ArrayQueue::new(WANTED_MAX) });
        Self {
            hashes: ArrayQueue::new(capacity.max(1)),
            filter,
            lost: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            reader: Mutex::default(),
        }
    }

    /// The entry of this hash is about to change, under locks that the reader waits for.
    #[inline]
    pub fn change(&self, hash: u64) {
        match &self.filter {
            Some(filtered) => filtered.filter.raise(hash, || self.push(hash)),
            None => {
                self.push(hash);
            }
        }
    }

    /// What the device may have of this hash's item is about to change, but not its entry.
    #[inline]
    pub fn change_item(&self, hash: u64) {
        if self.filter.is_some() {
            self.change(hash);
        }
    }

    /// What is there for all hashes, or for some that are not known, is about to change.
    pub fn begin_change_of_all(&self) {
        self.filter().inspect(|filter| filter.begin_change_of_all());
    }

    /// It has changed. To be called once after each beginning.
    pub fn end_change_of_all(&self) {
        self.filter().inspect(|filter| filter.end_change_of_all());
    }

    /// Queues this hash, of which the device has nothing, or not what it should have. A device with rows gets one for the
    /// form of the request that found that out, if there are such rows.
    #[inline]
    pub fn note(&self, hash: u64, form: Option<Form>) {
        let Some(Filtered { wanted, .. }) = &self.filter else {
            self.push(hash);
            return;
        };
        if let Some(form) = form {
            let _ = wanted.push((hash, form));
        }
    }

    /// False: there was no room.
    #[inline]
    fn push(&self, hash: u64) -> bool {
        if self.hashes.push(hash).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        // The push comes before this load, and in `wait` the store before the look at the queue, all
        // in one order (the queue's end moves by such operations too): one side sees the other's.
        if self.asleep.load(Ordering::SeqCst) {
            self.wake();
        }
        true
    }

    #[cold]
    fn wake(&self) {
        // One of several writers does it.
        if self.asleep.swap(false, Ordering::AcqRel)
            && let Some(reader) = &*self.reader()
        {
            reader.unpark();
        }
    }

    fn reader(&self) -> MutexGuard<'_, Option<Thread>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a hash is there, `most` at the longest; says whether one is. For the one reader.
    pub(super) fn wait(&self, most: Duration) -> bool {
        *self.reader() = Some(thread::current());
        self.asleep.store(true, Ordering::SeqCst);
        if self.hashes.is_empty() {
            thread::park_timeout(most);
        }
        self.asleep.store(false, Ordering::Relaxed);
        !self.hashes.is_empty()
    }

    /// Hashes that found the queue full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Hashes that wait.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Most hashes that wait.
    pub fn capacity(&self) -> usize {
        self.hashes.capacity()
    }

    pub(super) fn take(&self) -> Option<u64> {
        self.hashes.pop()
    }

    /// A hash that was asked for, and how.
    pub(super) fn take_wanted(&self) -> Option<(u64, Form)> {
        self.filter.as_ref()?.wanted.pop()
    }

    pub(super) fn filter(&self) -> Option<&Arc<Filter>> {
        self.filter.as_ref().map(|filtered| &filtered.filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_does_not_fit_is_counted() {
        let feed = Feed::new(2);
        for hash in 1..=5 {
            feed.note(hash, None);
        }
        assert_eq!((feed.len(), feed.lost()), (2, 3));
        assert_eq!((feed.take(), feed.take(), feed.take()), (Some(1), Some(2), None));
    }

    /// Each wait is longer than the test may take: no wake-up is lost, whenever the hash comes.
    #[test]
    fn whoever_waits_is_woken_by_the_next_hash() {
        let feed = Feed::new(2);
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                for hash in 0..1000 {
                    while !feed.is_empty() {
                        thread::yield_now();
                    }
                    feed.note(hash, None);
                }
            });
            for hash in 0..1000 {
                while !feed.wait(Duration::from_secs(100)) {}
                assert_eq!(feed.take(), Some(hash));
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert!(!feed.wait(Duration::from_millis(1)));
    }
}
