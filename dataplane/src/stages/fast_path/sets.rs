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
use super::set_line::{self, KEY, Set};
use super::totals::{Totals, next_of};
use super::{Context, FastPath, left_of};
use crate::commands::{Ctx, store_unwatched};
use crate::plain::requests::Requests;
use crate::plain::seal::finish;
use crate::plain::vector::{KEY_BLOCK, Portable, ROW, ROWS_AHEAD, Vector, Work};
use crate::plain::window::WINDOW;
use driver_shim::{BURST_MAX, Frame, Region};
use memcache::Dialects;
use memcache::admin::Events;
use std::ops::Range;
use store::{KeyHash, RESERVED_MAX, Store};
use wire::Plain;

/// Rows of a full burst.
const ROWS: usize = BURST_MAX / ROW;
/// The answer to nearly all.
const STORED: Fixed<8> = Fixed::new(b"STORED\r\n");

/// The pass over what the others have left of a burst.
struct Sets<'p, 'c, const BY_PORT: bool> {
    burst: &'p mut [Frame],
    requests: &'p mut Requests,
    asked: &'p mut [Set; BURST_MAX],
    /// How many of these there are.
    n_asked: usize,
    /// Frames that are not to be looked at.
    others: u64,
    /// Keys that requests which are left read.
    order: &'p mut Order,
    /// Frames that are left, and not noted there yet.
    left: u64,
    ctx: &'p mut Ctx<'c>,
    region: &'p Region,
    item_max_bytes: usize,
    totals: Totals,
}

impl FastPath {
    /// Carries out the plain `set`s among the frames that were not answered, but for those in `others`, which are
    /// left to another engine.
    #[inline]
    pub(super) fn carry_out_sets<const BY_PORT: bool>(
        &mut self,
        burst: &mut [Frame],
        others: u64,
        requests: &mut Requests,
        context: &mut Context<'_>,
        totals: Totals,
    ) -> Totals {
        let left = left_of(burst, &totals) & !others;
        // A client that watches what is stored is shown it by the general stages.
        let shown = || context.ctx.server().watchers.want(Events::MUTATIONS);
        if left == 0 || !any(burst, left) || shown() {
            return totals;
        }
        let Self { manner, order, sets, .. } = self;
        let region = context.region;
        let ctx = &mut context.ctx;
        manner.carry_out(Sets::<BY_PORT> {
            burst,
            requests,
            asked: sets,
            n_asked: 0,
            others,
            left: 0,
            order,
            item_max_bytes: ctx.session.store().config().item_max_bytes,
            ctx,
            region,
            totals,
        })
    }
}

/// Whether one of the frames in `left` may be a `set`.
#[inline]
fn any(burst: &[Frame], mut left: u64) -> bool {
    std::iter::from_fn(|| next_of(&mut left)).filter_map(|n| burst.get(n)).any(set_line::may_be)
}

// So that a row is reserved as a whole.
const _: () = assert!(RESERVED_MAX >= (2 * ROWS_AHEAD + 1) * ROW);

impl<const BY_PORT: bool> Work for Sets<'_, '_, BY_PORT> {
    type Done = Totals;

