//! The slots of a region: their memory, and the pool of free ones.
//!
//! In: a mapping and a pool, which is a lock-free stack here or a driver's ([`SlotPool`]). Out: free
//! slots, by number. Frames and region handles share one `Slots`. Nothing fails.
#![allow(unsafe_code)]

use crate::free_stack::FreeStack;
use crate::mapping::Mapping;
use std::ptr::NonNull;

/// Bytes per slot, headroom included. 2 KB holds a 1,500-byte MTU with every header.
pub const SLOT_BYTES: usize = 2048;
/// Bytes before the frame in a fresh slot: DPDK's default, and a whole number of cache lines,
/// so that a 72-byte request lies in one 128-byte PCIe line.
pub const HEADROOM_BYTES: usize = 128;
/// Longest frame that fits a slot.
pub const FRAME_MAX_BYTES: usize = SLOT_BYTES - HEADROOM_BYTES;

/// Where free slots wait. Called from any thread, never blocks.
///
/// # Safety
/// - The pool names each slot of its region once: [`Self::take`] gives a slot that is free, and
///   does not give it out again until it was given back.
/// - [`Self::is_whole`] says true only if dropping the pool and unmapping the memory is safe.
/// - Once dropped, it and its driver touch the memory no more.
pub unsafe trait SlotPool: Send + Sync {
    /// Takes a free slot, if there is one.
    fn take(&self) -> Option<u32>;
    /// Returns a slot to the pool.
    ///
    /// # Safety
    /// The slot was taken from this pool, or handed out by its driver; it is the caller's, who
    /// gives up every use of its bytes.
    unsafe fn give(&self, slot: u32);
    /// Free slots at this moment.
    fn available(&self) -> usize;
    /// Whether every slot is free and no thread is still within [`Self::give`]: one that has
    /// counted its slot but not released the pool is not done. Called once, when no thread can take
    /// slots any more.
    fn is_whole(&self) -> bool;
}

pub(crate) enum FreeSlots {
    Stack(FreeStack),
    Driver(Box<dyn SlotPool>),
}

/// What frames point to.
pub(crate) struct Slots {
    // Before `memory`: a driver's pool releases the memory before it is unmapped.
    free: FreeSlots,
    memory: Mapping,
    count: u32,
}

impl Slots {
    pub(crate) fn new(free: FreeSlots, memory: Mapping, count: u32) -> Self {
        Self { free, memory, count }
    }

    /// Slots in all.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Where the slots lie.
    pub(crate) fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// First byte of the slot.
    ///
    /// # Safety
    /// `slot` is below the count of slots.
    pub(crate) unsafe fn data(&self, slot: u32) -> NonNull<u8> {
        debug_assert!(slot < self.count, "slot number out of the region");
        // SAFETY: slot < count, and the mapping holds count * SLOT_BYTES bytes.
        unsafe { self.memory.base().add(slot as usize * SLOT_BYTES) }
    }

    /// Returns a slot to the pool.
    ///
    /// # Safety
    /// The slot is out of its pool and the caller's, who gives up every use of its bytes.
    pub(crate) unsafe fn give(&self, slot: u32) {
        match &self.free {
            FreeSlots::Stack(stack) => stack.give(slot),
            // SAFETY: the caller's promise is the one required.
            FreeSlots::Driver(d) => unsafe { d.give(slot) },
        }
    }

    /// As [`SlotPool::is_whole`]. Only for the last handle: the slots do not come back out.
    pub(crate) fn is_whole(&self) -> bool {
        match &self.free {
            // A thread that gives a slot back is done with the stack when the slot can be taken.
            FreeSlots::Stack(stack) => (0..self.count).all(|_| stack.take().is_some()),
            FreeSlots::Driver(d) => d.is_whole(),
        }
    }

    pub(crate) fn take(&self) -> Option<u32> {
        match &self.free {
            FreeSlots::Stack(stack) => stack.take(),
            FreeSlots::Driver(d) => d.take(),
        }
    }

    pub(crate) fn available(&self) -> usize {
        match &self.free {
            FreeSlots::Stack(stack) => stack.len(),
            FreeSlots::Driver(d) => d.available(),
        }
    }
}
