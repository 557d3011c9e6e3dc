//! Plain `set`s, in a loop of their own behind the gets.
//!
//! In: the frames that the gets' passes have left, as they came. Out: plain `set`s are carried out, in
//! their order, and are replies, or are to be sent none; the others are left. Each is stored as
//! stage 6 stores it, by the same function, which counts it, too; so it cannot fail here: what the store
//! refuses is an answer.
//!
//! Rows of four frames, each step two rows behind the one before:
//!
//! ```text
//! read       headers, checksums, line; hash of the row; the lines that a change reads on the way to the cache
//! prefetch   the item that is there, by its tag
//! carry out  the item stored, the answer written
//! ```
//!
//! Not pinned: what was replaced comes back while it is in the cache.
//!
//! **Order**: changes keep theirs, whatever their keys: the first request that may change something and is no
//! plain `set` ends the pass. A `set` does not go before a read of its key that is left. Reads behind it
//! were of other keys, or are left (`order`).

use super::fixed::{Fixed, write_line};
use super::order::Order;
use super::requests::Requests;
use super::seal::finish;
use super::set_line::{self, KEY, Set};
use super::totals::{Totals, next_of};
use super::vector::{KEY_BLOCK, Portable, ROW, ROWS_AHEAD, Vector, Work};
use super::window::WINDOW;
use crate::commands::{Ctx, store_unwatched};
use driver_shim::{BURST_MAX, Frame, Region};
use store::KeyHash;

/// Rows of a full burst.
const ROWS: usize = BURST_MAX / ROW;
/// The answer to nearly all.
const STORED: Fixed<8> = Fixed::new(b"STORED\r\n");

/// The pass over what the others have left of a burst.
pub(super) struct Sets<'p, 'c, const BY_PORT: bool> {
    pub(super) burst: &'p mut [Frame],
    pub(super) requests: &'p mut Requests,
    pub(super) asked: &'p mut [Set; BURST_MAX],
    /// How many of these there are.
    pub(super) n_asked: usize,
    /// Keys that requests which are left read.
    pub(super) order: &'p mut Order,
    /// Frames that are left, and not noted there yet.
    pub(super) left: u64,
    pub(super) ctx: &'p mut Ctx<'c>,
    pub(super) region: &'p Region,
    pub(super) item_max_bytes: usize,
    pub(super) totals: Totals,
}

/// Whether one of the frames in `left` may be a `set`.
#[inline]
pub(super) fn any(burst: &[Frame], mut left: u64) -> bool {
    std::iter::from_fn(|| next_of(&mut left)).filter_map(|n| burst.get(n)).any(set_line::may_be)
}

impl<const BY_PORT: bool> Work for Sets<'_, '_, BY_PORT> {
    type Done = Totals;

    #[inline(always)]
    fn run(mut self, vector: impl Vector) -> Totals {
        self.order.begin();
        let mut rows = self.burst.len().div_ceil(ROW).min(ROWS);
        // How many there are before each row, and behind the last.
        let mut ends = [0; ROWS + 1];
        let mut step = 0;
        while step < rows + 2 * ROWS_AHEAD {
            if step < rows {
                if !self.read_row(step, vector) {
                    rows = step + 1;
                }
                ends[step + 1] = self.n_asked;
            }
            let of_row = |behind: usize| match step.checked_sub(behind).filter(|row| *row < rows) {
                Some(row) => ends[row]..ends[row + 1],
                None => 0..0,
            };
            for set in self.asked.get(of_row(ROWS_AHEAD)).unwrap_or_default() {
                self.ctx.session.store().prefetch_replaced(KeyHash(set.hash), set.lens());
            }
            let row = of_row(2 * ROWS_AHEAD);
            let sets = self.asked.get(row.clone()).unwrap_or_default();
            self.ctx.session.reserve(sets.iter().map(Set::lens));
            for n in row {
                self.carry_out(n, vector);
            }
            step += 1;
        }
        self.ctx.session.settle();
        self.totals
    }
}

impl<const BY_PORT: bool> Sets<'_, '_, BY_PORT> {
    /// Reads a row. `false`: none of those behind it may go before what is left.
    #[inline(always)]
    fn read_row(&mut self, row: usize, vector: impl Vector) -> bool {
        let before = self.n_asked;
        let (mut keys, mut lens) = ([[0; KEY_BLOCK]; ROW], [1; ROW]);
        let (mut found, mut may_go_on) = (0, true);
        for n in row * ROW..row * ROW + ROW {
            let Some(frame) = self.burst.get(n) else { break };
            if self.totals.frames >> n & 1 == 1 {
                continue;
            }
            let Some(set) = self.asked.get_mut(before + found) else { break };
            let key = match self.region.owns(frame) {
                true => self.requests.set((n, frame), self.item_max_bytes, vector, set),
                false => None,
            };
            let Some(key) = key else {
                self.left |= 1 << n;
                continue;
            };
            (keys[found % ROW], lens[found % ROW]) = (*key, set.key_len);
            if self.left != 0 && !self.note_left() {
                may_go_on = false;
                break;
            }
            found += 1;
        }
        if found == 0 {
            return may_go_on;
        }
        let store = self.ctx.session.store();
        let hashes = vector.hash(store, &keys, lens);
        for hash in hashes.into_iter().take(found) {
            let Some(set) = self.asked.get_mut(self.n_asked) else { break };
            if self.order.holds_back(hash) {
                return false;
            }
            store.prefetch_change(KeyHash(hash));
            set.hash = hash;
            self.n_asked += 1;
        }
        may_go_on
    }

    /// Notes what the frames read that are left so far. `false`: one of them may change something.
    #[cold]
    #[inline(never)]
    fn note_left(&mut self) -> bool {
        let (store, dialects) = (self.ctx.session.store(), self.ctx.server().dialects);
        let mut left = std::mem::take(&mut self.left);
        std::iter::from_fn(|| next_of(&mut left)).filter_map(|n| self.burst.get(n)).all(|frame| {
            self.order.note_reads(frame.bytes(), self.requests.plain(), dialects, store)
        })
    }

    /// Carries a `set` out and answers it.
    #[inline(always)]
    fn carry_out(&mut self, n: usize, vector: impl Vector) {
        let Some(set) = self.asked.get(n) else { return };
        let number = usize::from(set.frame);
        let Some(mut frame) = self.burst.get_mut(number).and_then(Frame::open::<WINDOW>) else {
            return;
        };
        let window = &mut *frame.bytes;
        let (at, len) = (usize::from(set.value_at), usize::from(set.value_len));
        let (key, value) =
            (window.get(KEY..KEY + usize::from(set.key_len)), window.get(at..at + len));
        let (Some(key), Some(value)) = (key, value) else { return };
        let what = memcache::Store::set(key, set.flags, set.exptime.into(), value);
        let refused = store_unwatched(self.ctx, KeyHash(set.hash), set.value_sum, &what);
        let udp_len = match refused {
            _ if set.noreply => 0,
            None => STORED.write::<BY_PORT>(window, set.header, vector),
            Some(line) => write_line::<BY_PORT>(window, line, set.header, Portable),
        };
        if udp_len > 0 {
            finish::<BY_PORT>(&mut frame, udp_len);
        }
        self.totals.reply_to_set(number, udp_len, set.text_len);
    }
}
