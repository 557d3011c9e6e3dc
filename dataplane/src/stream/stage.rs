//! The stream stage: segments in, segments out, and conversations in between.
//!
//! In: frames that room 3 called `Segment`, by reference, which the caller counts and frees; the time.
//! Out: frames for room 7, through [`Streams::frames`]. [`Streams::take`] does what a segment asks of its
//! connection's state machine and no more; [`Streams::turn`] then lets each connection that something has
//! happened to answer once, so that what came together is answered together. What fails has a
//! [`DropReason`], or is the client's to send again.

use super::connection::{Connection, Desk, End, IN_BYTES, Next, OUT_BYTES, PACE_NS};
use super::frames::{Link, Outbox, Wire};
use super::listener::{CONFIRM_MAX_NS, Listener};
use super::machine::{Stack, Stand};
use super::spill::Spill;
use super::table::{Ends, Table};
use super::wheel::Wheel;
use crate::drop_reason::DropReason;
use crate::protocol::Server;
use crate::protocol::admission::Users;
use crate::protocol::stats::{ConnSlots, Transport};
use crate::store::Session;
use crate::wire::reply::turn_ethernet;
use crate::wire::verify::verify_ip4_header;
use crate::wire::{Tcp, tcp};
use driver_shim::{Frame, Region};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may take to end a connection that we have ended.
const PARTING_MAX_NS: u64 = 2_000_000_000;
/// Pause between two looks for lines that a watching client is to get.
const WATCH_PAUSE_NS: u64 = 20_000_000;
/// Pause before the next look for a buffer of the spill, or for a slot to send with.
const RETRY_NS: u64 = 1_000_000;

/// What the stage is made of.
#[derive(Debug)]
pub struct StreamsConfig {
    /// Most connections at a time.
    pub connections: usize,
    /// A session of its own.
    pub session: Session,
    /// Who may authenticate, where clients must.
    pub users: Option<Arc<dyn Users>>,
    /// Largest item, in bytes.
    pub item_max_bytes: usize,
    /// Most requests of a connection before it is another's turn.
    pub requests_per_turn: usize,
    /// How long a connection may send nothing, or take nothing of what it is owed.
    pub idle_max: Option<Duration>,
}

/// One port as the stage sees it.
#[derive(Debug, Clone, Copy)]
pub struct StreamPort {
    /// Longest IP packet.
    pub mtu: u16,
    /// TCP port of the service.
    pub tcp_port: u16,
}

struct PortEnd {
    stack: Stack,
    facts: StreamPort,
}

/// Where the headers of a segment stand in its frame.
#[derive(Debug, Clone, Copy)]
pub struct SegmentAt {
    /// The worker's number of the port.
    pub port: usize,
    /// First byte of the IP header.
    pub l3: u8,
    /// First byte of the TCP header.
    pub l4: u8,
    /// The network header is IPv6.
    pub ipv6: bool,
}

