//! What waits, and how much of it a turn answers.

use super::image::Image;
use super::look_up::{Named, ROW, ROWS_AHEAD, Rows};
use super::packets::{self, To};
use crate::commands::Ctx;
use crate::frame_accounting::Accounts;
use crate::observe::{LookUps, Observer, Seen};
use crate::plain::FastPathMode;
use crate::plain::requests::LOOK;
use crate::plain::vector::{Compiled, Vector};
use crate::plain::window::{ADDRESSES, part};
use crate::policy::{Debt, Gate, REQUEST_BYTES, source};
use crate::rdma::{
    Between, HEAD_BYTES, Pair, QueuePairs, READ_MAX_BYTES, Rdma, TAIL_BYTES, Verdict,
};
use crate::reply::Meaning;
use driver_shim::{Frame, Region};
use gpu::{Entry, EntryFlags};
use parking_lot::MutexGuard;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::Guard;
use wire::DropReason;
use wire::roce::{Bth, PATH_MTUS, Reth, Roce, verify_icrc};
use wire::udp::HEADER_BYTES as UDP_HEADER_BYTES;
use wire::verify::verify_ip4_header;

/// Requests that wait, at most: four bursts. A client has 16 or 128 of them under way.
pub(super) const WAITING_MAX: usize = 256;
/// Bytes that the reads of one turn get together, but for a first one that is longer.
const TURN_BYTES: usize = 64 << 10;
/// A READ up to here is counted without a look at its queue pair: all that can wait fit one turn.
const COUNTED_BYTES: usize = TURN_BYTES / WAITING_MAX;
/// Where a READ may end: behind a head and a version, and not beyond the longest.
#[expect(clippy::cast_possible_truncation, reason = "below 2^17")]
const ENDS: RangeInclusive<u32> = (HEAD_BYTES + TAIL_BYTES) as u32..=READ_MAX_BYTES as u32;
/// Responses to the longest READ by the smallest packets.
const PACKETS_MAX: usize = READ_MAX_BYTES.div_ceil(PATH_MTUS[0] as usize);

/// The requests of one worker that wait.
#[derive(Debug)]
pub struct Reads {
    rdma: Arc<Rdma>,
    pub(super) mode: FastPathMode,
    pub(super) waiting: Vec<Frame>,
    /// What each of them asks for.
    pub(super) asked: Vec<Asked>,
    /// Of one answer. Empty between two.
    frames: Vec<Frame>,
    /// When requests of the last turn had come that it answered, and how many each time.
    answered: Vec<(u64, u64)>,
}

/// Where a request's headers are, and of which port it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) l3: u8,
    pub(super) l4: u8,
    pub(super) flags: EntryFlags,
    pub(super) mark: u8,
}

impl Origin {
    #[inline(always)]
    fn entry(self, frame: &Frame) -> Entry {
        let Self { l3, l4, flags, mark } = self;
        let len = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        Entry { slot: frame.slot(), off: frame.offset(), len, l3, l4, flags, mark }
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) origin: Origin,
    /// Of a plain one, the `ip_sum` of a response.
    pub(super) ip_sum: Option<u16>,
    pub(super) bth: Bth,
    pub(super) read: Option<Read>,
}

/// What a READ asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    /// R_Key, and the upper half of its address.
    stag: u64,
    /// Where in the image of its stag it begins: the lower half. 0, where it is of nothing.
    at: u32,
    len: u32,
    /// How far the image is needed. 0: the READ is of nothing, or it ends beyond the longest one, which one that goes
    /// on where that was cut off does not, or leaves no place for the version.
    end: u32,
}

impl Read {
    #[inline(always)]
    pub(super) fn of(reth: &Reth) -> Self {
        let (va, len) = (reth.va.get(), reth.len.get());
        let at = if len == 0 { 0 } else { u32::try_from(va & u64::from(u32::MAX)).unwrap_or(0) };
        let end = at.checked_add(len).filter(|end| ENDS.contains(end)).unwrap_or(0);
        let stag = u64::from(reth.rkey.get()) << 32 | va >> 32;
        Self { stag, at, len, end }
    }
}

