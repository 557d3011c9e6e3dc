//! The stream stage: segments in, segments out, and conversations in between.
//!
//! In: frames that stage 3 called `Segment`, which go back to the caller to be counted and freed; the time.
//! Out: frames for stage 7, through [`Streams::frames`]. [`Streams::enter`] gathers the segments of a
//! burst, [`Streams::take_all`] does what they ask of their connections' state machines and no more;
//! [`Streams::turn`] then lets each connection that something has happened to answer once, so that
//! what came together is answered together. What fails has a [`DropReason`], or is the client's
//! to send again.

use super::arrivals::{Arrival, Segment};
use super::config::{StreamPort, StreamsConfig};
use super::connection::{Connection, GiveBack, IN_BYTES, OUT_BYTES, WorkerShared};
use super::filter::ConnFilter;
use super::frames::{L2Header, Outbox, Wire};
use super::handshakes::{Job, Tls};
use super::limits::{IdleLimit, converse_within_rates, expire, has_not_confirmed, rate_pause_ns};
use super::listener::Listener;
use super::machine::{Buffers, Parsed, Phase, Vetted, parse, refuse};
use super::outcome::{End, Next};
use super::spill::Spill;
use super::table::{FourTuple, Table, TupleHash};
use super::tls::Layer;
use super::wheel::Wheel;
use crate::commands::Ahead;
use crate::observe::{ConnSlots, Server, Transport, watch};
use crate::policy::{Gate, Limit};
use driver_shim::{BURST_MAX, Frame, Region};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::reply::turn_ethernet;
use wire::{At, DropReason, Tcp};

/// Pause before the next look for a buffer of the spill, or for a slot to send with.
const RETRY_NS: u64 = 1_000_000;
/// Connections whose memory is given back in one turn, at most: some 2 microseconds each.
const RESTS_MAX: usize = 8;
/// Resets a second of segments of no connection, of one worker. Acknowledgements that challenge are not
/// among them: who could count what is left of one budget would learn of others' connections
/// (CVE-2016-5696). Of those each connection has one a second.
const RESETS_PER_SECOND: NonZeroU32 = NonZeroU32::new(1000).unwrap();

/// Connections whose requests are prefetched together, at most.
const TOGETHER: usize = 32;

/// The TCP connections of one worker.
pub struct Streams {
    ports: Vec<StreamPort>,
    /// Segments of a burst.
    arriving: Vec<Arrival>,
    connections: Box<[Connection]>,
    table: Table,
    listener: Listener,
    filter: Option<Arc<ConnFilter>>,
    wheel: Wheel,
    /// Connections that something has happened to.
    queue: Vec<u32>,
    /// The same, while they are served.
    serving: Vec<u32>,
    shared: WorkerShared,
    /// What others see of the connections.
    conns: Arc<ConnSlots>,
    out: Outbox,
    region: Region,
    idle: IdleLimit,
    /// Connections whose memory was given back in this turn.
    rests: usize,
    /// Connections that wait for their rate.
    rated: usize,
    drain_max: Duration,
    started: Instant,
    resets: Limit,
    /// No more connections are taken.
    stopping: bool,
}

base::opaque!(Streams, |it| free: it.listener.free());

impl Streams {
    /// A stage over these ports, in the worker's order, whose clock began at `started`. Frames take
    /// slots of `region`. All memory for connections is taken here.
    pub fn new(
        config: StreamsConfig,
        server: Arc<Server>,
        ports: &[StreamPort],
        region: Region,
        started: Instant,
    ) -> Self {
        let StreamsConfig { connections: most, session, users, item_max_bytes, .. } = config;
        let shared = WorkerShared {
            session,
            ops: server.ops(),
            server,
            users,
            item_max_bytes,
            requests_per_turn: config.requests_per_turn,
            ahead: Ahead::new(item_max_bytes, config.requests_per_turn),
            out: Vec::with_capacity(2 * OUT_BYTES),
            flat: vec![0; IN_BYTES],
            spill: Spill::new(item_max_bytes),
            long: WorkerShared::long_buffers(),
            tls: config.tls.map(|tls| Box::new(Tls::new(tls, most))),
        };
        let conns = shared.server.conns.enter_slots(most, started);
        Self {
            ports: ports.to_vec(),
            arriving: Vec::with_capacity(BURST_MAX),
            connections: Buffers::new(most, IN_BYTES + OUT_BYTES)
                .map(|buffers| Connection::new(&shared, buffers))
                .collect(),
            rests: 0,
            rated: 0,
            table: Table::new(most),
            listener: Listener::new(most),
            filter: config.filter,
            wheel: Wheel::new(most),
            queue: Vec::with_capacity(most),
            serving: Vec::with_capacity(most),
            shared,
            conns,
            out: Outbox::new(),
            region,
            idle: IdleLimit::new(config.idle_max),
            drain_max: config.drain_max,
            started,
            resets: Limit::per_second(RESETS_PER_SECOND),
            stopping: false,
        }
    }

