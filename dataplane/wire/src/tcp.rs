//! TCP (RFC 9293), as far as the stream stage reads it itself: who talks to whom, flags and lengths.

use super::ipv4::{self, Addresses4, Ipv4Header};
use super::ipv6::{self, Addresses6, Ipv6Header};
use super::reply::{TTL, set_ipv4, set_ipv6};
use base::checksum::{Pieces, field, pseudo_pieces};
use std::net::IpAddr;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header without options.
pub const HEADER_BYTES: usize = size_of::<TcpHeader>();

/// The same in words of 32 bits.
const HEADER_WORDS: u16 = 5;
const _: () = assert!(HEADER_BYTES == 4 * HEADER_WORDS as usize);

const FIN: u16 = 1;
const SYN: u16 = 2;
const RST: u16 = 4;
const PSH: u16 = 8;
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

/// A segment without options: what its header says.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the fields of RFC 9293")]
pub struct Plain {
    pub ports: [u16; 2],
    pub seq: u32,
    pub ack: Option<u32>,
    pub push: bool,
    pub fin: bool,
    pub rst: bool,
    pub window: u16,
}

impl Plain {
    /// Writes all headers of a packet from one address to another, of one family; `packet` is as long as it is to be,
    /// and has its payload, which has this sum. `None`: it is too short for them, or too long.
    #[inline]
    pub fn write(
        &self,
        packet: &mut [u8],
        (src, dst): (IpAddr, IpAddr),
        payload: Pieces,
    ) -> Option<()> {
        let total_len = packet.len();
        let of_segment = |header: usize| u16::try_from(total_len.checked_sub(header)?).ok();
        let pseudo = |addresses: &[u8], len| pseudo_pieces(addresses, ipv4::TCP, len) + payload;
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let addresses = Addresses4 { src: src.octets(), dst: dst.octets() };
                let len = of_segment(ipv4::HEADER_BYTES)?;
                let mut ip =
                    Ipv4Header { protocol: ipv4::TCP, addresses, ..Ipv4Header::new_zeroed() };
                set_ipv4(&mut ip, u16::try_from(total_len).ok()?, false);
                let (head, segment) = packet.split_first_chunk_mut::<{ ipv4::HEADER_BYTES }>()?;
                *segment.first_chunk_mut()? = self.header(pseudo(addresses.as_bytes(), len));
                *head = zerocopy::transmute!(ip);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let addresses = Addresses6 { src: src.octets(), dst: dst.octets() };
                let len = of_segment(ipv6::HEADER_BYTES)?;
                let mut ip =
                    Ipv6Header { next_header: ipv4::TCP, addresses, ..Ipv6Header::new_zeroed() };
                set_ipv6(&mut ip, len, TTL);
                let (head, segment) = packet.split_first_chunk_mut::<{ ipv6::HEADER_BYTES }>()?;
                *segment.first_chunk_mut()? = self.header(pseudo(addresses.as_bytes(), len));
                *head = zerocopy::transmute!(ip);
            }
            _ => return None,
        }
        Some(())
    }

    /// Its header. `around` is the sum of what the checksum is over beside it: pseudo-header and payload.
    #[inline(always)]
    fn header(&self, around: Pieces) -> [u8; HEADER_BYTES] {
        let Self { ports: [src_port, dst_port], seq, ack, push, fin, rst, window } = *self;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(ack.is_some(), ACK) | flag(push, PSH) | flag(fin, FIN) | flag(rst, RST);
        let (offset_flags, ack) = (HEADER_WORDS << 12 | flags, ack.unwrap_or(0));
        // Of what is about to be written, and not read back: that would wait for the writing.
        let number = |n: u32| Pieces::added(u32::from_le_bytes(n.to_be_bytes()));
        let sum = Pieces::word(src_port)
            + Pieces::word(dst_port)
            + number(seq)
            + number(ack)
            + Pieces::word(offset_flags)
            + Pieces::word(window);
        zerocopy::transmute!(TcpHeader {
            src_port: src_port.into(),
            dst_port: dst_port.into(),
            seq: seq.into(),
            ack: ack.into(),
            offset_flags: offset_flags.into(),
            window: window.into(),
            checksum: field((around + sum).sum()).into(),
            urgent: 0.into(),
        })
    }
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
    fn headers_are_those_of_another_implementation() {
        for ipv6 in [false, true] {
            for (payload, ack, push) in
                [(&b""[..], Some(9), false), (b"x", None, true), (b"odd", Some(u32::MAX), true)]
            {
                let (mut want, l4) = packet(ipv6, payload);
                let head = TcpHeader::mut_from_prefix(&mut want[l4..]).unwrap().0;
                let [flags, offset] =
                    [if push { PSH } else { 0 } | ack.map_or(0, |_| ACK), 5 << 12];
                head.offset_flags = (offset | flags).into();
                head.ack = ack.unwrap_or(0).into();
                if !ipv6 {
                    let ip = Ipv4Header::mut_from_prefix(&mut want).unwrap().0;
                    set_ipv4(ip, u16::try_from(40 + payload.len()).unwrap(), false);
                }
                seal(&mut want, l4, ipv6);
                let plain = Plain {
                    ports: [4000, 11211],
                    seq: 7,
                    ack,
                    push,
                    fin: false,
                    rst: false,
                    window: 100,
                };
                let mut got = vec![0x55; want.len()];
                got[l4 + HEADER_BYTES..].copy_from_slice(payload);
                let ends: (IpAddr, IpAddr) = match ipv6 {
                    true => ([0xfd; 16].into(), [0xfc; 16].into()),
                    false => ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
                };
                plain.write(&mut got, ends, Pieces::of(payload)).unwrap();
                assert_eq!(got, want);
                assert!(verify(&got, l4, ipv6));
                for n in 0..l4 + HEADER_BYTES {
                    assert!(plain.write(&mut got[..n], ends, Pieces::of(b"")).is_none(), "{n}");
                }
                assert!(
                    plain.write(&mut got, (ends.0, [1; 4].into()), Pieces::of(b"")).is_none()
                        == ipv6
                );
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
