//! Ports in memory, for tests and benchmarks.
//!
//! - [`linked`]: two ports back to back. What one transmits the other receives, queue by queue,
//!   through bounded lock-free rings; a full ring is a full transmit queue. Frames keep their
//!   slots, and both ports may be over one region.
//! - [`looping`]: an endless, repeating load. Receiving copies the next template into an idle
//!   frame; transmitting takes the frame back. Frames circulate between the two halves of a
//!   queue without touching the region's free list, oldest first, as in a NIC's rings.
//!
//! Nothing here fails after start-up, except that a looping port says 0 when no frame is idle.

use crate::frame::{Burst, Frame, RxChecksum, TxOffload};
use crate::port::{MacAddr, Port, PortInfo, QueuePair, RxQueue, TxCaps, TxQueue};
use crate::ports::tally::{Tallies, Tally};
use crate::prefetch::prefetch_read;
use crate::region::Region;
use crate::slots::FRAME_MAX_BYTES;
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, TryLockError};

/// Address of the first port of a linked pair, and of a looping port.
pub const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Address of the second port of a linked pair.
pub const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// A cache line.
const LINE_BYTES: usize = 64;
/// Longest IP packet: an ordinary Ethernet's.
const MTU: u16 = 1500;

fn info(name: &str, mac: MacAddr) -> PortInfo {
    PortInfo {
        name: name.to_owned(),
        mac,
        mtu: MTU,
        tx_caps: TxCaps::default(),
        any_destination: false,
        busy_poll: false,
        flows_stray: false,
    }
}

fn bytes_in(frames: &[Frame]) -> u64 {
    frames.iter().map(|f| f.len() as u64).sum()
}

/// Two ports, back to back, with `queues` queues of at most `depth` waiting frames in each
/// direction. Queue n of one leads to queue n of the other. The first port has address [`MAC`],
/// the second [`PEER_MAC`]; neither verifies nor fills in checksums.
///
/// # Panics
/// When `depth` is 0.
pub fn linked(queues: usize, depth: usize) -> (Port, Port) {
    let rings = || -> Vec<Ring> { (0..queues).map(|_| Arc::new(ArrayQueue::new(depth))).collect() };
    let (there, back) = (rings(), rings());
    (end("memory:0", MAC, &back, &there), end("memory:1", PEER_MAC, &there, &back))
}

type Ring = Arc<ArrayQueue<Frame>>;

fn end(name: &str, mac: MacAddr, rx: &[Ring], tx: &[Ring]) -> Port {
    let tallies: Vec<Arc<Tally>> = rx.iter().map(|_| Arc::default()).collect();
    let queues = rx.iter().zip(tx).zip(&tallies).map(|((rx, tx), tally)| QueuePair {
        rx: Box::new(LinkedRx { ring: Arc::clone(rx), tally: Arc::clone(tally) }),
        tx: Box::new(LinkedTx { ring: Arc::clone(tx), tally: Arc::clone(tally) }),
    });
    Port { info: info(name, mac), queues: queues.collect(), control: Box::new(Tallies(tallies)) }
}

struct LinkedRx {
    ring: Ring,
    tally: Arc<Tally>,
}

impl RxQueue for LinkedRx {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let before = into.len();
        while !into.is_full()
            && let Some(mut frame) = self.ring.pop()
        {
            // What the sender knew of the frame does not travel with it.
            frame.rx = RxChecksum::default();
            frame.tx = TxOffload::default();
            frame.stamp_ns = 0;
            into.push(frame);
        }
        let got = into.get(before..).unwrap_or_default();
        self.tally.rx_frames.add(got.len() as u64);
        self.tally.rx_bytes.add(bytes_in(got));
        got.len()
    }
}

struct LinkedTx {
    ring: Ring,
    tally: Arc<Tally>,
}

impl TxQueue for LinkedTx {
    fn burst(&mut self, from: &mut Burst) -> usize {
        // The only sender on this ring, so that the free space seen can only grow.
        let room = self.ring.capacity() - self.ring.len();
        let n = room.min(from.len());
        let mut bytes = 0;
        for frame in from.drain(..n) {
            bytes += frame.len() as u64;
            let pushed = self.ring.push(frame);
            debug_assert!(pushed.is_ok(), "a ring with room refused a frame");
        }
        self.tally.tx_frames.add(n as u64);
        self.tally.tx_bytes.add(bytes);
        n
    }
}

