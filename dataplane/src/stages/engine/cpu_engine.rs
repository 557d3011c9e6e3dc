//! Stage 5 on the CPU: checks sums, parses, hashes and looks up, in groups.
//!
//! In: a batch of entries. Out: a descriptor per entry. The default engine, the reference for all
//! others, and what takes over when another fails. It reads the host index, so its `Miss` is
//! final; like every engine it only proposes, and stage 6 has the last word.
//!
//! A look-up touches two places in memory, and each costs more than all the arithmetic of a
//! request. So a group of requests is parsed and hashed, all their buckets are prefetched, and they
//! are matched while their items are on the way: the waits overlap. The prefetches stand in a row,
//! because a core does not go far beyond a line whose page it has to look up: next to each other
//! they wait together. For what only stage 6 understands, sets above all, the lines of the key are
//! prefetched too; so are those of a batch that another engine has read ([`CpuEngine::complete`]):
//! wherever a request was understood, stage 6 finds its item in the caches.
#![allow(unsafe_code)]

mod hinted;

use crate::plain::requests::KEY;
use crate::plain::window::TEXT;
use base::small_bytes::word_len;
use gpu::index::Form;
use gpu::{
    BadReason, Batch, Engine, Entry, EntryFlags, Hint, KEYS_MAX, KeyDesc, Outcome, PacketMemory,
    ReqDesc, Verb, Verdict, WholeReply,
};
use memcache::KEY_MAX_BYTES;
use memcache::binary::{HEADER_BYTES, REQUEST_MAGIC};
use std::sync::Arc;
use store::{KeyHash, Location, Store};
use wire::ipv4::{PLAIN_L3, PLAIN_L4};
use wire::udp_frame::{self, TEXT_AFTER_UDP};
use wire::verify::{verify_ip4_header, verify_udp};

/// Requests whose memory accesses overlap, by default: where the gain levels off on a Zen 3 core
/// (`gnomon-study offline --group` measures it); more only spills the first-level cache.
pub const GROUP_DEFAULT: usize = 32;

/// The native engine.
pub struct CpuEngine {
    store: Arc<Store>,
    packets: PacketMemory,
    group: usize,
    /// The group's keys that are to be looked up.
    asked: Vec<Asked>,
    /// Hashes of the keys that requests name which the strict parser will read.
    others: Vec<KeyHash>,
    done: Option<Box<Batch>>,
}

base::opaque!(CpuEngine, |it| group: it.group);

