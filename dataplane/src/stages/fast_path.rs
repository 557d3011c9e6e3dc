//! The fast path: stages 3 to 7 in one pass over a burst, for what nearly every request is.
//!
//! In: a burst as stage 2 leaves it. Out: some of its frames are replies, complete to the checksum;
//! the others are as they came, for the general stages. Which is which stands in [`Answered`].
//!
//! **What is answered here**: gets of one key, alone in their datagrams, over IPv4 without options or
//! IPv6 without extension headers, behind one VLAN tag at most, with a UDP checksum, from a trusted source; a hit
//! whose reply fits a datagram, or a miss. A get is `get <key>\r\n`, `mg <key>` with the flags c, f, k, q, s, t and v
//! (`flags`), or one of the binary protocol's (`form`), of a key of at most 32 bytes; or a `get` of a longer one over IPv4
//! without a tag. Any doubt leaves the frame to the general stages, which also
//! name every reason to drop one. Nothing that counts or shows requests may see a difference; what cannot be served
//! here turns the fast path off for as long as it is on (watchers and `stats detail`: `Parts::is_off`; flushed
//! prefixes: `Store::liveness`).
//!
//! `gets` and up to four keys are answered behind those (`several`), and behind all gets
//! plain `set`s are carried out (`sets`), which have been read when the first one was met (`read_sets`).
//!
//! **How**: three steps over rows of four requests, each step two rows behind the one before, so that
//! the lines of the index and of items that one row prefetches come while other rows are worked on.
//! Short rows, because a core follows few page-table walks at once.
//!
//! ```text
//! step 1  read      headers, checksums, key; hash of the row; its index buckets prefetched
//! step 2  look_up   tags of the first bucket, or of both a row later; items prefetched
//! step 3  reply     the item verified, its value and the headers written, sums from known parts
//! ```
//!
//! **Shapes** (`shape`): the steps are compiled for plain `get`s, which are those over IPv4 without a tag; for `get` over
//! IPv6; for `get` of a long key, `mg` and binary gets over IPv4; and once for any of these of a short key. The first request of a burst shows which
//! shape is walked. Gets of another shape that it meets are answered by a pass of their own afterwards (`passes`).
//!
//! **Order**: a read never goes before a request of its burst that may change its key (`order`), and no
//! change before another, or before a read of its key. Replies to other keys may leave in another order than
//! requests came.
//!
//! Owns nothing but scratch; frames stay in the burst. Nothing fails.

mod shape;
mod passes;
mod form;
mod flags;
mod read;
mod lookup;
mod reply;
mod hit;
mod meta;
mod binary;
mod line;
mod fixed_replies;
mod seal_text;
mod long_key;
mod order;
mod several;
mod read_sets;
mod set_line;
mod sets;
mod located;
mod whole;
mod totals;

use crate::commands::Ctx;
use crate::counters::WorkerCounters;
use crate::observe::Observer;
use crate::plain::vector::{Compiled, ROW, ROWS_AHEAD, Vector};
use crate::plain::window::TEXT;
pub use crate::plain::{FastPathMode, RequestMatcher};
use driver_shim::{BURST_MAX, Burst, Frame, Region, TxCaps};
use memcache::Dialects;
use memcache::admin::Events;
use order::Order;
use read_sets::SetsRead;
use several::{Rest, Several};
use shape::{FamilyAndForm, PLAIN, Shape};
use std::marker::PhantomData;
use store::{Fetched, Guard, Liveness};
use totals::{Totals, next_of};
use wire::ipv4::PLAIN_L4;

/// Rows of a full burst.
const ROWS: usize = BURST_MAX / ROW;
const _: () = assert!(ROWS * ROW == BURST_MAX && BURST_MAX <= u64::BITS as usize);
/// First byte of the key in a reply.
const KEY_IN_REPLY: usize = TEXT + b"VALUE ".len();

/// One worker's fast path.
#[derive(Debug)]
pub struct FastPath {
    mode: FastPathMode,
    order: Order,
    several: Box<[Several; BURST_MAX]>,
    sets: Box<SetsRead>,
    /// A bit for each request of a batch of the offload's: it has been answered.
    located: Box<[u64]>,
}

