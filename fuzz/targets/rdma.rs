//! RDMA packets to their stage, under libFuzzer.
#![no_main]

#[path = "../bodies/rdma.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
