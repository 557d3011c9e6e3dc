//! Where the packets of a batch lie: the shared region, as an address.
#![allow(unsafe_code)]

use crate::layout::Entry;
use std::ptr::NonNull;

/// The shared region as engines see it. A plain description: it keeps nothing alive.
#[derive(Debug, Clone, Copy)]
pub struct PacketMemory {
    base: NonNull<u8>,
    slot_bytes: usize,
    slots: usize,
}

// SAFETY: an address and two sizes; every access goes through the unsafe `frame` below.
unsafe impl Send for PacketMemory {}
// SAFETY: as above.
unsafe impl Sync for PacketMemory {}

impl PacketMemory {
    /// Describes `slots` slots of `slot_bytes` bytes from `base` on.
    ///
    /// # Safety
    /// The memory is mapped and initialised, and stays so until the last engine that got this
    /// description is gone.
    pub unsafe fn new(base: NonNull<u8>, slot_bytes: usize, slots: usize) -> Self {
        Self { base, slot_bytes, slots }
    }

    /// The region's first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes from one slot to the next.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The bytes of the entry's frame; `None` when the entry names bytes outside its slot.
    ///
    /// # Safety
    /// The slot is in a batch that the caller holds, and no thread writes to it for as long as the
    /// bytes are borrowed.
    pub unsafe fn frame(&self, entry: &Entry) -> Option<&[u8]> {
        let (slot, off, len) = (entry.slot as usize, entry.off as usize, entry.len as usize);
        if slot >= self.slots || off + len > self.slot_bytes {
            return None;
        }
        // SAFETY: in range of the memory promised to `new`.
        let start = unsafe { self.base.add(slot * self.slot_bytes + off) };
        // SAFETY: off + len lies in the slot, the memory is mapped and initialised (`new`), and
        // no thread writes to it meanwhile (the caller's promise).
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
    }
}
