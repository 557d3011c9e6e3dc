//! How numbers are distributed, by powers of two. One thread counts, any thread reads.
//!
//! In: numbers. Out: how many there were of each size, and their sum. Counting takes no lock,
//! allocates nothing and never fails; what is larger than the last bucket holds is in none.

use driver_shim::Counter;

/// Buckets: numbers of up to so many bits are distinguished. In nanoseconds, 34 s.
const BUCKETS: usize = 36;

/// A distribution.
#[derive(Debug)]
pub struct Powers {
    /// Numbers of so many bits.
    buckets: [Counter; BUCKETS],
    count: Counter,
    sum: Counter,
}

impl Default for Powers {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            count: Counter::default(),
            sum: Counter::default(),
        }
    }
}

impl Powers {
    /// Counts a number.
    #[inline]
    pub fn count(&self, number: u64) {
        let bits = (u64::BITS - number.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get(bits) {
            bucket.inc();
        }
        self.count.inc();
        self.sum.add(number);
    }

    /// For each number of bits in `bits`: the largest such number, and how many were no larger.
    pub fn cumulative(&self, bits: std::ops::RangeInclusive<u32>) -> Vec<(u64, u64)> {
        let up_to = |bits: u32| {
            let largest = 1u64.checked_shl(bits).unwrap_or(0).wrapping_sub(1);
            let buckets = self.buckets.iter().take(bits as usize + 1);
            (largest, buckets.map(Counter::get).sum())
        };
        bits.map(up_to).collect()
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.count.get()
    }

    /// Their sum, modulo 2^64.
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_counted_where_it_belongs() {
        let powers = Powers::default();
        for number in [0, 1, 2, 3, 4, 1023, 1024, (1 << 35) - 1, 1 << 36, u64::MAX] {
            powers.count(number);
        }
        assert_eq!(powers.total(), 10);
        assert_eq!(powers.cumulative(0..=2), [(0, 1), (1, 2), (3, 4)]);
        assert_eq!(powers.cumulative(10..=11), [(1023, 6), (2047, 7)]);
        assert_eq!(powers.cumulative(35..=35), [((1 << 35) - 1, 8)]);
        let sum = (1 + 2 + 3 + 4 + 1023 + 1024 + (1 << 35) - 1u64) + (1 << 36);
        assert_eq!(powers.sum(), sum.wrapping_add(u64::MAX));
    }
}
