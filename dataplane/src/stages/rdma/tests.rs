//! What is plain is answered and counted as by the general way, with vector instructions and without.

use super::{Reads, Turn};
use crate::commands::Ctx;
use crate::frame_accounting::Accounts;
use crate::observe::{OpCounters, Server};
use crate::plain::{FastPathMode, RequestMatcher};
use crate::policy::{Gate, Policy};
use crate::rdma::{Between, Opened, Rdma};
use driver_shim::{Burst, MacAddr, Pages, Region};
use gpu::{Entry, EntryFlags};
use memcache::FarEnd;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;
use store::{Session, Store, StoreConfig, verbs};
use wire::build::UdpFrame;
use wire::classify::{At, Class, classify};
use wire::roce::{Psn, request::Read};
use wire::{Local, PlainMatcher};

const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const MTU: u16 = 256;

/// One way, with a queue pair and counters of its own.
struct Way {
    reads: Reads,
    opened: Opened,
    server: Server,
    ops: Arc<OpCounters>,
    accounts: Accounts,
    matcher: RequestMatcher,
    /// Requests that were plain.
    plain: usize,
    psn: u32,
}

impl Way {
    /// Takes a burst in: what is plain, and what else is for this stage.
    fn enter(&mut self, burst: &mut Burst, region: &Region, local: &Local) {
        let entered = burst.len();
        self.reads.enter_plain(burst, &mut self.matcher, region, 0);
        self.plain += entered - burst.len();
        for frame in burst.drain(..) {
            let (slot, off) = (frame.slot(), frame.offset());
            let len = u16::try_from(frame.len()).unwrap();
            let Class::Rdma(At { l3, l4, .. }) = classify(frame.bytes(), local) else { continue };
            let entry = Entry { slot, off, len, l3, l4, flags: EntryFlags::default(), mark: 0 };
            if let Err((frame, reason)) = self.reads.enter(frame, entry) {
                self.accounts.drop_frame(frame, 0, reason);
            }
        }
    }
}

