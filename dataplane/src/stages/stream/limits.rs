//! Limits of a connection: the request rate of its source, and how long it may be idle or slow.
//!
//! In: a connection whose turn it is, the time. Out: what it waits for, or its deadline; a connection
//! past its deadline is ended. The rate buckets are the gate's, to which every request of the worker
//! is charged. Nothing fails.

use super::connection::{Connection, IN_BYTES, PACE_BYTES, PACE_NS, WorkerShared};
use super::handshakes::HANDSHAKE_MAX_NS;
use super::listener::CONFIRM_MAX_NS;
use super::machine::Phase;
use super::outcome::{End, Next};
use crate::commands::PARTING_MAX_NS;
use crate::commands::work::Work;
use crate::policy::Gate;
use std::time::Duration;

/// Pause before the next look whether a source may have more,
const RATE_PAUSE_NS: u64 = 5_000_000;
/// for so many connections that wait: longer where there are more,
const RATE_WAITERS: usize = 500;
/// but not for so long that it counts as slow or idle.
const RATE_PAUSE_MAX_NS: u64 = 500_000_000;

/// Answers the requests of a client whose source has a rate bucket. When the source has used its rate up, the
/// requests wait in the receive buffer, so that the TCP window closes.
#[inline(never)]
pub(super) fn converse_within_rates(
    connection: &mut Connection,
    shared: &mut WorkerShared,
    gate: &mut Gate,
    now_ns: u64,
) -> Next {
    let Some(source) = connection.tuple.map(|tuple| tuple.theirs) else { return Next::Client };
    // A connection that is ending gets no further requests: what has come is answered without a wait. Who has
    // nothing to be answered may end.
    if connection.end.is_none()
        && connection.has_to_do()
        && !gate.may_stream(source, connection.limited, now_ns)
    {
        if connection.is_held_back() {
            connection.pace.0 = now_ns;
        }
        if connection.waits_for_its_rate() {
            connection.moved_ns = now_ns;
        }
        return Next::Rate;
    }
    let done = |shared: &WorkerShared| {
        let commands = shared.ops.latency.done().iter().sum::<u64>();
        (commands, shared.ops.bytes_written.get())
    };
    let (mut work, before) = (Work::begin(&shared.session, &shared.ops), done(shared));
    let next = connection.converse(shared, now_ns);
    let after = done(shared);
    let (commands, bytes) = (after.0.wrapping_sub(before.0), after.1.wrapping_sub(before.1));
    // As over UDP, of trusted sources the work is not counted.
    let requests = match connection.limited {
        true => {
            work.count(commands);
            commands.max(work.requests(&shared.session, &shared.ops, bytes))
        }
        false => commands,
    };
    gate.charge_stream(source, connection.limited, (requests, bytes), now_ns);
    next
}

/// How long so many connections wait before they look again whether they may have more: 50,000 of them together look
/// 100,000 times a second.
pub(super) fn rate_pause_ns(waiting: usize) -> u64 {
    (RATE_PAUSE_NS * (1 + (waiting / RATE_WAITERS) as u64)).min(RATE_PAUSE_MAX_NS)
}

/// Half of a buffer, or of what is to be moved while others wait. With a short buffer, or a client that does not
/// scale windows, all of that cannot be under way.
fn enough(buffer_bytes: usize) -> usize {
    PACE_BYTES.min(buffer_bytes) / 2
}

impl Connection {
    /// Whether it waits for us with what it has of the spill, and not for its client: of a long reply as much has been
    /// taken, or of a long request as much has come, as is to be judged. What is owed comes first.
    fn is_held_back(&self) -> bool {
        if !self.is_flushed() {
            return self.machine.room() >= enough(self.machine.room_max());
        }
        self.long_input.as_ref().is_some_and(|input| self.has_come(input)) && self.has_room()
    }

    /// Whether so much of a long request has come behind `input` that its client is not waited for.
    fn has_come(&self, input: &[u8]) -> bool {
        let missing = self.conversation.wants().saturating_sub(input.len());
        let needed = missing.clamp(1, enough(self.machine.waiting_max()));
        // What has come is not read before its turn. The beginning of a record is of use with more of it.
        let come = self.machine.waiting();
        let is_there = come > 0 && come + self.layer.partial() >= needed;
        is_there || self.may_have_request(input)
    }

