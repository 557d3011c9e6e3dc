//! Clients: addresses in a row, ports in a row.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `count` clients. Client `c` has address `first + c % addresses` and port
/// `first_port + c / addresses`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clients {
    /// How many.
    pub count: u32,
    /// The first address.
    pub first: IpAddr,
    /// How many addresses they share.
    pub addresses: u32,
    /// The first port.
    pub first_port: u16,
}

/// The clients do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum BadClients {
    #[error("at least one client and one client address are needed")]
    None,
    #[error(
        "{count} clients on {addresses} addresses need ports up to {last}, beyond 65535: \
         give more --src-addresses or a lower --src-port"
    )]
    Ports { count: u32, addresses: u32, last: u32 },
    #[error("{addresses} addresses from {first} on run past the last address there is")]
    Addresses { first: IpAddr, addresses: u32 },
}

impl Clients {
    /// Checks that every client has an address and a port.
    ///
    /// # Errors
    /// [`BadClients`]: none, or too many.
    pub fn check(&self) -> Result<(), BadClients> {
        let Self { count, first, addresses, first_port } = *self;
        if count == 0 || addresses == 0 {
            return Err(BadClients::None);
        }
        let last = u32::from(first_port) + (count - 1) / addresses;
        if last > u32::from(u16::MAX) {
            return Err(BadClients::Ports { count, addresses, last });
        }
        let fits = match first {
            IpAddr::V4(a) => a.to_bits().checked_add(addresses - 1).is_some(),
            IpAddr::V6(a) => a.to_bits().checked_add(u128::from(addresses - 1)).is_some(),
        };
        if fits { Ok(()) } else { Err(BadClients::Addresses { first, addresses }) }
    }

    /// Address and port of client `c`, which is less than `count`.
    pub fn get(&self, c: u32) -> SocketAddr {
        let n = c % self.addresses.max(1);
        let addr = match self.first {
            IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits().wrapping_add(n))),
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits().wrapping_add(n.into()))),
        };
        let step = c / self.addresses.max(1);
        let port = self.first_port.wrapping_add(u16::try_from(step).unwrap_or(0));
        SocketAddr::new(addr, port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_differ_and_stay_in_range() {
        for first in ["10.0.0.250", "fd00::fffe"] {
            let c = Clients {
                count: 1_000,
                first: first.parse().unwrap(),
                addresses: 7,
                first_port: 65_000,
            };
            c.check().unwrap();
            let all: std::collections::HashSet<_> = (0..1_000).map(|i| c.get(i)).collect();
            assert_eq!(all.len(), 1_000);
        }
    }

    #[test]
    fn too_many_is_an_error() {
        let c = Clients {
            count: 10,
            first: "255.255.255.250".parse().unwrap(),
            addresses: 1,
            first_port: 65_530,
        };
        assert!(matches!(c.check(), Err(BadClients::Ports { last: 65_539, .. })));
        assert!(matches!(Clients { addresses: 7, ..c }.check(), Err(BadClients::Addresses { .. })));
        assert_eq!(Clients { count: 0, ..c }.check(), Err(BadClients::None));
        assert_eq!(Clients { addresses: 6, ..c }.check(), Ok(()));
    }
}
