//! Room 6: descriptors and hints become replies, by way of the store.
//!
//! In: a batch that an engine is done with. Out: a [`Reply`] per request that gets one, in the
//! request's own slot where it fits. Every hint is checked against the item itself (D1): a stale,
//! torn or wrong one costs a look-up in the host index, never a wrong byte. A miss is a reply.
//! What an engine left as `Slow` goes through the strict parser and the one executor (D3).

mod strict;
mod work;

use crate::accounts::Accounts;
use crate::counters::WorkerCounters;
use crate::drop_reason::DropReason;
use crate::policy::{Debt, allowance};
use crate::protocol::executor::{VALUE_OVERHEAD_BYTES, count_get, put_value};
use crate::protocol::stats::{Kind, Transport};
use crate::protocol::udp_frame::{HEADER_BYTES, PAYLOAD_MAX_BYTES};
use crate::protocol::{OpCounters, Server, Sink};
use crate::reply::{Headers, REPLY_DATAGRAMS_MAX, Reply, Sum, head_fits, in_place, with_head};
use crate::store::{Guard, ItemRef, Location, SUM_KEPT_MIN_BYTES, Session};
use crate::wire::checksum;
use driver_shim::{Frame, Region};
use gpu::{
    Batch, Entry, EntryFlags, Hint, KEYS_MAX, KeyDesc, Outcome, ReplyHead, ReqDesc, Verb, Verdict,
};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Runs of requests whose durations are known at the end of a turn. A turn that answers more loses
/// some.
const DURATIONS_MAX: usize = 4096;

/// Room 6 of one worker.
pub struct Execute {
    session: Session,
    ops: Arc<OpCounters>,
    server: Arc<Server>,
    region: Region,
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
    answered: Vec<Answered>,
}

impl std::fmt::Debug for Execute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Execute").finish_non_exhaustive()
    }
}

impl Execute {
    /// A room over one store session, for batches of at most `batch_max` requests. Replies of several
    /// datagrams take slots from `region`.
    pub fn new(
        session: Session,
        server: Arc<Server>,
        region: Region,
        amp_factor: NonZeroU32,
        batch_max: usize,
    ) -> Self {
        Self {
            ops: server.ops(),
            item_max_bytes: session.store().config().item_max_bytes,
            session,
            server,
            region,
            amp_factor,
            text: Vec::with_capacity(driver_shim::SLOT_BYTES),
            frames: Vec::with_capacity(REPLY_DATAGRAMS_MAX),
            debts: Vec::with_capacity(batch_max),
            answered: Vec::with_capacity(DURATIONS_MAX),
        }
    }

    /// Answers a finished batch. `frames` are its, in order, and none is left afterwards. `emit`
    /// takes each reply with its entry.
    pub fn answer(
        &mut self,
        frames: &mut Vec<Frame>,
        batch: &Batch,
        outcome: Outcome,
        counters: &Accounts,
        mut emit: impl FnMut(Reply, &Entry),
    ) {
        let mut work = frames.drain(..).zip(batch.requests());
        // A mutation in this batch makes the misses that were proposed before it stale.
        let mut misses_are_final = true;
        let have_text = self.server.dialects.have_text();
        loop {
            let mut slow = None;
            let guard = self.session.pin();
            let mut look_up = LookUp {
                guard: &guard,
                misses_are_final,
                from_replica: outcome == Outcome::Replica,
                ops: &self.ops,
                amp_factor: self.amp_factor,
                server: &self.server,
                done: Done::default(),
            };
            for (mut frame, (entry, desc, head)) in work.by_ref() {
                let answered = match desc.verdict {
                    Verdict::READY if have_text => {
                        look_up.answer_any(&mut frame, entry, desc, head)
                    }
                    Verdict::BAD => {
                        counters.drop_frame(frame, entry.mark.into(), desc.reason.into());
                        continue;
                    }
                    _ if desc.payload_off == 0 => {
                        counters.drop_frame(frame, entry.mark.into(), DropReason::Unread);
                        continue;
                    }
                    _ => Err(Unfit),
                };
                let Ok(sum) = answered else {
                    slow = Some((frame, entry, desc));
                    break;
                };
                note(&mut self.answered, frame.stamp_ns, Kind::Get);
                emit(Reply::whole(frame, headers(entry), sum), entry);
            }
            look_up.done.count(&self.ops, counters);
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
                let next = batch.descs.get(batch.entries.len() - left);
                slow = next
                    .filter(|next| is_for_strict(next))
                    .and_then(|_| work.next())
                    .map(|(frame, (entry, desc, _))| (frame, entry, desc));
            }
            self.session.settle();
        }
        self.ops.count_dead(&self.session);
    }

    /// One of the debts of sources that are not trusted, for the work of a batch. To be called after
    /// each batch until there is none left.
    #[inline]
    pub fn take_debt(&mut self) -> Option<Debt> {
        self.debts.pop()
    }

    /// The parts that answer requests: the session, and where they are counted.
    #[inline]
    pub fn parts(&mut self) -> (&mut Session, &OpCounters, &Server) {
        (&mut self.session, &self.ops, &self.server)
    }

    /// So many gets that came at this time were answered elsewhere.
    #[inline]
    pub fn note_gets(&mut self, came_ns: u64, requests: u64) {
        note_all(&mut self.answered, came_ns, Kind::Get, requests);
    }

    /// The replies made so far have gone to the driver, at this time of the worker's clock: counts
    /// how long they took.
    pub fn handed_over(&mut self, now_ns: impl FnOnce() -> u64) {
        if self.answered.is_empty() {
            return;
        }
        let now_ns = now_ns();
        for Answered { came_ns, kind, requests } in self.answered.drain(..) {
            let ns = now_ns.saturating_sub(came_ns);
            self.ops.latency.record(Transport::Udp, kind, ns, requests);
        }
    }
}

