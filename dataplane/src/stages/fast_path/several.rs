//! `get` of several keys or of a long one, and `gets`, in loops of their own behind those of plain gets.
//!
//! In: frames that are no plain gets, as they came. Out: those that get up to four keys, which
//! begin in a frame's first 256 bytes, and for nothing else, are replies; the others are left. What a frame must have to be taken is
//! what a plain get must have. A frame is a row: its keys are hashed together, unless one is long, and each
//! of the steps is two rows behind the one before. All of its items are verified before a byte is written; where one
//! fails, or the reply is longer than a datagram, the frame is as it was.

use super::line::{Line, TAIL};
use super::order::Order;
use super::requests::Requests;
use super::seal::{AROUND_TEXT, END, L4, LESS_FIXED, finish, turn};
use super::sum::{fold32, fold64};
use super::totals::{Totals, next_of};
use super::vector::{KEY_BLOCK, PROTOCOL, ROW, ROWS_AHEAD, Vector, Work};
use super::window::{TEXT, WINDOW, part, put};
use crate::observe::Observer;
use arrayvec::ArrayVec;
use base::small_bytes;
use driver_shim::{BURST_MAX, Frame, Region};
use memcache::text::VALUE_OVERHEAD_BYTES;
use memcache::{Dialects, KEY_MAX_BYTES};
use store::{Fetched, Guard, ItemRef, KeyHash, Liveness};
use wire::udp_frame::PAYLOAD_MAX_BYTES;

/// From the third byte of the memcached frame header on: whole, reserved bytes, verb.
const GET: u64 = u64::from_le_bytes(*b"\0\x01\0\0get ");
const GETS: u64 = u64::from_le_bytes(*b"\0\x01\0\0gets");
/// The addresses, behind which the datagram stands.
const COVERED: usize = 26;
/// Rows whose items are on their way, and then some.
const ON_THE_WAY: usize = 8;
const _: () = assert!(ON_THE_WAY > 2 * ROWS_AHEAD);

/// The request in a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Several {
    /// Its number in the burst.
    frame: u8,
    n_keys: u8,
    with_cas: bool,
    /// One of its keys is longer than a block.
    has_long: bool,
    /// As in `Asked`.
    header: u16,
    text_len: u16,
    /// Where in the frame each key is, and its length.
    at: [u8; ROW],
    len: [u8; ROW],
    hash: [u64; ROW],
}

impl Several {
    /// The hashes of its keys.
    #[inline(always)]
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.hash.into_iter().take(usize::from(self.n_keys).min(ROW))
    }
}

/// Where the items of a frame may be.
type Found<'g> = [Option<Fetched<'g>>; ROW];

impl Requests {
    /// The request in the frame, but for the hashes, and its keys, if it gets several.
    #[inline(always)]
    fn several(
        &mut self,
        frame: &Frame,
        n: usize,
        vector: impl Vector,
    ) -> Option<(Several, [[u8; KEY_BLOCK]; ROW])> {
        let window = frame.window::<WINDOW>()?;
        let with_cas = match u64::from_le_bytes(*part(window, TEXT - 4)) {
            GET => false,
            GETS if window.get(TEXT + 4) == Some(&b' ') => true,
            _ => return None,
        };
        let udp_len = self.head(frame, part(window, 0), vector)?;
        let end = L4 + udp_len;
        let mut keys = [[0; KEY_BLOCK]; ROW];
        let (mut places, mut lens) = ([0; ROW], [0; ROW]);
        let mut at = TEXT + 4 + usize::from(with_cas);
        let (mut n_keys, mut has_long) = (0, false);
        loop {
            let key = part::<KEY_BLOCK, _>(window, at);
            let mut len = vector.word_len(key);
            (*keys.get_mut(n_keys)?, *places.get_mut(n_keys)?) = (*key, u8::try_from(at).ok()?);
            if len == KEY_BLOCK {
                len = long_word_len(window, at, vector);
                has_long = true;
            }
            *lens.get_mut(n_keys)? = u8::try_from(len).ok().filter(|len| *len > 0)?;
            n_keys += 1;
            at += len;
            match *part(window, at) {
                [b'\r', b'\n'] if at + 2 == end => break,
                [b' ', _] => at += 1,
                _ => return None,
            }
        }
        let word = |at| u64::from(u32::from_le_bytes(*part(window, at)));
        let ip = fold64(word(14) + word(18) + word(22) + word(26) + word(30));
        let length = u32::from(u16::from_le_bytes(*part(window, L4 + 4)));
        let datagram = vector.sum(window.get(COVERED..end)?);
        if ip != 0xffff || fold32(datagram + length + PROTOCOL) != 0xffff {
            return None;
        }
        let header = self.trusted(u64::from_le_bytes(*part(window, COVERED)))?;
        let asked = Several {
            frame: u8::try_from(n).ok()?,
            n_keys: u8::try_from(n_keys).ok()?,
            with_cas,
            has_long,
            header,
            text_len: u16::try_from(udp_len - AROUND_TEXT).ok()?,
            at: places,
            len: lens,
            hash: [0; ROW],
        };
        Some((asked, keys))
    }
}

