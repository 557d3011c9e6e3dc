//! The 24 bytes that every packet begins with, and the numbers of the commands.
//!
//! ```text
//! 0 magic   1 opcode        2 key length   4 extras length   5 data type   6 vbucket / status
//! 8 length of the body (extras, key, value)   12 opaque   16 CAS id
//! ```
//!
//! Big-endian. The opaque is the client's and comes back unchanged. What a request carries as its
//! data type and vbucket is ignored, as memcached does.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// First byte of every request, and of no ASCII command.
pub const REQUEST_MAGIC: u8 = 0x80;
/// First byte of every response.
pub const RESPONSE_MAGIC: u8 = 0x81;

/// A header. Nothing in it has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// [`REQUEST_MAGIC`] or [`RESPONSE_MAGIC`].
    pub magic: u8,
    /// One of [`opcode`].
    pub opcode: u8,
    /// Bytes of the key.
    pub key_bytes: u16,
    /// Bytes before the key.
    pub extras_bytes: u8,
    /// A [`Status`](super::Status) in a response, nothing in a request.
    pub status: u16,
    /// Bytes of extras, key and value.
    pub body_bytes: u32,
    /// The client's own.
    pub opaque: [u8; 4],
    /// 0 for none.
    pub cas: u64,
}

impl Header {
    /// A request without a key, value and CAS id.
    pub const fn request(opcode: u8) -> Self {
        Self {
            magic: REQUEST_MAGIC,
            opcode,
            key_bytes: 0,
            extras_bytes: 0,
            status: 0,
            body_bytes: 0,
            opaque: [0; 4],
            cas: 0,
        }
    }

    /// The packet of these parts, with their lengths in the header; none if they do not fit there.
    pub fn packet(self, extras: &[u8], key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let header = Self {
            key_bytes: key.len().try_into().ok()?,
            extras_bytes: extras.len().try_into().ok()?,
            body_bytes: (extras.len() + key.len() + value.len()).try_into().ok()?,
            ..self
        };
        Some([&header.bytes()[..], extras, key, value].concat())
    }

    /// Reads the header that a packet begins with, if it is all there. The rest comes with it.
    pub fn split(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, body) = packet.split_first_chunk::<HEADER_BYTES>()?;
        let &[magic, opcode, k1, k0, extras_bytes, _type, s1, s0, b3, b2, b1, b0, ref rest @ ..] =
            bytes;
        let &[o3, o2, o1, o0, c7, c6, c5, c4, c3, c2, c1, c0] = rest;
        let header = Self {
            magic,
            opcode,
            key_bytes: u16::from_be_bytes([k1, k0]),
            extras_bytes,
            status: u16::from_be_bytes([s1, s0]),
            body_bytes: u32::from_be_bytes([b3, b2, b1, b0]),
            opaque: [o3, o2, o1, o0],
            cas: u64::from_be_bytes([c7, c6, c5, c4, c3, c2, c1, c0]),
        };
        Some((header, body))
    }

    /// Whether it sets a new exptime, and returns no value.
    pub fn is_touch(&self) -> bool {
        self.opcode == opcode::TOUCH
    }

    /// The header's bytes.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let [k1, k0] = self.key_bytes.to_be_bytes();
        let [s1, s0] = self.status.to_be_bytes();
        let [b3, b2, b1, b0] = self.body_bytes.to_be_bytes();
        let [o3, o2, o1, o0] = self.opaque;
        let [c7, c6, c5, c4, c3, c2, c1, c0] = self.cas.to_be_bytes();
        [
            self.magic,
            self.opcode,
            k1,
            k0,
            self.extras_bytes,
            0,
            s1,
            s0,
            b3,
            b2,
            b1,
            b0, //
            o3,
            o2,
            o1,
            o0,
            c7,
            c6,
            c5,
            c4,
            c3,
            c2,
            c1,
            c0,
        ]
    }
}

/// The commands. One that ends in `Q` is the quiet form of another.
#[expect(missing_docs, reason = "their names are what protocol_binary calls them")]
pub mod opcode {
    pub const GET: u8 = 0x00;
    pub const SET: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const REPLACE: u8 = 0x03;
    pub const DELETE: u8 = 0x04;
    pub const INCREMENT: u8 = 0x05;
    pub const DECREMENT: u8 = 0x06;
    pub const QUIT: u8 = 0x07;
    pub const FLUSH: u8 = 0x08;
    pub const GETQ: u8 = 0x09;
    pub const NOOP: u8 = 0x0a;
    pub const VERSION: u8 = 0x0b;
    pub const GETK: u8 = 0x0c;
    pub const GETKQ: u8 = 0x0d;
    pub const APPEND: u8 = 0x0e;
    pub const PREPEND: u8 = 0x0f;
    pub const STAT: u8 = 0x10;
    pub const SETQ: u8 = 0x11;
    pub const ADDQ: u8 = 0x12;
    pub const REPLACEQ: u8 = 0x13;
    pub const DELETEQ: u8 = 0x14;
    pub const INCREMENTQ: u8 = 0x15;
    pub const DECREMENTQ: u8 = 0x16;
    pub const QUITQ: u8 = 0x17;
    pub const FLUSHQ: u8 = 0x18;
    pub const APPENDQ: u8 = 0x19;
    pub const PREPENDQ: u8 = 0x1a;
    pub const TOUCH: u8 = 0x1c;
    pub const GAT: u8 = 0x1d;
    pub const GATQ: u8 = 0x1e;
    pub const SASL_LIST: u8 = 0x20;
    pub const SASL_AUTH: u8 = 0x21;
    pub const SASL_STEP: u8 = 0x22;
    pub const GATK: u8 = 0x23;
    pub const GATKQ: u8 = 0x24;

    /// The command without its quietness, and whether it was quiet.
    pub fn loud(opcode: u8) -> (u8, bool) {
        let loud = match opcode {
            GETQ => GET,
            GETKQ => GETK,
            SETQ => SET,
            ADDQ => ADD,
            REPLACEQ => REPLACE,
            DELETEQ => DELETE,
            INCREMENTQ => INCREMENT,
            DECREMENTQ => DECREMENT,
            QUITQ => QUIT,
            FLUSHQ => FLUSH,
            APPENDQ => APPEND,
            PREPENDQ => PREPEND,
            GATQ => GAT,
            GATKQ => GATK,
            _ => return (opcode, false),
        };
        (loud, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_from_its_bytes() {
        let bytes: Vec<u8> = (1..=24).map(|n| if n == 6 { 0 } else { n }).collect();
        let (header, rest) = Header::split(&bytes).unwrap();
        let want = Header {
            magic: 1,
            opcode: 2,
            key_bytes: 0x0304,
            extras_bytes: 5,
            status: 0x0708,
            body_bytes: 0x090a_0b0c,
            opaque: [13, 14, 15, 16],
            cas: 0x1112_1314_1516_1718,
        };
        assert_eq!((header, rest), (want, &b""[..]));
        assert_eq!(header.bytes(), bytes[..]);
        assert_eq!(Header::split(&bytes[..23]), None);
    }
}