/// A request that the fast way has no answer to.
struct Unfit;

/// Whether nothing but the strict parser is to read the request.
fn is_for_strict(desc: &ReqDesc) -> bool {
    matches!(desc.verdict, Verdict::SLOW | Verdict::HINTED) && desc.payload_off != 0
}

/// The fast way: what one run of plain gets needs.
struct LookUp<'a> {
    guard: &'a Guard<'a>,
    misses_are_final: bool,
    /// What hints say comes from a replica of the index, which is told where it is wrong.
    from_replica: bool,
    ops: &'a OpCounters,
    server: &'a Server,
    amp_factor: NonZeroU32,
    done: Done,
}

/// What a run of plain gets did, to be counted at its end.
#[derive(Default)]
struct Done {
    requests: u64,
    text_bytes: u64,
    keys: u64,
    hits: u64,
    hints_right: u64,
    hints_wrong: u64,
    heads_used: u64,
    heads_unused: u64,
}

impl Done {
    fn count(&self, ops: &OpCounters, counters: &WorkerCounters) {
        counters.fast.add(self.requests);
        counters.hints_right.add(self.hints_right);
        counters.hints_wrong.add(self.hints_wrong);
        counters.heads_used.add(self.heads_used);
        counters.heads_unused.add(self.heads_unused);
        ops.cmd_get.add(self.keys);
        ops.get_hits.add(self.hits);
        ops.get_misses.add(self.keys - self.hits);
        ops.bytes_read.add(self.text_bytes);
    }
}

impl<'a> LookUp<'a> {
    /// Answers by the head that the engine made, if it made one and it is right; else without.
    #[inline]
    fn answer_any(
        &mut self,
        frame: &mut Frame,
        entry: &Entry,
        desc: &ReqDesc,
        head: Option<&ReplyHead>,
    ) -> Result<Sum, Unfit> {
        if let Some(head) = head
            && head.len > 0
        {
            if let Some(sum) = self.with_head(frame, entry, desc, head) {
                self.done.heads_used += 1;
                return Ok(sum);
            }
            self.done.heads_unused += 1;
        }
        let payload_sum = self.answer_all(frame, entry, desc)?;
        Ok(payload_sum.map_or(Sum::Unknown, Sum::Payload))
    }

