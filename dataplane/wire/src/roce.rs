//! RoCEv2: RDMA over UDP (InfiniBand Architecture Specification, volume 1, release 1.3, chapter 9;
//! its annex A17 for UDP, IP and the invariant CRC).
//!
//! ```text
//! UDP data:  BTH 12 | RETH 16 or AETH 4, by the opcode | payload | pad 0 to 3 | ICRC 4
//! ```
//!
//! In: the datagram of a frame that [`super::classify()`] called `Rdma`. Out: its headers, and whether
//! the ICRC is right; for replies [`seal`] sets addresses, lengths and the ICRC. Only what an RC
//! READ needs is here; [`request`] is the requester's side. Nothing panics on any bytes.

pub mod request;

use super::eth::EthHeader;
use super::ipv4::{self, Ipv4Header};
use super::ipv6::{self, Ipv6Header};
use super::reply::{TTL, set_ipv4, set_ipv6, turn_ethernet};
use super::udp::{self, UdpHeader};
use base::crc32;
use base::crc32::pieces::{Message, Piece};
use std::mem::swap;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// UDP port of RoCEv2.
pub const PORT: u16 = 4791;
/// The default partition, whole members of it.
const PKEY: u16 = 0xffff;
/// Bytes of the invariant CRC.
pub const ICRC_BYTES: usize = 4;
/// Bits of a PSN and of a QPN.
const MASK_24: u32 = 0x00ff_ffff;
/// Path MTUs, in bytes of payload, that a frame of ours can hold (of 256 to 4096).
pub const PATH_MTUS: [u16; 3] = [256, 512, 1024];

/// Opcodes of reliable connections (section 9.2.1).
pub mod opcode {
    /// The highest of a request that a responder must answer or refuse, READ requests included.
    pub(super) const REQUEST_MAX: u8 = 0x0c;
    /// RDMA READ request.
    pub const READ_REQUEST: u8 = 0x0c;
    /// The first of several responses.
    pub const READ_FIRST: u8 = 0x0d;
    /// One in the middle; it has no AETH.
    pub const READ_MIDDLE: u8 = 0x0e;
    /// The last of several.
    pub const READ_LAST: u8 = 0x0f;
    /// The only one.
    pub const READ_ONLY: u8 = 0x10;
    /// Acknowledgement, and refusals.
    pub const ACKNOWLEDGE: u8 = 0x11;
    /// Atomic operations and SENDs with invalidation: requests too.
    pub(super) const ATOMICS: std::ops::RangeInclusive<u8> = 0x13..=0x17;
}

/// Syndromes of an AETH (section 9.7.5.2.4).
pub mod syndrome {
    /// Acknowledged; no credits are counted.
    pub const ACK: u8 = 0x1f;
    /// A PSN beyond the expected one.
    pub const NAK_SEQUENCE: u8 = 0x60;
    /// A request that is none of ours, or longer than is read at once.
    pub const NAK_INVALID: u8 = 0x61;
    /// Outside what the R_Key permits.
    pub const NAK_ACCESS: u8 = 0x62;
}

/// A packet sequence number: 24 bits, and round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits.
    pub fn new(psn: u32) -> Self {
        Self(psn & MASK_24)
    }

    /// Its number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// So many packets on.
    #[must_use]
    pub fn plus(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// How far ahead of `other` it is: below 0 in the 2^23 numbers before it.
    pub fn ahead_of(self, other: Self) -> i32 {
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }
}

/// Field map of the base transport header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Bth {
    /// What it is.
    pub opcode: u8,
    /// Solicited event, migration state, pad count (2 bits), version (4 bits).
    pub flags: u8,
    /// Partition.
    pub pkey: U16,
    /// The high byte may change on the way.
    qpn: U32,
    /// The high bit requests an acknowledgement.
    psn: U32,
}

