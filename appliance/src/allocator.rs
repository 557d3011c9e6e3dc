//! Memory that runs out: an error of one connection, not the end of the process.
//!
//! Libraries allocate without a way to fail: Rust ends the process when they get nothing. So some
//! address space is set aside at the start. The first allocation that fails gives it back and tries
//! again, and from then on the process [is short](is_short): nothing is accepted, no buffer of a
//! connection grows. [`recover`] sets it aside again as soon as it can be had.
//!
//! This makes such an end rare, not impossible: what is given back is for all threads, and a heap that
//! the system's allocator does not let a thread use is of no help to it.
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

/// Most tries of one allocation, with a yield between two: some milliseconds.
const TRIES: usize = 2000;

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
        let reserve = unsafe { System.alloc(RESERVE) };
        if reserve.is_null() {
            return false;
        }
        let before = SET_ASIDE.swap(reserve, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: allocated here before, with this layout, and the swap gave it to us alone.
            unsafe { System.dealloc(before, RESERVE) };
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

/// Tries again after a failure, with what was set aside. More than once: another thread may be about
/// to give that back, or to set it aside anew.
#[cold]
fn again(bytes: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    for _ in 0..TRIES {
        if !release(bytes) {
            break;
        }
        let memory = allocate();
        if !memory.is_null() {
            return memory;
        }
        std::thread::yield_now();
    }
    null_mut()
}

// SAFETY: every call is one of the system's allocator with the same arguments, made again when it
// failed: an allocation that failed has changed nothing.
unsafe impl GlobalAlloc for Guarded {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        let allocate = || unsafe { System.alloc(layout) };
        let memory = allocate();
        if memory.is_null() { again(layout.size(), allocate) } else { memory }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let allocate = || unsafe { System.alloc_zeroed(layout) };
        let memory = allocate();
        if memory.is_null() { again(layout.size(), allocate) } else { memory }
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as for `alloc`; a call that failed has left `old` as it was.
        let allocate = || unsafe { System.realloc(old, layout, bytes) };
        let memory = allocate();
        if memory.is_null() { again(bytes, allocate) } else { memory }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`.
        unsafe { System.dealloc(memory, layout) };
    }
}
