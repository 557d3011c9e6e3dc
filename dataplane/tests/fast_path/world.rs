//! A worker that is asked, and everything that it counts.
#![allow(unsafe_code)]

use dataplane::commands::{Conversation, Ctx, execute, stats};
use dataplane::observe::watch::Watching;
use dataplane::observe::{OpCounters, Rows, Server};
use dataplane::stages::batch::BatchPolicy;
use dataplane::stages::engine::dispatch::Offloading;
use dataplane::stages::fast_path::FastPathMode;
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use dataplane::{Counter, WorkerCounters};
use driver_shim::ports::memory::{MAC, linked};
use driver_shim::{Burst, Pages, QueuePair, Region, RxQueue, SLOT_BYTES, TxCaps};
use memcache::sink::Buffer;
use memcache::{Dialect, Dialects, Parsed};
use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use store::{Session, Store, StoreConfig};
use wire::verify::{verify_ip4_header, verify_udp};
use wire::{Cidr, Eth, Local, eth};

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const PORT: u16 = 11_211;

const ALL_SUMS: TxCaps = TxCaps { ip: true, udp: true };

/// What was sent last in each slot.
pub(crate) type Sent = Arc<Mutex<HashMap<u32, Vec<u8>>>>;

/// What a worker is tuned to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuning {
    pub(crate) cas_enabled: bool,
    /// Its ports, which are two and seal other sums, verify checksums of some frames; some begin elsewhere in their slots, or are of other regions.
    pub(crate) is_odd: bool,
}

/// A worker at one end of a wire.
pub(crate) struct World {
    pub(crate) worker: Worker,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) server: Arc<Server>,
    pub(crate) session: Session,
    /// The other ends of its ports.
    pub(crate) near: Vec<Near>,
    pub(crate) region: Region,
    sent: Sent,
    is_odd: bool,
    /// Whose slots are not the worker's.
    foreign: Region,
    watching: Option<Watching>,
}

/// The other end of a port.
pub(crate) struct Near {
    queues: QueuePair,
    /// Replies come with their checksums.
    pub(crate) sums: bool,
}

impl World {
    pub(crate) fn new(fast_path: FastPathMode, caps: TxCaps) -> Self {
        Self::speaking(Dialects::Auto, fast_path, caps)
    }

    pub(crate) fn speaking(dialects: Dialects, fast_path: FastPathMode, caps: TxCaps) -> Self {
        let config = StoreConfig { memory_bytes: 64 << 20, ..StoreConfig::default() };
        Self::over(config, dialects, fast_path, caps)
    }

    pub(crate) fn over(
        config: StoreConfig,
        dialects: Dialects,
        fast_path: FastPathMode,
        caps: TxCaps,
    ) -> Self {
        Self::with_offload(config, dialects, fast_path, caps, BatchPolicy::default(), |_, _| None)
    }

    /// With ports of all kinds.
    pub(crate) fn odd(
        fast_path: FastPathMode,
        caps: TxCaps,
        (dialects, cas_enabled): (Dialects, bool),
    ) -> Self {
        let config = StoreConfig { memory_bytes: 64 << 20, ..StoreConfig::default() };
        let tuning = (fast_path, Tuning { cas_enabled, is_odd: true });
        Self::tuned(config, dialects, tuning, caps, BatchPolicy::default(), |_, _| None)
    }

    /// With the offload that is made of the store and of what is sent.
    pub(crate) fn with_offload(
        config: StoreConfig,
        dialects: Dialects,
        fast_path: FastPathMode,
        caps: TxCaps,
        batch: BatchPolicy,
        engine: impl FnOnce(&Arc<Store>, &Sent) -> Option<Offloading>,
    ) -> Self {
        let tuning = Tuning { cas_enabled: true, is_odd: false };
        Self::tuned(config, dialects, (fast_path, tuning), caps, batch, engine)
    }

