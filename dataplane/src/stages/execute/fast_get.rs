//! Stage 6 for a plain `get` that an engine has read, and for an `mg` and a binary get to which a GPU wrote the whole
//! reply: no command is made of it.
//!
//! In: a request's frame, its descriptor and the hints in it, perhaps the head of the reply, or all of it. Out:
//! the reply, in the same frame. Every hint is checked against the item itself (D1), and a whole reply
//! by the filter of changes. What is asked and found is observed as the general way observes it
//! (`commands::get`). Fails: [`Unfit`], for that way to answer; the frame is as it was.

use crate::commands::Bytes;
use crate::counters::WorkerCounters;
use crate::observe::{LookUps, Observer, Seen, Server};
use crate::policy::allowance;
use crate::reply::{Headers, Sum, head_fits, in_place, whole_fits, with_head, with_whole};
use base::checksum;
use driver_shim::Frame;
use gpu::index::{Filter, Form, Stamp};
use gpu::{
    Entry, EntryFlags, Hint, KEYS_MAX, KeyDesc, Prepared, ReplyHead, ReqDesc, Verb, WholeReply,
};
use memcache::text::{END, MORE, TAIL, VALUE_OVERHEAD_BYTES, put_value};
use memcache::{Hit, Sink};
use std::num::NonZeroU32;
use store::{Guard, ItemRef, Location, SUM_KEPT_MIN_BYTES};
use wire::udp_frame::{HEADER_BYTES, PAYLOAD_MAX_BYTES};

/// A request that the fast way has no answer to.
pub(super) struct Unfit;

/// What one run of plain gets needs.
pub(super) struct FastGet<'a> {
    guard: &'a Guard<'a>,
    misses_are_final: bool,
    /// What hints say comes from a replica of the index, which is notified where it is wrong.
    from_replica: bool,
    /// What whole replies are accepted by once more, because their batch has changed something since.
    again: Option<(&'a Filter, Stamp)>,
    observer: Observer<'a>,
    amp_factor: NonZeroU32,
    done: Done,
}

/// What a run of plain gets did, to be counted at its end. What each request adds to stands apart: side by
/// side the compiler adds with vectors, in four times as many instructions.
#[derive(Default)]
struct Done {
    requests: u64,
    hints_right: u64,
    text_bytes: u64,
    hints_wrong: u64,
    keys: u64,
    heads_used: u64,
    hits: u64,
    heads_unused: u64,
    replies: u64,
    replies_changed: u64,
}

