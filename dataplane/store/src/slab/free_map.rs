//! Which chunks are free, one bit each, where chunks are given out in turn (`in_turn.rs`).
//!
//! In and out: numbers of pages and of chunks in them. Never fails.

use crate::sizes::SizeClass;
use std::sync::atomic::{AtomicU64, Ordering};

/// One bit a chunk: set while it is free and not on a free list. A page's bits are changed under the lock of the
/// class that owns it; atomics only to be in one shared array.
#[derive(Debug)]
pub(super) struct FreeMap {
    words: Box<[AtomicU64]>,
    words_per_page: usize,
}

impl FreeMap {
    pub(super) fn new(n_pages: usize, sizes: &[SizeClass]) -> Self {
        let chunks = sizes.iter().map(|size| size.per_page).max().unwrap_or(0);
        let words_per_page = chunks.div_ceil(u64::BITS) as usize;
        let words = (0..n_pages * words_per_page).map(|_| AtomicU64::new(0)).collect();
        Self { words, words_per_page }
    }

    /// From now on no chunk of the page is free.
    pub(super) fn clear(&self, page: u32) {
        self.of(page).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    fn of(&self, page: u32) -> &[AtomicU64] {
        &self.words[page as usize * self.words_per_page..][..self.words_per_page]
    }

    /// Notes that the chunk is free now, or is not any more.
    pub(super) fn flip(&self, page: u32, chunk: u32) {
        let word = &self.of(page)[(chunk / u64::BITS) as usize];
        let bit = 1 << (chunk % u64::BITS);
        word.store(word.load(Ordering::Relaxed) ^ bit, Ordering::Relaxed);
    }

    /// The first free chunk of the page from chunk `from` on.
    pub(super) fn first(&self, page: u32, from: u32) -> Option<u32> {
        let (begin, bit) = (from / u64::BITS, from % u64::BITS);
        (begin..).zip(self.of(page).get(begin as usize..)?).find_map(|(n, word)| {
            let skipped = if n == begin { bit } else { 0 };
            let word = word.load(Ordering::Relaxed) & (u64::MAX << skipped);
            (word != 0).then(|| n * u64::BITS + word.trailing_zeros())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::size_classes;

    #[test]
    fn the_first_free_chunk_from_anywhere() {
        let sizes = size_classes(2.0, 0, 1 << 20).unwrap();
        let (map, last) = (FreeMap::new(2, &sizes), sizes[0].per_page - 1);
        let free = [0, 63, 64, 200, last];
        free.iter().for_each(|chunk| map.flip(1, *chunk));
        for (from, first) in [(0, 0), (1, 63), (63, 63), (64, 64), (65, 200), (201, last)] {
            assert_eq!(map.first(1, from), Some(first), "from {from}");
        }
        assert_eq!((map.first(1, last + 1), map.first(0, 0)), (None, None));
        map.flip(1, 64);
        assert_eq!(map.first(1, 64), Some(200));
        map.clear(1);
        assert_eq!(map.first(1, 0), None);
    }
}