    /// Whether it is its rate alone that nothing moves for: it has something to come, and takes all that it is
    /// sent. A handshake has its time, whatever it waits for.
    fn waits_for_its_rate(&mut self) -> bool {
        let takes = self.note_taken() || self.has_taken_all();
        takes && !self.layer.is_shaking() && (!self.is_flushed() || self.has_unread())
    }

    /// Whether something has come that has not been looked at, as far as can be known.
    fn has_unread(&self) -> bool {
        match &self.long_input {
            Some(input) => self.machine.waiting() > 0 || self.may_have_request(input),
            None => self.waiting::<true>() >= self.conversation.wants().clamp(1, IN_BYTES / 2),
        }
    }
}

/// Whether its client has had its time to confirm. Nothing is said then, as its SYN may be another host's, and our own
/// was sent three times.
pub(super) fn has_not_confirmed(connection: &Connection, phase: Phase, now_ns: u64) -> bool {
    phase == Phase::Opening && now_ns >= connection.moved_ns + CONFIRM_MAX_NS
}

/// A time without a turn after which more may lie in a port's queue than a turn takes.
const PAUSE_NS: u64 = 500_000_000;

/// How long connections may be idle, if not for ever. What clients sent during a pause of the whole process may still be
/// in the port's queue: they have all of that time from its end on.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleLimit {
    max_ns: Option<u64>,
    turned_ns: u64,
    resumed_ns: u64,
}

impl IdleLimit {
    pub(super) fn new(most: Option<Duration>) -> Self {
        let max_ns = most.map(|most| u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
        Self { max_ns, turned_ns: 0, resumed_ns: 0 }
    }

    /// A turn begins.
    pub(super) fn turn(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.turned_ns) > PAUSE_NS {
            self.resumed_ns = now_ns;
        }
        self.turned_ns = now_ns;
    }

    /// Whether it is too soon behind a pause to say that a connection is slow.
    fn has_just_resumed(self, now_ns: u64) -> bool {
        now_ns < self.resumed_ns.saturating_add(PACE_NS)
    }

    /// When a connection on which something moved then will have been idle for too long.
    fn deadline(self, moved_ns: u64) -> Option<u64> {
        self.max_ns.map(|max| moved_ns.max(self.resumed_ns).saturating_add(max))
    }
}

/// Ends a connection that has had its time, and says when it will have had it.
pub(super) fn expire(
    connection: &mut Connection,
    phase: Phase,
    idle: IdleLimit,
    shared: &WorkerShared,
    now_ns: u64,
) -> Option<u64> {
    if connection.is_slow(now_ns) && !idle.has_just_resumed(now_ns) && !shared.spill.has_one() {
        shared.server.conn_memory.stall();
        connection.end.get_or_insert(End::Error);
        connection.machine.abort();
        return None;
    }
    let moved = connection.moved_ns;
    let deadline = match phase {
        Phase::None | Phase::Ended => return None,
        Phase::Opening => return Some(moved + CONFIRM_MAX_NS),
        _ if connection.end.is_some() => Some(connection.close_deadline(now_ns)),
        _ if connection.is_watching() => None,
        _ if connection.layer.is_shaking() => Some(moved + HANDSHAKE_MAX_NS),
        _ => idle.deadline(moved),
    };
    if deadline.is_none_or(|deadline| now_ns < deadline) {
        // Others may come to wait for what it holds.
        let look = connection.spills().then_some(now_ns + PACE_NS);
        return deadline.into_iter().chain(look).min();
    }
    if connection.end.is_none() {
        if connection.layer.is_shaking() {
            connection.handshake_failed("timed out", shared);
            connection.moved_ns = now_ns;
            return Some(now_ns + PARTING_MAX_NS);
        }
        connection.end = Some(End::Idle);
        shared.ops.idle_kicks.inc();
        // What it is owed it does not take; otherwise it is given in the ordinary way.
        if connection.is_flushed() {
            connection.moved_ns = now_ns;
            return Some(now_ns + PARTING_MAX_NS);
        }
    }
    connection.machine.abort();
    None
}
