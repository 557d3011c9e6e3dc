//! What is ours on one port: addresses, the service, and who may use it.

use super::allow::{AllowList, hosts4};
use arrayvec::ArrayVec;
use driver_shim::MacAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most addresses of one version that a port may have.
pub const ADDRESSES_MAX: usize = 8;

/// Why a port's addresses were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// More than fit.
    #[error("more than {ADDRESSES_MAX} addresses of one IP version on a port; give it fewer")]
    TooMany,
    /// Not the address of a single host.
    #[error(
        "{0} cannot be a port's own address: it is unspecified or names a group; give a unicast address"
    )]
    NotUnicast(IpAddr),
    /// A prefix longer than the address.
    #[error("/{1} is longer than the address {0}; give at most /32 with IPv4 and /128 with IPv6")]
    Prefix(IpAddr, u8),
}

/// One of a port's own IPv4 addresses, in its network.
#[derive(Debug, Clone, Copy)]
pub struct Own4 {
    /// The address.
    pub address: Ipv4Addr,
    /// The bits that distinguish the hosts of its network.
    hosts: u32,
}

impl Own4 {
    /// Whether `a` is in the same network: nothing but the bits of hosts differs.
    #[inline]
    fn is_near(self, a: Ipv4Addr) -> bool {
        a.to_bits() ^ self.address.to_bits() <= self.hosts
    }

    /// Whether the network has addresses that are no host's. Those of one or two hosts have none
    /// (RFC 3021).
    #[inline]
    fn has_names(self) -> bool {
        self.hosts > 1
    }

    /// Whether `a`, in the same network, is its broadcast address, or its first address, which is
    /// the network's own name and an old form of broadcast (RFC 1122, section 3.3.6).
    #[inline]
    fn is_its_name(self, a: Ipv4Addr) -> bool {
        let host = a.to_bits() & self.hosts;
        self.has_names() && (host == 0 || host == self.hosts)
    }
}

/// Facts about one port that stage 3 sorts by. Fixed once the port is open.
#[derive(Debug, Clone)]
pub struct Local {
    /// The port's Ethernet address.
    pub mac: MacAddr,
    /// Its IPv4 addresses.
    pub v4: ArrayVec<Own4, ADDRESSES_MAX>,
    /// Its IPv6 addresses and their prefixes.
    pub v6: ArrayVec<(Ipv6Addr, u8), ADDRESSES_MAX>,
    /// The kernel chose what arrives here: every destination is ours, and sources may be
    /// loopback or ourselves.
    pub any_destination: bool,
    /// UDP port of the service. 0: it is not served over UDP.
    pub service_port: u16,
    /// TCP port of the service, where it is served in the data path rather than by the kernel.
    pub tcp_port: Option<u16>,
    /// RDMA packets are answered.
    pub rdma: bool,
    /// Who is served without limits.
    pub trusted: AllowList,
    /// Who else is served, within the limits of the policy.
    pub allow: AllowList,
    /// TCP is served from everywhere, without limits: who completes a handshake has not forged its address.
    pub tcp_from_all: bool,
    /// There is a kernel to take what is not ours.
    pub exception_path: bool,
}

/// Whom a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// One of our addresses.
    Us,
    /// Broadcast or multicast.
    Group,
    /// Another host.
    Other,
}

impl Local {
    /// A port with these addresses and prefixes that serves and trusts loopback and its own
    /// networks, with no exception path. The fields can be changed from there.
    ///
    /// # Errors
    /// [`LocalError`].
    pub fn new(
        mac: MacAddr,
        addresses: &[(IpAddr, u8)],
        service_port: u16,
    ) -> Result<Self, LocalError> {
        let mut local = Self {
            mac,
            v4: ArrayVec::new(),
            v6: ArrayVec::new(),
            any_destination: false,
            service_port,
            tcp_port: None,
            rdma: false,
            trusted: AllowList::default_for(addresses),
            allow: AllowList::default(),
            tcp_from_all: false,
            exception_path: false,
        };
        for &(address, prefix) in addresses {
            if address.is_unspecified() || address.is_multicast() || address == Ipv4Addr::BROADCAST
            {
                return Err(LocalError::NotUnicast(address));
            }
            if prefix > if address.is_ipv4() { 32 } else { 128 } {
                return Err(LocalError::Prefix(address, prefix));
            }
            let full = match address {
                IpAddr::V4(address) => {
                    local.v4.try_push(Own4 { address, hosts: hosts4(prefix) }).is_err()
                }
                IpAddr::V6(a) => local.v6.try_push((a, prefix)).is_err(),
            };
            if full {
                return Err(LocalError::TooMany);
            }
        }
        Ok(local)
    }

    /// Whether `address` is one of ours.
    #[inline]
    pub fn owns4(&self, address: Ipv4Addr) -> bool {
        self.v4.iter().any(|own| own.address == address)
    }

    /// Whether `address` is one of ours.
    #[inline]
    pub fn owns6(&self, address: Ipv6Addr) -> bool {
        self.v6.iter().any(|&(own, _)| own == address)
    }

    /// Whom a packet to `dst` is for.
    #[inline]
    pub(crate) fn to4(&self, dst: Ipv4Addr) -> To {
        if self.any_destination || self.owns4(dst) {
            To::Us
        } else if dst.is_multicast() || self.is_broadcast(dst) {
            To::Group
        } else {
            To::Other
        }
    }

