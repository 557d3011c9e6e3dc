//! Round robin: the chunk written next is the next one in the round, whatever clients read (the policy of
//! Chalamalasetti et al., An FPGA Memcached appliance, FPGA 2013, 4.3.5.3).
//!
//! A class's hand goes over its chunks, page after page. The first free chunk from it on is taken; where none
//! is free, the item there makes room, and its chunk is taken. The hand then stands behind that chunk. What a
//! new value is being made of is passed over, and an item in several chunks goes as a whole.
//!
//! A chunk in limbo counts as free, and its writer waits for readers to move on. Only while they do not, so that
//! not every writer has to wait for them, items are evicted ahead of need: the next ones in the round.
//!
//! In: a class that needs a chunk. Out: the chunk on the class's free list, alone (`slab/in_turn.rs`). Fails: as
//! `evict.rs`.

use super::slab::Class;
use super::store::Store;

impl Store {
    /// Puts the next chunk of the round where the caller takes it, if there is one at once.
    pub(super) fn next_in_round(&self, class: &mut Class) {
        self.slabs.collect(class, &self.epochs);
        if self.slabs.offer_next(class) {
            return;
        }
        let ahead = class.spare_wanted().max(1);
        if !self.grown_or_soon(class) && class.in_limbo() < ahead {
            self.evict_next(class);
            self.slabs.collect(class, &self.epochs);
        }
        self.slabs.offer_next(class);
    }

    /// Removes the next item in the round. The hand stays where it is: that chunk, or one evicted before, is next.
    fn evict_next(&self, class: &mut Class) {
        let hand = (class.hand_page, class.hand_chunk);
        for _ in 0..class.chunks() {
            let Some((page, chunk)) = self.slabs.hand(class) else { break };
            let went = self.slabs.with_owner(class, page, chunk, |class, loc, item| {
                let held = item.is_held() && self.is_live(&item);
                !held && self.remove(class, loc, item, false)
            });
            if went == Some(true) {
                class.hand_steps += 1;
                break;
            }
        }
        (class.hand_page, class.hand_chunk) = hand;
    }
}
