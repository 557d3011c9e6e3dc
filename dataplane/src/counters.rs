//! Counters that one thread writes and any thread reads, and the invariant over them.
//!
//! Each worker and each TCP thread owns a block of them; no other thread writes there, so an
//! increment is a plain load, add and store, and the cache line stays with its owner. Readers
//! may be a moment behind, never wrong by more than that. Sums over the blocks are made by
//! the reader.

use crate::log2_histogram::Powers;
pub use driver_shim::Counter;
use wire::DropReason;

/// One `T` per [`DropReason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerReason<T>([T; DropReason::ALL.len()]);

impl<T: Default> Default for PerReason<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}

impl<T> PerReason<T> {
    /// The one for `reason`.
    pub fn of(&self, reason: DropReason) -> &T {
        // A reason's number is its position in ALL (tested there).
        &self.0[reason as usize]
    }

    /// All of them, with their reasons.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, &T)> {
        DropReason::ALL.into_iter().zip(&self.0)
    }
}

/// What one worker has done since it began. Frames, unless named otherwise.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Received from all queues.
    pub received: Counter,
    /// Requests, TCP segments, ARP, neighbour and echo packets done with: the reply left, or none was due.
    pub answered: Counter,
    /// Given to the exception path.
    pub punted: Counter,
    /// Dropped, by reason.
    pub dropped: PerReason<Counter>,
    /// Gauge: received, and neither answered, punted nor dropped yet.
    pub in_flight: Counter,
    /// Answered ARP, neighbour and echo packets, in `answered` too.
    pub responded: Counter,
    /// Replies that a refusal took the place of, as larger than their source may have. The refusals
    /// are in `answered` when they have left.
    pub amplification_refused: Counter,
    /// Requests refused as longer than one packet. The refusals are in `answered` when they have
    /// left.
    pub too_long_refused: Counter,
    /// Commands refused because those before them in their datagram had done all the work that one
    /// may cause.
    pub work_refused: Counter,
    /// TCP segments taken in by the connection that they belong to, in `answered` too.
    pub segments: Counter,
    /// TCP segments that left.
    pub segments_sent: Counter,
    /// TCP segments that were dropped on their way out. Those of a connection are sent again when their time
    /// comes.
    pub segments_lost: Counter,
    /// RDMA READs carried out for the first time, in `answered` too when all responses have left.
    pub rdma_reads: Counter,
    /// RDMA READs carried out again, in whole or in part, because the client has sent them again.
    pub rdma_repeated: Counter,
    /// RDMA requests refused (NAK).
    pub rdma_refused: Counter,
    /// Bytes that READs got.
    pub rdma_bytes: Counter,
    /// Given to the driver, replies of several datagrams, kernel frames and announcements
    /// included.
    pub tx_frames: Counter,
    /// Bytes queued for the driver, frames that it did not take included.
    pub tx_bytes: Counter,
    /// Datagrams of replies that were dropped beside the one that counts.
    pub tx_parts_lost: Counter,
    /// Kernel frames that left.
    pub kernel_frames: Counter,
    /// Kernel frames that were dropped.
    pub kernel_lost: Counter,
    /// Announcements of our addresses that left.
    pub announcements: Counter,
    /// Announcements that found no slot, or were dropped.
    pub announcements_lost: Counter,
    /// Batches given to the engine.
    pub batches: Counter,
    /// Requests in them.
    pub batched: Counter,
    /// Requests of each batch.
    pub batch_sizes: Powers,
    /// Nanoseconds that the oldest request of each batch had waited for the engine, by the clock of
    /// the worker's turns.
    pub batch_waits: Powers,
    /// Replies to requests over UDP later than three cycles, where batches go by cycles.
    pub replies_late: Counter,
    /// Of the batches, those given to the GPU engine.
    pub gpu_batches: Counter,
    /// Requests in those.
    pub gpu_batched: Counter,
    /// Batches that the GPU engine lost, and that the CPU engine did instead.
    pub gpu_lost: Counter,
    /// Batches of the GPU engine's that the CPU engine read again, to compare.
    pub gpu_checked: Counter,
    /// Keys that the GPU engine did not find and the CPU engine did.
    pub gpu_missed: Counter,
    /// Gauge: requests from which on a batch goes to an idle GPU.
    pub gpu_from: Counter,
    /// Replies begun with a head that the GPU made.
    pub heads_used: Counter,
    /// Heads that did not fit the item, or the request.
    pub heads_unused: Counter,
    /// Replies that the GPU wrote whole and that were sent.
    pub replies_accepted: Counter,
    /// Whole replies refused: the key had changed, or one with the same bits of its hash.
    pub replies_changed: Counter,
    /// Whole replies refused: every key might have changed (a flush, or an invalidation that was lost).
    pub replies_cleared: Counter,
    /// Whole replies refused: the item had expired.
    pub replies_expired: Counter,
    /// Whole replies left to the CPU, one in 32, by which the store sees that the item is in use.
    pub replies_sampled: Counter,
    /// Requests answered from the engine's descriptor, and those that the fast path answered as the general stages would
    /// have from one.
    pub fast: Counter,
    /// Requests parsed by the strict parser, and those that the fast path answered and the general stages would have
    /// parsed: `set`s, `mg`s and binary gets.
    pub slow: Counter,
    /// Keys that the engine located and the store confirmed.
    pub hints_right: Counter,
    /// Keys that the engine located and the store did not confirm.
    pub hints_wrong: Counter,
    /// Turns of the worker's loop.
    pub turns: Counter,
    /// Turns that found nothing to do.
    pub empty_turns: Counter,
}

impl WorkerCounters {
    /// Counts a frame that was dropped, by name.
    pub fn count_drop(&self, reason: DropReason) {
        self.dropped.of(reason).inc();
    }

    /// The invariant's figures now.
    pub fn ledger(&self) -> Ledger {
        Ledger {
            received: self.received.get(),
            answered: self.answered.get(),
            punted: self.punted.get(),
            dropped: PerReason(std::array::from_fn(|i| self.dropped.0[i].get())),
            in_flight: self.in_flight.get(),
        }
    }
}

/// The figures of the packet-accounting invariant (D10): `received = answered + punted + Σ dropped + in flight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Frames received.
    pub received: u64,
    /// Requests done with.
    pub answered: u64,
    /// Frames given to the exception path.
    pub punted: u64,
    /// Frames dropped, by reason.
    pub dropped: PerReason<u64>,
    /// Frames not done with yet.
    pub in_flight: u64,
}

impl Ledger {
    /// Whether every received frame is accounted for.
    pub fn balances(&self) -> bool {
        let dropped: u64 = self.dropped.0.iter().sum();
        self.received == self.answered + self.punted + dropped + self.in_flight
    }

    /// Adds another worker's figures.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.answered += other.answered;
        self.punted += other.punted;
        self.in_flight += other.in_flight;
        for (a, b) in self.dropped.0.iter_mut().zip(other.dropped.0) {
            *a += b;
        }
    }
}
