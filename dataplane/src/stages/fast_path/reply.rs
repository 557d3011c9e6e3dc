//! Step 3: requests of a row become replies, in their own frames.
//!
//! In: proposed locations whose items were prefetched some rows ago. Out: frames that are fit to
//! send (`hit`), or as they were.

use super::Pass;
use super::bits_of;
use super::form::GetForm;
use super::hit::Request;
use super::shape::Shape;
use super::totals::{TEXT_AROUND_KEY, next_of};
use crate::observe::Observer;
use crate::plain::family::{FRAME, Headers, finish};
use crate::plain::requests::KEY;
use crate::plain::vector::{ROW, Vector};
use driver_shim::Frame;

impl Pass<'_, '_> {
    /// Answers the requests of a row.
    #[inline(always)]
    pub(super) fn reply_row<S: Shape, const SUBSET: bool, const CSUM_OFFLOAD: bool>(
        &mut self,
        row: usize,
        vector: impl Vector,
    ) {
        let (mut left, missed) = (bits_of(self.read, row), bits_of(self.missed, row));
        let (found, sums) = (&self.rows.found[row], self.rows.ip_sum[row]);
        let key_lens = self.rows.key_len[row];
        let (numbers, first) = (self.rows.number[row], if SUBSET { 0 } else { row * ROW });
        let frames = self.burst.get_mut(first..).unwrap_or_default();
        // The sample of keys is taken by the row, and of hits by the burst.
        let by_row = S::IS_PLAIN && !SUBSET;
        let (mut answered, mut silent, mut strict, mut answered_missed) = (0u64, 0u64, 0u64, 0u64);
        let mut shown = left & missed;
        if by_row
            && shown != 0
            && let Some(before) = self.observer.pass_keys(shown.count_ones().into())
        {
            (0..before).for_each(|_| shown &= shown.wrapping_sub(1));
            show_missed(self.observer, frames, shown, key_lens);
        }
        while let Some(n) = next_of(&mut left) {
            let n = n % ROW;
            let at = if SUBSET { usize::from(numbers[n]) } else { n };
            let Some(mut frame) = frames.get_mut(at).and_then(Frame::open::<FRAME>) else {
                continue;
            };
            let (key_len, ip_sum) = (key_lens[n], sums[n]);
            let Some(headers) = S::headers(frame.bytes) else { continue };
            let Some(window) = headers.window(frame.bytes) else { continue };
            let Some(form) = S::form(window) else { continue };
            let is_strict = !form.is_text();
            let keys_len = match form {
                GetForm::Text | GetForm::Long => key_len.into(),
                _ => (GetForm::text_len(window) as u64).saturating_sub(TEXT_AROUND_KEY),
            };
            let request = Request { headers, form, key_len, ip_sum };
            let udp_len = match found[n] {
                Some(found) => {
                    let Some(item) = found.item().filter(|item| self.liveness.is_live(item)) else {
                        continue;
                    };
                    let shown = (self.observer.server, self.liveness.now);
                    let hit = request.hit::<CSUM_OFFLOAD>(frame.bytes, &item, shown, vector);
                    let Some(udp_len) = hit else { continue };
                    self.observer.class_hit(found.class());
                    if !by_row {
                        self.observer.hot_key(item.key());
                    }
                    item.mark_visited(self.liveness.now);
                    udp_len
                }
                None if missed >> n & 1 == 1 => {
                    if !by_row {
                        let (at, len) = (form.key_at(), usize::from(key_len));
                        self.observer.hot_key(window.get(at..at + len).unwrap_or_default());
                    }
                    request.miss::<CSUM_OFFLOAD>(frame.bytes, vector)
                }
                // Cannot be, as what was read is looked up; but without this arm a hit takes 2 instructions more.
                None => continue,
            };
            answered |= 1 << at;
            if SUBSET {
                answered_missed |= (missed >> n & 1) << at;
            }
            self.totals.lengths += keys_len << 32;
            if is_strict {
                strict |= 1 << at;
                if udp_len == 0 {
                    silent |= 1 << at;
                    continue;
                }
            }
            finish::<CSUM_OFFLOAD, _>(&mut frame, headers, udp_len);
            self.totals.lengths += u64::from(udp_len) + headers.shift() as u64;
        }
        if !SUBSET {
            answered_missed = answered & missed;
        }
        self.totals.frames |= answered << first;
        self.totals.missed |= answered_missed << first;
        self.totals.strict |= strict << first;
        self.totals.silent |= silent << first;
    }
}

/// Shows the keys of a row's misses that are to be sampled: the first of these, and maybe others.
#[cold]
#[inline(never)]
fn show_missed(observer: Observer<'_>, frames: &[Frame], mut missed: u64, key_lens: [u8; ROW]) {
    while let Some(n) = next_of(&mut missed) {
        let key = frames.get(n).and_then(|frame| frame.bytes().get(KEY..));
        if let Some(key) = key.and_then(|key| key.get(..usize::from(key_lens[n % ROW]))) {
            observer.hot_key(key);
        }
    }
}
