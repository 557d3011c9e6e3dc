//! READs of the offline study: requests that follow each other on queue pairs, and what the right
//! responses are.
//!
//! In: the key of an item that is in the store. Out: the frame of a READ that gets all of it, with the
//! next sequence number of a pair. Requests are to be sent in the order in which they were made, and
//! none twice. Fails when no pair can be opened.

use super::load::{CLIENT, SERVER, Shape, UDP_AT};
use dataplane::rdma::{Between, HEAD_BYTES, Opened, Rdma, TAIL_BYTES, read_len};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use memcache::FarEnd;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use store::Store;
use wire::build::UdpFrame;
use wire::roce::request::Read;
use wire::roce::{self, Psn};

/// Connections that the requests come from, in turns.
const PAIRS: u32 = 16;
/// Where a response's payload begins: behind the base header and an AETH.
const PAYLOAD_AT: usize = UDP_AT + 8 + 12 + 4;
/// Room for a request's frame.
const REQUEST_BYTES: usize = 128;
/// Status of an item that is there.
const HIT: u8 = 0;

/// A client of one-sided reads.
#[derive(Debug)]
pub struct Reader {
    rdma: Arc<Rdma>,
    store: Arc<Store>,
    pairs: Vec<(Opened, Psn)>,
    next: usize,
}

impl Reader {
    /// Opens queue pairs to the service.
    ///
    /// # Errors
    /// None can be had.
    pub fn new(rdma: &Arc<Rdma>, store: &Arc<Store>) -> Result<Self, Box<dyn Error>> {
        let between = Between { ours: SERVER.0.into(), theirs: CLIENT.0.into() };
        let gid = CLIENT.0.to_ipv6_mapped();
        let open = |qpn| {
            let far = FarEnd { qpn, psn: 0, gid, mtu: 1024 };
            let opened = rdma.pairs.open(Some(between), &far);
            opened.map(|opened| (opened, Psn::new(0))).map_err(|why| format!("{why:?}"))
        };
        let pairs = (1..=PAIRS).map(open).collect::<Result<_, _>>()?;
        Ok(Self { rdma: Arc::clone(rdma), store: Arc::clone(store), pairs, next: 0 })
    }

    /// The next request, for this item. `None`: it is longer than is read at once.
    pub fn request(&mut self, shape: Shape, item: u64) -> Option<Vec<u8>> {
        let stag = self.rdma.stags.of(self.store.hash(&shape.key(item)));
        let len = u32::try_from(read_len(shape.key_bytes, shape.value_bytes)?).ok()?;
        let at = self.next % self.pairs.len();
        self.next += 1;
        let (opened, psn) = self.pairs.get_mut(at)?;
        let (va, rkey) = (stag << 32, u32::try_from(stag >> 32).ok()?);
        let read = Read { qpn: opened.qpn, psn: *psn, va, rkey, len };
        *psn = psn.plus(len.div_ceil(1024));
        let route = UdpFrame {
            src_mac: PEER_MAC,
            dst_mac: MAC,
            vlans: &[],
            src: SocketAddr::from(CLIENT),
            dst: SocketAddr::from((SERVER.0, roce::PORT)),
            payload: &[],
        };
        let mut frame = vec![0; REQUEST_BYTES];
        let written = read.write_to(&route, &mut frame)?;
        frame.truncate(written);
        Some(frame)
    }
}

/// Whether a frame is a response to a READ.
pub fn is_response(frame: &[u8]) -> bool {
    frame.get(UDP_AT + 2..UDP_AT + 4) == Some(&roce::PORT.to_be_bytes())
}

/// Whether it holds all of an item of this shape, one version of it.
pub fn is_right(shape: Shape, frame: &[u8]) -> bool {
    let check = || {
        let end = frame.len().checked_sub(roce::ICRC_BYTES)?;
        let image = frame.get(PAYLOAD_AT..end)?;
        let (head, rest) = image.split_at_checked(HEAD_BYTES)?;
        let (key, rest) = rest.split_at_checked(shape.key_bytes)?;
        let (value, tail) = rest.split_at_checked(shape.value_bytes)?;
        let is_one = head.get(HEAD_BYTES - 4..)? == tail.get(..4)?;
        let is_right = *value == shape.value(shape.key_in(key)?);
        Some(*head.first()? == HIT && is_one && is_right && tail.len() >= TAIL_BYTES)
    };
    check() == Some(true)
}
