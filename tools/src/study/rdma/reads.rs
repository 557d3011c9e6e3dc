//! A worker under one-sided reads, from frames in memory.
//!
//! In: how large values are. Out: how many READs were answered, and the CPU time of the worker's turns
//! alone. The client is the library's requester, at the other end of two rings; every value is checked to
//! the byte. Fails on a READ that is not what it must be, or does not come within so many turns.

use crate::replay::port_frames::PortFrames;
use crate::study::bench::{Bench, Config, Manner};
use crate::study::load::{CLIENT, SERVER, Shape};
use crate::study::thread_cpu;
use dataplane::rdma::{Between, Opened, read_len};
use dataplane::stages::batch::BatchPolicy;
use dataplane::worker::Worker;
use driver_shim::ports::memory::{MAC, PEER_MAC, linked};
use driver_shim::{Pages, Region};
use gnomon_client::Stag;
use gnomon_client::frames::{FRAME_MAX_BYTES, Frames, near_end, sending};
use gnomon_client::image::{self, Found};
use gnomon_client::requester::{Requester, Route};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::error::Error;
use std::time::{Duration, Instant};
use wire::roce::request::Response;

/// READs under way, as a NIC has them.
pub(super) const DEPTH: usize = 16;
/// Packet slots: responses to all of them, the longest there are, and as many again.
const SLOTS: u32 = 4096;
/// Frames that wait in each direction.
const RING_FRAMES: usize = 2048;
/// Turns of the worker within which READs must have been answered.
const TURNS_MAX: u32 = 10_000;
/// Requests whose memory accesses overlap in the CPU engine, as in a server.
const GROUP: usize = dataplane::stages::engine::cpu_engine::GROUP_DEFAULT;

/// A worker, and a queue pair to it.
pub(super) struct Reads {
    worker: Worker,
    frames: PortFrames,
    requester: Requester,
    shape: Shape,
    items: u64,
    stags: Vec<Stag>,
    buffers: Vec<Vec<u8>>,
    random: Xoshiro256PlusPlus,
    /// Keeps the queue pair open.
    _opened: Opened,
}

impl Reads {
    /// A worker over so many items.
    ///
    /// # Errors
    /// Not enough memory, or items longer than are read at once.
    pub(super) fn new(items: u64, shape: Shape, seed: u64) -> Result<Self, Box<dyn Error>> {
        let bench = Bench::new(Config { items, shape, seed })?.one_sided()?;
        let rdma = bench.server().rdma.clone().ok_or("no one-sided reads")?;
        let len = read_len(shape.key_bytes, shape.value_bytes).ok_or("too long to be read")?;
        let len = u32::try_from(len)?;
        let stag = |i| Stag { id: rdma.stags.of(bench.store().hash(&shape.key(i))), len };
        let stags = (0..items).map(stag).collect();
        let region = Region::new(SLOTS, Pages::Prefer)?;
        let (mut here, mut there) = linked(1, RING_FRAMES);
        let manner = Manner { group: GROUP, batch: BatchPolicy::default(), offload: None };
        let queues = here.queues.pop().ok_or("no queue")?;
        let worker = bench.worker(&here.info, queues, &region, manner)?;
        let between = [CLIENT.0.into(), SERVER.0.into()];
        let route = Route { macs: [PEER_MAC, MAC], between };
        let frames = PortFrames::new(there.queues.pop().ok_or("no queue")?, region, route);
        let near = near_end(&route);
        let ends = Between { ours: SERVER.0.into(), theirs: CLIENT.0.into() };
        let opened = rdma.pairs.open(Some(ends), &near).map_err(|why| format!("{why:?}"))?;
        let far = memcache::FarEnd { qpn: opened.qpn, ..near };
        Ok(Self {
            worker,
            frames,
            requester: Requester::new(&route, &near, &far),
            shape,
            items,
            stags,
            buffers: vec![Vec::new(); DEPTH],
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            _opened: opened,
        })
    }

    /// Reads items at random until this time is over and at least so many were read. The number of READs, and
    /// the CPU time that the worker spent on them.
    ///
    /// # Errors
    /// See the module.
    pub(super) fn run(
        &mut self,
        time: Duration,
        least: u64,
    ) -> Result<(u64, Duration), Box<dyn Error>> {
        let end = Instant::now() + time;
        let (mut answered, mut worked) = (0, Duration::ZERO);
        while answered < least || Instant::now() < end {
            self.post()?;
            let mut turns = 0;
            while self.requester.under_way() > 0 {
                let begun = thread_cpu();
                serve(&mut self.worker);
                worked += thread_cpu() - begun;
                answered += self.take()?;
                turns += 1;
                if turns > TURNS_MAX {
                    return Err("READs are not answered".into());
                }
            }
        }
        Ok((answered, worked))
    }

    /// Sends as many READs as may be under way.
    fn post(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(mut buffer) = self.buffers.pop() {
            let item = self.random.random_range(0..self.items.max(1));
            let stag = usize::try_from(item).ok().and_then(|item| self.stags.get(item));
            let Stag { id, len } = *stag.ok_or("no items")?;
            buffer.resize(len as usize, 0);
            let mut sent = Ok(());
            self.requester.post(id, item, buffer, &mut sending(&mut self.frames, &mut sent));
            sent?;
        }
        // The requests leave.
        let mut none = [0; FRAME_MAX_BYTES];
        match self.frames.receive(&mut none)? {
            0 => Ok(()),
            _ => Err("a frame that nothing called for".into()),
        }
    }

    /// Takes what the worker has sent, and says how many READs it finishes.
    fn take(&mut self) -> Result<u64, Box<dyn Error>> {
        let (mut frame, mut done) = ([0; FRAME_MAX_BYTES], 0);
        loop {
            let len = self.frames.receive(&mut frame)?;
            if len == 0 {
                return Ok(done);
            }
            let response = Response::checked(frame.get(..len).unwrap_or_default());
            let response = response.ok_or("a frame that is no response")?;
            let mut resumed = 0;
            let finished = self.requester.take(&response, &mut |_| resumed += 1)?;
            if resumed > 0 {
                return Err("a response was lost".into());
            }
            if let Some(finished) = finished {
                self.check(finished.ticket, &finished.bytes)?;
                self.buffers.push(finished.bytes);
                done += 1;
            }
        }
    }

    /// Whether a READ got this item.
    fn check(&self, item: u64, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        let found = image::open(bytes, &self.shape.key(item))?;
        let is_right = matches!(found, Found::Item(got) if got.value == self.shape.value(item));
        if is_right { Ok(()) } else { Err(format!("item {item} was read wrong").into()) }
    }
}

/// A measured turn of the worker, and nothing else: what a profiler sees below it is the server's.
#[inline(never)]
fn serve(worker: &mut Worker) {
    worker.turn();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sizes_are_read_whole_and_a_wrong_value_is_noticed() {
        for value_bytes in [0, 64, 1000, 10_240, 65_536] {
            let shape = Shape { key_bytes: 16, value_bytes };
            let mut reads = Reads::new(20, shape, 1).unwrap();
            let (n, worked) = reads.run(Duration::ZERO, 100).unwrap();
            assert!(n >= 100 && n % DEPTH as u64 == 0 && worked > Duration::ZERO, "{n}");
            if value_bytes > 0 {
                reads.shape.value_bytes -= 1;
                assert!(reads.run(Duration::ZERO, 1).is_err());
            }
        }
        assert!(Reads::new(20, Shape { key_bytes: 250, value_bytes: 65_537 }, 1).is_err());
    }
}
