//! The command `rdma`, which connects a queue pair: `rdma QPN PSN GID MTU`.
//!
//! In: the words of a line. Out: the client's end of the pair. Fails: `None` for a line that makes no
//! sense.

use std::net::Ipv6Addr;
use std::str::FromStr;

/// A client's end of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarEnd {
    /// Its number, of 24 bits.
    pub qpn: u32,
    /// The PSN that its first request will have, of 24 bits.
    pub psn: u32,
    /// Its address: IPv6, or an IPv4 address mapped into it.
    pub gid: Ipv6Addr,
    /// Bytes of payload that a packet may have.
    pub mtu: u16,
}

/// Numbers of 24 bits.
const NUMBERS: u32 = 1 << 24;

impl FarEnd {
    /// Reads the words behind `rdma`.
    pub(super) fn of(words: &[&[u8]]) -> Option<Self> {
        let [qpn, psn, gid, mtu] = words else { return None };
        let number = |word| read(word).filter(|n: &u32| *n < NUMBERS);
        Some(Self { qpn: number(qpn)?, psn: number(psn)?, gid: read(gid)?, mtu: read(mtu)? })
    }
}

fn read<T: FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_words_and_no_others() {
        let of = |line: &'static str| {
            FarEnd::of(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
        };
        let end = of("17 16777215 ::ffff:10.0.0.1 1024").unwrap();
        assert_eq!((end.qpn, end.psn, end.mtu), (17, 0xff_ffff, 1024));
        assert_eq!(end.gid.to_ipv4_mapped(), Some([10, 0, 0, 1].into()));
        assert_eq!(of("17 16777215 0000:0000:0000:0000:0000:ffff:0a00:0001 1024"), Some(end));
        for bad in [
            "",
            "17",
            "17 1 ::1",
            "17 16777216 ::1 1024",
            "-1 1 ::1 256",
            "1 1 10.0.0.1 256",
            "1 1 ::1 65536",
            "1 1 ::1 256 0",
            "x 1 ::1 256",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
