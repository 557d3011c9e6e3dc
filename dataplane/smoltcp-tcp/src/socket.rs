//! What the socket sees of the world: in smoltcp, an interface's inside.

use crate::time::Instant;
use crate::wire::IpAddress;

#[rustfmt::skip]
#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, reason = "smoltcp's")]
pub mod tcp {
    include!(concat!(env!("OUT_DIR"), "/tcp.rs"));
}

/// When a socket is to be looked at next.
#[derive(Debug, PartialOrd, Ord, PartialEq, Eq, Clone, Copy)]
pub enum PollAt {
    /// Immediately.
    Now,
    /// Then.
    Time(Instant),
    /// When something has happened to it.
    Ingress,
}

/// What a socket gets from its caller: time and link.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// The time.
    pub now: Instant,
    /// Longest IP packet that may be sent.
    pub ip_mtu: usize,
    /// The initial sequence number of a connection that begins.
    pub initial_seq: u32,
}

impl Context {
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn ip_mtu(&self) -> usize {
        self.ip_mtu
    }

    /// The caller takes only what is addressed to it.
    pub(crate) fn has_ip_addr(&self, _: IpAddress) -> bool {
        true
    }

    /// Who connects says from where.
    pub(crate) fn get_source_address(&self, _: &IpAddress) -> Option<IpAddress> {
        cfg!(test).then_some(IpAddress::v4(192, 168, 1, 1))
    }

    #[cfg(test)]
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }
}
