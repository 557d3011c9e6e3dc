//! `get` of several keys, and `gets`, in loops of their own behind those of plain gets.
//!
//! In: frames that are no plain gets, as they came. Out: those that get up to four keys, which
//! begin in a frame's first 256 bytes, and for nothing else, are replies; the others are left. What a frame must
//! have to be taken is what a plain get must have. A frame is a row: its keys are hashed together, unless one is
//! long, and each of the steps is two rows behind the one before. Where an item fails to be verified, or the reply is longer
//! than a datagram, the frame is as it was: of a usual request the text is kept until all are written, of another
//! all items are verified before a byte is written.

use super::line::Line;
use super::long_key::{hash_long, long_word_len};
use super::order::Order;
use super::seal_text::seal;
use super::totals::{Totals, next_of};
use crate::observe::Observer;
use crate::plain::datagram::sums_hold;
use crate::plain::family::{FRAME, Headers, V4, finish};
use crate::plain::requests::{GET, RequestMatcher};
use crate::plain::vector::{Compiled, KEY_BLOCK, ROW, ROWS_AHEAD, Vector};
use crate::plain::window::{ADDRESSES, L4, TEXT, WINDOW, part, put};
use base::small_bytes;
use driver_shim::{BURST_MAX, Frame, Region};
use memcache::Dialects;
use memcache::text::{END, VALUE_OVERHEAD_BYTES};
use store::{Fetched, Guard, ItemRef, KeyHash, Liveness};
use wire::udp_frame::{PAYLOAD_MAX_BYTES, TEXT_AFTER_UDP};

/// As [`GET`].
const GETS: u64 = u64::from_le_bytes(*b"\0\x01\0\0gets");
/// Most text of a usual request's frame, and what of it is kept: so that each of its keys has a whole block.
const USUAL: usize = 128;
const REQUEST: usize = USUAL + KEY_BLOCK;
/// [`TEXT`]. Places up to there and further fit 16 bits: so that the compiler sees that no sum of them is more.
const TEXT_U16: u16 = 50;
const _: () = assert!(TEXT_U16 as usize == TEXT);
/// Rows whose items are on their way, and then some.
const ON_THE_WAY: usize = 8;
const _: () = assert!(ON_THE_WAY > 2 * ROWS_AHEAD);

/// The request in a frame.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Several {
    /// Number of the request's frame in the burst.
    frame: u8,
    /// How many keys there are: at most a row.
    n_keys: u8,
    /// Bit n: the first bucket of key n has nothing, so both are to be looked at.
    missed_near: u8,
    /// It is a `gets`.
    with_cas: bool,
    /// One of its keys is longer than a block.
    has_long: bool,
    /// No key is longer than a block, no CAS ids are shown, and the whole frame's text is kept while it is answered.
    usual: bool,
    /// The sum of the reply's IPv4 header, but for its length.
    ip_sum: u16,
    /// Bytes of the request's text.
    text_len: u16,
    /// Where in the frame each key is.
    at: [u8; ROW],
    /// The length of each key: 0 behind the last.
    len: [u8; ROW],
    /// The hash of each key.
    hash: [u64; ROW],
}

impl Several {
    /// Finds the keys from `at` on, behind which the text ends at `end`.
    #[inline(always)]
    fn find_keys(
        &mut self,
        window: &[u8; WINDOW],
        mut at: usize,
        end: usize,
        vector: impl Vector,
    ) -> Option<()> {
        // Not in their places yet, so that they stay in registers.
        let (mut ats, mut lens, mut has_long) = ([0; ROW], [0; ROW], false);
        for n in 0..ROW {
            ats[n] = u8::try_from(at).ok()?;
            let mut len = vector.word_len(part(window, at));
            if len == KEY_BLOCK {
                len = long_word_len(window, at, vector);
                has_long |= len > KEY_BLOCK;
            }
            lens[n] = u8::try_from(len).ok()?;
            if len == 0 {
                return None;
            }
            at += len;
            match *part(window, at) {
                [b' ', _] => at += 1,
                [b'\r', b'\n'] if at + 2 == end => {
                    (self.at, self.len, self.has_long) = (ats, lens, has_long);
                    self.n_keys = u8::try_from(n + 1).ok()?;
                    return Some(());
                }
                _ => return None,
            }
        }
        None
    }

