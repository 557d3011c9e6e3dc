//! Beside another engine: plain `get`s on their way to it and back ([`fast_path`]).

use super::Worker;
use crate::stages::fast_path::Context;
use driver_shim::{BURST_MAX, Burst, Frame};
use gpu::{Batch, Entry, EntryFlags};
use wire::ipv4::{PLAIN_L3, PLAIN_L4};

impl Worker {
    /// A burst with plain `get`s, bit n for frame n: they go to the batcher, the others to [`Self::sort`]. In their
    /// order, because a batch that is full is shipped in between.
    #[inline(never)]
    pub(super) fn sort_plain(&mut self, burst: &mut Burst, plain: u64, index: usize, now_ns: u64) {
        for (n, frame) in burst.drain(..).enumerate() {
            if plain >> n & 1 == 1 {
                self.batch_plain(frame, index, now_ns);
            } else {
                self.sort(frame, index, now_ns);
            }
        }
    }

    #[inline(always)]
    fn batch_plain(&mut self, frame: Frame, index: usize, now_ns: u64) {
        let mut flags = EntryFlags::PLAIN;
        for (known, flag) in
            [(frame.rx.ip_good, EntryFlags::IP_GOOD), (frame.rx.udp_good, EntryFlags::UDP_GOOD)]
        {
            if known.is_set() {
                flags = flags.with(flag);
            }
        }
        let entry = Entry {
            slot: frame.slot(),
            off: frame.offset(),
            len: u16::try_from(frame.len()).unwrap_or(u16::MAX),
            l3: PLAIN_L3,
            l4: PLAIN_L4,
            flags,
            mark: u8::try_from(index).unwrap_or(u8::MAX),
        };
        if let Err(frame) = self.batcher.push(frame, entry) {
            self.push_after_shipping(frame, entry, index, now_ns);
        }
    }

    /// Sends the replies to the plain `get`s of a batch that can be answered by their locations. The others
    /// are left. Not inlined, so that other batches do not pay for its stack frame.
    #[inline(never)]
    pub(super) fn answer_located(&mut self, frames: &mut Vec<Frame>, batch: &mut Batch) {
        let Self { fast_path: Some(fast_path), ports, accounts, region, execute, .. } = self else {
            return;
        };
        // Replies that the engine has begun, or made, are for the stages.
        let is_made = !batch.heads.is_empty() || !batch.replies.is_empty();
        if accounts.tap.is_running() || is_made {
            return;
        }
        for (index, port) in ports.iter_mut().enumerate() {
            let mark = u8::try_from(index).unwrap_or(u8::MAX);
            let caps = port.tx.caps();
            let mut context = Context { ctx: execute.ctx(), counters: accounts, region, caps };
            let of_port = (mark, &mut port.requests);
            let left = fast_path.answer_located(frames, batch, of_port, &mut context);
            let mut replies = Burst::new();
            while frames.len() > left {
                replies.extend(frames.drain(left.max(frames.len().saturating_sub(BURST_MAX))..));
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