    /// The same, tuned.
    pub(crate) fn tuned(
        config: StoreConfig,
        dialects: Dialects,
        (fast_path, Tuning { cas_enabled, is_odd }): (FastPathMode, Tuning),
        caps: TxCaps,
        batch: BatchPolicy,
        engine: impl FnOnce(&Arc<Store>, &Sent) -> Option<Offloading>,
    ) -> Self {
        let region = Region::new(4096, Pages::Small).unwrap();
        let hash_key = Some(*b"a key for a test");
        let store = Store::new(StoreConfig { pages: Pages::Small, hash_key, ..config }).unwrap();
        store.clock().hold();
        let mut server = Server::new(Arc::clone(&store), "test".to_owned());
        (server.dialects, server.cas_enabled) = (dialects, cas_enabled);
        let (server, sent) = (Arc::new(server), Sent::default());
        let offload = engine(&store, &sent);
        let own = [(IpAddr::V4(SERVER), 24), ("fd00::2".parse().unwrap(), 64)];
        let local = Local::new(MAC, &own, PORT).unwrap();
        let allow =
            ["11.0.0.0/8", "fd11::/16"].map(|c| c.parse::<Cidr>().unwrap()).into_iter().collect();
        let local = Arc::new(Local { allow, ..local });
        let others = if caps == TxCaps::default() { ALL_SUMS } else { TxCaps::default() };
        let (mut ports, mut near) = (Vec::new(), Vec::new());
        for caps in if is_odd { vec![caps, others] } else { vec![caps] } {
            let (mut port, mut far) = linked(1, 2048);
            port.info.tx_caps = caps;
            let mut queues = port.queues.pop().unwrap();
            if is_odd {
                queues.rx = Box::new(Verified { rx: queues.rx });
            }
            ports.push(WorkerPort::new(queues, port.info, Arc::clone(&local)));
            let sums = caps == TxCaps::default();
            near.push(Near { queues: far.queues.pop().unwrap(), sums });
        }
        let session = store.session().unwrap();
        let config = WorkerConfig::new(ports, region.clone(), session, Arc::clone(&server));
        let worker = Worker::new(WorkerConfig { batch, offload, fast_path, ..config });
        let (counters, session) = (worker.counters(), store.session().unwrap());
        let foreign = Region::new(256, Pages::Small).unwrap();
        let watching = None;
        Self { worker, counters, server, session, near, region, sent, is_odd, foreign, watching }
    }

    /// What comes back for a burst of one port, sorted: replies to different keys may leave in any order.
    pub(crate) fn ask(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let ports = self.near.len();
        let port = frames.first().map_or(0, |first| usize::try_from(draw(first, 3)).unwrap());
        self.ask_by(frames, |_| port % ports)
    }

    /// The same, each frame by a port of its own. What comes by two ports at a time has no order.
    pub(crate) fn ask_by(
        &mut self,
        frames: &[Vec<u8>],
        port_of: impl Fn(&[u8]) -> usize,
    ) -> Vec<Vec<u8>> {
        let mut bursts: Vec<Burst> = self.near.iter().map(|_| Burst::new()).collect();
        for bytes in frames {
            let is_foreign = self.is_odd && draw(bytes, 0).is_multiple_of(256);
            let region = if is_foreign { &self.foreign } else { &self.region };
            let mut frame = region.alloc().unwrap();
            // Where a frame begins is the port's to say.
            let off = [0, 1, 127, 236, 237, 255, 256, 257]
                .get(usize::try_from(draw(bytes, 2) % 256).unwrap())
                .copied()
                .filter(|off| self.is_odd && off + bytes.len() <= SLOT_BYTES);
            if let Some(off) = off {
                // SAFETY: the slot was just taken from its pool, and the frame that had it is no more.
                frame = unsafe { region.frame(frame.into_slot(), off, 0) };
            }
            frame.fill(bytes).unwrap();
            if !is_foreign {
                self.sent.lock().unwrap().insert(frame.slot(), bytes.clone());
            }
            bursts[port_of(bytes)].push(frame);
        }
        for (near, burst) in self.near.iter_mut().zip(&mut bursts) {
            let n = burst.len();
            assert_eq!(near.queues.tx.burst(burst), n);
        }
        while self.worker.turn() > 0 || self.counters.in_flight.get() > 0 {}
        let mut replies = Vec::new();
        for (port, (near, burst)) in self.near.iter_mut().zip(&mut bursts).enumerate() {
            while near.queues.rx.burst(burst) > 0 {
                for frame in burst.drain(..) {
                    let mut bytes = frame.bytes().to_vec();
                    // The general stages have the same sums of values from the store.
                    if near.sums
                        && let Some((l3, l4, ipv6)) = udp_of(&bytes)
                    {
                        let good = (ipv6 || verify_ip4_header(&bytes, l3))
                            && verify_udp(&bytes, l3, l4, ipv6);
                        assert!(good, "{}", String::from_utf8_lossy(&bytes));
                    }
                    bytes.extend(format!("port {port}, {:?}", frame.tx).bytes());
                    replies.push(bytes);
                }
            }
        }
        replies.sort_unstable();
        replies
    }

