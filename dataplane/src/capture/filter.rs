//! Which frames a capture selects.
//!
//! In: a frame's bytes. Out: yes or no. Never fails: a frame that cannot be read has neither a
//! source nor a key.
#![deny(clippy::indexing_slicing)]

use memcache::{Dialects, Parsed};
use std::net::IpAddr;
use wire::Cidr;
use wire::DropReason;
use wire::eth::{self, Eth};
use wire::ipv4::Ipv4;
use wire::ipv6::Ipv6;
use wire::udp::Udp;
use wire::udp_frame;

/// Longest pattern: as long as a key may be.
const KEY_PATTERN_MAX_BYTES: usize = memcache::KEY_MAX_BYTES;

/// Largest value of a request that is read for its key: more than a datagram holds.
const ITEM_MAX_BYTES: usize = 1 << 20;

/// What becomes of the frames that are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// They are received, and whatever is sent because of them.
    Traffic,
    /// Only what is sent.
    Replies,
    /// They are dropped, for any reason or this one.
    Drops(Option<DropReason>),
}

/// Which frames a capture selects: those that meet all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// What becomes of them.
    pub what: What,
    /// Where the client is.
    pub source: Option<Cidr>,
    /// A key that the request names.
    pub key: Option<KeyPattern>,
    /// Most bytes of a frame to be copied.
    pub snap_bytes: usize,
}

impl Filter {
    /// Whether a received frame is one of them.
    pub(super) fn wants_received(&self, frame: &[u8], service_port: u16) -> bool {
        if self.source.is_none() && self.key.is_none() {
            return true;
        }
        let Ok(eth) = Eth::checked(frame) else { return false };
        let (source, udp) = match eth.ethertype() {
            eth::IPV4 => match Ipv4::checked(&eth) {
                Ok(ip) => (IpAddr::V4(ip.src()), Udp::over_ipv4(&ip)),
                Err(_) => return false,
            },
            eth::IPV6 => match Ipv6::checked(&eth) {
                Ok(ip) => (IpAddr::V6(ip.src()), Udp::over_ipv6(&ip)),
                Err(_) => return false,
            },
            _ => return false,
        };
        let to_service = udp.filter(|udp| udp.dst_port() == service_port);
        self.has_client(source)
            && self.key.as_ref().is_none_or(|key| to_service.is_some_and(|udp| key.is_in(&udp)))
    }

    /// Whether a frame that answers no request is one of them.
    pub(super) fn wants_unasked(&self, frame: &[u8]) -> bool {
        if self.source.is_none() && self.key.is_none() {
            return true;
        }
        let Ok(eth) = Eth::checked(frame) else { return false };
        let client = match eth.ethertype() {
            eth::IPV4 => Ipv4::checked(&eth).map(|ip| IpAddr::V4(ip.dst())),
            eth::IPV6 => Ipv6::checked(&eth).map(|ip| IpAddr::V6(ip.dst())),
            _ => return false,
        };
        self.key.is_none() && client.is_ok_and(|client| self.has_client(client))
    }

    fn has_client(&self, address: IpAddr) -> bool {
        self.source.is_none_or(|network| Cidr::around(address, network.prefix()) == network)
    }
}

/// Why a pattern is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a pattern of keys has 1 to {KEY_PATTERN_MAX_BYTES} bytes")]
pub struct PatternError;

/// Keys that look alike: `*` stands for any bytes or none, `?` for any one, others for themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern(Box<[u8]>);

