//! Datagrams to a worker under libFuzzer.
#![no_main]

#[path = "../bodies/datagram.rs"]
mod body;
#[path = "../harness/tcp.rs"]
mod tcp;
#[path = "../harness/udp.rs"]
mod udp;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