    /// Somebody watches what is fetched, stored and deleted, from now on or no more.
    pub(crate) fn watch(&mut self, is_on: bool) {
        let (mut conversation, mut out) = (Conversation::new(1 << 20), Vec::new());
        let ops = OpCounters::default();
        let mut ctx = Ctx::new(&mut self.session, &ops, &self.server);
        let text = b"watch fetchers mutations deletions\r\n";
        conversation.advance(&mut ctx, text, Buffer::new(&mut out, usize::MAX));
        self.watching = is_on.then(|| conversation.take_watching().unwrap());
    }

    /// What was seen since the last time, sorted, without times and numbers.
    pub(crate) fn seen(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.watching.iter().for_each(|watching| watching.take(&mut lines));
        let lines = String::from_utf8(lines).unwrap();
        let what = |line: &str| line.split_once(" type=").unwrap().1.to_owned();
        let mut seen: Vec<String> = lines.lines().map(what).collect();
        seen.sort_unstable();
        seen
    }

    /// How many keys the store confirmed where the engine had located them, and how many not. Where a key is read
    /// and set in one burst that depends on how requests came together: a batch is looked up before any of
    /// it is carried out.
    pub(crate) fn hints(&self) -> (u64, u64) {
        (self.counters.hints_right.get(), self.counters.hints_wrong.get())
    }

    /// So many seconds later on the store's clock.
    pub(crate) fn later(worlds: &mut [Self], seconds: u32) {
        worlds.iter().for_each(|world| world.server.store.clock().skip_ahead(seconds));
    }

    /// Housekeeping's turn.
    pub(crate) fn housekeep(worlds: &mut [Self]) {
        worlds.iter().for_each(|world| world.server.store.housekeep());
    }

    /// What comes over TCP.
    pub(crate) fn execute(&mut self, text: &[u8]) -> Vec<u8> {
        let (mut out, ops) = (Vec::new(), OpCounters::default());
        let parsed = Dialect::Ascii.parse(text, 1 << 20);
        let Parsed::Command { command, .. } = &parsed else { panic!("{parsed:?}") };
        let mut ctx = Ctx::new(&mut self.session, &ops, &self.server);
        execute(&mut ctx, command, &mut Buffer::new(&mut out, usize::MAX));
        out
    }

    /// All that is stored under these keys.
    pub(crate) fn stored(&mut self, keys: &[String]) -> Vec<String> {
        let ask = |key: &String| {
            let reply = self.execute(format!("mg {key} u h l t c f s v\r\n").as_bytes());
            format!("{key} {}", String::from_utf8_lossy(&reply))
        };
        keys.iter().map(ask).collect()
    }