const VERSION_MASK: u8 = 0x0f;
const MIGRATION: u8 = 0x40;
const PAD_SHIFT: u8 = 4;
/// Bytes of it.
pub const BTH_BYTES: usize = size_of::<Bth>();
/// Bytes of a READ request behind its UDP header.
pub const READ_BYTES: usize = BTH_BYTES + size_of::<Reth>() + ICRC_BYTES;
/// How those begin: the bits that are compared, and what they must be ([`Roce::checked`]).
pub(crate) const READ_HEAD: ([u8; 6], [u8; 6]) =
    ([0xff, VERSION_MASK, 0x7f, 0xff, 0, 0], [opcode::READ_REQUEST, 0, 0x7f, 0xff, 0, 0]);

impl Bth {
    /// A reply's: of the request it has the migration state.
    pub fn reply(opcode: u8, pad: u8, to: u32, psn: Psn, request: &Self) -> Self {
        let flags = request.flags & MIGRATION | (pad & 3) << PAD_SHIFT;
        let (pkey, qpn) = (PKEY.into(), (to & MASK_24).into());
        Self { opcode, flags, pkey, qpn, psn: psn.get().into() }
    }

    /// The destination queue pair.
    pub fn qpn(&self) -> u32 {
        self.qpn.get() & MASK_24
    }

    /// Its sequence number.
    pub fn psn(&self) -> Psn {
        Psn::new(self.psn.get())
    }
}

/// Field map of the RDMA extended transport header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Reth {
    /// Virtual address.
    pub va: U64,
    /// Remote key.
    pub rkey: U32,
    /// Bytes to read.
    pub len: U32,
}

/// Field map of the acknowledgement extended transport header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Aeth {
    /// What is said.
    syndrome_msn: U32,
}

impl Aeth {
    /// With the number of messages that were carried out.
    pub fn new(syndrome: u8, msn: u32) -> Self {
        Self { syndrome_msn: (u32::from(syndrome) << 24 | msn & MASK_24).into() }
    }

    /// What is said.
    pub fn syndrome(&self) -> u8 {
        self.syndrome_msn.get().to_be_bytes()[0]
    }
}

/// A datagram to port 4791 whose headers are whole.
#[derive(Debug, Clone, Copy)]
pub struct Roce {
    /// Its base header.
    pub bth: Bth,
    /// Of a READ request.
    pub read: Option<Reth>,
}

impl Roce {
    /// Reads what a UDP datagram carries. `None`: cut short, of another version or partition, or a READ
    /// request that is not exactly its headers long.
    pub fn checked(data: &[u8]) -> Option<Self> {
        let (bth, rest) = Bth::read_from_prefix(data).ok()?;
        let body = rest.get(..rest.len().checked_sub(ICRC_BYTES)?)?;
        // The highest bit says whether the sender is a whole member, and either may talk to one.
        if bth.flags & VERSION_MASK != 0 || (bth.pkey.get() ^ PKEY) & 0x7fff != 0 {
            return None;
        }
        let read = match bth.opcode {
            opcode::READ_REQUEST => Some(Reth::read_from_bytes(body).ok()?),
            _ => None,
        };
        Some(Self { bth, read })
    }

    /// Whether a responder must answer or refuse it.
    pub fn is_request(&self) -> bool {
        self.bth.opcode <= opcode::REQUEST_MAX || opcode::ATOMICS.contains(&self.bth.opcode)
    }
}

/// Whether the ICRC at the end of `packet` is right: Ethernet, IP header at `l3` without options, UDP
/// header at `l4`, and all of its datagram, without padding behind it.
#[inline]
pub fn verify_icrc(packet: &[u8], l3: u8, l4: u8, ipv6: bool) -> bool {
    let Some((covered, icrc)) = packet.split_last_chunk::<ICRC_BYTES>() else { return false };
    self::icrc(covered, l3, l4, ipv6).is_some_and(|right| right.to_le_bytes() == *icrc)
}

