//! Stage 4: gathers requests into batches and decides when one goes.
//!
//! In: frames that stage 3 found to be requests. Out: a [`Pending`] batch, which owns its frames
//! until it goes; the engine sees only the metadata. All places are made at
//! start-up: when none is free the frame comes back, and the caller drops it as `Overload`.
//!
//! Work-conserving (D7): with [`BatchMode::Adaptive`] a batch goes as soon as the engine can take
//! it, however small; load makes batches big by itself. What there is no place for is better left
//! in the NIC's queue: [`Batcher::takes`] says so before. [`BatchMode::Fixed`] waits for a full
//! batch, as MemcachedGPU does, but never longer than `FIXED_WAIT_MAX_NS`; [`BatchMode::Periodic`] for the
//! end of a cycle, as Mega-KV does (section 5).

use driver_shim::{Burst, Frame, append_burst};
use gpu::{Batch, Entry, EntryFlags};
use wire::At;

/// Longest wait of the oldest request in a fixed batch. The paper has no bound, so its last
/// requests wait for ever when the load ends; 1 ms is above the time to fill 512 at 1 M/s.
const FIXED_WAIT_MAX_NS: u64 = 1_000_000;

/// When a batch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchMode {
    /// As soon as the engine can take it.
    Adaptive,
    /// When it is full, or its oldest request has waited for `FIXED_WAIT_MAX_NS`.
    Fixed,
    /// When it is full, or at the end of the cycle in which its oldest request came.
    Periodic,
}

impl BatchMode {
    /// The word for people and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Fixed => "fixed",
            Self::Periodic => "periodic",
        }
    }
}

/// How batches are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPolicy {
    /// Most requests in a batch.
    pub size: usize,
    /// When a batch goes.
    pub mode: BatchMode,
    /// Batches that may be with the engine at once.
    pub in_flight_max: usize,
    /// Length of a cycle of [`BatchMode::Periodic`], in nanoseconds.
    pub cycle_ns: u64,
}

impl BatchPolicy {
    /// Nanoseconds within which a reply is due, if there is such a time: three cycles, in which a request waits, is
    /// looked up, and is answered (Mega-KV, section 5).
    pub fn due_ns(&self) -> Option<u64> {
        (self.mode == BatchMode::Periodic).then(|| self.cycle_ns.saturating_mul(3))
    }
}

impl Default for BatchPolicy {
    fn default() -> Self {
        Self { size: 512, mode: BatchMode::Adaptive, in_flight_max: 4, cycle_ns: 200_000 }
    }
}

/// A batch with the frames that it is about, in the order of its entries.
#[derive(Debug)]
pub struct Pending {
    /// The frames.
    pub frames: Vec<Frame>,
    /// What the engine sees.
    pub meta: Box<Batch>,
}

/// Gathers requests.
#[derive(Debug)]
pub struct Batcher {
    policy: BatchPolicy,
    filling: Option<Pending>,
    /// The engine did not take it when it was offered last.
    refused: bool,
    free: Vec<Pending>,
}