/// Parts of the worker, and of a port, that answers need.
pub struct Parts<'a> {
    /// The store's session, and what observes commands.
    pub ctx: Ctx<'a>,
    /// The worker's counters.
    pub counters: &'a WorkerCounters,
    /// The region that frames must lie in.
    pub region: &'a Region,
    /// Checksums that the port fills in.
    pub caps: TxCaps,
}

impl Parts<'_> {
    /// Whether the port fills in checksums. What fills in one alone (virtio, vmxnet3) is asked for neither.
    #[inline(always)]
    fn csum_offload(&self) -> bool {
        self.caps.ip && self.caps.udp
    }

    /// Whether the general stages are to answer everything, because a client watches gets, or `stats detail` counts by
    /// prefix.
    #[inline(always)]
    fn is_off(&self) -> bool {
        self.ctx.server().watchers.want(Events::FETCHERS) || self.ctx.server().detail.is_on()
    }
}

impl std::fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("caps", &self.caps).finish_non_exhaustive()
    }
}

/// What became of the frames of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answered {
    /// Bit n: frame n is a reply now.
    frames: u64,
    /// Bit n: frame n is done with, and is to be sent no reply.
    silent: u64,
    /// Bytes of the replies.
    pub bytes: u64,
    /// Gets that were answered.
    pub gets: u64,
    /// Sets that were carried out.
    pub sets: u64,
}

impl Answered {
    fn of(totals: &Totals) -> Self {
        let frames = totals.frames & !totals.silent;
        let before = u64::from(PLAIN_L4) * u64::from(frames.count_ones());
        Self {
            frames,
            silent: totals.silent,
            bytes: (totals.lengths & u64::from(u32::MAX)) + before,
            gets: (totals.frames & !totals.sets).count_ones().into(),
            sets: totals.sets.count_ones().into(),
        }
    }

    /// How many frames are replies.
    pub fn count(self) -> usize {
        self.frames.count_ones() as usize
    }

    /// Takes the frames that are to be sent no reply out of the burst, and their bits out of `others`.
    pub(crate) fn take_silent(&mut self, burst: &mut Burst, others: &mut u64) -> usize {
        if self.silent == 0 {
            return 0;
        }
        let taken = self.silent.count_ones() as usize;
        for n in (0..burst.len()).rev().filter(|n| self.silent >> n & 1 == 1) {
            drop(burst.remove(n));
            let before = (1 << n) - 1;
            for bits in [&mut self.frames, &mut *others] {
                *bits = (*bits & before) | (*bits >> 1 & !before);
            }
        }
        self.silent = 0;
        taken
    }

    /// Of `bits`, those of the frames that are no replies, as if there were no others.
    pub(crate) fn repacked(self, bits: u64) -> u64 {
        let left = (0..BURST_MAX).filter(|n| !self.has(*n)).enumerate();
        left.fold(0, |packed, (to, n)| packed | (bits >> n & 1) << to)
    }

    /// Whether frame `n` is one.
    pub fn has(self, n: usize) -> bool {
        n < BURST_MAX && self.frames >> n & 1 == 1
    }
}

/// What is known of each request of a pass: request n is in lane n % 4 of row n / 4, and of a pass over all frames it
/// is in frame n.
#[derive(Debug)]
struct Rows<'g> {
    hash: [[u64; ROW]; ROWS],
    /// Where the item may be, by its tag. `None`: neither bucket has that tag.
    found: [[Option<Fetched<'g>>; ROW]; ROWS],
    key_len: [[u8; ROW]; ROWS],
    /// The sum of the reply's IPv4 header, but for its length.
    ip_sum: [[u16; ROW]; ROWS],
    /// In a pass over some frames, the number of the request's frame.
    number: [[u8; ROW]; ROWS],
}

impl Rows<'_> {
    const EMPTY: Self = Self {
        hash: [[0; ROW]; ROWS],
        found: [[None; ROW]; ROWS],
        key_len: [[0; ROW]; ROWS],
        ip_sum: [[0; ROW]; ROWS],
        number: [[0; ROW]; ROWS],
    };
}

impl FastPath {
    /// A fast path, where batches of the offload, if there is one, have up to `batch_max` requests. `mode` is not
    /// [`FastPathMode::Off`].
    pub fn new(mode: FastPathMode, batch_max: usize) -> Self {
        Self {
            mode,
            order: Order::default(),
            several: Box::new([Several::default(); BURST_MAX]),
            sets: Box::new(SetsRead::new()),
            located: vec![0; batch_max.div_ceil(BURST_MAX)].into(),
        }
    }

