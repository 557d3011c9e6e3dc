//! Memory that runs out: an error of one connection, not the end of the process.
//!
//! Libraries allocate without a way to fail: Rust ends the process when they get nothing. So some
//! memory is set aside at the start. The first allocation that fails gives it back and tries
//! again, and from then on the process [is short](is_short): nothing is accepted, no buffer of a
//! connection grows. [`recover`] sets it aside again as soon as it can be had.
//!
//! The process ends only if more than [`RESERVE_BYTES`] are allocated between the first failure and
//! the moment when connections have noticed it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// What is set aside, in pieces that the system's allocator takes from memory that it has already: after
/// an attack it has much, and gives none of it back to the kernel.
const PIECE_BYTES: usize = 64 << 10;
const PIECES: usize = RESERVE_BYTES / PIECE_BYTES;
const RESERVE_BYTES: usize = 8 << 20;
const PIECE: Layout = match Layout::from_size_align(PIECE_BYTES, align_of::<*mut u8>()) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two, and far from the end of the address space"),
};

/// Most tries of one allocation, with a yield between two: some milliseconds.
const TRIES: usize = 2000;

static RESERVE: Reserve = Reserve::new();

/// Memory set aside, and whether it was needed.
struct Reserve {
    /// The first piece; each holds the address of the next.
    aside: AtomicPtr<u8>,
    /// How many there are, or a few less.
    pieces: AtomicUsize,
    short: AtomicBool,
}

/// Whether memory has run out, and what was set aside is in use.
#[inline]
pub fn is_short() -> bool {
    RESERVE.short.load(Ordering::Relaxed)
}

/// Sets memory aside as far as there is some: at the start, and again and again while the process is
/// short. Says whether it is short no more. One thread at a time may call it.
pub fn recover() -> bool {
    RESERVE.recover()
}

impl Reserve {
    const fn new() -> Self {
        Self {
            aside: AtomicPtr::new(null_mut()),
            pieces: AtomicUsize::new(0),
            short: AtomicBool::new(false),
        }
    }

    /// Each piece is there for others as soon as it is taken: taking must not leave them without.
    fn recover(&self) -> bool {
        while self.pieces.load(Ordering::Relaxed) < PIECES {
            // SAFETY: the layout's size is not 0.
            let piece = unsafe { System.alloc(PIECE) };
            if piece.is_null() {
                return false;
            }
            let mut first = self.aside.load(Ordering::Relaxed);
            loop {
                // SAFETY: the piece is ours, aligned for a pointer and longer than one.
                unsafe { piece.cast::<*mut u8>().write(first) };
                let pushed = self.aside.compare_exchange_weak(
                    first,
                    piece,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
                match pushed {
                    Ok(_) => break,
                    Err(now) => first = now,
                }
            }
            self.pieces.fetch_add(1, Ordering::Relaxed);
        }
        self.short.store(false, Ordering::Relaxed);
        true
    }

    /// Gives back what is set aside, after so many bytes could not be had. Says whether that may
    /// help: large buffers are taken where they can be refused, and must not use it up.
    #[cold]
    fn release(&self, bytes: usize) -> bool {
        if bytes > PIECE_BYTES {
            return false;
        }
        self.short.store(true, Ordering::Relaxed);
        let mut piece = self.aside.swap(null_mut(), Ordering::Acquire);
        self.pieces.store(0, Ordering::Relaxed);
        while !piece.is_null() {
            // SAFETY: `recover` wrote there where the next one is, and the swap gave the list to us.
            let next = unsafe { piece.cast::<*mut u8>().read() };
            // SAFETY: `recover` allocated it with this layout.
            unsafe { System.dealloc(piece, PIECE) };
            piece = next;
        }
        true
    }
}

/// The system's allocator, and what is set aside behind it.
#[derive(Debug)]
pub struct Guarded;

/// Tries again after a failure, with what was set aside. More than once: another thread may be about
/// to give that back, or to set it aside anew.
#[cold]
fn again(bytes: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    for _ in 0..TRIES {
        if !RESERVE.release(bytes) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_is_given_back_once_and_set_aside_again() {
        let reserve = Reserve::new();
        let is = |short, aside| {
            assert_eq!(reserve.short.load(Ordering::Relaxed), short);
            assert_eq!(!reserve.aside.load(Ordering::Relaxed).is_null(), aside);
        };
        assert!(reserve.recover());
        is(false, true);
        assert!(!reserve.release(PIECE_BYTES + 1), "a large buffer is refused");
        is(false, true);
        assert!(reserve.release(100));
        is(true, false);
        assert!(reserve.release(100), "what another thread has given back serves this one, too");
        is(true, false);
        assert!(reserve.recover());
        is(false, true);
        reserve.release(1);
    }
}