/// The TCP connections of one worker.
pub struct Streams {
    ports: Vec<PortEnd>,
    connections: Box<[Connection]>,
    table: Table,
    listener: Listener,
    wheel: Wheel,
    /// Connections that something has happened to.
    queue: Vec<u32>,
    /// The same, while they are served.
    serving: Vec<u32>,
    desk: Desk,
    /// What others see of the connections.
    conns: Arc<ConnSlots>,
    out: Outbox,
    region: Region,
    idle_max_ns: Option<u64>,
    started: Instant,
    /// No more connections are taken.
    stopping: bool,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").field("free", &self.listener.free()).finish_non_exhaustive()
    }
}

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
        let desk = Desk {
            session,
            ops: server.ops(),
            server,
            users,
            item_max_bytes,
            requests_per_turn: config.requests_per_turn,
            out: Vec::with_capacity(2 * OUT_BYTES),
            flat: vec![0; IN_BYTES],
            spill: Spill::new(item_max_bytes),
        };
        let conns = desk.server.conns.enter_slots(most, started);
        let mut out = Outbox::new();
        let ports = ports.iter().map(|&facts| {
            let mut wire = wire(&[], 0, facts, &region, &mut out);
            PortEnd { stack: Stack::new(&mut wire, 0), facts }
        });
        let ports = ports.collect();
        Self {
            ports,
            connections: (0..most).map(|_| Connection::new(&desk)).collect(),
            table: Table::new(most),
            listener: Listener::new(most),
            wheel: Wheel::new(most),
            queue: Vec::with_capacity(most),
            serving: Vec::with_capacity(most),
            desk,
            conns,
            out,
            region,
            idle_max_ns: config.idle_max.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            started,
            stopping: false,
        }
    }

    /// Takes a segment in. The frame is the caller's still, and of no more use.
    ///
    /// # Errors
    /// Why it was not taken: [`DropReason::Ipv4Checksum`], [`DropReason::TcpChecksum`],
    /// [`DropReason::TcpNoConnection`] (answered with a reset), [`DropReason::TcpFull`].
    pub fn take(&mut self, frame: &Frame, at: SegmentAt, now_ns: u64) -> Result<(), DropReason> {
        let SegmentAt { port, l3, l4, ipv6 } = at;
        if !ipv6 && !frame.rx.ip_good.is_set() && !verify_ip4_header(frame.bytes(), l3) {
            return Err(DropReason::Ipv4Checksum);
        }
        let packet = tcp::packet(frame.bytes(), l3, ipv6).ok_or(DropReason::TcpTruncated)?;
        let behind = usize::from(l4 - l3);
        if !frame.rx.udp_good.is_set() && !tcp::verify(packet.bytes, behind, ipv6) {
            return Err(DropReason::TcpChecksum);
        }
        let segment = packet.bytes.get(behind..).and_then(Tcp::checked);
        let segment = segment.ok_or(DropReason::TcpTruncated)?;
        let ends = Ends {
            port: u8::try_from(port).unwrap_or(u8::MAX),
            ours: packet.dst,
            theirs: packet.src,
            their_port: segment.src_port(),
        };
        let mut link = Link::new();
        let head = frame.bytes().get(..usize::from(l3)).unwrap_or_default();
        link.try_extend_from_slice(head).map_err(|_| DropReason::VlanDepth)?;
        turn_ethernet(&mut link);
        let found = self.table.find(&ends);
        let slot = match found.filter(|&slot| !self.begins_anew(slot, &segment)) {
            Some(slot) => slot,
            None if segment.opens() && !self.stopping => self.begin(ends, &link, found, now_ns)?,
            None => return Err(self.refuse(packet.bytes, &link, port, &segment, now_ns)),
        };
        let (Some(connection), Some(end)) =
            (self.connections.get_mut(slot as usize), self.ports.get_mut(port))
        else {
            return Err(DropReason::TcpNoConnection);
        };
        connection.link = link;
        let mut wire = wire(&connection.link, ends.port, end.facts, &self.region, &mut self.out);
        wire.packet = Some(packet.bytes);
        connection.machine.take(&mut end.stack, &mut wire, now_ns);
        self.enqueue(slot);
        Ok(())
    }

    /// Whether the segment opens a connection where one has ended already.
    fn begins_anew(&self, slot: u32, segment: &Tcp<'_>) -> bool {
        let connection = self.connections.get(slot as usize);
        let over = |c: &Connection| matches!(c.machine.stand(), Stand::Ended | Stand::None);
        segment.opens() && connection.is_some_and(over)
    }

    /// Finds a slot for a fresh connection; the one at `found` is in its way.
    fn begin(
        &mut self,
        ends: Ends,
        link: &Link,
        found: Option<u32>,
        now_ns: u64,
    ) -> Result<u32, DropReason> {
        if let Some(old) = found {
            self.clear(old);
        }
        let Some((slot, used)) = self.listener.slot(&self.connections) else {
            self.desk.ops.rejected_connections.inc();
            return Err(DropReason::TcpFull);
        };
        if used {
            self.strike(slot);
        }
        let seed = self.listener.seed(&ends, now_ns);
        let (Some(connection), Some(end)) =
            (self.connections.get_mut(slot as usize), self.ports.get_mut(usize::from(ends.port)))
        else {
            return Err(DropReason::TcpFull);
        };
        end.stack.seed(&mut wire(link, ends.port, end.facts, &self.region, &mut self.out), seed);
        connection.begin(ends, end.facts.tcp_port, &self.desk, now_ns);
        self.listener.half_open(slot, connection.generation);
        self.table.enter(ends, slot);
        Ok(slot)
    }

    /// Answers a segment of no connection.
    #[cold]
    fn refuse(
        &mut self,
        packet: &[u8],
        link: &Link,
        port: usize,
        segment: &Tcp<'_>,
        now_ns: u64,
    ) -> DropReason {
        if let Some(end) = self.ports.get_mut(port)
            && !segment.resets()
        {
            let number = u8::try_from(port).unwrap_or(u8::MAX);
            let mut wire = wire(link, number, end.facts, &self.region, &mut self.out);
            wire.packet = Some(packet);
            end.stack.refuse(&mut wire, now_ns);
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
    pub fn turn(&mut self, now_ns: u64) -> usize {
        let Self { wheel, connections, queue, .. } = self;
        wheel.advance(now_ns, |slot| {
            if let Some(connection) = connections.get_mut(slot as usize)
                && !connection.queued
            {
                connection.queued = true;
                queue.push(slot);
            }
        });
        if self.queue.is_empty() {
            return 0;
        }
        std::mem::swap(&mut self.queue, &mut self.serving);
        let done = self.desk.ops.latency.done();
        let mut served = 0;
        while let Some(&slot) = self.serving.get(served) {
            if self.out.is_full() {
                break;
            }
            self.serve(slot, now_ns);
            served += 1;
        }
        // Those for which there is no room now come first the next time.
        self.serving.drain(..served);
        self.serving.append(&mut self.queue);
        std::mem::swap(&mut self.queue, &mut self.serving);
        let answered = self.desk.ops.latency.done();
        if answered != done {
            let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let ns = now.saturating_sub(now_ns);
            self.desk.ops.latency.record_between(&done, &answered, Transport::Tcp, ns);
        }
        served
    }

    /// Frames to send, with the worker's numbers of their ports.
    pub fn frames(&mut self) -> impl Iterator<Item = (usize, Frame)> {
        self.out.drain().map(|(port, frame)| (usize::from(port), frame))
    }

    /// Takes no more connections, and ends those that there are once all that has come of them is
    /// answered and sent.
    pub fn stop(&mut self) {
        self.stopping = true;
        for slot in 0..self.connections.len() {
            if let Some(connection) = self.connections.get_mut(slot)
                && connection.ends.is_some()
            {
                if !connection.opened && connection.machine.stand() == Stand::Opening {
                    connection.machine.abort();
                }
                connection.stopping = true;
                self.enqueue(u32::try_from(slot).unwrap_or(u32::MAX));
            }
        }
    }

    /// Ends with a reset all connections that are not over.
    pub fn cut(&mut self) {
        for slot in 0..self.connections.len() {
            if let Some(connection) = self.connections.get_mut(slot)
                && connection.ends.is_some()
                && connection.machine.stand() != Stand::Ended
            {
                connection.end.get_or_insert(End::Shutdown);
                connection.machine.abort();
                self.enqueue(u32::try_from(slot).unwrap_or(u32::MAX));
            }
        }
    }

    /// Whether no client has still to be sent, or to confirm, anything.
    pub fn is_quiet(&self) -> bool {
        let over = |c: &Connection| matches!(c.machine.stand(), Stand::None | Stand::Ended);
        self.connections.iter().all(over)
    }

    /// One connection's turn.
    fn serve(&mut self, slot: u32, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.queued = false;
        let Some(ends) = connection.ends else { return };
        let stand = connection.machine.stand();
        if !connection.opened && !matches!(stand, Stand::None | Stand::Opening) {
            connection.opened = true;
            self.desk.ops.total_connections.inc();
            let peer = SocketAddr::new(ends.theirs, ends.their_port);
            let ours = SocketAddr::new(
                ends.ours,
                self.ports.get(usize::from(ends.port)).map_or(0, |p| p.facts.tcp_port),
            );
            self.conns.begin(slot, peer, ours, now_ns);
            self.desk.server.watchers.connected(Some(peer), self.conns.id(slot));
        }
        let deadline = expire(connection, stand, self.idle_max_ns, &self.desk, now_ns);
        let next = if connection.opened && stand != Stand::None && stand != Stand::Ended {
            self.desk.ops.client.set(u64::try_from(self.conns.id(slot)).unwrap_or(0));
            let next = connection.converse(&mut self.desk, now_ns);
            self.conns.is(slot, connection.state(next), now_ns);
            next
        } else {
            Next::Client
        };
        let Some(end) = self.ports.get_mut(usize::from(ends.port)) else { return };
        let mut wire = wire(&connection.link, ends.port, end.facts, &self.region, &mut self.out);
        let all = connection.machine.send_due(&mut end.stack, &mut wire, now_ns);
        let after = connection.machine.stand();
        if after == Stand::None && all {
            return self.clear(slot);
        }
        if after == Stand::Ended && stand != Stand::Ended {
            self.listener.ended(slot, connection.generation);
        }
        let mut due_ns = connection.machine.due_ns(&mut end.stack, now_ns);
        let mut also = |ns: u64| due_ns = Some(due_ns.map_or(ns, |due| due.min(ns)));
        if let Some(deadline) = deadline {
            also(deadline);
        }
        match next {
            Next::Client if all => {}
            Next::Client | Next::Spill => also(now_ns + RETRY_NS),
            Next::Lines => also(now_ns + WATCH_PAUSE_NS),
            Next::Turn => {}
        }
        self.wheel.set(slot, due_ns);
        if next == Next::Turn {
            self.enqueue(slot);
        }
    }

    /// Frees the slot of a connection that is over.
    fn clear(&mut self, slot: u32) {
        self.strike(slot);
        self.listener.give_back(slot);
    }

    /// Ends what there was in a slot, without a word to the client.
    fn strike(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(ends) = connection.ends else { return };
        self.table.strike(&ends);
        self.wheel.set(slot, None);
        if connection.opened {
            self.desk.ops.closed_connections.inc();
            let reason = connection.end.unwrap_or(End::Error).reason();
            let peer = SocketAddr::new(ends.theirs, ends.their_port);
            self.desk.server.watchers.disconnected(Some(peer), reason, self.conns.id(slot));
            self.conns.end(slot);
        }
        let port = self.ports.get(usize::from(ends.port)).map_or(0, |end| end.facts.tcp_port);
        connection.clear(port, &mut self.desk.spill);
    }
}

/// Ends a connection that has had its time, and says when it will have had it.
fn expire(
    connection: &mut Connection,
    stand: Stand,
    idle_max_ns: Option<u64>,
    desk: &Desk,
    now_ns: u64,
) -> Option<u64> {
    if connection.is_slow(now_ns) && !desk.spill.has_one() {
        desk.server.conn_memory.stall();
        connection.end.get_or_insert(End::Error);
        connection.machine.abort();
        return None;
    }
    let moved = connection.moved_ns;
    let deadline = match stand {
        Stand::None | Stand::Ended => return None,
        Stand::Opening => Some(moved + CONFIRM_MAX_NS),
        _ if connection.end.is_some() => Some(moved + PARTING_MAX_NS),
        _ => idle_max_ns.map(|max| moved.saturating_add(max)),
    };
    if deadline.is_none_or(|deadline| now_ns < deadline) {
        // Others may come to wait for what it holds.
        let look = connection.spills().then_some(now_ns + PACE_NS);
        return deadline.into_iter().chain(look).min();
    }
    if stand != Stand::Opening && connection.end.is_none() {
        connection.end = Some(End::Idle);
        desk.ops.idle_kicks.inc();
        // What it is owed it does not take; otherwise it is told in the ordinary way.
        if connection.is_paid() {
            connection.moved_ns = now_ns;
            return Some(now_ns + PARTING_MAX_NS);
        }
    }
    connection.machine.abort();
    None
}

fn wire<'a>(
    link: &'a [u8],
    port: u8,
    facts: StreamPort,
    region: &'a Region,
    out: &'a mut Outbox,
) -> Wire<'a> {
    Wire { packet: None, link, port, mtu: facts.mtu, region, out, stuck: false }
}
