//! TCP (RFC 9293), as far as the stream stage reads it itself: who talks to whom, flags and lengths.

use super::ipv4::{self, Ipv4Header};
use super::ipv6::{self, Ipv6Header};
use base::checksum::{Pieces, field, pseudo_pieces};
use std::net::IpAddr;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header without options.
pub const HEADER_BYTES: usize = size_of::<TcpHeader>();

const FIN: u16 = 1;
const SYN: u16 = 2;
const RST: u16 = 4;
const ACK: u16 = 16;

/// Field map of the header without options.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct TcpHeader {
    pub(crate) src_port: U16,
    pub(crate) dst_port: U16,
    pub(crate) seq: U32,
    pub(crate) ack: U32,
    pub(crate) offset_flags: U16,
    pub(crate) window: U16,
    pub(crate) checksum: U16,
    pub(crate) urgent: U16,
}

/// A segment whose header is complete, options included.
#[derive(Debug, Clone, Copy)]
pub struct Tcp<'a> {
    head: &'a TcpHeader,
}

impl<'a> Tcp<'a> {
    /// The segment that is the whole payload of an IP packet. `None`: its header is cut short, or
    /// says that it is.
    #[inline]
    pub fn checked(payload: &'a [u8]) -> Option<Self> {
        let (head, _) = TcpHeader::ref_from_prefix(payload).ok()?;
        let header_len = usize::from(head.offset_flags.get() >> 12) * 4;
        (HEADER_BYTES..=payload.len()).contains(&header_len).then_some(Self { head })
    }

    /// Source port.
    pub fn src_port(&self) -> u16 {
        self.head.src_port.get()
    }

    /// Destination port.
    pub fn dst_port(&self) -> u16 {
        self.head.dst_port.get()
    }

    /// Sequence number of its first byte, or of its SYN.
    #[inline]
    pub fn seq(&self) -> u32 {
        self.head.seq.get()
    }

    /// What it acknowledges, where it does.
    #[inline]
    pub fn ack(&self) -> u32 {
        self.head.ack.get()
    }

    /// Whether it neither opens a connection nor ends it at once.
    #[inline]
    pub fn is_of_the_middle(&self) -> bool {
        self.head.offset_flags.get() & (SYN | RST) == 0
    }

    /// Whether it has a SYN, whatever else it has.
    #[inline]
    pub fn has_syn(&self) -> bool {
        self.head.offset_flags.get() & SYN != 0
    }

    /// Whether it acknowledges.
    #[inline]
    pub fn has_ack(&self) -> bool {
        self.head.offset_flags.get() & ACK != 0
    }

    /// Whether it ends the client's side.
    #[inline]
    pub fn has_fin(&self) -> bool {
        self.head.offset_flags.get() & FIN != 0
    }

    /// Bytes of its header, options included.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        usize::from(self.head.offset_flags.get() >> 12) * 4
    }

    /// Whether it opens a connection: SYN, and neither ACK, RST nor FIN.
    #[inline]
    pub fn opens(&self) -> bool {
        self.head.offset_flags.get() & (FIN | SYN | RST | ACK) == SYN
    }

    /// Whether it ends a connection at once.
    #[inline]
    pub fn resets(&self) -> bool {
        self.head.offset_flags.get() & RST != 0
    }
}

/// The IP packet in a frame, without Ethernet and its padding, and its ends.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// From the IP header on.
    pub bytes: &'a [u8],
    /// Who sent it.
    pub src: IpAddr,
    /// Whom it is for.
    pub dst: IpAddr,
}

/// The packet whose IP header stage 3 has found at `l3`. `None`: the frame is cut short.
#[inline]
pub fn packet(frame: &[u8], l3: u8, ipv6: bool) -> Option<Packet<'_>> {
    let bytes = frame.get(usize::from(l3)..)?;
    if ipv6 {
        let (head, _) = Ipv6Header::ref_from_prefix(bytes).ok()?;
        let len = ipv6::HEADER_BYTES + usize::from(head.payload_len.get());
        let (src, dst) = (head.addresses.src.into(), head.addresses.dst.into());
        Some(Packet { bytes: bytes.get(..len)?, src, dst })
    } else {
        let (head, _) = Ipv4Header::ref_from_prefix(bytes).ok()?;
        let (src, dst) = (head.addresses.src.into(), head.addresses.dst.into());
        Some(Packet { bytes: bytes.get(..usize::from(head.total_len.get()))?, src, dst })
    }
}

