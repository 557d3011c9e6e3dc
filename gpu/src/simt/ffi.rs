//! What `gpu/simt/executor.h` declares.
#![allow(unsafe_code)]

use crate::card::Kernel;
use std::ffi::{CStr, c_char, c_int, c_void};

type KernelFunction = unsafe extern "C" fn(params: *const c_void);

#[repr(C)]
struct Launch {
    kernel: KernelFunction,
    params: *const c_void,
    blocks: u32,
    first: u32,
    count: u32,
    threads: u32,
    shared_bytes: u32,
    seed: u64,
    regions: *const Region,
    n_regions: usize,
    counts: *mut WatchCounts,
}

/// Memory that a watched launch may touch.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// What watched kernels did, as if those lanes of a warp that come to the same place for the same
/// time did so at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct WatchCounts {
    /// Basic blocks that warps entered.
    pub steps: u64,
    /// Lanes that entered them; 32 to a step would be all.
    pub lanes: u64,
    /// Loads and stores of warps in the card's memory and what is mapped to it.
    pub accesses: u64,
    /// Sectors of 32 bytes that these touched.
    pub sectors: u64,
}

impl WatchCounts {
    pub(super) fn add(&mut self, more: Self) {
        self.steps += more.steps;
        self.lanes += more.lanes;
        self.accesses += more.accesses;
        self.sectors += more.sectors;
    }
}

/// What a watched launch needs beside the launch itself.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    /// In order of addresses.
    pub(super) regions: &'a [Region],
    /// Added to.
    pub(super) counts: &'a mut WatchCounts,
}

unsafe extern "C" {
    fn simt_run(launch: *const Launch, error: *mut c_char, error_bytes: usize) -> c_int;
    fn gnomon_simt_digest(params: *const c_void);
    fn gnomon_simt_get_setassoc(params: *const c_void);
    fn gnomon_simt_get_cuckoo(params: *const c_void);
    fn gnomon_simt_serve_setassoc(params: *const c_void);
    fn gnomon_simt_serve_cuckoo(params: *const c_void);
    fn gnomon_simt_update_setassoc(params: *const c_void);
    fn gnomon_simt_update_cuckoo(params: *const c_void);
    fn gnomon_simt_micro_read(params: *const c_void);
    fn gnomon_simt_micro_lookup_setassoc(params: *const c_void);
    fn gnomon_simt_micro_lookup_cuckoo(params: *const c_void);
    fn gnomon_simt_micro_ping(params: *const c_void);
    fn gnomon_simt_micro_empty(params: *const c_void);
    fn gnomon_simt_watched_digest(params: *const c_void);
    fn gnomon_simt_watched_get_setassoc(params: *const c_void);
    fn gnomon_simt_watched_get_cuckoo(params: *const c_void);
    fn gnomon_simt_watched_serve_setassoc(params: *const c_void);
    fn gnomon_simt_watched_serve_cuckoo(params: *const c_void);
    fn gnomon_simt_watched_update_setassoc(params: *const c_void);
    fn gnomon_simt_watched_update_cuckoo(params: *const c_void);
    fn gnomon_simt_watched_micro_read(params: *const c_void);
    fn gnomon_simt_watched_micro_lookup_setassoc(params: *const c_void);
    fn gnomon_simt_watched_micro_lookup_cuckoo(params: *const c_void);
    fn gnomon_simt_watched_micro_ping(params: *const c_void);
    fn gnomon_simt_watched_micro_empty(params: *const c_void);
    #[cfg(test)]
    static gnomon_layouts: [u32; 0];
    #[cfg(test)]
    static gnomon_layouts_len: u32;
}

