//! Stage 7: replies are made fit to send, leave, and their slots return to the pool.
//!
//! In: unsent replies by value. Out: frames in the driver's hands. Addresses are turned round,
//! lengths and checksums set (or left to the port where it offers them). A full transmit queue is
//! tried again a bounded number of times; then the frame is dropped by name. A request counts
//! once, at its last datagram: answered if that left, dropped if it did not.

use crate::frame_accounting::Accounts;
use crate::reply::{Headers, Meaning, Reply, Sum};
use arrayvec::ArrayVec;
use driver_shim::{BURST_MAX, Burst, Frame, TxCaps, TxOffload, TxQueue};
use wire::DropReason;
use wire::reply::{seal_prepared, turn_and_seal};

/// Tries at a transmit queue that takes nothing, before frames are dropped. About 10 µs of
/// spinning: longer than a NIC needs for a burst at 10 Gb/s, shorter than a receive ring of
/// 1,024 takes to overflow.
const TX_TRIES_MAX: u32 = 256;

/// One transmit queue and what waits for it.
pub struct Tx {
    queue: Box<dyn TxQueue>,
    caps: TxCaps,
    /// The worker's number for the port.
    port: usize,
    waiting: Burst,
    /// Meanings of `waiting`, in the same order.
    meanings: ArrayVec<Meaning, BURST_MAX>,
}

base::opaque!(Tx, |it| waiting: it.waiting.len());

impl Tx {
    /// A stage over `queue`, on the worker's port of this number, which fills in what `caps` says.
    pub fn new(queue: Box<dyn TxQueue>, caps: TxCaps, port: usize) -> Self {
        Self { queue, caps, port, waiting: Burst::new(), meanings: ArrayVec::new() }
    }

    /// Queues a reply and finishes it; sends when a burst is full.
    pub fn reply(&mut self, reply: Reply, counters: &Accounts) {
        let Reply { frame, headers, sum, meaning } = reply;
        self.push(frame, meaning, counters);
        // Where it stands: a frame that is moved right after it was written to waits for that.
        if let Some(frame) = self.waiting.last_mut() {
            finish(frame, headers, sum, self.caps);
        }
    }

    /// What the port fills in.
    pub fn caps(&self) -> TxCaps {
        self.caps
    }

    /// Sends a burst of replies that are fit to send, each of them all of its answer, or drops what
    /// will not go. `bytes` is the sum of their lengths.
    pub(crate) fn send_answers(&mut self, burst: &mut Burst, bytes: u64, counters: &Accounts) {
        if !self.waiting.is_empty() {
            self.flush(counters);
        }
        counters.recorder.sent(burst, self.port);
        counters.tx_bytes.add(bytes);
        let mut tries = 0;
        while !burst.is_empty() && tries < TX_TRIES_MAX {
            let sent = self.queue.burst(burst);
            if sent == 0 {
                tries += 1;
                std::hint::spin_loop();
                continue;
            }
            tries = 0;
            counters.tx_frames.add(sent as u64);
            counters.answered.add(sent as u64);
        }
        for frame in burst.drain(..) {
            counters.drop_frame(frame, self.port, DropReason::TxFull);
        }
    }

    /// Queues a frame that is fit to send.
    pub fn push(&mut self, frame: Frame, meaning: Meaning, counters: &Accounts) {
        if self.waiting.is_full() {
            self.flush(counters);
        }
        counters.tx_bytes.add(frame.len() as u64);
        self.waiting.push(frame);
        self.meanings.push(meaning);
    }

    /// Answers to send, so many bytes in all.
    pub(crate) fn push_answers(&mut self, answers: &mut Burst, bytes: u64, counters: &Accounts) {
        if self.waiting.len() + answers.len() > self.waiting.capacity() {
            self.flush(counters);
        }
        counters.tx_bytes.add(bytes);
        self.meanings.extend(answers.iter().map(|_| Meaning::Answer));
        if self.waiting.is_empty() {
            std::mem::swap(&mut self.waiting, answers);
        }
        self.waiting.extend(answers.drain(..));
    }

    /// Sends everything that waits, or drops what will not go.
    pub fn flush(&mut self, counters: &Accounts) {
        counters.recorder.sent(&self.waiting, self.port);
        let mut tries = 0;
        while !self.waiting.is_empty() && tries < TX_TRIES_MAX {
            let sent = self.queue.burst(&mut self.waiting).min(self.meanings.len());
            if sent == 0 {
                tries += 1;
                std::hint::spin_loop();
                continue;
            }
            tries = 0;
            counters.tx_frames.add(sent as u64);
            for meaning in self.meanings.drain(..sent) {
                match meaning {
                    Meaning::Answer => counters.answered.inc(),
                    Meaning::Part => {}
                    Meaning::Kernel => counters.kernel_frames.inc(),
                    Meaning::Announcement => counters.announcements.inc(),
                    Meaning::Segment => counters.segments_sent.inc(),
                }
            }
        }
        for (frame, meaning) in self.waiting.drain(..).zip(self.meanings.drain(..)) {
            match meaning {
                Meaning::Answer => {
                    counters.drop_frame(frame, self.port, DropReason::TxFull);
                    continue;
                }
                Meaning::Part => counters.tx_parts_lost.inc(),
                Meaning::Kernel => counters.kernel_lost.inc(),
                Meaning::Announcement => counters.announcements_lost.inc(),
                Meaning::Segment => counters.segments_lost.inc(),
            }
            counters.recorder.dropped(&frame, self.port, DropReason::TxFull);
        }
    }
}

/// Makes a reply fit to send.
#[inline(never)]
fn finish(frame: &mut Frame, headers: Headers, sum: Sum, caps: TxCaps) {
    let Headers { l3, l4, ipv6 } = headers;
    frame.tx = TxOffload::default();
    let bytes = frame.bytes_mut();
    let left = match sum {
        Sum::Unknown => turn_and_seal(bytes, l3, l4, ipv6, caps, None),
        Sum::Payload(sum) => turn_and_seal(bytes, l3, l4, ipv6, caps, Some(sum)),
        Sum::Covered(sum) => return seal_prepared(bytes, l3, l4, ipv6, sum),
    };
    if let Some(left) = left {
        frame.tx = left;
    }
}