/// What a turn works with.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The store, and where gets are counted.
    pub ctx: Ctx<'a>,
    /// Where frames of responses come from.
    pub region: &'a Region,
    /// Who may have how much.
    pub gate: &'a mut Gate,
    /// Where frames are accounted for.
    pub accounts: &'a Accounts,
    /// The worker's clock.
    pub now_ns: u64,
}

/// The same, while items that it finds stay.
struct Pinned<'a> {
    guard: &'a Guard<'a>,
    observer: Observer<'a>,
    region: &'a Region,
    gate: &'a mut Gate,
    accounts: &'a Accounts,
    now_ns: u64,
    pairs: &'a QueuePairs,
    /// The pair of the last request: those that a client has under way come one behind the other.
    locked: Option<(u32, MutexGuard<'a, Pair>)>,
    done: Done<'a>,
}

/// What a turn did, to be counted at its end.
struct Done<'a> {
    look_ups: LookUps,
    reads: u64,
    repeated: u64,
    bytes: u64,
    /// When the last one had come, and how many together with it.
    last: (u64, u64),
    /// The same of those before.
    answered: &'a mut Vec<(u64, u64)>,
}

impl<'a> Done<'a> {
    fn of(answered: &'a mut Vec<(u64, u64)>) -> Self {
        let look_ups = LookUps::default();
        Self { look_ups, reads: 0, repeated: 0, bytes: 0, last: (0, 0), answered }
    }

    /// A READ was answered that had come then.
    #[inline(always)]
    fn note(&mut self, came_ns: u64) {
        if self.last.0 != came_ns {
            self.end();
            self.last.0 = came_ns;
        }
        self.last.1 += 1;
    }

    fn end(&mut self) {
        if self.last.1 > 0 {
            self.answered.push(std::mem::take(&mut self.last));
        }
    }
}

impl Reads {
    /// A stage for the queue pairs and stags of `rdma`. All memory is taken here.
    pub fn new(rdma: Arc<Rdma>) -> Self {
        let (waiting, asked) = (Vec::with_capacity(WAITING_MAX), Vec::with_capacity(WAITING_MAX));
        let frames = Vec::with_capacity(PACKETS_MAX);
        let answered = Vec::with_capacity(WAITING_MAX);
        Self { rdma, mode: FastPathMode::Vector, waiting, asked, frames, answered }
    }

    /// With vector instructions or without; the same comes of either.
    #[must_use]
    pub fn by(self, mode: FastPathMode) -> Self {
        Self { mode, ..self }
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When requests of the last turn had come that it answered, and how many each time.
    pub fn answered(&self) -> &[(u64, u64)] {
        &self.answered
    }

    /// Takes a request in.
    ///
    /// # Errors
    /// The frame, and why it is none, or none that can wait.
    pub fn enter(&mut self, frame: Frame, entry: Entry) -> Result<(), (Frame, DropReason)> {
        match check(frame.bytes(), &entry) {
            Ok(_) if self.waiting.len() >= WAITING_MAX => Err((frame, DropReason::RdmaFull)),
            Ok(Roce { bth, read }) => {
                let Entry { l3, l4, flags, mark, .. } = entry;
                let (origin, read) = (Origin { l3, l4, flags, mark }, read.as_ref().map(Read::of));
                self.waiting.push(frame);
                self.asked.push(Asked { origin, ip_sum: None, bth, read });
                Ok(())
            }
            Err(reason) => Err((frame, reason)),
        }
    }

    /// Answers what waits, as far as the turn goes, and gives the responses out in their order, each
    /// with the worker's number of its port. Returns how many requests it is done with.
    pub fn turn(&mut self, with: Turn<'_>, emit: impl FnMut(usize, Frame, Meaning)) -> usize {
        self.answered.clear();
        let due = due(&self.asked, &self.waiting, &self.rdma.pairs);
        if due > 0 {
            self.mode.run_on_this_cpu(Answering { reads: self, due, with, emit });
        }
        due
    }
}

/// The first requests that wait are answered.
struct Answering<'t, 'a, E> {
    reads: &'t mut Reads,
    due: usize,
    with: Turn<'a>,
    emit: E,
}

impl<E: FnMut(usize, Frame, Meaning)> Compiled for Answering<'_, '_, E> {
    type Done = ();

