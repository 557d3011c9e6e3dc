//! What waits, and how much of it a turn answers.

use super::image::Image;
use super::look_up::{ROW, ROWS_AHEAD, Rows};
use super::packets::{self, To};
use crate::commands::Ctx;
use crate::frame_accounting::Accounts;
use crate::observe::{LookUps, Observer, Seen};
use crate::policy::{Debt, Gate, REQUEST_BYTES, source};
use crate::rdma::{Between, Pair, QueuePairs, READ_MAX_BYTES, Rdma, Verdict};
use crate::reply::Meaning;
use driver_shim::{Frame, Region};
use gpu::{Entry, EntryFlags};
use parking_lot::MutexGuard;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use store::{Guard, ItemRef};
use wire::DropReason;
use wire::roce::{PATH_MTUS, Reth, Roce, verify_icrc};
use wire::udp::HEADER_BYTES as UDP_HEADER_BYTES;
use wire::verify::verify_ip4_header;

/// Requests that wait, at most: four bursts. A client has 16 or 128 of them under way.
const WAITING_MAX: usize = 256;
/// Bytes that the reads of one turn get together, but for a first one that is longer.
const TURN_BYTES: usize = 64 << 10;
/// Responses to the longest READ by the smallest packets.
const PACKETS_MAX: usize = READ_MAX_BYTES.div_ceil(PATH_MTUS[0] as usize);

/// The requests of one worker that wait.
#[derive(Debug)]
pub struct Reads {
    rdma: Arc<Rdma>,
    waiting: VecDeque<Waiting>,
    /// Of one answer. Empty between two.
    frames: Vec<Frame>,
    /// When requests of the last turn had come that it answered, and how many each time.
    answered: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Waiting {
    frame: Frame,
    entry: Entry,
    request: Roce,
    /// Of a READ ([`span`]).
    span: Option<(usize, usize)>,
}

/// What is at the place that a request names.
#[derive(Clone, Copy)]
struct Named<'g> {
    /// It is a stag.
    is_stag: bool,
    item: Option<ItemRef<'g>>,
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
    done: Done,
}

/// What a turn did, to be counted at its end.
#[derive(Default)]
struct Done {
    look_ups: LookUps,
    reads: u64,
    repeated: u64,
    bytes: u64,
}

impl Reads {
    /// A stage for the queue pairs and stags of `rdma`. All memory is taken here.
    pub fn new(rdma: Arc<Rdma>) -> Self {
        let waiting = VecDeque::with_capacity(WAITING_MAX);
        let frames = Vec::with_capacity(PACKETS_MAX);
        Self { rdma, waiting, frames, answered: Vec::with_capacity(WAITING_MAX) }
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
            Ok(request) => {
                let span = request.read.and_then(|read| span(&read));
                self.waiting.push_back(Waiting { frame, entry, request, span });
                Ok(())
            }
            Err(reason) => Err((frame, reason)),
        }
    }

    /// Answers what waits, as far as the turn goes, and gives the responses out in their order, each
    /// with the worker's number of its port. Returns how many requests it is done with.
    pub fn turn(&mut self, with: Turn<'_>, mut emit: impl FnMut(usize, Frame, Meaning)) -> usize {
        let Self { rdma, waiting, frames, answered } = self;
        answered.clear();
        let due = due(waiting);
        if due == 0 {
            return 0;
        }
        let Turn { ctx: Ctx { session, observer, .. }, region, gate, accounts, now_ns } = with;
        let guard = session.pin();
        let (pairs, locked, done) = (&*rdma.pairs, None, Done::default());
        let mut with =
            Pinned { guard: &guard, observer, region, gate, accounts, now_ns, pairs, locked, done };
        let mut under_way = Rows::new(&guard);
        let rows = due.div_ceil(ROW);
        let mut done = 0;
        for step in 0..rows + 2 * ROWS_AHEAD {
            // A row that is not there yet, or no more, has a number beyond the last.
            let behind = |rows: usize| step.wrapping_sub(rows);
            if step < rows {
                under_way.name(step, &rdma.stags, stags(waiting, step * ROW - done));
            }
            if behind(ROWS_AHEAD + 1) < rows {
                under_way.find_far(behind(ROWS_AHEAD + 1));
            }
            if behind(ROWS_AHEAD) < rows {
                under_way.find(behind(ROWS_AHEAD));
            }
            if behind(2 * ROWS_AHEAD) < rows {
                for (place, item) in under_way.take(behind(2 * ROWS_AHEAD)) {
                    if done == due {
                        break;
                    }
                    let Some(waiting) = waiting.pop_front() else { break };
                    let named = Named { is_stag: place.is_some(), item };
                    answer(waiting, named, frames, answered, &mut with, &mut emit);
                    done += 1;
                }
            }
        }
        let Done { look_ups, reads, repeated, bytes } = std::mem::take(&mut with.done);
        drop(with);
        drop(guard);
        observer.look_ups(look_ups, false);
        accounts.rdma_reads.add(reads);
        accounts.rdma_repeated.add(repeated);
        accounts.rdma_bytes.add(bytes);
        observer.dead(session);
        done
    }
}

/// Requests that this turn answers.
fn due(waiting: &VecDeque<Waiting>) -> usize {
    let (mut due, mut bytes) = (0, 0);
    for Waiting { span, .. } in waiting {
        // The CRC at a READ's end is over all of the item, wherever it begins.
        let end = span.map_or(0, |(at, len)| at + len);
        if bytes > 0 && bytes + end > TURN_BYTES {
            break;
        }
        bytes += end;
        due += 1;
    }
    due
}

