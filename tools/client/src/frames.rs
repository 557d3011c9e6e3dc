//! READs by a requester in user space, over whatever moves frames.
//!
//! In: a stag, and how much to read. Out: the bytes. What does not come is requested again, as often as a
//! NIC would. Fails: [`ReadError`].

use crate::codec::connection::Connection;
use crate::reader::{ReadError, Reader};
use crate::requester::{Due, Requester, Route};
use crate::service;
use memcache::FarEnd;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::{Duration, Instant};
use wire::roce::request::Response;

/// Largest path MTU of RoCEv2 that the server takes.
const MTU: u16 = 1024;

/// Longest frame that comes: a slot of the server's.
pub const FRAME_MAX_BYTES: usize = 2048;

/// A way for whole Ethernet frames, to the server and back.
pub trait Frames {
    /// From where to where they go.
    fn route(&self) -> Route;

    /// Sends one. What cannot be sent now is lost, as on any network.
    ///
    /// # Errors
    /// Of a way that is broken for good.
    fn send(&mut self, frame: &[u8]) -> io::Result<()>;

    /// Takes the next frame that has come into the beginning of `into`, and says how long it is. 0:
    /// there is none now.
    ///
    /// # Errors
    /// As for [`Frames::send`].
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Waits until one has come, or for so long.
    ///
    /// # Errors
    /// As for [`Frames::send`].
    fn wait(&mut self, at_most: Duration) -> io::Result<()>;
}

/// Numbers of queue pairs and of packets have 24 bits.
const MASK_24: u32 = 0xff_ffff;

/// A number of 24 bits that cannot be foreseen.
pub(crate) fn random_24() -> u32 {
    // The standard library's own keys, which the system gives.
    let random = RandomState::new().hash_one(());
    u32::try_from(random & u64::from(MASK_24)).unwrap_or(MASK_24)
}

/// A client's end of a queue pair. Its number and the first packet's are random: late responses to an earlier pair,
/// and responses of those who do not see its requests, are not its own.
pub fn near_end(route: &Route) -> FarEnd {
    let gid = match route.between[0].to_canonical() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        std::net::IpAddr::V6(ip) => ip,
    };
    // 0 and 1 are the specification's own.
    FarEnd { qpn: random_24().max(2), psn: random_24(), gid, mtu: MTU }
}

/// Reads over a way for frames, one READ at a time.
#[derive(Debug)]
pub struct FrameReader<F> {
    frames: F,
    requester: Requester,
    buffer: Vec<u8>,
}

impl<F: Frames> FrameReader<F> {
    /// Opens a queue pair over the service's connection, which is to be kept as long.
    ///
    /// # Errors
    /// The connection's, and the service's refusal.
    pub fn connect(service: &mut Connection, frames: F) -> io::Result<Self> {
        let route = frames.route();
        let near = near_end(&route);
        let far = service::connect(service, &near)?;
        let requester = Requester::new(&route, &near, &far);
        Ok(Self { frames, requester, buffer: Vec::new() })
    }
}

/// Sends what a requester gives out. The first error is kept.
pub fn sending<'f, F: Frames>(
    frames: &'f mut F,
    failed: &'f mut io::Result<()>,
) -> impl FnMut(&[u8]) + 'f {
    |frame| {
        if let (Err(why), true) = (frames.send(frame), failed.is_ok()) {
            *failed = Err(why);
        }
    }
}

impl<F: Frames> FrameReader<F> {
    /// The bytes of a READ, as many as `into` has.
    fn fetch(&mut self, stag: u64, into: Vec<u8>) -> Result<Vec<u8>, ReadError> {
        let Self { frames, requester, .. } = self;
        let mut sent = Ok(());
        if !requester.post(stag, 0, into, &mut sending(frames, &mut sent)) {
            return Err(ReadError::Silent);
        }
        let mut come = [0; FRAME_MAX_BYTES];
        loop {
            std::mem::replace(&mut sent, Ok(()))?;
            let len = frames.receive(&mut come)?;
            if let Some(response) = Response::checked(come.get(..len).unwrap_or_default())
                && let Some(done) = requester.take(&response, &mut sending(frames, &mut sent))?
            {
                return Ok(done.bytes);
            }
            match requester.due(Instant::now()) {
                Due::Wait(left) if len == 0 => frames.wait(left)?,
                Due::Wait(_) => {}
                Due::Again => requester.again(&mut sending(frames, &mut sent)),
                Due::Over => return Err(ReadError::Silent),
            }
        }
    }
}

