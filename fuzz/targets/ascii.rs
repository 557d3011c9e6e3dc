//! The strict ASCII parser under libFuzzer.
#![no_main]

#[path = "../bodies/ascii.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
