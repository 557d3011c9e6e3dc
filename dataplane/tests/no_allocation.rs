//! D11: after start-up, nothing on the data path allocates.
//!
//! A binary of its own, because it counts every allocation of the process.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "tests")]

use dataplane::announce::Announcer;
use dataplane::capture::{Capture, Filter, KeyPattern, What};
use dataplane::observe::Server;
use dataplane::policy::{Policy, Rate};
use dataplane::stages::batch::{BatchMode, BatchPolicy};
use dataplane::stages::fast_path::FastPathMode;
use dataplane::stages::stream::StreamsConfig;
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use driver_shim::ports::memory::{LoopingConfig, MAC, PEER_MAC, linked, looping};
use driver_shim::{Burst, Pages, QueuePair, Region, RxChecksum, TxCaps};
use etherparse::{PacketBuilder, TcpHeader};
use std::alloc::{GlobalAlloc, Layout, System};
use std::num::{NonZeroU8, NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::{Store, StoreConfig};
use wire::DropReason;
use wire::{Cidr, Local, tcp};

struct Counting;

static ARMED: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ARMED.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TRUSTED: [u8; 4] = [10, 0, 0, 1];

/// Some sources are trusted, some are above their rate, and all are charged for.
fn policy() -> Policy {
    let rate = |requests, bytes| Rate {
        requests: NonZeroU32::new(requests),
        reply_bytes: NonZeroU64::new(bytes),
    };
    Policy {
        source: rate(10, 20_000),
        total: rate(1_000_000_000, 1_000_000_000_000),
        trusted_source: rate(1_000_000_000, 1_000_000_000_000),
        answers: NonZeroU32::new(1),
        ..Policy::default()
    }
}

fn datagram(source: [u8; 4], text: &str) -> Vec<u8> {
    let payload = [&[0, 1, 0, 0, 0, 1, 0, 0], text.as_bytes()].concat();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], MAC.0)
        .ipv4(source, [10, 0, 0, 2], 64)
        .udp(40_000, 11_211)
        .write(&mut frame, &payload)
        .unwrap();
    frame
}

/// Gets, hits and misses, and in each row of four at most one request of another kind.
fn templates_of_gets() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for i in 0..200 {
        let other = match i % 4 {
            0 => format!("set key{i} 0 0 {}\r\n{}\r\n", i * 7, "v".repeat(i * 7)),
            1 => "version\r\n".to_owned(),
            2 => format!("touch key{i} 0\r\n"),
            _ => format!("mg key{i} v\r\n"),
        };
        let get = |n: usize| format!("get key{}\r\n", n % 200);
        for text in [other, get(i + 50), get(i + 100), get(i + 151)] {
            all.push(datagram(TRUSTED, &text));
        }
    }
    all
}

/// Frames of every kind that the data path knows, over and over.
fn templates() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for i in 0..200 {
        let value = "v".repeat(i * 7);
        for text in [
            format!("set key{i} 0 0 {}\r\n{value}\r\n", value.len()),
            format!("get key{i}\r\n"),
            format!("gets key{i} key{} nokey\r\n", i / 2),
            format!("get key0 key1 key2 key3 key4 key5 key6 key{i}\r\n"),
            format!("get key{i}\r\nbogus\r\n"),
            format!("delete key{}\r\n", i * 3),
            "version\r\n".to_owned(),
            "set cut off\r\n".to_owned(),
        ] {
            let from = |source| datagram(source, &text);
            let mut frame = from(TRUSTED);
            all.push(frame.clone());
            // Its checksum broken: dropped.
            let last = frame.len() - 1;
            frame[last] ^= 1;
            all.push(frame);
            // From sources that are served, but not trusted.
            all.push(from([10, 0, 0, u8::try_from(3 + i).unwrap()]));
        }
        let mut ping = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], MAC.0)
            .ipv4(TRUSTED, [10, 0, 0, 2], 64)
            .icmpv4_echo_request(1, 1)
            .write(&mut ping, b"ping")
            .unwrap();
        all.push(ping);
    }
    all
}

/// Allocations are counted for the whole process, so its tests take turns.
static ALONE: Mutex<()> = Mutex::new(());

/// A worker that gets these frames, with batches, limits and a fast path of this kind.
fn worker(
    templates: Vec<Vec<u8>>,
    mode: BatchMode,
    policy: Policy,
    fast_path: FastPathMode,
    announcer: &Arc<Announcer>,
) -> Worker {
    let region = Region::new(4096, Pages::Small).unwrap();
    // Small enough that sets evict.
    let config =
        StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let port = looping(
        &region,
        &LoopingConfig {
            templates,
            queues: 1,
            frames_per_queue: 512,
            rx: RxChecksum::default(),
            tx_caps: TxCaps::default(),
            inspect: None,
        },
    )
    .unwrap();
    let addresses = [([10, 0, 0, 2].into(), 24)];
    let own = Local::new(MAC, &addresses, 11_211).unwrap();
    let trusted = std::iter::once(Cidr::around(TRUSTED.into(), 32)).collect();
    let local = Arc::new(Local { allow: own.trusted.clone(), trusted, ..own });
    let worker_port = |queues| WorkerPort {
        announcer: Some(Arc::clone(announcer)),
        ..WorkerPort::new(queues, port.info.clone(), Arc::clone(&local))
    };
    let ports = port.queues.into_iter().map(worker_port).collect();
    let server = Arc::new(Server::new(Arc::clone(&store), "test".to_owned()));
    let config = WorkerConfig::new(ports, region, store.session().unwrap(), server);
    let batch = BatchPolicy { mode, ..BatchPolicy::default() };
    Worker::new(WorkerConfig { batch, policy, fast_path, ..config })
}