    /// Everything that is counted, but how requests came together, and how long anything took.
    pub(crate) fn counted(&mut self) -> Vec<String> {
        let c = &self.counters;
        let mut all: Vec<String> = [
            ("received", &c.received),
            ("answered", &c.answered),
            ("punted", &c.punted),
            ("in_flight", &c.in_flight),
            ("responded", &c.responded),
            ("amplification_refused", &c.amplification_refused),
            ("too_long_refused", &c.too_long_refused),
            ("tx_frames", &c.tx_frames),
            ("tx_bytes", &c.tx_bytes),
            ("tx_parts_lost", &c.tx_parts_lost),
            ("batched", &c.batched),
            ("fast", &c.fast),
            ("slow", &c.slow),
        ]
        .map(|(name, counter): (&str, &Counter)| format!("{name} {}", counter.get()))
        .into();
        all.extend(c.dropped.iter().map(|(reason, n)| format!("{reason:?} {}", n.get())));
        all.push(format!("batched in all {}", c.batch_sizes.sum()));
        all.push(format!("{:?}", self.server.totals()));
        for d in self.server.distributions() {
            all.push(format!("{} {} {}", d.transport, d.kind, d.count));
        }
        let mut rows = Lines(Vec::new());
        let ops = OpCounters::default();
        let mut ctx = Ctx::new(&mut self.session, &ops, &self.server);
        for page in ["slabs", "items", "hotkeys"] {
            stats::page(&mut ctx, Some(page.as_bytes()), &mut rows);
        }
        // Which keys are sampled depends on the order of requests.
        all.extend(rows.0.into_iter().filter(|line| {
            !line.contains(":age")
                && (!line.contains(":key ")
                    && !line.contains(":count ")
                    && !line.contains(":error "))
        }));
        all
    }
}

/// A number that follows from the frame alone, so that each worker draws the same.
fn draw(frame: &[u8], seed: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed;
    for byte in frame {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^ hash >> 29
}

/// A port that verifies checksums, of some frames, and says of frames of its own host that sums that were not filled in are
/// good.
struct Verified {
    rx: Box<dyn RxQueue>,
}

impl RxQueue for Verified {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let before = into.len();
        let n = self.rx.burst(into);
        for frame in &mut into[before..] {
            let bytes = frame.bytes();
            let drawn = draw(bytes, 1) % 16;
            let Some((l3, l4, ipv6)) = udp_of(bytes) else { continue };
            let ip_good = !ipv6 && verify_ip4_header(bytes, l3);
            let udp_good = verify_udp(bytes, l3, l4, ipv6);
            let (says_ip, says_udp) = [(true, true), (true, false), (false, true), (false, false)]
                [usize::try_from(drawn % 4).unwrap()];
            frame.rx.ip_good = (says_ip && ip_good).into();
            frame.rx.udp_good = (says_udp && udp_good).into();
            if drawn == 4 && udp_good {
                frame.bytes_mut()[usize::from(l4) + 6] ^= 0x55;
                (frame.rx.ip_good, frame.rx.udp_good) = (ip_good.into(), true.into());
            }
        }
        n
    }
}

/// Where the network header of a frame begins, and the UDP header, and whether that is over IPv6.
pub(crate) fn udp_of(frame: &[u8]) -> Option<(u8, u8, bool)> {
    let eth = Eth::checked(frame).ok()?;
    let l3 = eth.l3();
    let at = |n: u8| frame.get(usize::from(l3 + n)).copied();
    match eth.ethertype() {
        eth::IPV4 if (at(0), at(9)) == (Some(0x45), Some(17)) => Some((l3, l3 + 20, false)),
        eth::IPV6 if at(6) == Some(17) => Some((l3, l3 + 40, true)),
        _ => None,
    }
}

pub(crate) struct Lines(pub(crate) Vec<String>);

impl Rows for Lines {
    fn row(&mut self, name: &str, value: &dyn Display) {
        self.0.push(format!("{name} {value}"));
    }
}