    /// Takes a segment to the others of its burst, of which there are [`BURST_MAX`] at most
    /// until [`Self::take_all`].
    ///
    /// # Errors
    /// The frame, and why it is not taken: [`DropReason::Ipv4Checksum`], [`DropReason::TcpChecksum`],
    /// [`DropReason::TcpTruncated`].
    pub fn enter(&mut self, frame: Frame, at: At, port: usize) -> Result<(), (Frame, DropReason)> {
        match Segment::read(&frame, (at, port), false) {
            Ok(segment) => {
                let hash = self.table.hash(&segment.tuple);
                self.table.prefetch(hash);
                self.arriving.push(Arrival { frame, at, port, hash });
                Ok(())
            }
            Err(reason) => Err((frame, reason)),
        }
    }

    /// Gives the segments of a burst to their connections, in order, and `done` each frame with the
    /// number of its port. Errors of those that were not taken: [`DropReason::TcpMalformed`],
    /// [`DropReason::TcpNoConnection`] (answered with a reset), [`DropReason::TcpUnanswered`],
    /// [`DropReason::TcpStray`], [`DropReason::TcpUnacceptable`], [`DropReason::TcpFull`].
    pub fn take_all(
        &mut self,
        now_ns: u64,
        mut done: impl FnMut(Frame, usize, Result<(), DropReason>),
    ) {
        let mut arriving = std::mem::take(&mut self.arriving);
        if arriving.len() > 1 {
            self.prefetch_connections(&arriving);
        }
        for Arrival { frame, at, port, hash } in arriving.drain(..) {
            let taken = self.take(&frame, (at, port), hash, now_ns);
            done(frame, port, taken);
        }
        self.arriving = arriving;
    }

    /// Prefetches the connections of a burst.
    fn prefetch_connections(&self, arriving: &[Arrival]) {
        for arrival in arriving {
            // Mostly the right one; no look at it yet.
            let slot = self.table.find(arrival.hash, |_| true);
            if let Some(of) = slot.and_then(|slot| self.connections.get(slot as usize)) {
                of.prefetch();
            }
        }
    }

    /// Takes a segment in.
    fn take(
        &mut self,
        frame: &Frame,
        (at, port): (At, usize),
        hash: TupleHash,
        now_ns: u64,
    ) -> Result<(), DropReason> {
        let Segment { bytes, head: segment, tuple } = Segment::read(frame, (at, port), true)?;
        let parsed = parse(&tuple, bytes).ok_or(DropReason::TcpMalformed)?;
        let mut l2 = L2Header::new();
        let head = frame.bytes().get(..usize::from(at.l3)).unwrap_or_default();
        l2.try_extend_from_slice(head).map_err(|_| DropReason::VlanDepth)?;
        turn_ethernet(&mut l2);
        let connections = &self.connections;
        let is_its = |slot| connections.get(slot as usize).is_some_and(|c| c.tuple == Some(tuple));
        let found = self.table.find(hash, is_its);
        if found.is_none() && !tuple.is_of_one_host() {
            return Err(DropReason::TcpUnacceptable);
        }
        let slot = match found.filter(|&slot| !self.begins_anew(slot, &segment)) {
            Some(slot) => slot,
            None if segment.opens() && !self.stopping => {
                self.begin((tuple, hash), at.limited, found, now_ns)?
            }
            None if !segment.opens() && self.is_anothers(&tuple) => {
                return Err(DropReason::TcpStray);
            }
            None => return Err(self.refuse(tuple.nic, &parsed, &l2, &segment, now_ns)),
        };
        let (Some(connection), Some(&facts)) =
            (self.connections.get_mut(slot as usize), self.ports.get(port))
        else {
            return Err(DropReason::TcpNoConnection);
        };
        let vetted = connection.machine.vet(&segment, bytes.len() - segment.header_bytes());
        if vetted == Vetted::Ignore {
            return Err(DropReason::TcpUnacceptable);
        }
        // Who forges a segment does not say where replies go.
        if vetted == Vetted::Take {
            connection.note_l2(l2, &segment);
        }
        let mut wire = Wire::new(&connection.l2, tuple.nic, facts.mtu, &self.region, &mut self.out);
        let is_taken = connection.machine.take(vetted, parsed, &mut wire, now_ns);
        self.enqueue(slot);
        match vetted {
            Vetted::Challenge(..) => Err(DropReason::TcpUnacceptable),
            // An earlier segment has ended the connection.
            _ if !is_taken => Err(DropReason::TcpUnanswered),
            _ => Ok(()),
        }
    }

