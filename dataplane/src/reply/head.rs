//! Replies that begin with a head which an engine prepared (`gpu::ReplyHead`).
//!
//! In: a request in its frame, a head for it, and the item that the head is about. Out: the reply,
//! to the byte what it would be without a head. A head may be as wrong as a hint: [`head_fits`]
//! looks at everything in it that says to whom, in reply to what, and about which key, and the
//! caller at flags and length. What is left is arithmetic, of which an engine's batches are checked
//! now and then.

use super::{Headers, Sum};
use base::checksum::{add, add_swapped, sum};
use base::small_bytes;
use driver_shim::Frame;
use gpu::ReplyHead;
use memcache::text::TAIL;
use wire::udp_frame::{self, PAYLOAD_MAX_BYTES};

/// What comes before the key.
const VALUE_WORD: &[u8] = b"VALUE ";

/// Whether the head is that of a reply to this request with this key, as far as can be seen.
#[inline]
pub(crate) fn head_fits(request: &[u8], headers: Headers, head: &ReplyHead, key: &[u8]) -> bool {
    fits(request, headers, head, key).is_some_and(|fits| fits)
}

fn fits(request: &[u8], headers: Headers, head: &ReplyHead, key: &[u8]) -> Option<bool> {
    let bytes = head.bytes();
    let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
    let numbers = digits(head.flags) + digits(head.value_len);
    let line = VALUE_WORD.len() + key.len() + 1 + numbers + 1 + 2;
    let key_at = headers.text() + VALUE_WORD.len();
    let value_len = usize::try_from(head.value_len).ok()?;
    if head.has_line != 1
        || bytes.len() != headers.text() + line
        || line + value_len + TAIL.len() > PAYLOAD_MAX_BYTES
    {
        return Some(false);
    }
    let addresses_turned = match headers.ipv6 {
        true => turned::<16>(request, bytes, l3 + 8)?,
        false => turned::<4>(request, bytes, l3 + 12)?,
    };
    let [id_hi, id_lo] = *request.get(headers.kv()..)?.first_chunk()?;
    let frame_header = udp_frame::header(u16::from_be_bytes([id_hi, id_lo]), 0, 1);
    Some(
        small_bytes::equal(bytes.get(key_at..key_at + key.len())?, key)
            && turned::<6>(request, bytes, 0)?
            && addresses_turned
            && turned::<2>(request, bytes, l4)?
            && bytes.get(12..l3)?.iter().eq(request.get(12..l3)?)
            && *bytes.get(headers.kv()..)?.first_chunk()? == frame_header,
    )
}

/// Whether a reply's two fields of `N` bytes at `at` are the request's, the other way round.
#[inline(always)]
fn turned<const N: usize>(request: &[u8], reply: &[u8], at: usize) -> Option<bool> {
    let (theirs, ours) = (request.get(at..at + 2 * N)?, reply.get(at..at + 2 * N)?);
    Some(
        theirs.first_chunk::<N>() == ours.last_chunk()
            && theirs.last_chunk::<N>() == ours.first_chunk(),
    )
}

/// Makes the request's frame the reply: head, value, end. `value_sum` is the value's own [`sum`],
/// so that what it costs does not grow with the value, but for the copy.
///
/// `None`: the frame is unchanged, because that does not fit its slot.
#[inline]
pub(crate) fn with_head(
    frame: &mut Frame,
    headers: Headers,
    head: &ReplyHead,
    value: &[u8],
    value_sum: u16,
) -> Option<Sum> {
    let (at_value, at_tail) = (head.bytes().len(), head.bytes().len() + value.len());
    frame.set_len(at_tail + TAIL.len()).ok()?;
    let pieces = [(0, head.bytes()), (at_value, value), (at_tail, &TAIL[..])];
    for (at, piece) in pieces {
        if let Some(to) = frame.bytes_mut().get_mut(at..at + piece.len()) {
            small_bytes::copy(to, piece);
        }
    }
    let l4 = usize::from(headers.l4);
    // Sums count in words from the UDP header on.
    let put = |so_far, piece_sum, at: usize| {
        if at.abs_diff(l4).is_multiple_of(2) {
            add(so_far, piece_sum)
        } else {
            add_swapped(so_far, piece_sum)
        }
    };
    Some(Sum::Covered(put(put(head.sum, value_sum, at_value), sum(TAIL), at_tail)))
}

