//! The server's TLS session under libFuzzer.
#![no_main]

#[path = "../bodies/tls.rs"]
mod body;
#[path = "../harness/tls.rs"]
mod peer;
#[path = "../../appliance/src/serve/tls/session.rs"]
mod session;
#[path = "../harness/tcp.rs"]
mod tcp;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
