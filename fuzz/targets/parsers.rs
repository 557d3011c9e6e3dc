//! The parsers of the engines under libFuzzer.
#![no_main]

#[path = "../bodies/parsers.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
