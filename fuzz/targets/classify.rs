//! Stage 3 under libFuzzer.
#![no_main]

#[path = "../bodies/classify.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
