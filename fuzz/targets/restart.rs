//! Memory files with anything in them under libFuzzer.
#![no_main]

#[path = "../bodies/restart.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
