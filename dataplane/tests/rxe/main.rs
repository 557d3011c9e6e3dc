//! READs between two genuine endpoints, recorded (`tests/e2e/test_rdma.py`): their requests are answered as the
//! kernel's rdma_rxe answered them, byte for byte.
//!
//! What a client learns from a server differs, and is put into the requests: the queue pair and the stag. What responders may
//! choose differs, and is put into the recorded responses: the bytes of memory, and of IP and UDP what IP's own
//! implementation fills in. Each ICRC is reckoned here, as annex A17.3.3 lists its bytes.
#![allow(clippy::unwrap_used, reason = "tests")]

use dataplane::commands::Ctx;
use dataplane::frame_accounting::Accounts;
use dataplane::observe::{OpCounters, Server};
use dataplane::policy::{Gate, Policy};
use dataplane::rdma::{Between, Opened, Rdma};
use dataplane::stages::rdma::{Reads, Turn};
use driver_shim::{MacAddr, Pages, Region};
use gpu::{Entry, EntryFlags};
use memcache::FarEnd;
use pcap_file::pcap::PcapReader;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use store::{Session, Store, StoreConfig, verbs};
use wire::Local;
use wire::classify::{At, Class, classify};
use wire::roce::opcode::{ACKNOWLEDGE, READ_MIDDLE, READ_REQUEST};

static RECORDED: &[u8] = include_bytes!("reads.pcap");
/// How the recorder chose path MTUs: two of each, over IPv4 and IPv6.
const MTUS: [u16; 4] = [256, 256, 1024, 1024];
/// READs of each: of twelve lengths, and a refused one.
const READS: usize = 13;
const KEY: &[u8] = b"key";
/// Where READs of the item begin: some are shorter than what an image must have before that.
const AT: u32 = 1000;
const ETHERNET: usize = 14;
const UDP: usize = 8;
const BTH: usize = 12;
const AETH: usize = 4;

/// A READ and its responses, as recorded.
struct Exchange {
    request: Vec<u8>,
    responses: Vec<Vec<u8>>,
}

/// Those of one queue pair each.
fn recorded() -> Vec<Vec<Exchange>> {
    let mut reader = PcapReader::new(RECORDED).unwrap();
    let mut all: Vec<Exchange> = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data.into_owned();
        assert_eq!(frame[frame.len() - 4..], icrc(&frame).to_le_bytes());
        if frame[bth(&frame)] == READ_REQUEST {
            all.push(Exchange { request: frame, responses: Vec::new() });
        } else {
            all.last_mut().unwrap().responses.push(frame);
        }
    }
    let mut pairs = Vec::new();
    while !all.is_empty() {
        let rest = all.split_off(READS);
        pairs.push(all);
        all = rest;
    }
    assert_eq!(pairs.len(), MTUS.len());
    pairs
}

fn l4(frame: &[u8]) -> usize {
    if frame[12] == 8 { ETHERNET + 20 } else { ETHERNET + 40 }
}

fn bth(frame: &[u8]) -> usize {
    l4(frame) + UDP
}

fn number<const BYTES: usize>(frame: &[u8], at: usize) -> u64 {
    frame[at..at + BYTES].iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn icrc(frame: &[u8]) -> u32 {
    let l4 = l4(frame);
    let mut covered = [&[0xff; 8], &frame[ETHERNET..frame.len() - 4]].concat();
    let (ip, udp) = covered[8..].split_at_mut(l4 - ETHERNET);
    let masked: &[usize] = if ip.len() == 20 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    masked.iter().for_each(|&at| ip[at] = 0xff);
    if ip.len() == 40 {
        ip[0] |= 0x0f;
    }
    [6, 7, UDP + 4].iter().for_each(|&at| udp[at] = 0xff);
    crc32fast::hash(&covered)
}

fn set_icrc(frame: &mut [u8]) {
    let icrc = icrc(frame).to_le_bytes();
    *frame.last_chunk_mut().unwrap() = icrc;
}

fn addresses(frame: &[u8]) -> (IpAddr, IpAddr) {
    let ip = &frame[ETHERNET..];
    if ip[0] >> 4 == 4 {
        let at = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap());
        (at(12), at(16))
    } else {
        let at = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap());
        (at(8), at(24))
    }
}

/// The recorded response, with what responders may choose as ours has it.
fn as_ours(theirs: &[u8], ours: &[u8]) -> Vec<u8> {
    let mut frame = theirs.to_vec();
    assert_eq!(frame.len(), ours.len());
    let (l4, bth) = (l4(&frame), bth(&frame));
    let chosen: &[usize] = match l4 - ETHERNET {
        // Type of service, identification, fragment flags, TTL, checksum.
        20 => &[1, 4, 5, 6, 7, 8, 10, 11],
        // Traffic class, flow label, hop limit.
        _ => &[0, 1, 2, 3, 7],
    };
    let headers = chosen.iter().map(|at| ETHERNET + at);
    // UDP's source port and checksum.
    let headers = headers.chain([0, 1, 6, 7].map(|at| l4 + at));
    let payload = bth + BTH + if frame[bth] == READ_MIDDLE { 0 } else { AETH };
    let pad = usize::from(frame[bth + 1] >> 4 & 3);
    let places: Vec<usize> = headers.chain(payload..frame.len() - 4 - pad).collect();
    places.into_iter().for_each(|at| frame[at] = ours[at]);
    set_icrc(&mut frame);
    frame
}