/// The frame of a READ request.
fn request(read: Read) -> Vec<u8> {
    let route = UdpFrame {
        src_mac: MacAddr([4; 6]),
        dst_mac: MacAddr([2; 6]),
        vlans: &[],
        src: (PEER, 49_152).into(),
        dst: (OWN, wire::roce::PORT).into(),
        payload: &[],
    };
    let mut bytes = vec![0; 128];
    let len = read.write_to(&route, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

struct World {
    region: Region,
    rdma: Arc<Rdma>,
    session: Session,
    local: Local,
    ways: Vec<Way>,
}

impl World {
    /// On a port that serves memcached's datagrams on this port, or none on 0.
    fn new(service_port: u16) -> Self {
        let config = StoreConfig { pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let rdma = Arc::<Rdma>::default();
        let own: (IpAddr, u8) = (OWN.into(), 24);
        let local = Local::new(MacAddr([2; 6]), &[own], service_port).unwrap();
        let local = Local { rdma: true, ..local };
        let way = |mode| {
            let between = Between { ours: OWN.into(), theirs: PEER.into() };
            let far = FarEnd { qpn: 5, psn: 7, gid: PEER.to_ipv6_mapped(), mtu: MTU };
            let mut server = Server::new(Arc::clone(&store), String::new());
            server.rdma = Some(Arc::clone(&rdma));
            Way {
                reads: Reads::new(Arc::clone(&rdma)).by(mode),
                opened: rdma.pairs.open(Some(between), &far).unwrap(),
                ops: server.ops(),
                server,
                accounts: Accounts::new(Arc::default(), Instant::now(), vec![String::new()]),
                matcher: RequestMatcher::new(&PlainMatcher::new(Arc::new(local.clone()))),
                plain: 0,
                psn: 7,
            }
        };
        let ways =
            [FastPathMode::Off, FastPathMode::Portable, FastPathMode::Vector].map(way).into();
        let region = Region::new(256, Pages::Small).unwrap();
        let session = store.session().unwrap();
        Self { region, rdma, session, local, ways }
    }

    /// Gives each way a burst of READs of these stags, places and lengths, changed alike. What comes of
    /// it must be the same: responses to the byte, and reasons for drops.
    fn read(&mut self, asked: &[(u64, u32, u32)], change: impl Fn(&mut Vec<u8>)) {
        let mut all = Vec::new();
        for way in &mut self.ways {
            let mut burst = Burst::new();
            for &(stag, at, len) in asked {
                let mut bytes = request(Read {
                    qpn: way.opened.qpn,
                    psn: Psn::new(way.psn),
                    va: stag << 32 | u64::from(at),
                    rkey: u32::try_from(stag >> 32).unwrap(),
                    len,
                });
                change(&mut bytes);
                let mut frame = self.region.alloc().unwrap();
                frame.fill(&bytes).unwrap();
                burst.push(frame);
                way.psn += len.div_ceil(MTU.into()).max(1);
            }
            way.enter(&mut burst, &self.region, &self.local);
            let mut responses = Vec::new();
            let (region, mut gate) = (&self.region, Gate::new(&Policy::default()));
            while way.reads.waiting() > 0 {
                let ctx = Ctx::new(&mut self.session, &way.ops, &way.server);
                let (gate, accounts) = (&mut gate, &way.accounts);
                let turn = Turn { ctx, region, gate, accounts, now_ns: 0 };
                way.reads.turn(turn, |_, frame, _| responses.push(frame.bytes().to_vec()));
            }
            let reads = way.accounts.rdma_reads.get();
            all.push((responses, reads, way.accounts.ledger().dropped, way.server.totals()));
        }
        assert_eq!(all[0], all[1], "{asked:x?}");
        assert_eq!(all[0], all[2], "{asked:x?}");
    }

    /// The stag of a key.
    fn stag(&self, key: &[u8]) -> u64 {
        self.rdma.stags.of(self.session.store().hash(key))
    }
}

#[test]
fn plain_reads_are_answered_as_by_the_general_way() {
    [11_211, 0].into_iter().for_each(plain_reads_are_answered_beside);
}

fn plain_reads_are_answered_beside(service_port: u16) {
    let mut w = World::new(service_port);
    let mut asked = Vec::new();
    for n in 0..600_usize {
        let key = format!("{n:0len$}", len = 3 + n % 240);
        let value: Vec<u8> = (0..n % 300).map(|b| (b ^ n).to_le_bytes()[0]).collect();
        if n % 7 > 0 {
            let what = base::Store::set(key.as_bytes(), u32::try_from(n).unwrap(), 0, &value);
            verbs::store(&mut w.session, None, &what).unwrap();
        }
        let len = u32::try_from(40 + key.len() + value.len()).unwrap();
        let stag = w.stag(key.as_bytes());
        // All of it, less, more, nothing, and what a READ that was cut off goes on with.
        let (at, len) = match n % 11 {
            0 => (0, 40),
            1 => (0, 0),
            2 => (0, len + 13),
            3 if len > 48 => (len - 3, 3),
            _ => (0, len),
        };
        asked.push((stag, at, len));
    }
    for burst in asked.chunks(61) {
        w.read(burst, |_| {});
    }
    assert!(w.ways.iter().all(|way| way.accounts.rdma_reads.get() == 600));
    let plain: Vec<_> = w.ways.iter().map(|way| way.plain).collect();
    assert_eq!(plain, [0, 600, 600]);
}

#[test]
fn changed_requests_are_dropped_or_answered_as_by_the_general_way() {
    let mut w = World::new(11_211);
    let what = base::Store::set(b"key", 0, 0, &[7; 64]);
    verbs::store(&mut w.session, None, &what).unwrap();
    let asked = (w.stag(b"key"), 0, 107);
    for bit in 0..74 * 8 {
        w.read(&[asked], |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        // A frame that was dropped has not moved the queue pair on: the next has its PSN.
        let expected = w.ways[0].accounts.rdma_reads.get();
        w.ways.iter_mut().for_each(|way| way.psn = 7 + u32::try_from(expected).unwrap());
    }
    // All bits are covered but those that routers may change, and the source's, which is another host then.
    let reads = w.ways[0].accounts.rdma_reads.get();
    assert!((1..100).contains(&reads), "{reads}");
    for len in 0..74 {
        w.read(&[asked], |bytes| bytes.truncate(len));
        w.ways.iter_mut().for_each(|way| way.psn -= 1);
    }
    w.read(&[asked], |bytes| bytes.extend([0xff; 9]));
    // A READ that is refused ends the queue pair of each.
    w.read(&[(asked.0 ^ 1, 0, 107), asked], |_| {});
}

#[test]
fn long_reads_of_no_queue_pair_take_nobodys_turn() {
    let mut w = World::new(11_211);
    let stag = w.stag(b"key");
    let World { region, session, ways, local, .. } = &mut w;
    for way in ways {
        let mut burst = Burst::new();
        for n in 0..60_u32 {
            // The last one alone is of the pair.
            let (qpn, len) = match n {
                59 => (way.opened.qpn, 107),
                _ => (way.opened.qpn ^ 1, 60_000),
            };
            let bytes = request(Read {
                qpn,
                psn: Psn::new(way.psn),
                va: stag << 32,
                rkey: u32::try_from(stag >> 32).unwrap(),
                len,
            });
            let mut frame = region.alloc().unwrap();
            frame.fill(&bytes).unwrap();
            burst.push(frame);
        }
        way.enter(&mut burst, region, local);
        let ctx = Ctx::new(session, &way.ops, &way.server);
        let (mut gate, mut answers) = (Gate::new(&Policy::default()), 0);
        let (gate, accounts) = (&mut gate, &way.accounts);
        let turn = Turn { ctx, region, gate, accounts, now_ns: 0 };
        assert_eq!(way.reads.turn(turn, |_, _, _| answers += 1), 60);
        assert_eq!((answers, way.reads.waiting()), (1, 0));
    }
}