/// Looks at one transmitted frame of a looping port: `(queue, frame)`.
pub type Look = Arc<dyn Fn(usize, &Frame) + Send + Sync>;

/// Looks at every k-th transmitted frame of each queue.
#[derive(Clone)]
pub struct Inspect {
    /// k.
    pub every: NonZeroU64,
    /// Called from the worker, on the frame as it would have left.
    pub look: Look,
}

impl fmt::Debug for Inspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspect").field("every", &self.every).finish_non_exhaustive()
    }
}

/// A looping port: what it gives out, over and over.
#[derive(Debug, Clone)]
pub struct LoopingConfig {
    /// Whole Ethernet frames, given out in this order; queue q of n starts a q-th of n in.
    pub templates: Vec<Vec<u8>>,
    /// Queues.
    pub queues: usize,
    /// Frames that each queue has in circulation, at the most and at the start. It bounds what
    /// the worker can hold unanswered, and sets how much memory the load touches.
    pub frames_per_queue: usize,
    /// What the port says of the templates' checksums.
    pub rx: RxChecksum,
    /// Transmit checksums that the port claims to fill in. It does not: no one reads them.
    pub tx_caps: TxCaps,
    /// Whether and how transmitted frames are looked at.
    pub inspect: Option<Inspect>,
}

/// Why a looping port could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoopingError {
    /// Nothing to give out.
    #[error("a looping port needs at least one template frame")]
    NoTemplates,
    /// A template that no slot holds.
    #[error(
        "template frame {index} has {bytes} bytes; give frames of 1 to {FRAME_MAX_BYTES} bytes"
    )]
    Template {
        /// Which one.
        index: usize,
        /// Its length.
        bytes: usize,
    },
    /// Too few free slots in the region.
    #[error("a looping port needs {needed} free packet slots, there are {free}; make more slots")]
    NoSlots {
        /// Queues times frames per queue.
        needed: usize,
        /// Free at the time.
        free: usize,
    },
}

/// Opens a looping port over `region`, from which it takes `queues * frames_per_queue` slots.
///
/// A frame that the worker drops goes to the region as any other, and the port takes another
/// from there once its own store is empty; a transmitted frame beyond the store's size is freed.
///
/// # Errors
/// [`LoopingError`]: no or unfit templates, or too few slots.
pub fn looping(region: &Region, config: &LoopingConfig) -> Result<Port, LoopingError> {
    let templates = Arc::new(Templates::new(&config.templates)?);
    let needed = config.queues.saturating_mul(config.frames_per_queue);
    let free = region.available();
    let mut queues = Vec::new();
    let mut tallies = Vec::new();
    for q in 0..config.queues {
        let mut idle = VecDeque::with_capacity(config.frames_per_queue);
        while idle.len() < config.frames_per_queue {
            idle.push_back(region.alloc().ok_or(LoopingError::NoSlots { needed, free })?);
        }
        let store: Store = Arc::new(Mutex::new(idle));
        let tally = Arc::<Tally>::default();
        queues.push(QueuePair {
            rx: Box::new(LoopingRx {
                region: region.clone(),
                store: Arc::clone(&store),
                next: q * templates.spans.len() / config.queues,
                templates: Arc::clone(&templates),
                rx: config.rx,
                tally: Arc::clone(&tally),
            }),
            tx: Box::new(LoopingTx {
                store,
                keep: config.frames_per_queue,
                inspect: config.inspect.clone(),
                queue: q,
                unseen: 0,
                tally: Arc::clone(&tally),
            }),
        });
        tallies.push(tally);
    }
    let mut info = info("memory:loop", MAC);
    info.tx_caps = config.tx_caps;
    Ok(Port { info, queues, control: Box::new(Tallies(tallies)) })
}

/// The templates' bytes end to end, so that going through them reads memory in order.
struct Templates {
    bytes: Vec<u8>,
    spans: Vec<(usize, usize)>,
}

