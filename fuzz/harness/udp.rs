//! A worker at one end of a wire and a client at the other. Everything that moves is counted: when
//! the client hangs up, the packet-accounting invariant (D10) must hold and every slot be returned.

use dataplane::WorkerCounters;
use dataplane::observe::Server;
use dataplane::stages::batch::BatchPolicy;
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use driver_shim::ports::memory::{MAC, PEER_MAC, linked};
use driver_shim::{Burst, Pages, PortInfo, QueuePair, Region, RxQueue, TxQueue};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use wire::Local;
use wire::build::UdpFrame;
use wire::verify::{verify_ip4_header, verify_udp};

const SERVER4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const CLIENT4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
const CLIENT6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const PORT: u16 = 11_211;
const CLIENT_PORT: u16 = 40_000;
const UDP_HEADER_BYTES: usize = 8;
const KV_HEADER_BYTES: usize = 8;
/// Text in each datagram of a reply but the last.
const TEXT_MAX_BYTES: usize = 1392;
const SLOTS: u32 = 512;
/// Requests that the engine has at once: fewer than a client sends.
const BATCH: usize = 4;

/// Most text in a request.
pub(crate) const REQUEST_MAX_BYTES: usize = 1400;

thread_local! {
    static CABLE: Cable = Cable::new();
}

/// What one wire after the other is made of. It takes time to make, and nothing is in it between
/// two of them.
#[derive(Clone)]
struct Cable {
    region: Region,
    info: PortInfo,
    local: Arc<Local>,
    far: Ends,
    near: Ends,
}

#[derive(Clone)]
struct Ends(Lent<dyn RxQueue>, Lent<dyn TxQueue>);

/// A queue that comes back when its user is gone.
struct Lent<Q: ?Sized>(Arc<Mutex<Box<Q>>>);

impl Cable {
    fn new() -> Self {
        let (far, near) = linked(1, SLOTS as usize);
        let ends = |queues: Vec<QueuePair>| {
            let queues = queues.into_iter().next().expect("a queue");
            Ends(Lent(Arc::new(Mutex::new(queues.rx))), Lent(Arc::new(Mutex::new(queues.tx))))
        };
        let local = Local::new(MAC, &[(SERVER4, 24), (SERVER6, 64)], PORT).expect("addresses");
        Self {
            region: Region::new(SLOTS, Pages::Small).expect("a region"),
            info: far.info,
            local: Arc::new(local),
            far: ends(far.queues),
            near: ends(near.queues),
        }
    }
}

impl Ends {
    fn pair(self) -> QueuePair {
        QueuePair { rx: Box::new(self.0), tx: Box::new(self.1) }
    }
}

impl<Q: ?Sized> Clone for Lent<Q> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl RxQueue for Lent<dyn RxQueue> {
    fn burst(&mut self, into: &mut Burst) -> usize {
        self.0.lock().expect("one user").burst(into)
    }
}

impl TxQueue for Lent<dyn TxQueue> {
    fn burst(&mut self, from: &mut Burst) -> usize {
        self.0.lock().expect("one user").burst(from)
    }
}

/// What a request gets, of as many datagrams as there are.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Of the request.
    pub(crate) id: u16,
    pub(crate) text: Vec<u8>,
}

/// The wire, with the worker at its far end.
pub(crate) struct Wire {
    worker: Worker,
    counters: Arc<WorkerCounters>,
    near: QueuePair,
    region: Region,
    sent: u16,
}

impl Wire {
    pub(crate) fn new(server: &Arc<Server>) -> Self {
        let Cable { region, info, local, far, near } = CABLE.with(Cable::clone);
        let ports = vec![WorkerPort::new(far.pair(), info, local)];
        let session = server.store.session().expect("a session");
        let worker = Worker::new(WorkerConfig {
            group: BATCH / 2,
            batch: BatchPolicy { size: BATCH, in_flight_max: 2, ..BatchPolicy::default() },
            ..WorkerConfig::new(ports, region.clone(), session, Arc::clone(server))
        });
        Self { counters: worker.counters(), worker, near: near.pair(), region, sent: 0 }
    }