    /// Whether the segment opens a connection where one has ended already, or where one that was not
    /// confirmed is forgotten by its client.
    #[inline]
    fn begins_anew(&self, slot: u32, segment: &Tcp<'_>) -> bool {
        let over = |c: &Connection| match c.machine.phase() {
            Phase::Ended | Phase::None => true,
            Phase::Opening => !c.machine.began_with(segment.seq()),
            _ => false,
        };
        segment.opens() && self.connections.get(slot as usize).is_some_and(over)
    }

    /// Finds a slot for a fresh connection; the one at `found` is in its way.
    fn begin(
        &mut self,
        (tuple, hash): (FourTuple, TupleHash),
        limited: bool,
        found: Option<u32>,
        now_ns: u64,
    ) -> Result<u32, DropReason> {
        if let Some(old) = found {
            self.clear(old);
        }
        let Some((slot, used)) = self.listener.slot(&self.connections) else {
            self.shared.ops.rejected_connections.inc();
            return Err(DropReason::TcpFull);
        };
        if used {
            self.remove(slot);
        }
        let seq = self.listener.initial_seq(&tuple, now_ns);
        let (Some(connection), Some(facts)) =
            (self.connections.get_mut(slot as usize), self.ports.get(usize::from(tuple.nic)))
        else {
            return Err(DropReason::TcpFull);
        };
        connection.begin(tuple, facts.tcp_port, seq, &self.shared, now_ns);
        connection.limited = limited;
        self.listener.half_open(slot);
        if let Some(filter) = &self.filter {
            filter.enter(&tuple);
        }
        self.table.enter(hash, slot);
        Ok(slot)
    }

