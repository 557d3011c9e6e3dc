//! With an offload: the host's share of plain `get`s, in two halves.
//!
//! *Coming in*, [`FastPath::plain_gets`] says which frames of a burst are ones, but for their checksums, which
//! the engine verifies: they go to it with [`EntryFlags::PLAIN`], neither classified nor admitted again.
//! *Coming back*, [`FastPath::answer_located`] answers them: by the whole reply that the engine wrote, where one was
//! accepted (`whole`); by the item that it located, or that the host's index has where it located none. The
//! location is any number: the item is verified against the key in the frame, as everywhere. With a wrong one
//! a frame is left to the stages behind the engine as it came.
//!
//! Plain `set`s are carried out as they come in ([`FastPath::run_sets`]), as without an offload.
//!
//! **Order**: a request of the batch that may change something, which is any that is not one to read and not
//! to be dropped, ends the pass.

use super::shape::Plain;
use super::totals::{Totals, next_of};
use super::whole::Whole;
use super::{Answered, FastPath, Parts, Pass, ROWS, Rows};
use crate::plain::family::FRAME;
use crate::plain::requests::{FRAME_AROUND_KEY, KEY, LOOK, RequestMatcher};
use crate::plain::vector::{Compiled, KEY_BLOCK, ROW, ROWS_AHEAD, Vector};
use crate::plain::window::{ADDRESSES, part};
use driver_shim::{BURST_MAX, Frame, Region, TxCaps};
use gpu::index::Form;
use gpu::{Batch, Entry, EntryFlags, Hint, ReqDesc, Verdict};
use store::{KeyHash, Liveness, Location};
use wire::ipv4::{PLAIN_L3, PLAIN_L4};
use wire::verify::verify_udp;

impl FastPath {
    /// Which frames of a burst are plain `get`s, up to the first row of four that has none: bit n for frame n. `caps`: what
    /// their port fills in.
    #[inline]
    pub(crate) fn plain_gets(
        &self,
        burst: &[Frame],
        matcher: &mut RequestMatcher,
        region: &Region,
        caps: TxCaps,
    ) -> u64 {
        // To `PlainGets::run` below, compiled for this CPU's vectors.
        let plain = self.mode.run_on_this_cpu(PlainGets { burst, matcher, region });
        if caps.ip && caps.udp { plain } else { filled_in(burst, plain) }
    }

    /// Carries out plain `set`s of a burst of which `plain` are plain `get`s. Those go to the engine, and are answered
    /// when they come back, after each `set` of the burst.
    #[inline]
    pub(crate) fn run_sets(
        &mut self,
        burst: &mut [Frame],
        plain: u64,
        matcher: &mut RequestMatcher,
        parts: &mut Parts<'_>,
    ) -> Answered {
        if parts.is_off() || parts.ctx.session.store().liveness().is_none() {
            return Answered::default();
        }
        self.sets.begin();
        let totals = Totals::default();
        let totals = match parts.csum_offload() {
            true => self.carry_out_sets::<true>(burst, plain, matcher, parts, totals),
            false => self.carry_out_sets::<false>(burst, plain, matcher, parts, totals),
        };
        totals.count(parts.ctx.observer, parts.counters);
        Answered::of(&totals)
    }

    /// Answers what it can of a batch that an engine is done with: its plain `get`s that came from port `mark`.
    /// These frames are behind the others afterwards, of which the batch is then. Returns
    /// how many the others are.
    pub(crate) fn answer_located(
        &mut self,
        frames: &mut [Frame],
        batch: &mut Batch,
        (mark, matcher): (u8, &mut RequestMatcher),
        parts: &mut Parts<'_>,
    ) -> usize {
        if parts.is_off() {
            return frames.len();
        }
        let Some(liveness) = parts.ctx.session.store().liveness() else { return frames.len() };
        let which = (mark, matcher);
        match parts.csum_offload() {
            true => self.located_with::<true>(frames, batch, which, parts, liveness),
            false => self.located_with::<false>(frames, batch, which, parts, liveness),
        }
        let answered = &self.located;
        let is_left =
            |n: usize| answered.get(n / BURST_MAX).is_none_or(|a| a >> (n % BURST_MAX) & 1 == 0);
        match answered.iter().map(|a| a.count_ones() as usize).sum::<usize>() {
            0 => return frames.len(),
            all if all == frames.len() => {
                batch.clear();
                return 0;
            }
            _ => {}
        }
        batch.retain(is_left);
        let mut left = 0;
        for n in (0..frames.len()).filter(|n| is_left(*n)) {
            frames.swap(left, n);
            left += 1;
        }
        left
    }

