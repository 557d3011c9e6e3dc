//! Connections that wait: those whose client has still to confirm, and those that both sides have
//! ended. Slots that can be had back.
//!
//! In: slots as they begin to wait. Out: the one that has waited longest, when its slot is wanted. A
//! flood of SYNs takes no more than a bounded part of the slots, each for a moment, and none that
//! has a client. Slots that have left the state meanwhile are passed over. Memory is fixed.

use std::collections::VecDeque;

/// Slots in the order in which they began to wait, with the generation that did.
#[derive(Debug)]
pub(super) struct Waiting {
    queue: VecDeque<(u32, u32)>,
    most: usize,
}

impl Waiting {
    /// Room for so many.
    pub(super) fn new(most: usize) -> Self {
        Self { queue: VecDeque::with_capacity(most), most }
    }

    /// Whether one must be taken out before another is entered.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= self.most
    }

    /// Enters a slot. The oldest falls out of a full queue.
    pub(super) fn enter(&mut self, slot: u32, generation: u32) {
        if self.is_full() {
            self.queue.pop_front();
        }
        self.queue.push_back((slot, generation));
    }

    /// Takes out the oldest, and those before it that wait no more, as `waits` says.
    pub(super) fn oldest(&mut self, waits: impl Fn(u32, u32) -> bool) -> Option<u32> {
        loop {
            let (slot, generation) = self.queue.pop_front()?;
            if waits(slot, generation) {
                return Some(slot);
            }
        }
    }

    /// Takes out those at the front that wait no more.
    pub(super) fn tidy(&mut self, waits: impl Fn(u32, u32) -> bool) {
        while self.queue.front().is_some_and(|&(slot, generation)| !waits(slot, generation)) {
            self.queue.pop_front();
        }
    }
}