    #[inline(always)]
    fn run(self, vector: impl Vector) {
        let Self {
            reads: Reads { rdma, waiting, asked, frames, answered, .. },
            due,
            with,
            mut emit,
        } = self;
        let Turn { ctx: Ctx { session, observer, .. }, region, gate, accounts, now_ns } = with;
        let guard = session.pin();
        let (pairs, locked) = (&*rdma.pairs, None);
        let done = Done::of(answered);
        let mut with =
            Pinned { guard: &guard, observer, region, gate, accounts, now_ns, pairs, locked, done };
        let mut under_way = Rows::new(&guard);
        let mut waiting = waiting.drain(..due);
        let rows = due.div_ceil(ROW);
        for step in 0..rows + 2 * ROWS_AHEAD {
            // A row that is not there yet, or no more, has a number beyond the last.
            let behind = |rows: usize| step.wrapping_sub(rows);
            if step < rows {
                under_way.name(step, &rdma.stags, stags(asked, step * ROW));
            }
            if behind(ROWS_AHEAD + 1) < rows {
                under_way.find_far(behind(ROWS_AHEAD + 1));
            }
            if behind(ROWS_AHEAD) < rows {
                under_way.find(behind(ROWS_AHEAD));
            }
            if behind(2 * ROWS_AHEAD) < rows {
                let taken = under_way.take(behind(2 * ROWS_AHEAD), vector);
                let first = behind(2 * ROWS_AHEAD) * ROW;
                for (n, asked) in asked.iter().skip(first).take(ROW).enumerate() {
                    let Some(frame) = waiting.next() else { break };
                    answer(frame, asked, taken.named(n), frames, &mut with, vector, &mut emit);
                }
            }
        }
        drop(waiting);
        asked.drain(..due);
        with.done.end();
        let Done { look_ups, reads, repeated, bytes, .. } = with.done;
        drop(with);
        drop(guard);
        observer.look_ups(look_ups, false);
        accounts.rdma_reads.add(reads);
        accounts.rdma_repeated.add(repeated);
        accounts.rdma_bytes.add(bytes);
        observer.dead(session);
    }
}

/// Requests that this turn answers, or drops. A long READ of no queue pair costs nothing, or a few forged ones would take
/// the turn of others.
fn due(asked: &[Asked], frames: &[Frame], pairs: &QueuePairs) -> usize {
    let (mut due, mut bytes) = (0, 0);
    for (asked, frame) in asked.iter().zip(frames) {
        // The CRC at a READ's end is over all of the item, wherever it begins.
        let end = asked.read.map_or(0, |read| read.end as usize);
        let is_of_pair = || {
            let pair = pairs.pair(asked.bth.qpn()).and_then(|pair| pair.try_lock());
            pair.is_some_and(|pair| is_theirs(&pair, frame, asked))
        };
        let end = if end <= COUNTED_BYTES || is_of_pair() { end } else { 0 };
        if bytes > 0 && bytes + end > TURN_BYTES {
            break;
        }
        bytes += end;
        due += 1;
    }
    due
}

/// What the requests from this one on name; 0 for those that name nothing.
#[inline(always)]
fn stags(asked: &[Asked], from: usize) -> [u64; ROW] {
    let mut named = [0; ROW];
    for (named, asked) in named.iter_mut().zip(asked.get(from..).unwrap_or_default()) {
        *named = asked.read.map_or(0, |read| read.stag);
    }
    named
}

/// Answers a request, or drops it by name. `frames` is empty before and after.
#[inline(always)]
fn answer(
    mut frame: Frame,
    asked: &Asked,
    named: Named<'_>,
    frames: &mut Vec<Frame>,
    with: &mut Pinned<'_>,
    vector: impl Vector,
    emit: &mut impl FnMut(usize, Frame, Meaning),
) {
    let outcome = try_answer(&mut frame, asked, named, frames, with, vector);
    let port = usize::from(asked.origin.mark);
    match outcome {
        Ok(is_read) => {
            for part in frames.drain(..) {
                emit(port, part, Meaning::Part);
            }
            if is_read {
                with.done.note(frame.stamp_ns);
            }
            emit(port, frame, Meaning::Answer);
        }
        Err(reason) => {
            frames.clear();
            with.accounts.drop_frame(frame, port, reason);
        }
    }
}

/// Makes a request its last response, and `frames` those before it. Says whether that is a READ's, or a refusal.
/// Fails with the reason why it gets none.
#[inline(always)]
fn try_answer(
    frame: &mut Frame,
    asked: &Asked,
    named: Named<'_>,
    frames: &mut Vec<Frame>,
    with: &mut Pinned<'_>,
    vector: impl Vector,
) -> Result<bool, DropReason> {
    let Asked { origin, ip_sum, bth, read } = asked;
    let (entry, qpn) = (&origin.entry(frame), bth.qpn());
    let Pinned { guard, observer, region, gate, accounts, now_ns, pairs, locked, done } = with;
    let pair = lock(pairs, locked, qpn)?;
    if !is_theirs(pair, frame, asked) {
        return Err(DropReason::RdmaNoQueuePair);
    }
    let is_permitted = read.is_some_and(|read| read.len == 0 || (read.end > 0 && named.is_stag));
    let to = To { qpn: pair.their_qpn(), psn: bth.psn(), msn: pair.msn() };
    let (packets, is_new) = match pair.judge((bth.psn(), read.map(|read| read.len)), is_permitted) {
        Verdict::Read(packets) => (packets, true),
        Verdict::Again(packets) => (packets, false),
        Verdict::Refuse(syndrome, psn) => {
            accounts.rdma_refused.inc();
            let bytes = packets::payload_bytes(1, 0);
            gate.charge(frame.bytes(), entry, bytes, *now_ns);
            let to = To { psn, ..to };
            return match packets::refuse(frame, entry, bth, to, syndrome) {
                Some(()) => Ok(false),
                None => Err(DropReason::NoFrame),
            };
        }
        Verdict::Drop(reason) => return Err(reason),
    };
    let Some(read) = read else { return Err(DropReason::RdmaMalformed) };
    let (at, len) = (read.at as usize, read.len as usize);
    if !packets::reserve(region, packets, frames) {
        return Err(DropReason::NoFrame);
    }
    // A READ of nothing is answered whatever it names.
    debug_assert!(len == 0 || named.is_stag, "{read:?}");
    let (store, item) = (guard.store(), named.item.filter(|_| len > 0));
    if let Some((item, _)) = &item {
        item.mark_visited(store.now());
    }
    // One that goes on where an earlier one was cut off was counted then, and has an earlier PSN.
    if is_new && len > 0 {
        if let Some((item, class)) = &item {
            let seen = Seen { class: *class, bytes: item.value().len() };
            observer.key_part(item.key(), Some(seen), false);
        }
        done.look_ups.keys += 1;
        done.look_ups.hits += u64::from(item.is_some());
    }
    let item = item.map(|(item, _)| item);
    let cas = item.map_or(0, |item| observer.server.cas_shown(item.cas()));
    let bytes = packets::payload_bytes(packets, len);
    gate.charge(frame.bytes(), entry, bytes, *now_ns);
    if entry.flags.has(EntryFlags::LIMITED) {
        let requests = ((at + len) as u64) / REQUEST_BYTES;
        let source = source(frame.bytes(), entry);
        gate.charge_work(Debt { source, requests }, *now_ns);
    }
    let to = To { msn: if is_new { to.msn.wrapping_add(1) } else { to.msn }, ..to };
    let only = match ip_sum {
        Some(ip_sum) if packets == 1 && at == 0 && len > 0 => {
            let image = Image::new(item.as_ref(), cas, store.now(), len);
            packets::only(frame, *ip_sum, (bth, to), &image, vector)
        }
        _ => None,
    };
    if only.is_none() {
        let image = Image::new(item.as_ref(), cas, store.now(), at + len);
        let piece = (&image, at, len);
        packets::read(frame, entry, (bth, to), piece, usize::from(pair.mtu()), frames)
            .ok_or(DropReason::NoFrame)?;
    }
    if is_new {
        pair.advance(packets);
        done.reads += 1;
    } else {
        done.repeated += 1;
    }
    done.bytes += len as u64;
    Ok(true)
}

/// The pair of this number, or of another in its place, locked until one of another number is.
#[inline]
fn lock<'l, 'a>(
    pairs: &'a QueuePairs,
    locked: &'l mut Option<(u32, MutexGuard<'a, Pair>)>,
    qpn: u32,
) -> Result<&'l mut Pair, DropReason> {
    if locked.as_ref().is_none_or(|(number, _)| *number != qpn) {
        // Two numbers may have one place.
        *locked = None;
        let pair = pairs.pair(qpn).ok_or(DropReason::RdmaNoQueuePair)?;
        *locked = pair.try_lock().map(|pair| (qpn, pair));
    }
    locked.as_mut().map(|(_, pair)| &mut **pair).ok_or(DropReason::RdmaBusy)
}

