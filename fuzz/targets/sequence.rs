//! A whole server with several clients under libFuzzer.
#![no_main]

#[path = "../bodies/sequence.rs"]
mod body;
#[path = "../harness/commands.rs"]
mod commands;
#[path = "../harness/tcp.rs"]
mod tcp;
#[path = "../harness/udp.rs"]
mod udp;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