    fn n_keys(&self) -> usize {
        usize::from(self.n_keys).min(ROW)
    }

    /// Key `n`, or none, where `text` is the request's.
    fn key<'t>(&self, text: &'t [u8], n: usize) -> &'t [u8] {
        let (at, len) = (usize::from(self.at[n % ROW]), usize::from(self.len[n % ROW]));
        at.checked_sub(TEXT).and_then(|at| text.get(at..at + len)).unwrap_or_default()
    }
}

/// Where the items of a frame may be.
type Found<'g> = [Option<Fetched<'g>>; ROW];

impl RequestMatcher {
    /// Reads the request in the frame, if it gets several keys. `None`: it is none for this pass.
    #[inline(always)]
    fn several(
        &mut self,
        frame: &Frame,
        window: &[u8; WINDOW],
        asked: &mut Several,
        vector: impl Vector,
    ) -> Option<()> {
        let with_cas = match u64::from_le_bytes(*part(window, TEXT - 4)) {
            GET => false,
            GETS if window.get(TEXT + 4) == Some(&b' ') => true,
            _ => return None,
        };
        // Before what is wider, of which the compiler would take them.
        let addresses = u64::from_le_bytes(*part(window, ADDRESSES));
        let udp_len = self.head(frame, part(window, 0), vector)?;
        let end = L4 + udp_len;
        asked.find_keys(window, TEXT + 4 + usize::from(with_cas), end, vector)?;
        if !sums_hold(window, end, None, vector) {
            return None;
        }
        asked.ip_sum = self.trusted(addresses)?;
        asked.text_len = u16::try_from(udp_len - TEXT_AFTER_UDP).ok()?;
        (asked.with_cas, asked.missed_near) = (with_cas, 0);
        asked.usual = !asked.has_long && !with_cas && frame.len() <= TEXT + USUAL;
        Some(())
    }
}

/// The pass over what the plain pass has left of a burst.
pub(super) struct Rest<'p, 'g, const CSUM_OFFLOAD: bool> {
    pub(super) burst: &'p mut [Frame],
    /// Bit n for each frame that is to be looked at.
    pub(super) left: u64,
    pub(super) matcher: &'p mut RequestMatcher,
    pub(super) asked: &'p mut [Several; BURST_MAX],
    pub(super) order: &'p mut Order,
    pub(super) guard: &'g Guard<'g>,
    pub(super) observer: Observer<'p>,
    pub(super) region: &'p Region,
    pub(super) liveness: Liveness,
    pub(super) dialects: Dialects,
    pub(super) totals: Totals,
}

/// Whether one of the frames in `left` may get several keys. Not inlined: alone, it has in registers what the look
/// at a frame takes.
#[inline(never)]
pub(super) fn any(burst: &[Frame], left: u64) -> bool {
    // Of `get ` and `gets`, and the byte before.
    const GET: [u8; 4] = *b"\0get";
    let is_get = |window: &[u8; WINDOW]| *part(window, TEXT - 1) == GET;
    let may_be = |frame: &Frame| frame.window::<WINDOW>().is_some_and(is_get);
    let is_left = |n: usize| left >> n & 1 == 1;
    // Most bursts without one have no get at all, which takes less to see.
    burst.iter().any(may_be)
        && burst.iter().enumerate().any(|(n, frame)| is_left(n) && may_be(frame))
}

impl<const CSUM_OFFLOAD: bool> Compiled for Rest<'_, '_, CSUM_OFFLOAD> {
    type Done = Totals;

    #[inline(always)]
    fn run(mut self, vector: impl Vector) -> Totals {
        let n = self.read(vector);
        self.answer(n, vector);
        self.totals
    }
}