    /// Answers a get of one key by the head that the engine made for it. `None`: it is not the head
    /// of the reply, and the frame is as it was.
    #[inline(never)]
    fn with_head(
        &mut self,
        frame: &mut Frame,
        entry: &Entry,
        desc: &ReqDesc,
        head: &ReplyHead,
    ) -> Option<Sum> {
        let (item, value) = self.item_of_head(frame, entry, desc, head)?;
        let sum = with_head(frame, headers(entry), head, value, item.value_sum())?;
        let store = self.guard.store();
        let found = Some((store.class_of(&item), value.len()));
        count_get(self.ops, self.server, item.key(), found, false);
        item.mark_visited(store.now());
        self.done.hints_right += 1;
        self.done.hits += 1;
        self.done.requests += 1;
        self.done.keys += 1;
        self.done.text_bytes += u64::from(desc.payload_len);
        Some(sum)
    }

    /// The item that the head is about, and its value, if the hint holds and all that the head
    /// says is true.
    fn item_of_head(
        &self,
        frame: &Frame,
        entry: &Entry,
        desc: &ReqDesc,
        head: &ReplyHead,
    ) -> Option<(ItemRef<'a>, &'a [u8])> {
        let [asked, ..] = &desc.keys;
        let key = key(frame, asked)?;
        if (desc.verb, desc.n_keys, asked.hint) != (Verb::GET, 1, Hint::HIT)
            || entry.flags.has(EntryFlags::LIMITED)
            || !head_fits(frame.bytes(), headers(entry), head, key)
        {
            return None;
        }
        let item = self.guard.verify(Location(asked.location), key)?;
        let value = item.value().whole()?;
        let told = (head.flags, usize::try_from(head.value_len).ok()?);
        (told == (item.flags(), value.len())).then_some((item, value))
    }

    /// [`Self::answer`], compiled apart for the usual single key.
    #[inline]
    fn answer_all(
        &mut self,
        frame: &mut Frame,
        entry: &Entry,
        desc: &ReqDesc,
    ) -> Result<Option<u16>, Unfit> {
        match desc.n_keys {
            1 => self.answer::<1>(frame, entry, desc),
            _ => self.answer::<KEYS_MAX>(frame, entry, desc),
        }
    }

    /// Answers a plain get of at most `N` keys in its own frame. Returns the sum of the UDP payload
    /// when the store has most of it.
    ///
    /// # Errors
    /// The frame is as it was: the reply may not fit one datagram, or is more than its source may
    /// have.
    ///
    /// Not inlined, as the others on the way of every request: alone, each keeps what it works on
    /// in registers.
    #[inline(never)]
    fn answer<const N: usize>(
        &mut self,
        frame: &mut Frame,
        entry: &Entry,
        desc: &ReqDesc,
    ) -> Result<Option<u16>, Unfit> {
        let mut items: [Option<ItemRef<'a>>; N] = [None; N];
        let mut text_max = b"END\r\n".len();
        // Of a single key the compiler knows the number, and needs no loops.
        let n_keys = if N == 1 { 1 } else { usize::from(desc.n_keys) };
        for (place, key) in items.iter_mut().zip(&desc.keys).take(n_keys) {
            *place = self.item(frame, key);
            if let Some(item) = place {
                text_max += VALUE_OVERHEAD_BYTES + item.key().len() + item.value().len();
            }
        }
        if text_max > PAYLOAD_MAX_BYTES {
            return Err(Unfit);
        }
        let with_cas = desc.verb == Verb::GETS;
        if entry.flags.has(EntryFlags::LIMITED) {
            let most = allowance(entry, desc.payload_len, self.amp_factor);
            let exact = || HEADER_BYTES + text_bytes(&items, with_cas);
            if HEADER_BYTES + text_max > most && exact() > most {
                return Err(Unfit);
            }
        }
        self.count(frame, desc, items.iter().take(n_keys));
        let written = in_place(frame, headers(entry), text_max, |out| {
            items.iter().flatten().for_each(|item| {
                let cas = with_cas.then(|| self.server.cas_shown(item.cas()));
                put_value(item.key(), item.flags(), cas, item.value(), out);
            });
            out.put(b"END\r\n");
        });
        if !written {
            return Err(Unfit);
        }
        let now = self.guard.store().now();
        items.iter().flatten().for_each(|item| item.mark_visited(now));
        match items.first() {
            Some(Some(item)) if n_keys == 1 && item.value().len() >= SUM_KEPT_MIN_BYTES => {
                Ok(sum_around(frame, headers(entry), item))
            }
            _ => Ok(None),
        }
    }

    /// Counts what was asked and found, while the frame holds the keys.
    #[inline(always)]
    fn count<'i>(
        &mut self,
        frame: &Frame,
        desc: &ReqDesc,
        items: impl Iterator<Item = &'i Option<ItemRef<'a>>>,
    ) where
        'a: 'i,
    {
        let store = self.guard.store();
        for (desc, item) in desc.keys.iter().zip(items) {
            let found = item.map(|item| (store.class_of(&item), item.value().len()));
            let key = key(frame, desc).unwrap_or_default();
            count_get(self.ops, self.server, key, found, false);
            self.done.keys += 1;
            self.done.hits += u64::from(found.is_some());
        }
        self.done.requests += 1;
        self.done.text_bytes += u64::from(desc.payload_len);
    }