impl CpuEngine {
    /// An engine over `store`. With `group` 1, requests are taken one by one and nothing is
    /// prefetched: the yardstick for what grouping gains.
    ///
    /// # Safety
    /// - Every slot named in a batch given to [`Engine::submit`] is owned by that batch's frames,
    ///   and no thread writes to it until the batch has been polled.
    /// - The same holds of a batch given to [`Self::confirms`], until that returns.
    pub unsafe fn new(store: Arc<Store>, packets: PacketMemory, group: usize) -> Self {
        let group = group.max(1);
        let asked = Vec::with_capacity(group * KEYS_MAX);
        Self { store, packets, group, asked, others: Vec::with_capacity(group), done: None }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether another engine's descriptors are ones that this engine could have made; with
    /// `in_full`, whether they are the ones that it would have made, but for the hints.
    pub fn confirms(&self, batch: &Batch, in_full: bool) -> bool {
        batch.descs.len() == batch.entries.len()
            && batch.entries.iter().zip(batch.descs.iter()).all(|(entry, desc)| {
                if !in_full && is_plain(entry, desc) {
                    return true;
                }
                // SAFETY: the slot is in the batch, whose frames no thread writes to now (`new`'s
                // contract).
                let frame = unsafe { self.packets.frame(entry) }.unwrap_or_default();
                if in_full {
                    same(&read(frame, entry), desc)
                } else {
                    is_possible(frame, entry, desc)
                }
            })
    }

    /// Which form of request this is, of a batch as [`Self::confirms`] takes it and by a descriptor that it has confirmed, if a
    /// GPU may have rows for it.
    pub fn form(&self, entry: &Entry, desc: &ReqDesc) -> Option<Form> {
        // SAFETY: the slot is in the batch, whose frames no thread writes to now (`new`'s contract).
        let frame = unsafe { self.packets.frame(entry) };
        form_of(desc, frame.unwrap_or_default())
    }

    /// Does for another engine's descriptors what is left to do: what it did not find is looked up
    /// in the host index, keys are hashed that it leaves to the strict parser, and all memory that
    /// stage 6 will read is prefetched. Without that a worker would wait for one line after the
    /// other. Returns how many keys were found, for which the replica of the index is to read the host's entry
    /// again, if it may have something for it. With a reply that is sent as it is there is nothing left to do.
    pub fn complete(&mut self, batch: &mut Batch) -> usize {
        let Batch { entries, descs, replies, .. } = batch;
        let (packets, mut missed) = (self.packets, 0);
        let mut replies = replies.chunks(self.group);
        for (group, descs) in entries.chunks(self.group).zip(descs.chunks_mut(self.group)) {
            let replies = replies.next().unwrap_or_default();
            self.read_group(group, descs, Some(replies));
            self.prefetch_buckets();
            self.look_up_group(descs, |store, asked, desc, at| {
                // Keys with a row are invalidated by their writers.
                if desc.keys.get(asked.key).is_none_or(|key| key.hint != Hint::ROW) {
                    // SAFETY: the batch is ours, as in `read_group`.
                    let frame =
                        group.get(asked.desc).and_then(|entry| unsafe { packets.frame(entry) });
                    let form = form_of(desc, frame.unwrap_or_default());
                    store.invalidate(asked.hash, form.map(|form| (form, store.class_at(at))));
                    missed += 1;
                }
            });
        }
        missed
    }

    fn run(&mut self, batch: &mut Batch) {
        let Batch { entries, descs, .. } = batch;
        // The capacity is that of the entries, and each is written below, in its place.
        descs.set_len(entries.len());
        for (group, descs) in entries.chunks(self.group).zip(descs.chunks_mut(self.group)) {
            self.read_group(group, descs, None);
            self.prefetch_buckets();
            self.look_up_group(descs, |_, _, _, _| ());
        }
    }

    /// Reads the requests of a group, unless another engine has, and hashes their keys. Items that it
    /// found are prefetched. `by_another`: it has, and wrote these replies.
    #[inline(always)]
    fn read_group(
        &mut self,
        group: &[Entry],
        descs: &mut [ReqDesc],
        by_another: Option<&[WholeReply]>,
    ) {
        let Self { store, packets, asked, others, .. } = self;
        asked.clear();
        others.clear();
        for (n, (entry, desc)) in group.iter().zip(descs).enumerate() {
            let reply = by_another.and_then(|replies| replies.get(n));
            if reply.is_some_and(|reply| reply.facts.text_len > 0) {
                continue;
            }
            let by_another = by_another.is_some();
            // SAFETY: the slot is in the batch, which we hold, or whose frames no thread writes to now
            // (`new`'s contract).
            let frame = unsafe { packets.frame(entry) };
            let frame = frame.unwrap_or_default();
            if by_another {
                // Stage 6 uses a hash without a check, so another engine's is not kept.
                desc.hash = 0;
            } else {
                read_into(desc, frame, entry);
            }
            if self.group > 1 && desc.verdict == Verdict::SLOW {
                others.extend(hash_guess(store, desc, frame));
            }
            let n_keys = usize::from(desc.n_keys);
            for (key, its) in desc.keys.iter().take(n_keys).enumerate() {
                if by_another && its.hint == Hint::HIT {
                    if self.group > 1 {
                        store.prefetch_item(Location(its.location));
                    }
                } else if let Some(bytes) = its.bytes(frame) {
                    asked.push(Asked { hash: store.hash(bytes), desc: n, key });
                }
            }
        }
    }

    fn prefetch_buckets(&self) {
        if self.group > 1 {
            self.asked.iter().for_each(|asked| self.store.prefetch_near(asked.hash));
            self.others.iter().for_each(|&hash| self.store.prefetch_change(hash));
        }
    }

    /// Looks the keys of a group up, and prefetches their items. Most are in their first bucket; for
    /// the others the second one is prefetched while those are looked up. `found` is called with each that
    /// is there.
    fn look_up_group(
        &mut self,
        descs: &mut [ReqDesc],
        mut found: impl FnMut(&Store, &Asked, &ReqDesc, Location),
    ) {
        let Self { store, group, asked, others, .. } = self;
        let ahead = *group > 1;
        asked.retain(|asked| {
            let Some(location) = store.propose_near(asked.hash) else {
                if ahead {
                    store.prefetch_far(asked.hash);
                }
                return true;
            };
            if ahead {
                store.prefetch_item(location);
            }
            if let Some(desc) = descs.get(asked.desc) {
                found(store, asked, desc, location);
            }
            asked.answer(descs, Some(location));
            false
        });
        others.retain(|&hash| {
            let Some(location) = store.propose_near(hash) else {
                store.prefetch_far(hash);
                return true;
            };
            store.prefetch_item(location);
            false
        });
        for asked in &*asked {
            let location = store.propose(asked.hash);
            if let (true, Some(location)) = (ahead, location) {
                store.prefetch_item(location);
            }
            if let (Some(location), Some(desc)) = (location, descs.get(asked.desc)) {
                found(store, asked, desc, location);
            }
            asked.answer(descs, location);
        }
        for &hash in &*others {
            if let Some(location) = store.propose(hash) {
                store.prefetch_item(location);
            }
        }
    }
}

/// A key that a request of the group reads.
#[derive(Clone, Copy)]
struct Asked {
    hash: KeyHash,
    /// Whose it is, and which one.
    desc: usize,
    key: usize,
}

impl Asked {
    fn answer(&self, descs: &mut [ReqDesc], location: Option<Location>) {
        let desc = descs.get_mut(self.desc);
        if let Some(key) = desc.and_then(|desc| desc.keys.get_mut(self.key)) {
            (key.hint, key.location) = match location {
                Some(location) => (Hint::HIT, location.0),
                None => (Hint::MISS, 0),
            };
        }
    }
}

impl Engine for CpuEngine {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn submit(&mut self, mut batch: Box<Batch>) -> Result<(), Box<Batch>> {
        if self.done.is_some() {
            return Err(batch);
        }
        self.run(&mut batch);
        self.done = Some(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<(Box<Batch>, Outcome)> {
        self.done.take().map(|batch| (batch, Outcome::Final))
    }

    fn in_flight(&self) -> usize {
        usize::from(self.done.is_some())
    }
}

/// The keys of a descriptor, in its frame.
pub fn keys<'a>(desc: &'a ReqDesc, frame: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    desc.keys.iter().take(usize::from(desc.n_keys)).filter_map(|key| key.bytes(frame))
}

/// Whether two descriptors say the same, but for hints.
fn same(ours: &ReqDesc, theirs: &ReqDesc) -> bool {
    let facts = |d: &ReqDesc| (d.verdict, d.reason, d.verb, d.n_keys, d.payload_off, d.payload_len);
    // Those in use; what stands behind them means nothing.
    let n_keys = usize::from(ours.n_keys);
    let keys = |d: &ReqDesc| d.keys.map(|key| (key.off, key.len)).into_iter().take(n_keys);
    // Of a bad one the reason alone is looked at.
    (ours.verdict, ours.reason) == (theirs.verdict, theirs.reason)
        && (ours.verdict == Verdict::BAD
            || facts(ours) == facts(theirs) && keys(ours).eq(keys(theirs)))
}

/// Whether the descriptor is that of a plain `get`, and its entry too: the descriptor is the only one, then,
/// that says that it is one to be answered.
#[inline(always)]
fn is_plain(entry: &Entry, desc: &ReqDesc) -> bool {
    let [key, ..] = &desc.keys;
    entry.flags.has(EntryFlags::PLAIN)
        && (desc.verdict, desc.verb, desc.n_keys) == (Verdict::READY, Verb::GET, 1)
        && (usize::from(desc.payload_off), usize::from(key.off)) == (TEXT, KEY)
        && usize::from(desc.payload_len) + TEXT == usize::from(entry.len)
        && usize::from(key.len) + KEY + b"\r\n".len() == usize::from(entry.len)
}

/// Whether the descriptor can be that of this frame: a verdict that there is, the text where it must
/// be, and keys that lie in it one behind the other, as the verb has them. Costs no look at the
/// keys' bytes.
fn is_possible(frame: &[u8], entry: &Entry, desc: &ReqDesc) -> bool {
    if desc.verdict == Verdict::BAD {
        return desc.reason != BadReason::NONE;
    }
    let udp = usize::from(entry.l4);
    let text_off = udp + TEXT_AFTER_UDP;
    let udp_len = match frame.get(udp + 4..udp + 6) {
        Some(&[hi, lo]) => usize::from(u16::from_be_bytes([hi, lo])),
        _ => return false,
    };
    let text_end = udp + udp_len;
    let (off, len) = (usize::from(desc.payload_off), usize::from(desc.payload_len));
    if off != text_off || off + len != text_end {
        return false;
    }
    let Some(text) = frame.get(text_off..text_end) else { return false };
    match desc.verdict {
        Verdict::SLOW => true,
        Verdict::STRICT_HINTED => {
            let is_its = match (desc.verb, text) {
                (Verb::META_GET, [b'm', b'g', b' ', ..]) => true,
                (verb, [REQUEST_MAGIC, packet @ ..]) => {
                    let [key, ..] = &desc.keys;
                    usize::from(key.off) == text_off + HEADER_BYTES
                        && hinted::binary(packet) == Some((verb, key.len.into()))
                }
                _ => false,
            };
            is_its && keys(desc, frame).count() == usize::from(desc.n_keys)
        }
        Verdict::READY => {
            let word_len = match (desc.verb, text) {
                (Verb::GET, [b'g', b'e', b't', b' ', ..]) => 4,
                (Verb::GETS, [b'g', b'e', b't', b's', b' ', ..]) => 5,
                _ => return false,
            };
            let n_keys = usize::from(desc.n_keys);
            if !(1..=KEYS_MAX).contains(&n_keys) {
                return false;
            }
            let mut at = text_off + word_len;
            for (n, key) in desc.keys.iter().take(n_keys).enumerate() {
                let blank = n > 0 && frame.get(at) == Some(&b' ');
                at += usize::from(blank);
                if (n > 0) != blank || usize::from(key.off) != at || key.len == 0 {
                    return false;
                }
                at += usize::from(key.len);
                // Not even the last one goes on into the line end.
                if frame.get(at - 1).is_none_or(|last| *last <= b' ') {
                    return false;
                }
            }
            matches!(frame.get(at..text_end), Some(b"\r\n" | b"\n" | b" \r\n" | b" \n"))
        }
        _ => false,
    }
}

/// Which form of request this is, if a GPU may have rows for it. An `mg` is a key, flags of a letter and the line's end, and
/// nothing else.
fn form_of(desc: &ReqDesc, frame: &[u8]) -> Option<Form> {
    if desc.verb != Verb::META_GET {
        return Form::of(desc.verb);
    }
    let [key, ..] = &desc.keys;
    if usize::from(key.off) != usize::from(desc.payload_off) + b"mg ".len() {
        return None;
    }
    let line_end = usize::from(desc.payload_off) + usize::from(desc.payload_len);
    let flags = frame.get(usize::from(key.off) + usize::from(key.len)..line_end)?;
    let flags = flags.strip_suffix(b"\n")?;
    Form::of_meta(flags.strip_suffix(b"\r").unwrap_or(flags))
}

/// Puts into the descriptor what stands behind the verb of a command in text, in nearly all a key.
/// Nothing but memory's readiness depends on the guess, and whether the key has been hashed.
#[inline]
fn guess_key<'a>(desc: &mut ReqDesc, frame: &'a [u8]) -> Option<&'a [u8]> {
    /// Longest verb that is looked behind (`prepend`, `replace`), and the blank.
    const VERB_MAX: usize = 8;
    let text = desc.text(frame)?;
    let start = match text {
        // The usual verb.
        [b's', b'e', b't', b' ', ..] => 4,
        _ => text.iter().take(VERB_MAX).position(|b| *b == b' ')? + 1,
    };
    let behind = text.get(start..)?;
    let key = behind.get(..word_len(behind).min(KEY_MAX_BYTES))?;
    let (start, len) = (u16::try_from(start).ok()?, u8::try_from(key.len()).ok()?);
    let [first, ..] = &mut desc.keys;
    *first = KeyDesc { off: desc.payload_off + start, len, ..KeyDesc::default() };
    Some(key)
}

