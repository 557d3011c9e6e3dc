//! Memory that runs out: an error of one connection, not the end of the process.
//!
//! Libraries allocate without a way to fail: Rust ends the process when they get nothing. So when the
//! system's allocator fails, 8 MB of the process's own (`region`) serve what is not large, and from
//! then on the process [is short](is_short): nothing is accepted, no buffer of a connection grows.
//! [`recover`] ends that as soon as the system has memory again.
//!
//! Threads, their stacks, what libraries map themselves and what the C library allocates for itself
//! are outside: they are made at the start, the last by [`prepare_thread`].
#![allow(unsafe_code)]

mod region;
mod thread;

pub use thread::prepare_thread;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use region::Region;
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest allocation that the region serves: what is larger is taken where it can be refused.
const SERVED_MAX: usize = 1 << 20;
/// What the system must have for the process not to be short: 4 MB, in pieces such as are needed.
const PIECE: Layout = match Layout::from_size_align(64 << 10, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two, and far from the end of the address space"),
};
const PIECES: usize = 64;

#[global_allocator]
static ALLOCATOR: Guarded<System> = Guarded::new(System);

/// Whether memory has run out.
#[inline]
pub fn is_short() -> bool {
    #[cfg(test)]
    if tests::IS_SHORT.get() {
        return true;
    }
    ALLOCATOR.is_short()
}

/// Whether a little may be kept for a client: not when memory has run out and the region is in use,
/// which is for what cannot do without.
#[inline]
pub fn may_keep() -> bool {
    !is_short() || ALLOCATOR.region.is_free(3)
}

/// Whether there is enough memory: at the start, and again and again while the process is short,
/// which it is no more then.
pub fn recover() -> bool {
    ALLOCATOR.recover()
}

/// One heap of the C library for all threads, where address space is limited: one for each of them
/// takes 64 MB of it, and 128 MB for a moment, in which a thread that is to start finds none. Before
/// any thread is made.
pub fn share_heap_if_bounded() {
    let bounded = getrlimit(Resource::RLIMIT_AS).is_ok_and(|(soft, _)| soft != RLIM_INFINITY);
    if bounded {
        #[cfg(target_env = "gnu")]
        // SAFETY: a number by value; no other thread is there.
        unsafe {
            nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
        }
    }
}

/// What each heap keeps at least, if buffers are as large. Larger ones are mapped for each request.
const KEPT_MIN: usize = 4 << 20;

/// Has each heap keep so many bytes that are free at its end, for buffers of up to `largest` bytes: by default heaps give
/// back what is above a megabyte or two, and buffers of large values are faulted in page by page for each request. Before
/// threads of ours are made.
#[cfg_attr(not(target_env = "gnu"), expect(unused_variables, reason = "another heap"))]
pub fn keep_buffers(bytes: usize, largest: usize) {
    #[cfg(target_env = "gnu")]
    {
        let in_heap = largest.min(KEPT_MIN);
        for (what, bytes) in [
            (nix::libc::M_TRIM_THRESHOLD, bytes.max(in_heap)),
            (nix::libc::M_MMAP_THRESHOLD, in_heap),
        ] {
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
            // SAFETY: numbers by value; it takes the heap's lock.
            unsafe { nix::libc::mallopt(what, bytes) };
        }
    }
}

/// An allocator, and a region behind it. Nothing of the region is touched before it is needed: it
/// takes address space, not memory.
#[derive(Debug)]
struct Guarded<S> {
    system: S,
    region: Region,
    short: AtomicBool,
}

impl<S: GlobalAlloc> Guarded<S> {
    const fn new(system: S) -> Self {
        Self { system, region: Region::new(), short: AtomicBool::new(false) }
    }

    #[inline]
    fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    fn recover(&self) -> bool {
        if !self.region.is_free(2) {
            return false;
        }
        let mut pieces = [null_mut(); PIECES];
        for piece in &mut pieces {
            // SAFETY: the layout's size is not 0.
            *piece = black_box(unsafe { self.system.alloc(PIECE) });
            if piece.is_null() {
                break;
            }
        }
        let enough = pieces.iter().all(|piece| !piece.is_null());
        for piece in pieces.into_iter().filter(|piece| !piece.is_null()) {
            // SAFETY: allocated above with this layout, and not given out.
            unsafe { self.system.dealloc(piece, PIECE) };
        }
        if enough {
            self.short.store(false, Ordering::Relaxed);
        }
        enough
    }

    /// Serves what the system could not.
    #[cold]
    fn serve(&self, layout: Layout) -> *mut u8 {
        if layout.size() > SERVED_MAX {
            return null_mut();
        }
        self.short.store(true, Ordering::Relaxed);
        self.region.alloc(layout)
    }

    /// Moves an allocation to where there is room: the region's cannot grow in place, and the
    /// system's could not. Null, and nothing has changed, when there is none.
    ///
    /// # Safety
    /// `old` was allocated here with this layout, and `bytes` makes a layout of its alignment.
    #[cold]
    unsafe fn relocate(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(bytes, layout.align()) else { return null_mut() };
        // SAFETY: the caller's promise: the size is not 0.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both are live and at least that long, and no two live ones overlap.
            unsafe { new.copy_from_nonoverlapping(old, layout.size().min(bytes)) };
            // SAFETY: the caller's promise; it gets the other one instead.
            unsafe { self.dealloc(old, layout) };
        }
        new
    }
}

// SAFETY: an allocation is the system's or, where that has failed, the region's, and goes back where
// its address says that it came from, with the layout that it was made with.
unsafe impl<S: GlobalAlloc> GlobalAlloc for Guarded<S> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        let memory = unsafe { self.system.alloc(layout) };
        if memory.is_null() { self.serve(layout) } else { memory }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let memory = unsafe { self.system.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = self.serve(layout);
        if !memory.is_null() {
            // SAFETY: just allocated, so long, and not given out.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !self.region.contains(old) {
            // SAFETY: as for `alloc`: it is the system's. A call that failed has left it as it was.
            let memory = unsafe { self.system.realloc(old, layout, bytes) };
            if !memory.is_null() {
                return memory;
            }
        }
        // SAFETY: as for `alloc`.
        unsafe { self.relocate(old, layout, bytes) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if self.region.contains(memory) {
            // SAFETY: as for `alloc`: it is the region's.
            unsafe { self.region.dealloc(memory, layout) };
        } else {
            // SAFETY: as for `alloc`: it is the system's.
            unsafe { self.system.dealloc(memory, layout) };
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
