//! What a request payload asks for, as far as a reply can be checked against it.

use super::datagram::Datagram;
use super::generate::SPOILT_MARK;
use crate::workload::requests::UDP_FRAME_BYTES;
use dataplane::protocol::command::KEY_MAX_BYTES;
use std::ops::Range;

/// The reply that a request calls for. Ranges count from the first byte of the frame, or of
/// whatever was parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// `get` or `gets`: some of the values, then `END`.
    Get {
        /// The keys, blank-separated.
        keys: Range<usize>,
        /// How many.
        count: u32,
    },
    /// `set` with an answer: `STORED`.
    Set,
    /// Anything else: a reply may come or not. A spoilt frame counts here even when the damage
    /// lies where only the server can see it.
    Other,
}

/// A datagram that bears a memcached UDP frame header and some request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The envelope.
    pub datagram: Datagram,
    /// Request id.
    pub id: u16,
    /// What is asked.
    pub asked: Asked,
}

impl Request {
    /// Reads a frame; `None` when it is no datagram with a frame header in it.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let datagram = Datagram::parse(frame)?;
        let payload = &frame[datagram.payload.clone()];
        let header = payload.first_chunk::<UDP_FRAME_BYTES>()?;
        let id = u16::from_be_bytes([header[0], header[1]]);
        let text = datagram.payload.start + UDP_FRAME_BYTES..datagram.payload.end;
        // One datagram of one, reserved field 0: the only requests that servers take.
        let asked = if header[4..] == [0, 1, 0, 0] {
            parse_text(&frame[text.clone()], text.start).unwrap_or(Asked::Other)
        } else {
            Asked::Other
        };
        Some(Self { datagram, id, asked })
    }
}

fn is_key(k: &[u8]) -> bool {
    !k.is_empty() && k.len() <= KEY_MAX_BYTES && k.iter().all(|b| *b > b' ' && *b != 0x7f)
}

/// `None`: nothing that a reply could be held against.
fn parse_text(text: &[u8], start: usize) -> Option<Asked> {
    let end = text.windows(2).position(|w| w == b"\r\n")?;
    let (line, data) = (&text[..end], &text[end + 2..]);
    let mut words = line.split(|b| *b == b' ');
    match words.next()? {
        verb @ (b"get" | b"gets") => {
            let mut count = 0;
            for key in words {
                if !is_key(key) || key.first() == Some(&SPOILT_MARK) {
                    return None;
                }
                count += 1;
            }
            let keys = start + verb.len() + 1..start + end;
            (count > 0 && data.is_empty()).then_some(Asked::Get { keys, count })
        }
        b"set" => {
            let key = words.next()?;
            let number = |w: Option<&[u8]>| std::str::from_utf8(w?).ok()?.parse::<u32>().ok();
            let (_flags, _exptime) = (number(words.next())?, number(words.next())?);
            let bytes = usize::try_from(number(words.next())?).ok()?;
            let whole = data.len() == bytes.checked_add(2)? && data.ends_with(b"\r\n");
            (is_key(key) && whole && words.next().is_none()).then_some(Asked::Set)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &[u8]) -> Option<Asked> {
        parse_text(text, 100)
    }

    #[test]
    fn plain_requests_can_be_held_against_a_reply() {
        assert_eq!(asked(b"get a bc\r\n"), Some(Asked::Get { keys: 104..108, count: 2 }));
        assert_eq!(asked(b"gets abc\r\n"), Some(Asked::Get { keys: 105..108, count: 1 }));
        assert_eq!(asked(b"set k 0 0 4\r\n\r\n\r\n\r\n"), Some(Asked::Set));
    }

    #[test]
    fn odd_ones_cannot() {
        let long = [b"get ", &[b'k'; 251][..], b"\r\n"].concat();
        for t in [
            &b""[..],
            b"get",
            b"get a",
            b"get \r\n",
            b"get  a\r\n",
            b"get a\r\nget b\r\n",
            b"get a\x01\r\n",
            b"get !udp-checksum\r\n",
            b"set k 0 0 4\r\nabc\r\n",
            b"set k 0 0 4\r\nabcdef",
            b"set k 0 0 x\r\nabcd\r\n",
            b"set k 0 0 1 noreply\r\na\r\n",
            b"set k 0 0 4294967295\r\na\r\n",
            b"delete k\r\n",
            &long,
        ] {
            assert_eq!(asked(t), None, "{}", t.escape_ascii());
        }
    }
}
