//! What the fast path has answered on its way out ([`fast_path`](crate::stages::fast_path)).

use super::Worker;
use crate::stages::fast_path::Answered;
use driver_shim::Burst;

impl Worker {
    /// Sends what the fast path has answered, which leaves the burst. `others` are bits of frames.
    #[inline(always)]
    pub(super) fn send_fast(
        &mut self,
        burst: &mut Burst,
        index: usize,
        now_ns: u64,
        mut answered: Answered,
        others: &mut u64,
    ) {
        let Some(port) = self.ports.get_mut(index) else { return };
        self.accounts.answered.add(answered.take_silent(burst, others) as u64);
        match answered.count() {
            0 => {}
            n if n == burst.len() => {
                port.tx.send_answers(burst, answered.bytes, &self.accounts);
                *others = 0;
            }
            _ => {
                let mut left = take_left(burst, answered);
                port.tx.push_answers(burst, answered.bytes, &self.accounts);
                std::mem::swap(burst, &mut left);
                if *others != 0 {
                    *others = answered.repacked(*others);
                }
            }
        }
        self.execute.note_answered(now_ns, answered.gets, answered.sets);
    }
}

/// Takes the frames that are no replies out of a burst, in their order. They are few, mostly.
fn take_left(burst: &mut Burst, answered: Answered) -> Burst {
    let mut end = burst.len();
    for n in (0..burst.len()).rev().filter(|n| !answered.has(*n)) {
        end -= 1;
        burst.swap(n, end);
    }
    burst.drain(end..).collect()
}
