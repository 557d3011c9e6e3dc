//! Connections to a worker of one's own, from frames in memory: no kernel, no NIC.
//!
//! In: a script, connections, how many requests each sends at a time. Out: how many were answered, and
//! the CPU time of the worker's turns alone: making segments and comparing replies is the client's
//! share, measured apart. The client is a TCP just as far as the load needs one: a closed loop in
//! which nothing is lost, so that each segment continues the one before it and acknowledges
//! all that has come, as far as the worker's window goes; a reply that has come in part is acknowledged at once, for it may be longer than
//! the worker's congestion window. Every reply is compared to the byte, and so are sequence numbers. Fails on a reply
//! that is not what it must be, or does not come within so many turns.

use super::script::Script;
use crate::study::thread_cpu;
use base::checksum;
use dataplane::observe::Server;
use dataplane::rdma::Rdma;
use dataplane::stages::fast_path::FastPathMode;
use dataplane::stages::stream::StreamsConfig;
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use driver_shim::ports::memory::{MAC, PEER_MAC, linked};
use driver_shim::{BURST_MAX, Burst, Frame, Pages, QueuePair, Region};
use memcache::Store as SetRequest;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{KeyHash, Store, StoreConfig, verbs};
use wire::{Local, tcp};

/// The worker's address, and the client's.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1)];
const SERVICE_PORT: u16 = 11_211;
/// The first connection's port.
const FIRST_PORT: u16 = 2_000;
/// Most connections: ports behind that.
pub(in crate::study) const CONNECTIONS_MAX: usize = 60_000;
/// Where the headers of a segment begin, and its payload: no options.
const L3: usize = 14;
const L4: usize = L3 + 20;
const TEXT: usize = L4 + 20;
/// Longest payload of a segment.
const MSS: usize = 1460;
/// Our window: more than any reply.
const WINDOW: u16 = u16::MAX;
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;
/// Packet slots: what is under way both ways, and what waits in the worker.
const SLOTS: u32 = 8192;
/// Frames that wait in a ring between client and worker.
const RING_FRAMES: usize = 4096;
/// Turns of the worker within which replies must have come.
const TURNS_MAX: u32 = 10_000;
/// The hash key, so that a run can be repeated to the instruction.
const HASH_KEY: [u8; 16] = *b"gnomon's segment";

/// A worker, and the clients connected to it.
pub(in crate::study) struct Memory {
    worker: Worker,
    store: Arc<Store>,
    wire: QueuePair,
    region: Region,
    peers: Vec<Peer>,
    /// Segments on their way to the worker.
    sending: Vec<Frame>,
    random: Xoshiro256PlusPlus,
    /// CPU time of the worker's turns, while it is measured.
    worked: Option<Duration>,
}

/// The client's end of a connection.
#[derive(Debug, Default)]
struct Peer {
    seq: u32,
    ack: u32,
    /// The last `ack` that the worker was sent.
    acked: u32,
    /// Where the worker's window ends.
    window_end: u32,
    /// What is asked, and how much of it has been sent.
    request: Vec<u8>,
    sent: usize,
    /// What must come back, and how much of it has.
    reply: Vec<u8>,
    come: usize,
}

base::opaque!(Memory, |it| connections: it.peers.len());

