//! Memory that runs out: an error of one connection, not the end of the process.
//!
//! Libraries allocate without a way to fail: Rust ends the process when they get nothing. So some
//! address space is set aside at the start. The first allocation that fails gives it back and tries
//! again, and from then on the process [is short](is_short): nothing is accepted, no buffer of a
//! connection grows. [`recover`] sets it aside again as soon as it can be had.
//!
//! The process ends only if more than [`RESERVE_BYTES`] are allocated between the first failure and
//! the moment when connections have noticed it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What is set aside. Nothing of it is touched: it takes address space, not memory.
const RESERVE_BYTES: usize = 8 << 20;
const PAGE_BYTES: usize = 4096;
const RESERVE: Layout = match Layout::from_size_align(RESERVE_BYTES, PAGE_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two, and far from the end of the address space"),
};

static SET_ASIDE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static SHORT: AtomicBool = AtomicBool::new(false);

/// Whether memory has run out, and what was set aside is in use.
#[inline]
pub fn is_short() -> bool {
    SHORT.load(Ordering::Relaxed)
}

/// Sets memory aside, if there is none and enough is free: at the start, and again and again while
/// the process is short. Says whether it is short no more.
pub fn recover() -> bool {
    if SET_ASIDE.load(Ordering::Acquire).is_null() {
        // SAFETY: the layout's size is not 0.
        let (reserve, spare) = (unsafe { System.alloc(RESERVE) }, unsafe { System.alloc(RESERVE) });
        if !spare.is_null() {
            // SAFETY: allocated above, with this layout.
            unsafe { System.dealloc(spare, RESERVE) };
        }
        if reserve.is_null() {
            return false;
        }
        let kept = !spare.is_null()
            && SET_ASIDE
                .compare_exchange(null_mut(), reserve, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
        if !kept {
            // SAFETY: allocated above, with this layout, and nobody else has seen it.
            unsafe { System.dealloc(reserve, RESERVE) };
            if spare.is_null() {
                return false;
            }
        }
    }
    SHORT.store(false, Ordering::Relaxed);
    true
}

/// Gives back what was set aside, after so many bytes could not be had. Says whether that may help:
/// large buffers are taken where they can be refused, and must not use it up.
#[cold]
fn release(bytes: usize) -> bool {
    if bytes > RESERVE_BYTES / 8 {
        return false;
    }
    SHORT.store(true, Ordering::Relaxed);
    let reserve = SET_ASIDE.swap(null_mut(), Ordering::AcqRel);
    if !reserve.is_null() {
        // SAFETY: `recover` allocated it with this layout, and the swap gave it to us alone.
        unsafe { System.dealloc(reserve, RESERVE) };
    }
    true
}

/// The system's allocator, and what is set aside behind it.
#[derive(Debug)]
pub struct Guarded;

// SAFETY: every call is one of the system's allocator with the same arguments, made again when it
// failed: an allocation that failed has changed nothing.
unsafe impl GlobalAlloc for Guarded {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() && release(layout.size()) {
            // SAFETY: as above. What another thread has released serves this one, too.
            return unsafe { System.alloc(layout) };
        }
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if memory.is_null() && release(layout.size()) {
            // SAFETY: as for `alloc`.
            return unsafe { System.alloc_zeroed(layout) };
        }
        memory
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let memory = unsafe { System.realloc(old, layout, bytes) };
        if memory.is_null() && release(bytes) {
            // SAFETY: as for `alloc`; the failed call left `old` as it was.
            return unsafe { System.realloc(old, layout, bytes) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`.
        unsafe { System.dealloc(memory, layout) };
    }
}
