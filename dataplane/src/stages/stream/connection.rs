//! One connection between its state machine and its conversation.
//!
//! In: bytes that the state machine has in order. Out: replies in the state machine's buffer, and what the
//! connection waits for. Requests are read where they lie in the receive buffer; one that goes round its
//! end is put together in the worker's scratch space, and one that is longer than the buffer in a
//! buffer of the [`Spill`]. A reply that does not fit the send buffer waits there too, and while one waits nothing more
//! is read: a client that does not read is not read from. Nothing here fails.

use super::frames::L2Header;
use super::handshakes::Tls;
use super::machine::{Buffers, LongBuffers, Machine, Phase};
use super::outcome::{End, Next};
use super::spill::Spill;
use super::table::FourTuple;
use super::tls::Layer;
use crate::commands::login::{Login, Users};
use crate::commands::{Ahead, Conversation, DRAIN_QUIET_NS, DRAIN_REST_MAX_NS, PARTING_MAX_NS};
use crate::observe::watch::Watching;
use crate::observe::{ConnState, OpCounters, Server};
use crate::rdma::Between;
use driver_shim::prefetch_read;
use std::sync::Arc;
use store::Session;
use wire::tcp::Tcp;

/// Bytes of a connection's receive buffer: a window that a client on the same network fills in less
/// than a round trip at 1 Gb/s, and longer than nearly every request.
pub(super) const IN_BYTES: usize = 16 << 10;
/// Bytes of its send buffer.
pub(super) const OUT_BYTES: usize = 16 << 10;
/// Memory that is planned for the state beside them: 1.5 KB, and its places in the stage's tables.
const STATE_BYTES: usize = 2048;
/// Memory that a connection slot takes at the start: both, and the state beside them.
pub const CONNECTION_BYTES: u64 = (IN_BYTES + OUT_BYTES + STATE_BYTES) as u64;
/// Free bytes in the send buffer from which on requests are answered: most replies fit, and acknowledgements
/// that come one by one do not make a turn each.
const ROOM_MIN_BYTES: usize = OUT_BYTES / 4;
/// What a connection that has memory of the spill must move,
pub(super) const PACE_BYTES: usize = 64 << 10;
/// in that time, while others may wait for it.
pub(super) const PACE_NS: u64 = 2_000_000_000;
/// How long it may take nothing of what it is owed by then.
const TAKING_MAX_NS: u64 = 15_000_000_000;

/// How long nothing moves before the memory of empty buffers is given back; how long long buffers are
/// kept after the last request or reply that was long.
const REST_NS: u64 = 2_000_000_000;
/// What an alert's record over TLS 1.2 begins with, and how long one is over TLS 1.3, where all records look alike:
/// no request is so short.
const ALERT_RECORD: u8 = 21;
const SEALED_ALERT_BYTES: usize = 24;
/// Connections of a worker that have long buffers at a time, at most: 16 MB for all of them.
const LONG_MAX: usize = 32;

/// What the connections of one worker need to answer requests.
#[derive(Debug)]
pub(super) struct WorkerShared {
    pub(super) session: Session,
    pub(super) ops: Arc<OpCounters>,
    pub(super) server: Arc<Server>,
    pub(super) users: Option<Arc<dyn Users>>,
    pub(super) item_max_bytes: usize,
    pub(super) requests_per_turn: usize,
    /// What the next requests will read, prefetched.
    pub(super) ahead: Ahead,
    /// Replies on their way to a send buffer.
    pub(super) out: Vec<u8>,
    /// A receive buffer's bytes, put together.
    pub(super) flat: Vec<u8>,
    pub(super) spill: Spill,
    /// Long buffers that no connection has.
    pub(super) long: Vec<LongBuffers>,
    /// Where TLS is spoken.
    pub(super) tls: Option<Box<Tls>>,
}

impl WorkerShared {
    /// As many long buffers as a worker has.
    pub(super) fn long_buffers() -> Vec<LongBuffers> {
        LongBuffers::new(LONG_MAX)
    }
}

