//! Probation of new items: the queue of a class's newest ones, and the memory of
//! those that were evicted from it (Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023).
//!
//! Most items are never read again. They need not wait until the hand has gone round: a new
//! item that was not read by the time that it is the oldest in the queue goes first. One that
//! is stored again soon after counts as read from the start.
//!
//! In: chunks as they are given out, hashes of keys as their items go. Out: the oldest of
//! these chunks, and whether a hash was seen. The queue holds places, not items: the caller that takes one
//! out finds by its ticket whether the same item is still there. Fails: never; what is forgotten
//! costs a hit, no more.

use super::hash::KeyHash;
use super::item::Location;
use driver_shim::prefetch_read;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

/// A class's queue has room for one in this many of its chunks.
const CHUNKS_PER_PLACE: u32 = 2;

/// Bytes of item memory to one remembered key: about as many keys as items.
const BYTES_PER_GHOST: usize = 256;

/// The chunks that a class gave out last.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// A ring of `room` places: the oldest is `len` places before the next.
    places: Box<[u32]>,
    room: u32,
    /// Where the next chunk goes.
    at: u32,
    /// The ticket of the next chunk.
    next: u32,
    len: u32,
}

impl Queue {
    /// For a class of at most so many chunks. Memory that is not needed is not touched.
    pub(super) fn new(chunks_max: usize) -> Self {
        let places = vec![0; (chunks_max / CHUNKS_PER_PLACE as usize).max(1)].into();
        Self { places, room: 1, at: 0, next: 0, len: 0 }
    }

    /// An empty one in the same memory.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn renewed(self) -> Self {
        Self { places: self.places, room: 1, at: 0, next: 0, len: 0 }
    }

    /// How many chunks were put in since the one with this ticket.
    pub(super) fn age(&self, ticket: u32) -> u32 {
        self.next.wrapping_sub(ticket).wrapping_sub(1)
    }

    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Makes room for the chunks of a class that has so many now. When that has changed the queue
    /// begins anew.
    pub(super) fn make_room(&mut self, chunks: u32) {
        let most = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let room = (chunks / CHUNKS_PER_PLACE).clamp(1, most);
        if room != self.room {
            (self.room, self.at, self.len) = (room, 0, 0);
        }
    }

    /// Puts a chunk in, and gives it a ticket. A full queue forgets its oldest.
    #[inline(always)]
    pub(super) fn push(&mut self, loc: Location) -> u32 {
        let ticket = self.next;
        self.places[self.at as usize] = loc.0;
        self.at = if self.at + 1 == self.room { 0 } else { self.at + 1 };
        self.next = ticket.wrapping_add(1);
        self.len = (self.len + 1).min(self.room);
        ticket
    }

    /// Takes the oldest chunk out, with its ticket.
    pub(super) fn pop(&mut self) -> Option<(Location, u32)> {
        let ticket = self.next.wrapping_sub(self.len);
        let at = if self.at < self.len { self.at + self.room } else { self.at } - self.len;
        self.len = self.len.checked_sub(1)?;
        Some((Location(self.places[at as usize]), ticket))
    }
}

/// The keys whose items went before they were ever read, for as long as others do not take
/// their places.
#[derive(Debug)]
pub(super) struct Ghosts {
    places: Box<[AtomicU16]>,
    /// No key has been remembered yet: no place needs to be looked at.
    none: AtomicBool,
}

impl Ghosts {
    pub(super) fn new(memory_bytes: usize) -> Self {
        let n_places = memory_bytes.div_ceil(BYTES_PER_GHOST);
        Self {
            places: (0..n_places).map(|_| AtomicU16::new(0)).collect(),
            none: AtomicBool::new(true),
        }
    }

    /// Forgets all keys.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn renew(&mut self) {
        self.places.iter_mut().for_each(|place| *place = AtomicU16::new(0));
        self.none = AtomicBool::new(true);
    }

    /// Where the hash belongs, and what stands there for it: 0 is an empty place.
    fn place(&self, hash: KeyHash) -> (&AtomicU16, u16) {
        let (high, low) = (hash.0 >> 32, hash.0 & 0xffff_ffff);
        let at = ((high * self.places.len() as u64) >> 32) as usize;
        (&self.places[at], u16::try_from(low & 0xffff).unwrap_or(0) | 1)
    }

    /// Prefetches the line that a look will read.
    pub(super) fn prefetch(&self, hash: KeyHash) {
        if !self.none.load(Ordering::Relaxed) {
            prefetch_read(self.place(hash).0);
        }
    }

    pub(super) fn remember(&self, hash: KeyHash) {
        let (place, tag) = self.place(hash);
        place.store(tag, Ordering::Relaxed);
        if self.none.load(Ordering::Relaxed) {
            self.none.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn knows(&self, hash: KeyHash) -> bool {
        if self.none.load(Ordering::Relaxed) {
            return false;
        }
        let (place, tag) = self.place(hash);
        place.load(Ordering::Relaxed) == tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_and_the_oldest_is_forgotten() {
        let mut q = Queue::new(200);
        assert_eq!(q.pop(), None);
        q.make_room(200);
        let tickets: Vec<u32> = (0..150).map(|n| q.push(Location(n))).collect();
        assert_eq!(q.len(), 100);
        let left: Vec<_> = std::iter::from_fn(|| q.pop()).collect();
        let newest = (50..150).map(|n| (Location(n), tickets[n as usize])).collect::<Vec<_>>();
        assert_eq!(left, newest);
        assert_eq!((q.len(), q.pop()), (0, None));
    }

    #[test]
    fn another_number_of_chunks_another_queue() {
        let mut q = Queue::new(200);
        q.make_room(100);
        for n in 0..10 {
            q.push(Location(n));
        }
        q.make_room(150);
        let ticket = q.push(Location(10));
        assert_eq!((q.pop(), q.pop()), (Some((Location(10), ticket)), None));
        // More chunks than it was made for, or hardly any.
        q.make_room(u32::MAX);
        for n in 0..1_000 {
            q.push(Location(n));
        }
        assert_eq!(q.len(), 100);
        q.make_room(0);
        q.push(Location(7));
        assert_eq!(q.pop().map(|(loc, _)| loc), Some(Location(7)));
    }

    #[test]
    fn tickets_may_wrap() {
        let mut q = Queue::new(400);
        q.next = u32::MAX - 3;
        q.make_room(400);
        let mine: Vec<_> = (0..8).map(|n| (Location(n), q.push(Location(n)))).collect();
        let left: Vec<_> = std::iter::from_fn(|| q.pop()).collect();
        assert_eq!(left.iter().map(|l| l.1).collect::<Vec<_>>(), {
            mine.iter().map(|m| m.1).collect::<Vec<_>>()
        });
    }

    #[test]
    fn ghosts_are_known_again_and_strangers_are_not() {
        let ghosts = Ghosts::new(1 << 20);
        let hash =
            |n: u64| KeyHash(crate::hash::Hasher::new(Some([7; 16])).hash(&n.to_le_bytes()).0);
        (0..400).for_each(|n| ghosts.remember(hash(n)));
        let known = |range: std::ops::Range<u64>| range.filter(|n| ghosts.knows(hash(*n))).count();
        assert!(known(0..400) > 350, "a few were overwritten");
        assert!(known(1_000..21_000) < 20);
    }
}
