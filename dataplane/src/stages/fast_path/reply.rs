//! Step 3: requests of a row become replies, in their own frames.
//!
//! In: proposed locations whose items were prefetched some rows ago. Out: frames that are fit to
//! send. The item is verified as stage 6 verifies it; where that fails, or the reply is none for the
//! fast path, the frame is left as it was. Nothing is summed twice: addresses, ports, request id and
//! key stand in the reply as in the request, so its checksum follows from the request's by what is
//! other in it (RFC 1624).

use super::fixed::Fixed;
use super::line::{Digit, Line, TAIL};
use super::totals::next_of;
use super::{Pass, bits_of};
use crate::observe::Observer;
use crate::plain::requests::KEY;
use crate::plain::seal::{END, finish, turn};
use crate::plain::sum;
use crate::plain::vector::{Portable, ROW, Vector};
use crate::plain::window::{TEXT, WINDOW, part, put};
use base::small_bytes;
use driver_shim::Frame;
use memcache::text::VALUE_OVERHEAD_BYTES;
use store::{ItemRef, SUM_KEPT_MIN_BYTES};
use wire::udp_frame::PAYLOAD_MAX_BYTES;

/// The reply to a miss.
const MISS: Fixed<5> = Fixed::new(END);

impl Pass<'_, '_> {
    /// Answers the requests of a row.
    #[inline(always)]
    pub(super) fn reply_row<const BY_PORT: bool>(&mut self, row: usize, vector: impl Vector) {
        let (mut left, far) = (bits_of(self.lanes.read, row), bits_of(self.lanes.far, row));
        let (found, headers) = (&self.lanes.found[row], self.lanes.header[row]);
        let key_lens = self.lanes.key_len[row];
        let frames = self.burst.get_mut(row * ROW..).unwrap_or_default();
        let mut answered = 0;
        let mut missed = left & far;
        if missed != 0
            && let Some(before) = self.observer.pass_keys(missed.count_ones().into())
        {
            (0..before).for_each(|_| missed &= missed.wrapping_sub(1));
            show_missed(self.observer, frames, missed, key_lens);
        }
        while let Some(n) = next_of(&mut left) {
            let n = n % ROW;
            let Some(mut frame) = frames.get_mut(n).and_then(Frame::open::<WINDOW>) else {
                continue;
            };
            let (key_len, header) = (key_lens[n], headers[n]);
            let udp_len = match found[n] {
                Some(found) => {
                    let Some(item) = found.item().filter(|item| self.liveness.is_live(item)) else {
                        continue;
                    };
                    let hit = hit::<BY_PORT>(frame.bytes, &item, key_len, header, vector);
                    let Some(udp_len) = hit else { continue };
                    self.observer.hit(found.class());
                    item.mark_visited(self.liveness.now);
                    udp_len
                }
                None if far >> n & 1 == 1 => MISS.write::<BY_PORT>(frame.bytes, header, vector),
                None => continue,
            };
            finish::<BY_PORT>(&mut frame, udp_len);
            self.totals.lengths += u64::from(udp_len) | u64::from(key_len) << 32;
            answered |= 1 << n;
        }
        self.totals.frames |= answered << (row * ROW);
        self.totals.missed |= (answered & far) << (row * ROW);
    }
}

/// Shows the keys of a row's misses that are to be sampled: the first of these, and maybe others.
#[cold]
#[inline(never)]
fn show_missed(observer: Observer<'_>, frames: &[Frame], mut missed: u64, key_lens: [u8; ROW]) {
    while let Some(n) = next_of(&mut missed) {
        let key = frames.get(n).and_then(|frame| frame.bytes().get(KEY..));
        if let Some(key) = key.and_then(|key| key.get(..usize::from(key_lens[n % ROW]))) {
            observer.see(key);
        }
    }
}

/// Writes the reply to a hit over the request. Returns its UDP length; `None`: the window is as it was.
#[inline(always)]
fn hit<const BY_PORT: bool>(
    window: &mut [u8; WINDOW],
    item: &ItemRef<'_>,
    key_len: u8,
    header: u16,
    vector: impl Vector,
) -> Option<u16> {
    let value = item.value().whole()?;
    if item.key_len() != key_len
        || !vector.same(item.key_block(), part(window, KEY), key_len.into())
    {
        return None;
    }
    let key_len = usize::from(key_len);
    // As stage 6 has it, which does not look at the numbers.
    if VALUE_OVERHEAD_BYTES + key_len + value.len() + END.len() > PAYLOAD_MAX_BYTES {
        return None;
    }
    let line = Line::plain(value.len())?;
    if item.flags() >= 10 {
        return with_flags::<BY_PORT>(window, item, value, header);
    }
    let line = line.with_digit(item.flags());
    Some(write::<BY_PORT>(window, (item, value), line, header, vector))
}

/// [`write`] for an item that has flags.
#[cold]
#[inline(never)]
fn with_flags<const BY_PORT: bool>(
    window: &mut [u8; WINDOW],
    item: &ItemRef<'_>,
    value: &[u8],
    header: u16,
) -> Option<u16> {
    let line = Line::with_flags(item.flags(), value.len());
    let line = line.with_digit(0);
    Some(write::<BY_PORT>(window, (item, value), line, header, Portable))
}

/// Writes the reply to a hit over the request.
#[inline(always)]
fn write<const BY_PORT: bool>(
    window: &mut [u8; WINDOW],
    (item, value): (&ItemRef<'_>, &[u8]),
    line: Digit<'_>,
    header: u16,
    vector: impl Vector,
) -> u16 {
    let key_len = item.key_len();
    let at = TEXT + b"VALUE ".len() + usize::from(key_len);
    put(window, TEXT, *b"VALUE ");
    put(window, TEXT + b"VALUE ".len(), *item.key_block());
    let (text, text_end) = line.text();
    let line_sum = line.sum();
    put(window, at, text);
    put(window, at + text.len(), text_end);
    let line = line.line;
    let at = at + usize::from(line.len);
    let mut value_sum = 0;
    // Both fit: the reply's length was checked against a datagram's.
    if let Some(to) = window.get_mut(at..at + value.len()) {
        if BY_PORT {
            small_bytes::copy(to, value);
        } else if value.len() >= SUM_KEPT_MIN_BYTES {
            small_bytes::copy(to, value);
            value_sum = item.value_sum().swap_bytes().into();
        } else {
            value_sum = vector.copy_and_sum(to, value);
        }
    }
    put(window, at + value.len(), *TAIL);
    let sum = if BY_PORT {
        0
    } else {
        let request_sum = u16::from_le_bytes(*part(window, 40));
        let behind = sum::at(value_sum.into(), line.len.into()) + line_sum;
        sum::at(behind, key_len.into()) + line.more() - u64::from(request_sum)
    };
    let udp_len = line.around_key + u16::from(key_len);
    turn::<BY_PORT>(window, udp_len, header, sum, vector);
    udp_len
}
