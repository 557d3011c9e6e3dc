//! Who is served: networks in CIDR notation (RFC 4632), and lists of them (D13).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Why a network could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum CidrError {
    #[error(
        "'{0}' is not a network; write an address and a prefix, such as 10.0.0.0/8 or fd00::/8"
    )]
    Address(String),
    #[error(
        "'{prefix}' is not a prefix of {address}; write 0 to {max}, or leave it out for one address"
    )]
    Prefix { address: IpAddr, prefix: String, max: u8 },
    #[error(
        "{address}/{prefix} is not the beginning of a network; write {network} for all of it or {address}/{max} for the one address"
    )]
    HostBits { address: IpAddr, prefix: u8, network: Cidr, max: u8 },
}

/// A network: its first address and how many leading bits all its addresses share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    first: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// The network that `address` lies in. A prefix longer than the address is taken as all of it.
    pub fn around(address: IpAddr, prefix: u8) -> Self {
        match address {
            IpAddr::V4(a) => {
                let prefix = prefix.min(32);
                Self { first: IpAddr::V4((a.to_bits() & mask4(prefix)).into()), prefix }
            }
            IpAddr::V6(a) => {
                let prefix = prefix.min(128);
                Self { first: IpAddr::V6((a.to_bits() & mask6(prefix)).into()), prefix }
            }
        }
    }

    /// The first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Bits that all addresses share.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// What is in both networks: nothing, or the smaller one.
    pub fn meet(self, other: Self) -> Option<Self> {
        let (small, large) =
            if self.prefix >= other.prefix { (self, other) } else { (other, self) };
        (Self::around(small.first, large.prefix) == large).then_some(small)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, prefix) = match text.split_once('/') {
            Some((a, p)) => (a, Some(p)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| CidrError::Address(text.to_owned()))?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => max,
            Some(p) => p
                .parse()
                .ok()
                .filter(|n| *n <= max && p.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| CidrError::Prefix { address, prefix: p.to_owned(), max })?,
        };
        let network = Self::around(address, prefix);
        if network.first == address {
            Ok(network)
        } else {
            Err(CidrError::HostBits { address, prefix, network, max })
        }
    }
}

/// The leading `prefix` bits of an IPv4 address.
pub(crate) fn mask4(prefix: u8) -> u32 {
    !hosts4(prefix)
}

/// The other bits.
#[inline]
pub(crate) fn hosts4(prefix: u8) -> u32 {
    let bits = u64::from(u32::MAX).checked_shr(prefix.into()).unwrap_or(0);
    u32::try_from(bits).unwrap_or(0)
}

/// The leading `prefix` bits of an IPv6 address.
pub(crate) fn mask6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128u32.saturating_sub(prefix.into())).unwrap_or(0)
}