    /// Whether a segment of no connection here may be of another worker's, which a reset would end.
    #[cold]
    fn is_anothers(&self, tuple: &FourTuple) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.may_have(tuple))
    }

    /// Answers a segment of no connection.
    #[cold]
    fn refuse(
        &mut self,
        port: u8,
        parsed: &Parsed<'_>,
        l2: &L2Header,
        segment: &Tcp<'_>,
        now_ns: u64,
    ) -> DropReason {
        if !segment.resets() && !self.resets.take(now_ns) {
            return DropReason::TcpUnanswered;
        }
        if let Some(&facts) = self.ports.get(usize::from(port)) {
            refuse(parsed, &mut Wire::new(l2, port, facts.mtu, &self.region, &mut self.out));
        }
        DropReason::TcpNoConnection
    }

    fn enqueue(&mut self, slot: u32) {
        if let Some(connection) = self.connections.get_mut(slot as usize)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push(slot);
        }
    }

    /// Lets every connection that something has happened to, or that is due, go on once. Says how many
    /// those were.
    pub fn turn(&mut self, gate: &mut Gate, now_ns: u64) -> usize {
        self.idle.turn(now_ns);
        let Self { wheel, connections, queue, .. } = self;
        wheel.advance(now_ns, |slot| {
            if let Some(connection) = connections.get_mut(slot as usize)
                && !connection.queued
            {
                connection.queued = true;
                queue.push(slot);
            }
        });
        if self.shared.tls.is_some() {
            self.take_back();
        }
        if self.queue.is_empty() {
            return 0;
        }
        std::mem::swap(&mut self.queue, &mut self.serving);
        self.rests = 0;
        let done = self.shared.ops.latency.done();
        let (mut served, mut prefetched) = (0, 0);
        while let Some(&slot) = self.serving.get(served) {
            if self.out.is_full() {
                break;
            }
            if served == prefetched {
                prefetched += self.prefetch_requests(served);
            }
            self.serve(slot, gate, now_ns);
            served += 1;
        }
        // Those that were not served for lack of space are first the next time.
        self.serving.drain(..served);
        self.serving.append(&mut self.queue);
        std::mem::swap(&mut self.queue, &mut self.serving);
        let answered = self.shared.ops.latency.done();
        if answered != done {
            let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let ns = now.saturating_sub(now_ns);
            self.shared.ops.latency.record_between(&done, &answered, Transport::Tcp, ns);
        }
        served
    }

    /// Takes sessions back that the handshake thread has done with.
    fn take_back(&mut self) {
        while let Some(tls) = &mut self.shared.tls
            && let Some(Job { number, secure }) = tls.done()
        {
            let slot = secure.slot;
            match self.connections.get_mut(slot as usize) {
                Some(connection) if connection.awaits(number) => {
                    connection.layer = Layer::Tls(secure);
                    self.enqueue(slot);
                }
                // Its client left meanwhile.
                _ => tls.places.leave(secure.source),
            }
        }
    }

    /// Prefetches what the next group of connections will look at, from this one on. Says how
    /// many those are.
    fn prefetch_requests(&mut self, first: usize) -> usize {
        let Self { serving, connections, shared: WorkerShared { session, ahead, .. }, .. } = self;
        let store = session.store();
        ahead.clear();
        let mut seen = 0;
        for &slot in serving.iter().skip(first).take(TOGETHER) {
            if let Some(connection) = connections.get_mut(slot as usize) {
                ahead.read(store, connection.next_input());
            }
            seen += 1;
            if ahead.has_enough() {
                break;
            }
        }
        ahead.look_up(store);
        seen
    }

    /// Frames to send, with the worker's numbers of their ports.
    pub fn frames(&mut self) -> impl Iterator<Item = (usize, Frame)> {
        self.out.drain().map(|(port, frame)| (usize::from(port), frame))
    }

    /// Answers that belong to no connection and for which there was no frame, since the last call.
    pub(crate) fn answers_lost(&mut self) -> u64 {
        std::mem::take(&mut self.out.lost)
    }

    /// Takes no more connections, and ends those that there are once all that has come of them is
    /// answered and sent.
    pub fn stop(&mut self, now_ns: u64) {
        self.stopping = true;
        for slot in 0..self.connections.len() {
            if let Some(connection) = self.connections.get_mut(slot)
                && connection.tuple.is_some()
            {
                if !connection.opened && connection.machine.phase() == Phase::Opening {
                    connection.machine.abort();
                }
                connection.stopping = Some(now_ns);
                self.enqueue(u32::try_from(slot).unwrap_or(u32::MAX));
            }
        }
    }

    /// How long they may hold up the end of the service.
    pub fn drain_max(&self) -> Duration {
        self.drain_max
    }

    /// Ends with a reset all connections that are not over.
    pub fn cut(&mut self) {
        for slot in 0..self.connections.len() {
            if let Some(connection) = self.connections.get_mut(slot)
                && connection.tuple.is_some()
                && connection.machine.phase() != Phase::Ended
            {
                connection.end.get_or_insert(End::Shutdown);
                connection.machine.abort();
                self.enqueue(u32::try_from(slot).unwrap_or(u32::MAX));
            }
        }
    }

    /// Whether no client has still to be sent, or to confirm, anything. A client that has taken all, and does not
    /// end its side, is waited for a moment.
    pub fn is_quiet(&self, now_ns: u64) -> bool {
        let over = |c: &Connection| {
            matches!(c.machine.phase(), Phase::None | Phase::Ended) || c.is_left(now_ns)
        };
        self.connections.iter().all(over)
    }

    /// One connection's turn.
    fn serve(&mut self, slot: u32, gate: &mut Gate, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.queued = false;
        let Some(tuple) = connection.tuple else { return };
        let phase = connection.machine.phase();
        if !connection.opened && !matches!(phase, Phase::None | Phase::Opening) {
            self.confirm(slot, &tuple, now_ns);
        }
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if has_not_confirmed(connection, phase, now_ns) {
            if self.filter.is_none() {
                return self.clear(slot);
            }
            // The client's confirmation may have come to another worker: it gets a reset.
            connection.machine.abort();
        }
        let deadline = expire(connection, phase, self.idle, &self.shared, now_ns);
        let next = if connection.opened && phase != Phase::None && phase != Phase::Ended {
            self.shared.ops.client.set(u64::try_from(self.conns.id(slot)).unwrap_or(0));
            let next = if gate.counts_stream(connection.limited) {
                converse_within_rates(connection, &mut self.shared, gate, now_ns)
            } else {
                connection.converse(&mut self.shared, now_ns)
            };
            self.conns.set_state(slot, connection.state(next), now_ns);
            next
        } else {
            if phase == Phase::Ended {
                // The client's FIN came with more than that.
                match connection.layer {
                    Layer::Plain => connection.drop_late::<false>(),
                    _ => connection.drop_late::<true>(),
                }
            }
            Next::Client
        };
        let Some(&facts) = self.ports.get(usize::from(tuple.nic)) else { return };
        let mut wire = Wire::new(&connection.l2, tuple.nic, facts.mtu, &self.region, &mut self.out);
        let (all, due_ns) = connection.machine.send_due(&mut wire, now_ns);
        let after = connection.machine.phase();
        if after == Phase::None && all {
            return self.clear(slot);
        }
        if (next == Next::Rate) != connection.rated {
            connection.rated = !connection.rated;
            self.rated = if connection.rated { self.rated + 1 } else { self.rated - 1 };
        }
        if after == Phase::Ended {
            self.listener.ended(slot);
        }
        let due_ns = self.due_ns(slot, (next, all), (due_ns, deadline), now_ns);
        self.wheel.set(slot, due_ns);
        if next == Next::Turn {
            self.enqueue(slot);
        }
        if after == Phase::Ended {
            self.leave(slot);
        }
    }

    /// The client has confirmed its connection.
    fn confirm(&mut self, slot: u32, tuple: &FourTuple, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.confirm(tuple, &self.shared);
        self.listener.confirmed(slot);
        self.shared.ops.total_connections.inc();
        let peer = SocketAddr::new(tuple.theirs, tuple.their_port);
        let port = self.ports.get(usize::from(tuple.nic)).map_or(0, |p| p.tcp_port);
        self.conns.begin(slot, peer, SocketAddr::new(tuple.ours, port), now_ns);
        let fd = self.conns.id(slot);
        self.shared.server.watchers.connected(Some(peer), fd);
        if self.shared.tls.is_some() {
            connection.greet(slot, fd, &mut self.shared, now_ns);
        }
    }

    /// When a connection is served again, if nothing comes before: at one of these at the latest. `all`: everything that
    /// there was to send was sent.
    fn due_ns(
        &mut self,
        slot: u32,
        (next, all): (Next, bool),
        (mut due_ns, deadline): (Option<u64>, Option<u64>),
        now_ns: u64,
    ) -> Option<u64> {
        let connection = self.connections.get_mut(slot as usize)?;
        let mut also = |ns: u64| due_ns = Some(due_ns.map_or(ns, |due| due.min(ns)));
        deadline.into_iter().for_each(&mut also);
        match connection.give_back_due(now_ns) {
            GiveBack::Nothing => {}
            GiveBack::Now if self.rests < RESTS_MAX => {
                self.rests += 1;
                connection.give_back(&mut self.shared, now_ns).into_iter().for_each(&mut also);
            }
            GiveBack::Now => also(now_ns + RETRY_NS),
            GiveBack::At(later) => also(later),
        }
        match next {
            Next::Client if all => {}
            Next::Client | Next::Spill => also(now_ns + RETRY_NS),
            Next::Lines => also(now_ns + watch::PAUSE_NS),
            Next::Rate => also(now_ns + rate_pause_ns(self.rated)),
            Next::Until(ns) => also(ns),
            Next::Turn => {}
        }
        due_ns
    }

    /// Frees the slot of a connection that is over.
    fn clear(&mut self, slot: u32) {
        self.remove(slot);
        self.listener.give_back(slot);
    }

    /// Ends what there was in a slot, without a word to the client.
    fn remove(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(tuple) = connection.tuple else { return };
        self.table.remove(self.table.hash(&tuple), slot);
        if let Some(filter) = &self.filter {
            filter.leave(&tuple);
        }
        self.listener.removed(slot);
        self.wheel.set(slot, None);
        self.rated -= usize::from(std::mem::take(&mut connection.rated));
        let port = self.ports.get(usize::from(tuple.nic)).map_or(0, |nic| nic.tcp_port);
        self.leave(slot);
        if let Some(connection) = self.connections.get_mut(slot as usize) {
            connection.clear(port, &mut self.shared);
        }
    }

    /// Takes the connection in a slot from among the open ones.
    fn leave(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if !std::mem::take(&mut connection.counted) {
            return;
        }
        connection.conversation.close_pair();
        self.shared.ops.closed_connections.inc();
        let reason = connection.end.unwrap_or(End::Error).reason();
        let peer = connection.tuple.map(|tuple| SocketAddr::new(tuple.theirs, tuple.their_port));
        self.shared.server.watchers.disconnected(peer, reason, self.conns.id(slot));
        self.conns.end(slot);
    }
}