/// How many bytes from `at` on come before the first blank or control character. 0: more than a key may
/// have.
#[inline(always)]
fn long_word_len(window: &[u8; WINDOW], at: usize, vector: impl Vector) -> usize {
    let mut len = 0;
    while len <= KEY_MAX_BYTES {
        let more = vector.word_len(part(window, at + len));
        len += more;
        if more < KEY_BLOCK {
            break;
        }
    }
    if len <= KEY_MAX_BYTES { len } else { 0 }
}

/// What of a whole reply's UDP checksum follows from IPv4's header and the length: the addresses,
/// the length twice, the protocol, and the memcached header's count of datagrams.
#[inline(always)]
fn covered(header: u16, udp_len: u16) -> u64 {
    const SAME: u32 = PROTOCOL + 1u16.swap_bytes() as u32;
    u64::from(u32::from(header) + LESS_FIXED + SAME + 2 * u32::from(udp_len.swap_bytes()))
}

/// The pass over what the plain pass has left of a burst.
pub(super) struct Rest<'p, 'g, const BY_PORT: bool> {
    pub(super) burst: &'p mut [Frame],
    pub(super) requests: &'p mut Requests,
    pub(super) asked: &'p mut ArrayVec<Several, BURST_MAX>,
    pub(super) order: &'p mut Order,
    pub(super) guard: &'g Guard<'g>,
    pub(super) observer: Observer<'p>,
    pub(super) region: &'p Region,
    pub(super) liveness: Liveness,
    pub(super) dialects: Dialects,
    pub(super) totals: Totals,
}

/// Whether one of the frames in `left` may get several keys.
#[inline]
pub(super) fn any(burst: &[Frame], mut left: u64) -> bool {
    std::iter::from_fn(|| next_of(&mut left))
        .filter_map(|n| burst.get(n)?.window::<WINDOW>())
        .any(|window| matches!(u64::from_le_bytes(*part(window, TEXT - 4)), GET | GETS))
}

impl<const BY_PORT: bool> Work for Rest<'_, '_, BY_PORT> {
    type Done = Totals;

    #[inline(always)]
    fn run(mut self, vector: impl Vector) -> Totals {
        self.read(vector);
        self.answer(vector);
        self.totals
    }
}

impl<const BY_PORT: bool> Rest<'_, '_, BY_PORT> {
    /// Step 1 for all frames, in their order: a read waits for the requests before it that may change
    /// one of its keys.
    #[inline(always)]
    fn read(&mut self, vector: impl Vector) {
        self.asked.clear();
        let (mut pending, answered) = (0u64, self.totals.frames);
        for n in (0..self.burst.len()).filter(|n| answered >> n & 1 == 0) {
            let Some(frame) = self.burst.get(n).filter(|frame| self.region.owns(frame)) else {
                continue;
            };
            let Some((mut asked, keys)) = self.requests.several(frame, n, vector) else {
                pending |= 1 << n;
                continue;
            };
            let store = self.guard.store();
            asked.hash = if asked.has_long {
                std::array::from_fn(|n| match usize::from(asked.len[n]) {
                    0 => 0,
                    len => {
                        let at = usize::from(asked.at[n]);
                        store.hash(frame.bytes().get(at..at + len).unwrap_or_default()).0
                    }
                })
            } else {
                vector.hash(store, &keys, asked.len)
            };
            if pending != 0 {
                self.note(std::mem::take(&mut pending));
            }
            if !asked.keys().any(|hash| self.order.holds_back(hash)) {
                asked.keys().for_each(|hash| store.prefetch_near(KeyHash(hash)));
                // The capacity is that of a burst.
                let _kept = self.asked.try_push(asked);
            }
        }
    }

    /// Notes what these frames may change.
    #[cold]
    #[inline(never)]
    fn note(&mut self, mut frames: u64) {
        while let Some(frame) = next_of(&mut frames).and_then(|n| self.burst.get(n)) {
            let store = self.guard.store();
            self.order.note(frame.bytes(), self.requests.plain(), self.dialects, store);
        }
    }