impl<const CSUM_OFFLOAD: bool> Rest<'_, '_, CSUM_OFFLOAD> {
    /// Step 1 for all frames, in their order: a read waits for the requests before it that may change
    /// one of its keys. Returns how many requests are to be answered.
    #[inline(always)]
    fn read(&mut self, vector: impl Vector) -> usize {
        let (mut pending, mut left) = (0u64, self.left);
        let mut rows = 0;
        while let Some(n) = next_of(&mut left) {
            let Some(frame) = self.burst.get(n).filter(|frame| self.region.owns(frame)) else {
                continue;
            };
            let Some(asked) = self.asked.get_mut(rows) else { continue };
            let Some(window) = frame.window() else {
                pending |= 1 << n;
                continue;
            };
            if self.matcher.several(frame, window, asked, vector).is_none() {
                pending |= 1 << n;
                continue;
            }
            let store = self.guard.store();
            asked.frame = u8::try_from(n).unwrap_or(u8::MAX);
            asked.hash = if asked.has_long {
                hash_long(store, asked.at.map(|at| part(window, at.into())), asked.len, vector)
            } else {
                let mut keys = [[0; KEY_BLOCK]; ROW];
                for (key, at) in keys.iter_mut().zip(asked.at) {
                    *key = *part(window, at.into());
                }
                vector.hash(store, &keys, asked.len)
            };
            if pending != 0 {
                self.note(std::mem::take(&mut pending));
            }
            let asked = &self.asked[rows % BURST_MAX];
            let hashes = asked.hash.get(..asked.n_keys.into()).unwrap_or_default();
            if !hashes.iter().any(|hash| self.order.may_change(*hash)) {
                hashes.iter().for_each(|hash| store.prefetch_near(KeyHash(*hash)));
                rows += 1;
            }
        }
        rows
    }

    /// Notes what these frames may change.
    #[cold]
    #[inline(never)]
    fn note(&mut self, mut frames: u64) {
        while let Some(frame) = next_of(&mut frames).and_then(|n| self.burst.get(n)) {
            let store = self.guard.store();
            self.order.note(frame.bytes(), self.matcher.plain(), self.dialects, store);
        }
    }

    /// Steps 2 and 3 for all of them.
    #[inline(always)]
    fn answer(&mut self, rows: usize, vector: impl Vector) {
        let guard = self.guard;
        let mut found: [Found<'_>; ON_THE_WAY] = [[None; ROW]; ON_THE_WAY];
        for step in 0..rows + 2 * ROWS_AHEAD {
            if let Some(asked) = self.asked.get_mut(step).filter(|_| step < rows) {
                let (near, hashes) = (&mut found[step % ON_THE_WAY], asked.hash);
                let (n_keys, mut missed) = (asked.n_keys, 0);
                // One by one: a loop costs nearly as much as what it goes round.
                near[0] = look_up::<0>(guard, hashes, n_keys, &mut missed);
                near[1] = look_up::<1>(guard, hashes, n_keys, &mut missed);
                near[2] = look_up::<2>(guard, hashes, n_keys, &mut missed);
                near[3] = look_up::<3>(guard, hashes, n_keys, &mut missed);
                asked.missed_near = missed;
            }
            // A row that is not there yet, or no more, has a number beyond the last.
            let row = step.wrapping_sub(ROWS_AHEAD);
            if let Some(asked) = self.asked.get(row).filter(|_| row < rows) {
                let mut missed = asked.missed_near.into();
                while let Some(n) = next_of(&mut missed) {
                    let hash = KeyHash(asked.hash[n % ROW]);
                    found[row % ON_THE_WAY][n % ROW] = guard.fetch_either(hash);
                }
            }
            let row = step.wrapping_sub(2 * ROWS_AHEAD);
            if row < rows {
                // What is not answered is left.
                let _done = self.reply(row, &found[row % ON_THE_WAY], vector);
            }
        }
    }

    /// Answers a frame. `None`: it is as it was.
    #[inline(always)]
    fn reply(&mut self, row: usize, found: &Found<'_>, vector: impl Vector) -> Option<()> {
        let asked = self.asked.get(row)?;
        let number = usize::from(asked.frame);
        let mut frame = self.burst.get_mut(number)?.open::<FRAME>()?;
        let window = V4.window(frame.bytes)?;
        let end = if asked.usual {
            let request: [u8; REQUEST] = *part(window, TEXT);
            let Some(end) = put_items(window, &request, asked, found, self.liveness, vector) else {
                put(window, TEXT, request);
                return None;
            };
            sample(self.observer, &request, asked);
            end
        } else {
            put_any_items(window, asked, found, (&self.liveness, self.observer), vector)?
        };
        let [a, b, c, d] = found.map(|found| hit(self.observer, found));
        self.totals.several_hits += a + b + c + d;
        let end = usize::from(end);
        put(window, end, *END);
        let end = end + END.len();
        let udp_len = seal::<CSUM_OFFLOAD>(frame.bytes, V4, end, asked.ip_sum, vector);
        finish::<CSUM_OFFLOAD, _>(&mut frame, V4, udp_len);
        self.totals.reply_to_several(number, udp_len, asked.text_len);
        self.totals.several_keys += u64::from(asked.n_keys);
        Some(())
    }
}

/// Counts a key that was found, if it was, and says how many that are.
#[inline(always)]
fn hit(observer: Observer<'_>, found: Option<Fetched<'_>>) -> u64 {
    let Some(found) = found else { return 0 };
    observer.class_hit(found.class());
    1
}

/// Where key `N` of a request may be by its first bucket; what has nothing there is noted in `missed`.
#[inline(always)]
fn look_up<'g, const N: usize>(
    guard: &'g Guard<'g>,
    hashes: [u64; ROW],
    n_keys: u8,
    missed: &mut u8,
) -> Option<Fetched<'g>> {
    if usize::from(n_keys) <= N {
        return None;
    }
    let hash = KeyHash(hashes[N]);
    let found = guard.fetch_near(hash);
    if found.is_none() {
        guard.store().prefetch_far(hash);
        *missed |= 1 << N;
    }
    found
}

