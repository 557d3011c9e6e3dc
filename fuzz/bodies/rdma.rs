//! RDMA packets in any order and of any bytes, to the stage: it answers each at most once, with what the
//! item is, and every frame is accounted for.
//!
//! The input is a list of packets. Of each the first byte says how it is made: as it comes, or with a right
//! ICRC; from which of two queue pairs; whether a turn follows.

use dataplane::commands::Ctx;
use dataplane::frame_accounting::Accounts;
use dataplane::observe::{OpCounters, Server};
use dataplane::policy::{Gate, Policy};
use dataplane::rdma::{Between, Opened};
use dataplane::reply::Meaning;
use dataplane::stages::rdma::{Reads, Turn};
use driver_shim::{Frame, MacAddr, Pages, Region};
use gpu::{Entry, EntryFlags};
use memcache::FarEnd;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use store::{Session, Store, StoreConfig, verbs};
use wire::build::UdpFrame;
use wire::classify::{At, Class, classify};
use wire::{Local, roce};

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const PEER4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OWN4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const PEER6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const OWN6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
const SLOTS: u32 = 512;
const FROM: u16 = 0xc000;
/// Where each queue pair's requests begin: near the end of the numbers.
const PSN: u32 = 0xff_fffc;
const MTUS: [u16; 2] = [256, 1024];
const KEY: &[u8] = b"sun";
const VALUE_BYTES: u16 = 3000;
/// Packets of one run.
const PACKETS_MAX: usize = 64;

/// What one run after the other is made of.
struct World {
    region: Region,
    server: Arc<Server>,
    session: Session,
    ops: OpCounters,
    local: Local,
    stag: u64,
    /// Key and value.
    held: Vec<u8>,
    version: u64,
}

thread_local! {
    static WORLD: std::cell::RefCell<World> = std::cell::RefCell::new(World::new());
}

impl World {
    fn new() -> Self {
        let config =
            StoreConfig { memory_bytes: 8 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).expect("a store");
        let mut server = Server::new(Arc::clone(&store), String::new());
        server.rdma = Some(Arc::default());
        let mut session = store.session().expect("a session");
        let value: Vec<u8> = (0..=255).cycle().take(VALUE_BYTES.into()).collect();
        let what = base::Store::set(KEY, 7, 0, &value);
        verbs::store(&mut session, None, &what).expect("memory");
        let version = verbs::get(&session.pin(), KEY).expect("the item").sequence();
        let stag = server.rdma.as_ref().map_or(0, |rdma| rdma.stags.of(store.hash(KEY)));
        let local = Local::new(US, &[(OWN4, 24), (OWN6, 64)], 11_211).expect("addresses");
        Self {
            region: Region::new(SLOTS, Pages::Small).expect("slots"),
            server: Arc::new(server),
            session,
            ops: OpCounters::default(),
            local: Local { rdma: true, ..local },
            stag,
            held: [KEY, &value].concat(),
            version,
        }
    }

    /// What a READ of the item gets: `len` bytes from `at` on.
    fn image(&self, at: usize, len: usize) -> Vec<u8> {
        let end = at + len;
        let held = if 40 + self.held.len() <= end { &self.held[..] } else { &[] };
        let version = self.version.to_be_bytes();
        let mut begin = vec![if held.is_empty() { 2 } else { 0 }, 3, 0, 0];
        begin.extend(u32::from(VALUE_BYTES).to_be_bytes());
        begin.extend(7_u32.to_be_bytes());
        begin.extend([0xff; 4]);
        begin.extend([version; 2].concat());
        begin.extend(held);
        let crc = crc32fast::hash(&[&version, held].concat());
        let tail = [&version[4..], &crc.to_be_bytes()].concat();
        let byte = |n: usize| match n.checked_sub(end - 8) {
            Some(n) => tail[n],
            None => begin.get(n).copied().unwrap_or(0),
        };
        (at..end).map(byte).collect()
    }
}

/// The rest of the input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }
}

/// The target.
pub(crate) fn run(data: &[u8]) {
    WORLD.with_borrow_mut(|world| packets(world, data));
}