/// Whether a request is of this pair.
#[inline(always)]
fn is_theirs(pair: &Pair, frame: &Frame, asked: &Asked) -> bool {
    let qpn = asked.bth.qpn();
    match asked.ip_sum {
        Some(_) => pair.is_plain(qpn, addresses(frame)),
        None => pair.is(qpn, between(frame.bytes(), &asked.origin.entry(frame))),
    }
}

/// Takes the request in a frame apart, if it is whole.
fn check(frame: &[u8], entry: &Entry) -> Result<Roce, DropReason> {
    let ipv6 = entry.flags.has(EntryFlags::IPV6);
    if !ipv6 && !entry.flags.has(EntryFlags::IP_GOOD) && !verify_ip4_header(frame, entry.l3) {
        return Err(DropReason::Ipv4Checksum);
    }
    let packet = without_padding(frame, entry).ok_or(DropReason::RdmaMalformed)?;
    let data = packet.get(usize::from(entry.l4) + UDP_HEADER_BYTES..).unwrap_or_default();
    let request = Roce::checked(data).ok_or(DropReason::RdmaMalformed)?;
    if !verify_icrc(packet, entry.l3, entry.l4, ipv6) {
        return Err(DropReason::RdmaIcrc);
    }
    if request.is_request() { Ok(request) } else { Err(DropReason::RdmaNotRequest) }
}