/// The invariant CRC: over eight bytes of ones, and the packet without what routers change (IP: TOS,
/// TTL, checksum, flow label; UDP: checksum; BTH: byte 4), which counts as ones.
#[inline]
fn icrc(covered: &[u8], l3: u8, l4: u8, ipv6: bool) -> Option<u32> {
    let (ip_len, mask) = match ipv6 {
        true => (ipv6::HEADER_BYTES, &MASK6),
        false => (ipv4::HEADER_BYTES, &MASK4),
    };
    let (l3, l4) = (usize::from(l3), usize::from(l4));
    // In the place of the eight bytes is the end of the Ethernet header.
    let covered = covered.get(l3.checked_sub(PSEUDO_BYTES)?..)?;
    let is_whole = covered.len() >= PSEUDO_BYTES + ip_len + udp::HEADER_BYTES + BTH_BYTES;
    (is_whole && l4 == l3 + ip_len).then(|| crc32::masked(covered, mask))
}

/// Bytes of ones before the packet.
pub const PSEUDO_BYTES: usize = 8;
/// What of a packet over IPv4 counts as ones in its ICRC, and of those bytes before it.
pub const MASK4: [u8; crc32::MASK_BYTES] = mask(&[1, 8, 10, 11], ipv4::HEADER_BYTES);
/// The same over IPv6, where of the first byte that changes half is the version.
const MASK6: [u8; crc32::MASK_BYTES] = {
    let mut mask = mask(&[1, 2, 3, 7], ipv6::HEADER_BYTES);
    let (_, packet) = mask.split_at_mut(PSEUDO_BYTES);
    if let Some(version) = packet.first_mut() {
        *version = 0x0f;
    }
    mask
};

/// Ones for these bytes of an IP header of so many bytes, and what is the same behind each.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler alone")]
const fn mask(of_ip: &[usize; 4], ip_len: usize) -> [u8; crc32::MASK_BYTES] {
    let mut mask = [0; crc32::MASK_BYTES];
    let mut n = 0;
    while n < PSEUDO_BYTES {
        mask[n] = 0xff;
        n += 1;
    }
    n = 0;
    while n < of_ip.len() {
        mask[PSEUDO_BYTES + of_ip[n]] = 0xff;
        n += 1;
    }
    let udp = PSEUDO_BYTES + ip_len;
    (mask[udp + 6], mask[udp + 7]) = (0xff, 0xff);
    mask[udp + udp::HEADER_BYTES + 4] = 0xff;
    mask
}

/// Makes the headers of a request in `frame` those of its reply, which is to stand behind them with four
/// bytes left for the ICRC: the parties are swapped, lengths set. The source port stays
/// (the destination of every RoCEv2 packet is 4791); there is no UDP checksum, as annex A17 has it.
/// A frame that does not hold what the offsets say is left as it is.
#[inline]
pub fn turn(frame: &mut [u8], l3: u8, l4: u8, ipv6: bool) -> Option<()> {
    let (ethernet, packet) = frame.split_at_mut_checked(usize::from(l3))?;
    let ip_bytes = usize::from(l4.checked_sub(l3)?);
    let total_len = u16::try_from(packet.len()).ok()?;
    let (network, upper) = packet.split_at_mut_checked(ip_bytes)?;
    let udp_len = u16::try_from(upper.len()).ok()?;
    if upper.len() < udp::HEADER_BYTES + BTH_BYTES + ICRC_BYTES
        || ethernet.len() < size_of::<EthHeader>()
    {
        return None;
    }
    if ipv6 {
        let (ip, _) = Ipv6Header::mut_from_prefix(network).ok()?;
        swap(&mut ip.addresses.src, &mut ip.addresses.dst);
        set_ipv6(ip, udp_len, TTL);
    } else {
        let (ip, _) = Ipv4Header::mut_from_prefix(network).ok()?;
        swap(&mut ip.addresses.src, &mut ip.addresses.dst);
        set_ipv4(ip, total_len, false);
    }
    turn_ethernet(ethernet);
    super::with(upper, |udp: &mut UdpHeader| {
        (udp.len, udp.checksum) = (udp_len.into(), 0.into());
    });
    Some(())
}