    /// The item under `key`, by the hint if it holds, else by the host index.
    #[inline(always)]
    fn item(&mut self, frame: &Frame, desc: &KeyDesc) -> Option<ItemRef<'a>> {
        let key = key(frame, desc)?;
        match desc.hint {
            Hint::HIT => {
                if let Some(item) = self.guard.verify(Location(desc.location), key) {
                    self.done.hints_right += 1;
                    return Some(item);
                }
                self.done.hints_wrong += 1;
            }
            Hint::MISS if self.misses_are_final => return None,
            _ => {}
        }
        let store = self.guard.store();
        let hash = store.hash(key);
        let item = self.guard.find(hash, key);
        // A replica that had it wrong, or does not have it.
        if self.from_replica && (desc.hint == Hint::HIT || item.is_some()) {
            store.look_again(hash);
        }
        item
    }
}

/// The key that the descriptor means.
#[inline]
fn key<'f>(frame: &'f Frame, desc: &KeyDesc) -> Option<&'f [u8]> {
    let start = usize::from(desc.off);
    frame.bytes().get(start..start + usize::from(desc.len))
}

/// The sum of the UDP payload of a reply that holds this one item's value, by the sum that the
/// store keeps of the value: O(bytes beside it). `None`: it keeps none.
fn sum_around(frame: &Frame, headers: Headers, item: &ItemRef<'_>) -> Option<u16> {
    let value_len = item.value().whole()?.len();
    let payload = frame.bytes().get(headers.kv()..)?;
    let (before, behind) =
        payload.split_at_checked(payload.len().checked_sub(value_len + b"\r\nEND\r\n".len())?)?;
    let behind_sum = checksum::sum(behind.get(value_len..)?);
    let sum = checksum::sum(before);
    let add_at = |sum, at: usize, piece| match at % 2 {
        0 => checksum::add(sum, piece),
        _ => checksum::add_swapped(sum, piece),
    };
    let sum = add_at(sum, before.len(), item.value_sum());
    Some(add_at(sum, before.len() + value_len, behind_sum))
}

/// Requests of one kind that came at the same time, and have been answered.
struct Answered {
    came_ns: u64,
    kind: Kind,
    requests: u64,
}

/// Keeps for later when a request came that has been answered.
#[inline]
fn note(answered: &mut Vec<Answered>, came_ns: u64, kind: Kind) {
    note_all(answered, came_ns, kind, 1);
}

#[inline]
fn note_all(answered: &mut Vec<Answered>, came_ns: u64, kind: Kind, requests: u64) {
    // Those of one burst came together.
    if let Some(last) = answered.last_mut()
        && (last.came_ns, last.kind) == (came_ns, kind)
    {
        last.requests += requests;
    } else if answered.len() < DURATIONS_MAX {
        // Its memory was taken at start-up: no more than that.
        answered.push(Answered { came_ns, kind, requests });
    }
}

/// Bytes of the text that answers a plain get with these hits.
fn text_bytes(items: &[Option<ItemRef<'_>>], with_cas: bool) -> usize {
    let mut count = ByteCount(0);
    for item in items.iter().flatten() {
        let cas = with_cas.then(|| item.cas());
        put_value(item.key(), item.flags(), cas, item.value(), &mut count);
    }
    count.put(b"END\r\n");
    count.0
}

/// A sink that only counts.
struct ByteCount(usize);

impl Sink for ByteCount {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

fn headers(entry: &Entry) -> Headers {
    Headers { l3: entry.l3, l4: entry.l4, ipv6: entry.flags.has(EntryFlags::IPV6) }
}
