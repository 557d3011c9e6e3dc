//! ICMP (RFC 792), ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861): what is answered.

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// ICMP type of an echo request.
pub(crate) const ECHO4_REQUEST: u8 = 8;
/// ICMP type of an echo reply.
pub const ECHO4_REPLY: u8 = 0;
/// ICMPv6 type of an echo request.
pub(crate) const ECHO6_REQUEST: u8 = 128;
/// ICMPv6 type of an echo reply.
pub const ECHO6_REPLY: u8 = 129;
/// ICMPv6 type of a neighbour solicitation.
pub(crate) const NEIGHBOUR_SOLICIT: u8 = 135;
/// ICMPv6 type of a neighbour advertisement.
pub(crate) const NEIGHBOUR_ADVERT: u8 = 136;
/// Neighbour discovery option: the source's link-layer address.
pub const OPTION_SOURCE_MAC: u8 = 1;
/// Neighbour discovery option: the target's link-layer address.
pub(crate) const OPTION_TARGET_MAC: u8 = 2;
/// The advertisement answers a solicitation.
pub const ADVERT_SOLICITED: u32 = 0x4000_0000;
/// The advertisement replaces what the asker knew.
pub const ADVERT_OVERRIDE: u32 = 0x2000_0000;

/// Hop limit of neighbour discovery: it never passed a router (RFC 4861, section 7.1.1).
pub const ND_HOP_LIMIT: u8 = 255;

/// Field map of echo messages of both versions.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields of RFC 792 and RFC 4443")]
pub struct Echo {
    pub kind: u8,
    pub code: u8,
    pub checksum: U16,
    pub id: U16,
    pub seq: U16,
}

impl Echo {
    /// Type and code in one word, as the checksum sees them.
    pub fn kind_and_code(&self) -> u16 {
        u16::from_be_bytes([self.kind, self.code])
    }
}

/// Field map of a neighbour solicitation or advertisement before its options.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields of RFC 4861")]
pub struct Neighbour {
    pub kind: u8,
    pub code: u8,
    pub checksum: U16,
    pub flags: U32,
    pub target: [u8; 16],
}

/// Field map of a link-layer address option.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MacOption {
    pub(crate) kind: u8,
    /// In units of 8 bytes.
    pub(crate) len: u8,
    pub(crate) mac: [u8; 6],
}

/// What a message is, by its first two bytes: type and code.
pub(crate) fn kind_and_code(message: &[u8]) -> Option<(u8, u8)> {
    message.first_chunk::<2>().map(|&[kind, code]| (kind, code))
}
