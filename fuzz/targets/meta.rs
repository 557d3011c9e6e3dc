//! Meta commands under libFuzzer.
#![no_main]

#[path = "../bodies/meta.rs"]
mod body;
#[path = "../harness/tcp.rs"]
mod tcp;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
