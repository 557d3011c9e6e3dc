//! Memory for what does not fit a connection's own buffers: the beginning of a long request, the rest
//! of a long reply.
//!
//! In: buffers given back. Out: empty buffers, as many at a time as the budget allows and no more. A
//! buffer that was used is kept with its memory, as far as the largest item needs it, so that memory is taken only
//! while more long values are under way than ever before. `None` where all are out: a connection that needs one waits.

/// Memory of one worker for this, in bytes, if every buffer holds the largest item.
const BUDGET_BYTES: usize = 64 << 20;
/// Buffers that there are at least, whatever an item may measure.
const BUFFERS_MIN: usize = 4;

/// Bytes that may come with a value: its request or reply line, and what stands before or behind it.
const BESIDE_BYTES: usize = 64 << 10;

/// The buffers of one worker.
#[derive(Debug)]
pub(super) struct Spill {
    spare: Vec<Vec<u8>>,
    out: usize,
    most: usize,
    /// Bytes of each that are kept.
    each: usize,
}

impl Spill {
    /// For items of so many bytes.
    pub(super) fn new(item_max_bytes: usize) -> Self {
        let each = item_max_bytes.max(1 << 12);
        let most = (BUDGET_BYTES / each).max(BUFFERS_MIN);
        Self { spare: Vec::with_capacity(most), out: 0, most, each: each + BESIDE_BYTES }
    }

    /// Whether [`Self::take`] has one.
    pub(super) fn has_one(&self) -> bool {
        self.out < self.most
    }

    /// An empty buffer.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        if !self.has_one() {
            return None;
        }
        Some(self.take_anyway())
    }

    /// The same, beyond the budget if need be.
    pub(super) fn take_anyway(&mut self) -> Vec<u8> {
        self.out += 1;
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        self.out = self.out.saturating_sub(1);
        buffer.clear();
        if self.spare.len() < self.most {
            buffer.shrink_to(self.each);
            self.spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_and_no_more_and_their_memory_is_kept() {
        let mut spill = Spill::new(32 << 20);
        let mut all: Vec<_> = (0..BUFFERS_MIN).filter_map(|_| spill.take()).collect();
        assert_eq!(all.len(), BUFFERS_MIN);
        assert!(!spill.has_one() && spill.take().is_none());
        let mut one = all.pop().unwrap();
        one.extend([7; 1000]);
        spill.give(one);
        let mut again = spill.take().unwrap();
        assert!(again.is_empty() && again.capacity() >= 1000);
        again.reserve(80 << 20);
        spill.give(again);
        let again = spill.take().unwrap();
        assert!((32 << 20..40 << 20).contains(&again.capacity()));
    }
}