    #[inline(always)]
    fn run(mut self, vector: impl Vector) -> Totals {
        self.order.begin();
        let mut rows = self.burst.len().div_ceil(ROW).min(ROWS);
        // How many there are before each row, and behind the last.
        let mut ends = [0; ROWS + 1];
        // For how many there are chunks, or were to be.
        let mut reserved = 0;
        let mut step = 0;
        while step < rows + 2 * ROWS_AHEAD {
            if step < rows {
                if !self.read_row(step, vector) {
                    rows = step + 1;
                }
                ends[step + 1] = self.n_asked;
            }
            // A row that is not there yet, or no more, has a number beyond the last.
            let of_row = |behind: usize| match step.wrapping_sub(behind) {
                row if row < rows => ends[row % ROWS]..ends[row % ROWS + 1],
                _ => 0..0,
            };
            let store: &Store = self.ctx.session.store();
            for set in self.asked.get(of_row(ROWS_AHEAD)).unwrap_or_default() {
                store.prefetch_replaced(KeyHash(set.hash), set.lens());
            }
            let row = of_row(2 * ROWS_AHEAD);
            if row.start >= reserved && !row.is_empty() {
                // For this row and those that have been read behind it.
                let next = self.asked.get(row.start..self.n_asked).unwrap_or_default();
                self.ctx.session.reserve(next.iter().map(Set::lens));
                reserved = row.start + next.len().min(RESERVED_MAX);
            }
            self.carry_out_row(row, vector);
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
        let Self { burst, requests, asked, order, ctx, .. } = self;
        let (region, item_max_bytes) = (self.region, self.item_max_bytes);
        let (store, dialects): (&Store, _) = (ctx.session.store(), ctx.server().dialects);
        let places = asked.get_mut(self.n_asked..).and_then(<[Set]>::first_chunk_mut::<ROW>);
        let Some(places) = places else { return false };
        let done = self.totals.frames | self.others;
        let (mut keys, mut lens) = ([[0; KEY_BLOCK]; ROW], [1; ROW]);
        let (mut found, mut may_go_on, mut left) = (0, true, self.left);
        for n in row * ROW..row * ROW + ROW {
            let Some(frame) = burst.get(n) else { break };
            if done >> n & 1 == 1 {
                continue;
            }
            let set = &mut places[found % ROW];
            let key = match region.owns(frame) {
                true => requests.set((n, frame), item_max_bytes, vector, set),
                false => None,
            };
            let Some(key) = key else {
                left |= 1 << n;
                continue;
            };
            (keys[found % ROW], lens[found % ROW]) = (*key, set.key_len);
            if left != 0 {
                let plain = requests.plain();
                if !note_left(order, std::mem::take(&mut left), burst, (plain, dialects, store)) {
                    may_go_on = false;
                    break;
                }
            }
            found += 1;
        }
        self.left = left;
        if found == 0 {
            return may_go_on;
        }
        let hashes = vector.hash(store, &keys, lens);
        for (n, (hash, set)) in hashes.into_iter().zip(places).enumerate() {
            if n == found {
                break;
            }
            if order.holds_back(hash) {
                (found, may_go_on) = (n, false);
                break;
            }
            store.prefetch_change(KeyHash(hash));
            set.hash = hash;
        }
        self.n_asked += found;
        may_go_on
    }

    /// Carries out what a row asks, and answers it.
    #[inline(always)]
    fn carry_out_row(&mut self, row: Range<usize>, vector: impl Vector) {
        let Self { burst, asked, ctx, totals, .. } = self;
        for set in asked.get(row).unwrap_or_default() {
            let number = usize::from(set.frame);
            let Some(mut frame) = burst.get_mut(number).and_then(Frame::open::<WINDOW>) else {
                continue;
            };
            let window = &mut *frame.bytes;
            let (at, len) = (usize::from(set.value_at), usize::from(set.value_len));
            let (key, value) =
                (window.get(KEY..KEY + usize::from(set.key_len)), window.get(at..at + len));
            let (Some(key), Some(value)) = (key, value) else { continue };
            let numbers = (set.flags, set.exptime.into());
            let hash = KeyHash(set.hash);
            let refused = store_unwatched(ctx, hash, set.value_sum, (key, value), numbers);
            let udp_len = match refused {
                _ if set.noreply => 0,
                None => STORED.write::<BY_PORT>(window, set.header, vector),
                Some(line) => write_line::<BY_PORT>(window, line, set.header, Portable),
            };
            if udp_len > 0 {
                finish::<BY_PORT>(&mut frame, udp_len);
            }
            totals.reply_to_set(number, udp_len, set.text_len);
        }
    }
}

/// Notes what the frames in `left` read. `false`: one of them may change something.
#[cold]
#[inline(never)]
fn note_left(
    order: &mut Order,
    mut left: u64,
    burst: &[Frame],
    (plain, dialects, store): (&Plain, Dialects, &Store),
) -> bool {
    std::iter::from_fn(|| next_of(&mut left))
        .filter_map(|n| burst.get(n))
        .all(|frame| order.note_reads(frame.bytes(), plain, dialects, store))
}
