//! The queue pairs of a process, in fixed memory.
//!
//! In: who wants one, over a TCP connection. Out: a [`Handle`], which the connection keeps: the pair is
//! closed with it. A number is a place in the table and twelve random bits, so that one of a closed pair
//! names none, and a guess seldom one. Fails: [`Unopened`].

use super::pair::{Between, Pair};
use memcache::FarEnd;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use wire::roce::{PATH_MTUS, Psn};

/// Queue pairs at a time.
const PAIRS: u16 = 4096;
/// Bits of a number that say where it stands.
const PLACE_BITS: u32 = 12;
const _: () = assert!(PAIRS as u32 == 1 << PLACE_BITS);
/// Of those, how many one address (an IPv6 /64) may have.
const PER_SOURCE_MAX: u16 = 1024;

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unopened {
    /// The GID is not the address of the connection's client.
    Gid,
    /// A path MTU that frames of ours do not hold, or that is none.
    Mtu,
    /// All are in use.
    Full,
    /// The address has as many as it may.
    Source,
}

impl Unopened {
    /// The line to send, with its end.
    pub fn line(self) -> &'static [u8] {
        match self {
            Self::Gid => b"CLIENT_ERROR the GID is not this connection's address\r\n",
            Self::Mtu => b"CLIENT_ERROR the path MTU must be 256, 512 or 1024\r\n",
            Self::Full => b"SERVER_ERROR all queue pairs are in use\r\n",
            Self::Source => b"SERVER_ERROR this address has as many queue pairs as it may\r\n",
        }
    }
}

/// A queue pair that was opened, as its client needs to know it.
#[derive(Debug)]
pub struct Opened {
    /// Keeps it open.
    pub handle: Handle,
    /// Its number.
    pub qpn: u32,
    /// What our own requests would begin with.
    pub psn: u32,
}

/// All queue pairs.
#[derive(Debug)]
pub struct QueuePairs {
    pairs: Box<[Mutex<Pair>]>,
    free: Mutex<Free>,
    random: RandomState,
}

#[derive(Debug)]
struct Free {
    places: Vec<u16>,
    by_source: HashMap<IpAddr, u16>,
    opened: u64,
}

impl QueuePairs {
    pub(super) fn new() -> Self {
        Self {
            pairs: (0..PAIRS).map(|_| Mutex::new(Pair::closed())).collect(),
            free: Mutex::new(Free {
                places: (0..PAIRS).rev().collect(),
                by_source: HashMap::with_capacity(PAIRS.into()),
                opened: 0,
            }),
            random: RandomState::new(),
        }
    }

    /// The pair of this number, or of another in its place ([`Pair::is`]).
    #[inline]
    pub fn pair(&self, qpn: u32) -> Option<&Mutex<Pair>> {
        self.pairs.get(place(qpn))
    }

    /// Queue pairs that are open.
    pub fn open_now(&self) -> usize {
        self.pairs.len() - self.free.lock().places.len()
    }

    /// Opens one to the client at the other end of a TCP connection.
    ///
    /// # Errors
    /// [`Unopened`].
    pub fn open(
        self: &Arc<Self>,
        between: Option<Between>,
        far: &FarEnd,
    ) -> Result<Opened, Unopened> {
        let gid = far.gid.to_canonical();
        let between = between
            .map(|b| Between { ours: b.ours.to_canonical(), theirs: b.theirs.to_canonical() });
        let between = between.filter(|b| b.theirs == gid).ok_or(Unopened::Gid)?;
        if !PATH_MTUS.contains(&far.mtu) {
            return Err(Unopened::Mtu);
        }
        let source = source(between.theirs);
        let (at, opened) = {
            let mut free = self.free.lock();
            if free.by_source.get(&source).is_some_and(|n| *n >= PER_SOURCE_MAX) {
                return Err(Unopened::Source);
            }
            let at = free.places.pop().ok_or(Unopened::Full)?;
            *free.by_source.entry(source).or_default() += 1;
            free.opened += 1;
            (at, free.opened)
        };
        let random = self.random.hash_one(opened);
        let [high, psn] =
            [random & 0xffff_ffff, random >> 32].map(|n| u32::try_from(n).unwrap_or(0));
        // Never 0: the first numbers are those of management.
        let high = high % ((1 << (24 - PLACE_BITS)) - 1) + 1;
        let qpn = high << PLACE_BITS | u32::from(at);
        if let Some(pair) = self.pair(qpn) {
            let mut pair = pair.lock();
            pair.connect(between);
            (pair.qpn, pair.their_qpn, pair.mtu) = (qpn, far.qpn, far.mtu);
            pair.expect(Psn::new(far.psn));
        }
        let handle = Handle { pairs: Arc::clone(self), qpn };
        Ok(Opened { handle, qpn, psn: Psn::new(psn).get() })
    }

