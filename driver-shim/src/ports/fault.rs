//! A bad network around any queue pair, for tests: loss, duplication, reordering, truncation,
//! flipped bits, short bursts, a full transmit ring, a cable that is pulled, a device that rests.
//!
//! In and out: frames, in either direction. The faults follow from the seed and from the
//! frames' order alone, so that a failing run can be repeated. Each fault is counted, so that a
//! test can balance exactly, for either direction and at any time:
//!
//! ```text
//! entered + duplicated = left + lost + frames held here
//! ```
//!
//! Receiving holds nothing back once the queue behind it says that nothing waits. Transmitting
//! holds only what the queue behind it would not take: those leave with the next burst, even an
//! empty one. What is held when the queue goes, goes with it.

#[cfg(test)]
mod tests;

use crate::counter::Counter;
use crate::frame::{BURST_MAX, Burst, Frame, RxChecksum, TxOffload};
use crate::port::{QueuePair, RxQueue, TxQueue};
use crate::region::Region;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// How often something happens, in events per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerMillion(pub u32);

/// What happens to the frames of one direction. All zero: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Frames that vanish.
    pub lose: PerMillion,
    /// Frames that come twice, one right behind the other. The second one is always whole.
    pub duplicate: PerMillion,
    /// Frames that 1 to 4 later ones overtake.
    pub reorder: PerMillion,
    /// Frames cut to a random length below their own.
    pub truncate: PerMillion,
    /// Frames with one bit turned.
    pub flip: PerMillion,
    /// Bursts that stop at a random number of frames although more could go.
    pub short_burst: PerMillion,
    /// Bursts of which nothing is taken, as by a full ring. Transmit only.
    pub refuse: PerMillion,
}

/// Faults in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultConfig {
    /// Same seed, same faults. Give each queue of a port its own.
    pub seed: u64,
    /// Between the queue and the worker.
    pub rx: Faults,
    /// Between the worker and the queue.
    pub tx: Faults,
}

/// What happened in one direction, in frames unless named otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounts {
    /// Came in.
    pub entered: u64,
    /// Went out.
    pub left: u64,
    /// Vanished.
    pub lost: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Copies not made for lack of a slot.
    pub not_duplicated: u64,
    /// Overtaken by at least one.
    pub reordered: u64,
    /// Cut short.
    pub truncated: u64,
    /// With a bit turned.
    pub flipped: u64,
    /// Bursts cut short.
    pub short_bursts: u64,
    /// Bursts refused.
    pub refused: u64,
}

impl FaultCounts {
    /// Frames inside the injector at this moment.
    pub fn held(&self) -> u64 {
        (self.entered + self.duplicated).saturating_sub(self.left + self.lost)
    }
}

#[derive(Debug, Default)]
struct Counts {
    entered: Counter,
    left: Counter,
    lost: Counter,
    duplicated: Counter,
    not_duplicated: Counter,
    reordered: Counter,
    truncated: Counter,
    flipped: Counter,
    short_bursts: Counter,
    refused: Counter,
}

impl Counts {
    fn read(&self) -> FaultCounts {
        FaultCounts {
            entered: self.entered.get(),
            left: self.left.get(),
            lost: self.lost.get(),
            duplicated: self.duplicated.get(),
            not_duplicated: self.not_duplicated.get(),
            reordered: self.reordered.get(),
            truncated: self.truncated.get(),
            flipped: self.flipped.get(),
            short_bursts: self.short_bursts.get(),
            refused: self.refused.get(),
        }
    }
}

/// What there is beyond the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Wire {
    /// A wire, with its faults.
    Up,
    /// None: what comes and what is sent is lost.
    Down,
    /// Not even a device, as during a reset or after its removal: queues give and take nothing.
    Away,
}

/// Pulls the cable, or the device, and plugs it in again. For any thread, at any time.
#[derive(Debug, Clone, Default)]
pub struct Plug(Arc<AtomicU8>);

