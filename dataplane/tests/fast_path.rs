//! The fast path against the general stages: the same bursts to three workers, each with a store of
//! its own, one without a fast path, one with it, one with its portable twin. Every byte of every
//! reply is the same, and everything that is counted.
//!
//! `FAST_PATH_PACKETS=10000000` in the environment for a longer run.
#![allow(clippy::unwrap_used, reason = "tests")]

use dataplane::commands::{Ctx, execute, stats};
use dataplane::observe::{OpCounters, OpTotals, Rows, Server};
use dataplane::policy::Policy;
use dataplane::stages::batch::BatchPolicy;
use dataplane::stages::fast_path::Manner;
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use dataplane::{Counter, WorkerCounters};
use driver_shim::ports::memory::{MAC, PEER_MAC, linked};
use driver_shim::{Burst, Pages, QueuePair, Region, TxCaps};
use memcache::sink::Buffer;
use memcache::{Dialect, Dialects, Parsed};
use proptest::prelude::*;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use store::{Session, Store, StoreConfig};
use wire::DropReason;
use wire::build::UdpFrame;
use wire::corrupt::Corruption;
use wire::verify::{verify_ip4_header, verify_udp};
use wire::{Cidr, Local};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 11_211;

/// A worker at one end of a wire.
struct World {
    worker: Worker,
    counters: Arc<WorkerCounters>,
    server: Arc<Server>,
    session: Session,
    near: QueuePair,
    region: Region,
    /// Replies come with their checksums.
    sums: bool,
}

impl World {
    fn new(fast_path: Manner, caps: TxCaps) -> Self {
        Self::speaking(Dialects::Auto, fast_path, caps)
    }

    fn speaking(dialects: Dialects, fast_path: Manner, caps: TxCaps) -> Self {
        let config = StoreConfig { memory_bytes: 64 << 20, ..StoreConfig::default() };
        Self::over(config, dialects, fast_path, caps)
    }

    fn over(config: StoreConfig, dialects: Dialects, fast_path: Manner, caps: TxCaps) -> Self {
        let region = Region::new(4096, Pages::Small).unwrap();
        let hash_key = Some(*b"a key for a test");
        let store = Store::new(StoreConfig { pages: Pages::Small, hash_key, ..config }).unwrap();
        let mut server = Server::new(Arc::clone(&store), "test".to_owned());
        server.dialects = dialects;
        let server = Arc::new(server);
        let (mut port, mut far) = linked(1, 2048);
        port.info.tx_caps = caps;
        let own = [(IpAddr::V4(SERVER), 24), ("fd00::2".parse().unwrap(), 64)];
        let local = Local::new(MAC, &own, PORT).unwrap();
        let allow = ["11.0.0.0/8"].map(|c| c.parse::<Cidr>().unwrap()).into_iter().collect();
        let worker = Worker::new(WorkerConfig {
            ports: vec![WorkerPort {
                queues: port.queues.pop().unwrap(),
                info: port.info,
                local: Arc::new(Local { allow, ..local }),
                exception_path: None,
                sends_for_kernel: false,
                announcer: None,
            }],
            region: region.clone(),
            session: store.session().unwrap(),
            server: Arc::clone(&server),
            group: 32,
            batch: BatchPolicy::default(),
            policy: Policy::default(),
            offload: None,
            streams: None,
            fast_path,
        });
        let (counters, session) = (worker.counters(), store.session().unwrap());
        let near = far.queues.pop().unwrap();
        Self { worker, counters, server, session, near, region, sums: caps == TxCaps::default() }
    }

    /// What comes back for a burst, sorted: replies to different keys may leave in any order.
    fn ask(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut burst = Burst::new();
        for bytes in frames {
            let mut frame = self.region.alloc().unwrap();
            frame.fill(bytes).unwrap();
            burst.push(frame);
        }
        assert_eq!(self.near.tx.burst(&mut burst), frames.len());
        while self.worker.turn() > 0 {}
        let mut replies = Vec::new();
        while self.near.rx.burst(&mut burst) > 0 {
            replies.extend(burst.drain(..).map(|frame| (frame.bytes().to_vec(), frame.tx)));
        }
        let mut replies: Vec<Vec<u8>> = replies
            .into_iter()
            .map(|(mut bytes, tx)| {
                // The general stages have the same sums of values from the store.
                if self.sums && bytes[12..15] == [8, 0, 0x45] && bytes[23] == 17 {
                    let good = verify_ip4_header(&bytes, 14) && verify_udp(&bytes, 14, 34, false);
                    assert!(good, "{}", String::from_utf8_lossy(&bytes));
                }
                bytes.extend(format!("{tx:?}").bytes());
                bytes
            })
            .collect();
        replies.sort_unstable();
        replies
    }