/// Hashes the key of a request that is left to the strict parser, if it can be guessed, and puts the
/// hash into the descriptor.
#[inline(always)]
fn hash_guess(store: &Store, desc: &mut ReqDesc, frame: &[u8]) -> Option<KeyHash> {
    let hash = store.hash(guess_key(desc, frame)?);
    desc.hash = hash.0;
    Some(hash)
}

/// The request in a frame, as far as an engine can see: checksums, frame header, simple gets.
pub fn read(frame: &[u8], entry: &Entry) -> ReqDesc {
    let mut desc = ReqDesc::default();
    read_into(&mut desc, frame, entry);
    desc
}

/// As [`read`], over whatever stands in `desc`.
#[inline(never)]
fn read_into(desc: &mut ReqDesc, frame: &[u8], entry: &Entry) {
    let &Entry { l3, l4, flags, .. } = entry;
    let read = match (l3, l4, flags.has(EntryFlags::IPV6)) {
        // The usual place, compiled with what is known of it.
        (PLAIN_L3, PLAIN_L4, false) => read_at(desc, frame, PLAIN_L3, PLAIN_L4, false, flags),
        (_, _, ipv6) => read_anywhere(desc, frame, l3, l4, ipv6, flags),
    };
    if let Err(reason) = read {
        *desc = ReqDesc::bad(reason);
    }
}