/// A connection slot: made at the start, and used by one connection after the other.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) machine: Machine,
    /// The NIC, addresses and ports of the connection that has the slot.
    pub(super) tuple: Option<FourTuple>,
    pub(super) l2: L2Header,
    /// Another way to the client, which one segment came by.
    pub(super) other_l2: L2Header,
    /// Its source is served, but not trusted.
    pub(super) limited: bool,
    /// When the connection began, or bytes last came or went.
    pub(super) moved_ns: u64,
    /// It is in the list of those to be served.
    pub(super) queued: bool,
    /// The client has confirmed it.
    pub(super) opened: bool,
    /// It is among the open connections: confirmed, and not ended by both sides.
    pub(super) counted: bool,
    /// It waits for its rate.
    pub(super) rated: bool,
    /// How it ends, once that is settled; what is owed is still sent.
    pub(super) end: Option<End>,
    /// Since when the service stops: it ends when all that comes is answered.
    pub(super) stopping: Option<u64>,
    /// Bytes that the client had not acknowledged when it was last looked at while it ends, or waits for its rate.
    untaken: u32,
    /// When a request or a reply was last long.
    long_ns: u64,
    /// Since when it has had memory of the spill, or its pace was last judged, and the bytes that
    /// it has moved since.
    pub(super) pace: (u64, usize),
    pub(super) login: Login,
    pub(super) conversation: Conversation,
    watching: Option<Watching>,
    /// The beginning of a request that is longer than the receive buffer.
    pub(super) long_input: Option<Vec<u8>>,
    /// A reply that did not fit the send buffer, and how much of it has gone there.
    pub(super) pending: Option<(Vec<u8>, usize)>,
    /// What its bytes go through.
    pub(super) layer: Layer,
}

/// When memory is to be given back.
#[derive(Debug, Clone, Copy)]
pub(super) enum GiveBack {
    /// There is none.
    Nothing,
    /// Now.
    Now,
    /// Not before then.
    At(u64),
}

impl Connection {
    /// An unused slot.
    pub(super) fn new(shared: &WorkerShared, buffers: Buffers) -> Self {
        Self {
            machine: Machine::new(buffers),
            tuple: None,
            l2: L2Header::new(),
            other_l2: L2Header::new(),
            limited: false,
            moved_ns: 0,
            queued: false,
            opened: false,
            counted: false,
            rated: false,
            end: None,
            stopping: None,
            untaken: 0,
            long_ns: 0,
            pace: (0, 0),
            login: Login::new(shared.server.dialects, None),
            conversation: Conversation::new(0),
            watching: None,
            long_input: None,
            pending: None,
            layer: Layer::Plain,
        }
    }

    /// Begins a connection with this initial sequence number; the state machine awaits its SYN.
    pub(super) fn begin(
        &mut self,
        tuple: FourTuple,
        tcp_port: u16,
        seq: u32,
        shared: &WorkerShared,
        now_ns: u64,
    ) {
        self.machine.listen(tcp_port, seq);
        self.tuple = Some(tuple);
        self.moved_ns = now_ns;
        self.opened = false;
        self.end = None;
        self.stopping = None;
        self.login = Login::new(shared.server.dialects, shared.users.clone());
        self.conversation =
            Conversation::new(shared.item_max_bytes).in_turns_of(shared.requests_per_turn);
    }

    /// The client has confirmed it.
    pub(super) fn confirm(&mut self, tuple: &FourTuple, shared: &WorkerShared) {
        (self.opened, self.counted) = (true, true);
        if shared.server.rdma.is_some() {
            let FourTuple { ours, theirs, .. } = *tuple;
            self.conversation.allow_pair(Between { ours, theirs });
        }
    }

    /// A segment of the client's came by this way. The second in a row moves the connection there: nothing
    /// sums an Ethernet header, and where only one side talks, a wrong one would not be mended. One whose sequence and
    /// acknowledgement numbers are not the connection's says nothing, wherever it came from.
    #[inline]
    pub(super) fn note_l2(&mut self, l2: L2Header, segment: &Tcp<'_>) {
        if self.l2 != l2 || !self.other_l2.is_empty() {
            self.move_l2(l2, segment);
        }
    }

    #[cold]
    fn move_l2(&mut self, l2: L2Header, segment: &Tcp<'_>) {
        let is_first = self.l2.is_empty();
        if !is_first && !self.machine.is_expected(segment) {
            return;
        }
        if self.l2 == l2 {
            self.other_l2.clear();
        } else if is_first || self.other_l2 == l2 {
            self.l2 = l2;
        } else {
            self.other_l2 = l2;
        }
    }

    /// Leaves the slot to the next, without a word to the client.
    pub(super) fn clear(&mut self, tcp_port: u16, shared: &mut WorkerShared) {
        self.machine.listen(tcp_port, 0);
        self.machine.shorten(&mut shared.long);
        self.l2.clear();
        self.other_l2.clear();
        self.tuple = None;
        self.untaken = 0;
        self.watching = None;
        if !matches!(self.layer, Layer::Plain) {
            self.forget_layer(shared);
        }
        let pending = self.pending.take().map(|(pending, _)| pending);
        for buffer in self.long_input.take().into_iter().chain(pending) {
            shared.spill.give(buffer);
        }
    }

