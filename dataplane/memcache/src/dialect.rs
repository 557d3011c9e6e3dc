//! Which dialect a client speaks: the first byte of a connection shows, and of each datagram.
//!
//! In: that byte, and which dialects the service speaks at all. Out: the parser to use and
//! the form of a refusal. Never fails: what is not binary is read as ASCII, and refused as such.

use super::parsed::Parsed;
use super::refusal::Refusal;
use super::sink::Sink;
use super::{binary, text};

/// A form of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Lines of text (protocol.txt).
    Ascii,
    /// Packets with a header of 24 bytes (protocol_binary).
    Binary,
}

/// The dialects that clients may speak (`-B`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialects {
    /// Either, as the first byte says.
    #[default]
    Auto,
    /// This one, whatever the first byte is.
    Only(Dialect),
}

impl Dialects {
    /// The dialect of a connection or datagram that begins with this byte.
    pub fn of(self, first: u8) -> Dialect {
        match self {
            Self::Only(dialect) => dialect,
            // No ASCII command begins with it.
            Self::Auto if first == binary::REQUEST_MAGIC => Dialect::Binary,
            Self::Auto => Dialect::Ascii,
        }
    }

    /// Whether a request may be text: engines read text whatever is spoken.
    pub fn have_text(self) -> bool {
        self != Self::Only(Dialect::Binary)
    }

    /// Whether a request may be a packet.
    pub fn have_binary(self) -> bool {
        self != Self::Only(Dialect::Ascii)
    }
}

impl Dialect {
    /// Parses the first request of `input`. `item_max_bytes` is the item size limit (`-I`).
    pub fn parse(self, input: &[u8], item_max_bytes: usize) -> Parsed<'_> {
        match self {
            Self::Ascii => text::parse(input, item_max_bytes),
            Self::Binary => binary::parse(input, item_max_bytes),
        }
    }

    /// Writes the refusal of the request that `request` begins with. Nothing where that is not
    /// enough of a request to be answered.
    pub fn refuse(self, request: &[u8], why: Refusal, out: &mut impl Sink) {
        match self {
            Self::Ascii => out.put(why.line()),
            Self::Binary => binary::refuse(request, why, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_tells_unless_the_service_does() {
        for (dialects, first, want) in [
            (Dialects::Auto, 0x80, Dialect::Binary),
            (Dialects::Auto, 0x81, Dialect::Ascii),
            (Dialects::Auto, b'g', Dialect::Ascii),
            (Dialects::Only(Dialect::Ascii), 0x80, Dialect::Ascii),
            (Dialects::Only(Dialect::Binary), b'g', Dialect::Binary),
        ] {
            assert_eq!(dialects.of(first), want, "{dialects:?} {first:#x}");
        }
    }
}
