//! Stage 6: descriptors and hints become replies, by way of the store.
//!
//! In: a batch that an engine is done with. Out: a [`Reply`] per request that gets one, in the
//! request's own slot where it fits. Every hint is checked against the item itself (D1): a stale,
//! torn or wrong one costs a look-up in the host index, never a wrong byte. A miss is a reply.
//! A `get` whose descriptor is `READY` is answered by `fast_get`, and so is what has a whole reply; the usual `set` by `fast_set`.
//! Everything else (descriptors that are `SLOW` or `STRICT_HINTED`, and what `fast_get` cannot answer) goes through the
//! strict parser and the commands (D3). All end in the same observation. Neither is the stage `fast_path`, which runs before.

mod fast_get;
mod fast_set;
mod strict;

use crate::commands::Ctx;
use crate::counters::WorkerCounters;
use crate::frame_accounting::Accounts;
use crate::observe::{Kind, Observer, OpCounters, Server, Transport};
use crate::policy::Debt;
use crate::reply::{REPLY_DATAGRAMS_MAX, Reply};
use driver_shim::{Frame, Region};
use fast_get::{FastGet, Unfit, headers};
use gpu::index::Filter;
use gpu::{Batch, Entry, ReqDesc, Verb, Verdict};
use std::num::NonZeroU32;
use std::sync::Arc;
use store::Session;
use wire::DropReason;

/// Runs of requests whose durations are known at the end of a turn. A turn that answers more loses
/// some.
const DURATIONS_MAX: usize = 4096;

/// Stage 6 of one worker.
pub struct Execute {
    session: Session,
    ops: Arc<OpCounters>,
    server: Arc<Server>,
    region: Region,
    /// Where a GPU writes whole replies: what has changed since.
    filter: Option<Arc<Filter>>,
    item_max_bytes: usize,
    /// Most reply bytes per request byte, for sources that are not trusted.
    amp_factor: NonZeroU32,
    /// The request's text while its frame becomes the reply.
    text: Vec<u8>,
    /// Frames of the reply being written.
    frames: Vec<Frame>,
    /// What sources owe for the requests of this batch.
    debts: Vec<Debt>,
    /// When requests came whose replies have not been handed over yet, and what they asked.
    answered: Vec<Timed>,
    /// Nanoseconds after which a reply is late, where there is such a time.
    due_ns: Option<u64>,
}

base::opaque!(Execute);

impl Execute {
    /// A stage over one store session, for batches of at most `batch_max` requests. Replies of several
    /// datagrams take slots from `region`; those after `due_ns` are late, where there is such a time.
    pub fn new(
        session: Session,
        server: Arc<Server>,
        region: Region,
        filter: Option<Arc<Filter>>,
        amp_factor: NonZeroU32,
        batch_max: usize,
        due_ns: Option<u64>,
    ) -> Self {
        Self {
            ops: server.ops(),
            item_max_bytes: session.store().config().item_max_bytes,
            session,
            server,
            region,
            filter,
            amp_factor,
            text: Vec::with_capacity(driver_shim::SLOT_BYTES),
            frames: Vec::with_capacity(REPLY_DATAGRAMS_MAX),
            debts: Vec::with_capacity(batch_max),
            answered: Vec::with_capacity(DURATIONS_MAX),
            due_ns,
        }
    }

