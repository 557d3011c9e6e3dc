//! Headers that requests may have before UDP's, and how they become their replies': IPv4's, the same behind one VLAN tag, or
//! IPv6's.
//!
//! In: a frame. Out: which of them it has, and headers that are turned round. From the UDP header on all are the same: they
//! are looked at through a window that begins so many bytes into the frame that it stands where a plain frame has
//! it ([`Headers::shift`]). Nothing fails.

use super::seal;
use super::vector::Vector;
use super::window::{L4, WINDOW, part, put};
use driver_shim::{Open, TxOffload};
use wire::ipv4::{self, PLAIN_L3, PLAIN_L4};
use wire::reply::TTL;
use wire::{eth, ipv6};

/// Bytes from a frame's start that are looked at, and that replies are written to.
pub(crate) const FRAME: usize = WINDOW + SHIFT_MAX;
const SHIFT_MAX: usize = ipv6::HEADER_BYTES - ipv4::HEADER_BYTES;
/// Where IPv6 begins, and its addresses.
const V6_AT: usize = PLAIN_L3 as usize;
pub(super) const V6_ADDRESSES: usize = V6_AT + 8;

/// What of a frame's headers depends on which they are: of [`V4`] known when it is compiled, of any [`Family`] not before
/// it is run.
pub(crate) trait Headers: Copy {
    /// Which they are.
    fn family(self) -> Family;

    /// By how many bytes they are longer than a plain frame's.
    #[inline(always)]
    fn shift(self) -> usize {
        match self.family() {
            Family::V4 => 0,
            Family::Tagged => eth::TAG_BYTES,
            Family::V6 => SHIFT_MAX,
        }
    }

    /// Turns them round and sets lengths and checksums. `sum` is that of all that UDP's covers, `ip_sum` that of
    /// IPv4's header, but for its length; over IPv6 what that would be with these addresses, so that sums are made of
    /// it in the same way.
    fn turn<const CSUM_OFFLOAD: bool>(
        self,
        bytes: &mut [u8; FRAME],
        udp_len: u16,
        ip_sum: u16,
        sum: u64,
        vector: impl Vector,
    );

    /// [`window`], to be changed.
    #[inline(always)]
    fn window(self, bytes: &mut [u8; FRAME]) -> Option<&mut [u8; WINDOW]> {
        bytes.get_mut(self.shift()..)?.first_chunk_mut()
    }
}

/// IPv4 as a plain frame has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct V4;

impl Headers for V4 {
    #[inline(always)]
    fn family(self) -> Family {
        Family::V4
    }

    #[inline(always)]
    fn turn<const CSUM_OFFLOAD: bool>(
        self,
        bytes: &mut [u8; FRAME],
        udp_len: u16,
        ip_sum: u16,
        sum: u64,
        vector: impl Vector,
    ) {
        if let Some(window) = self.window(bytes) {
            seal::turn::<CSUM_OFFLOAD>(window, udp_len, ip_sum, sum, vector);
        }
    }
}

/// IPv6 without extension headers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct V6;

impl Headers for V6 {
    #[inline(always)]
    fn family(self) -> Family {
        Family::V6
    }

    #[inline(always)]
    fn turn<const CSUM_OFFLOAD: bool>(
        self,
        bytes: &mut [u8; FRAME],
        udp_len: u16,
        ip_sum: u16,
        sum: u64,
        vector: impl Vector,
    ) {
        let udp_sum = seal::udp_sum::<CSUM_OFFLOAD>(udp_len.swap_bytes(), ip_sum, sum);
        turn_v6(bytes, udp_len, udp_sum, vector);
    }
}

/// The headers before UDP's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// As a plain frame has them.
    V4,
    /// The same behind one tag.
    Tagged,
    /// IPv6 without extension headers.
    V6,
}

impl Family {
    /// That of a frame, by its EtherType.
    #[inline(always)]
    pub(crate) fn of(bytes: &[u8; FRAME]) -> Option<Self> {
        match u16::from_be_bytes(*part(bytes, 12)) {
            eth::IPV4 => Some(Self::V4),
            eth::VLAN => Some(Self::Tagged),
            eth::IPV6 => Some(Self::V6),
            _ => None,
        }
    }

