//! What the machine's memory gives: random cache lines, so many on their way at a time, and copies.
//!
//! The yardstick for look-ups, which are hardly anything but that. In: how much memory, how many
//! lines in a group. Out: CPU time per line or byte. Fails when there is not enough memory.

use super::thread_cpu;
use driver_shim::mapping::{Mapping, MemoryKind, Pages};
use driver_shim::prefetch_read;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::hint::black_box;
use std::io;

/// A cache line.
const LINE_BYTES: usize = 64;

/// Memory to read lines from, as the store has it.
#[derive(Debug)]
pub struct Lines(Mapping);

impl Lines {
    /// At least so many bytes, none of them the kernel's shared page of zeros.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let mut mapping = Mapping::new(bytes, Pages::Prefer, &[])?;
        mapping.bytes_mut().fill(1);
        Ok(Self(mapping))
    }

    /// Bytes in all.
    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }

    /// The kind of memory obtained.
    pub fn kind(&self) -> MemoryKind {
        self.0.kind()
    }

    /// CPU time per random line, in nanoseconds, with `group` of them prefetched before the first
    /// is read; with a group of 1 nothing is prefetched.
    pub fn read(&mut self, group: usize, n: u64, seed: u64) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (lines, _) = self.0.bytes_mut().as_chunks::<LINE_BYTES>();
        let mut at = vec![0; group.max(1)];
        let (mut sum, mut done) = (0u64, 0);
        let begun = thread_cpu();
        while done < n {
            for at in &mut at {
                *at = rng.random_range(0..lines.len());
                if group > 1
                    && let Some(line) = lines.get(*at)
                {
                    prefetch_read(line);
                }
            }
            for at in &at {
                let first = lines.get(*at).and_then(|l| l.first_chunk::<8>());
                sum = sum.wrapping_add(first.map_or(0, |w| u64::from_ne_bytes(*w)));
            }
            done += at.len() as u64;
        }
        black_box(sum);
        super::per(thread_cpu() - begun, done)
    }

    /// Bytes copied in a nanosecond of CPU time, from one half to the other, `n` or more in all.
    pub fn copy(&mut self, n: u64) -> f64 {
        let bytes = self.0.bytes_mut();
        let (to, from) = bytes.split_at_mut(bytes.len() / 2);
        let Some(from) = from.get(..to.len()) else { return 0.0 };
        let mut done = 0;
        let begun = thread_cpu();
        while done < n.max(1) {
            to.copy_from_slice(black_box(from));
            black_box(&mut *to);
            done += from.len() as u64;
        }
        1.0 / super::per(thread_cpu() - begun, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_copied() {
        let mut lines = Lines::new(1 << 20).unwrap();
        assert!(lines.read(32, 10_000, 1) > 0.0);
        let half = lines.len_bytes() / 2;
        lines.0.bytes_mut()[half..].fill(7);
        assert!(lines.copy(1) > 0.0);
        assert!(lines.0.bytes_mut()[..half].iter().all(|b| *b == 7));
    }
}