    fn close(&self, qpn: u32) {
        let Some(pair) = self.pair(qpn) else { return };
        let closed = std::mem::replace(&mut *pair.lock(), Pair::closed());
        let source = source(closed.between.theirs);
        let mut free = self.free.lock();
        if let Some(n) = free.by_source.get_mut(&source) {
            *n -= 1;
            if *n == 0 {
                free.by_source.remove(&source);
            }
        }
        free.places.push(u16::try_from(place(qpn)).unwrap_or(0));
    }
}

fn place(qpn: u32) -> usize {
    qpn as usize & ((1 << PLACE_BITS) - 1)
}

/// What counts as one source.
fn source(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(a) => IpAddr::V6((a.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

/// Keeps a queue pair open.
#[derive(Debug)]
pub struct Handle {
    pairs: Arc<QueuePairs>,
    qpn: u32,
}

impl Handle {
    /// Whom it connects.
    pub fn between(&self) -> Between {
        let nobody = Pair::closed().between;
        self.pairs.pair(self.qpn).map_or(nobody, |pair| pair.lock().between)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.pairs.close(self.qpn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn between(n: u32) -> Option<Between> {
        let address = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(n));
        Some(Between { ours: address(1), theirs: address(n) })
    }

    fn far(n: u32) -> FarEnd {
        FarEnd { qpn: 17, psn: 5, gid: Ipv4Addr::from_bits(n).to_ipv6_mapped(), mtu: 1024 }
    }

    #[test]
    fn pairs_are_their_clients_and_go_with_the_handle() {
        let pairs = Arc::new(QueuePairs::new());
        let opened = pairs.open(between(9), &far(9)).unwrap();
        let is = |qpn: u32, n| pairs.pair(qpn).unwrap().lock().is(qpn, between(n).unwrap());
        assert!(is(opened.qpn, 9) && !is(opened.qpn, 8) && !is(opened.qpn ^ 1 << 23, 9));
        assert!(!is(0, 0) && opened.qpn >= 1 << PLACE_BITS && opened.qpn < 1 << 24);
        let qpn = opened.qpn;
        drop(opened);
        assert!(!is(qpn, 9));
        assert_eq!(pairs.open_now(), 0);
    }

    #[test]
    fn whoever_is_somewhere_else_or_has_too_many_gets_none() {
        let pairs = Arc::new(QueuePairs::new());
        let why = |b, far: &FarEnd| pairs.open(b, far).unwrap_err();
        assert_eq!(why(between(8), &far(9)), Unopened::Gid);
        assert_eq!(why(None, &far(9)), Unopened::Gid);
        let link_local = FarEnd { gid: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9), ..far(9) };
        assert_eq!(why(between(9), &link_local), Unopened::Gid);
        for mtu in [0, 255, 2048, 4096] {
            assert_eq!(why(between(9), &FarEnd { mtu, ..far(9) }), Unopened::Mtu);
        }
        let mut open = Vec::new();
        for n in [1, 2, 3, 4] {
            for _ in 0..PER_SOURCE_MAX {
                open.push(pairs.open(between(n), &far(n)).unwrap());
            }
            assert_eq!(why(between(n), &far(n)), Unopened::Source);
        }
        assert_eq!(why(between(5), &far(5)), Unopened::Full);
        open.pop();
        assert!(pairs.open(between(5), &far(5)).is_ok());
        drop(open);
        assert!(pairs.open_now() == 0 && pairs.free.lock().by_source.is_empty());
    }
}