/// The frame up to the end of its datagram, which stage 3 has found to be inside.
fn without_padding<'f>(frame: &'f [u8], entry: &Entry) -> Option<&'f [u8]> {
    let l4 = usize::from(entry.l4);
    let len = frame.get(l4 + 4..)?.first_chunk::<2>()?;
    frame.get(..l4 + usize::from(u16::from_be_bytes(*len)))
}

/// The addresses of a plain request, as they stand in its header.
#[inline(always)]
fn addresses(frame: &Frame) -> u64 {
    frame.window::<LOOK>().map_or(0, |look| u64::from_le_bytes(*part(look, ADDRESSES)))
}

/// Whom a request connects.
fn between(frame: &[u8], entry: &Entry) -> Between {
    let header = frame.get(usize::from(entry.l3)..).unwrap_or_default();
    let ours = if entry.flags.has(EntryFlags::IPV6) {
        let at = header.get(24..).and_then(<[u8]>::first_chunk::<16>);
        IpAddr::V6(at.map_or(Ipv6Addr::UNSPECIFIED, |a| Ipv6Addr::from(*a)))
    } else {
        let at = header.get(16..).and_then(<[u8]>::first_chunk::<4>);
        IpAddr::V4(at.map_or(Ipv4Addr::UNSPECIFIED, |a| Ipv4Addr::from(*a)))
    };
    Between { ours, theirs: source(frame, entry) }
}