    /// Its EtherType.
    pub(crate) fn ether_type(self) -> u16 {
        match self {
            Self::V4 => eth::IPV4,
            Self::Tagged => eth::VLAN,
            Self::V6 => eth::IPV6,
        }
    }

    /// Which byte of a frame shows that neither options nor extension headers stand before UDP's, and how.
    pub(crate) fn plain(self) -> (usize, u8) {
        match self {
            Self::V4 => (V6_AT, ipv4::VERSION_IHL),
            Self::Tagged => (V6_AT + eth::TAG_BYTES, ipv4::VERSION_IHL),
            Self::V6 => (V6_AT + 6, ipv4::UDP),
        }
    }
}

impl Headers for Family {
    #[inline(always)]
    fn family(self) -> Family {
        self
    }

    #[inline(always)]
    fn turn<const CSUM_OFFLOAD: bool>(
        self,
        bytes: &mut [u8; FRAME],
        udp_len: u16,
        ip_sum: u16,
        sum: u64,
        vector: impl Vector,
    ) {
        if self == Self::V6 {
            return V6.turn::<CSUM_OFFLOAD>(bytes, udp_len, ip_sum, sum, vector);
        }
        let first = u128::from_le_bytes(*part(bytes, 0));
        if let Some(window) = self.window(bytes) {
            seal::turn::<CSUM_OFFLOAD>(window, udp_len, ip_sum, sum, vector);
        }
        if self == Self::Tagged {
            // That took the window's beginning for stations, of which there are some bytes and the tag.
            let station = |from: u32| first >> from & 0xffff_ffff_ffff;
            let turned = station(48) | station(0) << 48 | first >> 96 << 96;
            put(bytes, 0, turned.to_le_bytes());
        }
    }
}

/// The window in which a frame with these headers has UDP's where a plain frame has it.
#[inline(always)]
pub(crate) fn window(bytes: &[u8; FRAME], headers: impl Headers) -> Option<&[u8; WINDOW]> {
    bytes.get(headers.shift()..)?.first_chunk()
}

#[inline(always)]
fn turn_v6(bytes: &mut [u8; FRAME], udp_len: u16, udp_sum: u16, vector: impl Vector) {
    let udp_len = udp_len.swap_bytes();
    if let Some(first) = bytes.first_chunk_mut() {
        vector.turn_ethernet(first);
    }
    // Behind the version neither class nor flow; behind the length the protocol, and the hop limit.
    let behind = u16::from_le_bytes([ipv4::UDP, TTL]);
    let word = 0x60 | u64::from(udp_len) << 32 | u64::from(behind) << 48;
    put(bytes, V6_AT, word.to_le_bytes());
    let addresses: [u8; 32] = *part(bytes, V6_ADDRESSES);
    put::<16, FRAME>(bytes, V6_ADDRESSES, *part(&addresses, 16));
    put::<16, FRAME>(bytes, V6_ADDRESSES + 16, *part(&addresses, 0));
    let udp = L4 + SHIFT_MAX;
    let ports = u32::from_le_bytes(*part(bytes, udp)).rotate_left(16);
    let word = u64::from(ports) | u64::from(udp_len) << 32 | u64::from(udp_sum) << 48;
    put(bytes, udp, word.to_le_bytes());
}

/// Sets the frame's length, and says what the port is to fill in.
#[inline(always)]
pub(crate) fn finish<const CSUM_OFFLOAD: bool, const N: usize>(
    frame: &mut Open<'_, N>,
    headers: impl Headers,
    udp_len: u16,
) {
    let family = headers.family();
    frame.set_len(family.shift() + L4 + usize::from(udp_len));
    *frame.tx = if CSUM_OFFLOAD {
        let is_v6 = family == Family::V6;
        let (l2_len, l3_len) = match family {
            Family::V4 => (PLAIN_L3, PLAIN_L4 - PLAIN_L3),
            Family::Tagged => (PLAIN_L3 + 4, PLAIN_L4 - PLAIN_L3),
            Family::V6 => (PLAIN_L3, 40),
        };
        TxOffload { ip: (!is_v6).into(), udp: true.into(), ipv6: is_v6.into(), l2_len, l3_len }
    } else {
        TxOffload::default()
    };
}
const _: () = assert!(eth::TAG_BYTES == 4 && ipv6::HEADER_BYTES == 40);