struct World {
    region: Region,
    rdma: Arc<Rdma>,
    server: Server,
    session: Session,
    ops: Arc<OpCounters>,
    stag: u64,
}

impl World {
    fn new() -> Self {
        let config = StoreConfig { pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let rdma = Arc::<Rdma>::default();
        let mut server = Server::new(Arc::clone(&store), String::new());
        server.rdma = Some(Arc::clone(&rdma));
        let mut session = store.session().unwrap();
        verbs::store(&mut session, None, &base::Store::set(KEY, 0, 0, &[7; 9000])).unwrap();
        let stag = rdma.stags.of(store.hash(KEY));
        let (region, ops) = (Region::new(64, Pages::Small).unwrap(), server.ops());
        Self { region, rdma, server, session, ops, stag }
    }

    /// A queue pair for what the recorded requester sends.
    fn open(&self, exchanges: &[Exchange], mtu: u16) -> Opened {
        let Exchange { request, responses } = &exchanges[0];
        let (theirs, ours) = addresses(request);
        let qpn = u32::try_from(number::<4>(&responses[0], bth(request) + 4)).unwrap();
        let psn = u32::try_from(number::<3>(request, bth(request) + 9)).unwrap();
        let gid = match theirs {
            IpAddr::V4(a) => a.to_ipv6_mapped(),
            IpAddr::V6(a) => a,
        };
        let far = FarEnd { qpn, psn, gid, mtu };
        self.rdma.pairs.open(Some(Between { ours, theirs }), &far).unwrap()
    }

    /// What a request gets.
    fn answer(&mut self, reads: &mut Reads, request: &[u8]) -> Vec<Vec<u8>> {
        let (_, ours) = addresses(request);
        let mac = MacAddr(request[..6].try_into().unwrap());
        let local = Local::new(mac, &[(ours, 24)], 11_211).unwrap();
        let class = classify(request, &Local { rdma: true, ..local });
        let Class::Rdma(At { l3, l4, ipv6, .. }) = class else { panic!("{class:?}") };
        let flags = if ipv6 { EntryFlags::IPV6 } else { EntryFlags::default() };
        let mut frame = self.region.alloc().unwrap();
        frame.fill(request).unwrap();
        let (slot, off) = (frame.slot(), frame.offset());
        let len = u16::try_from(request.len()).unwrap();
        let entry = Entry { slot, off, len, l3, l4, flags, mark: 0 };
        assert!(reads.enter(frame, entry).is_ok());
        let accounts = Accounts::new(Arc::default(), Instant::now(), vec![String::new()]);
        let mut gate = Gate::new(&Policy::default());
        let ctx = Ctx::new(&mut self.session, &self.ops, &self.server);
        let (region, gate) = (&self.region, &mut gate);
        let turn = Turn { ctx, region, gate, accounts: &accounts, now_ns: 0 };
        let mut responses = Vec::new();
        reads.turn(turn, |_, frame, _| responses.push(frame.bytes().to_vec()));
        responses
    }
}

#[test]
fn genuine_requests_are_answered_as_by_the_genuine_responder() {
    let mut world = World::new();
    let (mut packets, mut refused) = (0, 0);
    for (exchanges, mtu) in recorded().iter().zip(MTUS) {
        let opened = world.open(exchanges, mtu);
        let mut reads = Reads::new(Arc::clone(&world.rdma));
        let reth = bth(&exchanges[0].request) + BTH;
        let rkey = number::<4>(&exchanges[0].request, reth + 8);
        for Exchange { request, responses } in exchanges {
            let mut asked = request.clone();
            let other = number::<4>(request, reth + 8) ^ rkey;
            let va = world.stag << 32 | u64::from(AT);
            asked[reth - BTH + 4..reth - BTH + 8].copy_from_slice(&opened.qpn.to_be_bytes());
            asked[reth..reth + 8].copy_from_slice(&va.to_be_bytes());
            asked[reth + 8..reth + 12]
                .copy_from_slice(&(world.stag >> 32 ^ other).to_be_bytes()[4..]);
            set_icrc(&mut asked);
            let ours = world.answer(&mut reads, &asked);
            assert_eq!(ours.len(), responses.len());
            for (ours, theirs) in ours.iter().zip(responses) {
                assert_eq!(*ours, as_ours(theirs, ours));
                packets += 1;
                refused += usize::from(ours[reth - BTH] == ACKNOWLEDGE);
            }
        }
    }
    assert_eq!((packets, refused), (100, 4));
}