    /// What it is doing, as `stats conns` has it.
    pub(super) fn state(&self, next: Next) -> ConnState {
        match next {
            _ if self.end.is_some() => ConnState::Closing,
            _ if self.pending.is_some() => ConnState::Writing,
            Next::Lines => ConnState::Watching,
            _ if self.conversation.unsaid().is_some() => ConnState::Swallowing,
            _ if self.is_in_midst() => ConnState::ReadingRest,
            _ => ConnState::Reading,
        }
    }

    /// Whether it has memory that others may wait for.
    pub(super) fn spills(&self) -> bool {
        self.long_input.is_some() || self.pending.is_some()
    }

    /// Whether it has memory of the spill and has moved less than [`PACE_BYTES`] in the last
    /// [`PACE_NS`]. No when that has been judged more lately.
    pub(super) fn is_slow(&mut self, now_ns: u64) -> bool {
        let (since, moved) = self.pace;
        if !self.spills() || now_ns < since.saturating_add(PACE_NS) {
            return false;
        }
        self.pace = (now_ns, 0);
        moved < PACE_BYTES
    }

    /// Begins to judge its pace: it takes memory of the spill. Many segments are to be under way.
    pub(super) fn spill(&mut self, long: &mut Vec<LongBuffers>, now_ns: u64) {
        if !self.spills() {
            self.pace = (now_ns, 0);
        }
        self.long_ns = now_ns;
        self.machine.lengthen(long);
    }

    /// When the memory of its buffers, and long buffers, are to be given back: it has been at rest then.
    pub(super) fn give_back_due(&self, now_ns: u64) -> GiveBack {
        let from = match self.machine.is_long() {
            true => self.long_ns.min(self.moved_ns),
            false => self.moved_ns,
        };
        let from = from.saturating_add(REST_NS);
        match self.machine.is_backed() {
            true if now_ns < from => GiveBack::At(from),
            true => GiveBack::Now,
            false => GiveBack::Nothing,
        }
    }

    /// Gives memory of its buffers back, as far as nothing is in them. When there may be more to give.
    pub(super) fn give_back(&mut self, shared: &mut WorkerShared, now_ns: u64) -> Option<u64> {
        self.machine.shorten(&mut shared.long);
        match self.give_back_due(now_ns) {
            GiveBack::Now if !self.machine.is_long() => self.machine.give_back(),
            GiveBack::Now | GiveBack::Nothing => {}
            GiveBack::At(later) => return Some(later),
        }
        None
    }

    /// Prefetches its lines.
    #[inline]
    pub(super) fn prefetch(&self) {
        let first = std::ptr::from_ref(self).cast::<u8>();
        for at in (0..size_of::<Self>()).step_by(64) {
            prefetch_read(first.wrapping_add(at));
        }
    }

    /// The requests that it is most likely to be answered next.
    #[inline]
    pub(super) fn next_input(&mut self) -> &[u8] {
        let held_up = self.pending.is_some() || self.end.is_some() || self.long_input.is_some();
        if held_up || !self.login.is_open() || self.machine.waiting() == 0 {
            return &[];
        }
        self.machine.front()
    }

    /// Until when a client that we have ended may take what it is owed, and end its side. As long as it takes
    /// something, it has its time anew.
    pub(super) fn close_deadline(&mut self, now_ns: u64) -> u64 {
        if self.note_taken() {
            self.moved_ns = now_ns;
        }
        let is_taking = !self.has_taken_all() && self.end != Some(End::Idle);
        self.moved_ns + if is_taking { TAKING_MAX_NS } else { PARTING_MAX_NS }
    }

    /// Whether the client has acknowledged something since this was last asked.
    pub(super) fn note_taken(&mut self) -> bool {
        let untaken = self.machine.room_max() - self.machine.room();
        let untaken = u32::try_from(untaken).unwrap_or(u32::MAX);
        untaken < std::mem::replace(&mut self.untaken, untaken)
    }

    /// Whether it has acknowledged all that there was to send then.
    pub(super) fn has_taken_all(&self) -> bool {
        self.untaken == 0
    }

    /// Whether all that it was owed is with the state machine.
    pub(super) fn is_flushed(&self) -> bool {
        self.pending.is_none()
    }

