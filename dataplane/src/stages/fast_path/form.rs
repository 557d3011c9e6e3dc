//! The forms in which one key is got: `get`, of a short key or a long one, `mg`, and the binary protocol's gets, both of a
//! short one.
//!
//! In: a window with a datagram. Out: its form, where its key stands, and how long it is, if it is one such request
//! and nothing else. What an `mg` or a binary get is to be answered stands in the request, and is read again there.
//! Nothing fails.

use super::flags::Flags;
use super::long_key::long_word_len;
use crate::plain::requests::{GET, UDP_AROUND_KEY};
use crate::plain::vector::{KEY_BLOCK, Vector};
use crate::plain::window::{L4, TEXT, UDP_LEN, WINDOW, part};
use memcache::binary::{HEADER_BYTES, REQUEST_MAGIC, opcode};
use memcache::{Dialects, KEY_MAX_BYTES};
use std::ops::RangeInclusive;
use wire::udp_frame::TEXT_AFTER_UDP;

/// The third byte of the memcached frame header, where [`GET`] stands.
pub(super) const FORM_AT: usize = TEXT - 4;
/// The same for `mg`, and for the magic byte, with ones where a frame must agree.
const META: u64 = u64::from_le_bytes(*b"\0\x01\0\0mg \0");
const META_MASK: u64 = u64::MAX >> 8;
const BINARY: u64 = u64::from_le_bytes([0, 1, 0, 0, REQUEST_MAGIC, 0, 0, 0]);
const BINARY_MASK: u64 = u64::MAX >> 24;

/// UDP length of the longest `get` of a short key.
#[expect(clippy::cast_possible_truncation, reason = "some tens of bytes")]
const SHORT_MAX: u16 = (UDP_AROUND_KEY + KEY_BLOCK) as u16;

/// How a get of one key is written, and is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GetForm {
    /// `get` of a key that a block holds.
    Text,
    /// `get` of a longer key.
    Long,
    /// `mg` with flags of one letter.
    Meta,
    /// The binary protocol.
    Binary,
}

impl GetForm {
    /// By how the text begins, of a short key.
    #[inline(always)]
    pub(super) fn of_short(window: &[u8; WINDOW]) -> Option<Self> {
        if Self::Text.begins(window) {
            Some(Self::Text)
        } else if Self::Meta.begins(window) {
            Some(Self::Meta)
        } else {
            Self::Binary.begins(window).then_some(Self::Binary)
        }
    }

    /// By how the text begins, and how long it is.
    #[inline(always)]
    pub(super) fn of(window: &[u8; WINDOW]) -> Option<Self> {
        let form = Self::of_short(window)?;
        let is_long = u16::from_be_bytes(*part(window, UDP_LEN)) > SHORT_MAX;
        Some(if form == Self::Text && is_long { Self::Long } else { form })
    }

    /// Whether the text begins like that.
    #[inline(always)]
    pub(super) fn begins(self, window: &[u8; WINDOW]) -> bool {
        let (mask, first) = self.beginning();
        u64::from_le_bytes(*part(window, FORM_AT)) & mask == first
    }

    /// It is the text protocol's `get`.
    #[inline(always)]
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Long)
    }

    /// UDP lengths that it may have.
    pub(super) fn lengths(self) -> RangeInclusive<u16> {
        match self {
            Self::Text => 0..=SHORT_MAX,
            Self::Long => SHORT_MAX + 1..=u16::MAX,
            Self::Meta | Self::Binary => 0..=u16::MAX,
        }
    }

    /// What stands at [`FORM_AT`], where the first number has ones.
    #[inline(always)]
    pub(super) fn beginning(self) -> (u64, u64) {
        match self {
            Self::Text | Self::Long => (u64::MAX, GET),
            Self::Meta => (META_MASK, META),
            Self::Binary => (BINARY_MASK, BINARY),
        }
    }

    /// Where the key stands.
    #[inline(always)]
    pub(super) fn key_at(self) -> usize {
        TEXT + match self {
            Self::Text | Self::Long => b"get ".len(),
            Self::Meta => b"mg ".len(),
            Self::Binary => HEADER_BYTES,
        }
    }

    /// The length of a request's text.
    #[inline(always)]
    pub(super) fn text_len(window: &[u8; WINDOW]) -> usize {
        usize::from(u16::from_be_bytes(*part(window, UDP_LEN))).wrapping_sub(TEXT_AFTER_UDP)
    }

    /// The length of the key, if the datagram is a request of this form, which it begins like, and nothing else.
    #[inline(always)]
    pub(super) fn key_len(
        self,
        window: &[u8; WINDOW],
        udp_len: usize,
        dialects: Dialects,
        vector: impl Vector,
    ) -> Option<u8> {
        let (at, end) = (self.key_at(), L4 + udp_len);
        let len = match self {
            Self::Text => {
                let len = udp_len.wrapping_sub(UDP_AROUND_KEY);
                let is_one = len.wrapping_sub(1) < KEY_BLOCK
                    && *part(window, at + len) == *b"\r\n"
                    && vector.is_word(part(window, at), len);
                is_one.then_some(len)?
            }
            Self::Long => {
                let len = udp_len.wrapping_sub(UDP_AROUND_KEY);
                let is_one = (KEY_BLOCK + 1..=KEY_MAX_BYTES).contains(&len)
                    && *part(window, at + len) == *b"\r\n"
                    && long_word_len(window, at, vector) == len;
                is_one.then_some(len)?
            }
            Self::Meta => {
                let len = vector.word_len(part(window, at));
                let flags_end = end.checked_sub(b"\r\n".len())?;
                let is_one = len > 0
                    && *part(window, flags_end) == *b"\r\n"
                    && Flags::between(window, at + len, flags_end)?.are_usual();
                is_one.then_some(len)?
            }
            Self::Binary => {
                let [_, op, k1, k0, extras, kind, _, _, b3, b2, b1, b0] = *part(window, TEXT);
                let len = usize::from(u16::from_be_bytes([k1, k0]));
                let is_one = (extras, kind) == (0, 0)
                    && [b3, b2, b1, b0] == [0, 0, k1, k0]
                    && TEXT_AFTER_UDP + HEADER_BYTES + len == udp_len
                    && len.wrapping_sub(1) < KEY_BLOCK
                    && matches!(op, opcode::GET | opcode::GETQ | opcode::GETK | opcode::GETKQ)
                    && dialects == Dialects::Auto;
                is_one.then_some(len)?
            }
        };
        u8::try_from(len).ok()
    }
}
