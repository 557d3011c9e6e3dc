//! Prefetches a line of memory before it is needed.
#![allow(unsafe_code)]

/// Prefetches the cache line at `address`, which will be read soon. Any address will do: a prefetch never
/// faults and has no effect but time.
#[inline(always)]
pub fn prefetch_read<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHT0 may name any address, mapped or not; it does not access memory as far
    // as the program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
