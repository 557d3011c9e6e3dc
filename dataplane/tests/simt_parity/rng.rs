//! Random numbers that are the same in every run of one seed.

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n.max(1)).unwrap()).unwrap()
    }

    /// One time in `n`.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    pub(crate) fn number(&mut self) -> u32 {
        let bits = self.below(33);
        u32::try_from(self.next() >> 32 & ((1 << bits) - 1)).unwrap()
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.byte()).collect()
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub(crate) fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        *self.pick(from)
    }
}
