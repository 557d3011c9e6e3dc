//! The queues of a port as a link: frames travel as they stand in the capture, and replies are
//! distinguished by the address and port they go to.
//!
//! A client keeps to one queue, so that its requests leave in order; replies are taken from all,
//! since the port's hash, not the client, chooses where they come in.

use super::link::{Link, Taken};
use super::pending::Tag;
use crate::trace::{Datagram, Request};
use driver_shim::{Burst, MacAddr, PortControl, QueuePair, Region};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// A pair of queues and what is to be sent through it.
struct Lane {
    pair: QueuePair,
    out: Burst,
}

/// A port that is open, and stopped at the end.
pub(super) struct Kept(pub(super) Box<dyn PortControl>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Pairs of queues, on whatever drives them.
pub struct Queues {
    /// Stopped before the queues go.
    control: Option<Kept>,
    lanes: Vec<Lane>,
    region: Region,
    dst_mac: Option<MacAddr>,
    clients: HashMap<SocketAddr, u32>,
    into: Burst,
}

base::opaque!(Queues, |it| clients: it.clients.len());

impl Queues {
    /// Sends frames made from `region`'s slots; with `dst_mac`, to that Ethernet address. Without
    /// any queue, nothing ever leaves.
    pub fn new(pairs: Vec<QueuePair>, region: Region, dst_mac: Option<MacAddr>) -> Self {
        let lane = |pair| Lane { pair, out: Burst::new() };
        Self {
            lanes: pairs.into_iter().map(lane).collect(),
            region,
            dst_mac,
            clients: HashMap::new(),
            into: Burst::new(),
            control: None,
        }
    }

    /// Keeps the port open that the queues belong to, and stops it at the end.
    #[must_use]
    pub fn keeping(mut self, control: Box<dyn PortControl>) -> Self {
        self.control = Some(Kept(control));
        self
    }
}

impl Lane {
    fn flush(&mut self) {
        if !self.out.is_empty() {
            self.pair.tx.burst(&mut self.out);
        }
    }
}

impl Link for Queues {
    fn tag(&mut self, request: &Request) -> Tag {
        let number = u32::try_from(self.clients.len()).unwrap_or(0);
        let lane = *self.clients.entry(request.datagram.src).or_insert(number);
        Tag { lane, id: request.id }
    }

    fn send(&mut self, frame: &[u8], request: Option<(&Request, Tag)>) -> io::Result<Taken> {
        let client = request.map_or(0, |(_, tag)| tag.lane as usize);
        let count = self.lanes.len().max(1);
        let Some(lane) = self.lanes.get_mut(client % count) else { return Ok(Taken::Never) };
        if lane.out.is_full() {
            lane.flush();
        }
        if lane.out.is_full() {
            return Ok(Taken::Full);
        }
        let Some(mut out) = self.region.alloc() else { return Ok(Taken::Full) };
        if out.fill(frame).is_err() {
            return Ok(Taken::Never);
        }
        if let (Some(mac), Some(to)) = (self.dst_mac, out.bytes_mut().first_chunk_mut()) {
            *to = mac.0;
        }
        lane.out.push(out);
        Ok(Taken::Sent)
    }

    fn receive(&mut self, each: &mut dyn FnMut(Option<u32>, &[u8])) -> io::Result<usize> {
        let mut got = 0;
        for lane in &mut self.lanes {
            lane.flush();
            got += lane.pair.rx.burst(&mut self.into);
            for frame in self.into.drain(..) {
                // What is no datagram (ARP, neighbour discovery) is not for us.
                if let Some(d) = Datagram::parse(frame.bytes()) {
                    let payload = frame.bytes().get(d.payload).unwrap_or_default();
                    each(self.clients.get(&d.dst).copied(), payload);
                }
            }
        }
        Ok(got)
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        // Only one of several can be slept on: then none is.
        match &mut self.lanes[..] {
            [lane] => lane.pair.rx.idle(at_most),
            _ => std::hint::spin_loop(),
        }
        Ok(())
    }
}
