//! Reads the plain `set`s of a burst, all at once and before any is carried out.
//!
//! In: frames as they came; they are only looked at. Out: what each asks, its key hashed, and the lines that a change
//! reads on the way to the cache. The gets' pass does it when it meets the first: a `get` of the same key behind a `set`
//! must wait for that (`order`), and what is known of a `set` here is not read again there.

use super::long_key::hash_long;
use super::set_line::{self, Set};
use super::totals::next_of;
use crate::plain::FastPathMode;
use crate::plain::requests::RequestMatcher;
use crate::plain::vector::{Compiled, LONG_BLOCK, ROW, Vector};
use crate::plain::window::part;
use driver_shim::{BURST_MAX, Frame, Region};
use store::{KeyHash, Store};

/// The plain `set`s of a burst, as far as they have been read.
#[derive(Debug)]
pub(super) struct SetsRead {
    asked: [Set; BURST_MAX],
    /// Bit n: frame n is a plain `set`. As many of `asked` are theirs, in their order.
    frames: u64,
    /// The burst has been read.
    is_done: bool,
}

impl SetsRead {
    /// None yet.
    pub(super) fn new() -> Self {
        Self { asked: [Set::default(); BURST_MAX], frames: 0, is_done: false }
    }

    /// Begins a burst.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        (self.frames, self.is_done) = (0, false);
    }

    /// Reads them, if one of the frames in `among` may be one; there are none before those.
    pub(super) fn read(
        &mut self,
        among: u64,
        mode: FastPathMode,
        (burst, region): (&[Frame], &Region),
        matcher: &mut RequestMatcher,
        store: &Store,
    ) {
        if !self.is_done && any(burst, among) {
            let (from, asked) = (among.trailing_zeros() as usize, &mut self.asked);
            // To `Reading::run` below, compiled for this CPU's vectors.
            self.frames =
                mode.run_on_this_cpu(Reading { burst, from, region, matcher, store, asked });
            self.is_done = true;
        }
    }

    /// Bit n: frame n is one.
    #[inline(always)]
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// What they ask.
    #[inline(always)]
    pub(super) fn asked(&self) -> &[Set] {
        self.asked.get(..self.frames.count_ones() as usize).unwrap_or_default()
    }

    /// The key's hash, if frame `n` is one.
    pub(super) fn hash(&self, n: usize) -> Option<u64> {
        let is_one = self.frames >> n & 1 == 1;
        let before = (self.frames & !(u64::MAX << n)).count_ones() as usize;
        self.asked.get(before).filter(|_| is_one).map(|set| set.hash)
    }
}

/// Whether one of the frames in `among` may be a `set`.
#[inline]
fn any(burst: &[Frame], mut among: u64) -> bool {
    std::iter::from_fn(|| next_of(&mut among)).filter_map(|n| burst.get(n)).any(set_line::may_be)
}

struct Reading<'p> {
    burst: &'p [Frame],
    /// The first frame that may be one.
    from: usize,
    region: &'p Region,
    matcher: &'p mut RequestMatcher,
    store: &'p Store,
    asked: &'p mut [Set; BURST_MAX],
}

impl Compiled for Reading<'_> {
    type Done = u64;

    #[inline(always)]
    fn run(self, vector: impl Vector) -> u64 {
        let Self { burst, from, region, matcher, store, asked } = self;
        let item_max_bytes = store.config().item_max_bytes;
        let (mut rows, _) = asked.as_chunks_mut::<ROW>();
        let (mut keys, mut lens) = ([&[0; LONG_BLOCK]; ROW], [1; ROW]);
        let (mut frames, mut found) = (0, 0);
        for (n, frame) in burst.iter().enumerate().take(BURST_MAX).skip(from) {
            let Some(row) = rows.first_mut() else { break };
            let set = &mut row[found % ROW];
            if !region.owns(frame) {
                continue;
            }
            let Some(key) = matcher.set((n, frame), item_max_bytes, vector, set) else { continue };
            (keys[found % ROW], lens[found % ROW]) = (key, set.key_len);
            frames |= 1 << n;
            found += 1;
            if found == ROW {
                hash(row, keys, lens, store, vector);
                rows = rows.get_mut(1..).unwrap_or_default();
                found = 0;
            }
        }
        if let Some(row) = rows.first_mut().and_then(|row| row.get_mut(..found)) {
            hash(row, keys, lens, store, vector);
        }
        frames
    }
}

/// Hashes the keys of a row, or of what there is of it.
#[inline(always)]
fn hash(
    row: &mut [Set],
    keys: [&[u8; LONG_BLOCK]; ROW],
    lens: [u8; ROW],
    store: &Store,
    vector: impl Vector,
) {
    // The top bit of each length above 32 (a carry comes from one alone).
    let word = u32::from_le_bytes(lens);
    let hashes = if (word.wrapping_add(0x5f5f_5f5f) | word) & 0x8080_8080 == 0 {
        vector.hash(store, &keys.map(|key| *part(key, 0)), lens)
    } else {
        hash_long(store, keys, lens, vector)
    };
    for (set, hash) in row.iter_mut().zip(hashes) {
        store.prefetch_change(KeyHash(hash));
        set.hash = hash;
    }
}
