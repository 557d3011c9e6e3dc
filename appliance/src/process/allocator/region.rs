//! Memory for the moment when the system has none.
//!
//! In: a size and an alignment. Out: memory, or null. Lock-free, and it allocates nothing itself: a
//! [`Zone`] is a row of blocks, and a block hands out its bytes from the front. A block whose last
//! allocation is freed is empty again; one that stays for long holds up no more than its own block.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest alignment.
const ALIGN_MAX: usize = 4096;
/// Largest allocation that is served from small blocks.
const SMALL_MAX: usize = 16 << 10;

/// All of it: 4 MB for small allocations, and 4 MB for those of up to 1 MB.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Region {
    small: Zone<{ 64 << 10 }, 64>,
    large: Zone<{ 1 << 20 }, 4>,
}

impl Region {
    pub(super) const fn new() -> Self {
        Self { small: Zone::new(), large: Zone::new() }
    }

    /// Memory of this size and alignment, or null.
    pub(super) fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.size() <= SMALL_MAX {
            true => self.small.alloc(layout),
            false => self.large.alloc(layout),
        }
    }

    /// Whether `memory` was allocated here.
    #[inline]
    pub(super) fn contains(&self, memory: *const u8) -> bool {
        memory.addr().wrapping_sub(std::ptr::from_ref(self).addr()) < size_of::<Self>()
    }

    /// Frees `memory`.
    ///
    /// # Safety
    /// It was allocated here, with this layout, and no code uses it any more.
    pub(super) unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match layout.size() <= SMALL_MAX {
            // SAFETY: the caller's promise; the size says which zone it is from.
            true => unsafe { self.small.dealloc(memory, layout) },
            // SAFETY: as above.
            false => unsafe { self.large.dealloc(memory, layout) },
        }
    }

    /// Whether so many quarters of it and more are free.
    pub(super) fn is_free(&self, quarters: usize) -> bool {
        self.small.is_free(quarters) && self.large.is_free(quarters)
    }
}

/// Blocks of so many bytes.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(super) struct Zone<const BLOCK: usize, const COUNT: usize> {
    memory: UnsafeCell<[[u8; BLOCK]; COUNT]>,
    /// A [`Use`] each.
    blocks: [AtomicU64; COUNT],
}

// SAFETY: the memory is reached only through pointers that `alloc` handed out, and no two that are
// live overlap.
unsafe impl<const BLOCK: usize, const COUNT: usize> Sync for Zone<BLOCK, COUNT> {}

/// How a block is used, in one word, so that it changes as a whole.
#[derive(Clone, Copy)]
struct Use {
    /// Where the next allocation may begin: every live one ends there or before.
    end: u32,
    /// Allocations that are live.
    live: u32,
}

impl Use {
    const fn of(word: u64) -> Self {
        Self { end: (word & 0xffff_ffff) as u32, live: (word >> 32) as u32 }
    }

    const fn word(self) -> u64 {
        (self.live as u64) << 32 | self.end as u64
    }

    /// Where an allocation would lie in a block of `block` bytes, if it fits in: start and end.
    fn fit(self, block: usize, layout: Layout) -> Option<(usize, u32)> {
        let start = (self.end as usize).next_multiple_of(layout.align());
        let end = start.checked_add(layout.size()).filter(|&end| end <= block)?;
        Some((start, u32::try_from(end).ok()?))
    }
}

impl<const BLOCK: usize, const COUNT: usize> Zone<BLOCK, COUNT> {
    pub(super) const fn new() -> Self {
        const { assert!(BLOCK.is_multiple_of(ALIGN_MAX) && BLOCK <= u32::MAX as usize) };
        Self {
            memory: UnsafeCell::new([[0; BLOCK]; COUNT]),
            blocks: [const { AtomicU64::new(0) }; COUNT],
        }
    }

    pub(super) fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > ALIGN_MAX {
            return null_mut();
        }
        for (n, block) in self.blocks.iter().enumerate() {
            // Acquire: what the last owner did with this memory comes before what the next one does.
            let before = block.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
                let (_, end) = Use::of(word).fit(BLOCK, layout)?;
                Some(Use { end, live: Use::of(word).live + 1 }.word())
            });
            if let Some((start, _)) = before.ok().and_then(|w| Use::of(w).fit(BLOCK, layout)) {
                // SAFETY: start and size fit into block n, so all of it lies in `memory`.
                return unsafe { self.memory.get().cast::<u8>().add(n * BLOCK + start) };
            }
        }
        null_mut()
    }

    /// # Safety
    /// As for [`Region::dealloc`].
    pub(super) unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let at = memory.addr().wrapping_sub(self.memory.get().addr());
        let Some(block) = self.blocks.get(at / BLOCK) else { return };
        let (start, end) = (at % BLOCK, at % BLOCK + layout.size());
        // Release: see `alloc`. It always succeeds.
        let _ = block.fetch_update(Ordering::Release, Ordering::Relaxed, |word| {
            let Use { end: used, live } = Use::of(word);
            let used = match live {
                0 | 1 => 0,
                // The last one: every other ends where it begins, or before.
                _ if used as usize == end => u32::try_from(start).unwrap_or(used),
                _ => used,
            };
            Some(Use { end: used, live: live.saturating_sub(1) }.word())
        });
    }

    fn is_free(&self, quarters: usize) -> bool {
        let free = self.blocks.iter().filter(|block| block.load(Ordering::Relaxed) == 0).count();
        free * 4 >= COUNT * quarters
    }
}

#[cfg(test)]
mod tests;
