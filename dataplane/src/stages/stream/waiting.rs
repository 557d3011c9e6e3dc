//! Connections that wait: those whose client has still to confirm, and those that both sides have
//! ended. Slots that can be had back.
//!
//! In: slots as they begin to wait, and as they leave that state. Out: the one that has waited longest,
//! when its slot is needed. A flood of SYNs takes no more than a bounded part of the slots, each for a
//! moment, and none that has a client. A list whose links are an array by slot: what has left takes no
//! place from those that still wait, and memory is fixed.

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    next: u32,
    waits: bool,
}

/// Slots in the order in which they began to wait.
#[derive(Debug)]
pub(super) struct Waiting {
    links: Box<[Link]>,
    first: u32,
    last: u32,
    len: usize,
    most: usize,
}

impl Waiting {
    /// For slots 0 to `slots` - 1, of which `most` may wait.
    pub(super) fn new(slots: usize, most: usize) -> Self {
        let links = vec![Link { before: NONE, next: NONE, waits: false }; slots].into();
        Self { links, first: NONE, last: NONE, len: 0, most }
    }

    /// Whether one must be taken out before another is entered.
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.most
    }

    fn link(&mut self, slot: u32) -> Option<&mut Link> {
        self.links.get_mut(slot as usize)
    }

    /// Enters a slot as the last. Nothing happens if it waits already.
    pub(super) fn enter(&mut self, slot: u32) {
        let last = self.last;
        let Some(link) = self.link(slot).filter(|link| !link.waits) else { return };
        *link = Link { before: last, next: NONE, waits: true };
        match self.link(last) {
            Some(link) => link.next = slot,
            None => self.first = slot,
        }
        self.last = slot;
        self.len += 1;
    }

    /// Takes a slot out, wherever it stands. Nothing happens if it does not wait.
    pub(super) fn leave(&mut self, slot: u32) {
        let Some(link) = self.link(slot).filter(|link| link.waits) else { return };
        link.waits = false;
        let Link { before, next, .. } = *link;
        match self.link(before) {
            Some(link) => link.next = next,
            None => self.first = next,
        }
        match self.link(next) {
            Some(link) => link.before = before,
            None => self.last = before,
        }
        self.len -= 1;
    }

    /// Takes out the oldest, and those before it that wait no more, as `waits` says.
    pub(super) fn oldest(&mut self, waits: impl Fn(u32) -> bool) -> Option<u32> {
        while self.first != NONE {
            let slot = self.first;
            self.leave(slot);
            if waits(slot) {
                return Some(slot);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn is_a_queue_that_may_be_left(
            steps in prop::collection::vec((0_u8..4, 0_u32..9), 1..300)
        ) {
            let (mut waiting, mut model) = (Waiting::new(8, 5), VecDeque::new());
            for (step, slot) in steps {
                match step {
                    0 | 1 => {
                        waiting.enter(slot);
                        if slot < 8 && !model.contains(&slot) {
                            model.push_back(slot);
                        }
                    }
                    2 => {
                        waiting.leave(slot);
                        model.retain(|s| *s != slot);
                    }
                    _ => {
                        // Odd ones wait no more, though they were not taken out one by one.
                        while model.front().is_some_and(|s| s % 2 == 1) {
                            model.pop_front();
                        }
                        prop_assert_eq!(waiting.oldest(|s| s % 2 == 0), model.pop_front());
                    }
                }
                prop_assert_eq!(waiting.len, model.len());
                prop_assert_eq!(waiting.is_full(), model.len() >= 5);
            }
        }
    }
}