/// What the requests from this one on name; 0 for those that name nothing.
#[inline]
fn stags(waiting: &VecDeque<Waiting>, from: usize) -> [u64; ROW] {
    let mut named = [0; ROW];
    for (named, waiting) in named.iter_mut().zip(waiting.range(from.min(waiting.len())..)) {
        *named = waiting.request.read.map_or(0, |read| stag(&read));
    }
    named
}

/// Answers a request, or drops it by name. `frames` is empty before and after.
#[inline]
fn answer(
    mut waiting: Waiting,
    named: Named<'_>,
    frames: &mut Vec<Frame>,
    answered: &mut Vec<(u64, u64)>,
    with: &mut Pinned<'_>,
    emit: &mut impl FnMut(usize, Frame, Meaning),
) {
    let outcome = try_answer(&mut waiting, named, frames, with);
    let Waiting { frame, entry, .. } = waiting;
    let port = usize::from(entry.mark);
    match outcome {
        Ok(is_read) => {
            for part in frames.drain(..) {
                emit(port, part, Meaning::Part);
            }
            let came_ns = frame.stamp_ns;
            emit(port, frame, Meaning::Answer);
            match answered.last_mut() {
                _ if !is_read => {}
                Some((came, reads)) if *came == came_ns => *reads += 1,
                _ => answered.push((came_ns, 1)),
            }
        }
        Err(reason) => {
            frames.clear();
            with.accounts.drop_frame(frame, port, reason);
        }
    }
}

/// Makes a request its last response, and `frames` those before it. Says whether that is a READ's, or a refusal.
/// Fails with the reason why it gets none.
#[inline]
fn try_answer(
    waiting: &mut Waiting,
    named: Named<'_>,
    frames: &mut Vec<Frame>,
    with: &mut Pinned<'_>,
) -> Result<bool, DropReason> {
    let Waiting { frame, entry, request, span } = waiting;
    let (bth, between) = (request.bth, between(frame.bytes(), entry));
    let Pinned { guard, observer, region, gate, accounts, now_ns, pairs, locked, done } = with;
    let pair = lock(pairs, locked, bth.qpn())?;
    if !pair.is(bth.qpn(), between) {
        return Err(DropReason::RdmaNoQueuePair);
    }
    let span = *span;
    let is_permitted = span == Some((0, 0)) || (span.is_some() && named.is_stag);
    let to = To { qpn: pair.their_qpn(), psn: bth.psn(), msn: pair.msn() };
    let (packets, is_new) = match pair.judge(request, is_permitted) {
        Verdict::Read(packets) => (packets, true),
        Verdict::Again(packets) => (packets, false),
        Verdict::Refuse(syndrome, psn) => {
            accounts.rdma_refused.inc();
            let bytes = packets::payload_bytes(1, 0);
            gate.charge(frame.bytes(), entry, bytes, *now_ns);
            let to = To { psn, ..to };
            return match packets::refuse(frame, entry, &bth, to, syndrome) {
                Some(()) => Ok(false),
                None => Err(DropReason::NoFrame),
            };
        }
        Verdict::Drop(reason) => return Err(reason),
    };
    let (Some((at, len)), Some(read)) = (span, request.read) else {
        return Err(DropReason::RdmaMalformed);
    };
    if !packets::reserve(region, packets, frames) {
        return Err(DropReason::NoFrame);
    }
    // A READ of nothing is answered whatever it names.
    debug_assert!(len == 0 || named.is_stag, "{read:?}");
    let cas_shown = |cas| observer.server.cas_shown(cas);
    let item = named.item.filter(|_| len > 0);
    if let Some(item) = &item {
        item.mark_visited(guard.store().now());
    }
    // One that goes on where an earlier one was cut off was counted then, and has an earlier PSN.
    if is_new && len > 0 {
        if let Some(item) = &item {
            observer.key(item.key(), Some(Seen::of(guard, item)), false);
        }
        done.look_ups.keys += 1;
        done.look_ups.hits += u64::from(item.is_some());
    }
    let cas = item.map_or(0, |item| cas_shown(item.cas()));
    let image = Image::new(item.as_ref(), cas, guard.store().now(), at + len);
    let bytes = packets::payload_bytes(packets, len);
    gate.charge(frame.bytes(), entry, bytes, *now_ns);
    if entry.flags.has(EntryFlags::LIMITED) {
        let requests = ((at + len) as u64) / REQUEST_BYTES;
        gate.charge_work(Debt { source: between.theirs, requests }, *now_ns);
    }
    let to = To { msn: if is_new { to.msn.wrapping_add(1) } else { to.msn }, ..to };
    let mtu = usize::from(pair.mtu());
    let piece = (&image, at, len);
    if packets::read(frame, entry, (&bth, to), piece, mtu, frames).is_none() {
        return Err(DropReason::NoFrame);
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

/// The stag that a READ names: R_Key, and the upper half of its address.
fn stag(read: &Reth) -> u64 {
    u64::from(read.rkey.get()) << 32 | read.va.get() >> 32
}

fn len(read: &Reth) -> usize {
    usize::try_from(read.len.get()).unwrap_or(usize::MAX)
}

/// Where in the image of its stag a READ begins, and its length. `None`: it ends beyond the longest READ, which one
/// that goes on where that was cut off does not, or leaves no place for the version.
fn span(read: &Reth) -> Option<(usize, usize)> {
    let at = usize::try_from(read.va.get() & u64::from(u32::MAX)).ok()?;
    let len = len(read);
    if len == 0 {
        return Some((0, 0));
    }
    let end = at.checked_add(len)?;
    (end <= READ_MAX_BYTES && Image::is_end(end)).then_some((at, len))
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
