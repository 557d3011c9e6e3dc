//! With an offload: plain `get`s on their way to it and back, and plain `set`s ([`crate::stages::fast_path`]).

use super::Worker;
use crate::stages::engine::dispatch::Done;
use crate::stages::fast_path::Parts;
use driver_shim::{BURST_MAX, Burst, Frame, take_last_burst};
use gpu::{Entry, EntryFlags};
use wire::ipv4::{PLAIN_L3, PLAIN_L4};

impl Worker {
    /// Carries out plain `set`s of a burst, which leave it, and says which of the others are plain `get`s: bit n for
    /// frame n.
    #[inline(never)]
    pub(super) fn answer_fast_with_offload(
        &mut self,
        burst: &mut Burst,
        index: usize,
        now_ns: u64,
    ) -> u64 {
        let Self { fast_path: Some(fast_path), ports, cpu_only: Some(cpu_only), .. } = self else {
            return 0;
        };
        let Some(port) = ports.get_mut(index) else { return 0 };
        let (counters, region, caps) = (&self.accounts, &self.region, port.tx.caps());
        let mut plain_gets = fast_path.plain_gets(burst, &mut port.request_matcher, region, caps);
        // Changes keep their order; and none goes before a read that the stages would ship before it.
        if plain_gets == all_of(burst)
            || cpu_only.queued() > 0
            || !self.batcher.has_room(burst.len())
        {
            return plain_gets;
        }
        let mut parts = Parts { ctx: self.execute.ctx(), counters, region, caps };
        let answered = fast_path.run_sets(burst, plain_gets, &mut port.request_matcher, &mut parts);
        self.send_fast(burst, index, now_ns, answered, &mut plain_gets);
        plain_gets
    }

    /// A burst with plain `get`s, bit n for frame n: they go to the batcher, the others to
    /// [`Self::classify_and_pass`]. In their order, because a batch that is full is shipped in between.
    #[inline(never)]
    pub(super) fn divide(&mut self, burst: &mut Burst, plain_gets: u64, index: usize, now_ns: u64) {
        if plain_gets == all_of(burst) && self.batcher.push_burst(burst, |f| plain_entry(f, index))
        {
            return;
        }
        for (n, frame) in burst.drain(..).enumerate() {
            if plain_gets >> n & 1 == 0 {
                self.classify_and_pass(frame, index, now_ns);
                continue;
            }
            let entry = plain_entry(&frame, index);
            if let Err(frame) = self.batcher.push(frame, entry) {
                self.push_after_shipping(frame, entry, index, now_ns);
            }
        }
    }

    /// Sends the replies to the plain `get`s of a batch that can be answered by their locations, or have whole
    /// replies. The others are left. Not inlined, so that other batches do not pay for its stack frame.
    #[inline(never)]
    pub(super) fn answer_located(&mut self, frames: &mut Vec<Frame>, done: &mut Done) {
        let batch = done.batch();
        let Self { fast_path: Some(fast_path), ports, accounts, region, execute, .. } = self else {
            return;
        };
        // Replies that the engine has begun are for the stages.
        if accounts.recorder.is_running() || !batch.heads.is_empty() {
            return;
        }
        for (index, port) in ports.iter_mut().enumerate() {
            let mark = u8::try_from(index).unwrap_or(u8::MAX);
            let caps = port.tx.caps();
            let mut parts = Parts { ctx: execute.ctx(), counters: accounts, region, caps };
            let of_port = (mark, &mut port.request_matcher);
            let left = fast_path.answer_located(frames, batch, of_port, &mut parts);
            while frames.len() > left {
                let mut replies = take_last_burst(frames, left);
                let bytes = replies.iter().map(|frame| frame.len() as u64).sum();
                for came in replies.chunk_by(|a, b| a.stamp_ns == b.stamp_ns) {
                    let came_ns = came.first().map_or(0, |frame| frame.stamp_ns);
                    execute.note_answered(came_ns, came.len() as u64, 0);
                }
                port.tx.send_answers(&mut replies, bytes, accounts);
            }
            if frames.is_empty() {
                break;
            }
        }
    }
}

/// A bit for each frame.
fn all_of(burst: &Burst) -> u64 {
    u64::MAX >> (BURST_MAX - burst.len().clamp(1, BURST_MAX))
}

/// What the engine gets of a plain `get` from port `index`.
#[inline(always)]
fn plain_entry(frame: &Frame, index: usize) -> Entry {
    let mut flags = EntryFlags::PLAIN;
    for (known, flag) in
        [(frame.rx.ip_good, EntryFlags::IP_GOOD), (frame.rx.udp_good, EntryFlags::UDP_GOOD)]
    {
        if known.is_set() {
            flags = flags.with(flag);
        }
    }
    Entry {
        slot: frame.slot(),
        off: frame.offset(),
        len: u16::try_from(frame.len()).unwrap_or(u16::MAX),
        l3: PLAIN_L3,
        l4: PLAIN_L4,
        flags,
        mark: u8::try_from(index).unwrap_or(u8::MAX),
    }
}