    /// Puts a request on the wire, and says its id.
    pub(crate) fn send(&mut self, ipv6: bool, text: &[u8]) -> u16 {
        let id = self.sent;
        self.sent += 1;
        let (client, server) = if ipv6 { (CLIENT6, SERVER6) } else { (CLIENT4, SERVER4) };
        let payload = [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0], text].concat();
        let request = UdpFrame {
            src_mac: PEER_MAC,
            dst_mac: MAC,
            vlans: vlans(ipv6),
            src: SocketAddr::new(client, CLIENT_PORT),
            dst: SocketAddr::new(server, PORT),
            payload: &payload,
        };
        let bytes = request.to_vec().expect("it fits");
        let mut frame = self.region.alloc().expect("a slot for the request");
        frame.fill(&bytes).expect("it fits");
        let mut burst = Burst::new();
        burst.push(frame);
        assert_eq!(self.near.tx.burst(&mut burst), 1, "the wire is full");
        id
    }

    /// Lets the worker work until nothing moves any more, and takes what comes back.
    pub(crate) fn settle(&mut self) -> Vec<Reply> {
        let mut turns = 0;
        while self.worker.turn() > 0 {
            turns += 1;
            assert!(turns < 10_000, "the worker does not come to rest");
        }
        let mut replies: Vec<Reply> = Vec::new();
        let (mut burst, mut missing) = (Burst::new(), 0);
        while self.near.rx.burst(&mut burst) > 0 {
            for frame in burst.drain(..) {
                let (id, [seq, total], text) = open(frame.bytes());
                if seq == 0 {
                    assert_eq!(missing, 0, "the last reply is not whole");
                    missing = total;
                    replies.push(Reply { id, text: Vec::new() });
                }
                let reply = replies.last_mut().expect("a reply begins with datagram 0");
                assert_eq!((reply.id, total - missing), (id, seq), "datagrams in their order");
                missing -= 1;
                assert!(text.len() == TEXT_MAX_BYTES || (missing == 0 && !text.is_empty()));
                reply.text.extend_from_slice(text);
            }
        }
        assert_eq!(missing, 0, "the last reply is not whole");
        replies
    }

    /// Ends it. Returns how many requests were not answered, for lack of frames.
    pub(crate) fn hang_up(mut self) -> u64 {
        self.worker.drain();
        assert!(self.settle().is_empty());
        let ledger = self.counters.ledger();
        assert!(ledger.balances() && ledger.in_flight == 0, "{ledger:?}");
        assert_eq!(ledger.received, u64::from(self.sent));
        drop(self.worker);
        assert_eq!(self.region.available(), self.region.capacity(), "slots were lost");
        ledger.received - ledger.answered
    }
}

/// Requests over IPv6 are tagged.
fn vlans(ipv6: bool) -> &'static [u16] {
    if ipv6 { &[5, 6] } else { &[] }
}

/// Id, number and total, and text of a datagram, which is as it should be down to its checksums.
fn open(bytes: &[u8]) -> (u16, [u16; 2], &[u8]) {
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    assert_eq!((&bytes[..6], &bytes[6..12]), (&PEER_MAC.0[..], &MAC.0[..]));
    let (ipv6, l3) = match number(12) {
        0x0800 => (false, 14),
        0x88a8 => (true, 22),
        other => panic!("ether type {other:x}"),
    };
    let l4 = l3 + if ipv6 { 40 } else { 20 };
    let (l3, l4) = (u8::try_from(l3).expect("small"), u8::try_from(l4).expect("small"));
    assert!(ipv6 || verify_ip4_header(bytes, l3));
    assert!(verify_udp(bytes, l3, l4, ipv6));
    let udp = usize::from(l4);
    assert_eq!((number(udp), number(udp + 2)), (PORT, CLIENT_PORT));
    assert_eq!(usize::from(number(udp + 4)), bytes.len() - udp);
    let kv = udp + UDP_HEADER_BYTES;
    assert_eq!(number(kv + 6), 0, "reserved");
    (number(kv), [number(kv + 2), number(kv + 4)], &bytes[kv + KV_HEADER_BYTES..])
}