fn wrong(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// A measured turn of the worker, and nothing else: what a profiler sees below it is the server's.
#[inline(never)]
fn serve(worker: &mut Worker) {
    worker.turn();
}

impl Memory {
    /// A worker over an empty store, and so many connections to it; with `rdma` it gives out stags.
    ///
    /// # Errors
    /// Not enough memory, or a connection that is not taken.
    pub(in crate::study) fn connect(
        connections: usize,
        memory_bytes: usize,
        rdma: Option<Arc<Rdma>>,
    ) -> Result<Self, Box<dyn Error>> {
        let region = Region::new(SLOTS, Pages::Prefer)?;
        let hash_key = Some(HASH_KEY);
        let store = Store::new(StoreConfig { memory_bytes, hash_key, ..StoreConfig::default() })?;
        let mut server = Server::new(Arc::clone(&store), "study".to_owned());
        server.rdma = rdma;
        let server = Arc::new(server);
        let (port, mut far) = linked(1, RING_FRAMES);
        let own = Local::new(MAC, &[(ADDRESSES[0].into(), 24)], SERVICE_PORT)?;
        let local = Arc::new(Local { tcp_port: Some(SERVICE_PORT), ..own });
        let worker_port = |queues| WorkerPort::new(queues, port.info.clone(), Arc::clone(&local));
        let ports = port.queues.into_iter().map(worker_port).collect();
        let (session, item_max_bytes) = (store.session()?, store.config().item_max_bytes);
        let worker = Worker::new(WorkerConfig {
            streams: Some(StreamsConfig::new(connections, session, item_max_bytes)),
            fast_path: FastPathMode::from_env(),
            ..WorkerConfig::new(ports, region.clone(), store.session()?, server)
        });
        let mut it = Self {
            worker,
            store,
            wire: far.queues.pop().ok_or("no queue")?,
            region,
            peers: Vec::new(),
            sending: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(1),
            worked: None,
        };
        for n in 0..connections.min(CONNECTIONS_MAX) {
            it.open(n)?;
        }
        Ok(it)
    }

    /// The hash of a key, which its stag is made of.
    pub(in crate::study) fn hash(&self, key: &[u8]) -> KeyHash {
        self.store.hash(key)
    }

    /// Stores values without the worker: they may be longer than its window.
    pub(in crate::study) fn fill(
        &self,
        items: impl Iterator<Item = (Vec<u8>, u32, Vec<u8>)>,
    ) -> Result<(), Box<dyn Error>> {
        let mut session = self.store.session()?;
        for (key, flags, value) in items {
            let set = SetRequest::set(&key, flags, 0, &value);
            verbs::store(&mut session, None, &set).map_err(|why| format!("{why:?}"))?;
        }
        Ok(())
    }

    /// Opens the n-th connection.
    fn open(&mut self, n: usize) -> io::Result<()> {
        self.peers.push(Peer { seq: u32::try_from(n * 7919).unwrap_or(0), ..Peer::default() });
        self.segment(n, SYN, &[])?;
        let before = self.peers.get(n).map_or(0, |peer| peer.ack);
        for _ in 0..TURNS_MAX {
            self.exchange()?;
            if self.peers.get(n).is_some_and(|peer| peer.ack != before) {
                self.segment(n, ACK, &[])?;
                return self.exchange();
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Sends every request of the script once, over one connection.
    ///
    /// # Errors
    /// See the module.
    pub(in crate::study) fn load(&mut self, script: &Script) -> io::Result<()> {
        for key in 0..script.len() {
            self.ask(0..1, script, std::iter::once(key))?;
        }
        Ok(())
    }

    /// Sends requests of the script, drawn at random, `depth` at a time on each of the first
    /// `connections`, until this time is over and at least so many requests are answered. The
    /// number that was answered, and the CPU time that the worker spent on it.
    ///
    /// # Errors
    /// See the module.
    pub(in crate::study) fn run(
        &mut self,
        script: &Script,
        (connections, depth): (usize, u64),
        (time, least): (Duration, u64),
    ) -> io::Result<(u64, Duration)> {
        let end = Instant::now() + time;
        self.worked = Some(Duration::ZERO);
        let (keys, connections) = (script.len().max(1), connections.min(self.peers.len()));
        let (mut answered, mut first) = (0, 0);
        while answered < least || Instant::now() < end {
            let last = connections.min(first + BURST_MAX);
            let mut random = self.random.clone();
            let mut drawn = || random.random_range(0..keys);
            let numbers = (0..(last - first) as u64 * depth).map(|_| drawn());
            self.ask(first..last, script, numbers)?;
            self.random = random;
            answered += (last - first) as u64 * depth;
            first = if last == connections { 0 } else { last };
        }
        let worked = self.worked.take().unwrap_or_default();
        self.acknowledge(connections)?;
        Ok((answered, worked))
    }

    /// Acknowledges all that has come, as a client does that sends no further request for now.
    fn acknowledge(&mut self, connections: usize) -> io::Result<()> {
        for n in 0..connections {
            self.segment(n, ACK, &[])?;
            if n % BURST_MAX == 0 {
                self.exchange()?;
            }
        }
        self.exchange()
    }

    /// Sends these requests over these connections, as many over each, and awaits all replies.
    fn ask(
        &mut self,
        peers: std::ops::Range<usize>,
        script: &Script,
        mut numbers: impl Iterator<Item = u64>,
    ) -> io::Result<()> {
        let each = numbers.size_hint().0 / peers.len().max(1);
        for n in peers.clone() {
            let Some(peer) = self.peers.get_mut(n) else { continue };
            peer.reply.clear();
            peer.request.clear();
            (peer.come, peer.sent) = (0, 0);
            for exchange in numbers.by_ref().take(each).filter_map(|n| script.exchange(n)) {
                peer.request.extend_from_slice(&exchange.request);
                peer.reply.extend_from_slice(&exchange.reply);
            }
            self.send(n)?;
        }
        for _ in 0..TURNS_MAX {
            self.exchange()?;
            let done =
                |peer: &Peer| peer.come == peer.reply.len() && peer.sent == peer.request.len();
            if self.peers.get(peers.clone()).is_some_and(|all| all.iter().all(done)) {
                return Ok(());
            }
            for n in peers.clone() {
                self.send(n)?;
                let part = |peer: &Peer| peer.come < peer.reply.len() && peer.acked != peer.ack;
                if self.peers.get(n).is_some_and(part) {
                    self.segment(n, ACK, &[])?;
                }
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Sends of the n-th connection's request what the worker's window takes, in segments as long as may be.
    fn send(&mut self, n: usize) -> io::Result<()> {
        while let Some(peer) = self.peers.get_mut(n) {
            let piece = peer.request.len().saturating_sub(peer.sent).min(MSS);
            let window = peer.window_end.wrapping_sub(peer.seq);
            if piece == 0 || window > u32::MAX / 2 || (window as usize) < piece {
                break;
            }
            let sent = peer.sent;
            peer.sent += piece;
            let request = std::mem::take(&mut peer.request);
            self.segment(n, ACK | PUSH, request.get(sent..sent + piece).unwrap_or_default())?;
            if let Some(peer) = self.peers.get_mut(n) {
                peer.request = request;
            }
        }
        Ok(())
    }

    /// Makes the next segment of the n-th connection.
    fn segment(&mut self, n: usize, flags: u8, payload: &[u8]) -> io::Result<()> {
        let Some(peer) = self.peers.get_mut(n) else { return Ok(()) };
        let mut frame = self.region.alloc().ok_or(ErrorKind::OutOfMemory)?;
        let total = u16::try_from(TEXT - L3 + payload.len()).map_err(io::Error::other)?;
        let port = u16::try_from(n).unwrap_or(u16::MAX).saturating_add(FIRST_PORT);
        let mut head = Vec::with_capacity(TEXT);
        head.extend([MAC.0, PEER_MAC.0].concat());
        head.extend([8, 0, 0x45, 0]);
        head.extend(total.to_be_bytes());
        head.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        head.extend([ADDRESSES[1].octets(), ADDRESSES[0].octets()].concat());
        let sum = checksum::field(checksum::sum(head.get(L3..).unwrap_or_default()));
        if let Some(field) = head.get_mut(L3 + 10..L3 + 12) {
            field.copy_from_slice(&sum.to_be_bytes());
        }
        head.extend([port, SERVICE_PORT].map(u16::to_be_bytes).concat());
        head.extend([peer.seq, peer.ack].map(u32::to_be_bytes).concat());
        head.extend([5 << 4, flags]);
        head.extend(WINDOW.to_be_bytes());
        head.extend([0; 4]);
        head.extend(payload);
        frame.fill(&head).map_err(io::Error::other)?;
        tcp::seal(frame.bytes_mut().get_mut(L3..).unwrap_or_default(), L4 - L3, false);
        let control = u32::from(flags & SYN != 0);
        peer.seq = peer.seq.wrapping_add(u32::from(total) - 40 + control);
        peer.acked = peer.ack;
        self.sending.push(frame);
        Ok(())
    }

    /// Gives the worker what is to be sent, as a NIC would, lets it have one turn, and takes what it
    /// sends.
    fn exchange(&mut self) -> io::Result<()> {
        let mut burst = Burst::new();
        for frame in self.sending.drain(..) {
            burst.push(frame);
            if burst.is_full() {
                self.wire.tx.burst(&mut burst);
            }
        }
        self.wire.tx.burst(&mut burst);
        match &mut self.worked {
            Some(worked) => {
                let begun = thread_cpu();
                serve(&mut self.worker);
                *worked += thread_cpu() - begun;
            }
            None => {
                self.worker.turn();
            }
        }
        let mut came = Burst::new();
        while self.wire.rx.burst(&mut came) > 0 {
            for frame in came.drain(..) {
                self.take(&frame)?;
            }
        }
        Ok(())
    }

    /// Takes a segment of the worker's.
    fn take(&mut self, frame: &Frame) -> io::Result<()> {
        let bytes = frame.bytes();
        let number = |at: usize| {
            bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_be_bytes(*b))
        };
        let total = usize::try_from(number(L3) & 0xffff).unwrap_or(0);
        let packet = bytes.get(L3..L3 + total).unwrap_or_default();
        if !tcp::verify(packet, L4 - L3, false) {
            return Err(wrong("a segment with a wrong checksum".to_owned()));
        }
        let offset_flags = number(L4 + 12) >> 16;
        let payload = packet.get(L4 - L3 + (offset_flags >> 12) as usize * 4..);
        let (payload, seq) = (payload.unwrap_or_default(), number(L4 + 4));
        let n = usize::from((number(L4) & 0xffff) as u16).wrapping_sub(FIRST_PORT.into());
        let peer = self.peers.get_mut(n).ok_or_else(|| wrong(format!("connection {n}")))?;
        peer.window_end = number(L4 + 8).wrapping_add(number(L4 + 14) >> 16);
        let syn = offset_flags & u32::from(SYN) != 0;
        if syn {
            peer.ack = seq.wrapping_add(1);
            return Ok(());
        }
        let want = peer.reply.get(peer.come..peer.come + payload.len());
        // Sent once more: it was not acknowledged for a second, because nothing was asked.
        if seq.wrapping_sub(peer.ack) > u32::MAX / 2 {
            return Ok(());
        }
        if seq != peer.ack || want != Some(payload) {
            let text = String::from_utf8_lossy(payload);
            return Err(wrong(format!("byte {seq} instead of {}: {text}", peer.ack)));
        }
        peer.come += payload.len();
        peer.ack = peer.ack.wrapping_add(u32::try_from(payload.len()).unwrap_or(0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Verb;
    use super::*;

    #[test]
    fn all_is_answered_and_a_wrong_reply_is_seen() {
        let mut memory = Memory::connect(70, 16 << 20, None).unwrap();
        let (sets, gets) = (Script::new(Verb::Set, 50, 16, 64), Script::new(Verb::Get, 50, 16, 64));
        memory.load(&sets).unwrap();
        for script in [&sets, &gets] {
            for depth in [1, 16, 60] {
                let (n, _) = memory.run(script, (70, depth), (Duration::ZERO, 1000)).unwrap();
                assert!(n >= 1000 && n.is_multiple_of(depth), "{n}");
            }
        }
        // More at a time than the worker's window holds.
        let long = Script::new(Verb::Set, 10, 16, 30_000);
        let (n, _) = memory.run(&long, (70, 16), (Duration::ZERO, 1000)).unwrap();
        assert!(n >= 1000, "{n}");
        let others = Script::new(Verb::Get, 50, 16, 65);
        let wrong = memory.run(&others, (70, 1), (Duration::ZERO, 1)).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidData);
    }
}
