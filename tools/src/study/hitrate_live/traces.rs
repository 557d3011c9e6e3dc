//! Which keys are requested, in which order, and how large the value is.
//!
//! Every trace is a pure function of its parameters, so that each server gets the same one.

use crate::workload::sizes::Of;
use crate::workload::{Popularity, Sampler, Sizes};
use clap::ValueEnum;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Requests between the begins of two scans, and keys in a scan.
const SCAN_EVERY: u64 = 200_000;
const SCAN_KEYS: u64 = 60_000;

/// The kinds of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Zipf, exponent 0.99.
    Zipf099,
    /// Zipf, exponent 0.8.
    Zipf08,
    /// Zipf 0.99; now and then somebody walks through many keys that nobody asks for again.
    Scan,
    /// Zipf 0.99; halfway all values become much larger.
    Shift,
}

/// A trace.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Its kind.
    pub shape: Shape,
    /// Popular keys, those of scans not counted.
    pub keys: u64,
    /// Requests in all.
    pub length: u64,
    /// Sizes of values.
    pub values: Sizes,
    /// Sizes of values after a shift.
    pub shifted: Sizes,
    /// Of the draws.
    pub seed: u64,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Number of the key.
    pub key: u64,
    /// Bytes to store where it is missing.
    pub value_bytes: usize,
}

impl Trace {
    /// The requests, from the first. None when there are no keys.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        let theta = if self.shape == Shape::Zipf08 { 0.8 } else { 0.99 };
        let mut sampler = Sampler::new(self.keys, Popularity::Zipf(theta));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut fresh = self.keys;
        (0..self.length).map_while(move |n| {
            let key = if self.scans(n) {
                fresh += 1;
                fresh - 1
            } else {
                sampler.as_mut()?.read(&mut rng)
            };
            let late = self.shape == Shape::Shift && n >= self.length / 2;
            let sizes = if late { &self.shifted } else { &self.values };
            Some(Request { key, value_bytes: sizes.of(key, Of::Value) })
        })
    }

    /// Whether request `n` is part of a scan.
    fn scans(&self, n: u64) -> bool {
        self.shape == Shape::Scan && n % SCAN_EVERY >= SCAN_EVERY - SCAN_KEYS
    }

    /// Key numbers that occur are below this.
    pub fn keys_used(&self) -> u64 {
        let rest = (self.length % SCAN_EVERY).saturating_sub(SCAN_EVERY - SCAN_KEYS);
        let scanned = self.length / SCAN_EVERY * SCAN_KEYS + rest;
        self.keys + if self.shape == Shape::Scan { scanned } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(shape: Shape) -> Trace {
        let (values, shifted) = (Sizes::Fixed(10), Sizes::Fixed(99));
        Trace { shape, keys: 1_000, length: 450_000, values, shifted, seed: 1 }
    }

    #[test]
    fn one_seed_one_trace() {
        for shape in [Shape::Zipf099, Shape::Zipf08, Shape::Scan, Shape::Shift] {
            let (a, b) = (trace(shape), Trace { seed: 2, ..trace(shape) });
            assert!(a.requests().eq(a.requests()) && !a.requests().eq(b.requests()));
            assert_eq!(a.requests().count(), 450_000);
            assert!(a.requests().all(|r| r.key < a.keys_used()));
        }
    }

    #[test]
    fn scans_ask_for_each_key_once() {
        let t = trace(Shape::Scan);
        let scanned: Vec<u64> = t.requests().map(|r| r.key).filter(|k| *k >= 1_000).collect();
        assert_eq!(scanned, (1_000..1_000 + 2 * SCAN_KEYS).collect::<Vec<_>>());
        assert_eq!(t.keys_used(), 1_000 + 2 * SCAN_KEYS);
        let cut = Trace { length: 399_999, ..t };
        assert_eq!(cut.requests().map(|r| r.key).max(), Some(cut.keys_used() - 1));
    }

    #[test]
    fn sizes_shift_halfway() {
        let sizes: Vec<usize> = trace(Shape::Shift).requests().map(|r| r.value_bytes).collect();
        assert!(sizes[..225_000].iter().all(|s| *s == 10));
        assert!(sizes[225_000..].iter().all(|s| *s == 99));
    }
}