    /// Answers a finished batch. `frames` are its, in order, and none is left afterwards. `emit`
    /// takes each reply with its entry. The batch is complete; its
    /// locations may come from a replica of the index.
    pub fn answer(
        &mut self,
        frames: &mut Vec<Frame>,
        (batch, from_replica): (&Batch, bool),
        counters: &Accounts,
        mut emit: impl FnMut(Reply, &Entry),
    ) {
        let mut work = frames.drain(..).zip(batch.requests());
        // A mutation in this batch makes the misses that were proposed before it stale.
        let mut misses_are_final = true;
        let have_text = self.server.dialects.have_text();
        let have_binary = self.server.dialects.have_binary();
        loop {
            let mut slow = None;
            let guard = self.session.pin();
            let observer = Observer { ops: &self.ops, server: &self.server };
            let filter = self.filter.as_deref().filter(|_| !misses_are_final);
            let again = filter.map(|filter| (filter, batch.stamp));
            let factor = self.amp_factor;
            let mut fast =
                FastGet::new(&guard, observer, factor, misses_are_final, from_replica, again);
            for (mut frame, (entry, desc, prepared)) in work.by_ref() {
                let answered = match desc.verdict {
                    Verdict::READY if have_text => {
                        fast.answer_any(&mut frame, entry, desc, prepared)
                    }
                    Verdict::BAD => {
                        counters.drop_frame(frame, entry.mark.into(), desc.reason.into());
                        continue;
                    }
                    _ if desc.payload_off == 0 => {
                        counters.drop_frame(frame, entry.mark.into(), DropReason::Unread);
                        continue;
                    }
                    Verdict::STRICT_HINTED => prepared
                        .reply
                        .filter(
                            |_| if desc.verb == Verb::META_GET { have_text } else { have_binary },
                        )
                        .and_then(|reply| fast.with_whole(&mut frame, entry, desc, reply))
                        .ok_or(Unfit),
                    _ => Err(Unfit),
                };
                let Ok(sum) = answered else {
                    slow = Some((frame, entry, desc));
                    break;
                };
                note(&mut self.answered, frame.stamp_ns, Kind::Get);
                emit(Reply::whole(frame, headers(entry), sum), entry);
            }
            fast.finish(counters);
            drop(guard);
            if slow.is_none() {
                break;
            }
            misses_are_final = false;
            while let Some((frame, entry, desc)) = slow {
                let came_ns = frame.stamp_ns;
                let emit = |reply| emit(reply, entry);
                let kind = self.read_and_answer(frame, entry, desc, counters, emit);
                note(&mut self.answered, came_ns, kind);
                // Where another like it is next, nothing is to be looked up in between.
                let (left, _) = work.size_hint();
                let n = batch.entries.len() - left;
                let has_reply = || batch.replies.get(n).is_some_and(|it| it.facts.text_len > 0);
                slow = batch
                    .descs
                    .get(n)
                    .filter(|next| is_for_strict(next) && !has_reply())
                    .and_then(|_| work.next())
                    .map(|(frame, (entry, desc, _))| (frame, entry, desc));
            }
            self.session.settle();
        }
        Observer { ops: &self.ops, server: &self.server }.dead(&self.session);
    }

    /// One of the debts of sources that are not trusted, for the work of a batch. To be called after
    /// each batch until there is none left.
    #[inline]
    pub(crate) fn take_debt(&mut self) -> Option<Debt> {
        self.debts.pop()
    }

    /// Where commands are carried out.
    #[inline]
    pub fn ctx(&mut self) -> Ctx<'_> {
        Ctx::new(&mut self.session, &self.ops, &self.server)
    }

    /// So many gets and sets that came at this time were answered elsewhere.
    #[inline]
    pub(crate) fn note_answered(&mut self, came_ns: u64, gets: u64, sets: u64) {
        for (kind, requests) in [(Kind::Get, gets), (Kind::Store, sets)] {
            if requests > 0 {
                note_all(&mut self.answered, came_ns, (Transport::Udp, kind), requests);
            }
        }
    }

    /// So many READs that came at this time were answered.
    #[inline]
    pub(crate) fn note_rdma_reads(&mut self, came_ns: u64, reads: u64) {
        note_all(&mut self.answered, came_ns, (Transport::Rdma, Kind::Get), reads);
    }

    /// The replies made so far have gone to the driver, at this time of the worker's clock: counts
    /// how long they took, and those that are late.
    pub fn handed_over(&mut self, counters: &WorkerCounters, now_ns: impl FnOnce() -> u64) {
        if self.answered.is_empty() {
            return;
        }
        let now_ns = now_ns();
        for Timed { came_ns, of: (transport, kind), requests } in self.answered.drain(..) {
            let ns = now_ns.saturating_sub(came_ns);
            self.ops.latency.record(transport, kind, ns, requests);
            if self.due_ns.is_some_and(|due| ns > due) && transport == Transport::Udp {
                counters.replies_late.add(requests);
            }
        }
    }
}

/// Whether nothing but the strict parser is to read the request.
fn is_for_strict(desc: &ReqDesc) -> bool {
    matches!(desc.verdict, Verdict::SLOW | Verdict::STRICT_HINTED) && desc.payload_off != 0
}

/// Requests of one kind that came at the same time, and have been answered.
struct Timed {
    came_ns: u64,
    of: (Transport, Kind),
    requests: u64,
}

/// Keeps for later when a request came that has been answered.
#[inline]
fn note(answered: &mut Vec<Timed>, came_ns: u64, kind: Kind) {
    note_all(answered, came_ns, (Transport::Udp, kind), 1);
}

#[inline]
fn note_all(answered: &mut Vec<Timed>, came_ns: u64, of: (Transport, Kind), requests: u64) {
    // Those of one burst came together.
    if let Some(last) = answered.last_mut()
        && (last.came_ns, last.of) == (came_ns, of)
    {
        last.requests += requests;
    } else if answered.len() < DURATIONS_MAX {
        // Its memory was taken at start-up: no more than that.
        answered.push(Timed { came_ns, of, requests });
    }
}