impl Plug {
    /// From the next burst on.
    pub fn set(&self, wire: Wire) {
        self.0.store(wire as u8, Ordering::Relaxed);
    }

    fn is(&self, wire: Wire) -> bool {
        self.0.load(Ordering::Relaxed) == wire as u8
    }
}

/// A handle on the counters of one wrapped queue pair. Exact while the queues are at rest.
#[derive(Debug, Clone)]
pub struct FaultCounters {
    rx: Arc<Counts>,
    tx: Arc<Counts>,
    plug: Plug,
}

impl FaultCounters {
    /// Towards the worker.
    pub fn rx(&self) -> FaultCounts {
        self.rx.read()
    }

    /// From the worker.
    pub fn tx(&self) -> FaultCounts {
        self.tx.read()
    }

    /// The wire's plug, in at first.
    pub fn plug(&self) -> &Plug {
        &self.plug
    }
}

/// Wraps `pair`. Copies for duplication come from `region`.
pub fn wrap(pair: QueuePair, region: &Region, config: &FaultConfig) -> (QueuePair, FaultCounters) {
    let plug = Plug::default();
    let rx = Channel::new(config.rx, config.seed, region, &plug);
    // Its own sequence, so that neither direction depends on how calls interleave.
    let tx = Channel::new(config.tx, !config.seed, region, &plug);
    let counters = FaultCounters { rx: Arc::clone(&rx.counts), tx: Arc::clone(&tx.counts), plug };
    let pair = QueuePair {
        rx: Box::new(FaultRx { inner: pair.rx, channel: rx, scratch: Burst::new() }),
        tx: Box::new(FaultTx { inner: pair.tx, channel: tx, scratch: Burst::new() }),
    };
    (pair, counters)
}

/// SplitMix64: small, fast, and good enough to choose faults with.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is 0.
    fn below(&mut self, n: usize) -> usize {
        let scaled = u128::from(self.next()) * n as u128;
        usize::try_from(scaled >> 64).unwrap_or(0)
    }

    fn happens(&mut self, rate: PerMillion) -> bool {
        // Drawn even at rate 0, so that changing one rate moves no other fault.
        self.below(1_000_000) < rate.0 as usize
    }
}

/// A frame on its way to be overtaken.
struct Late {
    frame: Frame,
    overtaken_by: usize,
    until: usize,
}

/// One direction.
struct Channel {
    faults: Faults,
    random: Random,
    region: Region,
    late: Option<Late>,
    /// Through with, oldest first. Holds less than a burst before one is added, which at most
    /// doubles and brings out the late one: the deque never grows.
    ready: VecDeque<Frame>,
    counts: Arc<Counts>,
    plug: Plug,
}

impl Channel {
    fn new(faults: Faults, seed: u64, region: &Region, plug: &Plug) -> Self {
        Self {
            plug: plug.clone(),
            faults,
            random: Random(seed),
            region: region.clone(),
            late: None,
            ready: VecDeque::with_capacity(3 * BURST_MAX + 1),
            counts: Arc::default(),
        }
    }

    /// Frames that may be added now.
    fn room(&self) -> usize {
        BURST_MAX.saturating_sub(self.ready.len())
    }

    fn add(&mut self, mut frame: Frame) {
        let Self { faults, random, counts, .. } = self;
        let [lose, duplicate, reorder, truncate, flip] =
            [faults.lose, faults.duplicate, faults.reorder, faults.truncate, faults.flip]
                .map(|rate| random.happens(rate));
        counts.entered.add(1);
        if lose || self.plug.is(Wire::Down) {
            counts.lost.add(1);
            return;
        }
        let copy = if duplicate { self.copy(&frame) } else { None };
        if truncate && !frame.is_empty() {
            let cut = frame.set_len(self.random.below(frame.len()));
            debug_assert!(cut.is_ok(), "shorter always fits");
            self.counts.truncated.add(1);
            spoil(&mut frame);
        }
        if flip && !frame.is_empty() {
            let bit = self.random.below(frame.len() * 8);
            if let Some(byte) = frame.bytes_mut().get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            self.counts.flipped.add(1);
            spoil(&mut frame);
        }
        if reorder && self.late.is_none() {
            let until = 1 + self.random.below(4);
            self.late = Some(Late { frame, overtaken_by: 0, until });
        } else {
            self.pass(frame);
        }
        if let Some(copy) = copy {
            self.pass(copy);
        }
    }