fn packets(world: &mut World, data: &[u8]) {
    let rdma = world.server.rdma.clone().expect("there is one");
    let opened: Vec<Opened> = [(OWN4, PEER4, MTUS[0]), (OWN6, PEER6, MTUS[1])]
        .into_iter()
        .map(|(ours, theirs, mtu)| {
            let gid = match theirs {
                IpAddr::V4(a) => a.to_ipv6_mapped(),
                IpAddr::V6(a) => a,
            };
            let far = FarEnd { qpn: 5, psn: PSN, gid, mtu };
            rdma.pairs.open(Some(Between { ours, theirs }), &far).expect("a queue pair")
        })
        .collect();
    let accounts = Accounts::new(Arc::default(), Instant::now(), vec![String::new()]);
    let mut gate = Gate::new(&Policy::default());
    let mut reads = Reads::new(Arc::clone(&rdma));
    let mut input = Input(data);
    let (mut entered, mut answered) = (0_u64, 0_u64);
    for _ in 0..PACKETS_MAX {
        if input.0.is_empty() {
            break;
        }
        let how = input.byte();
        let n = usize::from(how & 1);
        let bytes = packet(world, &mut input, how, opened[n].qpn);
        let Class::Rdma(At { l3, l4, ipv6, .. }) = classify(&bytes, &world.local) else { continue };
        let mut frame = world.region.alloc().expect("a slot");
        if frame.fill(&bytes).is_err() {
            continue;
        }
        let flags = if ipv6 { EntryFlags::IPV6 } else { EntryFlags::default() };
        let (slot, off) = (frame.slot(), frame.offset());
        let len = u16::try_from(bytes.len()).unwrap_or(0);
        let entry = Entry { slot, off, len, l3, l4, flags, mark: 0 };
        entered += 1;
        let waits = match reads.enter(frame, entry) {
            Ok(()) => true,
            Err((frame, reason)) => {
                accounts.drop_frame(frame, 0, reason);
                false
            }
        };
        // Where others wait, it is not known which response is whose.
        let is_alone = waits && reads.waiting() == 1;
        let alone = is_alone.then_some((&bytes[..], usize::from(l4) + 8));
        if how & 0xc0 != 0 {
            answered += turn(world, &mut reads, &mut gate, &accounts, alone);
        }
    }
    while reads.waiting() > 0 {
        answered += turn(world, &mut reads, &mut gate, &accounts, None);
    }
    let dropped: u64 = accounts.ledger().dropped.iter().map(|(_, n)| n).sum();
    assert_eq!(entered, answered + dropped, "a frame without an end");
    assert_eq!(world.region.available(), world.region.capacity(), "slots were lost");
}

/// Makes a packet of what comes next.
fn packet(world: &World, input: &mut Input<'_>, how: u8, qpn: u32) -> Vec<u8> {
    let mut data = Vec::new();
    if how & 0x06 == 0 {
        // Bytes as they come.
        let len = usize::from(input.byte());
        let (now, later) = input.0.split_at(len.min(input.0.len()));
        data.extend_from_slice(now);
        input.0 = later;
        if let Some(place) = data.get_mut(4..8) {
            place.copy_from_slice(&qpn.to_be_bytes());
        }
    } else {
        let opcode = if how & 0x08 == 0 { roce::opcode::READ_REQUEST } else { input.byte() };
        let qpn = if how & 0x10 == 0 { qpn } else { qpn ^ input.word() };
        let psn = PSN.wrapping_add_signed(i32::from(input.byte().cast_signed()));
        let stag = if how & 0x20 == 0 { world.stag } else { world.stag ^ u64::from(input.word()) };
        let (at, len) = (input.word(), input.word());
        let [at, len] = if how & 0x04 == 0 { [at & 0xfff, len & 0xfff] } else { [at, len] };
        data.extend([opcode, input.byte() & 0xf0, 0xff, 0xff]);
        data.extend(qpn.to_be_bytes());
        data.extend(psn.to_be_bytes());
        if opcode == roce::opcode::READ_REQUEST {
            data.extend((stag << 32 | u64::from(at)).to_be_bytes());
            data.extend(stag.to_be_bytes().first_chunk::<4>().expect("8 bytes"));
            data.extend(len.to_be_bytes());
        }
        data.extend([0; 4]);
    }
    let (src, dst) = if how & 1 == 0 { (PEER4, OWN4) } else { (PEER6, OWN6) };
    let (src, dst) = (SocketAddr::new(src, FROM), SocketAddr::new(dst, roce::PORT));
    let frame = UdpFrame { src_mac: PEER, dst_mac: US, vlans: &[], src, dst, payload: &data };
    let mut bytes = frame.to_vec().expect("it fits");
    // The bytes as they come have a right ICRC every other time.
    if how & 0x06 != 0 || how & 0x08 != 0 {
        let l4 = if dst.is_ipv4() { 34 } else { 54 };
        if data.len() >= 16 {
            let icrc = icrc(&bytes, l4);
            let end = bytes.len() - 4;
            bytes[end..].copy_from_slice(&icrc.to_le_bytes());
        }
    }
    bytes
}