impl KeyPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new(pattern: &[u8]) -> Result<Self, PatternError> {
        match pattern.len() {
            1..=KEY_PATTERN_MAX_BYTES => Ok(Self(pattern.into())),
            _ => Err(PatternError),
        }
    }

    /// As it was written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the key looks so. At most as many steps as the product of both lengths.
    pub fn matches(&self, key: &[u8]) -> bool {
        let (mut at, mut of_key) = (0, 0);
        // Behind the last `*`, and how much of the key it has taken.
        let mut star: Option<(usize, usize)> = None;
        while let Some(&byte) = key.get(of_key) {
            match self.0.get(at) {
                Some(b'*') => {
                    star = Some((at + 1, of_key));
                    at += 1;
                }
                Some(&wanted) if wanted == b'?' || wanted == byte => {
                    (at, of_key) = (at + 1, of_key + 1);
                }
                _ => match &mut star {
                    Some((behind, taken)) => {
                        *taken += 1;
                        (at, of_key) = (*behind, *taken);
                    }
                    None => return false,
                },
            }
        }
        self.0.iter().skip(at).all(|&b| b == b'*')
    }

    /// Whether a request in the datagram names such a key.
    fn is_in(&self, udp: &Udp<'_>) -> bool {
        let Ok((_, mut rest)) = udp_frame::split(udp.data()) else { return false };
        let first = rest.first().copied().unwrap_or_default();
        let dialect = Dialects::Auto.of(first);
        while !rest.is_empty() {
            let used = match &dialect.parse(rest, ITEM_MAX_BYTES) {
                Parsed::Command { command, .. } | Parsed::Swallow { command, .. }
                    if command.keys().iter().any(|key| self.matches(key)) =>
                {
                    return true;
                }
                Parsed::Command { used, .. } => *used,
                Parsed::Swallow { used, skip, .. } => used.saturating_add(*skip),
                Parsed::Incomplete { .. } | Parsed::Hopeless => return false,
            };
            rest = rest.get(used.max(1)..).unwrap_or_default();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_shim::MacAddr;
    use memcache::binary::{Header, opcode};
    use wire::build::UdpFrame;

    fn frame(source: &str, text: &[u8]) -> Vec<u8> {
        let src: IpAddr = source.parse().unwrap();
        let dst: IpAddr = if src.is_ipv4() { [10, 0, 0, 2].into() } else { [0xfd; 16].into() };
        let payload = [&[0, 7, 0, 0, 0, 1, 0, 0], text].concat();
        UdpFrame {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            vlans: &[],
            src: (src, 40_000).into(),
            dst: (dst, 11_211).into(),
            payload: &payload,
        }
        .to_vec()
        .unwrap()
    }

    fn wants(source: Option<&str>, key: Option<&str>, frame: &[u8]) -> bool {
        let filter = Filter {
            what: What::Traffic,
            source: source.map(|s| s.parse().unwrap()),
            key: key.map(|k| KeyPattern::new(k.as_bytes()).unwrap()),
            snap_bytes: 2048,
        };
        filter.wants_received(frame, 11_211)
    }

    #[test]
    fn patterns() {
        for (pattern, yes, no) in [
            ("a", &["a"][..], &["", "b", "aa"][..]),
            ("user:*", &["user:", "user:1", "user:*"], &["user", "xuser:1"]),
            ("*:1", &[":1", "a:1", "a:1:1"], &["a:12", ""]),
            ("a?c", &["abc", "a?c"], &["ac", "abbc"]),
            ("a*b*c", &["abc", "axxbyyc", "abbcc"], &["acb", "ab"]),
            ("**", &["", "x"], &[]),
        ] {
            let pattern = KeyPattern::new(pattern.as_bytes()).unwrap();
            assert!(yes.iter().all(|k| pattern.matches(k.as_bytes())), "{pattern:?}");
            assert!(!no.iter().any(|k| pattern.matches(k.as_bytes())), "{pattern:?}");
        }
        assert_eq!(KeyPattern::new(b""), Err(PatternError));
        assert_eq!(KeyPattern::new(&[b'a'; 251]), Err(PatternError));
        // The worst there is: soon done.
        let stars = KeyPattern::new(&b"a*".repeat(125)).unwrap();
        assert!(!stars.matches(&[b'a'; 100]));
    }

    #[test]
    fn sources() {
        for (source, network, yes) in [
            ("10.1.2.3", "10.0.0.0/8", true),
            ("10.1.2.3", "0.0.0.0/0", true),
            ("11.1.2.3", "10.0.0.0/8", false),
            ("10.1.2.3", "::/0", false),
            ("fd00::1", "fd00::/16", true),
            ("fd00::1", "fd01::/16", false),
        ] {
            let request = frame(source, b"get a\r\n");
            assert_eq!(wants(Some(network), None, &request), yes, "{source} {network}");
            let cut = &request[..20];
            assert!(!wants(Some(network), None, cut) && wants(None, None, cut));
        }
    }

    #[test]
    fn keys_of_every_kind_of_request() {
        let binary_get = |key: &[u8]| Header::request(opcode::GET).packet(b"", key, b"").unwrap();
        for text in [
            &b"get the-key\r\n"[..],
            b"gets a the-key b\r\n",
            b"gat 5 the-key\r\n",
            b"set the-key 0 0 1\r\nx\r\n",
            b"set a 0 0 1\r\nx\r\ndelete the-key\r\n",
            b"incr the-key 1\r\n",
            b"touch the-key 0\r\n",
            b"mg the-key v\r\n",
            b"version\r\nmd the-key\r\n",
            b"set the-key 0 0 99999999\r\nx\r\n",
            &binary_get(b"the-key"),
        ] {
            let request = frame("10.0.0.1", text);
            assert!(wants(None, Some("the-*"), &request), "{}", text.escape_ascii());
            assert!(!wants(None, Some("not-*"), &request), "{}", text.escape_ascii());
            assert!(!wants(Some("10.9.0.0/16"), Some("the-*"), &request));
        }
        for text in [&b"version\r\n"[..], b"\x80", b"rubbish", b"get\r\n", b"x the-key\r\n"] {
            assert!(!wants(None, Some("*"), &frame("10.0.0.1", text)), "{}", text.escape_ascii());
        }
        let mut elsewhere = frame("10.0.0.1", b"get the-key\r\n");
        elsewhere[37] ^= 1;
        assert!(!wants(None, Some("*"), &elsewhere), "to another port");
    }
}
