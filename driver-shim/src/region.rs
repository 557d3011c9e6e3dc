//! The shared region: one stretch of memory, cut in 2 KB slots, in which every frame lives
//! from the moment the driver fills it until the reply has left.
//!
//! ```text
//!  base                                        slot n = base + n * 2048
//!  | slot 0 | slot 1 | slot 2 | ...            | headroom 128 | frame ... 1920 bytes |
//! ```
//!
//! A slot number means the same slot to the CPU, the NIC and the GPU. Free slots wait in their
//! pool: a lock-free stack here, or the mempool of DPDK, which must own them because the
//! driver takes buffers from it by itself. The holder of a [`Frame`] owns its slot.
#![allow(unsafe_code)]

use crate::frame::Frame;
use crate::free_stack::FreeStack;
use crate::mapping::{Mapping, MemoryKind, Pages};
use crate::slots::{FreeSlots, HEADROOM_BYTES, SLOT_BYTES, SlotPool, Slots};
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Why a region could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// No memory for the slots.
    #[error(
        "cannot map {slots} packet slots of {SLOT_BYTES} bytes: {source}; \
         ask for fewer slots, or free memory or huge pages"
    )]
    Map {
        /// Slots requested.
        slots: u32,
        /// The OS error.
        source: io::Error,
    },
    /// A region of no slots.
    #[error("a region needs at least one packet slot")]
    Empty,
}

/// Owns the slots' memory. When the last handle goes while frames are still out, the memory is
/// leaked rather than unmapped: a frame's bytes stay valid for as long as the frame lives.
struct Owner(NonNull<Slots>);

// SAFETY: `Slots` is only reached through `&`, and all it holds is Sync: the mapping, the count,
// a concurrent stack, or a `SlotPool` (Sync by its bound).
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the pointer came from Box::leak in `Region::with_free` and is freed only here.
        let whole = unsafe { self.0.as_ref() }.is_whole();
        if whole {
            // SAFETY:
            // - the pointer came from Box::leak and this is the only owner;
            // - every slot is back in the pool and no thread is still returning one, so no Frame points here, and
            //   none can be made: that needs a Region, and this was the last.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// A handle on the shared region. Cheap to clone; all clones are the same region.
#[derive(Clone)]
pub struct Region(Arc<Owner>);

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("slots", &self.capacity())
            .field("available", &self.available())
            .field("kind", &self.kind())
            .finish()
    }
}

impl Region {
    /// Maps a region of `slots` slots whose free ones wait in a stack of its own.
    ///
    /// # Errors
    /// [`RegionError`]: no slots requested, or no memory.
    pub fn new(slots: u32, pages: Pages) -> Result<Self, RegionError> {
        Self::with_free(slots, pages, None, |_, slots| Ok(FreeSlots::Stack(FreeStack::new(slots))))
    }

    /// Maps a region, in memory of the NUMA node if one is named, and lets `make` build the pool of its slots
    /// over the raw memory, as a driver with a buffer pool of its own needs. `make` gets the mapping and the slot count.
    ///
    /// # Errors
    /// [`RegionError`], as `E`, or what `make` says.
    pub fn with_driver<E: From<RegionError>>(
        slots: u32,
        pages: Pages,
        node: Option<u32>,
        make: impl FnOnce(&Mapping, u32) -> Result<Box<dyn SlotPool>, E>,
    ) -> Result<Self, E> {
        Self::with_free(slots, pages, node, |m, n| make(m, n).map(FreeSlots::Driver))
    }

    fn with_free<E: From<RegionError>>(
        slots: u32,
        pages: Pages,
        node: Option<u32>,
        make: impl FnOnce(&Mapping, u32) -> Result<FreeSlots, E>,
    ) -> Result<Self, E> {
        if slots == 0 {
            return Err(RegionError::Empty.into());
        }
        let memory = Mapping::for_devices(slots as usize * SLOT_BYTES, pages, node.as_slice())
            .map_err(|source| RegionError::Map { slots, source })?;
        let free = make(&memory, slots)?;
        let slots = Box::new(Slots::new(free, memory, slots));
        Ok(Self(Arc::new(Owner(NonNull::from(Box::leak(slots))))))
    }