/// Shows the keys of a request that are to be sampled. `text` is the request's.
#[inline(always)]
fn sample(observer: Observer<'_>, text: &[u8], asked: &Several) {
    if let Some(before) = observer.pass_keys(asked.n_keys.into()) {
        show(observer, text, asked, before);
    }
}

/// Shows the keys of a request that are to be sampled: the one behind so many, and maybe others.
#[cold]
#[inline(never)]
fn show(observer: Observer<'_>, text: &[u8], asked: &Several, before: u64) {
    let mut keys = (0..usize::from(asked.n_keys)).map(|n| asked.key(text, n));
    let mut before = usize::try_from(before).ok();
    while let Some(key) = before.and_then(|before| keys.nth(before)) {
        observer.hot_key(key);
        let left = keys.len() as u64;
        before = observer.pass_keys(left).and_then(|before| usize::try_from(before).ok());
    }
}

/// Writes the items of a usual request, each as soon as it is verified, and returns where their text
/// ends. `None`: one of them fails, or the reply may be too long. `request` is what the window's text was.
#[inline(always)]
fn put_items(
    window: &mut [u8; WINDOW],
    request: &[u8; REQUEST],
    asked: &Several,
    found: &Found<'_>,
    liveness: Liveness,
    vector: impl Vector,
) -> Option<u16> {
    let (mut at, mut text_max) = (TEXT_U16, END.len());
    // By their numbers: iterators side by side cost more.
    for n in 0..ROW {
        let Some(found) = found[n] else { continue };
        let (key_at, key_len) = (asked.at[n], asked.len[n]);
        let item = found.item().filter(|item| liveness.is_live(item))?;
        let value = item.value().whole()?;
        let key = part(request, usize::from(key_at).wrapping_sub(TEXT) % USUAL);
        if item.key_len() != key_len || !vector.same(item.key_block(), key, key_len.into()) {
            return None;
        }
        text_max += VALUE_OVERHEAD_BYTES + usize::from(key_len) + value.len();
        if text_max > PAYLOAD_MAX_BYTES {
            return None;
        }
        item.mark_visited(liveness.now);
        at = put_value(window, at, item, value);
    }
    Some(at)
}

