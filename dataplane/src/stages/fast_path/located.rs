//! Beside another engine: the host's share of plain `get`s, in two halves.
//!
//! *Coming in*, [`FastPath::plain_gets`] says which frames of a burst are ones, but for their checksums, which
//! the engine verifies: they go to it with [`EntryFlags::PLAIN`], neither classified nor admitted again.
//! *Coming back*, [`FastPath::answer_located`] answers those whose item the engine has located. The location is
//! any number: the item is verified against the key in the frame, as everywhere. Without a location, or with
//! a wrong one, a frame is left to the stages behind the engine as it came.
//!
//! Plain `set`s are carried out as they come in ([`FastPath::run_sets`]), as without another engine.
//!
//! **Order**: a request of the batch that may change something, which is any that is not one to read and not
//! to be dropped, ends the pass.

use super::requests::{LOOK, PLAIN_AROUND_KEY, Requests};
use super::totals::Totals;
use super::vector::{ROW, ROWS_AHEAD, Vector, Work};
use super::window::part;
use super::{Answered, Context, FastPath, Lanes, Pass};
use driver_shim::{BURST_MAX, Frame, Region};
use gpu::{Batch, Entry, EntryFlags, Hint, ReqDesc, Verdict};
use store::{Liveness, Location};

impl FastPath {
    /// Which frames of a burst are plain `get`s, up to the first row of four that has none: bit n for frame n.
    #[inline]
    pub fn plain_gets(&self, burst: &[Frame], requests: &mut Requests, region: &Region) -> u64 {
        self.manner.carry_out(PlainGets { burst, requests, region })
    }

    /// Carries out plain `set`s of a burst of which `plain` are plain `get`s. Those go to the engine, and are answered
    /// when they come back, after each `set` of the burst.
    #[inline]
    pub fn run_sets(
        &mut self,
        burst: &mut [Frame],
        plain: u64,
        requests: &mut Requests,
        context: &mut Context<'_>,
    ) -> Answered {
        if self.liveness(context).is_none() {
            return Answered::default();
        }
        let totals = Totals::default();
        let totals = match (context.caps.ip, context.caps.udp) {
            (true, true) => self.carry_out_sets::<true>(burst, plain, requests, context, totals),
            _ => self.carry_out_sets::<false>(burst, plain, requests, context, totals),
        };
        totals.count(context.ctx.observer, context.counters);
        Answered::of(&totals)
    }

    /// Answers what it can of a batch that an engine is done with: of its plain `get`s that came from port `mark`,
    /// those that were located. These frames are behind the others afterwards, of which the batch is then. Returns
    /// how many the others are.
    pub fn answer_located(
        &mut self,
        frames: &mut [Frame],
        batch: &mut Batch,
        (mark, requests): (u8, &mut Requests),
        context: &mut Context<'_>,
    ) -> usize {
        let Some(liveness) = self.liveness(context) else { return frames.len() };
        match (context.caps.ip, context.caps.udp) {
            (false, false) => {
                self.located_with::<false>(frames, batch, (mark, requests), context, liveness)
            }
            (true, true) => {
                self.located_with::<true>(frames, batch, (mark, requests), context, liveness)
            }
            // A reply's sum is made of its request's, which may not be filled in where a port says that it is good.
            _ => return frames.len(),
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

    fn located_with<const BY_PORT: bool>(
        &mut self,
        frames: &mut [Frame],
        batch: &Batch,
        (mark, requests): (u8, &mut Requests),
        context: &mut Context<'_>,
        liveness: Liveness,
    ) {
        let Self { manner, order, located, .. } = self;
        let (observer, region) = (context.ctx.observer, context.region);
        let guard = context.ctx.session.pin();
        let mut ended = false;
        located.fill(0);
        let requests_of = batch.entries.chunks(BURST_MAX).zip(batch.descs.chunks(BURST_MAX));
        let chunks = frames.chunks_mut(BURST_MAX).zip(requests_of).zip(located.iter_mut());
        for ((burst, (entries, descs)), answered) in chunks {
            let pass = Pass {
                burst,
                requests: &mut *requests,
                lanes: Lanes::EMPTY,
                order: &mut *order,
                guard: &guard,
                observer,
                region,
                liveness,
                dialects: observer.server.dialects,
                totals: Totals::default(),
            };
            let work = Located::<BY_PORT> { pass, entries, descs, mark, ended };
            let totals;
            (totals, ended) = manner.carry_out(work);
            totals.count_requests(observer, context.counters);
            *answered = totals.frames;
            if ended {
                break;
            }
        }
    }
}

/// The look at a burst that comes in.
struct PlainGets<'p> {
    burst: &'p [Frame],
    requests: &'p mut Requests,
    region: &'p Region,
}

impl Work for PlainGets<'_> {
    type Done = u64;

