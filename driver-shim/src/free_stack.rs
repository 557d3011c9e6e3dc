//! Free slots of a region without a driver: the one that was given back last is the first to be taken, since its lines
//! are the likeliest to be in a cache still.
//!
//! In: slots. Out: slots, by any thread, without a lock: a stack of numbers whose top is changed by compare-and-swap
//! (Treiber, Systems Programming: Coping with Parallelism, IBM RJ 5118, 1986). Nothing fails.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// Two numbers that change together. Of [`Stack::top`]: changes so far, and the slot at the top, plus one. Of a slot: how
/// many are in the stack up to it, and the slot below it, plus one.
type Pair = u64;

fn pair(high: u32, low: u32) -> Pair {
    u64::from(high) << 32 | u64::from(low)
}

fn parts(pair: Pair) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = pair.to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

/// Free slots.
#[derive(Debug)]
pub struct FreeStack {
    /// The count of changes distinguishes a top that came back from one that stayed, unless exactly 2^32 changes happen between
    /// the two steps of another.
    top: AtomicU64,
    slots: Box<[AtomicU64]>,
}

impl FreeStack {
    /// With all slots below `count`.
    pub fn new(count: u32) -> Self {
        // The first is at the top.
        let below = |slot: u32| if slot + 1 < count { slot + 2 } else { 0 };
        let slots = (0..count).map(|slot| AtomicU64::new(pair(count - slot, below(slot))));
        Self { top: AtomicU64::new(pair(0, count.min(1))), slots: slots.collect() }
    }

    /// A slot and what is below it, by its number plus one.
    fn slot(&self, number: u32) -> Option<(u32, &AtomicU64)> {
        let slot = number.checked_sub(1)?;
        Some((slot, self.slots.get(slot as usize)?))
    }

    /// Takes one, if there is one.
    pub fn take(&self) -> Option<u32> {
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let (changes, number) = parts(top);
            let (slot, entry) = self.slot(number)?;
            // Another thread may have taken it since: then this is anything, and the top another.
            let (_, below) = parts(entry.load(Ordering::Relaxed));
            let next = pair(changes.wrapping_add(1), below);
            match self.top.compare_exchange_weak(top, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(slot),
                Err(now) => top = now,
            }
        }
    }

    /// Gives a slot back that was taken.
    pub fn give(&self, slot: u32) {
        let Some(entry) = self.slots.get(slot as usize) else { return };
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let (changes, number) = parts(top);
            entry.store(pair(self.height(number) + 1, number), Ordering::Relaxed);
            let next = pair(changes.wrapping_add(1), slot + 1);
            match self.top.compare_exchange_weak(top, next, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// How many slots there are in it, or were at about this time.
    pub fn len(&self) -> usize {
        let (_, number) = parts(self.top.load(Ordering::Acquire));
        self.height(number) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn height(&self, number: u32) -> u32 {
        self.slot(number).map_or(0, |(_, entry)| parts(entry.load(Ordering::Relaxed)).0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_was_given_back_last_is_taken_first() {
        let stack = FreeStack::new(4);
        let slots: Vec<u32> = std::iter::from_fn(|| stack.take()).collect();
        assert_eq!((slots, stack.len()), (vec![0, 1, 2, 3], 0));
        for (n, slot) in [2, 0, 3, 1].into_iter().enumerate() {
            stack.give(slot);
            assert_eq!(stack.len(), n + 1);
        }
        assert_eq!(stack.take(), Some(1));
        stack.give(1);
        let slots: Vec<u32> = std::iter::from_fn(|| stack.take()).collect();
        assert_eq!(slots, [1, 3, 0, 2]);
        assert_eq!(FreeStack::new(0).take(), None);
        assert_eq!(FreeStack::new(0).len(), 0);
    }

    #[test]
    fn no_slot_has_two_holders_and_none_is_lost() {
        const SLOTS: u32 = 5;
        let stack = FreeStack::new(SLOTS);
        let held: Vec<AtomicBool> = (0..SLOTS).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            for keep in 1..5 {
                let (stack, held) = (&stack, &held);
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    let give = |slot: u32| {
                        assert!(held[slot as usize].swap(false, Ordering::AcqRel), "{slot}");
                        stack.give(slot);
                    };
                    for _ in 0..100_000 {
                        if let Some(slot) = stack.take() {
                            assert!(!held[slot as usize].swap(true, Ordering::AcqRel), "{slot}");
                            mine.push(slot);
                        }
                        if mine.len() >= keep {
                            give(mine.swap_remove(0));
                        }
                    }
                    mine.into_iter().for_each(give);
                });
            }
        });
        assert_eq!(stack.len(), SLOTS as usize);
        let mut slots: Vec<u32> = std::iter::from_fn(|| stack.take()).collect();
        slots.sort_unstable();
        assert!(slots.into_iter().eq(0..SLOTS));
    }
}