/// As [`put_items`], of any request; all are verified before the first is written.
#[inline(always)]
fn put_any_items(
    window: &mut [u8; WINDOW],
    asked: &Several,
    found: &Found<'_>,
    (liveness, observer): (&Liveness, Observer<'_>),
    vector: impl Vector,
) -> Option<u16> {
    let mut items: [Option<ItemRef<'_>>; ROW] = [None; ROW];
    let (n_keys, mut text_max) = (asked.n_keys(), END.len());
    for n in 0..n_keys {
        let Some(found) = found[n] else { continue };
        let item = found.item().filter(|item| liveness.is_live(item))?;
        let (at, key_len) = (usize::from(asked.at[n]), usize::from(asked.len[n]));
        let same = item.key_len() == asked.len[n]
            && if key_len <= KEY_BLOCK {
                vector.same(item.key_block(), part(window, at), key_len)
            } else {
                window.get(at..at + key_len) == Some(item.key())
            };
        if !same {
            return None;
        }
        text_max += VALUE_OVERHEAD_BYTES + key_len + item.value().whole()?.len();
        items[n] = Some(item);
    }
    if text_max > PAYLOAD_MAX_BYTES {
        return None;
    }
    sample(observer, window.get(TEXT..).unwrap_or_default(), asked);
    let mut at = TEXT_U16;
    for item in items[..n_keys].iter().flatten() {
        item.mark_visited(liveness.now);
        at = if asked.with_cas || usize::from(item.key_len()) > KEY_BLOCK {
            let cas = asked.with_cas.then(|| observer.server.cas_shown(item.cas()));
            put_unusual(window, at, *item, cas)
        } else {
            put_value(window, at, *item, item.value().whole().unwrap_or_default())
        };
    }
    Some(at)
}

/// Bytes of an item's text before its value, if its key fits a block and its flags a digit.
const BEFORE_VALUE: usize = b"VALUE ".len() + KEY_BLOCK + 16;
const KEY_AT: usize = b"VALUE ".len();

/// Writes an item, and returns where it ends. It fits: the reply's length was checked against a datagram's.
#[inline(always)]
fn put_value(window: &mut [u8; WINDOW], at: u16, item: ItemRef<'_>, value: &[u8]) -> u16 {
    let (key_len, start) = (usize::from(item.key_len()), usize::from(at));
    let (Some(line), Some(to)) = (
        Line::plain(value.len()).filter(|_| item.flags() < 10 && key_len <= KEY_BLOCK),
        window
            .get_mut(start..start + BEFORE_VALUE)
            .and_then(<[u8]>::first_chunk_mut::<BEFORE_VALUE>),
    ) else {
        return put_unusual(window, at, item, None);
    };
    to[..KEY_AT].copy_from_slice(b"VALUE ");
    to[KEY_AT..KEY_AT + KEY_BLOCK].copy_from_slice(item.key_block());
    let line_at = KEY_AT + key_len;
    let line_text = line.with_digit(item.flags()).text().0;
    to[line_at..line_at + line_text.len()].copy_from_slice(&line_text);
    let value_at = start + line_at + usize::from(line.len);
    let end = value_at + value.len() + b"\r\n".len();
    if let Some(to) = window.get_mut(value_at..end) {
        small_bytes::copy(to, value);
        if let Some(to) = to.last_chunk_mut() {
            *to = *b"\r\n";
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "in a window")]
    let end = end as u16;
    end
}

/// As [`put_value`], of any item, and with its CAS id if that was requested.
#[inline(never)]
fn put_unusual(window: &mut [u8; WINDOW], at: u16, item: ItemRef<'_>, cas: Option<u64>) -> u16 {
    let (key, value) = (item.key(), item.value().whole().unwrap_or_default());
    let mut at = usize::from(at);
    put(window, at, *b"VALUE ");
    at += b"VALUE ".len();
    put_bytes(window, &mut at, key);
    at = match Line::plain(value.len()) {
        Some(line) if item.flags() < 10 => line.with_digit(item.flags()).put(window, at),
        _ => Line::with_flags(item.flags(), value.len()).with_digit(0).put(window, at),
    };
    if let Some(cas) = cas {
        at -= b"\r\n".len();
        put_bytes(window, &mut at, b" ");
        put_bytes(window, &mut at, itoa::Buffer::new().format(cas).as_bytes());
        put_bytes(window, &mut at, b"\r\n");
    }
    put_bytes(window, &mut at, value);
    put(window, at, *b"\r\n");
    u16::try_from(at + b"\r\n".len()).unwrap_or(0)
}

/// Writes bytes where they fit, and moves `at` behind them.
#[inline(always)]
fn put_bytes(window: &mut [u8; WINDOW], at: &mut usize, bytes: &[u8]) {
    if let Some(to) = window.get_mut(*at..*at + bytes.len()) {
        small_bytes::copy(to, bytes);
    }
    *at += bytes.len();
}
