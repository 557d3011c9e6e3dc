//! The binary parser under libFuzzer.
#![no_main]

#[path = "../bodies/binary.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
