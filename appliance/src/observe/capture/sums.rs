//! Checksums of captured frames: those that a port has yet to fill in, and those that the kernel verified and did not pass on.
//!
//! In: a record. Out: the same, summed as it is on the wire, so that what reads the file takes it for what it
//! is. What came from a wire with wrong sums keeps them, and what was cut off stays as it is.

use dataplane::capture::Record;
use driver_shim::TxCaps;
use wire::verify::verify_ip4_header;
use wire::{Eth, Ipv4, Ipv6, Udp, eth};

/// Where the checksums are, from the beginning of their headers.
const IPV4_CHECKSUM: u8 = 10;
const UDP_CHECKSUM: u8 = 6;

/// Fills in what is missing.
pub(super) fn fill_in(record: &mut Record) {
    if record.bytes.len() != record.len {
        return;
    }
    if let Some((l3, l4, ipv6)) = unsummed(&record.bytes, record.is_unsummed) {
        wire::reply::seal(&mut record.bytes, l3, l4, ipv6, TxCaps::default());
    }
}

/// Where the headers are of a whole datagram without its sums.
fn unsummed(frame: &[u8], by_port: bool) -> Option<(u8, u8, bool)> {
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
    let l3 = eth.l3();
    let is_zero = |at: u8| frame.get(usize::from(at)..).is_some_and(|b| b.starts_with(&[0, 0]));
    // No wire has such frames: RFC 8200, section 8.1; RFC 791.
    let without_ip = || is_zero(l3 + IPV4_CHECKSUM) && !verify_ip4_header(frame, l3);
    let is_made = is_zero(l4 + UDP_CHECKSUM) && (ipv6 || without_ip());
    ((by_port || is_made) && udp.length_is_exact()).then_some((l3, l4, ipv6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataplane::capture::Seen;
    use driver_shim::MacAddr;
    use wire::build::UdpFrame;

    fn record(bytes: Vec<u8>, is_unsummed: bool) -> Record {
        let (at_ns, port, len) = (0, 0, bytes.len());
        Record { at_ns, seen: Seen::Received, port, len, is_unsummed, bytes }
    }

    #[test]
    fn what_is_missing_is_filled_in_and_what_is_wrong_stays() {
        for (client, server) in
            [("10.0.0.1:4000", "10.0.0.2:11211"), ("[fd00::1]:4000", "[fd00::2]:11211")]
        {
            let (src, dst) = (client.parse().unwrap(), server.parse().unwrap());
            let macs = [MacAddr([2; 6]), MacAddr([4; 6])];
            let payload = b"0123456789";
            let frame =
                UdpFrame { src_mac: macs[0], dst_mac: macs[1], vlans: &[], src, dst, payload };
            let whole = frame.to_vec().unwrap();
            let (l3, udp) = (14, if client.starts_with('[') { 54 } else { 34 });
            let filled = |change: &dyn Fn(&mut Vec<u8>), by_port| {
                let mut bytes = whole.clone();
                change(&mut bytes);
                let mut record = record(bytes, by_port);
                fill_in(&mut record);
                record.bytes
            };
            let without = |bytes: &mut Vec<u8>| {
                bytes[udp + 6..udp + 8].fill(0);
                if udp == 34 {
                    bytes[l3 + 10..l3 + 12].fill(0);
                }
            };
            assert_eq!(filled(&without, false), whole);
            assert_eq!(filled(&|bytes| bytes[udp + 7] ^= 1, true), whole);
            let kept = |change: &dyn Fn(&mut Vec<u8>)| {
                let mut as_it_was = whole.clone();
                change(&mut as_it_was);
                filled(change, false) == as_it_was
            };
            assert!(kept(&|bytes| bytes[udp + 7] ^= 1), "a wrong sum");
            assert!(kept(&|bytes| bytes[udp + 9] ^= 1), "a wrong byte");
            assert!(
                kept(&|bytes| {
                    without(bytes);
                    bytes.truncate(udp + 12)
                }),
                "a piece"
            );
            if udp == 34 {
                assert!(kept(&|bytes| bytes[udp + 6..udp + 8].fill(0)), "none was sent");
            }
            let mut cut = record(whole[..udp + 12].to_vec(), true);
            (cut.len, cut.bytes[udp + 7]) = (whole.len(), 0);
            let was = cut.bytes.clone();
            fill_in(&mut cut);
            assert_eq!(cut.bytes, was);
        }
    }
}
