//! One queue pair of a client's, without I/O: requests written, responses put together, lost ones
//! requested again.
//!
//! ```text
//! post ──► request frames          oldest first: responses come in the order of their PSNs
//! take ◄── response frames    ──►  a finished READ, or nothing yet
//! due ◄── the time            ──►  how long to wait; that it is time to send again; that there is no answer
//! again                       ──►  the same requests once more
//! ```
//!
//! What is lost is requested as Linux's rdma_rxe does: from the first byte that is missing, at the PSN
//! of the packet that would have had it, and then everything behind it (InfiniBand specification, volume
//! 1, section 9.7.2). So the bytes of one READ can be of several versions: [`crate::image`] notices. Fails: a refusal
//! ends the pair ([`ReadError::Refused`]). A frame that is none of ours, malformed or repeated changes nothing.

use crate::reader::ReadError;
use driver_shim::MacAddr;
use memcache::FarEnd;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use wire::build::UdpFrame;
use wire::roce::request::{Read, Response};
use wire::roce::{PORT, Psn, opcode, syndrome};

/// Longest frame of a request: over IPv6.
const REQUEST_MAX_BYTES: usize = 14 + 40 + 8 + 12 + 16 + 4;
/// Longest wait for the next byte that is missing, before it is requested again.
pub const TIMEOUT: Duration = Duration::from_millis(34);
/// Times that it is, while none comes.
const RETRIES: u32 = 7;

/// From where to where.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The client's station, and the next one towards the server. Through kernel sockets they are not looked at.
    pub macs: [MacAddr; 2],
    /// The client's address and the server's.
    pub between: [std::net::IpAddr; 2],
}

impl Route {
    /// The headers of everything that goes this way.
    pub fn headers(&self) -> UdpFrame<'static> {
        let [src, dst] = self.between.map(|ip| SocketAddr::from((ip, PORT)));
        let [src_mac, dst_mac] = self.macs;
        UdpFrame { src_mac, dst_mac, vlans: &[], src, dst, payload: &[] }
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Requester {
    headers: UdpFrame<'static>,
    near_qpn: u32,
    far_qpn: u32,
    mtu: usize,
    /// Of the next request.
    next: Psn,
    /// Of the next response.
    expected: Psn,
    reads: VecDeque<Waiting>,
    /// What is missing has been requested again, and nothing of it has come.
    has_resumed: bool,
    resumed: u64,
    /// When something was missing first, came last, or was requested again.
    since: Instant,
    /// Times that it was, since something came.
    tries: u32,
    over: bool,
}

/// What the time says of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing, for so long.
    Wait(Duration),
    /// Call [`Requester::again`].
    Again,
    /// Nothing came, however often it was requested, or the pair had ended before.
    Over,
}

/// A READ that is under way.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    stag: u64,
    first: Psn,
    into: Vec<u8>,
    come: usize,
}

/// A finished READ.
#[derive(Debug, PartialEq, Eq)]
pub struct Done {
    /// What it was posted with.
    pub ticket: u64,
    /// What was read.
    pub bytes: Vec<u8>,
}

impl Requester {
    /// A pair between these ends, as the command `rdma` connected them.
    pub fn new(route: &Route, near: &FarEnd, far: &FarEnd) -> Self {
        let psn = Psn::new(near.psn);
        Self {
            headers: route.headers(),
            near_qpn: near.qpn,
            far_qpn: far.qpn,
            mtu: usize::from(far.mtu.max(1)),
            next: psn,
            expected: psn,
            reads: VecDeque::new(),
            has_resumed: false,
            resumed: 0,
            since: Instant::now(),
            tries: 0,
            over: false,
        }
    }

    /// Its number at this end.
    pub fn qpn(&self) -> u32 {
        self.near_qpn
    }

    /// READs under way.
    pub fn under_way(&self) -> usize {
        self.reads.len()
    }

    /// Times that something was requested once more.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Whether it is this pair's. For clients with several.
    pub fn is_for(&self, response: &Response<'_>) -> bool {
        response.qpn == self.near_qpn && response.from.ip() == self.headers.dst.ip()
    }

