//! Plain `set`s, in a loop of their own behind the gets.
//!
//! In: the frames that the gets' passes have left, as they came. Out: plain `set`s are carried out, in
//! their order, and are replies, or are to be sent none; the others are left. Each is stored by `store_unwatched`: in
//! a chunk that was reserved before, or as everywhere else where none was. [`Observer::sets`](crate::observe::Observer::sets)
//! counts them once. Nothing fails here: what the store refuses is an answer.
//!
//! Rows of four, each step two rows behind the one before; read, and hashed, they are already (`read_sets`):
//!
//! ```text
//! prefetch   the item that is there, by its tag
//! carry out  the item stored, the answer written
//! ```
//!
//! Not pinned: what was replaced comes back while it is in the cache.
//!
//! **Order**: changes keep theirs, whatever their keys: the first request that may change something and is no
//! plain `set` ends the pass. A `set` does not go before a read of its key that is left. Reads behind it
//! were of other keys, or are left (`order`).

use super::fixed_replies::{Fixed, write_line};
use super::order::Order;
use super::set_line::{KEY, Set};
use super::totals::{Totals, next_of};
use super::{FastPath, Parts, left_of};
use crate::commands::{Ctx, store_unwatched};
use crate::plain::family::{FRAME, V4, finish};
use crate::plain::requests::RequestMatcher;
use crate::plain::vector::{Compiled, Portable, ROW, ROWS_AHEAD, Vector};
use driver_shim::Frame;
use memcache::Dialects;
use memcache::admin::Events;
use store::verbs::HashedSet;
use store::{KeyHash, RESERVED_MAX, Store};
use wire::PlainMatcher;

/// The answer to nearly all.
const STORED: Fixed<8> = Fixed::new(b"STORED\r\n");

/// The pass over what the others have left of a burst.
struct Sets<'p, 'c, const CSUM_OFFLOAD: bool> {
    burst: &'p mut [Frame],
    asked: &'p [Set],
    ctx: &'p mut Ctx<'c>,
    totals: Totals,
}

impl FastPath {
    /// Carries out the plain `set`s among the frames that were not answered, but for those in `others`, which are
    /// left to the offload.
    #[inline]
    pub(super) fn carry_out_sets<const CSUM_OFFLOAD: bool>(
        &mut self,
        burst: &mut [Frame],
        others: u64,
        matcher: &mut RequestMatcher,
        parts: &mut Parts<'_>,
        totals: Totals,
    ) -> Totals {
        let left = left_of(burst, &totals) & !others;
        if left == 0 {
            return totals;
        }
        let Self { mode, order, sets, .. } = self;
        let ctx = &mut parts.ctx;
        sets.read(left, *mode, (burst, parts.region), matcher, ctx.session.store());
        // A client that watches what is stored is shown it by the general stages.
        if sets.frames() == 0 || ctx.server().watchers.want(Events::MUTATIONS) {
            return totals;
        }
        let mut asked = sets.asked();
        let left = left & !sets.frames();
        if left != 0 {
            let (store, dialects): (&Store, _) = (ctx.session.store(), ctx.server().dialects);
            order.begin();
            let n = first_of(asked, left, order, burst, (matcher.plain(), dialects, store));
            asked = asked.get(..n).unwrap_or_default();
        }
        // To `Sets::run` below, compiled for this CPU's vectors.
        mode.run_on_this_cpu(Sets::<CSUM_OFFLOAD> { burst, asked, ctx, totals })
    }
}

/// How many of these may go before what is left.
#[cold]
#[inline(never)]
fn first_of(
    asked: &[Set],
    mut left: u64,
    order: &mut Order,
    burst: &[Frame],
    (plain, dialects, store): (&PlainMatcher, Dialects, &Store),
) -> usize {
    let may_go = |set: &Set| {
        let mut before = left & !(u64::MAX << set.frame);
        left &= !before;
        let only_read = std::iter::from_fn(|| next_of(&mut before))
            .filter_map(|n| burst.get(n))
            .all(|frame| order.note_reads(frame.bytes(), plain, dialects, store));
        only_read && !order.may_change(set.hash)
    };
    asked.iter().map(may_go).take_while(|may| *may).count()
}

// So that a row is reserved as a whole.
const _: () = assert!(RESERVED_MAX.is_multiple_of(ROW));

impl<const CSUM_OFFLOAD: bool> Compiled for Sets<'_, '_, CSUM_OFFLOAD> {
    type Done = Totals;

    #[inline(always)]
    fn run(mut self, vector: impl Vector) -> Totals {
        let asked = self.asked;
        // For how many there are chunks, or were to be.
        let mut reserved = 0;
        for step in 0..asked.len().div_ceil(ROW) + ROWS_AHEAD {
            // A row that is not there yet, or no more, has a number beyond the last.
            let of_row = |row: usize| {
                let from = row.saturating_mul(ROW);
                asked.get(from..asked.len().min(from.saturating_add(ROW))).unwrap_or_default()
            };
            let store: &Store = self.ctx.session.store();
            for set in of_row(step) {
                store.prefetch_replaced(KeyHash(set.hash), set.lens());
            }
            let row = of_row(step.wrapping_sub(ROWS_AHEAD));
            if !row.is_empty() && (step - ROWS_AHEAD) * ROW >= reserved {
                let next = reserved..asked.len().min(reserved + RESERVED_MAX);
                let next = asked.get(next).unwrap_or_default();
                self.ctx.session.reserve(next.iter().map(Set::lens));
                reserved += RESERVED_MAX;
            }
            self.carry_out_row(row, vector);
        }
        self.ctx.session.settle();
        self.totals
    }
}

impl<const CSUM_OFFLOAD: bool> Sets<'_, '_, CSUM_OFFLOAD> {
    /// Carries out what a row asks, and answers it.
    #[inline(always)]
    fn carry_out_row(&mut self, row: &[Set], vector: impl Vector) {
        let Self { burst, ctx, totals, .. } = self;
        for set in row {
            let number = usize::from(set.frame);
            let Some(mut frame) = burst.get_mut(number).and_then(Frame::open::<FRAME>) else {
                continue;
            };
            let window = &mut *frame.bytes;
            let (at, len) = (usize::from(set.value_at), usize::from(set.value_len));
            let (key, value) =
                (window.get(KEY..KEY + usize::from(set.key_len)), window.get(at..at + len));
            let (Some(key), Some(value)) = (key, value) else { continue };
            let (hash, exptime) = (KeyHash(set.hash), set.exptime.into());
            let &Set { value_sum, flags, .. } = set;
            let what = HashedSet { hash, key, value, value_sum, flags, exptime };
            let udp_len = match store_unwatched(ctx, what) {
                None if set.noreply => 0,
                None => STORED.write::<CSUM_OFFLOAD>(window, V4, set.ip_sum, vector),
                Some(line) => {
                    totals.sets_refused += 1;
                    if set.noreply {
                        0
                    } else {
                        write_line::<CSUM_OFFLOAD>(window, line, set.ip_sum, Portable)
                    }
                }
            };
            if udp_len > 0 {
                finish::<CSUM_OFFLOAD, _>(&mut frame, V4, udp_len);
            }
            totals.reply_to_set(number, udp_len, set.text_len);
        }
    }
}