impl Batcher {
    /// Makes every place that will ever be used; `batch` makes the engine's part of one.
    pub fn new(policy: BatchPolicy, mut batch: impl FnMut(u32, usize) -> Box<Batch>) -> Self {
        let size = policy.size.max(1);
        let policy = BatchPolicy { size, in_flight_max: policy.in_flight_max.max(1), ..policy };
        // One is filling while the others are in flight.
        let free = (0..=policy.in_flight_max)
            .map(|id| Pending {
                frames: Vec::with_capacity(size),
                meta: batch(u32::try_from(id).unwrap_or(0), size),
            })
            .collect();
        Self { policy, filling: None, refused: false, free }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The frame, when every place is taken: [`wire::DropReason::Overload`].
    #[inline(always)]
    pub fn push(&mut self, frame: Frame, entry: Entry) -> Result<(), Frame> {
        let batch = match &mut self.filling {
            Some(batch) if batch.frames.len() < self.policy.size => batch,
            Some(_) => return Err(frame),
            none => match self.free.pop() {
                Some(place) => none.insert(place),
                None => return Err(frame),
            },
        };
        if batch.meta.entries.push(entry).is_err() {
            return Err(frame);
        }
        batch.frames.push(frame);
        Ok(())
    }

    /// Adds a burst of requests. False, and it is as it was, unless there is room for all of them.
    #[inline(always)]
    pub(crate) fn push_burst(
        &mut self,
        burst: &mut Burst,
        mut entry: impl FnMut(&Frame) -> Entry,
    ) -> bool {
        if !self.has_room(burst.len()) {
            return false;
        }
        let batch = match &mut self.filling {
            Some(batch) => batch,
            none => match self.free.pop() {
                Some(place) => none.insert(place),
                None => return false,
            },
        };
        let entries = &mut batch.meta.entries;
        let before = entries.len();
        if burst.iter().any(|frame| entries.push(entry(frame)).is_err()) {
            entries.set_len(before);
            return false;
        }
        append_burst(&mut batch.frames, burst);
        true
    }

    /// Requests that have not gone yet.
    pub fn queued(&self) -> usize {
        self.filling.as_ref().map_or(0, |b| b.frames.len())
    }

    /// Whether so many requests fit the batch that is filling, or the next.
    pub fn has_room(&self, requests: usize) -> bool {
        self.policy.size - self.queued() >= requests
    }

    /// Whether there is a slot for so many requests. While the engine takes what it is offered,
    /// a full batch is shipped and leaves its slots to others.
    pub fn takes(&self, requests: usize) -> bool {
        let Some(filling) = &self.filling else { return !self.free.is_empty() };
        let behind = self.refused || self.free.is_empty();
        !behind || self.policy.size - filling.frames.len() >= requests
    }

    /// The batch to submit now, if it is time. `all` releases a part-filled one whatever the
    /// mode, as when the worker drains.
    pub fn ready(&mut self, now_ns: u64, all: bool) -> Option<Pending> {
        let batch = self.filling.as_ref()?;
        let oldest_ns = batch.frames.first()?.stamp_ns;
        let full = batch.frames.len() >= self.policy.size;
        let due = match self.policy.mode {
            _ if all || full => true,
            BatchMode::Adaptive => true,
            BatchMode::Fixed => now_ns.saturating_sub(oldest_ns) >= FIXED_WAIT_MAX_NS,
            BatchMode::Periodic => {
                let cycle_of = |ns: u64| ns / self.policy.cycle_ns.max(1);
                cycle_of(now_ns) > cycle_of(oldest_ns)
            }
        };
        if due {
            self.refused = false;
            self.filling.take()
        } else {
            None
        }
    }

    /// Takes back a batch that the engine refused, to be offered again. Nothing may have been
    /// pushed since `ready` gave it.
    pub(crate) fn put_back(&mut self, batch: Pending) {
        debug_assert!(self.filling.is_none(), "a second batch was begun");
        self.filling = Some(batch);
        self.refused = true;
    }

    /// Takes back an answered batch for reuse. Its frames are gone.
    pub fn recycle(&mut self, mut batch: Pending) {
        debug_assert!(batch.frames.is_empty(), "an unanswered frame in a finished batch");
        batch.frames.clear();
        batch.meta.clear();
        self.free.push(batch);
    }
}

/// What stages 5 and 6 must know of a frame that stage 3 found at `at`, of the worker's port of this number.
pub fn entry_of(frame: &Frame, At { l3, l4, ipv6, limited }: At, port: usize) -> Entry {
    let mut flags = EntryFlags::default();
    for (known, flag) in [
        (ipv6, EntryFlags::IPV6),
        (limited, EntryFlags::LIMITED),
        (frame.rx.ip_good.is_set(), EntryFlags::IP_GOOD),
        (frame.rx.udp_good.is_set(), EntryFlags::UDP_GOOD),
    ] {
        if known {
            flags = flags.with(flag);
        }
    }
    Entry {
        slot: frame.slot(),
        off: frame.offset(),
        len: u16::try_from(frame.len()).unwrap_or(u16::MAX),
        l3,
        l4,
        flags,
        mark: u8::try_from(port).unwrap_or(u8::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_shim::{Pages, Region};

    fn batcher(size: usize, mode: BatchMode) -> (Region, Batcher) {
        let policy = BatchPolicy { size, mode, in_flight_max: 1, cycle_ns: 100_000 };
        let batch = |id, capacity| Box::new(Batch::new(id, capacity));
        (Region::new(64, Pages::Small).unwrap(), Batcher::new(policy, batch))
    }

    fn push(region: &Region, batcher: &mut Batcher, stamp_ns: u64) -> bool {
        let mut frame = region.alloc().unwrap();
        frame.stamp_ns = stamp_ns;
        batcher.push(frame, Entry::default()).is_ok()
    }

    #[test]
    fn adaptive_never_waits() {
        let (region, mut b) = batcher(8, BatchMode::Adaptive);
        assert!(b.ready(0, false).is_none());
        assert!(push(&region, &mut b, 5));
        let got = b.ready(5, false).unwrap();
        assert_eq!((got.frames.len(), got.meta.entries.len()), (1, 1));
    }

    #[test]
    fn fixed_waits_for_size_or_deadline() {
        let (region, mut b) = batcher(3, BatchMode::Fixed);
        assert!(push(&region, &mut b, 100) && push(&region, &mut b, 200));
        assert!(b.ready(100 + FIXED_WAIT_MAX_NS - 1, false).is_none());
        let late = b.ready(100 + FIXED_WAIT_MAX_NS, false).unwrap();
        assert_eq!(late.frames.len(), 2);
        for _ in 0..3 {
            assert!(push(&region, &mut b, 300));
        }
        assert!(!push(&region, &mut b, 300), "a full batch takes no more");
        assert_eq!(b.ready(300, false).unwrap().frames.len(), 3);
    }

    #[test]
    fn periodic_waits_for_the_end_of_a_cycle_or_size() {
        let (region, mut b) = batcher(3, BatchMode::Periodic);
        assert!(push(&region, &mut b, 250_000) && push(&region, &mut b, 299_999));
        assert!(b.ready(299_999, false).is_none());
        assert_eq!(b.ready(300_000, false).unwrap().frames.len(), 2);
        assert!(push(&region, &mut b, 300_000), "the first moment of the next one");
        assert!(b.ready(399_999, false).is_none());
        assert!(push(&region, &mut b, 400_000) && push(&region, &mut b, 400_000));
        assert_eq!(b.ready(399_999, false).unwrap().frames.len(), 3, "it is full");
        let due_ns = |mode| BatchPolicy { mode, ..BatchPolicy::default() }.due_ns();
        assert_eq!(due_ns(BatchMode::Periodic), Some(600_000));
        assert_eq!(due_ns(BatchMode::Fixed), None);
    }

    #[test]
    fn what_the_engine_does_not_take_leaves_the_room_that_it_has() {
        let (region, mut b) = batcher(4, BatchMode::Adaptive);
        assert!(push(&region, &mut b, 0) && b.takes(100));
        let refused = b.ready(0, false).unwrap();
        b.put_back(refused);
        assert!(b.takes(3) && !b.takes(4));
        assert!(b.ready(0, false).is_some() && b.takes(100));
    }

    #[test]
    fn a_burst_goes_in_whole_or_not_at_all() {
        let (region, mut b) = batcher(8, BatchMode::Adaptive);
        let burst_of =
            |n| -> Burst { std::iter::repeat_with(|| region.alloc().unwrap()).take(n).collect() };
        let entry = |frame: &Frame| Entry { slot: frame.slot(), ..Entry::default() };
        let (mut first, mut second) = (burst_of(5), burst_of(4));
        let slots: Vec<u32> = first.iter().map(Frame::slot).collect();
        assert!(b.push_burst(&mut first, entry) && first.is_empty());
        assert!(!b.push_burst(&mut second, entry));
        assert_eq!((second.len(), b.queued()), (4, 5));
        assert!(b.push_burst(&mut second.drain(..3).collect(), entry));
        let shipped = b.ready(0, false).unwrap();
        assert_eq!((shipped.frames.len(), shipped.meta.entries.len()), (8, 8));
        let of = |n: usize| (shipped.frames[n].slot(), shipped.meta.entries[n].slot);
        assert!((0..5).all(|n| of(n) == (slots[n], slots[n])));
        // The other place, and none behind that.
        assert!(b.push_burst(&mut second, entry));
        let at_engine = b.ready(0, false).unwrap();
        assert!(!b.push_burst(&mut burst_of(1), entry));
        drop((shipped, first, second, at_engine));
        assert_eq!(region.available(), region.capacity());
    }

    #[test]
    fn places_are_bounded_and_reused() {
        let (region, mut b) = batcher(1, BatchMode::Adaptive);
        assert!(b.takes(100), "while the engine takes what it is offered");
        assert!(push(&region, &mut b, 0));
        let mut first = b.ready(0, false).unwrap();
        assert!(push(&region, &mut b, 0));
        let second = b.ready(0, false).unwrap();
        assert_ne!(first.meta.id, second.meta.id);
        assert!(!b.takes(1));
        assert!(!push(&region, &mut b, 0), "both places are out");
        first.frames.clear();
        b.recycle(first);
        assert!(b.takes(1));
        assert!(push(&region, &mut b, 0));
        drop((second, b));
        assert_eq!(region.available(), region.capacity());
    }
}