#[test]
fn the_data_path_allocates_nothing() {
    let _alone = ALONE.lock();
    let announcer = Arc::new(Announcer::default());
    let fast_path = FastPathMode::default();
    let mut worker = worker(templates(), BatchMode::Fixed, policy(), fast_path, &announcer);
    let counters = worker.counters();
    let line = worker.capture_channel();
    let mut work = |requests: u64| {
        let until = counters.received.get() + requests;
        while counters.received.get() < until {
            worker.turn();
        }
    };
    work(10_000);
    ARMED.store(true, Ordering::Relaxed);
    announcer.order();
    work(150_000);
    ARMED.store(false, Ordering::Relaxed);
    let filter = |what| Filter {
        what,
        source: Some(Cidr::around(TRUSTED.into(), 24)),
        key: Some(KeyPattern::new(b"key1*").unwrap()),
        snap_bytes: 2048,
    };
    for what in [What::Traffic, What::Drops(None)] {
        let capture = Arc::new(Capture::new(NonZeroU8::MIN, filter(what), 1, 2048).unwrap());
        line.order(Some(Arc::clone(&capture))).unwrap();
        ARMED.store(true, Ordering::Relaxed);
        work(10_000);
        while let Some(record) = capture.take() {
            capture.give_back(record);
        }
        work(10_000);
        line.order(None).unwrap();
        work(100);
        ARMED.store(false, Ordering::Relaxed);
        let [tally] = capture.tallies() else { panic!("one port") };
        assert!(tally.received.get() > 20_000 && tally.lost.get() > 0);
        assert_eq!(tally.wanted.get(), tally.lost.get() + 2048 + 2048);
        assert_eq!(Arc::strong_count(&capture), 1, "the worker has dropped it");
    }
    assert_eq!(ALLOCATIONS.swap(0, Ordering::Relaxed), 0, "allocations on the data path");
    assert_eq!(counters.announcements.get(), 1);
    let ledger = counters.ledger();
    assert!(ledger.balances());
    assert!(counters.fast.get() > 10_000 && counters.slow.get() > 10_000);
    assert!(ledger.answered > 40_000);
    assert!(counters.amplification_refused.get() > 0);
    for reason in [DropReason::RateSource, DropReason::RateEcho] {
        assert!(*ledger.dropped.of(reason) > 0, "{}", reason.name());
    }
    the_fast_path_allocates_nothing();
}

/// Where batches do not wait and nothing is counted of trusted sources.
fn the_fast_path_allocates_nothing() {
    for fast_path in [FastPathMode::Off, FastPathMode::Portable, FastPathMode::Vector] {
        let (mode, policy) = (BatchMode::Adaptive, Policy::default());
        let mut worker = worker(templates_of_gets(), mode, policy, fast_path, &Arc::default());
        let counters = worker.counters();
        for (armed, until) in [(false, 10_000), (true, 100_000)] {
            ARMED.store(armed, Ordering::Relaxed);
            while counters.received.get() < until {
                worker.turn();
            }
        }
        ARMED.store(false, Ordering::Relaxed);
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0, "allocations, {fast_path:?}");
        assert!(counters.fast.get() > 70_000 && counters.slow.get() > 10_000);
        // A turn has one batch at most for the general stages; another is what the fast path did.
        let (turns, batches) = (counters.turns.get(), counters.batches.get());
        let passes = batches.saturating_sub(turns);
        let want = if fast_path == FastPathMode::Off { 0..=0 } else { turns / 2..=turns };
        assert!(want.contains(&passes), "{fast_path:?}: {batches} batches in {turns} turns");
        assert!(counters.ledger().balances());
    }
}

/// Connections of a TCP client, from ports 5000 on.
const CONNECTIONS: u8 = 6;

/// A TCP client that makes its segments from templates, and takes no memory itself.
struct Client {
    wire: QueuePair,
    region: Region,
    /// Of each connection, what it sends and acknowledges next.
    ends: [(u32, u32); CONNECTIONS as usize],
}

/// Where the TCP header and the payload begin in a segment without options.
const TCP_AT: usize = 34;
const PAYLOAD_AT: usize = 54;

