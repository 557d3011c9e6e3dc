//! A worker with a store between two ports in memory, and a client on the far side.

use dataplane::announce::Announcer;
use dataplane::observe::Server;
use dataplane::policy::Policy;
use dataplane::stages::batch::BatchPolicy;
use dataplane::stages::engine::dispatch::Offloading;
use dataplane::stages::fast_path::FastPathMode;
use dataplane::stages::stream::StreamsConfig;
use dataplane::worker::{self, Worker, WorkerConfig, WorkerPort};
use dataplane::{Ledger, WorkerCounters};
use driver_shim::ports::memory::{MAC, PEER_MAC, linked};
use driver_shim::{Burst, Frame, Pages, QueuePair, Region};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use gpu::Engine;
use gpu::card::Card;
use gpu::index::{Feed, IndexConfig, IndexKind, SHARES_DEFAULT, Schedule, Updater};
use gpu::offload::{GpuEngine, Mode, Offload, OffloadConfig};
use gpu::simt::SimtCard;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::{Store, StoreConfig, StoreSource};
use wire::DropReason;
use wire::{AllowList, Local};

pub(crate) const PORT: u16 = 11_211;
pub(crate) const SERVER4: [u8; 4] = [10, 0, 0, 2];
pub(crate) const CLIENT4: [u8; 4] = [10, 0, 0, 1];
pub(crate) const SERVER6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
pub(crate) const CLIENT6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub(crate) const CLIENT_PORT: u16 = 40_000;

/// The server's addresses and their prefixes.
pub(crate) const ADDRESSES: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::from_octets(SERVER4)), 24),
    (IpAddr::V6(Ipv6Addr::from_octets(SERVER6)), 64),
];

/// How the client wraps its datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrap {
    V4,
    V6,
    Vlan4,
    QinQ6,
}

impl Wrap {
    pub(crate) const ALL: [Self; 4] = [Self::V4, Self::V6, Self::Vlan4, Self::QinQ6];
}

pub(crate) struct World {
    pub(crate) region: Region,
    pub(crate) store: Arc<Store>,
    pub(crate) server: Arc<Server>,
    pub(crate) counters: Vec<Arc<WorkerCounters>>,
    pub(crate) workers: Vec<Worker>,
    /// Orders for worker 0.
    pub(crate) announcer: Arc<Announcer>,
    /// The client's end of each worker's wire.
    pub(crate) wires: Vec<QueuePair>,
    pub(crate) slots: usize,
    /// The GPUs, where there are some.
    pub(crate) offloads: Vec<Arc<Offload>>,
    /// Of the indexes on them. They work when they are ordered to.
    pub(crate) updaters: Vec<Updater>,
    /// With a GPU there is one world at a time.
    _alone: Option<MutexGuard<'static, ()>>,
}

/// Every lane of the executor has a stack of its own with a guard page: several GPUs at once come
/// near what the kernel lets a process map (vm.max_map_count).
static ALONE: Mutex<()> = Mutex::new(());

/// A GPU beside the CPU, which gets everything.
pub(crate) struct Beside {
    pub(crate) card: Arc<dyn Card>,
    pub(crate) mode: Mode,
    pub(crate) kind: IndexKind,
    pub(crate) deadline: Duration,
    /// Hashes that the feed holds.
    pub(crate) feed: usize,
    pub(crate) index_bytes: u64,
    /// What stands between the engine and the worker.
    pub(crate) wrap: fn(Box<dyn Engine>) -> Box<dyn Engine>,
}

impl Beside {
    pub(crate) fn new(mode: Mode, kind: IndexKind) -> Self {
        let card = Arc::new(SimtCard::default());
        let deadline = Duration::from_secs(60);
        Self {
            card,
            mode,
            kind,
            deadline,
            feed: 1 << 12,
            index_bytes: 1 << 20,
            wrap: |engine| engine,
        }
    }