    /// Answers what it can of a burst.
    #[inline]
    pub fn run(
        &mut self,
        burst: &mut [Frame],
        matcher: &mut RequestMatcher,
        parts: &mut Parts<'_>,
    ) -> Answered {
        if parts.is_off() {
            return Answered::default();
        }
        let Some(liveness) = parts.ctx.session.store().liveness() else {
            return Answered::default();
        };
        let totals = match parts.csum_offload() {
            true => self.run_with::<true>(burst, matcher, parts, liveness),
            false => self.run_with::<false>(burst, matcher, parts, liveness),
        };
        totals.count(parts.ctx.observer, parts.counters);
        Answered::of(&totals)
    }

    #[inline]
    fn run_with<const CSUM_OFFLOAD: bool>(
        &mut self,
        burst: &mut [Frame],
        matcher: &mut RequestMatcher,
        parts: &mut Parts<'_>,
        liveness: Liveness,
    ) -> Totals {
        let totals = self.answer_gets::<CSUM_OFFLOAD>(burst, matcher, parts, liveness);
        self.carry_out_sets::<CSUM_OFFLOAD>(burst, 0, matcher, parts, totals)
    }

    #[inline]
    fn answer_gets<const CSUM_OFFLOAD: bool>(
        &mut self,
        burst: &mut [Frame],
        matcher: &mut RequestMatcher,
        parts: &mut Parts<'_>,
        liveness: Liveness,
    ) -> Totals {
        let Self { mode, order, several, sets, .. } = self;
        sets.begin();
        let (observer, region) = (parts.ctx.observer, parts.region);
        let guard = parts.ctx.session.pin();
        let (guard, dialects) = (&guard, observer.server.dialects);
        let counters = parts.counters;
        order.begin();
        let mut rows = Rows::EMPTY;
        let around = (observer, region, counters, liveness);
        let pass = Pass::new(&mut *burst, &mut *matcher, (&mut rows, &mut *order), guard, around);
        let totals = pass.answer::<CSUM_OFFLOAD>(&mut *sets, *mode);
        let left = left_of(burst, &totals) & !sets.frames();
        if left == 0 || order.may_change_any() || !several::any(burst, left) {
            return totals;
        }
        sets.asked().iter().for_each(|set| order.add(set.hash));
        // To `Rest::run`, compiled for this CPU's vectors.
        mode.run_on_this_cpu(Rest::<CSUM_OFFLOAD> {
            burst,
            left,
            matcher,
            asked: several,
            order,
            guard,
            observer,
            region,
            liveness,
            dialects,
            totals,
        })
    }
}

/// The frames of a burst that have not been answered.
#[inline(always)]
fn left_of(burst: &[Frame], totals: &Totals) -> u64 {
    u64::MAX >> (BURST_MAX - burst.len().clamp(1, BURST_MAX)) & !totals.frames
}

/// One pass over a burst.
struct Pass<'p, 'g> {
    burst: &'p mut [Frame],
    matcher: &'p mut RequestMatcher,
    rows: &'p mut Rows<'g>,
    order: &'p mut Order,
    guard: &'g Guard<'g>,
    observer: Observer<'p>,
    region: &'p Region,
    counters: &'p WorkerCounters,
    liveness: Liveness,
    dialects: Dialects,
    totals: Totals,
    /// Bit n: request n is one for the fast path.
    read: u64,
    /// Bit n: no bucket that was looked at has the key of request n. After both, it is a miss.
    missed: u64,
    /// Bit n: frame n is left to passes over some frames, and none of them has read it yet.
    unread: u64,
    /// Headers and form of the burst's first request.
    own_kind: FamilyAndForm,
    /// Bit n: frame n is a get that is left to the pass for another shape.
    to_other: u64,
    /// Headers and form of the gets in `to_other`.
    other_kind: FamilyAndForm,
}

/// A pass for a shape: over all frames, or over a `SUBSET`; for a port that fills in checksums (`CSUM_OFFLOAD`), or for
/// one that does not.
struct Walk<'w, 'p, 'g, 's, S, const SUBSET: bool, const CSUM_OFFLOAD: bool> {
    pass: &'w mut Pass<'p, 'g>,
    sets: &'s mut SetsRead,
    mode: FastPathMode,
    shape: PhantomData<S>,
}