impl<F: Frames> Reader for FrameReader<F> {
    fn read(&mut self, stag: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.resize(into.len(), 0);
        match self.fetch(stag, bytes) {
            // Of this READ, as long as it: a READ that failed leaves none behind it.
            Ok(bytes) if bytes.len() == into.len() => {
                into.copy_from_slice(&bytes);
                self.buffer = bytes;
                Ok(())
            }
            Ok(_) => Err(ReadError::Silent),
            Err(why) => {
                self.requester.end();
                Err(why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_shim::MacAddr;
    use std::collections::VecDeque;
    use std::net::{IpAddr, SocketAddr};
    use wire::build::UdpFrame;
    use wire::roce::{PORT, opcode, syndrome};

    fn route() -> Route {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        Route { macs: [MacAddr([2; 6]), MacAddr([4; 6])], between: [ip(1), ip(2)] }
    }

    /// A response of the server's, from the first byte to the last.
    fn response(opcode: u8, qpn: u32, psn: u32, data: &[u8]) -> Vec<u8> {
        let mut payload = vec![opcode, 0, 0xff, 0xff];
        payload.extend(qpn.to_be_bytes());
        payload.extend(psn.to_be_bytes());
        if opcode != opcode::READ_MIDDLE {
            payload.extend([syndrome::ACK, 0, 0, 1]);
        }
        payload.extend(data);
        payload.extend([0; 4]);
        let there = route().headers();
        let src = SocketAddr::from((there.dst.ip(), PORT));
        let back = UdpFrame {
            src_mac: there.dst_mac,
            dst_mac: there.src_mac,
            src,
            dst: SocketAddr::from((there.src.ip(), PORT)),
            payload: &payload,
            ..there
        };
        let mut frame = [0; FRAME_MAX_BYTES];
        let end = back.write_to(&mut frame).unwrap() - 4;
        // What routers change counts as ones: type of service, time to live, both checksums, the reserved byte.
        let mut covered = [&[0xff; 8], &frame[14..end]].concat();
        for at in [9, 16, 18, 19, 34, 35, 40] {
            covered[at] = 0xff;
        }
        frame[end..end + 4].copy_from_slice(&crc32fast::hash(&covered).to_le_bytes());
        assert!(Response::checked(&frame[..end + 4]).is_some());
        frame[..end + 4].to_vec()
    }

    /// What comes, in its order, and without an end what comes then.
    #[derive(Debug, Default)]
    struct Script {
        come: VecDeque<Vec<u8>>,
        ever: Vec<u8>,
        is_down: bool,
    }

    impl Frames for Script {
        fn route(&self) -> Route {
            route()
        }

        fn send(&mut self, _: &[u8]) -> io::Result<()> {
            if self.is_down { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
        }

        fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let frame = self.come.pop_front();
            let frame = frame.as_ref().unwrap_or(&self.ever);
            into[..frame.len()].copy_from_slice(frame);
            Ok(frame.len())
        }

        fn wait(&mut self, at_most: Duration) -> io::Result<()> {
            std::thread::sleep(at_most);
            Ok(())
        }
    }

    fn reader(frames: Script) -> (FrameReader<Script>, FarEnd) {
        let near = near_end(&route());
        let far = FarEnd { qpn: 17, ..near };
        let requester = Requester::new(&route(), &near, &far);
        (FrameReader { frames, requester, buffer: Vec::new() }, near)
    }

    #[test]
    fn a_late_response_to_an_earlier_pair_is_not_the_next_ones() {
        let (_, old) = reader(Script::default());
        let (mut it, near) = reader(Script::default());
        // One in 2^48.
        assert_ne!((old.qpn, old.psn), (near.qpn, near.psn));
        assert!(near.qpn > 1 && near.qpn <= MASK_24 && near.psn <= MASK_24);
        it.frames.come.push_back(response(opcode::READ_ONLY, old.qpn, old.psn, &[6; 40]));
        it.frames.come.push_back(response(opcode::READ_ONLY, near.qpn, near.psn, &[7; 40]));
        let mut bytes = [0; 40];
        it.read(1, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 40]);
    }

    #[test]
    fn a_read_comes_to_an_end_though_strays_never_cease() {
        let (mut it, near) = reader(Script::default());
        it.frames.come.push_back(response(opcode::READ_ONLY, near.qpn, near.psn, &[7; 40]));
        let mut bytes = [0; 40];
        it.read(1, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 40]);
        // A copy of it, over and over.
        it.frames.ever = response(opcode::READ_ONLY, near.qpn, near.psn, &[7; 40]);
        assert!(matches!(it.read(1, &mut bytes), Err(ReadError::Silent)));
    }

    #[test]
    fn a_read_that_failed_leaves_nothing_to_the_next_one() {
        for len in [40, 80] {
            let (mut it, near) = reader(Script { is_down: true, ..Script::default() });
            assert!(matches!(it.read(1, &mut [0; 40]), Err(ReadError::Io(_))));
            it.frames.is_down = false;
            it.frames.come.push_back(response(opcode::READ_ONLY, near.qpn, near.psn, &[7; 40]));
            let mut bytes = vec![0; len];
            assert!(matches!(it.read(2, &mut bytes), Err(ReadError::Silent)));
            assert_eq!(bytes, vec![0; len]);
        }
    }
}
