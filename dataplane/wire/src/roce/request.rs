//! The requester's side of a READ: requests written, responses taken apart. Not used on the data path.
//!
//! In: where a request goes and what it reads, or a frame that came back. Out: the request's whole frame,
//! or what the response says. `None`: it fits no frame, or is none that a responder sends whole. Nothing
//! panics on any bytes.

use super::{
    Aeth, BTH_BYTES, Bth, ICRC_BYTES, MASK_24, MIGRATION, PAD_SHIFT, PKEY, PORT, Psn, Reth,
    VERSION_MASK, icrc, opcode, verify_icrc,
};
use crate::build::UdpFrame;
use crate::udp::{HEADER_BYTES as UDP_BYTES, UdpHeader};
use crate::{Eth, Ipv4, Ipv6, Udp, eth};
use std::net::SocketAddr;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a request behind its UDP header.
const REQUEST_BYTES: usize = BTH_BYTES + size_of::<Reth>() + ICRC_BYTES;
/// Asks for an acknowledgement.
const ACKNOWLEDGE: u32 = 1 << 31;

/// A READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The responder's queue pair.
    pub qpn: u32,
    /// Of the request, and of its first response.
    pub psn: Psn,
    /// Where it reads.
    pub va: u64,
    /// By which right.
    pub rkey: u32,
    /// How many bytes.
    pub len: u32,
}

impl Read {
    /// Writes the frame to the beginning of `into` and says how long it is. `route` says from where
    /// to where, without tags; its payload is not looked at.
    pub fn write_to(&self, route: &UdpFrame<'_>, into: &mut [u8]) -> Option<usize> {
        let bth = Bth {
            opcode: opcode::READ_REQUEST,
            flags: MIGRATION,
            pkey: PKEY.into(),
            qpn: (self.qpn & MASK_24).into(),
            psn: (self.psn.get() | ACKNOWLEDGE).into(),
        };
        let reth = Reth { va: self.va.into(), rkey: self.rkey.into(), len: self.len.into() };
        let mut data = [0; REQUEST_BYTES];
        let (head, behind) = data.split_at_mut(BTH_BYTES);
        head.copy_from_slice(bth.as_bytes());
        behind.get_mut(..size_of::<Reth>())?.copy_from_slice(reth.as_bytes());
        let len = UdpFrame { vlans: &[], payload: &data, ..*route }.write_to(into)?;
        sign(into.get_mut(..len)?, len - REQUEST_BYTES - UDP_BYTES, route.dst.is_ipv6())?;
        Some(len)
    }
}

/// Sets the ICRC of a frame without tags, and takes the UDP checksum away.
fn sign(frame: &mut [u8], l4: usize, ipv6: bool) -> Option<()> {
    crate::with(frame.get_mut(l4..)?, |udp: &mut UdpHeader| udp.checksum = 0.into());
    let end = frame.len().checked_sub(ICRC_BYTES)?;
    let (covered, place) = frame.split_at_mut_checked(end)?;
    let l3 = u8::try_from(eth::HEADER_BYTES).ok()?;
    place.copy_from_slice(&icrc(covered, l3, u8::try_from(l4).ok()?, ipv6)?.to_le_bytes());
    Some(())
}

/// A packet that answers a READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// Who sent it, and to whom it goes.
    pub from: SocketAddr,
    /// The requester's queue pair.
    pub qpn: u32,
    /// Which packet it is.
    pub psn: Psn,
    /// What it is.
    pub opcode: u8,
    /// What is acknowledged or refused, where it says so.
    pub syndrome: Option<u8>,
    /// What was read, without padding.
    pub payload: &'a [u8],
}

