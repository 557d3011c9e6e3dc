//! Checksums of captured frames: those that a port has yet to fill in, and those that the kernel verified and did not pass on.
//!
//! In: a record that lacks them. Out: the same, summed as it is on the wire, so that what reads the file takes it for what it
//! is. What was cut off, or is no whole datagram, stays as it is.

use dataplane::capture::Record;
use driver_shim::TxCaps;
use wire::{Eth, Ipv4, Ipv6, Udp, eth};

/// Fills them in.
pub(super) fn fill_in(record: &mut Record) {
    if record.bytes.len() != record.len {
        return;
    }
    if let Some((l3, l4, ipv6)) = headers(&record.bytes) {
        wire::reply::seal(&mut record.bytes, l3, l4, ipv6, TxCaps::default());
    }
}

/// Where the headers are of a whole datagram.
fn headers(frame: &[u8]) -> Option<(u8, u8, bool)> {
    let eth = Eth::checked(frame).ok()?;
    let (l4, udp, ipv6) = match eth.ethertype() {
        eth::IPV4 => {
            let ip =
                Ipv4::checked(&eth).ok().filter(|ip| !ip.has_options() && !ip.is_fragment())?;
            (ip.l4(), Udp::over_ipv4(&ip)?, false)
        }
        eth::IPV6 => {
            let ip = Ipv6::checked(&eth).ok()?;
            (ip.l4(), Udp::over_ipv6(&ip)?, true)
        }
        _ => return None,
    };
    udp.length_is_exact().then_some((eth.l3(), l4, ipv6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataplane::capture::Seen;
    use driver_shim::MacAddr;
    use wire::build::UdpFrame;

    fn filled(bytes: &[u8], len: usize) -> Vec<u8> {
        let (at_ns, port, bytes) = (0, 0, bytes.to_vec());
        let mut record =
            Record { at_ns, seen: Seen::Received, port, len, is_unsummed: true, bytes };
        fill_in(&mut record);
        record.bytes
    }

    #[test]
    fn whole_datagrams_get_their_sums() {
        for (client, server) in
            [("10.0.0.1:4000", "10.0.0.2:11211"), ("[fd00::1]:4000", "[fd00::2]:11211")]
        {
            let (src, dst) = (client.parse().unwrap(), server.parse().unwrap());
            let (src_mac, dst_mac) = (MacAddr([2; 6]), MacAddr([4; 6]));
            let payload = b"0123456789";
            let whole = UdpFrame { src_mac, dst_mac, vlans: &[], src, dst, payload };
            let whole = whole.to_vec().unwrap();
            let udp = if client.starts_with('[') { 54 } else { 34 };
            let mut without = whole.clone();
            without[udp + 6..udp + 8].fill(0);
            if udp == 34 {
                without[24..26].fill(0);
            }
            assert_eq!(filled(&without, without.len()), whole);
            // A first fragment; what was cut off; nothing of ours.
            let piece = &without[..udp + 12];
            assert_eq!(filled(piece, piece.len()), piece);
            assert_eq!(filled(piece, without.len()), piece);
            without[if udp == 34 { 23 } else { 20 }] = 6;
            assert_eq!(filled(&without, without.len()), without);
        }
    }
}
