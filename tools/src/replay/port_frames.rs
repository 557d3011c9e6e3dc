//! A queue pair of a port as a way for the frames of one-sided reads.
//!
//! In: a port's queues, from whom to whom. Out: frames, one at a time. What finds a full queue is lost, as on
//! any network, and requested again.

use super::queues::Kept;
use driver_shim::{Burst, PortControl, QueuePair, Region};
use gnomon_client::frames::Frames;
use gnomon_client::requester::Route;
use std::io;
use std::time::Duration;

/// The queues.
pub struct PortFrames {
    /// Stopped before the queues go.
    control: Option<Kept>,
    pair: QueuePair,
    region: Region,
    route: Route,
    out: Burst,
    come: Burst,
}

base::opaque!(PortFrames, |it| route: it.route);

impl PortFrames {
    /// Sends frames made from `region`'s slots.
    pub fn new(pair: QueuePair, region: Region, route: Route) -> Self {
        Self { pair, region, route, out: Burst::new(), come: Burst::new(), control: None }
    }

    /// Keeps the port open that the queues belong to, and stops it at the end.
    #[must_use]
    pub fn keeping(mut self, control: Box<dyn PortControl>) -> Self {
        self.control = Some(Kept(control));
        self
    }

    fn flush(&mut self) {
        if !self.out.is_empty() {
            self.pair.tx.burst(&mut self.out);
        }
    }
}

impl Frames for PortFrames {
    fn route(&self) -> Route {
        self.route
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if self.out.is_full() {
            self.flush();
        }
        if !self.out.is_full()
            && let Some(mut slot) = self.region.alloc()
        {
            slot.fill(frame).map_err(io::Error::other)?;
            self.out.push(slot);
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.flush();
        if self.come.is_empty() {
            self.pair.rx.burst(&mut self.come);
        }
        let Some(frame) = self.come.pop_at(0) else { return Ok(0) };
        let Some(place) = into.get_mut(..frame.len()) else { return Ok(0) };
        place.copy_from_slice(frame.bytes());
        Ok(frame.len())
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        self.pair.rx.idle(at_most);
        Ok(())
    }
}