impl Templates {
    fn new(frames: &[Vec<u8>]) -> Result<Self, LoopingError> {
        if frames.is_empty() {
            return Err(LoopingError::NoTemplates);
        }
        let mut bytes = Vec::new();
        let mut spans = Vec::with_capacity(frames.len());
        for (index, frame) in frames.iter().enumerate() {
            if frame.is_empty() || frame.len() > FRAME_MAX_BYTES {
                return Err(LoopingError::Template { index, bytes: frame.len() });
            }
            let start = bytes.len();
            bytes.extend_from_slice(frame);
            spans.push((start, bytes.len()));
        }
        Ok(Self { bytes, spans })
    }

    /// Prefetches so many bytes from template `first` on: a NIC has written a frame to memory before
    /// the driver reports it, and no core waits for that.
    fn prefetch(&self, first: usize, bytes: usize) {
        let start = self.spans.get(first).map_or(0, |span| span.0);
        let soon = self.bytes.get(start..(start + bytes).min(self.bytes.len())).unwrap_or_default();
        soon.chunks(LINE_BYTES).for_each(|line| prefetch_read(line.as_ptr()));
    }
}

/// Idle frames, oldest first. Both halves of a queue are on one thread, so that the lock is
/// free whenever it is tried, and it is tried once per burst; no thread ever waits for it.
type Store = Arc<Mutex<VecDeque<Frame>>>;

