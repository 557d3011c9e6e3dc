//! smoltcp's TCP socket without its interface: the caller passes the time, gives it
//! segments with [`socket::tcp::Socket::process`] and takes them from
//! [`socket::tcp::Socket::dispatch`]. What is different is in README.md.
#![deny(unsafe_code)]

macro_rules! net_log {
    ($level:ident, $($arg:expr),*) => {{ $( let _ = $arg; )* }}
}
#[cfg(test)]
macro_rules! net_trace {
    ($($arg:expr),*) => (net_log!(trace, $($arg),*));
}
macro_rules! net_debug {
    ($($arg:expr),*) => (net_log!(debug, $($arg),*));
}

pub(crate) use smoltcp::{phy, storage, time, wire};
pub mod socket;
