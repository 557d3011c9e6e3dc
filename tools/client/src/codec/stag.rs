//! Stags, and the command that connects a queue pair: what one-sided reads need of the text protocols.
//!
//! In: a word of a reply's, or a line. Out: a [`Stag`], or the server's end of the pair. Fails: what no
//! server writes.

use super::{Malformed, Read, line, number};
use memcache::FarEnd;
use std::net::Ipv6Addr;

/// What a key is called by in READs, and how much of it there is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stag {
    /// The name.
    pub id: u64,
    /// Bytes of a READ that gets all of the item as it is now.
    pub len: u32,
}

/// Hexadecimal digits of a name.
const DIGITS: usize = 16;
/// Numbers of queue pairs, and of packets.
const NUMBERS: u32 = 1 << 24;

impl Stag {
    /// Of what stands behind the flag `g`.
    pub(super) fn parse(word: &[u8]) -> Result<Self, Malformed> {
        let (id, len) = word.split_at_checked(DIGITS).ok_or(Malformed)?;
        let is_hex = id.iter().all(u8::is_ascii_hexdigit);
        let id = std::str::from_utf8(id).ok().filter(|_| is_hex);
        let id = id.and_then(|id| u64::from_str_radix(id, 16).ok()).ok_or(Malformed)?;
        let len = len.strip_prefix(b",").and_then(number).ok_or(Malformed)?;
        Ok(Self { id, len })
    }
}

/// The line that connects this end of a queue pair.
pub fn connect(near: &FarEnd) -> String {
    format!("rdma {} {} {} {}\r\n", near.qpn, near.psn, near.gid, near.mtu)
}

/// The server's end, or the line by which it refuses; `None` while the line is not whole.
///
/// # Errors
/// [`Malformed`].
pub fn connected(bytes: &[u8]) -> Read<'_, Result<FarEnd, &[u8]>> {
    let Some((line, after)) = line(bytes)? else { return Ok(None) };
    let refusals: [&[u8]; 3] = [b"ERROR", b"CLIENT_ERROR ", b"SERVER_ERROR "];
    if refusals.iter().any(|word| line.starts_with(word)) {
        return Ok(Some((Err(line), after)));
    }
    let words: Vec<_> = line.split(|b| *b == b' ').collect();
    let [b"RDMA", qpn, psn, gid, mtu] = words[..] else { return Err(Malformed) };
    let of_24_bits = |word| number(word).filter(|n: &u32| *n < NUMBERS).ok_or(Malformed);
    let gid = std::str::from_utf8(gid).ok().and_then(|gid| gid.parse::<Ipv6Addr>().ok());
    let (gid, mtu) = (gid.ok_or(Malformed)?, number(mtu).ok_or(Malformed)?);
    Ok(Some((Ok(FarEnd { qpn: of_24_bits(qpn)?, psn: of_24_bits(psn)?, gid, mtu }), after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stag_is_sixteen_digits_and_a_length() {
        let stag = Stag { id: 0xa1b2_c3d4_e5f6_0718, len: 48 };
        assert_eq!(Stag::parse(b"a1b2c3d4e5f60718,48"), Ok(stag));
        for bad in [
            &b""[..],
            b"a1b2c3d4e5f60718",
            b"a1b2c3d4e5f60718,",
            b"a1b2c3d4e5f60718,-1",
            b"a1b2c3d4e5f60718,4294967296",
            b"a1b2c3d4e5f6071,48",
            b"+1b2c3d4e5f60718,48",
            b"a1b2c3d4e5f6071g,48",
        ] {
            assert_eq!(Stag::parse(bad), Err(Malformed), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_queue_pair_is_connected_or_refused() {
        let gid = "::ffff:10.0.0.1".parse().unwrap();
        let end = FarEnd { qpn: 17, psn: 0xff_ffff, gid, mtu: 1024 };
        let line = connect(&end);
        assert_eq!(line, "rdma 17 16777215 ::ffff:10.0.0.1 1024\r\n");
        let said = line.replace("rdma", "RDMA");
        assert_eq!(connected(said.as_bytes()), Ok(Some((Ok(end), &b""[..]))));
        for n in 0..said.len() {
            assert_eq!(connected(&said.as_bytes()[..n]), Ok(None), "{n}");
        }
        assert_eq!(connected(&[b'R'; super::super::LINE_MAX_BYTES]), Err(Malformed), "no end");
        let refused = connected(b"SERVER_ERROR all queue pairs are in use\r\nx");
        let why: Result<FarEnd, &[u8]> = Err(b"SERVER_ERROR all queue pairs are in use");
        assert_eq!(refused, Ok(Some((why, &b"x"[..]))));
        for bad in [
            "RDMA 17 1 ::1\r\n",
            "RDMA 16777216 1 ::1 1024\r\n",
            "RDMA 1 1 10.0.0.1 1024\r\n",
            "RDMA 1 1 ::1 65536\r\n",
            "rdma 1 1 ::1 1024\r\n",
            "RDMA 1 1 ::1 1024 1\r\n",
        ] {
            assert_eq!(connected(bad.as_bytes()), Err(Malformed), "{bad}");
        }
    }
}