/// Networks whose hosts are served. Made at start-up, then only read; a look-up walks the
/// list, which is short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    /// First address and mask.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl AllowList {
    /// Loopback, and the networks that a port's own addresses (with their prefixes) lie in.
    pub fn default_for(addresses: &[(IpAddr, u8)]) -> Self {
        let loopback = [(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
        addresses.iter().chain(&loopback).map(|&(a, prefix)| Cidr::around(a, prefix)).collect()
    }

    /// Whether `source` is in one of the networks.
    #[inline]
    pub fn permits4(&self, source: Ipv4Addr) -> bool {
        self.v4.iter().any(|(first, mask)| source.to_bits() & mask == *first)
    }

    /// Whether `source` is in one of the networks.
    #[inline]
    pub fn permits6(&self, source: Ipv6Addr) -> bool {
        self.v6.iter().any(|(first, mask)| source.to_bits() & mask == *first)
    }
}

impl FromIterator<Cidr> for AllowList {
    fn from_iter<I: IntoIterator<Item = Cidr>>(networks: I) -> Self {
        let mut list = Self::default();
        list.extend(networks);
        list
    }
}

impl Extend<Cidr> for AllowList {
    fn extend<I: IntoIterator<Item = Cidr>>(&mut self, networks: I) {
        for c in networks {
            match c.first {
                IpAddr::V4(a) => self.v4.push((a.to_bits(), mask4(c.prefix))),
                IpAddr::V6(a) => self.v6.push((a.to_bits(), mask6(c.prefix))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(list: &AllowList, source: IpAddr) -> bool {
        match source {
            IpAddr::V4(a) => list.permits4(a),
            IpAddr::V6(a) => list.permits6(a),
        }
    }

    fn list(networks: &[&str]) -> AllowList {
        networks.iter().map(|n| n.parse::<Cidr>().unwrap()).collect()
    }

    #[test]
    fn reads_what_it_writes() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.7/32", "fd00::/8", "::/0", "::1/128"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.7".parse::<Cidr>().unwrap().to_string(), "192.0.2.7/32");
        assert_eq!("::1".parse::<Cidr>().unwrap().to_string(), "::1/128");
    }

    #[test]
    fn errors_say_what_to_write() {
        for (text, hint) in [
            ("", "such as 10.0.0.0/8"),
            ("eth0", "such as 10.0.0.0/8"),
            ("10.0.0/8", "such as 10.0.0.0/8"),
            ("10.0.0.0/33", "write 0 to 32"),
            ("10.0.0.0/", "write 0 to 32"),
            ("10.0.0.0/+8", "write 0 to 32"),
            ("10.0.0.0/-1", "write 0 to 32"),
            ("::/129", "write 0 to 128"),
            ("10.1.2.3/8", "write 10.0.0.0/8 for all of it or 10.1.2.3/32"),
        ] {
            let e = text.parse::<Cidr>().unwrap_err().to_string();
            assert!(e.contains(hint), "{text}: {e}");
        }
    }

    #[test]
    fn networks_meet_in_the_smaller_one_or_not_at_all() {
        for (a, b, both) in [
            ("10.0.0.0/8", "10.1.0.0/16", Some("10.1.0.0/16")),
            ("10.0.0.0/8", "10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.0.0.0/8", "0.0.0.0/0", Some("10.0.0.0/8")),
            ("10.0.0.0/8", "11.0.0.0/8", None),
            ("10.0.0.0/16", "10.1.0.0/24", None),
            ("fd00::/8", "fd00:1::/32", Some("fd00:1::/32")),
            ("::/0", "10.0.0.0/8", None),
            ("0.0.0.0/0", "::/0", None),
        ] {
            let net = |text: &str| text.parse::<Cidr>().unwrap();
            assert_eq!(net(a).meet(net(b)), both.map(net), "{a} {b}");
            assert_eq!(net(b).meet(net(a)), both.map(net), "{b} {a}");
        }
    }

    #[test]
    fn permits_by_prefix() {
        let l = list(&["10.0.0.0/8", "192.0.2.128/25", "fd00::/8"]);
        for (ip, yes) in [
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("9.255.255.255", false),
            ("192.0.2.127", false),
            ("192.0.2.128", true),
            ("fdff::1", true),
            ("fe00::1", false),
            ("::ffff:10.1.1.1", false),
        ] {
            assert_eq!(permits(&l, ip.parse().unwrap()), yes, "{ip}");
        }
        assert!(list(&["0.0.0.0/0"]).permits4(Ipv4Addr::new(203, 0, 113, 1)));
        assert!(list(&["::/0"]).permits6(Ipv6Addr::LOCALHOST));
        assert!(!AllowList::default().permits4(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn the_default_is_loopback_and_the_own_networks() {
        let l = AllowList::default_for(&[
            ("10.1.2.3".parse().unwrap(), 24),
            ("fd00::5".parse().unwrap(), 64),
        ]);
        for (ip, yes) in [
            ("127.5.5.5", true),
            ("::1", true),
            ("10.1.2.200", true),
            ("10.1.3.1", false),
            ("fd00::9", true),
            ("fd00:0:0:1::9", false),
        ] {
            assert_eq!(permits(&l, ip.parse().unwrap()), yes, "{ip}");
        }
    }
}
