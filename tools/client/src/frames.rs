//! READs by a requester in user space, over whatever moves frames.
//!
//! In: a stag, and how much to read. Out: the bytes. What does not come is requested again, as often as a
//! NIC would. Fails: [`ReadError`].

use crate::codec::connection::Connection;
use crate::reader::{ReadError, Reader};
use crate::requester::{Requester, Route};
use crate::service;
use memcache::FarEnd;
use std::io;
use std::time::{Duration, Instant};
use wire::roce::request::Response;

/// Longest wait for a response, before it is requested again.
pub const TIMEOUT: Duration = Duration::from_millis(34);
/// Times that it is, while nothing comes.
pub const RETRIES: u32 = 7;
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

/// A client's end of a queue pair of this number, that starts anywhere.
pub fn near_end(route: &Route, qpn: u32) -> FarEnd {
    let gid = match route.between[0].to_canonical() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        std::net::IpAddr::V6(ip) => ip,
    };
    FarEnd { qpn, psn: qpn.wrapping_mul(0x9e_3779) & 0xff_ffff, gid, mtu: MTU }
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
        let near = near_end(&route, 1);
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

impl<F: Frames> Reader for FrameReader<F> {
    fn read(&mut self, stag: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let Self { frames, requester, buffer } = self;
        let mut bytes = std::mem::take(buffer);
        bytes.resize(into.len(), 0);
        let mut sent = Ok(());
        if !requester.post(stag, 0, bytes, &mut sending(frames, &mut sent)) {
            return Err(ReadError::Silent);
        }
        let mut come = [0; FRAME_MAX_BYTES];
        let (mut tries, mut since) = (0, Instant::now());
        loop {
            std::mem::replace(&mut sent, Ok(()))?;
            let len = frames.receive(&mut come)?;
            let response = Response::checked(come.get(..len).unwrap_or_default());
            if let Some(response) = response.filter(|response| requester.is_for(response)) {
                (tries, since) = (0, Instant::now());
                if let Some(done) = requester.take(&response, &mut sending(frames, &mut sent))? {
                    into.copy_from_slice(&done.bytes);
                    *buffer = done.bytes;
                    return Ok(());
                }
            }
            let waited = since.elapsed();
            if len == 0 && waited < TIMEOUT {
                frames.wait(TIMEOUT - waited)?;
            } else if waited >= TIMEOUT {
                if tries == RETRIES {
                    return Err(ReadError::Silent);
                }
                (tries, since) = (tries + 1, Instant::now());
                requester.again(&mut sending(frames, &mut sent));
            }
        }
    }
}