    fn located_with<const CSUM_OFFLOAD: bool>(
        &mut self,
        frames: &mut [Frame],
        batch: &Batch,
        (mark, matcher): (u8, &mut RequestMatcher),
        parts: &mut Parts<'_>,
        liveness: Liveness,
    ) {
        let Self { mode, order, located, .. } = self;
        let (observer, region) = (parts.ctx.observer, parts.region);
        let counters = parts.counters;
        let guard = parts.ctx.session.pin();
        let mut ended = false;
        let mut rows = Rows::EMPTY;
        located.fill(0);
        let requests_of = batch.entries.chunks(BURST_MAX).zip(batch.descs.chunks(BURST_MAX));
        let mut replies_of = batch.replies.chunks(BURST_MAX);
        let chunks = frames.chunks_mut(BURST_MAX).zip(requests_of).zip(located.iter_mut());
        for ((burst, (entries, descs)), answered) in chunks {
            let replies = replies_of.next().unwrap_or_default();
            let mut totals = Totals::default();
            if !replies.is_empty() {
                let burst = &mut *burst;
                // To `Whole::run`, compiled for this CPU's vectors, as `Located::run` below.
                let whole = Whole { burst, entries, descs, replies, mark, observer };
                totals = mode.run_on_this_cpu(whole);
            }
            if totals.frames.count_ones() as usize != burst.len() {
                let (rows, around) =
                    ((&mut rows, &mut *order), (observer, region, counters, liveness));
                let mut pass = Pass::new(burst, &mut *matcher, rows, &guard, around);
                pass.totals = totals;
                let (sought, has_reply_row) = (0, 0);
                let work = Located::<CSUM_OFFLOAD> {
                    pass,
                    entries,
                    descs,
                    mark,
                    sought,
                    has_reply_row,
                    ended,
                };
                (totals, ended) = mode.run_on_this_cpu(work);
            }
            totals.count_requests(observer, counters);
            *answered = totals.frames;
            if ended {
                break;
            }
        }
    }
}

/// Of `plain`, what is left without frames whose checksum a port only calls good, but that is not filled in: a
/// reply's is made of it.
#[inline]
fn filled_in(burst: &[Frame], plain: u64) -> u64 {
    let is_called_good = |frame: &Frame| frame.rx.udp_good.is_set();
    if burst.iter().any(is_called_good) { summed(burst, plain) } else { plain }
}

/// Of `plain`, the frames whose checksum is right.
#[inline(never)]
fn summed(burst: &[Frame], plain: u64) -> u64 {
    let is_right = |frame: &Frame| verify_udp(frame.bytes(), PLAIN_L3, PLAIN_L4, false);
    let bits = burst.iter().enumerate().filter(|(n, _)| plain >> n & 1 == 1);
    bits.fold(0, |right, (n, frame)| right | u64::from(is_right(frame)) << n)
}

/// The look at a burst that comes in.
struct PlainGets<'p> {
    burst: &'p [Frame],
    matcher: &'p mut RequestMatcher,
    region: &'p Region,
}

impl Compiled for PlainGets<'_> {
    type Done = u64;

    #[inline(always)]
    fn run(self, vector: impl Vector) -> u64 {
        let Self { burst, matcher, region } = self;
        let mut plain = 0;
        for (n, frame) in burst.iter().enumerate().take(BURST_MAX) {
            // Other traffic: a row without any.
            if n % ROW == 0 && n > 0 && plain >> (n - ROW) == 0 {
                break;
            }
            // All that a reply is written to is there, too.
            let bytes = frame.window::<FRAME>().filter(|_| region.owns(frame));
            let asked = bytes.and_then(|bytes| matcher.shaped(frame, part(bytes, 0), vector));
            // Not padded, so that the entry says how long the key is.
            let len = |key_len: u8| FRAME_AROUND_KEY + usize::from(key_len);
            let is_plain = asked.is_some_and(|asked| frame.len() == len(asked.key_len));
            plain |= u64::from(is_plain) << n;
        }
        plain
    }
}

/// One pass over a part of a batch.
struct Located<'p, 'g, const CSUM_OFFLOAD: bool> {
    pass: Pass<'p, 'g>,
    entries: &'p [Entry],
    descs: &'p [ReqDesc],
    /// Number of the port whose requests are answered.
    mark: u8,
    /// Bit n: request n is looked up here.
    sought: u64,
    /// Bit n: request n is looked up here, and the engine has a reply row for its key, whose reply is not sent.
    has_reply_row: u64,
    /// A request before here may change something.
    ended: bool,
}

impl<const CSUM_OFFLOAD: bool> Compiled for Located<'_, '_, CSUM_OFFLOAD> {
    type Done = (Totals, bool);

