//! Host memory that a device may reach, and columns of plain values in it.
//!
//! Taken at start-up, page by page, zeroed; mapped to the device when one is named. A [`Column`] is
//! a vector of fixed capacity over a piece of it. Given back on drop, unless a kernel that cannot be
//! stopped may still use it.
#![allow(unsafe_code)]

use crate::card::{Card, CardError};
use crate::layout::{Entry, ReplyHead, ReqDesc, WholeReply};
use crate::params::{DevAddr, Op, UpdateCounts};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Mappings go page by page.
const PAGE_BYTES: usize = 4096;

/// Zeroed host memory, page-aligned, of whole pages.
#[derive(Debug)]
pub struct HostMemory {
    start: NonNull<u8>,
    layout: Layout,
    mapped: Option<(Arc<dyn Card>, DevAddr)>,
}

// SAFETY: an owned allocation; who may touch which bytes is the users' matter, as below.
unsafe impl Send for HostMemory {}
// SAFETY: shared, it gives out addresses only.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// At least `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, PAGE_BYTES).ok());
        let Some(layout) = layout else { handle_alloc_error(Layout::new::<u8>()) };
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let Some(start) = start else { handle_alloc_error(layout) };
        Self { start, layout, mapped: None }
    }

    /// At least `bytes` bytes, mapped to `card`.
    ///
    /// # Errors
    /// As [`Card::map`].
    pub fn mapped(card: &Arc<dyn Card>, bytes: usize) -> Result<Self, CardError> {
        let mut memory = Self::new(bytes);
        // SAFETY: mapped to us until drop, which unmaps it from the device first.
        let at = unsafe { card.map(memory.start, memory.layout.size()) }?;
        memory.mapped = Some((Arc::clone(card), at));
        Ok(memory)
    }

    /// Its first byte. A caller that writes through it makes sure that no other thread does.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Its first byte as the device sees it; 0 when it is not mapped.
    pub fn at(&self) -> DevAddr {
        self.mapped.as_ref().map_or(DevAddr(0), |(_, at)| *at)
    }

    /// Whether `card` sees it.
    pub fn is_mapped_to(&self, card: &Arc<dyn Card>) -> bool {
        self.mapped.as_ref().is_some_and(|(mine, _)| Arc::ptr_eq(mine, card))
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Some((card, _)) = &self.mapped
            // SAFETY: mapped in `mapped`, once. A caller that launches kernels over it keeps it until
            // they have ended (`Stream::launch`'s contract).
            && !unsafe { card.unmap(self.start) }
        {
            return;
        }
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Types whose values are plain bytes.
///
/// # Safety
/// Every bit pattern is a value, there is no padding, and nothing is dropped.
pub unsafe trait Plain: Copy {}

// SAFETY: integers and newtypes of them, without gaps (`layout` asserts the sizes).
unsafe impl Plain for Entry {}
// SAFETY: as above.
unsafe impl Plain for ReqDesc {}
// SAFETY: as above.
unsafe impl Plain for ReplyHead {}
// SAFETY: as above.
unsafe impl Plain for WholeReply {}
// SAFETY: as above.
unsafe impl Plain for Op {}
// SAFETY: as above.
unsafe impl Plain for UpdateCounts {}
// SAFETY: an integer.
unsafe impl Plain for u8 {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}

/// A vector that never grows, in host memory that a device may reach.
#[derive(Debug)]
pub struct Column<T: Plain> {
    memory: HostMemory,
    len: usize,
    capacity: usize,
    of: PhantomData<T>,
}

impl<T: Plain> Column<T> {
    /// Room for `capacity` values, which no device sees.
    pub fn new(capacity: usize) -> Self {
        Self::over(HostMemory::new(Self::bytes_of(capacity)), capacity)
    }

    /// Room for `capacity` values, mapped to `card`.
    ///
    /// # Errors
    /// As [`Card::map`].
    pub fn mapped(card: &Arc<dyn Card>, capacity: usize) -> Result<Self, CardError> {
        Ok(Self::over(HostMemory::mapped(card, Self::bytes_of(capacity))?, capacity))
    }

    /// What `capacity` values take; more than there is of anything when that is no number.
    fn bytes_of(capacity: usize) -> usize {
        capacity.saturating_mul(size_of::<T>())
    }

    /// The memory has [`Self::bytes_of`] that capacity.
    fn over(memory: HostMemory, capacity: usize) -> Self {
        const { assert!(align_of::<T>() <= PAGE_BYTES) };
        Self { memory, len: 0, capacity, of: PhantomData }
    }

    /// The first value's address as the device sees it; 0 when it is not mapped.
    pub fn at(&self) -> DevAddr {
        self.memory.at()
    }

    /// Whether `card` sees it.
    pub fn is_mapped_to(&self, card: &Arc<dyn Card>) -> bool {
        self.memory.is_mapped_to(card)
    }

    /// Most values.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Adds a value.
    ///
    /// # Errors
    /// The value, when the column is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.len >= self.capacity {
            return Err(value);
        }
        // SAFETY: `len < capacity`, and the memory holds that many values, aligned (`over`).
        let place = unsafe { self.memory.start.cast::<T>().add(self.len) };
        // SAFETY: as above; no other thread has the column.
        unsafe { place.write(value) };
        self.len += 1;
        Ok(())
    }

    /// Forgets the values.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Takes the first `len` values to be there, whatever their bytes are: what a device wrote, or
    /// what stood there before.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity);
    }
}

impl<T: Plain> Deref for Column<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values lie there, initialised (zeroed at first) and of a type that takes
        // every bit pattern. A device is given the address by a launch, whose caller promises that
        // what a kernel writes to is left to it until it has ended (`Stream::launch`).
        unsafe { std::slice::from_raw_parts(self.memory.start.cast().as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Column<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start.cast().as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_holds_what_it_was_given_and_no_more() {
        let mut column = Column::<u32>::new(3);
        for n in 1..=3 {
            assert_eq!(column.push(n), Ok(()));
        }
        assert_eq!(column.push(4), Err(4));
        assert_eq!(*column, [1, 2, 3]);
        column.clear();
        assert!(column.is_empty());
        column.set_len(9);
        assert_eq!(*column, [1, 2, 3]);
    }

    #[test]
    fn memory_starts_as_zeros() {
        let mut column = Column::<ReqDesc>::new(512);
        column.set_len(512);
        assert!(column.iter().all(|d| *d == ReqDesc::default()));
    }
}
