//! The stream stage with a wire and a clock that are the test's, and segments by hand.

use dataplane::observe::Server;
use dataplane::policy::{Gate, Policy};
use dataplane::stages::stream::{ConnFilter, StreamPort, Streams, StreamsConfig, TlsConfig};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use driver_shim::{Frame, Pages, Region};
use etherparse::{PacketBuilder, SlicedPacket, TcpHeader, TcpOptionElement as Opt, TransportSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Store, StoreConfig, verbs};
use wire::{At, DropReason, tcp};

pub(crate) const PORT: u16 = 11_211;
pub(crate) const SERVER: [u8; 4] = [10, 0, 0, 2];
pub(crate) const CLIENT: [u8; 4] = [10, 0, 0, 1];
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A segment that came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) to: u16,
    pub(crate) flags: String,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) payload: Vec<u8>,
}

/// The stage, and a wire that is the test's.
pub(crate) struct World {
    pub(crate) streams: Streams,
    pub(crate) gate: Gate,
    pub(crate) region: Region,
    pub(crate) server: Arc<Server>,
    pub(crate) now_ns: u64,
    pub(crate) limited: bool,
}

/// One end of a connection: the numbers of the next bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) port: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
}

/// What a stage is made with beside what all are.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) policy: Policy,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) idle_max: Option<Duration>,
    /// Four connections may have long requests and replies at a time, not 64.
    pub(crate) spills_four: bool,
    /// The port may bring segments of other workers' connections: those that there are.
    pub(crate) filter: Option<Arc<ConnFilter>>,
}

impl World {
    pub(crate) fn new(connections: usize) -> Self {
        Self::with(connections, Policy::default())
    }

    pub(crate) fn with(connections: usize, policy: Policy) -> Self {
        Self::made(connections, Made { policy, ..Made::default() })
    }

    pub(crate) fn made(connections: usize, made: Made) -> Self {
        let Made { policy, tls, idle_max, spills_four, filter } = made;
        let region = Region::new(4096, Pages::Small).unwrap();
        let config =
            StoreConfig { memory_bytes: 32 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let server = Arc::new(Server::new(Arc::clone(&store), "test".to_owned()));
        let item_max_bytes = if spills_four { 16 << 20 } else { store.config().item_max_bytes };
        let config = StreamsConfig {
            idle_max,
            drain_max: Duration::from_secs(5),
            tls,
            filter,
            ..StreamsConfig::new(connections, store.session().unwrap(), item_max_bytes)
        };
        let ports = [StreamPort { mtu: 1500, tcp_port: PORT }];
        let streams =
            Streams::new(config, Arc::clone(&server), &ports, region.clone(), Instant::now());
        let gate = Gate::new(&policy);
        Self { streams, gate, region, server, now_ns: SECOND, limited: false }
    }

    /// Sends a segment as it is, and says why it was not taken.
    pub(crate) fn put(&mut self, head: TcpHeader, payload: &[u8]) -> Result<(), DropReason> {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ethernet2(PEER_MAC.0, MAC.0).ipv4(CLIENT, SERVER, 64);
        builder.tcp_header(head).write(&mut bytes, payload).unwrap();
        let mut frame = self.region.alloc().unwrap();
        frame.fill(&bytes).unwrap();
        let at = At { l3: 14, l4: 34, ipv6: false, limited: self.limited };
        self.take(frame, at).1
    }

    /// A burst of one frame, which comes back.
    pub(crate) fn take(&mut self, frame: Frame, at: At) -> (Frame, Result<(), DropReason>) {
        if let Err((frame, why)) = self.streams.enter(frame, at, 0) {
            return (frame, Err(why));
        }
        let mut done = None;
        self.streams.take_all(self.now_ns, |frame, _, taken| done = Some((frame, taken)));
        done.unwrap()
    }

    pub(crate) fn send(&mut self, p: Peer, flags: &str, payload: &[u8]) -> Result<(), DropReason> {
        self.put(head(p, flags), payload)
    }

    /// Lets the stage work, and takes what it sends.
    pub(crate) fn hear(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        for _ in 0..1000 {
            let served = self.streams.turn(&mut self.gate, self.now_ns);
            heard.extend(self.streams.frames().map(|(_, frame)| open(frame.bytes())));
            if served == 0 {
                break;
            }
        }
        heard
    }

    /// Time passes, a tenth of a second at a time.
    pub(crate) fn pass(&mut self, seconds: u64) -> Vec<Heard> {
        let mut heard = Vec::new();
        for _ in 0..seconds * 10 {
            self.now_ns += SECOND / 10;
            heard.extend(self.hear());
        }
        heard
    }

    /// Opens a connection whose client's numbers begin behind `isn`, with options in its SYN.
    pub(crate) fn open_with(&mut self, port: u16, isn: u32, options: &[Opt]) -> Peer {
        let p = Peer { port, seq: isn, ack: 0 };
        let mut syn = head(p, "S");
        syn.set_options(options).unwrap();
        assert_eq!(self.put(syn, b""), Ok(()));
        let heard = self.hear();
        let [h] = &heard[..] else { panic!("one SYN-ACK, not {heard:?}") };
        assert_eq!((&h.flags[..], h.ack), ("SA", isn.wrapping_add(1)));
        let p = Peer { port, seq: h.ack, ack: h.seq.wrapping_add(1) };
        self.send(p, "A", b"").unwrap();
        assert_eq!(self.hear(), []);
        p
    }

    pub(crate) fn open(&mut self, port: u16) -> Peer {
        self.open_with(port, 100, &[])
    }

    /// Says something in order, and expects just this reply, which is acknowledged.
    pub(crate) fn say(&mut self, p: &mut Peer, request: &[u8], reply: &[u8]) {
        self.send(*p, "A", request).unwrap();
        p.seq = p.seq.wrapping_add(len(request));
        let heard = self.hear();
        let got: Vec<u8> = heard.iter().flat_map(|h| h.payload.clone()).collect();
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(reply));
        p.ack = p.ack.wrapping_add(len(reply));
        self.send(*p, "A", b"").unwrap();
        assert_eq!(self.hear(), []);
    }