    #[inline(always)]
    fn run(mut self, vector: impl Vector) -> (Totals, bool) {
        let mut rows = self.pass.burst.len().min(BURST_MAX).div_ceil(ROW);
        let mut step = 0;
        while step < rows + 2 * ROWS_AHEAD {
            if step < rows && !self.ended {
                self.fetch_row(step, vector);
                if self.ended {
                    rows = step + 1;
                }
            }
            // A row that is not there yet, or no more, has a number beyond the last.
            let behind = |rows: usize| step.wrapping_sub(rows);
            if self.sought != 0 {
                if behind(ROWS_AHEAD + 1) < rows {
                    self.pass.look_up_either(behind(ROWS_AHEAD + 1));
                }
                if behind(ROWS_AHEAD) < rows {
                    self.pass.look_up_row(behind(ROWS_AHEAD), self.sought);
                }
            }
            if behind(2 * ROWS_AHEAD) < rows {
                self.pass.reply_row::<Plain, false, CSUM_OFFLOAD>(behind(2 * ROWS_AHEAD), vector);
            }
            step += 1;
        }
        self.pass.show_hits();
        self.note_found();
        (self.pass.totals, self.ended)
    }
}

impl<const CSUM_OFFLOAD: bool> Located<'_, '_, CSUM_OFFLOAD> {
    /// Takes what there is of a row's requests, and has their items on the way to the cache, or the buckets of those
    /// without.
    #[inline(always)]
    fn fetch_row(&mut self, row: usize, vector: impl Vector) {
        let Self { pass, entries, descs, mark, sought, has_reply_row, ended } = self;
        let from = row * ROW;
        let requests = entries
            .get(from..)
            .unwrap_or_default()
            .iter()
            .zip(descs.get(from..).unwrap_or_default());
        let frames = pass.burst.get_mut(from..).unwrap_or_default();
        let (mut read, mut unknown) = (0u64, 0u64);
        for (n, ((entry, desc), frame)) in requests.zip(frames).enumerate().take(ROW) {
            if !entry.flags.has(EntryFlags::PLAIN) {
                if !matches!(desc.verdict, Verdict::READY | Verdict::BAD) {
                    *ended = true;
                    break;
                }
                continue;
            }
            let [key, ..] = &desc.keys;
            let is_answered = pass.totals.frames >> (from + n) & 1 == 1;
            if desc.verdict != Verdict::READY || entry.mark != *mark || is_answered {
                continue;
            }
            pass.rows.key_len[row][n] = key.len;
            *has_reply_row |= u64::from(key.hint == Hint::ROW) << (from + n);
            let addresses = frame.window::<LOOK>().map(|look| *part(look, ADDRESSES));
            let ip_sum = addresses.and_then(|a| pass.matcher.trusted(u64::from_le_bytes(a)));
            let Some(ip_sum) = ip_sum else { continue };
            if key.hint == Hint::HIT {
                let Some(found) = pass.guard.fetch(Location(key.location)) else { continue };
                pass.rows.found[row][n] = Some(found);
            } else {
                unknown |= 1 << n;
            }
            pass.rows.ip_sum[row][n] = ip_sum;
            read |= 1 << n;
        }
        if unknown != 0 {
            seek_row(pass, row, unknown, vector);
        }
        pass.read |= read << from;
        *sought |= unknown << from;
    }

    /// Has the engine look again at keys that it had not found. Keys with a reply row are not among them: their
    /// writers invalidate those.
    #[inline(always)]
    fn note_found(&self) {
        let Pass { rows, totals, guard, counters, .. } = &self.pass;
        let mut found = self.sought & !self.has_reply_row & totals.frames & !totals.missed;
        if found == 0 {
            return;
        }
        counters.gpu_missed.add(found.count_ones().into());
        while let Some(n) = next_of(&mut found) {
            let (row, n) = (n / ROW % ROWS, n % ROW);
            let asked = rows.found[row][n].map(|found| (Form::GET, found.class()));
            guard.store().invalidate(KeyHash(rows.hash[row][n]), asked);
        }
    }
}

/// The hashes of some of a row's keys, and their index buckets on the way to the cache.
#[inline(always)]
fn seek_row(pass: &mut Pass<'_, '_>, row: usize, unknown: u64, vector: impl Vector) {
    let mut keys = [[0; KEY_BLOCK]; ROW];
    let mut lens = [0; ROW];
    let frames = pass.burst.get(row * ROW..).unwrap_or_default();
    let key_lens = pass.rows.key_len[row];
    for (n, frame) in frames.iter().enumerate().take(ROW) {
        if unknown >> n & 1 == 1
            && let Some(look) = frame.window::<LOOK>()
        {
            (keys[n], lens[n]) = (*part(look, KEY), key_lens[n]);
        }
    }
    let store = pass.guard.store();
    pass.rows.hash[row] = vector.hash(store, &keys, lens);
    for (n, hash) in pass.rows.hash[row].into_iter().enumerate() {
        if unknown >> n & 1 == 1 {
            store.prefetch_near(KeyHash(hash));
        }
    }
}