#[inline(never)]
fn read_anywhere(
    desc: &mut ReqDesc,
    frame: &[u8],
    l3: u8,
    l4: u8,
    ipv6: bool,
    flags: EntryFlags,
) -> Result<(), BadReason> {
    read_at(desc, frame, l3, l4, ipv6, flags)
}

#[inline(always)]
fn read_at(
    desc: &mut ReqDesc,
    frame: &[u8],
    l3: u8,
    l4: u8,
    ipv6: bool,
    flags: EntryFlags,
) -> Result<(), BadReason> {
    if !ipv6 && !flags.has(EntryFlags::IP_GOOD) && !verify_ip4_header(frame, l3) {
        return Err(BadReason::IP_CHECKSUM);
    }
    if !flags.has(EntryFlags::UDP_GOOD) && !verify_udp(frame, l3, l4, ipv6) {
        return Err(BadReason::UDP_CHECKSUM);
    }
    let l4 = usize::from(l4);
    // The UDP length, not the frame's end: Ethernet may have padded the frame.
    let udp_len = match frame.get(l4 + 4..l4 + 6) {
        Some(&[hi, lo]) => usize::from(u16::from_be_bytes([hi, lo])),
        _ => 0,
    };
    let datagram = frame.get(l4 + 8..l4 + udp_len).unwrap_or_default();
    let (_, text) = udp_frame::split(datagram)?;
    let start = l4 + TEXT_AFTER_UDP;
    let (Ok(payload_off), Ok(payload_len)) = (u16::try_from(start), u16::try_from(text.len()))
    else {
        return Err(BadReason::FRAME_SHORT);
    };
    *desc = ReqDesc { payload_off, payload_len, ..ReqDesc::default() };
    if parse_get(text, payload_off, desc).is_none() {
        desc.verdict = Verdict::SLOW;
        desc.n_keys = 0;
        hinted::read(text, payload_off, desc);
    }
    Ok(())
}