    /// Whom a packet to `dst` is for.
    #[inline]
    pub(crate) fn to6(&self, dst: Ipv6Addr) -> To {
        if self.any_destination || self.owns6(dst) {
            To::Us
        } else if dst.is_multicast() {
            To::Group
        } else {
            To::Other
        }
    }

    /// Whether no peer can have sent from `src`: "this network", multicast and reserved addresses
    /// (RFC 6890, table 1; RFC 5735, section 3), those of a whole network, and on a wire loopback
    /// and our own.
    #[inline]
    pub(crate) fn is_spoofed4(&self, src: Ipv4Addr) -> bool {
        /// First octet of 224.0.0.0/3: multicast, reserved, and the limited broadcast.
        const GROUPS_AND_RESERVED: u8 = 224;
        let [first, ..] = src.octets();
        first == 0
            || first >= GROUPS_AND_RESERVED
            || (!self.any_destination && src.is_loopback())
            || self.v4.iter().any(|own| {
                own.is_near(src)
                    && (own.is_its_name(src) || (!self.any_destination && src == own.address))
            })
    }

    /// Whether no peer can have sent from `src`. IPv4 addresses inside IPv6 ones exist in
    /// programs only (RFC 4942, section 2.2).
    #[inline]
    pub(crate) fn is_spoofed6(&self, src: Ipv6Addr) -> bool {
        src.is_unspecified()
            || src.is_multicast()
            || src.to_ipv4_mapped().is_some()
            || (!self.any_destination && (src.is_loopback() || self.owns6(src)))
    }

    /// Limited broadcast, or that of one of our networks. Networks of one or two hosts have none
    /// (RFC 3021).
    fn is_broadcast(&self, a: Ipv4Addr) -> bool {
        a.is_broadcast()
            || self
                .v4
                .iter()
                .any(|own| own.has_names() && a.to_bits() == own.address.to_bits() | own.hosts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(addresses: &[(&str, u8)]) -> Result<Local, LocalError> {
        let addresses: Vec<_> = addresses.iter().map(|(a, p)| (a.parse().unwrap(), *p)).collect();
        Local::new(MacAddr([2; 6]), &addresses, 11_211)
    }

    #[test]
    fn addresses_are_checked() {
        for bad in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"] {
            assert_eq!(
                local(&[(bad, 32)]).unwrap_err(),
                LocalError::NotUnicast(bad.parse().unwrap())
            );
        }
        assert!(matches!(local(&[("10.0.0.1", 33)]), Err(LocalError::Prefix(_, 33))));
        assert!(local(&[("fd00::1", 128)]).is_ok());
        assert_eq!(local(&[("10.0.0.1", 24); 9]).unwrap_err(), LocalError::TooMany);
    }

    #[test]
    fn knows_us_groups_and_others() {
        let l = local(&[("10.0.0.2", 24), ("10.9.0.1", 31), ("fd00::2", 64)]).unwrap();
        for (ip, to) in [
            ("10.0.0.2", To::Us),
            ("10.0.0.255", To::Group),
            ("10.0.1.255", To::Other),
            ("10.9.0.1", To::Us),
            ("10.9.0.0", To::Other),
            ("255.255.255.255", To::Group),
            ("239.1.1.1", To::Group),
            ("10.0.0.1", To::Other),
        ] {
            assert_eq!(l.to4(ip.parse().unwrap()), to, "{ip}");
        }
        for (ip, to) in [("fd00::2", To::Us), ("ff02::1", To::Group), ("fd00::1", To::Other)] {
            assert_eq!(l.to6(ip.parse().unwrap()), to, "{ip}");
        }
        let any = Local { any_destination: true, ..l };
        assert_eq!(any.to4(Ipv4Addr::new(9, 9, 9, 9)), To::Us);
        assert_eq!(any.to6(Ipv6Addr::LOCALHOST), To::Us);
    }

    #[test]
    fn knows_sources_that_cannot_be() {
        let l = local(&[("10.0.0.2", 24), ("fd00::2", 64)]).unwrap();
        let any = Local { any_destination: true, ..l.clone() };
        for (ip, on_wire, on_socket) in [
            ("10.0.0.1", false, false),
            ("0.0.0.0", true, true),
            ("0.1.2.3", true, true),
            ("223.255.255.255", false, false),
            ("224.0.0.1", true, true),
            ("240.0.0.1", true, true),
            ("255.255.255.255", true, true),
            ("10.0.0.255", true, true),
            ("10.0.0.0", true, true),
            ("10.0.1.0", false, false),
            ("10.0.1.255", false, false),
            ("127.0.0.1", true, false),
            ("10.0.0.2", true, false),
            ("fd00::1", false, false),
            ("::", true, true),
            ("ff02::1", true, true),
            ("::ffff:10.0.0.1", true, true),
            ("::1", true, false),
            ("fd00::2", true, false),
        ] {
            let spoofed = |l: &Local| match ip.parse().unwrap() {
                IpAddr::V4(a) => l.is_spoofed4(a),
                IpAddr::V6(a) => l.is_spoofed6(a),
            };
            assert_eq!((spoofed(&l), spoofed(&any)), (on_wire, on_socket), "{ip}");
        }
    }
}