    /// Whether its send buffer has as much space as requests are answered with.
    pub(super) fn has_room(&self) -> bool {
        self.machine.room() >= ROOM_MIN_BYTES.min(self.machine.room_max())
    }

    /// Answers what has come, as far as the send buffer has space for replies.
    pub(super) fn converse(&mut self, shared: &mut WorkerShared, now_ns: u64) -> Next {
        match self.layer {
            Layer::Plain => self.converse_over::<false>(shared, now_ns),
            _ => self.converse_secure(shared, now_ns),
        }
    }

    /// The same, in the clear or over TLS.
    pub(super) fn converse_over<const TLS: bool>(
        &mut self,
        shared: &mut WorkerShared,
        now_ns: u64,
    ) -> Next {
        if self.stopping.is_some_and(|since| now_ns >= since + DRAIN_REST_MAX_NS) {
            self.machine.read_no_more();
        }
        loop {
            if TLS && !self.flush_layer() {
                return Next::Client;
            }
            self.flush_pending::<TLS>(shared, now_ns);
            if self.pending.is_some() {
                return Next::Client;
            }
            if self.end.is_some() {
                if !TLS || self.say_end() {
                    self.machine.close();
                }
                self.drop_late::<TLS>();
                if let Some(buffer) = self.long_input.take() {
                    shared.spill.give(buffer);
                }
                return Next::Client;
            }
            if self.watching.is_some() {
                return self.watch::<TLS>(shared, now_ns);
            }
            if !self.has_room() {
                return Next::Client;
            }
            let waiting = self.machine.waiting();
            let progress = match TLS {
                true => self.advance_secure(shared, now_ns),
                false => self.advance(shared, now_ns),
            };
            let replied = !shared.out.is_empty();
            self.send::<TLS>(shared, now_ns);
            self.watching = self.conversation.take_watching();
            // A session that can seal no more is over, too.
            if progress.close || self.end.is_some() {
                let end = if self.conversation.is_lost() { End::Error } else { End::Normal };
                self.end.get_or_insert(end);
            } else if progress.more {
                // Yields to other connections.
                self.pace.0 = now_ns;
                shared.ops.conn_yields.inc();
                return Next::Turn;
            } else if self.has_nothing_to_do::<TLS>() {
                return Next::Client;
            } else if progress.consumed == 0 && !replied && self.machine.waiting() == waiting {
                if progress.needs > 0 {
                    // It is not its client that is waited for.
                    self.moved_ns = now_ns;
                    return Next::Spill;
                }
                if self.has_all::<TLS>() {
                    (self.end, self.moved_ns) = (Some(End::Normal), now_ns);
                    continue;
                }
                let Some(since) = self.stopping else { return Next::Client };
                let until = self.serves_until(since);
                if now_ns < until {
                    return Next::Until(until);
                }
                (self.end, self.moved_ns) = (Some(End::Shutdown), now_ns);
            }
        }
    }

    /// Throws away what has come behind our FIN, and says so with a reset (RFC 1122, section 4.2.2.13), but not before the
    /// client has all that it was owed, which a reset would cost it.
    pub(super) fn drop_late<const TLS: bool>(&mut self) {
        let come = self.machine.waiting();
        // Over TLS the client may have sent its own close_notify.
        let is_alert = TLS
            && (come <= SEALED_ALERT_BYTES || self.machine.front().first() == Some(&ALERT_RECORD));
        self.machine.drop_input();
        if come > 0 && !is_alert && self.machine.is_fin_acknowledged() {
            self.machine.abort();
        }
    }

    /// Whether all that has come is answered, and more may come.
    fn has_nothing_to_do<const TLS: bool>(&self) -> bool {
        self.waiting::<TLS>() == 0
            && !(TLS && self.layer.is_to_say_more())
            && self.is_flushed()
            && self.watching.is_none()
            && self.stopping.is_none()
            && !self.has_all::<TLS>()
    }

    /// Bytes that have come and are not answered, in the buffers that are a connection's own.
    pub(super) fn waiting<const TLS: bool>(&self) -> usize {
        let plain = match &self.layer {
            Layer::Tls(secure) if TLS => secure.plain.len(),
            _ => 0,
        };
        self.machine.waiting() + plain
    }

    /// Whether something has come that is not answered.
    pub(super) fn has_input(&self) -> bool {
        self.machine.waiting() > 0 || self.layer.has_input()
    }

    /// Whether there is something to be answered, or to be sent.
    pub(super) fn has_to_do(&self) -> bool {
        let in_midst = self.long_input.is_some() || self.is_watching() || !self.is_flushed();
        in_midst || self.has_input()
    }