    fn open(&self, region: &Region, store: &Arc<Store>) -> (Arc<Offload>, Arc<Feed>, Updater) {
        let index =
            IndexConfig { kind: self.kind, memory_bytes: self.index_bytes, shares: SHARES_DEFAULT };
        let config = OffloadConfig {
            mode: self.mode,
            index,
            hash_key: store.hash_key(),
            engines: 4,
            batch_max: BatchPolicy::default().size,
            in_flight_max: 3,
            deadline: self.deadline,
            start_deadline: Duration::from_secs(60),
            multiprocessors: u32::MAX,
            heads: true,
        };
        let offload = worker::offload(Arc::clone(&self.card), region, config).unwrap();
        let feed = Arc::new(Feed::filtered(self.feed, offload.filter().cloned()));
        let source = Box::new(StoreSource::new(store.session().unwrap(), true));
        let updater = Updater::new(&offload, Arc::clone(&feed), source, Schedule::default());
        (offload, feed, updater.unwrap())
    }

    fn engine(&self, offload: &Arc<Offload>) -> Offloading {
        let engine = GpuEngine::new(offload, BatchPolicy::default().size).unwrap();
        let (engine, verify_one_in) = ((self.wrap)(Box::new(engine)), NonZeroU32::MIN);
        let filter = offload.filter().cloned();
        Offloading { engine, forced: true, verify_one_in: verify_one_in.saturating_add(6), filter }
    }
}

/// A datagram of a reply: frame header fields and text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) id: u16,
    pub(crate) seq: u16,
    pub(crate) total: u16,
    pub(crate) text: Vec<u8>,
}