    pub(crate) fn is_alive(&mut self, mut p: Peer) {
        self.say(&mut p, b"mn\r\n", b"MN\r\n");
    }

    /// Puts so many bytes into the store.
    pub(crate) fn keep(&self, key: &[u8], bytes: usize) {
        let mut session = self.server.store.session().unwrap();
        let value = vec![b'v'; bytes];
        verbs::store(&mut session, None, &base::Store::set(key, 0, 0, &value)).unwrap();
    }

    /// Connections that were ended because they moved too little.
    pub(crate) fn stalled(&self) -> u64 {
        self.server.conn_memory.now().stalled
    }

    pub(crate) fn ended(&self) -> u64 {
        self.server.totals().closed_connections
    }
}

pub(crate) fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap()
}

pub(crate) fn head(p: Peer, flags: &str) -> TcpHeader {
    let mut head = TcpHeader::new(p.port, PORT, p.seq, 60_000);
    (head.syn, head.ack) = (flags.contains('S'), flags.contains('A'));
    (head.fin, head.rst) = (flags.contains('F'), flags.contains('R'));
    head.acknowledgment_number = p.ack;
    head
}

pub(crate) fn open(bytes: &[u8]) -> Heard {
    assert!(tcp::verify(&bytes[14..], 20, false), "a right checksum");
    let packet = SlicedPacket::from_ethernet(bytes).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else { panic!("{bytes:x?}") };
    let flags = [(tcp.syn(), 'S'), (tcp.ack(), 'A'), (tcp.fin(), 'F'), (tcp.rst(), 'R')];
    Heard {
        to: tcp.destination_port(),
        flags: flags.iter().filter(|(is, _)| *is).map(|(_, name)| name).collect(),
        seq: tcp.sequence_number(),
        ack: tcp.acknowledgment_number(),
        window: tcp.window_size(),
        payload: tcp.payload().to_vec(),
    }
}

pub(crate) fn moved(p: Peer, by: i32) -> Peer {
    Peer { seq: p.seq.wrapping_add_signed(by), ..p }
}