/// The invariant CRC of a frame without tags, as annex A17.3.3 lists its bytes.
fn icrc(bytes: &[u8], l4: usize) -> u32 {
    let mut covered = [&[0xff; 8], &bytes[14..bytes.len() - 4]].concat();
    let (ip, udp) = covered[8..].split_at_mut(l4 - 14);
    let masked: &[usize] = if l4 == 34 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    masked.iter().for_each(|&at| ip[at] = 0xff);
    if l4 == 54 {
        ip[0] |= 0x0f;
    }
    [6, 7, 12].iter().for_each(|&at| udp[at] = 0xff);
    crc32fast::hash(&covered)
}

/// Lets the stage answer, and checks what it says. The request, and where its datagram's data begins, if it is
/// the only one that waits.
fn turn(
    world: &mut World,
    reads: &mut Reads,
    gate: &mut Gate,
    accounts: &Accounts,
    alone: Option<(&[u8], usize)>,
) -> u64 {
    let mut out = Vec::new();
    let ctx = Ctx::new(&mut world.session, &world.ops, &world.server);
    let with = Turn { ctx, region: &world.region, gate, accounts, now_ns: 0 };
    reads.turn(with, |port, frame, meaning| {
        assert_eq!(port, 0);
        out.push((frame, meaning));
    });
    let answers = out.iter().filter(|(_, meaning)| *meaning == Meaning::Answer).count();
    let mut got = Vec::new();
    for (frame, _) in &out {
        got.extend_from_slice(response(frame));
    }
    if let (Some((request, data)), [.., (last, _)]) = (alone, &out[..]) {
        assert_eq!(answers, 1);
        if last.bytes()[data] != roce::opcode::ACKNOWLEDGE {
            let n = |at: usize| {
                let bytes = request[data + at..].first_chunk::<4>().expect("a READ request");
                u32::from_be_bytes(*bytes)
            };
            let size = |at: usize| usize::try_from(n(at)).expect("64 bits");
            let (stag, at, len) = (u64::from(n(20)) << 32 | u64::from(n(12)), size(16), size(24));
            assert_eq!(got.len(), len);
            // One that is answered at all names a stag; hardly ever another than the item's.
            if stag == world.stag && len > 0 {
                assert_eq!(got, world.image(at, len));
            }
        }
    }
    answers as u64
}

/// The payload of a response, which is as it should be.
fn response(frame: &Frame) -> &[u8] {
    let bytes = frame.bytes();
    let l4 = if bytes[12] == 8 { 34 } else { 54 };
    let (covered, crc) = bytes.split_at(bytes.len() - 4);
    assert_eq!(crc, icrc(bytes, l4).to_le_bytes());
    assert_eq!(usize::from(u16::from_be_bytes([bytes[l4 + 4], bytes[l4 + 5]])), bytes.len() - l4);
    let bth = &covered[l4 + 8..];
    assert!(bth.len().is_multiple_of(4) && (0x0d..=0x11).contains(&bth[0]));
    let payload = &bth[if bth[0] == roce::opcode::READ_MIDDLE { 12 } else { 16 }..];
    let (payload, pad) = payload.split_at(payload.len() - usize::from(bth[1] >> 4 & 3));
    assert!(payload.len() <= MTUS[usize::from(l4 == 54)].into() && pad.iter().all(|b| *b == 0));
    payload
}
