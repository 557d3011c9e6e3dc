//! The 8-byte header of every memcached datagram (protocol.txt, "UDP protocol").
//!
//! ```text
//! 0 request id   2 sequence number   4 datagrams in this message   6 reserved
//! ```
//!
//! All big-endian. The id is the client's and comes back unchanged. What a request carries as
//! its sequence number and in the reserved field is ignored, as memcached does.

use super::udp;
use gpu::BadReason;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// From the beginning of a UDP header to the text behind this one.
pub const TEXT_AFTER_UDP: usize = udp::HEADER_BYTES + HEADER_BYTES;
/// Where the header says in how many datagrams the message comes.
pub const TOTAL_OFFSET: usize = 4;
/// Most reply bytes in one datagram: with the header 1,400, as memcached sends, which fits
/// every Ethernet path with space for tunnels.
pub const PAYLOAD_MAX_BYTES: usize = 1392;

/// The request's id, and the request text behind the header.
///
/// # Errors
/// `FrameShort` when nothing follows the header, `FrameMultipart` for a request in pieces.
#[inline]
pub fn split(datagram: &[u8]) -> Result<(u16, &[u8]), BadReason> {
    let Some((header, text)) = datagram.split_first_chunk::<HEADER_BYTES>() else {
        return Err(BadReason::FRAME_SHORT);
    };
    let &[id_hi, id_lo, _, _, total_hi, total_lo, _, _] = header;
    if text.is_empty() {
        return Err(BadReason::FRAME_SHORT);
    }
    if [total_hi, total_lo] != [0, 1] {
        return Err(BadReason::FRAME_MULTIPART);
    }
    Ok((u16::from_be_bytes([id_hi, id_lo]), text))
}

/// The header of datagram `seq` of `total`.
#[inline]
pub fn header(id: u16, seq: u16, total: u16) -> [u8; HEADER_BYTES] {
    let [a, b] = id.to_be_bytes();
    let [c, d] = seq.to_be_bytes();
    let [e, f] = total.to_be_bytes();
    [a, b, c, d, e, f, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_what_memcached_accepts() {
        assert_eq!(
            split(b"\x12\x34\x00\x09\x00\x01\xff\xffget a\r\n"),
            Ok((0x1234, &b"get a\r\n"[..]))
        );
    }

    #[test]
    fn refuses_by_name() {
        for short in [&b""[..], b"\0\0\0\0\0\x01\0", b"\0\0\0\0\0\x01\0\0"] {
            assert_eq!(split(short), Err(BadReason::FRAME_SHORT));
        }
        for total in [[0, 0], [0, 2], [1, 1]] {
            let d = [0, 1, 0, 0, total[0], total[1], 0, 0, b'g'];
            assert_eq!(split(&d), Err(BadReason::FRAME_MULTIPART));
        }
    }

    #[test]
    fn header_comes_back() {
        let mut d = header(7, 0, 1).to_vec();
        d.push(b'x');
        assert_eq!(split(&d), Ok((7, &b"x"[..])));
        assert_eq!(header(0x0102, 0x0304, 0x0506), [1, 2, 3, 4, 5, 6, 0, 0]);
    }
}
