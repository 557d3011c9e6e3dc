//! A fixed shuffle of `0..n`: popular ranks lie scattered over the keys, as a hash would scatter
//! them, but no two ranks share a key, so that the distribution stays exact.
//!
//! In: a number below `n`. Out: its place, below `n` too. No memory, whatever `n`.

/// Rounds of mixing over the next power of two.
const ROUNDS: u32 = 3;

/// A shuffle of `0..n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
}

impl Permutation {
    /// Of `0..n`.
    pub fn new(n: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        let mask = u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0);
        Self { n, mask, shift: (bits / 2).max(1) }
    }

    /// Where `i`, which is below `n`, goes. Anything else stays.
    pub fn place(&self, i: u64) -> u64 {
        if i >= self.n {
            return i;
        }
        // Each step is a bijection of the numbers up to the mask; walking on from those that are
        // not below n leads back among them after fewer than two steps on average.
        let mut x = i;
        loop {
            for _ in 0..ROUNDS {
                x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x632b_e59b) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_taken_once() {
        for n in (1..70).chain([1_000, 4_096, 4_097, 100_003]) {
            let p = Permutation::new(n);
            let mut taken = vec![false; usize::try_from(n).unwrap()];
            for i in 0..n {
                let at = usize::try_from(p.place(i)).unwrap();
                assert!(!std::mem::replace(&mut taken[at], true), "{i} of {n}");
            }
        }
    }

    #[test]
    fn neighbours_lie_far_apart_among_many_keys() {
        for n in [1u64 << 20, 1_000_000_007, u64::MAX] {
            let p = Permutation::new(n);
            let all: Vec<u64> = (0..1_000).map(|i| p.place(i)).collect();
            assert!(all.iter().all(|at| *at < n));
            let near = all.windows(2).filter(|w| w[0].abs_diff(w[1]) < n / 1_000).count();
            assert!(near < 20, "{near} of {n}");
            let low = all.iter().filter(|at| **at < n / 2).count();
            assert!((400..600).contains(&low), "{low} of {n}");
        }
    }
}