/// Digits of a number in decimal.
fn digits(n: u32) -> usize {
    n.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_shim::{MacAddr, Pages, Region};
    use gpu::layout::HEAD_BYTES_MAX;
    use wire::build::UdpFrame;
    use wire::reply::seal_prepared;

    const CLIENT: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const SERVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn frame(ipv6: bool, vlans: &[u16], to_server: bool, payload: &[u8]) -> Vec<u8> {
        let (client, server) = match ipv6 {
            true => ("[fd00::1]:40000", "[fd00::2]:11211"),
            false => ("10.0.0.1:40000", "10.0.0.2:11211"),
        };
        let (src, dst) = if to_server { (client, server) } else { (server, client) };
        let (src_mac, dst_mac) = if to_server { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        UdpFrame { src_mac, dst_mac, vlans, src, dst, payload }.to_vec().unwrap()
    }

    fn datagram(id: u16, text: &[u8]) -> Vec<u8> {
        [&udp_frame::header(id, 0, 1)[..], text].concat()
    }

    /// A head as a right engine would make it: cut off a whole reply.
    fn head_of(reply: &[u8], headers: Headers, flags: u32, value: &[u8]) -> ReplyHead {
        let len = reply.len() - value.len() - TAIL.len();
        let mut head = ReplyHead { has_line: 1, flags, ..ReplyHead::default() };
        head.value_len = u32::try_from(value.len()).unwrap();
        head.len = u8::try_from(len).unwrap();
        head.bytes[..len].copy_from_slice(&reply[..len]);
        let l4 = usize::from(headers.l4);
        head.bytes[l4 + 6..l4 + 8].fill(0);
        let addresses = if headers.ipv6 { 32 } else { 8 };
        let udp_len = u16::try_from(reply.len() - l4).unwrap();
        let pseudo = base::checksum::pseudo(&reply[l4 - addresses..l4], 17, udp_len);
        head.sum = add(pseudo, sum(&head.bytes[l4..len]));
        head
    }

    #[test]
    fn a_reply_with_a_head_is_the_reply_built_from_nothing() {
        let region = Region::new(2, Pages::Small).unwrap();
        for ipv6 in [false, true] {
            for vlans in [&[][..], &[7]] {
                for (key, value_len) in [("a", 0), ("ab", 1), ("abc", 64), ("abcdefgh", 333)] {
                    let value: Vec<u8> = (0..=255).cycle().skip(9).take(value_len).collect();
                    let l3 = u8::try_from(14 + 4 * vlans.len()).unwrap();
                    let headers = Headers { l3, l4: l3 + if ipv6 { 40 } else { 20 }, ipv6 };
                    let request = frame(ipv6, vlans, true, &datagram(9, b"get whatever\r\n"));
                    let line = format!("VALUE {key} 65535 {value_len}\r\n");
                    let text = [line.as_bytes(), &value, TAIL].concat();
                    let want = frame(ipv6, vlans, false, &datagram(9, &text));
                    let head = head_of(&want, headers, 65_535, &value);
                    assert!(head_fits(&request, headers, &head, key.as_bytes()));
                    let mut slot = region.alloc().unwrap();
                    slot.fill(&request).unwrap();
                    let made = with_head(&mut slot, headers, &head, &value, sum(&value)).unwrap();
                    let Sum::Covered(covered) = made else { panic!("{made:?}") };
                    let Headers { l3, l4, .. } = headers;
                    seal_prepared(slot.bytes_mut(), l3, l4, ipv6, covered);
                    assert_eq!(slot.bytes(), want, "{ipv6} {vlans:?} {key} {value_len}");
                }
            }
        }
    }

    #[test]
    fn a_head_for_another_request_does_not_fit() {
        let headers = Headers { l3: 14, l4: 34, ipv6: false };
        let request = frame(false, &[], true, &datagram(9, b"get key\r\n"));
        let text = b"VALUE key 3 2\r\nhi\r\nEND\r\n";
        let reply = frame(false, &[], false, &datagram(9, text));
        let head = head_of(&reply, headers, 3, b"hi");
        assert!(head_fits(&request, headers, &head, b"key"));
        assert!(!head_fits(&request, headers, &head, b"kez"));
        assert!(!head_fits(&request, headers, &head, b"keys"));
        assert!(!head_fits(&request, headers, &ReplyHead::default(), b"key"));
        // Stations, addresses, ports, id, and numbers that would be as long.
        for at in [0, 6, 12, 26, 30, 34, 36, 42] {
            let mut other = request.clone();
            other[at] ^= 1;
            assert!(!head_fits(&other, headers, &head, b"key"), "byte {at}");
        }
        let longer = ReplyHead { flags: 30, ..head };
        assert!(!head_fits(&request, headers, &longer, b"key"));
        for len in 0..=HEAD_BYTES_MAX + 100 {
            let cut = ReplyHead { len: u8::try_from(len).unwrap(), ..head };
            assert_eq!(head_fits(&request, headers, &cut, b"key"), len == usize::from(head.len));
        }
        for n in 0..request.len() {
            head_fits(&request[..n], headers, &head, b"key");
        }
    }

    #[test]
    fn digits_are_counted() {
        for n in [0, 1, 9, 10, 99, 100, 65_535, u32::MAX] {
            assert_eq!(digits(n), n.to_string().len());
        }
    }
}