/// What a world is made of.
struct Setup<'a> {
    workers: usize,
    config: StoreConfig,
    allow: AllowList,
    policy: Policy,
    beside: &'a [Beside],
    /// Slots, if workers serve TCP.
    connections: Option<usize>,
    /// How long a TCP client may be silent.
    idle_max: Option<Duration>,
    fast_path: FastPathMode,
    /// READs are answered.
    rdma: bool,
    batch: BatchPolicy,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            workers: 1,
            config: StoreConfig::default(),
            allow: AllowList::default(),
            policy: Policy::default(),
            beside: &[],
            connections: None,
            idle_max: None,
            fast_path: FastPathMode::from_env(),
            rdma: false,
            batch: BatchPolicy::default(),
        }
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(1, StoreConfig { memory_bytes: 16 << 20, ..StoreConfig::default() }, |q, _| q)
    }

    /// `workers` workers over one store; `wrap` may put something around the workers' queues.
    pub(crate) fn with(
        workers: usize,
        config: StoreConfig,
        wrap: impl FnMut(QueuePair, &Region) -> QueuePair,
    ) -> Self {
        Self::serving(Setup { workers, config, ..Setup::default() }, wrap)
    }

    /// One worker that serves TCP itself on so many connection slots.
    pub(crate) fn streaming(
        connections: usize,
        wrap: impl FnMut(QueuePair, &Region) -> QueuePair,
    ) -> Self {
        let config = StoreConfig { memory_bytes: 64 << 20, ..StoreConfig::default() };
        Self::serving(Setup { config, connections: Some(connections), ..Setup::default() }, wrap)
    }

    /// One worker that serves TCP itself and answers READs, `allow` by `policy`.
    pub(crate) fn one_sided(allow: &AllowList, policy: Policy) -> Self {
        let config = StoreConfig { memory_bytes: 64 << 20, ..StoreConfig::default() };
        let (connections, allow) = (Some(8), allow.clone());
        let setup = Setup { config, connections, rdma: true, allow, policy, ..Setup::default() };
        Self::serving(setup, |q, _| q)
    }

    /// One worker that serves TCP itself, and ends a connection that is silent for so long.
    pub(crate) fn impatient(connections: usize, idle: Duration) -> Self {
        let config = StoreConfig { memory_bytes: 64 << 20, ..StoreConfig::default() };
        let (connections, idle_max) = (Some(connections), Some(idle));
        Self::serving(Setup { config, connections, idle_max, ..Setup::default() }, |q, _| q)
    }

    /// One worker whose replies leave in the order of their requests: all by the general stages.
    pub(crate) fn in_order(config: StoreConfig) -> Self {
        Self::serving(Setup { config, fast_path: FastPathMode::Off, ..Setup::default() }, |q, _| q)
    }

    /// One worker, and a GPU.
    pub(crate) fn beside(config: StoreConfig, beside: &Beside) -> Self {
        Self::beside_all(config, slice::from_ref(beside))
    }

    /// A worker for each of these GPUs, over one store.
    pub(crate) fn beside_all(config: StoreConfig, beside: &[Beside]) -> Self {
        let workers = beside.len();
        Self::serving(Setup { workers, config, beside, ..Setup::default() }, |q, _| q)
    }

    /// One worker, and a GPU, for clients by `policy`.
    pub(crate) fn policed_beside(config: StoreConfig, beside: &Beside, policy: Policy) -> Self {
        let beside = slice::from_ref(beside);
        Self::serving(Setup { config, beside, policy, ..Setup::default() }, |q, _| q)
    }

    /// One worker that makes batches so, and maybe a GPU.
    pub(crate) fn batching(batch: BatchPolicy, beside: &[Beside]) -> Self {
        let config = StoreConfig { memory_bytes: 16 << 20, ..StoreConfig::default() };
        Self::serving(Setup { config, batch, beside, ..Setup::default() }, |q, _| q)
    }

    /// One worker that trusts its own networks and serves `allow` by `policy`.
    pub(crate) fn policed(allow: &AllowList, policy: Policy) -> Self {
        let config = StoreConfig { memory_bytes: 16 << 20, ..StoreConfig::default() };
        let allow = allow.clone();
        Self::serving(Setup { config, allow, policy, ..Setup::default() }, |q, _| q)
    }

    fn serving(setup: Setup<'_>, mut wrap: impl FnMut(QueuePair, &Region) -> QueuePair) -> Self {
        let Setup { workers, config, allow, policy, beside, .. } = setup;
        let Setup { connections, idle_max, fast_path, rdma, batch, .. } = setup;
        let _alone = beside.first().map(|_| ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        let region = Region::new(4096, Pages::Small).unwrap();
        let store = Store::new(StoreConfig { pages: Pages::Small, ..config }).unwrap();
        let mut server = Server::new(Arc::clone(&store), "test".to_owned());
        server.rdma = rdma.then(Arc::default);
        let server = Arc::new(server);
        let (port, far) = linked(workers, 2048);
        let local = Local::new(MAC, &ADDRESSES, PORT).unwrap();
        let tcp_port = connections.map(|_| PORT);
        let local = Arc::new(Local { allow, tcp_port, rdma, ..local });
        let (mut offloads, mut feeds, mut updaters) = (Vec::new(), Vec::new(), Vec::new());
        for one in beside {
            let (offload, feed, updater) = one.open(&region, &store);
            offloads.push(offload);
            feeds.push(feed);
            updaters.push(updater);
        }
        store.feed_replicas(feeds);
        let mut engines = beside.iter().zip(&offloads).map(|(one, offload)| one.engine(offload));
        let announcer = Arc::new(Announcer::default());
        let mut announcers = std::iter::once(Arc::clone(&announcer));
        let workers: Vec<Worker> = port
            .queues
            .into_iter()
            .map(|queues| {
                let announcer = announcers.next();
                let (queues, local) = (wrap(queues, &region), Arc::clone(&local));
                let own = WorkerPort::new(queues, port.info.clone(), local);
                let ports = vec![WorkerPort { announcer, ..own }];
                let session = || store.session().unwrap();
                let streams = connections.map(|n| {
                    let all = StreamsConfig::new(n, session(), store.config().item_max_bytes);
                    StreamsConfig { idle_max, ..all }
                });
                Worker::new(WorkerConfig {
                    batch,
                    policy,
                    offload: engines.next(),
                    streams,
                    fast_path,
                    ..WorkerConfig::new(ports, region.clone(), session(), Arc::clone(&server))
                })
            })
            .collect();
        Self {
            counters: workers.iter().map(Worker::counters).collect(),
            slots: region.capacity(),
            region,
            store,
            server,
            workers,
            wires: far.queues,
            announcer,
            offloads,
            updaters,
            _alone,
        }
    }

    /// Puts a frame on worker 0's wire.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.send_to(0, bytes);
    }

    pub(crate) fn send_to(&mut self, worker: usize, bytes: &[u8]) {
        let mut frame = self.region.alloc().expect("a slot for the request");
        frame.fill(bytes).unwrap();
        let mut burst = Burst::new();
        burst.push(frame);
        assert_eq!(self.wires[worker].tx.burst(&mut burst), 1, "the wire is full");
    }

    /// Lets every worker work until nothing moves any more, and no engine is at work.
    pub(crate) fn settle(&mut self) {
        let begun = Instant::now();
        let moved = |workers: &mut Vec<Worker>| workers.iter_mut().map(Worker::turn).sum::<usize>();
        while moved(&mut self.workers) > 0 || self.ledger().in_flight > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the workers do not come to rest");
        }
    }

    /// The one GPU.
    pub(crate) fn offload(&self) -> &Offload {
        &self.offloads[0]
    }

    /// Brings the indexes on the GPUs up to date.
    pub(crate) fn refresh(&mut self) {
        for updater in &mut self.updaters {
            while updater.turn() > 0 {}
        }
    }

    /// Rows that the GPU has.
    pub(crate) fn rows(&self) -> u64 {
        self.updaters.iter().map(|updater| updater.counters().filled()).sum()
    }

    /// What has come out for the client of worker `n`.
    pub(crate) fn received(&mut self, worker: usize) -> Vec<Frame> {
        let mut all = Vec::new();
        let mut burst = Burst::new();
        while self.wires[worker].rx.burst(&mut burst) > 0 {
            all.extend(burst.drain(..));
        }
        all
    }

    /// Asks worker 0 and gives the datagrams of the answer, each checked to be well formed.
    pub(crate) fn ask_datagrams(&mut self, wrap: Wrap, text: &[u8]) -> Vec<Datagram> {
        self.send(&request(wrap, 0x1234, text));
        self.settle();
        let frames = self.received(0);
        frames.iter().map(|f| open(wrap, f.bytes())).collect()
    }

    /// Asks worker 0 and gives the text of the answer, put together from its datagrams.
    pub(crate) fn ask(&mut self, text: &[u8]) -> Vec<u8> {
        self.ask_by(Wrap::V4, text)
    }

    pub(crate) fn ask_by(&mut self, wrap: Wrap, text: &[u8]) -> Vec<u8> {
        let datagrams = self.ask_datagrams(wrap, text);
        let mut whole = Vec::new();
        for (seq, d) in datagrams.iter().enumerate() {
            assert_eq!((d.id, d.seq as usize, d.total as usize), (0x1234, seq, datagrams.len()));
            assert!(d.text.len() == 1392 || seq + 1 == datagrams.len());
            whole.extend_from_slice(&d.text);
        }
        whole
    }

    pub(crate) fn ledger(&self) -> Ledger {
        let mut sum = Ledger::default();
        for c in &self.counters {
            sum.add(&c.ledger());
        }
        sum
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        *self.ledger().dropped.of(reason)
    }

    /// Ends the journey: everything is accounted for and no slot is lost.
    pub(crate) fn end(mut self) -> Ledger {
        self.settle();
        for w in &mut self.workers {
            w.drain();
        }
        for n in 0..self.wires.len() {
            self.received(n);
        }
        let ledger = self.ledger();
        assert!(ledger.balances(), "{ledger:?}");
        assert_eq!(ledger.in_flight, 0);
        drop(self.workers);
        drop(self.wires);
        drop((self.updaters, self.offloads));
        assert_eq!(self.region.available(), self.slots, "slots leaked");
        ledger
    }
}