    #[inline(always)]
    fn run(self, vector: impl Vector) -> u64 {
        let Self { burst, requests, region } = self;
        let mut plain = 0;
        for (n, frame) in burst.iter().enumerate().take(BURST_MAX) {
            // Other traffic: a row without any.
            if n % ROW == 0 && n > 0 && plain >> (n - ROW) == 0 {
                break;
            }
            let look = frame.window::<LOOK>().filter(|_| region.owns(frame));
            let asked = look.and_then(|look| requests.shaped(frame, look, vector));
            // Not padded, so that the entry says how long the key is.
            let len = |key_len: u8| PLAIN_AROUND_KEY + usize::from(key_len);
            let is_plain = asked.is_some_and(|asked| frame.len() == len(asked.key_len));
            plain |= u64::from(is_plain) << n;
        }
        plain
    }
}

/// One pass over a part of a batch.
struct Located<'p, 'g, const BY_PORT: bool> {
    pass: Pass<'p, 'g>,
    entries: &'p [Entry],
    descs: &'p [ReqDesc],
    mark: u8,
    /// A request before here may change something.
    ended: bool,
}

impl<const BY_PORT: bool> Work for Located<'_, '_, BY_PORT> {
    type Done = (Totals, bool);

    #[inline(always)]
    fn run(mut self, vector: impl Vector) -> (Totals, bool) {
        let mut rows = self.pass.burst.len().min(BURST_MAX).div_ceil(ROW);
        let mut step = 0;
        while step < rows + ROWS_AHEAD {
            if step < rows && !self.ended {
                self.fetch_row(step);
                if self.ended {
                    rows = step + 1;
                }
            }
            let row = step.wrapping_sub(ROWS_AHEAD);
            if row < rows {
                self.pass.reply_row::<BY_PORT>(row, vector);
            }
            step += 1;
        }
        self.pass.show_hits();
        (self.pass.totals, self.ended)
    }
}

impl<const BY_PORT: bool> Located<'_, '_, BY_PORT> {
    /// Takes what there is of a row's requests, and has their items on the way to the cache.
    #[inline(always)]
    fn fetch_row(&mut self, row: usize) {
        let Self { pass, entries, descs, mark, ended } = self;
        let from = row * ROW;
        let requests = entries
            .get(from..)
            .unwrap_or_default()
            .iter()
            .zip(descs.get(from..).unwrap_or_default());
        let frames = pass.burst.get(from..).unwrap_or_default();
        let mut read = 0;
        for (n, ((entry, desc), frame)) in requests.zip(frames).enumerate().take(ROW) {
            if !entry.flags.has(EntryFlags::PLAIN) {
                if !matches!(desc.verdict, Verdict::READY | Verdict::BAD) {
                    *ended = true;
                    break;
                }
                continue;
            }
            let [key, ..] = &desc.keys;
            if desc.verdict != Verdict::READY || key.hint != Hint::HIT || entry.mark != *mark {
                continue;
            }
            let Some(found) = pass.guard.fetch(Location(key.location)) else { continue };
            let addresses = frame.window::<LOOK>().map(|look| *part(look, 26));
            let header = addresses.and_then(|a| pass.requests.trusted(u64::from_le_bytes(a)));
            let Some(header) = header else { continue };
            pass.lanes.found[row][n] = Some(found);
            pass.lanes.header[row][n] = header;
            pass.lanes.key_len[row][n] = key.len;
            read |= 1u64 << n;
        }
        pass.lanes.read |= read << from;
    }
}
