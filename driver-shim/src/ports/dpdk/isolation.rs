//! Isolated mode: of a device that the kernel keeps, only the frames of our services are taken.
//!
//! In: services. Out: the shim's rules for them. Cannot fail.

use dpdk_ffi as ffi;
use std::fmt;
use std::net::IpAddr;

/// What leaves the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// The services.
    pub services: Vec<Service>,
    /// Where the driver cannot isolate, there is no port; else it takes every frame.
    pub required: bool,
}

/// An address and a port of UDP, or of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// The address.
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
    /// TCP.
    pub tcp: bool,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.tcp { "TCP" } else { "UDP" };
        write!(f, "{protocol} port {} of {}", self.port, self.ip)
    }
}

impl Service {
    /// As the shim takes it.
    pub(super) fn rule(&self) -> ffi::GnRule {
        let mut rule = ffi::GnRule { port: self.port, ..ffi::GnRule::default() };
        match self.ip {
            IpAddr::V4(ip) => {
                rule.address.iter_mut().zip(ip.octets()).for_each(|(to, from)| *to = from);
            }
            IpAddr::V6(ip) => {
                rule.address = ip.octets();
                rule.flags |= ffi::RULE_IPV6;
            }
        }
        if self.tcp {
            rule.flags |= ffi::RULE_TCP;
        }
        rule
    }
}
