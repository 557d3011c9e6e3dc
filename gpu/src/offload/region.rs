//! The shared region, mapped to a device for as long as a kernel may look there.
#![allow(unsafe_code)]

use crate::card::{Card, CardError};
use crate::memory::PacketMemory;
use crate::params::PacketRegion;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// A mapping of the region. Undone on drop, and the region release; neither if a kernel may
/// still run.
pub(super) struct MappedRegion {
    card: Arc<dyn Card>,
    start: NonNull<u8>,
    region: PacketRegion,
    keep: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: an address that is used only to undo the mapping, once, by the owner.
unsafe impl Send for MappedRegion {}
// SAFETY: shared, it gives out plain numbers only.
unsafe impl Sync for MappedRegion {}

impl std::fmt::Debug for MappedRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedRegion").field("region", &self.region).finish_non_exhaustive()
    }
}

impl MappedRegion {
    /// Maps the region; `keep` holds its memory.
    pub(super) fn new(
        card: &Arc<dyn Card>,
        packets: PacketMemory,
        keep: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, CardError> {
        let (start, slot_bytes, slots) = (packets.base(), packets.slot_bytes(), packets.slots());
        let bytes = slot_bytes.saturating_mul(slots);
        // SAFETY: mapped memory (`PacketMemory::new`), which `keep` holds until the unmap below.
        let base = unsafe { card.map(start, bytes) }?;
        let clip = |n: usize| u32::try_from(n).unwrap_or(0);
        let region = PacketRegion { base, slot_bytes: clip(slot_bytes), slots: clip(slots) };
        Ok(Self { card: Arc::clone(card), start, region, keep: Some(keep) })
    }

    /// As kernels see it.
    pub(super) fn region(&self) -> PacketRegion {
        self.region
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and used by nothing but kernels; those of engines have ended, or
        // there is a fault, and the grid is stopped before this call (`Custody`).
        if !unsafe { self.card.unmap(self.start) } {
            std::mem::forget(self.keep.take());
        }
    }
}