fn function(kernel: Kernel, watched: bool) -> KernelFunction {
    match (kernel, watched) {
        (Kernel::Digest, false) => gnomon_simt_digest,
        (Kernel::Digest, true) => gnomon_simt_watched_digest,
        (Kernel::GetSetassoc, false) => gnomon_simt_get_setassoc,
        (Kernel::GetSetassoc, true) => gnomon_simt_watched_get_setassoc,
        (Kernel::GetCuckoo, false) => gnomon_simt_get_cuckoo,
        (Kernel::GetCuckoo, true) => gnomon_simt_watched_get_cuckoo,
        (Kernel::ServeSetassoc, false) => gnomon_simt_serve_setassoc,
        (Kernel::ServeSetassoc, true) => gnomon_simt_watched_serve_setassoc,
        (Kernel::ServeCuckoo, false) => gnomon_simt_serve_cuckoo,
        (Kernel::ServeCuckoo, true) => gnomon_simt_watched_serve_cuckoo,
        (Kernel::UpdateSetassoc, false) => gnomon_simt_update_setassoc,
        (Kernel::UpdateSetassoc, true) => gnomon_simt_watched_update_setassoc,
        (Kernel::UpdateCuckoo, false) => gnomon_simt_update_cuckoo,
        (Kernel::UpdateCuckoo, true) => gnomon_simt_watched_update_cuckoo,
        (Kernel::MicroRead, false) => gnomon_simt_micro_read,
        (Kernel::MicroRead, true) => gnomon_simt_watched_micro_read,
        (Kernel::MicroLookupSetassoc, false) => gnomon_simt_micro_lookup_setassoc,
        (Kernel::MicroLookupSetassoc, true) => gnomon_simt_watched_micro_lookup_setassoc,
        (Kernel::MicroLookupCuckoo, false) => gnomon_simt_micro_lookup_cuckoo,
        (Kernel::MicroLookupCuckoo, true) => gnomon_simt_watched_micro_lookup_cuckoo,
        (Kernel::MicroPing, false) => gnomon_simt_micro_ping,
        (Kernel::MicroPing, true) => gnomon_simt_watched_micro_ping,
        (Kernel::MicroEmpty, false) => gnomon_simt_micro_empty,
        (Kernel::MicroEmpty, true) => gnomon_simt_watched_micro_empty,
    }
}

/// Some blocks of a grid of `blocks`: `count` of them from `first` on, one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    pub(super) blocks: u32,
    pub(super) first: u32,
    pub(super) count: u32,
}

/// Runs blocks on this thread, to their end.
///
/// # Safety
/// As [`crate::card::Stream::launch`], for the time of the call.
///
/// # Errors
/// What the executor found wrong with the kernel.
pub(super) unsafe fn run(
    kernel: Kernel,
    blocks: Blocks,
    params: *const u8,
    seed: u64,
    watch: Option<Watch<'_>>,
) -> Result<(), String> {
    let facts = kernel.facts();
    let Blocks { blocks, first, count } = blocks;
    let watched = watch.is_some();
    let (regions, counts): (&[Region], *mut WatchCounts) = match watch {
        Some(Watch { regions, counts }) => (regions, counts),
        None => (&[], std::ptr::null_mut()),
    };
    let launch = Launch {
        kernel: function(kernel, watched),
        params: params.cast(),
        blocks,
        first,
        count,
        threads: facts.threads,
        shared_bytes: facts.shared_bytes,
        seed,
        regions: regions.as_ptr(),
        n_regions: regions.len(),
        counts,
    };
    let mut error = [0; 256];
    // SAFETY: all that `launch` points to and `error` outlive the call; the caller answers for
    // `params`.
    if unsafe { simt_run(&raw const launch, error.as_mut_ptr().cast(), error.len()) } == 0 {
        return Ok(());
    }
    let text = CStr::from_bytes_until_nul(&error).unwrap_or_default();
    Err(format!("{}: {}", facts.name, text.to_string_lossy()))
}

/// The table in `gpu/simt/layouts.cc`.
#[cfg(test)]
pub(super) fn layouts() -> &'static [u32] {
    // SAFETY: a constant of the C++ side.
    let len = unsafe { gnomon_layouts_len } as usize;
    // SAFETY: a constant array of that many numbers.
    unsafe { std::slice::from_raw_parts((&raw const gnomon_layouts).cast(), len) }
}
