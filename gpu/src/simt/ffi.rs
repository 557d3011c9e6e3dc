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
}

unsafe extern "C" {
    fn simt_run(launch: *const Launch, error: *mut c_char, error_bytes: usize) -> c_int;
    fn gnomon_simt_digest(params: *const c_void);
    #[cfg(test)]
    static gnomon_layouts: [u32; 0];
    #[cfg(test)]
    static gnomon_layouts_len: u32;
}

fn function(kernel: Kernel) -> KernelFunction {
    match kernel {
        Kernel::Digest => gnomon_simt_digest,
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
) -> Result<(), String> {
    let facts = kernel.facts();
    let Blocks { blocks, first, count } = blocks;
    let launch = Launch {
        kernel: function(kernel),
        params: params.cast(),
        blocks,
        first,
        count,
        threads: facts.threads,
        shared_bytes: facts.shared_bytes,
        seed,
    };
    let mut error = [0; 256];
    // SAFETY: `launch` and `error` outlive the call; the caller answers for `params`.
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