    /// Sends a READ of as many bytes as `into` has, from the beginning of what the stag names. `ticket` comes
    /// back with it. `false`: the pair is over.
    pub fn post(
        &mut self,
        stag: u64,
        ticket: u64,
        into: Vec<u8>,
        send: &mut dyn FnMut(&[u8]),
    ) -> bool {
        if self.over {
            return false;
        }
        if self.reads.is_empty() {
            (self.since, self.tries) = (Instant::now(), 0);
        }
        let waiting = Waiting { ticket, stag, first: self.next, into, come: 0 };
        self.next = self.next.plus(packets(waiting.into.len(), self.mtu));
        self.request(&waiting, send);
        self.reads.push_back(waiting);
        true
    }

    /// Takes a response of this pair's. Gives the READ that it finishes.
    ///
    /// # Errors
    /// [`ReadError::Refused`].
    pub fn take(
        &mut self,
        response: &Response<'_>,
        send: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Done>, ReadError> {
        if !self.is_for(response) || self.over {
            return Ok(None);
        }
        if response.opcode == opcode::ACKNOWLEDGE {
            return self.refused(response, send);
        }
        match response.psn.ahead_of(self.expected) {
            0 => Ok(self.append(response)),
            ahead if ahead > 0 && response.psn.ahead_of(self.next) < 0 => {
                if !self.has_resumed {
                    self.again(send);
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// What is to be done at this time, which is not before the last one. Only bytes that were missing count as an
    /// answer: what else may come with this pair's number, of an earlier one or forged, does not prolong the wait.
    pub fn due(&mut self, now: Instant) -> Due {
        let waited = now.saturating_duration_since(self.since);
        if self.over {
            Due::Over
        } else if self.reads.is_empty() {
            Due::Wait(TIMEOUT)
        } else if waited < TIMEOUT {
            Due::Wait(TIMEOUT - waited)
        } else if self.tries < RETRIES {
            (self.since, self.tries) = (now, self.tries + 1);
            Due::Again
        } else {
            self.over = true;
            Due::Over
        }
    }

    /// Ends the pair: READs under way come to nothing.
    pub fn end(&mut self) {
        self.over = true;
        self.reads.clear();
    }

    /// Sends everything that has not come once more.
    pub fn again(&mut self, send: &mut dyn FnMut(&[u8])) {
        self.has_resumed = !self.reads.is_empty();
        self.resumed += u64::from(self.has_resumed);
        for waiting in &self.reads {
            self.request(waiting, send);
        }
    }

    fn refused(
        &mut self,
        response: &Response<'_>,
        send: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Done>, ReadError> {
        // One of a request that is not under way is late, or forged.
        let is_late = response.psn.ahead_of(self.expected) < 0;
        if is_late || response.psn.ahead_of(self.next) >= 0 {
            return Ok(None);
        }
        match response.syndrome {
            Some(syndrome::NAK_SEQUENCE) => self.again(send),
            Some(refusal @ (syndrome::NAK_INVALID | syndrome::NAK_ACCESS)) => {
                self.over = true;
                return Err(ReadError::Refused(refusal));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Takes the bytes of the expected response.
    fn append(&mut self, response: &Response<'_>) -> Option<Done> {
        let waiting = self.reads.front_mut()?;
        let left = waiting.into.len() - waiting.come;
        let is_last = left <= self.mtu;
        let says_last = matches!(response.opcode, opcode::READ_LAST | opcode::READ_ONLY);
        let place = waiting.into.get_mut(waiting.come..waiting.come + left.min(self.mtu))?;
        let is_sound = response.syndrome.is_none_or(|said| said == syndrome::ACK);
        if place.len() != response.payload.len() || is_last != says_last || !is_sound {
            return None;
        }
        place.copy_from_slice(response.payload);
        waiting.come += place.len();
        self.expected = self.expected.plus(1);
        self.has_resumed = false;
        (self.since, self.tries) = (Instant::now(), 0);
        let done = if is_last { self.reads.pop_front() } else { None };
        done.map(|Waiting { ticket, into, .. }| Done { ticket, bytes: into })
    }

    /// Writes the request for what is missing of a READ.
    fn request(&self, waiting: &Waiting, send: &mut dyn FnMut(&[u8])) {
        let Waiting { stag, first, into, come, .. } = waiting;
        let halves = [stag >> 32, stag & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or(0));
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let read = Read {
            qpn: self.far_qpn,
            psn: first.plus(number(come / self.mtu)),
            va: u64::from(halves[1]) << 32 | u64::from(number(*come)),
            rkey: halves[0],
            len: number(into.len() - come),
        };
        let mut frame = [0; REQUEST_MAX_BYTES];
        let len = read.write_to(&self.headers, &mut frame);
        // It fits: addresses of two IP versions alone would be refused, and then the READ stays unanswered.
        if let Some(frame) = len.and_then(|len| frame.get(..len)) {
            send(frame);
        }
    }
}

/// Responses to a READ of so many bytes.
fn packets(len: usize, mtu: usize) -> u32 {
    u32::try_from(len.div_ceil(mtu).max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv6Addr};
    use wire::roce::Roce;

    const STAG: u64 = 0x0123_4567_89ab_cdef;
    const SERVER: [u8; 4] = [10, 0, 0, 2];

    fn pair(psn: u32, mtu: u16) -> Requester {
        let macs = [MacAddr([2; 6]), MacAddr([4; 6])];
        let between = [IpAddr::from([10, 0, 0, 1]), IpAddr::from(SERVER)];
        let gid = Ipv6Addr::UNSPECIFIED;
        let end = |qpn| FarEnd { qpn, psn, gid, mtu };
        Requester::new(&Route { macs, between }, &end(0x77), &end(0x1234))
    }

    /// PSN, offset and length of each request.
    type Asked = Vec<(u32, usize, usize)>;

    fn asked(out: &mut Asked) -> impl FnMut(&[u8]) + '_ {
        |frame| {
            assert_eq!(frame[..14], [4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 8, 0]);
            let roce = Roce::checked(&frame[42..]).unwrap();
            let reth = roce.read.unwrap();
            assert_eq!((roce.bth.qpn(), reth.rkey.get()), (0x1234, 0x0123_4567));
            assert_eq!(reth.va.get() >> 32, 0x89ab_cdef);
            let at = usize::try_from(reth.va.get() & 0xffff_ffff).unwrap();
            out.push((roce.bth.psn().get(), at, reth.len.get() as usize));
        }
    }

    fn response(opcode: u8, psn: u32, payload: &[u8]) -> Response<'_> {
        Response {
            from: (SERVER, PORT).into(),
            qpn: 0x77,
            psn: Psn::new(psn),
            opcode,
            syndrome: (opcode != opcode::READ_MIDDLE).then_some(syndrome::ACK),
            payload,
        }
    }

    fn nak(psn: u32, said: u8) -> Response<'static> {
        Response { syndrome: Some(said), ..response(opcode::ACKNOWLEDGE, psn, &[]) }
    }

    /// What a responder answers a request with.
    fn answers((psn, at, len): (u32, usize, usize), image: &[u8], mtu: usize) -> Vec<Response<'_>> {
        let pieces = image[at..at + len].chunks(mtu);
        let n = pieces.len();
        let response = |(i, piece)| {
            let opcode = match i {
                0 if n == 1 => opcode::READ_ONLY,
                0 => opcode::READ_FIRST,
                _ if i + 1 == n => opcode::READ_LAST,
                _ => opcode::READ_MIDDLE,
            };
            response(opcode, psn + u32::try_from(i).unwrap(), piece)
        };
        pieces.enumerate().map(response).collect()
    }

    fn image(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|n| seed ^ u8::try_from(n % 251).unwrap()).collect()
    }

    #[test]
    fn reads_are_put_together_across_the_end_of_the_numbers() {
        let (mut p, mut out) = (pair(0xff_ffff, 1024), Asked::new());
        assert!(p.post(STAG, 5, vec![0; 3000], &mut asked(&mut out)));
        assert!(p.post(STAG, 6, vec![0; 40], &mut asked(&mut out)));
        assert_eq!(out, [(0xff_ffff, 0, 3000), (2, 0, 40)]);
        let (one, two) = (image(3000, 1), image(40, 2));
        let mut done = Vec::new();
        for r in
            answers((0xff_ffff, 0, 3000), &one, 1024).iter().chain(&answers((2, 0, 40), &two, 1024))
        {
            done.extend(p.take(r, &mut |_| panic!("nothing is lost")).unwrap());
            // A copy of it changes nothing.
            assert_eq!(p.take(r, &mut |_| panic!("nothing is lost")).unwrap(), None);
        }
        let want = [Done { ticket: 5, bytes: one }, Done { ticket: 6, bytes: two }];
        assert_eq!((done, p.under_way()), (want.into(), 0));
    }

    #[test]
    fn what_is_lost_is_requested_once_from_the_first_missing_byte() {
        let (mut p, mut out) = (pair(9, 1024), Asked::new());
        p.post(STAG, 1, vec![0; 4000], &mut asked(&mut out));
        p.post(STAG, 2, vec![0; 50], &mut asked(&mut out));
        let image = image(4000, 1);
        let all = answers((9, 0, 4000), &image, 1024);
        out.clear();
        p.take(&all[0], &mut asked(&mut out)).unwrap();
        p.take(&all[2], &mut asked(&mut out)).unwrap();
        p.take(&all[3], &mut asked(&mut out)).unwrap();
        assert_eq!(out, [(10, 1024, 2976), (13, 0, 50)]);
        out.clear();
        // The answer to that was lost, too: after a time, or once the responder has noticed.
        p.again(&mut asked(&mut out));
        p.take(&nak(10, syndrome::NAK_SEQUENCE), &mut asked(&mut out)).unwrap();
        assert_eq!(out, [(10, 1024, 2976), (13, 0, 50)].repeat(2));
        assert_eq!(p.resumed(), 3);
        let rest = answers((10, 1024, 2976), &image, 1024);
        assert_eq!(p.take(&rest[0], &mut |_| ()).unwrap(), None);
        // One of the first try is as good, if its bytes stand where they should.
        assert_eq!(p.take(&all[2], &mut |_| ()).unwrap(), None);
        let done = p.take(&rest[2], &mut |_| ()).unwrap();
        assert_eq!(done, Some(Done { ticket: 1, bytes: image.clone() }));
    }

    #[test]
    fn refusals_end_the_pair_and_strangers_change_nothing() {
        for said in [syndrome::NAK_ACCESS, syndrome::NAK_INVALID] {
            let mut p = pair(9, 256);
            p.post(STAG, 1, vec![0; 600], &mut |_| ());
            let right = response(opcode::READ_FIRST, 9, &[7; 256]);
            for strange in [
                Response { qpn: 0x78, ..right },
                Response { from: ([10, 0, 0, 3], PORT).into(), ..right },
                Response { payload: &[7; 255], ..right },
                Response { opcode: opcode::READ_LAST, ..right },
                Response { syndrome: Some(0x20), ..right },
                Response { psn: Psn::new(8), ..right },
                Response { psn: Psn::new(12), ..right },
                nak(8, said),
                nak(12, said),
                nak(8, syndrome::NAK_SEQUENCE),
                nak(12, syndrome::NAK_SEQUENCE),
                nak(9, 0x60 | 0x1f),
            ] {
                let nothing = p.take(&strange, &mut |_| panic!("{strange:?}"));
                assert_eq!(nothing.unwrap(), None);
            }
            assert_eq!(p.take(&right, &mut |_| ()).unwrap(), None);
            let refused = p.take(&nak(10, said), &mut |_| ());
            assert!(matches!(refused, Err(ReadError::Refused(s)) if s == said));
            assert!(!p.post(STAG, 2, vec![0; 40], &mut |_| panic!("it is over")));
            assert_eq!(
                p.take(&response(opcode::READ_MIDDLE, 10, &[7; 256]), &mut |_| ()).unwrap(),
                None
            );
        }
    }

    #[test]
    fn the_wait_for_what_is_missing_has_an_end_whatever_else_comes() {
        let mut p = pair(9, 256);
        let begun = Instant::now();
        assert_eq!(p.due(begun + 2 * TIMEOUT), Due::Wait(TIMEOUT));
        p.post(STAG, 1, vec![0; 600], &mut |_| ());
        let mut now = Instant::now();
        assert!(matches!(p.due(now), Due::Wait(left) if left > Duration::ZERO && left <= TIMEOUT));
        let strays = [response(opcode::READ_MIDDLE, 5, &[7; 256]), nak(9, syndrome::NAK_SEQUENCE)];
        for _ in 0..RETRIES {
            now += TIMEOUT;
            assert_eq!(p.due(now), Due::Again);
            for stray in &strays {
                assert_eq!(p.take(stray, &mut |_| ()).unwrap(), None);
            }
            assert_eq!(p.due(now), Due::Wait(TIMEOUT));
        }
        // What was missing begins the count again.
        p.take(&response(opcode::READ_FIRST, 9, &[7; 256]), &mut |_| ()).unwrap();
        now = Instant::now();
        for due in [Due::Again; RETRIES as usize].into_iter().chain([Due::Over; 2]) {
            now += TIMEOUT;
            assert_eq!(p.due(now), due);
        }
        assert!(!p.post(STAG, 2, vec![0; 40], &mut |_| panic!("it is over")));
    }

    proptest! {
        /// A responder that answers in order, and a network that loses, repeats and delays.
        #[test]
        fn whatever_is_lost_or_overtaken_each_byte_lands_in_its_place(
            lens in prop::collection::vec(1usize..3000, 1..6),
            fates in prop::collection::vec(0u8..6, 1..60),
            psn in prop::sample::select(vec![0u32, 0xff_fff8]),
            mtu in prop::sample::select(vec![256u16, 1024]),
        ) {
            let mut p = pair(psn, mtu);
            let mut out = Asked::new();
            let images: Vec<_> = (0..).zip(&lens).map(|(n, len)| image(*len, n)).collect();
            for (ticket, len) in (0..).zip(&lens) {
                p.post(STAG, ticket, vec![0xa5; *len], &mut asked(&mut out));
            }
            // Which READ a request is of follows from its PSN.
            let mut firsts = vec![psn];
            for len in &lens {
                firsts.push(Psn::new(firsts[firsts.len() - 1]).plus(packets(*len, mtu.into())).get());
            }
            let whose = |psn: u32| {
                (0..lens.len()).rev().find(|n| Psn::new(psn).ahead_of(Psn::new(firsts[*n])) >= 0).unwrap()
            };
            let mut done = Vec::new();
            let mut fates = fates.into_iter();
            for _ in 0..200 {
                if p.under_way() == 0 {
                    break;
                }
                let mut late = Vec::new();
                let mut next = Asked::new();
                for ask in out.drain(..) {
                    for r in answers(ask, &images[whose(ask.0)], mtu.into()) {
                        match fates.next() {
                            Some(0) => continue,
                            Some(1) => { late.push(r); continue; }
                            Some(2) => done.extend(p.take(&r, &mut asked(&mut next)).unwrap()),
                            _ => {}
                        }
                        done.extend(p.take(&r, &mut asked(&mut next)).unwrap());
                    }
                }
                for r in late {
                    done.extend(p.take(&r, &mut asked(&mut next)).unwrap());
                }
                if next.is_empty() {
                    p.again(&mut asked(&mut next));
                }
                out = next;
            }
            let want: Vec<_> = (0..).zip(images.clone()).map(|(ticket, bytes)| Done { ticket, bytes }).collect();
            prop_assert_eq!(done, want);
        }
    }
}