    /// Whether the rest of a request is awaited.
    fn is_in_midst(&self) -> bool {
        self.conversation.wants() > 0 || self.conversation.unsaid().is_some()
    }

    /// How long a connection that has answered all that it can is served, if the service stops `since`.
    fn serves_until(&self, since: u64) -> u64 {
        let in_request = self.has_input() || self.long_input.is_some() || self.is_in_midst();
        let last = since + DRAIN_REST_MAX_NS;
        if in_request { last } else { last.min(since.max(self.moved_ns) + DRAIN_QUIET_NS) }
    }

    /// Whether the client has got our FIN, has taken all that it was owed, and does not end its side.
    pub(super) fn is_left(&self, now_ns: u64) -> bool {
        self.machine.has_said_all() && now_ns > self.moved_ns + DRAIN_QUIET_NS
    }

    /// Whether nothing more will come.
    pub(super) fn has_all<const TLS: bool>(&self) -> bool {
        !matches!(self.machine.phase(), Phase::Open | Phase::Opening)
            || (TLS && self.layer.is_ended())
    }

    /// Whether the client watches: it is sent lines, and may be silent as long as it likes.
    pub(super) fn is_watching(&self) -> bool {
        self.watching.is_some()
    }

    /// Sends lines to a watching client. What it says is not heard.
    fn watch<const TLS: bool>(&mut self, shared: &mut WorkerShared, now_ns: u64) -> Next {
        self.machine.drop_input();
        if let Some(buffer) = self.long_input.take() {
            shared.spill.give(buffer);
        }
        if self.has_all::<TLS>() || self.stopping.is_some() {
            let end = if self.has_all::<TLS>() { End::Normal } else { End::Shutdown };
            (self.end, self.moved_ns) = (Some(end), now_ns);
            if !TLS || self.say_end() {
                self.machine.close();
            }
            return Next::Client;
        }
        if let Some(watching) = &self.watching
            && shared.spill.has_one()
        {
            watching.take(&mut shared.out);
            self.send::<TLS>(shared, now_ns);
        }
        Next::Lines
    }

    /// Gives the replies in `shared.out` to the state machine, and keeps what does not fit its send buffer.
    fn send<const TLS: bool>(&mut self, shared: &mut WorkerShared, now_ns: u64) {
        if shared.out.is_empty() {
            return;
        }
        let sent = match TLS {
            true => self.write_secure(&shared.out, &mut shared.tls),
            false => self.machine.write(&shared.out),
        };
        self.moved_ns = now_ns;
        let rest = shared.out.len() - sent;
        if rest > OUT_BYTES && !self.spills() && !shared.spill.has_one() {
            // No value: those are put only where there is memory for them.
            shared.server.conn_memory.stall();
            self.end = Some(End::Error);
            self.machine.abort();
            return shared.out.clear();
        }
        shared.ops.bytes_written.add(shared.out.len() as u64);
        self.pace.1 = self.pace.1.saturating_add(sent);
        if rest > 0 {
            self.spill(&mut shared.long, now_ns);
            // A short one has memory all the same.
            let pending = shared.spill.take_anyway();
            self.pending = Some((std::mem::replace(&mut shared.out, pending), sent));
        }
        shared.out.clear();
    }

    /// Gives the state machine what is owed, as far as its send buffer has space.
    fn flush_pending<const TLS: bool>(&mut self, shared: &mut WorkerShared, now_ns: u64) {
        let Some((pending, mut at)) = self.pending.take() else { return };
        let rest = pending.get(at..).unwrap_or_default();
        let sent = match TLS {
            true => self.write_secure(rest, &mut shared.tls),
            false => self.machine.write(rest),
        };
        at += sent;
        if sent > 0 {
            self.note_moved(sent, now_ns);
        }
        if at >= pending.len() {
            shared.spill.give(pending);
        } else {
            self.pending = Some((pending, at));
        }
    }

    /// So many bytes of a long request or reply have come or gone.
    pub(super) fn note_moved(&mut self, bytes: usize, now_ns: u64) {
        (self.moved_ns, self.long_ns) = (now_ns, now_ns);
        self.pace.1 = self.pace.1.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documents say 1.5 KB; the tables' places need the rest of what is planned for.
    #[test]
    fn the_state_beside_the_buffers_is_what_the_documents_say() {
        let state = size_of::<Connection>();
        assert!((1400..=1536).contains(&state), "{state} bytes");
    }
}