impl Client {
    /// A segment with such flags, whose sequence numbers are still to be set.
    fn template(flags: &str, payload: &[u8]) -> Vec<u8> {
        let mut head = TcpHeader::new(5000, 11_211, 0, 60_000);
        (head.syn, head.ack) = (flags.contains('S'), flags.contains('A'));
        head.fin = flags.contains('F');
        let builder = PacketBuilder::ethernet2(PEER_MAC.0, MAC.0);
        let builder = builder.ipv4(TRUSTED, [10, 0, 0, 2], 64).tcp_header(head);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, payload).unwrap();
        bytes
    }

    /// Sends a segment on each connection, in one burst, and gives how many bytes of payload came back.
    fn ask(&mut self, worker: &mut Worker, template: &[u8]) -> usize {
        let mut burst = Burst::new();
        for (n, (seq, ack)) in (0..).zip(&mut self.ends) {
            let mut frame = self.region.alloc().unwrap();
            frame.fill(template).unwrap();
            let bytes = frame.bytes_mut();
            bytes[TCP_AT..TCP_AT + 2].copy_from_slice(&(5000_u16 + n).to_be_bytes());
            bytes[TCP_AT + 4..TCP_AT + 8].copy_from_slice(&seq.to_be_bytes());
            bytes[TCP_AT + 8..TCP_AT + 12].copy_from_slice(&ack.to_be_bytes());
            tcp::seal(&mut bytes[14..], 20, false);
            let controls = u32::from(bytes[TCP_AT + 13] & 3 != 0);
            *seq += u32::try_from(template.len() - PAYLOAD_AT).unwrap() + controls;
            burst.push(frame);
        }
        self.wire.tx.burst(&mut burst);
        worker.turn();
        let mut came = 0;
        self.wire.rx.burst(&mut burst);
        for frame in burst.drain(..) {
            let bytes = frame.bytes();
            let head = usize::from(bytes[TCP_AT + 12] >> 4) * 4;
            let payload = frame.len() - TCP_AT - head;
            let seq: [u8; 4] = bytes[TCP_AT + 4..TCP_AT + 8].try_into().unwrap();
            let controls = u32::from(bytes[TCP_AT + 13] & 3 != 0);
            let payload_len = u32::try_from(payload).unwrap();
            let port: [u8; 2] = bytes[TCP_AT + 2..TCP_AT + 4].try_into().unwrap();
            let (_, ack) = &mut self.ends[usize::from(u16::from_be_bytes(port) - 5000)];
            *ack = u32::from_be_bytes(seq).wrapping_add(payload_len + controls);
            came += payload;
        }
        came
    }
}

#[test]
fn tcp_in_the_worker_allocates_nothing() {
    let _alone = ALONE.lock();
    let region = Region::new(512, Pages::Small).unwrap();
    let config =
        StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let (port, mut far) = linked(1, 256);
    let own = Local::new(MAC, &[([10, 0, 0, 2].into(), 24)], 11_211).unwrap();
    let local = Arc::new(Local { tcp_port: Some(11_211), ..own });
    let server = Arc::new(Server::new(Arc::clone(&store), "test".to_owned()));
    let worker_port = |queues| WorkerPort::new(queues, port.info.clone(), Arc::clone(&local));
    let ports = port.queues.into_iter().map(worker_port).collect();
    let session = || store.session().unwrap();
    let mut worker = Worker::new(WorkerConfig {
        streams: Some(StreamsConfig::new(8, session(), 1 << 20)),
        ..WorkerConfig::new(ports, region.clone(), session(), Arc::clone(&server))
    });
    let [syn, ack, fin] = ["S", "A", "FA"].map(|flags| Client::template(flags, b""));
    let set =
        Client::template("A", format!("set key 0 0 600\r\n{}\r\n", "v".repeat(600)).as_bytes());
    let get = Client::template("A", b"get key\r\nget nokey\r\nmg key v\r\nget key\r\n");
    let each = usize::from(CONNECTIONS);
    let mut client = Client { wire: far.queues.remove(0), region, ends: Default::default() };
    let mut connections = |n: usize| {
        for _ in 0..n {
            client.ends.iter_mut().for_each(|(_, ack)| *ack = 0);
            client.ask(&mut worker, &syn);
            client.ask(&mut worker, &ack);
            for _ in 0..40 {
                assert_eq!(client.ask(&mut worker, &set), each * 8);
                assert_eq!(client.ask(&mut worker, &get), each * (624 + 5 + 610 + 624));
            }
            client.ask(&mut worker, &fin);
            client.ask(&mut worker, &ack);
        }
    };
    connections(20);
    ARMED.store(true, Ordering::Relaxed);
    connections(200);
    ARMED.store(false, Ordering::Relaxed);
    assert_eq!(ALLOCATIONS.swap(0, Ordering::Relaxed), 0, "allocations on the data path");
    let totals = server.totals();
    let all = 220 * u64::from(CONNECTIONS);
    assert_eq!((totals.total_connections, totals.closed_connections), (all, all));
    assert!(worker.counters().ledger().balances());
}