    /// How many keys the store confirmed where the engine had located them, and how many not. Where a key is read
    /// and set in one burst that depends on how requests came together: a batch is looked up before any of
    /// it is carried out.
    fn hints(&self) -> (u64, u64) {
        (self.counters.hints_right.get(), self.counters.hints_wrong.get())
    }

    /// Everything that is counted, but how requests came together, and how long anything took.
    fn counted(&mut self) -> Vec<String> {
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

struct Lines(Vec<String>);

impl Rows for Lines {
    fn row(&mut self, name: &str, value: &dyn Display) {
        self.0.push(format!("{name} {value}"));
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    /// One of few keys, of 1 to 250 bytes.
    fn key(&mut self) -> String {
        let n = self.below(48);
        let len = match n {
            0..40 => 1 + n,
            _ => [63, 64, 100, 128, 200, 249, 250, 251][n - 40],
        };
        let first = char::from(b'a' + u8::try_from(n % 26).unwrap());
        std::iter::once(first).chain(('!'..='~').cycle().skip(n)).take(len).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        let lens = [
            0, 1, 9, 10, 31, 32, 33, 63, 64, 65, 99, 100, 127, 191, 192, 193, 500, 999, 1000, 1300,
        ];
        let len = match self.below(4) {
            0 => self.below(1380),
            _ => lens[self.below(lens.len())],
        };
        let byte = self.next().to_le_bytes();
        byte.into_iter().cycle().take(len).collect()
    }

    /// A `set`, nearly always a good one.
    fn set(&mut self) -> Vec<u8> {
        let (key, value) = (self.key(), self.value());
        let mut words = [
            self.of(&["0", "0", "0", "7", "12", "007", "123456789", "1234567890", "4294967295"]),
            self.of(&["0", "0", "0", "0", "100000", "0000", "2592001", "-1"]),
            &value.len().to_string(),
        ]
        .map(str::to_owned);
        let mut tail = self.of(&["", "", " noreply"]).to_owned();
        let (mut gap, mut line_end, mut end, mut behind) = (" ", "\r\n", "\r\n", "");
        match self.below(60) {
            0 => words[0] = self.of(&["4294967296", "-1", "a", "", "1 2"]).to_owned(),
            1 => words[1] = self.of(&["99999999999", "a", "", "1\u{1}2"]).to_owned(),
            2 => words[2] = self.of(&["0", "1", "99999", "0000000001", "-1", ""]).to_owned(),
            3 => words[2] = format!("{:04}", value.len()),
            4 => words[2] = format!("{}", value.len() + 1),
            5 => words[2] = format!("{}", value.len().saturating_sub(1)),
            6 => gap = self.of(&["  ", "\t", ""]),
            7 => line_end = self.of(&["\n", "\r", " \r\n", ""]),
            8 => end = self.of(&["\n", "\r", "xx", "", "\r\n\r\n"]),
            9 => {
                tail = self.of(&[" noreply ", " norepl", " 5", " no reply", "  noreply"]).to_owned()
            }
            10 => behind = self.of(&["get a\r\n", "delete a\r\n", "x"]),
            _ => {}
        }
        let [flags, exptime, len] = words;
        let line = format!("set {key}{gap}{flags} {exptime} {len}{tail}{line_end}");
        [line.as_bytes(), &value, end.as_bytes(), behind.as_bytes()].concat()
    }

    /// `sets` of 40 are `set`s, and some of the others; `None`: not any.
    fn text(&mut self, sets: Option<usize>, corpus: &[Vec<u8>]) -> Vec<u8> {
        if sets.is_some_and(|sets| self.below(40) < sets) {
            return self.set();
        }
        let key = self.key();
        let line = match self.below(40) {
            0..17 => format!("get {key}\r\n"),
            17..20 => {
                let keys: String = (0..self.below(5)).map(|_| format!(" {}", self.key())).collect();
                format!("{} {key}{keys}\r\n", self.of(&["get", "gets"]))
            }
            20 => format!("get {key}\n"),
            21 => format!("get {key} \r\n"),
            22 => format!("delete {key}\r\n"),
            23 => format!("incr {key} 1\r\n"),
            24 => format!("touch {key} {}\r\n", self.of(&["0", "-1", "1000"])),
            25 => format!("mg {key} v k t\r\n"),
            26 => match self.below(4) {
                0 => format!("md {key} I T30\r\n"),
                1 => format!("mg {key} N30 v\r\n"),
                2 => format!("ms {key} 3 I\r\nabc\r\n"),
                _ => format!("md {key}\r\n"),
            },
            27 => format!("get {key}\r\ndelete {}\r\n", self.key()),
            28 if self.below(50) == 0 => "flush_all\r\n".to_owned(),
            28 => format!("gat 0 {key}\r\n"),
            29 => {
                let mut binary = vec![0x80, [0, 4, 0xc][self.below(3)], 0];
                let len = u8::try_from(key.len()).unwrap();
                binary.extend([len, 0, 0, 0, 0, 0, 0, 0, len]);
                binary.extend([0; 12]);
                binary.extend(key.bytes());
                return binary;
            }
            30 if sets.is_none() => "version\r\n".to_owned(),
            30 if !corpus.is_empty() => return corpus[self.below(corpus.len())].clone(),
            30 => return Vec::new(),
            n => {
                let value = self.value();
                let verb = match n {
                    ..37 if sets.is_some() => "set",
                    _ => self.of(&["add", "replace", "append", "prepend"]),
                };
                let flags = if n % 2 == 0 { self.below(10) } else { self.below(1 << 32) };
                let exptime = self.of(&["0", "0", "0", "0", "0", "0", "-1", "100000"]);
                let noreply = self.of(&["", "", " noreply"]);
                let line = format!("{verb} {key} {flags} {exptime} {}{noreply}\r\n", value.len());
                return [line.as_bytes(), &value, b"\r\n"].concat();
            }
        };
        line.into_bytes()
    }

    fn frame(&mut self, id: u16, sets: Option<usize>, corpus: &[Vec<u8>]) -> Vec<u8> {
        let text = self.text(sets, corpus);
        let [id_hi, id_lo] = id.to_be_bytes();
        let mut payload = vec![id_hi, id_lo, 0, 0, 0, 1, 0, 0];
        if self.below(40) == 0 {
            let at = 2 + self.below(6);
            payload[at] = self.byte();
        }
        payload.extend(text);
        payload.truncate(1400);
        let sources = ["10.0.0.1:40000", "10.0.0.9:5000", "10.0.0.77:65535"];
        let odd = [
            "11.2.3.4:4444",
            "12.2.3.4:4444",
            "10.0.0.1:53",
            "10.0.0.1:1900",
            "10.0.0.2:9",
            "127.0.0.1:4444",
            "10.0.0.1:11211",
        ];
        let v6 = self.below(30) == 0;
        let src = match self.below(30) {
            _ if v6 => "[fd00::1]:40000",
            0 => self.of(&odd),
            _ => self.of(&sources),
        };
        let vlans: &[u16] = if self.below(30) == 0 { &[7] } else { &[] };
        let dst = if v6 {
            "[fd00::2]:11211".parse().unwrap()
        } else {
            SocketAddr::new(SERVER.into(), PORT)
        };
        let (src_mac, dst_mac, src) = (PEER_MAC, MAC, src.parse().unwrap());
        let mut frame =
            UdpFrame { src_mac, dst_mac, vlans, src, dst, payload: &payload }.to_vec().unwrap();
        match self.below(60) {
            0 => {
                let corruption = Corruption::ALL[self.below(Corruption::ALL.len())];
                corruption.apply(&mut frame);
            }
            1 => {
                let bit = self.below(8 * frame.len());
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            2 => {
                // Of a header, and the others still right.
                let bit = self.below(8 * 54.min(frame.len()));
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            3 => frame.truncate(self.below(frame.len())),
            4 => frame.extend(std::iter::repeat_n(0xaa, self.below(20))),
            // No checksum.
            5 if !v6 && vlans.is_empty() => frame[40..42].fill(0),
            6 if sets.is_some() => frame = corpus[self.below(corpus.len())].clone(),
            _ => {}
        }
        if frame.is_empty() {
            frame.push(0);
        }
        frame.truncate(1900);
        frame
    }
}

/// What fuzzers found worth keeping.
fn corpus() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut all = Vec::new();
    for target in ["ascii", "binary", "classify", "datagram", "meta", "udp_frame"] {
        for entry in root.join(target).read_dir().unwrap() {
            let mut bytes = std::fs::read(entry.unwrap().path()).unwrap();
            bytes.truncate(1390);
            // `stats` shows the time, and what was counted so far within a burst.
            let tells = |word: &[u8]| bytes.windows(word.len()).any(|w| w == word);
            if !tells(b"stat") && !tells(&[0x80, 0x10]) {
                all.push(bytes);
            }
        }
    }
    assert!(all.len() > 50);
    all.sort_unstable();
    all
}

/// `shares` are those of `set`s in bursts, as [`Random::text`] has them.
fn compare(seed: u64, packets: usize, caps: TxCaps, shares: &[Option<usize>]) {
    let corpus = corpus();
    let mut random = Random(seed);
    let mut worlds = [Manner::Off, Manner::Vector, Manner::Portable].map(|m| World::new(m, caps));
    let (mut sent, mut bursts) = (0, 0);
    while sent < packets {
        let n = 1 + random.below(64);
        let sets = shares[random.below(shares.len())];
        let frames: Vec<Vec<u8>> =
            (0..n).map(|id| random.frame(u16::try_from(id).unwrap(), sets, &corpus)).collect();
        let [want, fast, portable] = worlds.each_mut().map(|world| world.ask(&frames));
        for (got, name) in [(fast, "vector"), (portable, "portable")] {
            if got != want {
                let odd = got.iter().zip(&want).find(|(a, b)| a != b);
                let odd = odd.map(|(a, b)| [a, b].map(|f| String::from_utf8_lossy(f).into_owned()));
                panic!(
                    "seed {seed:#x}, burst {bursts}, {name}: {} replies for {}; {odd:?}",
                    got.len(),
                    want.len()
                );
            }
        }
        sent += n;
        bursts += 1;
        if bursts % 64 == 0 || sent >= packets {
            let [want, fast, portable] = worlds.each_mut().map(World::counted);
            assert_eq!(fast, want, "seed {seed:#x}, burst {bursts}, vector");
            assert_eq!(portable, want, "seed {seed:#x}, burst {bursts}, portable");
            if shares.contains(&None) {
                let [want, fast, portable] = worlds.each_ref().map(World::hints);
                assert!(fast == want && portable == want, "{fast:?}, {portable:?}: {want:?}");
            }
        }
    }
    // It was not the general stages that answered.
    let batches = worlds.each_ref().map(|world| world.counters.batches.get());
    assert!(batches[1] > batches[0] && batches[2] == batches[1], "{batches:?}");
    for world in &worlds {
        let ledger = world.counters.ledger();
        assert!(ledger.balances() && ledger.in_flight == 0, "{ledger:?}");
        assert!(*ledger.dropped.of(DropReason::UdpChecksum) > 0);
    }
}

/// A datagram for the service.
fn datagram(src: &str, text: &[u8]) -> Vec<u8> {
    let payload = [&[0, 1, 0, 0, 0, 1, 0, 0], text].concat();
    let (src, dst) = (src.parse().unwrap(), SocketAddr::new(SERVER.into(), PORT));
    let (src_mac, dst_mac) = (PEER_MAC, MAC);
    UdpFrame { src_mac, dst_mac, vlans: &[], src, dst, payload: &payload }.to_vec().unwrap()
}

/// The same bursts to each kind of worker.
fn ask_all(dialects: Dialects, bursts: &[&[Vec<u8>]]) {
    let mut worlds = [Manner::Off, Manner::Vector, Manner::Portable]
        .map(|manner| World::speaking(dialects, manner, TxCaps::default()));
    for burst in bursts {
        let [want, fast, portable] = worlds.each_mut().map(|world| world.ask(burst));
        let text = || burst.iter().map(|f| String::from_utf8_lossy(f)).collect::<Vec<_>>();
        assert!(fast == want && portable == want, "{:?}", text());
        let [want, fast, portable] = worlds.each_mut().map(World::counted);
        assert_eq!(fast, want, "{:?}", text());
        assert_eq!(portable, want, "{:?}", text());
    }
}

const CLIENT: &str = "10.0.0.1:40000";

#[test]
fn a_get_does_not_go_before_what_hides_behind_a_broken_request() {
    let binary = |tail: &[u8]| {
        let body = u8::try_from(1 + tail.len()).unwrap();
        let mut head = [0; 24];
        (head[0], head[3], head[11]) = (0x80, 1, body);
        [&head[..], b"z", tail].concat()
    };
    let ascii = Dialects::Only(Dialect::Ascii);
    for (dialects, text) in [
        // Lines that are no command: what follows is.
        (Dialects::Auto, b"set a 0 0 8 x y\r\ndelete b\r\n".to_vec()),
        (Dialects::Auto, b"cas a 0 0 8\r\ndelete b\r\n".to_vec()),
        // A control character is part of a word.
        (Dialects::Auto, b"set a 0 0\x0113 3\r\nxxx\r\ndelete b\r\n".to_vec()),
        // Text, whatever it begins with.
        (ascii, binary(b"\ndelete b\r\n")),
    ] {
        let set = |key| datagram(CLIENT, format!("set {key} 7 0 3\r\nold\r\n").as_bytes());
        let get = || datagram(CLIENT, b"get b\r\n");
        let sets = [set("a"), set("b")];
        ask_all(dialects, &[&sets, &[get()], &[datagram(CLIENT, &text), get(), get()]]);
    }
}

fn set(key: &str, value: &str, tail: &str) -> Vec<u8> {
    let len = value.len();
    datagram(CLIENT, format!("set {key} 0 0 {len}{tail}\r\n{value}\r\n").as_bytes())
}

#[test]
fn sets_and_reads_of_a_key_keep_their_order() {
    let get = |keys: &str| datagram(CLIENT, format!("get {keys}\r\n").as_bytes());
    let mut binary = vec![0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    binary.extend([0; 12]);
    binary.push(b'a');
    let many = "a b c d e f g h";
    for read in [
        get("a"),
        get("b a"),
        get(many),
        datagram(CLIENT, b"gets a\n"),
        datagram(CLIENT, b"mg a v\r\n"),
        datagram(CLIENT, &binary),
        datagram(CLIENT, b"get a\r\nget a\r\n"),
    ] {
        for tail in ["", " noreply"] {
            let sets = ["one", "two", "six"].map(|value| set("a", value, tail));
            let [one, two, six] = sets;
            let other = || set("b", "other", "");
            ask_all(
                Dialects::Auto,
                &[
                    &[one.clone(), read.clone(), two.clone(), read.clone(), six.clone()],
                    std::slice::from_ref(&read),
                    &[two.clone(), six, read.clone(), one, two, other(), read.clone(), other()],
                    &[read.clone(), other(), set("a", "last", tail), other()],
                    std::slice::from_ref(&read),
                ],
            );
        }
    }
}

#[test]
fn what_the_store_refuses_is_refused_in_its_words() {
    let small = || StoreConfig { item_max_bytes: 1024, ..StoreConfig::default() };
    // Items above the limit, and later no memory for any.
    let full = || StoreConfig { memory_bytes: 4 << 20, evict: false, ..StoreConfig::default() };
    for caps in [TxCaps::default(), TxCaps { ip: true, udp: true }] {
        for config in [small as fn() -> StoreConfig, full] {
            let manners = [Manner::Off, Manner::Vector, Manner::Portable];
            let mut worlds =
                manners.map(|manner| World::over(config(), Dialects::Auto, manner, caps));
            for round in 0..100 {
                let burst: Vec<Vec<u8>> = (0..64)
                    .map(|n| {
                        let value = "v".repeat([10, 955, 960, 990, 1000, 1300][n % 6]);
                        let tail = if n % 7 == 0 { " noreply" } else { "" };
                        set(&format!("{round}:{}", n / 2), &value, tail)
                    })
                    .collect();
                let [want, fast, portable] = worlds.each_mut().map(|world| world.ask(&burst));
                assert!(fast == want && portable == want, "round {round}");
            }
            let [want, fast, portable] = worlds.each_mut().map(World::counted);
            assert_eq!(fast, want);
            assert_eq!(portable, want);
            let refused = worlds[1].server.totals();
            assert!(refused.store_too_large + refused.store_no_memory > 100, "{refused:?}");
        }
    }
}

#[test]
fn writes_keep_their_order() {
    let delete = || datagram(CLIENT, b"delete a\r\n");
    let append = || datagram(CLIENT, b"append a 0 0 1\r\nx\r\n");
    let gets = || datagram(CLIENT, b"gets a b c\r\n");
    let (a, b) = (|| set("a", "1", ""), || set("b", "2", " noreply"));
    for burst in [
        [a(), delete(), b(), append()],
        [delete(), a(), append(), b()],
        [a(), append(), a(), delete()],
        [append(), b(), a(), append()],
    ] {
        ask_all(Dialects::Auto, &[&burst, &[gets()], &burst, &[gets()]]);
    }
}

#[test]
fn sets_are_answered_before_the_general_stages() {
    for (manner, batches) in [(Manner::Off, 1), (Manner::Vector, 2), (Manner::Portable, 2)] {
        let mut world = World::new(manner, TxCaps::default());
        // What the general stages get is a batch of its own.
        let replies = world.ask(&[set("a", "1", ""), datagram(CLIENT, b"delete b\r\n")]);
        assert_eq!((replies.len(), world.counters.batches.get()), (2, batches));
        // A change that comes first is not overtaken.
        world.ask(&[datagram(CLIENT, b"delete b\r\n"), set("a", "1", "")]);
        assert_eq!(world.counters.batches.get(), batches + 1);
        // Nothing is left of sets without an answer.
        let quiet: Vec<Vec<u8>> = (0..64).map(|_| set("a", "1", " noreply")).collect();
        assert!(world.ask(&quiet).is_empty());
        let ledger = world.counters.ledger();
        assert!(ledger.balances() && ledger.answered == 68, "{ledger:?}");
        assert_eq!((world.counters.slow.get(), world.counters.tx_frames.get()), (68, 4));
    }
}

#[test]
fn a_source_that_is_nobody_is_not_answered() {
    for src in ["0.0.0.0:40000", "0.0.0.1:40000", "158.0.0.1:40000", "1.0.0.0:40000"] {
        ask_all(Dialects::Auto, &[&[datagram(src, b"get b\r\n"), datagram(CLIENT, b"get b\r\n")]]);
    }
}

fn packets() -> usize {
    std::env::var("FAST_PATH_PACKETS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000)
}

#[test]
fn every_reply_and_every_count_is_that_of_the_general_stages() {
    // Nearly all gets in some bursts, nearly all sets in others, or a mixture.
    let shares = [0, 0, 12, 39].map(Some);
    for seed in 1..=4 {
        compare(seed, packets() / 5, TxCaps::default(), &shares);
    }
    compare(5, packets() / 5, TxCaps { ip: true, udp: true }, &shares);
}

#[test]
fn so_is_every_hint_where_sets_come_apart() {
    compare(6, packets() / 5, TxCaps::default(), &[None, Some(40)]);
}

/// The way that every command can take: parser, verb, encoder, for one datagram's text.
struct General {
    session: Session,
    server: Arc<Server>,
    ops: Arc<OpCounters>,
}

impl General {
    fn like(world: &World) -> Self {
        let store = Store::new(world.server.store.config().clone()).unwrap();
        let session = store.session().unwrap();
        let server = Arc::new(Server::new(store, "test".to_owned()));
        Self { session, ops: server.ops(), server }
    }

    fn of(world: &World) -> Self {
        let session = world.server.store.session().unwrap();
        let server = Arc::clone(&world.server);
        Self { session, ops: Arc::default(), server }
    }

    fn ask(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let dialect = self.server.dialects.of(text[0]);
        let parsed = dialect.parse(text, self.server.store.config().item_max_bytes);
        match &parsed {
            Parsed::Command { command, .. } | Parsed::Swallow { command, .. } => {
                let mut ctx = Ctx::new(&mut self.session, &self.ops, &self.server);
                execute(&mut ctx, command, &mut Buffer::new(&mut out, usize::MAX));
            }
            other => panic!("{:?}: {other:?}", String::from_utf8_lossy(text)),
        }
        out
    }

    /// Everything that is counted, but bytes, and what is shown of size classes and prefixes.
    fn counted(&mut self) -> Vec<String> {
        let totals = OpTotals { bytes_read: 0, bytes_written: 0, ..self.server.totals() };
        let mut rows = Lines(vec![format!("{totals:?}")]);
        let ops = OpCounters::default();
        let mut ctx = Ctx::new(&mut self.session, &ops, &self.server);
        for page in ["slabs", "items"] {
            stats::page(&mut ctx, Some(page.as_bytes()), &mut rows);
        }
        rows.0.retain(|line| !line.contains(":age"));
        let prefixes = String::from_utf8(self.ask(b"stats detail dump\r\n")).unwrap();
        let mut prefixes: Vec<&str> = prefixes.lines().collect();
        prefixes.sort_unstable();
        rows.0.extend(prefixes.into_iter().map(str::to_owned));
        rows.0
    }
}

/// A `get` or `set` for `execute`'s fast paths, or a command that stirs what they find.
fn one_command() -> impl Strategy<Value = Vec<u8>> {
    let key = || (0..6_u8, 1..4_u8).prop_map(|(k, n)| format!("p{n}:key{k}"));
    let value = || prop_oneof![Just(0_usize), 1..40_usize, 400..600_usize];
    let set =
        (key(), 0..3_u32, prop::sample::select(vec!["0", "-1", "1000"]), value(), any::<bool>());
    let set = set.prop_map(|(key, flags, exptime, len, noreply)| {
        let noreply = if noreply { " noreply" } else { "" };
        format!("set {key} {flags} {exptime} {len}{noreply}\r\n{}\r\n", "v".repeat(len))
    });
    prop_oneof![
        5 => key().prop_map(|key| format!("get {key}\r\n")),
        1 => (key(), key()).prop_map(|(a, b)| format!("get {a} {b} none\r\n")),
        1 => key().prop_map(|key| format!("gets {key}\r\n")),
        1 => Just(format!("get {}\r\n", "k".repeat(251))),
        5 => set,
        1 => Just("set p1:key1 0 0 2\r\nxyz\r\n".to_owned()),
        1 => Just(format!("set {} 0 0 1\r\nx\r\n", "k".repeat(251))),
        1 => key().prop_map(|key| format!("delete {key}\r\n")),
        1 => key().prop_map(|key| format!("add {key} 0 0 1\r\n7\r\n")),
        1 => key().prop_map(|key| format!("incr {key} 1\r\n")),
        1 => key().prop_map(|key| format!("touch {key} 100\r\n")),
    ]
    .prop_map(String::into_bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// A `get` or a `set` by `execute`'s fast path is answered, and counted, as by the general way.
    #[test]
    fn one_command_is_answered_and_counted_as_by_the_general_way(
        texts in prop::collection::vec(one_command(), 1..60),
        detail in any::<bool>(),
    ) {
        let mut world = World::new(Manner::Off, TxCaps { ip: true, udp: true });
        let mut general = General::like(&world);
        let mut same = General::of(&world);
        if detail {
            general.ask(b"stats detail on\r\n");
            same.ask(b"stats detail on\r\n");
        }
        for text in &texts {
            let said = general.ask(text);
            let replies = world.ask(&[datagram(CLIENT, text)]);
            // Behind 42 bytes of headers and 8 of the memcached frame; `ask` adds what `tx` says.
            let got = replies.first().map(|reply| &reply[50..]).unwrap_or_default();
            prop_assert!(replies.len() <= 1 && got.starts_with(&said), "{:?}: {:?}",
                String::from_utf8_lossy(text), String::from_utf8_lossy(got));
            prop_assert_eq!(replies.is_empty(), said.is_empty());
        }
        prop_assert_eq!(same.counted(), general.counted());
        let fast = world.counters.fast.get() + world.counters.slow.get();
        prop_assert_eq!(fast, texts.len() as u64);
    }
}