/// The memcached frame header and the text behind it.
pub(crate) fn datagram(id: u16, text: &[u8]) -> Vec<u8> {
    let mut d = id.to_be_bytes().to_vec();
    d.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
    d.extend_from_slice(text);
    d
}

/// A request frame, as the client would send it.
pub(crate) fn request(wrap: Wrap, id: u16, text: &[u8]) -> Vec<u8> {
    frame(wrap, CLIENT_PORT, PORT, &datagram(id, text))
}

/// A UDP frame from the client to the server.
pub(crate) fn frame(wrap: Wrap, from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let vlan = |id: u16| id.try_into().unwrap();
    let eth = PacketBuilder::ethernet2(PEER_MAC.0, MAC.0);
    let mut bytes = Vec::new();
    match wrap {
        Wrap::V4 => eth.ipv4(CLIENT4, SERVER4, 57).udp(from, to).write(&mut bytes, payload),
        Wrap::V6 => eth.ipv6(CLIENT6, SERVER6, 57).udp(from, to).write(&mut bytes, payload),
        Wrap::Vlan4 => eth
            .single_vlan(vlan(7))
            .ipv4(CLIENT4, SERVER4, 57)
            .udp(from, to)
            .write(&mut bytes, payload),
        Wrap::QinQ6 => eth
            .double_vlan(vlan(7), vlan(8))
            .ipv6(CLIENT6, SERVER6, 57)
            .udp(from, to)
            .write(&mut bytes, payload),
    }
    .unwrap();
    bytes
}