    fn slots(&self) -> &Slots {
        // SAFETY: the box lives until the last Owner drops, and `self` holds one.
        unsafe { self.0.0.as_ref() }
    }

    /// Takes a free slot as an empty frame behind the standard headroom, or `None` when every
    /// slot is out. Never blocks.
    pub fn alloc(&self) -> Option<Frame> {
        let slot = self.slots().take()?;
        // SAFETY: the slot was free and is now ours alone.
        Some(unsafe { self.frame(slot, HEADROOM_BYTES, 0) })
    }

    /// Makes the frame that owns `slot`, its bytes being `off..off + len` of the slot.
    ///
    /// # Panics
    /// When the slot or the range lies outside the region: a driver gave a wrong number, and
    /// going on would hand out memory that is not the packet's.
    ///
    /// # Safety
    /// The slot must be out of its pool and owned by the caller, with no other frame on it:
    /// two frames on one slot would alias.
    pub unsafe fn frame(&self, slot: u32, off: usize, len: usize) -> Frame {
        assert!(
            slot < self.slots().count() && off <= SLOT_BYTES && len <= SLOT_BYTES - off,
            "driver named bytes outside the region"
        );
        // SAFETY: in range (checked above), and sole ownership is the caller's promise.
        unsafe { Frame::new(self.0.0, slot, off, len) }
    }

    /// Whether the frame's slot is one of this region's. A slot number says nothing in another.
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.is_of(self.0.0)
    }

    /// First byte of slot 0.
    pub fn base(&self) -> NonNull<u8> {
        self.slots().memory().base()
    }

    /// Bytes mapped.
    pub fn len_bytes(&self) -> usize {
        self.slots().memory().len()
    }

    /// Slots in all.
    pub fn capacity(&self) -> usize {
        self.slots().count() as usize
    }

    /// Free slots. Equals [`Self::capacity`] when no frame is out anywhere.
    pub fn available(&self) -> usize {
        self.slots().available()
    }

    /// The kind of memory obtained.
    pub fn kind(&self) -> MemoryKind {
        self.slots().memory().kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_and_returned() {
        let r = Region::new(4, Pages::Small).unwrap();
        let mut out: Vec<Frame> = (0..4).map(|_| r.alloc().unwrap()).collect();
        assert!(r.alloc().is_none());
        assert_eq!(r.available(), 0);
        let mut names: Vec<u32> = out.iter().map(Frame::slot).collect();
        names.sort_unstable();
        assert_eq!(names, [0, 1, 2, 3]);
        out.pop();
        assert_eq!(r.available(), 1);
        drop(out);
        assert_eq!(r.available(), r.capacity());
    }

    #[test]
    fn a_frame_outlives_its_region() {
        let r = Region::new(2, Pages::Small).unwrap();
        let mut f = r.alloc().unwrap();
        drop(r);
        f.set_len(3).unwrap();
        f.bytes_mut().copy_from_slice(b"abc");
        assert_eq!(f.bytes(), b"abc");
    }

    /// The last frame and the last handle go at the same time, on two threads: the later one
    /// must find what it needs.
    #[test]
    fn the_last_frame_and_the_last_handle_may_go_together() {
        for _ in 0..200 {
            let r = Region::new(2, Pages::Small).unwrap();
            let f = r.alloc().unwrap();
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|s| {
                s.spawn(|| {
                    start.wait();
                    drop(f);
                });
                start.wait();
                drop(r);
            });
        }
    }

    #[test]
    fn no_slots_is_an_error() {
        assert!(matches!(Region::new(0, Pages::Small), Err(RegionError::Empty)));
    }
}