    fn copy(&mut self, frame: &Frame) -> Option<Frame> {
        let copy = self.region.alloc().and_then(|mut copy| {
            copy.fill(frame.bytes()).ok()?;
            (copy.rx, copy.tx, copy.stamp_ns) = (frame.rx, frame.tx, frame.stamp_ns);
            Some(copy)
        });
        let counter =
            if copy.is_some() { &self.counts.duplicated } else { &self.counts.not_duplicated };
        counter.add(1);
        copy
    }

    fn pass(&mut self, frame: Frame) {
        self.ready.push_back(frame);
        if let Some(late) = &mut self.late {
            late.overtaken_by += 1;
            if late.overtaken_by >= late.until {
                self.release();
            }
        }
    }

    /// Lets the late frame go, wherever it has come to.
    fn release(&mut self) {
        if let Some(late) = self.late.take() {
            self.counts.reordered.add(u64::from(late.overtaken_by > 0));
            self.ready.push_back(late.frame);
        }
    }

    /// How many of `n` frames a burst takes.
    fn limit(&mut self, n: usize) -> usize {
        if !self.random.happens(self.faults.short_burst) || n == 0 {
            return n;
        }
        self.counts.short_bursts.add(1);
        self.random.below(n)
    }
}

/// The checksums of a damaged frame are neither known to be good nor filled in.
fn spoil(frame: &mut Frame) {
    frame.rx = RxChecksum::default();
    frame.tx = TxOffload::default();
}

struct FaultRx {
    inner: Box<dyn RxQueue>,
    channel: Channel,
    scratch: Burst,
}

impl RxQueue for FaultRx {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let channel = &mut self.channel;
        if channel.plug.is(Wire::Away) {
            return 0;
        }
        if channel.ready.is_empty() {
            if self.inner.burst(&mut self.scratch) == 0 {
                channel.release();
            }
            for frame in self.scratch.drain(..) {
                channel.add(frame);
            }
        }
        let n = channel.ready.len().min(into.remaining_capacity());
        let n = channel.limit(n);
        into.extend(channel.ready.drain(..n));
        channel.counts.left.add(n as u64);
        n
    }

    fn idle(&mut self, at_most: Duration) {
        if self.channel.ready.is_empty() && self.channel.late.is_none() {
            self.inner.idle(at_most);
        }
    }

    fn idle_max(&self) -> Duration {
        self.inner.idle_max()
    }
}

struct FaultTx {
    inner: Box<dyn TxQueue>,
    channel: Channel,
    scratch: Burst,
}

impl FaultTx {
    /// Hands over what is ready, as far as the queue behind takes it.
    fn drain(&mut self) {
        let ready = &mut self.channel.ready;
        loop {
            let n = ready.len().min(self.scratch.remaining_capacity());
            self.scratch.extend(ready.drain(..n));
            let sent = self.inner.burst(&mut self.scratch);
            self.channel.counts.left.add(sent as u64);
            if sent == 0 || (self.scratch.is_empty() && ready.is_empty()) {
                return;
            }
        }
    }
}

impl TxQueue for FaultTx {
    fn burst(&mut self, from: &mut Burst) -> usize {
        if self.channel.plug.is(Wire::Away) {
            return 0;
        }
        if self.channel.random.happens(self.channel.faults.refuse) && !from.is_empty() {
            self.channel.counts.refused.add(1);
            return 0;
        }
        self.drain();
        let room = if self.scratch.is_empty() { self.channel.room() } else { 0 };
        let n = self.channel.limit(from.len().min(room));
        for frame in from.drain(..n) {
            self.channel.add(frame);
        }
        self.channel.release();
        self.drain();
        n
    }
}
