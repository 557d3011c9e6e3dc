//! Segments to the stream stage under libFuzzer.
#![no_main]

#[path = "../bodies/segments.rs"]
mod body;
#[path = "../harness/tcp.rs"]
mod tcp;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::run(data);
    // SAFETY: this thread's buffers were those of the run's streams, which are gone.
    unsafe { driver_shim::buffers::unmap_all() };
});