impl<S: Shape, const SUBSET: bool, const CSUM_OFFLOAD: bool> Compiled
    for Walk<'_, '_, '_, '_, S, SUBSET, CSUM_OFFLOAD>
{
    type Done = ();

    #[inline(always)]
    fn run(self, vector: impl Vector) {
        self.pass.run::<S, SUBSET, CSUM_OFFLOAD>((self.sets, self.mode), vector);
    }
}

impl<'p, 'g> Pass<'p, 'g> {
    /// Nothing of the burst is looked at yet.
    #[inline(always)]
    fn new(
        burst: &'p mut [Frame],
        matcher: &'p mut RequestMatcher,
        (rows, order): (&'p mut Rows<'g>, &'p mut Order),
        guard: &'g Guard<'g>,
        (observer, region, counters, liveness): (
            Observer<'p>,
            &'p Region,
            &'p WorkerCounters,
            Liveness,
        ),
    ) -> Self {
        Self {
            burst,
            matcher,
            rows,
            order,
            guard,
            observer,
            region,
            counters,
            liveness,
            dialects: observer.server.dialects,
            totals: Totals::default(),
            read: 0,
            missed: 0,
            unread: 0,
            own_kind: PLAIN,
            to_other: 0,
            other_kind: PLAIN,
        }
    }

    /// Walks for a shape.
    #[inline(always)]
    fn walk<S: Shape, const SUBSET: bool, const CSUM_OFFLOAD: bool>(
        &mut self,
        sets: &mut SetsRead,
        mode: FastPathMode,
    ) {
        let shape = PhantomData::<S>;
        // To `Pass::run` below, compiled for this CPU's vectors.
        mode.run_on_this_cpu(Walk::<S, SUBSET, CSUM_OFFLOAD> { pass: self, sets, mode, shape });
    }

    #[inline(always)]
    fn run<S: Shape, const SUBSET: bool, const CSUM_OFFLOAD: bool>(
        &mut self,
        (sets, mode): (&mut SetsRead, FastPathMode),
        vector: impl Vector,
    ) {
        let requests = if SUBSET { self.unread.count_ones() as usize } else { self.burst.len() };
        let mut rows = requests.div_ceil(ROW).min(ROWS);
        let mut step = 0;
        while step < rows + 2 * ROWS_AHEAD {
            if step < rows {
                rows = self.read_row::<S, SUBSET>((step, rows), (&mut *sets, mode), vector);
            }
            // A row that is not there yet, or no more, has a number beyond the last.
            let behind = |rows: usize| step.wrapping_sub(rows);
            if behind(ROWS_AHEAD + 1) < rows {
                self.look_up_either(behind(ROWS_AHEAD + 1));
            }
            if behind(ROWS_AHEAD) < rows {
                self.look_up_row(behind(ROWS_AHEAD), self.read);
            }
            if behind(2 * ROWS_AHEAD) < rows {
                self.reply_row::<S, SUBSET, CSUM_OFFLOAD>(behind(2 * ROWS_AHEAD), vector);
            }
            step += 1;
        }
        if S::IS_PLAIN && !SUBSET {
            self.show_hits();
        }
    }

    /// Shows the sample of keys that were found what is to be sampled: they stand in the replies.
    #[inline(always)]
    fn show_hits(&self) {
        let mut hits = self.totals.frames & !self.totals.missed;
        while let Some(before) = self.observer.pass_keys(hits.count_ones().into()) {
            (0..before).for_each(|_| hits &= hits.wrapping_sub(1));
            let Some(n) = next_of(&mut hits) else { break };
            let key = self.burst.get(n).and_then(|frame| frame.bytes().get(KEY_IN_REPLY..));
            let len = self.rows.key_len[n / ROW % ROWS][n % ROW];
            if let Some(key) = key.and_then(|key| key.get(..usize::from(len))) {
                self.observer.hot_key(key);
            }
        }
    }
}

/// Bit n for lane n of a row.
#[inline(always)]
fn bits_of(all: u64, row: usize) -> u64 {
    all >> (row * ROW) & ((1 << ROW) - 1)
}
