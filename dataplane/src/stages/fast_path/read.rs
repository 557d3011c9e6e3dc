//! Step 1: which frames of a row are requests for the fast path, and the hashes of their keys.
//!
//! In: frames as they came. Out: their lanes, and their index buckets on the way to the cache. Frames
//! are only looked at.

use super::Pass;
use crate::plain::requests::{KEY, LOOK};
use crate::plain::vector::{KEY_BLOCK, ROW, Vector};
use crate::plain::window::part;
use store::KeyHash;

impl Pass<'_, '_> {
    /// Reads the requests of a row. `false`: none of them is for the fast path.
    #[inline(always)]
    pub(super) fn read_row(&mut self, row: usize, vector: impl Vector) -> bool {
        let mut keys = [[0; KEY_BLOCK]; ROW];
        let (mut lens, mut headers) = ([0; ROW], [0; ROW]);
        let (mut read, mut left) = (0, 0);
        let frames = self.burst.get(row * ROW..).unwrap_or_default();
        for n in 0..ROW {
            let Some(frame) = frames.get(n) else { break };
            let look = frame.window::<LOOK>().filter(|_| self.region.owns(frame));
            let asked = look.and_then(|look| self.requests.asked(frame, look, vector));
            let (Some(look), Some(asked)) = (look, asked) else {
                left |= 1u8 << n;
                continue;
            };
            keys[n] = *part(look, KEY);
            (lens[n], headers[n]) = (asked.key_len, asked.header);
            read |= 1 << n;
        }
        if read == 0 {
            return false;
        }
        let store = self.guard.store();
        if left != 0 {
            for (n, frame) in frames.iter().enumerate().take(ROW) {
                if left >> n & 1 == 1 {
                    self.order.note(frame.bytes(), self.requests.plain(), self.dialects, store);
                }
            }
        }
        let hashes = vector.hash(store, &keys, lens);
        for (n, hash) in hashes.into_iter().enumerate() {
            if self.order.holds_back(hash) {
                read &= !(1 << n);
            }
            store.prefetch_near(KeyHash(hash));
        }
        self.lanes.hash[row] = hashes;
        self.lanes.key_len[row] = lens;
        self.lanes.header[row] = headers;
        self.lanes.read |= read << (row * ROW);
        true
    }
}
