//! A frame: the owner of one slot, and the bytes in it.
//!
//! Not `Clone`. Dropping a frame returns its slot to the pool; transmitting takes it by value. So a slot
//! cannot be sent twice, freed twice or forgotten by accident.
#![allow(unsafe_code)]

use crate::slots::{SLOT_BYTES, Slots};
use arrayvec::ArrayVec;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Most frames that one burst carries. 64 hides the cost of a driver call and keeps a burst's
/// headers in the first-level cache.
pub const BURST_MAX: usize = 64;

/// Frames that travel together, oldest first, without allocation.
pub type Burst = ArrayVec<Frame, BURST_MAX>;

/// Moves the frames of a burst behind others, in one copy: `Vec::extend` moves each by itself.
#[inline]
pub fn append_burst(frames: &mut Vec<Frame>, burst: &mut Burst) {
    let n = burst.len();
    frames.reserve(n);
    let behind = frames.as_mut_ptr().wrapping_add(frames.len());
    // SAFETY: fewer than there are. From here on the frames have no owner, until `frames` has them.
    unsafe { burst.set_len(0) };
    // SAFETY: `reserve` made room for `n` behind the last; two containers do not overlap.
    unsafe { burst.as_ptr().copy_to_nonoverlapping(behind, n) };
    // SAFETY: they were copied there, and their old places are no longer in use.
    unsafe { frames.set_len(frames.len() + n) };
}

/// Takes the last frames from the one numbered `from` on, of which a burst holds as many as it can, in one copy.
#[inline]
pub fn take_last_burst(frames: &mut Vec<Frame>, from: usize) -> Burst {
    let left = from.max(frames.len().saturating_sub(BURST_MAX)).min(frames.len());
    let n = frames.len() - left;
    let last = frames.as_ptr().wrapping_add(left);
    let mut burst = Burst::new();
    // SAFETY: fewer than there are. From here on the frames have no owner, until the burst has them.
    unsafe { frames.set_len(left) };
    // SAFETY: `n` is at most BURST_MAX, for which a burst has room; two containers do not overlap.
    unsafe { last.copy_to_nonoverlapping(burst.as_mut_ptr(), n) };
    // SAFETY: they were copied there, and their old places are no longer in use.
    unsafe { burst.set_len(n) };
    burst
}

/// Yes or no, in a byte that may hold anything. A `bool` may not, and the compiler would use what it
/// may not hold to say that there is no frame: then a frame, which is moved at every step of its
/// way, would be moved field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flag(u8);

impl Flag {
    /// Whether it is yes.
    #[inline]
    pub fn is_set(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Flag {
    #[inline]
    fn from(yes: bool) -> Self {
        Self(yes.into())
    }
}

/// What the receiving driver reports of a frame's checksums. Anything but `Good` is checked again
/// in software: a driver that says nothing has not said that they are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxChecksum {
    /// The IPv4 header checksum was verified and is right.
    pub ip_good: Flag,
    /// The UDP checksum was verified and is right.
    pub udp_good: Flag,
}

/// What the sending driver is asked to fill in. All zero: the frame goes as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxOffload {
    /// Fill in the IPv4 header checksum (the field holds 0).
    pub ip: Flag,
    /// Fill in the UDP checksum (the field holds the pseudo-header's sum).
    pub udp: Flag,
    /// The network header is IPv6.
    pub ipv6: Flag,
    /// Bytes before the network header.
    pub l2_len: u8,
    /// Bytes of the network header.
    pub l3_len: u8,
}

/// The frame does not fit its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the frame does not fit its slot")]
pub struct NoRoom;

/// Owner of one slot of the shared region.
pub struct Frame {
    slots: NonNull<Slots>,
    slot: u32,
    off: u16,
    len: u16,
    /// Set by the driver on receive.
    pub rx: RxChecksum,
    /// Set by stage 7 before transmission.
    pub tx: TxOffload,
    /// The capture that selected the frame; 0: none.
    pub watched: u8,
    /// When stage 2 saw the frame, in nanoseconds of the worker's clock; 0 before that.
    pub stamp_ns: u64,
}

/// A frame that a reply is written into: its window and what the driver gets of it.
#[derive(Debug)]
pub struct Open<'f, const N: usize> {
    /// The frame's first `N` bytes.
    pub bytes: &'f mut [u8; N],
    /// What the driver is asked to fill in.
    pub tx: &'f mut TxOffload,
    len: &'f mut u16,
}

impl<const N: usize> Open<'_, N> {
    /// Sets the frame's length, if that is no more than the window's.
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) {
        // A window is no longer than a slot.
        if len <= N {
            *self.len = u16::try_from(len).unwrap_or(0);
        }
    }
}

// SAFETY: a frame is the only owner of its slot's bytes, and `Slots` is Sync.
unsafe impl Send for Frame {}