impl<'a> Response<'a> {
    /// Takes a frame apart. `None`: it is no response, or its lengths or its ICRC are wrong.
    pub fn checked(frame: &'a [u8]) -> Option<Self> {
        let eth = Eth::checked(frame).ok()?;
        let (src, l4, udp) = match eth.ethertype() {
            eth::IPV4 => {
                let ip = Ipv4::checked(&eth).ok().filter(|ip| !ip.has_options())?;
                (ip.src().into(), ip.l4(), Udp::over_ipv4(&ip).filter(|_| !ip.is_fragment())?)
            }
            eth::IPV6 => {
                let ip = Ipv6::checked(&eth).ok()?;
                (std::net::IpAddr::V6(ip.src()), ip.l4(), Udp::over_ipv6(&ip)?)
            }
            _ => return None,
        };
        if udp.dst_port() != PORT || !udp.length_is_exact() {
            return None;
        }
        let data = udp.data();
        let packet = frame.get(..usize::from(l4) + UDP_BYTES + data.len())?;
        if !verify_icrc(packet, eth.l3(), l4, src.is_ipv6()) {
            return None;
        }
        let (bth, rest) = Bth::read_from_prefix(data).ok()?;
        let mut payload = rest.get(..rest.len().checked_sub(ICRC_BYTES)?)?;
        let syndrome = match bth.opcode {
            opcode::READ_MIDDLE => None,
            opcode::READ_FIRST | opcode::READ_LAST | opcode::READ_ONLY | opcode::ACKNOWLEDGE => {
                let (aeth, behind) = Aeth::read_from_prefix(payload).ok()?;
                payload = behind;
                Some(aeth.syndrome())
            }
            _ => return None,
        };
        let pad = usize::from(bth.flags >> PAD_SHIFT & 3);
        let payload = payload.get(..payload.len().checked_sub(pad)?)?;
        if bth.flags & VERSION_MASK != 0 {
            return None;
        }
        let from = SocketAddr::from((src, udp.src_port()));
        let (qpn, psn, opcode) = (bth.qpn(), bth.psn(), bth.opcode);
        Some(Self { from, qpn, psn, opcode, syndrome, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Roce, syndrome};
    use super::*;
    use driver_shim::MacAddr;

    /// By scapy 2.5 and, over IPv6, by zlib: as in `roce`.
    const READ4: &str = "02000000000202000000000108004502003c12344000401114790a0000010a000002c12312b7002800000c40ffff0012345680abcdef89abcdef000000100123456700000064c0c776d0";
    const ONLY4: &str = "020000000002020000000001080045020038123440004011147d0a0000010a000002c12312b7002400001070ffff00000011000000071f00000168656c6c6f000000d8edba1f";
    const ONLY6: &str = "02000000000202000000000186dd6025432100241140fd000000000000000000000000000001fd000000000000000000000000000002c12312b7002400001070ffff00000011000000071f00000168656c6c6f000000d1961da5";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    fn read() -> Read {
        let psn = Psn::new(0xab_cdef);
        Read { qpn: 0x12_3456, psn, va: 0x89ab_cdef_0000_0010, rkey: 0x0123_4567, len: 100 }
    }

    fn route(src: &str, dst: &str) -> UdpFrame<'static> {
        UdpFrame {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            vlans: &[],
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            payload: b"not looked at",
        }
    }

    #[test]
    fn a_request_is_what_another_implementation_writes() {
        let mut frame = [0xa5; 200];
        let n = read().write_to(&route("10.0.0.1:49443", "10.0.0.2:4791"), &mut frame).unwrap();
        let mut theirs = bytes(READ4);
        // Theirs has an ECN mark and a number, which the kernel of ours leaves 0.
        theirs[15] = 0;
        theirs[18..20].fill(0);
        theirs[24..26].copy_from_slice(&frame[24..26]);
        let end = n - ICRC_BYTES;
        assert_eq!(frame[..end], theirs[..end]);
        for (src, dst, l4) in
            [("10.0.0.1:49443", "10.0.0.2:4791", 34), ("[fd00::1]:49443", "[fd00::2]:4791", 54)]
        {
            let n = read().write_to(&route(src, dst), &mut frame).unwrap();
            assert!(verify_icrc(&frame[..n], 14, l4, l4 == 54));
            let roce = Roce::checked(&frame[usize::from(l4) + 8..n]).unwrap();
            let reth = roce.read.unwrap();
            assert_eq!((roce.bth.qpn(), roce.bth.psn()), (read().qpn, read().psn));
            assert_eq!((reth.va.get(), reth.rkey.get()), (read().va, read().rkey));
            assert_eq!(reth.len.get(), 100);
            for short in 0..n {
                assert!(read().write_to(&route(src, dst), &mut vec![0; short]).is_none());
            }
        }
    }

    #[test]
    fn responses_of_other_implementations_are_read_and_changed_ones_are_not() {
        for (hex, l4, from) in [(ONLY4, 34, "10.0.0.1:49443"), (ONLY6, 54, "[fd00::1]:49443")] {
            let frame = bytes(hex);
            let response = Response::checked(&frame).unwrap();
            let want = Response {
                from: from.parse().unwrap(),
                qpn: 0x11,
                psn: Psn::new(7),
                opcode: opcode::READ_ONLY,
                syndrome: Some(syndrome::ACK),
                payload: b"hello",
            };
            assert_eq!(response, want);
            // Bytes that the ICRC covers, and all that are cut off.
            for at in l4 + 13..frame.len() {
                let mut other = frame.clone();
                other[at] ^= 0x10;
                assert_eq!(Response::checked(&other), None, "{at}");
            }
            for n in 0..frame.len() {
                assert_eq!(Response::checked(&frame[..n]), None, "{n}");
            }
            // The padding of a short Ethernet frame is none of it.
            assert_eq!(Response::checked(&[&frame[..], &[0; 9]].concat()), Some(want));
        }
        assert_eq!(Response::checked(&bytes(READ4)), None);
    }
}