impl<'a> FastGet<'a> {
    /// A run over what `guard` shows.
    pub(super) fn new(
        guard: &'a Guard<'a>,
        observer: Observer<'a>,
        amp_factor: NonZeroU32,
        misses_are_final: bool,
        from_replica: bool,
        again: Option<(&'a Filter, Stamp)>,
    ) -> Self {
        let done = Done::default();
        Self { guard, misses_are_final, from_replica, again, observer, amp_factor, done }
    }

    /// The run is over: counts it.
    pub(super) fn finish(self, counters: &WorkerCounters) {
        let Self { done, observer, .. } = self;
        counters.fast.add(done.requests);
        counters.hints_right.add(done.hints_right);
        counters.hints_wrong.add(done.hints_wrong);
        counters.heads_used.add(done.heads_used);
        counters.heads_unused.add(done.heads_unused);
        counters.replies_accepted.add(done.replies);
        counters.replies_changed.add(done.replies_changed);
        observer.ops.bytes_read.add(done.text_bytes);
        observer.look_ups(LookUps { keys: done.keys, hits: done.hits }, false);
    }

    /// Answers by what the engine made of the reply, if it is right; else without.
    #[inline]
    pub(super) fn answer_any(
        &mut self,
        frame: &mut Frame,
        entry: &Entry,
        desc: &ReqDesc,
        prepared: Prepared<'_>,
    ) -> Result<Sum, Unfit> {
        if let Some(reply) = prepared.reply
            && let Some(sum) = self.with_whole(frame, entry, desc, reply)
        {
            return Ok(sum);
        }
        if let Some(head) = prepared.head
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

    /// Answers a get by the reply that the engine wrote, which was accepted: no item is looked at. `None`: the
    /// frame is as it was.
    #[inline(never)]
    pub(super) fn with_whole(
        &mut self,
        frame: &mut Frame,
        entry: &Entry,
        desc: &ReqDesc,
        reply: &WholeReply,
    ) -> Option<Sum> {
        let facts = || reply.facts_of_keys(desc.n_keys);
        if let Some((filter, stamp)) = self.again
            && facts().any(|facts| filter.accepts(facts.signature, stamp).is_err())
        {
            self.done.replies_changed += 1;
            return None;
        }
        if !whole_fits(frame, headers(entry), reply) {
            return None;
        }
        for (asked, facts) in desc.keys.iter().zip(facts()) {
            let found = Seen { class: facts.item_class.into(), bytes: facts.value_len.into() };
            self.observer.key_part(
                asked.bytes(frame.bytes()).unwrap_or_default(),
                Some(found),
                false,
            );
        }
        self.done.replies += 1;
        self.done.requests += 1;
        self.done.keys += u64::from(desc.n_keys);
        self.done.hits += u64::from(desc.n_keys);
        self.done.text_bytes += u64::from(desc.payload_len);
        with_whole(frame, headers(entry), reply)
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
        let found = Some(Seen { class: store.class_of(&item), bytes: value.len() });
        self.observer.key_part(item.key(), found, false);
        item.mark_visited(store.now());
        self.done.hints_right += 1;
        self.done.requests += 1;
        self.done.keys += 1;
        self.done.hits += 1;
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
        let key = asked.bytes(frame.bytes())?;
        if (desc.verb, desc.n_keys, asked.hint) != (Verb::GET, 1, Hint::HIT)
            || entry.flags.has(EntryFlags::LIMITED)
            || !head_fits(frame.bytes(), headers(entry), head, key)
        {
            return None;
        }
        let item = self.guard.verify(Location(asked.location), key)?;
        let value = item.value().whole()?;
        let claimed = (head.flags, usize::try_from(head.value_len).ok()?);
        (claimed == (item.flags(), value.len())).then_some((item, value))
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
        let mut keys: [&[u8]; N] = [&[]; N];
        let mut text_max = END.len();
        // For a single key the number is a constant, and the compiler unrolls the loops.
        let n_keys = if N == 1 { 1 } else { usize::from(desc.n_keys) };
        let places = items.iter_mut().zip(&mut keys);
        for ((place, asked), its) in places.zip(&desc.keys).take(n_keys) {
            *asked = its.bytes(frame.bytes()).unwrap_or_default();
            *place = self.item(asked, its, desc.verb);
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
            let exact = || HEADER_BYTES + text_bytes(&items, with_cas, self.observer.server);
            if HEADER_BYTES + text_max > most && exact() > most {
                return Err(Unfit);
            }
        }
        self.count(desc, keys.into_iter().zip(&items).take(n_keys));
        let written = in_place(frame, headers(entry), text_max, |out| {
            items.iter().flatten().for_each(|item| {
                put_value(&hit(item, with_cas, self.observer.server), MORE, out);
            });
            out.put(END);
        });
        if !written {
            return Err(Unfit);
        }
        let store = self.guard.store();
        items.iter().flatten().for_each(|item| item.mark_visited(store.now()));
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
        desc: &ReqDesc,
        asked: impl Iterator<Item = (&'i [u8], &'i Option<ItemRef<'a>>)>,
    ) where
        'a: 'i,
    {
        for (key, item) in asked {
            let found = item.map(|item| Seen::of(self.guard, &item));
            self.observer.key_part(key, found, false);
            self.done.keys += 1;
            self.done.hits += u64::from(found.is_some());
        }
        self.done.requests += 1;
        self.done.text_bytes += u64::from(desc.payload_len);
    }

    /// The item under `key`, by the hint if it holds, else by the host index.
    #[inline(always)]
    fn item(&mut self, key: &[u8], desc: &KeyDesc, verb: Verb) -> Option<ItemRef<'a>> {
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
        let is_wrong = desc.hint == Hint::HIT || item.is_some() && desc.hint != Hint::ROW;
        if self.from_replica && is_wrong {
            let class = |item| store.class_of(&item);
            store.invalidate(hash, Form::of(verb).zip(item.map(class)));
        }
        item
    }
}

/// The sum of the UDP payload of a reply that holds this one item's value, by the sum that the
/// store keeps of the value: O(bytes beside it). `None`: it keeps none.
fn sum_around(frame: &Frame, headers: Headers, item: &ItemRef<'_>) -> Option<u16> {
    let value_len = item.value().whole()?.len();
    let payload = frame.bytes().get(headers.kv()..)?;
    let (before, behind) =
        payload.split_at_checked(payload.len().checked_sub(value_len + TAIL.len())?)?;
    let behind_sum = checksum::sum(behind.get(value_len..)?);
    let sum = checksum::sum(before);
    let add_at = |sum, at: usize, piece| match at % 2 {
        0 => checksum::add(sum, piece),
        _ => checksum::add_swapped(sum, piece),
    };
    let sum = add_at(sum, before.len(), item.value_sum());
    Some(add_at(sum, before.len() + value_len, behind_sum))
}

/// What is sent of an item. (That of `commands` costs 3 instructions more here.)
#[inline(always)]
fn hit<'a>(item: &ItemRef<'a>, with_cas: bool, server: &Server) -> Hit<'a, Bytes<'a>> {
    let cas = with_cas.then(|| server.cas_shown(item.cas()));
    Hit { key: item.key(), flags: item.flags(), cas, value: Bytes(item.value()) }
}

/// Bytes of the text that answers a plain get with these hits.
fn text_bytes(items: &[Option<ItemRef<'_>>], with_cas: bool, server: &Server) -> usize {
    let mut count = ByteCount(0);
    for item in items.iter().flatten() {
        put_value(&hit(item, with_cas, server), MORE, &mut count);
    }
    count.put(END);
    count.0
}

/// A sink that only counts.
struct ByteCount(usize);

impl Sink for ByteCount {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Where the headers of the reply stand.
pub(super) fn headers(entry: &Entry) -> Headers {
    Headers { l3: entry.l3, l4: entry.l4, ipv6: entry.flags.has(EntryFlags::IPV6) }
}
