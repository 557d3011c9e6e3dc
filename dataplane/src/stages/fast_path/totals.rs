//! What came of a burst, counted once at its end.
//!
//! In: bits and lengths of replies. Out: counters. Nothing fails.

use crate::counters::WorkerCounters;
use crate::observe::{LookUps, Observer};

/// Bytes of a request's text beside its key.
pub(super) const TEXT_AROUND_KEY: u64 = (b"get ".len() + b"\r\n".len()) as u64;

/// What a burst's requests did, to be counted at its end.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Bit n: frame n is done with, and is a reply unless it is in `silent`.
    pub(super) frames: u64,
    /// Bit n: frame n is the reply to a get of one key that missed.
    pub(super) missed: u64,
    /// Bit n: frame n is a whole reply that the offload wrote.
    pub(super) whole: u64,
    /// Lengths of the replies without a plain frame's headers; and from bit 32 on, lengths of gets' texts without
    /// [`TEXT_AROUND_KEY`]: one sum for both.
    pub(super) lengths: u64,
    /// Bit n: frame n is the reply to a get of several keys.
    pub(super) several: u64,
    /// Keys of the gets in `several`.
    pub(super) several_keys: u64,
    /// Keys of the gets in `several` that were found.
    pub(super) several_hits: u64,
    /// Bit n: frame n is a get of one key that the general stages leave to the strict parser.
    pub(super) strict: u64,
    /// Bit n: frame n is a `set` that was carried out.
    pub(super) sets: u64,
    /// How many of the `set`s in `sets` the store refused.
    pub(super) sets_refused: u64,
    /// Bytes of the texts of the `set`s in `sets`.
    pub(super) sets_len: u64,
    /// Bit n: frame n is done with, and gets no answer.
    pub(super) silent: u64,
}

impl Totals {
    /// Frame `n` is a reply to a request for several keys.
    pub(super) fn reply_to_several(&mut self, n: usize, udp_len: u16, text_len: u16) {
        self.frames |= 1 << n;
        self.several |= 1 << n;
        let keys_len = u64::from(text_len).saturating_sub(TEXT_AROUND_KEY);
        self.lengths += u64::from(udp_len) | keys_len << 32;
    }

    /// Frame `n` is a whole reply that the offload wrote.
    #[inline(always)]
    pub(super) fn reply_whole(&mut self, n: usize, udp_len: u16, key_len: u8) {
        self.frames |= 1 << n;
        self.whole |= 1 << n;
        self.lengths += u64::from(udp_len) | u64::from(key_len) << 32;
    }

    /// Frame `n` is the reply to a `set`; to be sent none, if that has no length.
    #[inline(always)]
    pub(super) fn reply_to_set(&mut self, n: usize, udp_len: u16, text_len: u16) {
        self.frames |= 1 << n;
        self.sets |= 1 << n;
        self.silent |= u64::from(udp_len == 0) << n;
        self.lengths += u64::from(udp_len);
        self.sets_len += u64::from(text_len);
    }

    /// Counts the requests, and that they came as a batch of their own.
    pub(super) fn count(&self, observer: Observer<'_>, counters: &WorkerCounters) {
        let requests = u64::from(self.frames.count_ones());
        if requests == 0 {
            return;
        }
        self.count_requests(observer, counters);
        counters.batches.inc();
        counters.batched.add(requests);
        counters.batch_sizes.count(requests);
        counters.batch_waits.count(0);
    }

    pub(super) fn count_requests(&self, observer: Observer<'_>, counters: &WorkerCounters) {
        let requests = u64::from(self.frames.count_ones());
        let sets = u64::from(self.sets.count_ones());
        let gets = requests - sets;
        let plain = self.frames & !self.several & !self.sets;
        let keys = u64::from(plain.count_ones()) + self.several_keys;
        let hits = u64::from((plain & !self.missed).count_ones()) + self.several_hits;
        if gets > 0 {
            observer.look_ups(LookUps { keys, hits }, false);
            let strict = u64::from(self.strict.count_ones());
            counters.fast.add(gets - strict);
            if strict > 0 {
                counters.slow.add(strict);
            }
            let whole = u64::from(self.whole.count_ones());
            counters.hints_right.add(hits - whole);
            if whole > 0 {
                counters.replies_accepted.add(whole);
            }
        }
        if sets > 0 {
            observer.sets(sets, self.sets_refused);
            counters.slow.add(sets);
        }
        let gets_len = (self.lengths >> 32) + gets * TEXT_AROUND_KEY;
        observer.ops.bytes_read.add(gets_len + self.sets_len);
    }
}

/// The number of the lowest bit that is set, which is cleared.
#[inline(always)]
pub(super) fn next_of(bits: &mut u64) -> Option<usize> {
    let n = (*bits != 0).then(|| bits.trailing_zeros() as usize)?;
    *bits &= *bits - 1;
    Some(n)
}
