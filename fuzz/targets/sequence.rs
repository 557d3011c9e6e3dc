//! Whole conversations under libFuzzer.
#![no_main]

#[path = "../bodies/sequence.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