    /// Steps 2 and 3 for all of them.
    #[inline(always)]
    fn answer(&mut self, vector: impl Vector) {
        let rows = self.asked.len();
        let mut found: [Found<'_>; ON_THE_WAY] = [[None; ROW]; ON_THE_WAY];
        for step in 0..rows + 2 * ROWS_AHEAD {
            let behind = |rows: usize| step.wrapping_sub(rows);
            if let Some(asked) = self.asked.get(step) {
                for (n, hash) in asked.keys().enumerate() {
                    let near = self.guard.fetch_near(KeyHash(hash));
                    if near.is_none() {
                        self.guard.store().prefetch_far(KeyHash(hash));
                    }
                    found[step % ON_THE_WAY][n] = near;
                }
            }
            let row = behind(ROWS_AHEAD);
            if let Some(asked) = self.asked.get(row) {
                for (n, hash) in asked.keys().enumerate() {
                    if found[row % ON_THE_WAY][n].is_none() {
                        found[row % ON_THE_WAY][n] = self.guard.fetch_either(KeyHash(hash));
                    }
                }
            }
            let row = behind(2 * ROWS_AHEAD);
            if let Some(asked) = self.asked.get(row).copied() {
                // What is not answered is left.
                let _done = self.reply(&asked, &found[row % ON_THE_WAY], vector);
            }
        }
    }

    /// Answers a frame. `None`: it is as it was.
    #[inline(always)]
    fn reply(&mut self, asked: &Several, found: &Found<'_>, vector: impl Vector) -> Option<()> {
        let number = usize::from(asked.frame);
        let mut frame = self.burst.get_mut(number)?.open::<WINDOW>()?;
        let window = &mut *frame.bytes;
        let n_keys = usize::from(asked.n_keys).min(ROW);
        let mut items: [Option<ItemRef<'_>>; ROW] = [None; ROW];
        let mut text_max = END.len();
        for n in 0..n_keys {
            let Some(found) = found[n] else { continue };
            let item = found.item().filter(|item| self.liveness.is_live(item))?;
            let (at, len) = (usize::from(asked.at[n]), asked.len[n]);
            let same = item.key_len() == len
                && if asked.has_long {
                    window.get(at..at + usize::from(len)) == Some(item.key())
                } else {
                    vector.same(item.key_block(), part(window, at), len.into())
                };
            text_max += VALUE_OVERHEAD_BYTES + usize::from(len) + item.value().whole()?.len();
            if !same {
                return None;
            }
            items[n] = Some(item);
        }
        if text_max > PAYLOAD_MAX_BYTES {
            return None;
        }
        for n in 0..n_keys {
            let (at, len) = (usize::from(asked.at[n]), usize::from(asked.len[n]));
            self.observer.see(window.get(at..at + len).unwrap_or_default());
            if let (Some(found), Some(item)) = (found[n], items[n]) {
                self.observer.hit(found.class());
                item.mark_visited(self.liveness.now);
                self.totals.several_hits += 1;
            }
        }
        let mut at = TEXT;
        for item in items.iter().flatten() {
            let cas = asked.with_cas.then(|| self.observer.server.cas_shown(item.cas()));
            at = put_value(window, at, item, cas);
        }
        put(window, at, *END);
        let text_len = at + END.len() - TEXT;
        let sum = if BY_PORT {
            0
        } else {
            // Whole blocks.
            put(window, TEXT + text_len, [0; KEY_BLOCK]);
            let text = window.get(TEXT..TEXT + text_len.next_multiple_of(KEY_BLOCK));
            let word = |at| u64::from(u32::from_le_bytes(*part(window, at)));
            u64::from(vector.sum(text.unwrap_or_default())) + word(L4) + word(42)
        };
        let udp_len = u16::try_from(AROUND_TEXT + text_len).unwrap_or(0);
        // Ports and the request's number are in the sum.
        let sum = sum + covered(asked.header, udp_len);
        turn::<BY_PORT>(window, udp_len, asked.header, sum, vector);
        finish::<BY_PORT>(&mut frame, udp_len);
        self.totals.reply_to_several(number, udp_len, asked.text_len);
        self.totals.several_keys += u64::from(asked.n_keys);
        Some(())
    }
}

/// Writes an item, and returns where it ends. It fits: the reply's length was checked against a datagram's.
#[inline(always)]
fn put_value(window: &mut [u8; WINDOW], at: usize, item: &ItemRef<'_>, cas: Option<u64>) -> usize {
    let value = item.value().whole().unwrap_or_default();
    put(window, at, *b"VALUE ");
    let (key_at, key_len) = (at + b"VALUE ".len(), usize::from(item.key_len()));
    put(window, key_at, *item.key_block());
    if key_len > KEY_BLOCK
        && let Some(to) = window.get_mut(key_at..key_at + key_len)
    {
        to.copy_from_slice(item.key());
    }
    let mut at = key_at + key_len;
    at = match Line::plain(value.len()) {
        Some(line) if item.flags() < 10 => line.with_digit(item.flags()).put(window, at),
        _ => Line::with_flags(item.flags(), value.len()).with_digit(0).put(window, at),
    };
    if let Some(cas) = cas {
        at = put_cas(window, at - b"\r\n".len(), cas);
    }
    if let Some(to) = window.get_mut(at..at + value.len()) {
        small_bytes::copy(to, value);
    }
    at += value.len();
    put(window, at, [TAIL[0], TAIL[1]]);
    at + b"\r\n".len()
}

/// Writes a blank, the number and a line end, and returns where they end.
#[inline(never)]
fn put_cas(window: &mut [u8; WINDOW], at: usize, cas: u64) -> usize {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(cas).as_bytes();
    put(window, at, *b" ");
    if let Some(to) = window.get_mut(at + 1..at + 1 + digits.len()) {
        to.copy_from_slice(digits);
    }
    put(window, at + 1 + digits.len(), *b"\r\n");
    at + 1 + digits.len() + b"\r\n".len()
}
