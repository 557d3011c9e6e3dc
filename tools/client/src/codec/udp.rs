//! The 8 bytes before the text of every datagram (protocol.txt, "UDP protocol").

use wire::udp_frame;

/// Bytes of the header.
pub const HEADER_BYTES: usize = udp_frame::HEADER_BYTES;

/// Which part of which message a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The request's id, which its reply repeats.
    pub id: u16,
    /// Number of the datagram, from 0.
    pub seq: u16,
    /// Datagrams in the message.
    pub total: u16,
}

/// The header of a request: one datagram.
pub fn header(id: u16) -> [u8; HEADER_BYTES] {
    udp_frame::header(id, 0, 1)
}

/// The header and the text of a datagram; `None` when it is too short for a header.
pub fn split(datagram: &[u8]) -> Option<(Part, &[u8])> {
    let (&[i1, i0, s1, s0, t1, t0, _, _], text) = datagram.split_first_chunk::<HEADER_BYTES>()?;
    let [id, seq, total] = [[i1, i0], [s1, s0], [t1, t0]].map(u16::from_be_bytes);
    Some((Part { id, seq, total }, text))
}

/// The text of a request that servers take: one datagram, nothing in the reserved field.
pub fn request(datagram: &[u8]) -> Option<&[u8]> {
    let (header, text) = datagram.split_first_chunk::<HEADER_BYTES>()?;
    (header[4..] == [0, 1, 0, 0]).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_less_is_none() {
        let datagram = [&header(0x0102)[..], b"get a\r\n"].concat();
        assert_eq!(datagram[..8], [1, 2, 0, 0, 0, 1, 0, 0]);
        let part = Part { id: 0x0102, seq: 0, total: 1 };
        assert_eq!(split(&datagram), Some((part, &b"get a\r\n"[..])));
        assert_eq!(request(&datagram), Some(&b"get a\r\n"[..]));
        assert_eq!(split(&datagram[..7]), None);
        for (at, byte) in [(4, 1), (5, 2), (6, 1), (7, 1)] {
            let mut other = datagram.clone();
            other[at] = byte;
            assert_eq!(request(&other), None, "{at}");
        }
        assert_eq!(
            split(b"\0\x01\0\x02\0\x03\0\0"),
            Some((Part { id: 1, seq: 2, total: 3 }, &[][..]))
        );
    }
}