fn with_store<R>(store: &Store, f: impl FnOnce(&mut VecDeque<Frame>) -> R) -> Option<R> {
    match store.try_lock() {
        Ok(mut idle) => Some(f(&mut idle)),
        // A panic elsewhere left whole frames in the deque: it can be used.
        Err(TryLockError::Poisoned(p)) => Some(f(&mut p.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

struct LoopingRx {
    region: Region,
    store: Store,
    templates: Arc<Templates>,
    next: usize,
    rx: RxChecksum,
    tally: Arc<Tally>,
}

impl RxQueue for LoopingRx {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let before = into.len();
        let want = into.remaining_capacity();
        with_store(&self.store, |idle| into.extend(idle.drain(..want.min(idle.len()))));
        if into.len() == before {
            into.extend(std::iter::from_fn(|| self.region.alloc()).take(want));
        }
        let mut bytes = 0;
        // In place: a frame that is written and then moved at once costs twice as much, because
        // the move's wide loads wait for the narrow stores.
        let got = into.get_mut(before..).unwrap_or_default();
        for frame in got.iter_mut() {
            let span = self.templates.spans.get(self.next).copied().unwrap_or_default();
            self.next = if self.next + 1 < self.templates.spans.len() { self.next + 1 } else { 0 };
            let template = self.templates.bytes.get(span.0..span.1).unwrap_or_default();
            // Fits: checked at start-up, and idle frames begin behind the standard headroom.
            let filled = frame.fill(template);
            debug_assert!(filled.is_ok());
            frame.rx = self.rx;
            frame.tx = TxOffload::default();
            frame.stamp_ns = 0;
            bytes += template.len();
        }
        self.templates.prefetch(self.next, bytes);
        self.tally.rx_frames.add(got.len() as u64);
        self.tally.rx_bytes.add(bytes as u64);
        got.len()
    }
}

struct LoopingTx {
    store: Store,
    keep: usize,
    inspect: Option<Inspect>,
    queue: usize,
    unseen: u64,
    tally: Arc<Tally>,
}

impl TxQueue for LoopingTx {
    fn burst(&mut self, from: &mut Burst) -> usize {
        if let Some(inspect) = &self.inspect {
            for frame in from.iter() {
                self.unseen += 1;
                if self.unseen >= inspect.every.get() {
                    self.unseen = 0;
                    (inspect.look)(self.queue, frame);
                }
            }
        }
        let (n, bytes) = (from.len(), bytes_in(from));
        with_store(&self.store, |idle| {
            let room = self.keep.saturating_sub(idle.len());
            idle.extend(from.drain(..room.min(n)));
        });
        // Beyond the store's size: back to the region.
        from.clear();
        self.tally.tx_frames.add(n as u64);
        self.tally.tx_bytes.add(bytes);
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BURST_MAX, Pages};
    use std::sync::atomic::{AtomicU64, Ordering};

    fn frame(region: &Region, bytes: &[u8]) -> Frame {
        let mut f = region.alloc().unwrap();
        f.fill(bytes).unwrap();
        f
    }

    #[test]
    fn what_one_sends_the_other_receives_in_order_and_per_queue() {
        let region = Region::new(64, Pages::Small).unwrap();
        let (mut a, mut b) = linked(2, 8);
        let mut burst = Burst::new();
        for i in 0..5 {
            let mut f = frame(&region, &[i; 60]);
            f.rx.ip_good = true.into();
            f.tx.udp = true.into();
            f.stamp_ns = 7;
            burst.push(f);
        }
        assert_eq!(a.queues[1].tx.burst(&mut burst), 5);
        assert!(burst.is_empty());
        assert_eq!(b.queues[0].rx.burst(&mut burst), 0);
        assert_eq!(b.queues[1].rx.burst(&mut burst), 5);
        for (i, f) in burst.iter().enumerate() {
            assert_eq!(f.bytes(), [u8::try_from(i).unwrap(); 60]);
            assert_eq!((f.rx, f.tx, f.stamp_ns), Default::default());
        }
        assert_eq!(b.queues[1].tx.burst(&mut burst), 5);
        assert_eq!(a.queues[1].rx.burst(&mut burst), 5);
        drop(burst);
        assert_eq!(region.available(), region.capacity());
        let (ca, cb) = (a.control.counters(), b.control.counters());
        assert_eq!((ca.tx_frames, ca.tx_bytes, ca.rx_frames, ca.rx_bytes), (5, 300, 5, 300));
        assert_eq!(ca, cb);
    }

    #[test]
    fn a_full_ring_leaves_the_rest_in_order() {
        let region = Region::new(64, Pages::Small).unwrap();
        let (mut a, mut b) = linked(1, 4);
        let mut burst: Burst = (0..6).map(|i| frame(&region, &[i])).collect();
        assert_eq!(a.queues[0].tx.burst(&mut burst), 4);
        assert_eq!(a.queues[0].tx.burst(&mut burst), 0);
        assert_eq!(burst.iter().map(|f| f.bytes()[0]).collect::<Vec<_>>(), [4, 5]);
        let mut got = Burst::new();
        assert_eq!(b.queues[0].rx.burst(&mut got), 4);
        assert_eq!(a.queues[0].tx.burst(&mut burst), 2);
        assert_eq!(b.queues[0].rx.burst(&mut got), 2);
        assert_eq!(got.iter().map(|f| f.bytes()[0]).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        drop((a, b, got));
        assert_eq!(region.available(), region.capacity());
    }

    #[test]
    fn frames_in_a_ring_come_home_with_the_ports() {
        let region = Region::new(8, Pages::Small).unwrap();
        let (mut a, b) = linked(1, 4);
        let mut burst: Burst = (0..3).map(|i| frame(&region, &[i])).collect();
        a.queues[0].tx.burst(&mut burst);
        drop((a, b));
        assert_eq!(region.available(), region.capacity());
    }

    fn config(templates: Vec<Vec<u8>>) -> LoopingConfig {
        LoopingConfig {
            templates,
            queues: 1,
            frames_per_queue: 100,
            rx: RxChecksum { ip_good: true.into(), udp_good: true.into() },
            tx_caps: TxCaps::default(),
            inspect: None,
        }
    }

    #[test]
    fn templates_go_round_and_frames_come_back() {
        let region = Region::new(256, Pages::Small).unwrap();
        let templates = vec![vec![1; 60], vec![2; 70], vec![3; 80]];
        let mut config = config(templates.clone());
        let seen = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&seen);
        config.inspect = Some(Inspect {
            every: NonZeroU64::new(10).unwrap(),
            look: Arc::new(move |_, f| {
                assert_eq!(f.bytes(), b"reply");
                count.fetch_add(1, Ordering::Relaxed);
            }),
        });
        let mut port = looping(&region, &config).unwrap();
        assert_eq!(region.available(), 156);
        let mut burst = Burst::new();
        let mut i = 0;
        for _ in 0..10 {
            assert_eq!(port.queues[0].rx.burst(&mut burst), 64);
            for f in &mut burst {
                assert_eq!(f.bytes(), templates[i % 3]);
                assert!(f.rx.ip_good.is_set() && f.rx.udp_good.is_set());
                i += 1;
                f.fill(b"reply").unwrap();
            }
            assert_eq!(port.queues[0].tx.burst(&mut burst), 64);
            assert!(burst.is_empty());
        }
        assert_eq!(region.available(), 156, "the region's free list was not touched");
        assert_eq!(seen.load(Ordering::Relaxed), 64);
        let c = port.control.counters();
        assert_eq!((c.rx_frames, c.tx_frames, c.tx_bytes), (640, 640, 3200));
        drop(port);
        assert_eq!(region.available(), region.capacity());
    }

    #[test]
    fn dropped_frames_are_replaced_and_surplus_ones_freed() {
        let region = Region::new(256, Pages::Small).unwrap();
        let mut port = looping(&region, &config(vec![vec![1; 60]])).unwrap();
        let mut burst = Burst::new();
        for _ in 0..20 {
            assert!(port.queues[0].rx.burst(&mut burst) > 0);
            burst.clear();
        }
        let mut surplus: Vec<Burst> =
            (0..3).map(|_| std::iter::from_fn(|| region.alloc()).take(64).collect()).collect();
        for burst in &mut surplus {
            assert_eq!(port.queues[0].tx.burst(burst), 64);
        }
        assert_eq!(region.available(), 156);
        drop(port);
        assert_eq!(region.available(), region.capacity());
    }

    #[test]
    fn says_nothing_when_every_frame_is_out() {
        let region = Region::new(100, Pages::Small).unwrap();
        let mut port = looping(&region, &config(vec![vec![1; 60]])).unwrap();
        let (mut a, mut b, mut c) = (Burst::new(), Burst::new(), Burst::new());
        assert_eq!(port.queues[0].rx.burst(&mut a), 64);
        assert_eq!(port.queues[0].rx.burst(&mut b), 36);
        assert_eq!(port.queues[0].rx.burst(&mut c), 0);
    }

    #[test]
    fn queues_start_apart_and_bad_configurations_are_errors() {
        let region = Region::new(256, Pages::Small).unwrap();
        let mut two = config((0..10).map(|i| vec![i; 60]).collect());
        two.queues = 2;
        let mut port = looping(&region, &two).unwrap();
        let mut burst = Burst::new();
        port.queues[1].rx.burst(&mut burst);
        assert_eq!(burst[0].bytes()[0], 5);
        drop((port, burst));

        assert_eq!(looping(&region, &config(vec![])).unwrap_err(), LoopingError::NoTemplates);
        let long = config(vec![vec![0; 60], vec![0; FRAME_MAX_BYTES + 1]]);
        assert!(matches!(
            looping(&region, &long).unwrap_err(),
            LoopingError::Template { index: 1, .. }
        ));
        two.queues = 3;
        assert_eq!(
            looping(&region, &two).unwrap_err(),
            LoopingError::NoSlots { needed: 300, free: 256 }
        );
        assert_eq!(region.available(), region.capacity());
    }

    /// Not a pass-or-fail test: prints the cost of the port itself.
    /// `cargo test --release -p driver-shim -- --ignored --nocapture cost_per_frame`
    #[test]
    #[ignore = "prints a measurement"]
    fn cost_per_frame() {
        // The thread's own time: other work on the machine does not count.
        let now = || {
            let t = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap();
            std::time::Duration::from(t).as_secs_f64() * 1e9
        };
        const FRAMES: usize = 20_000_000;
        for frames in [64, 256, 4096, 16384] {
            let region = Region::new(20_000, Pages::Prefer).unwrap();
            let mut config = config(vec![vec![1; 72]; 512]);
            config.frames_per_queue = frames;
            let mut port = looping(&region, &config).unwrap();
            let q = &mut port.queues[0];
            let mut burst = Burst::new();
            let start = now();
            for _ in 0..FRAMES / BURST_MAX {
                q.rx.burst(&mut burst);
                q.tx.burst(&mut burst);
            }
            let port_ns = (now() - start) / FRAMES as f64;
            drop(port);
            let mut held: Vec<Frame> = (0..frames).map(|_| region.alloc().unwrap()).collect();
            let start = now();
            for _ in 0..FRAMES / frames {
                for f in &mut held {
                    f.fill(std::hint::black_box(&config.templates[0])).unwrap();
                }
            }
            let copy_ns = (now() - start) / FRAMES as f64;
            println!("{frames} frames: {port_ns:.1} ns each, of which the copy {copy_ns:.1}");
        }
    }
}