/// Takes a reply apart. Panics unless it is as well formed as a kernel wants it, and more.
pub(crate) fn open(wrap: Wrap, bytes: &[u8]) -> Datagram {
    try_open(wrap, bytes).unwrap_or_else(|fault| panic!("{fault}: {bytes:x?}"))
}

/// Takes a reply apart, or says what is wrong with it.
pub(crate) fn try_open(wrap: Wrap, bytes: &[u8]) -> Result<Datagram, &'static str> {
    let check = |right: bool, fault| if right { Ok(()) } else { Err(fault) };
    let packet = SlicedPacket::from_ethernet(bytes).map_err(|_| "malformed")?;
    let Some(etherparse::LinkSlice::Ethernet2(eth)) = packet.link else { return Err("no link") };
    check((eth.source(), eth.destination()) == (MAC.0, PEER_MAC.0), "Ethernet addresses")?;
    let tags = packet.link_exts.len();
    let want = match wrap {
        Wrap::V4 | Wrap::V6 => 0,
        Wrap::Vlan4 => 1,
        Wrap::QinQ6 => 2,
    };
    check(tags == want, "VLAN tags")?;
    let Some(TransportSlice::Udp(udp)) = packet.transport else { return Err("not UDP") };
    check((udp.source_port(), udp.destination_port()) == (PORT, CLIENT_PORT), "UDP ports")?;
    check(udp.checksum() != 0, "no UDP checksum")?;
    let header = udp.to_header();
    let sum = match packet.net {
        Some(NetSlice::Ipv4(ip)) if matches!(wrap, Wrap::V4 | Wrap::Vlan4) => {
            let h = ip.header();
            check((h.source(), h.destination()) == (SERVER4, CLIENT4), "IPv4 addresses")?;
            check(h.header_checksum() == h.to_header().calc_header_checksum(), "IPv4 checksum")?;
            check(usize::from(h.total_len()) + 14 + 4 * tags == bytes.len(), "IPv4 length")?;
            check(h.ttl() > 1, "TTL")?;
            header.calc_checksum_ipv4_raw(h.source(), h.destination(), udp.payload())
        }
        Some(NetSlice::Ipv6(ip)) if matches!(wrap, Wrap::V6 | Wrap::QinQ6) => {
            let h = ip.header();
            check((h.source(), h.destination()) == (SERVER6, CLIENT6), "IPv6 addresses")?;
            check(usize::from(h.payload_length()) + 54 + 4 * tags == bytes.len(), "IPv6 length")?;
            check(h.hop_limit() > 1, "hop limit")?;
            header.calc_checksum_ipv6_raw(h.source(), h.destination(), udp.payload())
        }
        _ => return Err("another network"),
    };
    check(sum.is_ok_and(|sum| udp.checksum() == sum), "UDP checksum")?;
    let p = udp.payload();
    check(p.len() > 8 && p.len() <= 1400, "payload length")?;
    check(p[6..8] == [0, 0], "reserved field")?;
    let n = |i: usize| u16::from_be_bytes([p[i], p[i + 1]]);
    Ok(Datagram { id: n(0), seq: n(2), total: n(4), text: p[8..].to_vec() })
}
