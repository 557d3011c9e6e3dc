//! Buffers whose memory can be given back while they are empty, and is there again when they are
//! written to.
//!
//! In: how many, and how long. Out: slices for good, each with a handle on the pages behind it. Who has
//! thousands of buffers of which few are in use at a time pays for those few. Fails when not even the addresses can be had; a
//! page that the system cannot give later ends the process, as it does for any memory that was
//! promised and not touched.
#![allow(unsafe_code)]

use crate::mapping::{Mapping, Pages};
#[cfg(any(test, feature = "testing"))]
use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// What the kernel gives and takes at a time, at least.
const PAGE_BYTES: usize = 4096;

/// The pages behind one buffer.
#[derive(Debug)]
pub struct Backing {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length; the memory is unmapped by `unmap_all` alone.
unsafe impl Send for Backing {}

/// `count` buffers of `bytes` each, rounded up to whole pages: zeroed, and none of them backed yet.
/// They are there until the process ends.
///
/// # Errors
/// The OS error.
pub fn buffers(
    count: usize,
    bytes: usize,
) -> io::Result<impl Iterator<Item = (&'static mut [u8], Backing)>> {
    let len = bytes.max(1).next_multiple_of(PAGE_BYTES);
    let all = count.checked_mul(len).ok_or(io::ErrorKind::OutOfMemory)?;
    // For good, whatever becomes of its maker.
    let mapping = ManuallyDrop::new(Mapping::new(all.max(1), Pages::Small, &[])?);
    let (base, whole) = (mapping.base(), mapping.len());
    #[cfg(any(test, feature = "testing"))]
    MADE.with_borrow_mut(|made| made.push(mapping));
    // SAFETY: mapped for so many bytes, zeroed, and known to no other code.
    let bytes = unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), whole) };
    let parts = bytes.chunks_exact_mut(len).take(count);
    Ok(parts.map(move |part| {
        let at = NonNull::from(&mut *part).cast();
        (part, Backing { at, len })
    }))
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    /// What this thread has mapped.
    static MADE: RefCell<Vec<ManuallyDrop<Mapping>>> = const { RefCell::new(Vec::new()) };
}

/// Unmaps all buffers that this thread has made: for fuzz targets, which make more of them than a process can have.
///
/// # Safety
/// None of them is used any more, nor any [`Backing`].
#[cfg(any(test, feature = "testing"))]
pub unsafe fn unmap_all() {
    MADE.take().into_iter().map(ManuallyDrop::into_inner).for_each(drop);
}

impl Backing {
    /// Gives the pages back. The buffer's bytes are zeros then, or what they were.
    ///
    /// # Safety
    /// No thread reads the buffer meanwhile, and later readers read no byte that was not written since.
    pub unsafe fn give_back(&self) {
        // SAFETY: whole pages of a private anonymous mapping that is still there; that their bytes
        // change is the caller's promise to bear.
        unsafe { libc::madvise(self.at.as_ptr().cast(), self.len, libc::MADV_DONTNEED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_there_again() {
        let mut all: Vec<_> = buffers(3, 10_000).unwrap().collect();
        assert!(
            all.iter().all(|(bytes, _)| bytes.len() == 12_288 && bytes.iter().all(|b| *b == 0))
        );
        for (bytes, _) in &mut all {
            bytes.fill(7);
        }
        // SAFETY: the bytes are written before they are read again, but for those that are looked at
        // to see that they are gone.
        unsafe { all[1].1.give_back() };
        assert!(std::hint::black_box(&all)[1].0.iter().all(|b| *b == 0));
        all[1].0.fill(8);
        for (n, want) in [7, 8, 7].into_iter().enumerate() {
            assert!(all[n].0.iter().all(|b| *b == want));
        }
        assert_eq!(buffers(0, 1).unwrap().count(), 0);
    }
}