/// Writes the ICRC at the end of `frame`. `payload` is what stands before it, behind all headers.
#[inline]
pub fn seal(frame: &mut [u8], l3: u8, l4: u8, ipv6: bool, payload: Piece) -> Option<()> {
    let (covered, place) = frame.split_last_chunk_mut::<ICRC_BYTES>()?;
    let headers = covered.get(..covered.len().checked_sub(payload.len())?)?;
    let headers = Message::of(icrc(headers, l3, l4, ipv6)?);
    *place = headers.then(payload).crc().to_le_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By scapy 2.5 (contrib/roce.py), which has no IPv6: those by zlib's crc32 over the bytes that
    /// annex A17.3.3 lists.
    const READ4: &str = "02000000000202000000000108004502003c12344000401114790a0000010a000002c12312b7002800000c40ffff0012345680abcdef89abcdef000000100123456700000064c0c776d0";
    const ONLY4: &str = "020000000002020000000001080045020038123440004011147d0a0000010a000002c12312b7002400001070ffff00000011000000071f00000168656c6c6f000000d8edba1f";
    const READ6: &str = "02000000000202000000000186dd6025432100281140fd000000000000000000000000000001fd000000000000000000000000000002c12312b7002800000c40ffff0012345680abcdef89abcdef000000100123456700000064252745a6";
    const ONLY6: &str = "02000000000202000000000186dd6025432100241140fd000000000000000000000000000001fd000000000000000000000000000002c12312b7002400001070ffff00000011000000071f00000168656c6c6f000000d1961da5";

    /// By Linux 6.1's rdma_rxe: READs of 45 bytes.
    const RXE4: &str = "62b2664c112002000000770108004500003cf78b400040112e890a4d00020a4d0001e04112b7002800000c00ffff0054200080bdd38434a754650000000017aabd000000002dbd7217d0";
    const RXE6: &str = "62b2664c112002000000770186dd6000000000281140fd770000000000000000000000000002fd770000000000000000000000000001e06212b7002800000c00ffff004d300080f964c834a754650000000017aabd000000002dcf63d02b";

    #[test]
    fn the_kernels_requests_are_read() {
        for (hex, l4, ipv6, qpn) in [(RXE4, 34, false, 0x54_2000), (RXE6, 54, true, 0x4d_3000)] {
            let frame = bytes(hex);
            assert!(verify_icrc(&frame, 14, l4, ipv6));
            let request = Roce::checked(&frame[usize::from(l4) + 8..]).unwrap();
            let read = request.read.unwrap();
            assert_eq!((request.bth.qpn(), request.bth.opcode), (qpn, opcode::READ_REQUEST));
            assert_eq!((read.va.get(), read.rkey.get()), (0x34a7_5465_0000_0000, 0x17aa_bd00));
            assert_eq!(read.len.get(), 45);
        }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn golden() -> [(Vec<u8>, u8, bool); 4] {
        [(READ4, 34, false), (ONLY4, 34, false), (READ6, 54, true), (ONLY6, 54, true)]
            .map(|(hex, l4, ipv6)| (bytes(hex), l4, ipv6))
    }

    #[test]
    fn the_icrc_is_that_of_other_implementations_and_sees_every_other_bit() {
        for (frame, l4, ipv6) in golden() {
            assert!(verify_icrc(&frame, 14, l4, ipv6));
            let masked: &[(usize, u8)] = match ipv6 {
                // Traffic class and flow label but the version; hop limit; UDP checksum; BTH byte 4.
                true => &[(14, 0x0f), (15, 255), (16, 255), (17, 255), (21, 255)],
                false => &[(15, 255), (22, 255), (24, 255), (25, 255)],
            };
            let l4 = usize::from(l4);
            let behind = [(l4 + 6, 255), (l4 + 7, 255), (l4 + 12, 255)];
            let masked: Vec<_> = masked.iter().copied().chain(behind).collect();
            for bit in 14 * 8..frame.len() * 8 {
                let mut other = frame.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let is_masked =
                    masked.iter().any(|&(at, bits)| at == bit / 8 && bits >> (bit % 8) & 1 == 1);
                let l4 = u8::try_from(l4).unwrap();
                assert_eq!(verify_icrc(&other, 14, l4, ipv6), is_masked, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_read_request_is_taken_apart() {
        for (frame, l4, _) in golden() {
            let data = &frame[usize::from(l4) + 8..];
            let roce = Roce::checked(data).unwrap();
            if roce.bth.opcode != opcode::READ_REQUEST {
                assert_eq!((roce.bth.qpn(), roce.bth.psn().get()), (0x11, 7));
                assert!(roce.read.is_none() && !roce.is_request());
                continue;
            }
            let read = roce.read.unwrap();
            assert_eq!((roce.bth.qpn(), roce.bth.psn().get()), (0x12_3456, 0xab_cdef));
            assert_eq!(read.va.get(), 0x89ab_cdef_0000_0010);
            assert_eq!((read.rkey.get(), read.len.get()), (0x0123_4567, 100));
            assert!(roce.is_request());
            for n in 0..data.len() {
                assert!(Roce::checked(&data[..n]).is_none(), "{n}");
            }
            assert!(Roce::checked(&[data, &[0]].concat()).is_none());
            let mut versioned = data.to_vec();
            versioned[1] |= 1;
            assert!(Roce::checked(&versioned).is_none());
            for (pkey, is_ours) in [(0x7f, true), (0xfe, false), (0, false)] {
                let mut of = data.to_vec();
                of[2] = pkey;
                assert_eq!(Roce::checked(&of).is_some(), is_ours, "{pkey}");
            }
        }
    }

    #[test]
    fn a_sealed_reply_goes_back_with_a_right_icrc() {
        for (frame, l4, ipv6) in golden() {
            let mut reply = frame.clone();
            turn(&mut reply, 14, l4, ipv6).unwrap();
            for payload in [0, 1, reply.len() - usize::from(l4) - 8 - BTH_BYTES - ICRC_BYTES] {
                let end = reply.len() - ICRC_BYTES;
                let payload = Piece::of(&reply[end - payload..end]);
                reply[end..].fill(0);
                seal(&mut reply, 14, l4, ipv6, payload).unwrap();
                assert!(verify_icrc(&reply, 14, l4, ipv6));
            }
            assert!(verify_icrc(&reply, 14, l4, ipv6));
            assert_eq!((&reply[..6], &reply[6..12]), (&frame[6..12], &frame[..6]));
            let (ip, at) = (if ipv6 { 22..38 } else { 26..30 }, if ipv6 { 38..54 } else { 30..34 });
            assert_eq!((&reply[ip.clone()], &reply[at.clone()]), (&frame[at], &frame[ip]));
            assert_eq!(reply[usize::from(l4)..][..4], frame[usize::from(l4)..][..4], "ports");
            assert!(ipv6 || crate::verify::verify_ip4_header(&reply, 14));
            for n in 0..frame.len() {
                let mut cut = frame[..n].to_vec();
                let _ = turn(&mut cut, 14, l4, ipv6);
                let payload = Piece::zeros(n % 30);
                let _ = seal(&mut cut, 14, l4, ipv6, payload);
                let _ = seal(&mut cut, l4, 14, ipv6, payload);
                verify_icrc(&cut, 14, l4, ipv6);
                verify_icrc(&cut, l4, 14, ipv6);
            }
        }
    }

    #[test]
    fn sequence_numbers_are_round() {
        let last = Psn::new(u32::MAX);
        assert_eq!((last.get(), last.plus(1).get(), last.plus(3).get()), (0xff_ffff, 0, 2));
        assert_eq!((Psn::new(2).ahead_of(last), last.ahead_of(Psn::new(2))), (3, -3));
        assert_eq!(Psn::new(1 << 23).ahead_of(Psn::new(0)), -(1 << 23));
        let aeth = Aeth::new(syndrome::NAK_ACCESS, 0xff00_0001);
        assert_eq!((aeth.syndrome(), aeth.as_bytes()), (0x62, &[0x62, 0, 0, 1][..]));
    }
}