impl Frame {
    /// # Safety
    /// `slots` is live and stays so until every slot is returned; `slot` is in it, out of its pool,
    /// and the caller's alone; `off + len <= SLOT_BYTES`.
    pub(crate) unsafe fn new(slots: NonNull<Slots>, slot: u32, off: usize, len: usize) -> Self {
        debug_assert!(off + len <= SLOT_BYTES);
        #[expect(clippy::cast_possible_truncation, reason = "both are at most SLOT_BYTES")]
        let (off, len) = (off as u16, len as u16);
        Self {
            slots,
            slot,
            off,
            len,
            rx: RxChecksum::default(),
            tx: TxOffload::default(),
            watched: 0,
            stamp_ns: 0,
        }
    }

    pub(crate) fn is_of(&self, slots: NonNull<Slots>) -> bool {
        self.slots == slots
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: a frame's `slots` is live as long as the frame is (see `region::Owner`).
        let slots = unsafe { self.slots.as_ref() };
        // SAFETY: the slot is in the region (`new`'s contract).
        let data = unsafe { slots.data(self.slot) };
        // SAFETY: off <= SLOT_BYTES, within the slot or one past its end.
        unsafe { data.add(self.off as usize) }
    }

    /// The frame, from its first byte on the wire.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: off + len <= SLOT_BYTES, the slot is ours alone, and mapped memory is always
        // initialised (zeroed by the kernel).
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.len as usize) }
    }

    /// The frame, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.len as usize) }
    }

    /// `N` bytes from the frame's first on: those behind its end are whatever the slot holds there.
    /// `None`: so many do not lie in the slot.
    #[inline(always)]
    pub fn window<const N: usize>(&self) -> Option<&[u8; N]> {
        // SAFETY: off + N <= SLOT_BYTES (checked), the slot is ours alone, mapped memory is always
        // initialised, and bytes want no alignment.
        Self::has_window::<N>(self.off).then(|| unsafe { self.start().cast().as_ref() })
    }

    /// [`Self::window`], to be changed, with what a reply sets besides. `None` as there.
    #[inline(always)]
    pub fn open<const N: usize>(&mut self) -> Option<Open<'_, N>> {
        // SAFETY: as for `window`, and `&mut self` makes the borrow exclusive; the slot's bytes are apart from the frame's own fields.
        let bytes =
            Self::has_window::<N>(self.off).then(|| unsafe { self.start().cast().as_mut() });
        Some(Open { bytes: bytes?, len: &mut self.len, tx: &mut self.tx })
    }

    #[inline(always)]
    fn has_window<const N: usize>(off: u16) -> bool {
        const { assert!(N <= SLOT_BYTES) };
        usize::from(off) <= const { SLOT_BYTES - N }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True of a frame without bytes, as a fresh one is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the frame can grow to without moving its start.
    pub fn room(&self) -> usize {
        SLOT_BYTES - self.off as usize
    }

    /// Sets the length. Bytes beyond the old end hold whatever the slot held: write them before
    /// the frame leaves.
    ///
    /// # Errors
    /// [`NoRoom`] when `len` exceeds [`Self::room`]; the frame is unchanged.
    pub fn set_len(&mut self, len: usize) -> Result<(), NoRoom> {
        if len > self.room() {
            return Err(NoRoom);
        }
        self.len = u16::try_from(len).map_err(|_| NoRoom)?;
        Ok(())
    }

    /// Replaces the whole contents.
    ///
    /// # Errors
    /// [`NoRoom`] when `bytes` does not fit; the frame is unchanged.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        self.set_len(bytes.len())?;
        self.bytes_mut().copy_from_slice(bytes);
        Ok(())
    }

    /// Number of the slot in the region.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Where the frame begins in its slot.
    pub fn offset(&self) -> u16 {
        self.off
    }

    /// Gives the slot to a driver. The driver now owns it and returns it to the pool.
    pub fn into_slot(self) -> u32 {
        ManuallyDrop::new(self).slot
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: `slots` is live as long as a frame is out (see `region::Owner`), and this
        // frame is out until the call below.
        let slots = unsafe { self.slots.as_ref() };
        // SAFETY: the slot is out and this frame's alone, which is going away.
        unsafe { slots.give(self.slot) };
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("slot", &self.slot).field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pages, Region};

    #[test]
    fn bursts_are_moved_whole_and_each_frame_keeps_its_slot() {
        let region = Region::new(256, Pages::Small).unwrap();
        let mut frames = Vec::new();
        let mut slots = Vec::new();
        for n in [1, 0, BURST_MAX, 3] {
            let mut burst: Burst = (0..n).map(|_| region.alloc().unwrap()).collect();
            slots.extend(burst.iter().map(Frame::slot));
            append_burst(&mut frames, &mut burst);
            assert!(burst.is_empty());
        }
        let slots_of = |frames: &[Frame]| frames.iter().map(Frame::slot).collect::<Vec<_>>();
        assert_eq!(slots_of(&frames), slots);
        let last = take_last_burst(&mut frames, 2);
        assert_eq!(slots_of(&last), slots[4..]);
        let before = take_last_burst(&mut frames, 2);
        assert_eq!(slots_of(&before), slots[2..4]);
        assert!(take_last_burst(&mut frames, 2).is_empty());
        assert!(take_last_burst(&mut frames, 9).is_empty());
        drop((last, before));
        assert_eq!(region.available(), region.capacity() - 2);
        drop(frames);
        assert_eq!(region.available(), region.capacity());
    }
}
