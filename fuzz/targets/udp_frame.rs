//! The CPU engine's reading of a datagram, against the strict parser, under libFuzzer.
#![no_main]

#[path = "../bodies/udp_frame.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