/// The sum of the pseudo-header of a segment of `len` bytes behind the IP header of `packet`.
#[inline]
fn pseudo_of(packet: &[u8], ipv6: bool, len: u16) -> Option<Pieces> {
    let pieces = |addresses: &[u8]| pseudo_pieces(addresses, ipv4::TCP, len);
    if ipv6 {
        Ipv6Header::ref_from_prefix(packet).map(|(h, _)| pieces(h.addresses.as_bytes())).ok()
    } else {
        Ipv4Header::ref_from_prefix(packet).map(|(h, _)| pieces(h.addresses.as_bytes())).ok()
    }
}

/// Whether the checksum of the segment that `packet`, an IP packet of exact length, carries from
/// byte `l4` on is right.
#[inline]
pub fn verify(packet: &[u8], l4: usize, ipv6: bool) -> bool {
    let Some(segment) = packet.get(l4..) else { return false };
    let Ok(len) = u16::try_from(segment.len()) else { return false };
    let pseudo = pseudo_of(packet, ipv6, len);
    pseudo.is_some_and(|pseudo| (pseudo + Pieces::of(segment)).sum() == 0xffff)
}

/// Sets the checksum of the segment that `packet` carries from byte `l4` on. Nothing happens to a
/// packet cut short.
#[inline]
pub fn seal(packet: &mut [u8], l4: usize, ipv6: bool) {
    let len = packet.len().saturating_sub(l4);
    let Some(pseudo) = u16::try_from(len).ok().and_then(|len| pseudo_of(packet, ipv6, len)) else {
        return;
    };
    let Some(segment) = packet.get_mut(l4..) else { return };
    let set = |segment: &mut [u8], sum: u16| {
        super::with(segment, |head: &mut TcpHeader| head.checksum = sum.into());
    };
    set(segment, 0);
    let sum = field((pseudo + Pieces::of(segment)).sum());
    set(segment, sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn packet(ipv6: bool, payload: &[u8]) -> (Vec<u8>, usize) {
        let mut bytes = Vec::new();
        if ipv6 {
            let ip = PacketBuilder::ipv6([0xfd; 16], [0xfc; 16], 64);
            ip.tcp(4000, 11211, 7, 100).syn().write(&mut bytes, payload).unwrap();
            (bytes, 40)
        } else {
            let ip = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
            ip.tcp(4000, 11211, 7, 100).syn().write(&mut bytes, payload).unwrap();
            (bytes, 20)
        }
    }

    #[test]
    fn sums_are_those_of_another_implementation() {
        for ipv6 in [false, true] {
            for payload in [&b""[..], b"x", b"get a\r\n", &[0xff; 1001]] {
                let (mut bytes, l4) = packet(ipv6, payload);
                assert!(verify(&bytes, l4, ipv6));
                let want = bytes.clone();
                bytes[l4 + 16..l4 + 18].fill(0x55);
                assert!(!verify(&bytes, l4, ipv6));
                seal(&mut bytes, l4, ipv6);
                assert_eq!(bytes, want);
            }
        }
    }

    #[test]
    fn headers_must_be_whole() {
        let (bytes, l4) = packet(false, b"");
        let segment = &bytes[l4..];
        assert!(Tcp::checked(segment).is_some_and(|t| t.opens() && !t.resets()));
        for n in 0..20 {
            assert!(Tcp::checked(&segment[..n]).is_none());
        }
        let with = |offset: u8| {
            let mut s = segment.to_vec();
            s[12] = offset << 4;
            Tcp::checked(&s).is_some()
        };
        assert!(!with(4) && with(5) && !with(6));
        assert!(!verify(&bytes, 100, false) && !verify(&bytes[..10], 5, false));
    }
}