/// Reads a datagram that holds one `get` or `gets` of a few ordinary keys and nothing else.
/// `None`: leave it to the strict parser.
#[inline(always)]
fn parse_get(text: &[u8], text_off: u16, desc: &mut ReqDesc) -> Option<()> {
    let (verb, skip) = match text {
        [b'g', b'e', b't', b' ', ..] => (Verb::GET, 4),
        [b'g', b'e', b't', b's', b' ', ..] => (Verb::GETS, 5),
        _ => return None,
    };
    let mut start = skip;
    // One blank between keys, none after the last or, as libmemcached has it, one.
    for (n, key) in desc.keys.iter_mut().enumerate() {
        let end = start + word_len(text.get(start..)?);
        let len = end - start;
        if len == 0 && n > 0 && matches!(text.get(start..), Some(b"\r\n" | b"\n")) {
            desc.verb = verb;
            desc.verdict = Verdict::READY;
            desc.n_keys = u8::try_from(n).ok()?;
            return Some(());
        }
        if len == 0 || len > KEY_MAX_BYTES {
            return None;
        }
        *key = KeyDesc {
            off: text_off + u16::try_from(start).ok()?,
            len: u8::try_from(len).ok()?,
            ..KeyDesc::default()
        };
        match text.get(end..)? {
            b"\r\n" | b"\n" => {
                desc.verb = verb;
                desc.verdict = Verdict::READY;
                desc.n_keys = u8::try_from(n + 1).ok()?;
                return Some(());
            }
            [b' ', ..] => start = end + 1,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests;
