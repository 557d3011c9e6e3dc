//! The offline study's requests to a worker, and what the right answers are.
//!
//! In: the number of an item, or several. Out: the frame of a request, and whether a reply is the
//! right one to the byte. Items are known by their numbers: key and value follow from that.

use base::checksum;
use driver_shim::ports::memory::{MAC, PEER_MAC};
use gnomon_client::codec::reply::append_value;
use gnomon_client::codec::{Protocol, Set, udp};
use gpu::{ReplyHead, RowFacts, WholeReply};
use std::net::{Ipv4Addr, SocketAddr};
use wire::build::UdpFrame;

/// The worker's address.
pub const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 2), 11_211);
/// The client's.
pub const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 40_000);
/// Where the UDP header of a frame begins: behind those of Ethernet and IPv4.
pub const UDP_AT: usize = 14 + 20;
/// Where the text begins: behind the UDP and memcached headers.
const TEXT_AT: usize = UDP_AT + 8 + 8;
/// The protocol's number (RFC 768).
const UDP: u8 = 17;

/// What is asked, one request to a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Load {
    /// One key that is there.
    Get,
    /// One key that is not.
    Miss,
    /// Several keys that are there.
    Multiget,
    /// A key that is there gets a new value.
    Set,
    /// A one-sided read of an item that is there.
    Read,
}

/// Keys in a request of [`Load::Multiget`].
const MULTIGET_KEYS: usize = 4;

/// What the store keeps of an item beside its key and value.
const ITEM_OVERHEAD_BYTES: usize = 34;

/// Lengths of keys and values.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bytes of every key.
    pub key_bytes: usize,
    /// Bytes of every value.
    pub value_bytes: usize,
}

impl Shape {
    /// The key of item `i`: at least its decimal digits.
    pub fn key(self, i: u64) -> Vec<u8> {
        format!("{i:0width$}", width = self.key_bytes).into_bytes()
    }

    /// The value of item `i`: its number over and over, so that a reply can be checked from its
    /// key.
    pub fn value(self, i: u64) -> Vec<u8> {
        i.to_string().bytes().cycle().take(self.value_bytes).collect()
    }

    /// Bytes that an item of this shape takes in the store, whole cache lines.
    pub fn item_bytes(self) -> usize {
        (self.key_bytes + self.value_bytes + ITEM_OVERHEAD_BYTES).next_multiple_of(64)
    }

    /// Whether a reply frame is what its request must get, whatever it was: a request's number,
    /// which replies repeat, shows.
    pub fn is_right(self, reply: &[u8]) -> bool {
        let asked = reply.get(TEXT_AT - 8..TEXT_AT - 6);
        let loads = [Load::Get, Load::Miss, Load::Multiget, Load::Set];
        let load = loads.into_iter().find(|load| asked == Some(&[0, *load as u8]));
        load.is_some_and(|load| load.is_right(self, reply))
    }

    /// The reply to [`Load::Get`] for the item with this key, and the bytes of its value.
    fn reply(self, key: &[u8]) -> Option<(Vec<u8>, usize)> {
        let value = self.value(self.key_in(key)?);
        let mut text = udp::header(Load::Get as u16).to_vec();
        append_value(&key, 0, &value, &mut text);
        text.extend(b"END\r\n");
        let reply = UdpFrame {
            src_mac: MAC,
            dst_mac: PEER_MAC,
            vlans: &[],
            src: SocketAddr::from(SERVER),
            dst: SocketAddr::from(CLIENT),
            payload: &text,
        };
        Some((reply.to_vec()?, value.len()))
    }

    /// The head that a GPU makes of the reply to [`Load::Get`] for the item with this key.
    pub fn head(self, key: &[u8]) -> Option<ReplyHead> {
        let (mut reply, value_len) = self.reply(key)?;
        let udp_len = u16::try_from(reply.len() - UDP_AT).ok()?;
        reply.truncate(reply.len() - value_len - b"\r\nEND\r\n".len());
        // No checksum in it.
        reply.get_mut(UDP_AT + 6..UDP_AT + 8)?.fill(0);
        let pseudo = checksum::pseudo(reply.get(UDP_AT - 8..UDP_AT)?, UDP, udp_len);
        let mut head = ReplyHead {
            len: u8::try_from(reply.len()).ok()?,
            has_line: 1,
            sum: checksum::add(pseudo, checksum::sum(reply.get(UDP_AT..)?)),
            value_len: u32::try_from(value_len).ok()?,
            ..ReplyHead::default()
        };
        head.bytes.get_mut(..reply.len())?.copy_from_slice(&reply);
        Some(head)
    }

    /// The whole reply, as a GPU writes it, if it has one of that length.
    pub fn whole(self, key: &[u8]) -> Option<WholeReply> {
        let (mut reply, value_len) = self.reply(key)?;
        let field = reply.get_mut(UDP_AT + 6..)?.first_chunk_mut::<2>()?;
        let sum = !u16::from_be_bytes(std::mem::take(field));
        let (head, text) = reply.split_at_checked(TEXT_AT)?;
        let facts = RowFacts {
            text_len: u16::try_from(text.len()).ok()?,
            value_len: u16::try_from(value_len).ok()?,
            key_len: u8::try_from(key.len()).ok()?,
            sum,
            ..RowFacts::default()
        };
        let mut whole = WholeReply { facts, ..WholeReply::default() };
        whole.head.get_mut(..head.len())?.copy_from_slice(head);
        whole.text.get_mut(..text.len())?.copy_from_slice(text);
        Some(whole)
    }

    /// The item whose key begins this text.
    pub fn key_in(self, text: &[u8]) -> Option<u64> {
        std::str::from_utf8(text.get(..self.key_bytes)?).ok()?.parse().ok()
    }
}

impl Load {
    /// The word for people and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Miss => "miss",
            Self::Multiget => "multiget",
            Self::Set => "set",
            Self::Read => "read",
        }
    }

    /// Items that one request gets.
    pub fn keys(self) -> usize {
        if self == Self::Multiget { MULTIGET_KEYS } else { 1 }
    }

    /// The frame that gets these items, of `items` in the store. `None`: it does not fit a
    /// datagram, or is a READ: `one_sided` makes those.
    pub fn request(self, shape: Shape, asked: &[u64], items: u64) -> Option<Vec<u8>> {
        // Replies repeat the request's number: it shows what was asked.
        let mut text = udp::header(self as u16).to_vec();
        match self {
            Self::Set => {
                for &i in asked {
                    let (key, value) = (shape.key(i), shape.value(i));
                    let set = Set { key, flags: 0, ttl_s: 0, value, quiet: false };
                    Protocol::Ascii.set(&set, &mut text);
                }
            }
            Self::Get | Self::Multiget | Self::Miss => {
                let first = if self == Self::Miss { items } else { 0 };
                Protocol::Ascii.get(asked.iter().map(|i| shape.key(first + i)), &mut text);
            }
            Self::Read => return None,
        }
        UdpFrame {
            src_mac: PEER_MAC,
            dst_mac: MAC,
            vlans: &[],
            src: SocketAddr::from(CLIENT),
            dst: SocketAddr::from(SERVER),
            payload: &text,
        }
        .to_vec()
    }

    /// The text that such a request for these items must get.
    pub fn reply(self, shape: Shape, asked: &[u64]) -> Vec<u8> {
        if self == Self::Set {
            return b"STORED\r\n".to_vec();
        }
        let mut text = Vec::new();
        for i in asked.iter().filter(|_| self != Self::Miss) {
            append_value(&shape.key(*i), 0, &shape.value(*i), &mut text);
        }
        text.extend(b"END\r\n");
        text
    }

    /// Whether a reply frame is what such a request must get, whichever items it got. Nothing is
    /// said here of READs.
    pub fn is_right(self, shape: Shape, reply: &[u8]) -> bool {
        let mut text = reply.get(TEXT_AT..).unwrap_or_default();
        if self == Self::Set {
            return text == b"STORED\r\n";
        }
        let values = if self == Self::Miss { 0 } else { self.keys() };
        let mut want = Vec::new();
        for _ in 0..values {
            let key = text.strip_prefix(b"VALUE ").and_then(|rest| shape.key_in(rest));
            let Some(i) = key else { return false };
            want.clear();
            append_value(&shape.key(i), 0, &shape.value(i), &mut want);
            let Some(rest) = text.strip_prefix(want.as_slice()) else { return false };
            text = rest;
        }
        text == b"END\r\n"
    }
}

/// Whether a reply frame has this text, to the byte, and UDP's length says so.
pub fn has_text(reply: &[u8], text: &[u8]) -> bool {
    let len = reply
        .get(UDP_AT + 4..UDP_AT + 6)
        .map(|n| n.iter().fold(0, |a, b| a << 8 | usize::from(*b)));
    len == Some(TEXT_AT - UDP_AT + text.len())
        && reply.get(TEXT_AT..TEXT_AT + text.len()) == Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { key_bytes: 10, value_bytes: 5 };

    fn text(frame: &[u8]) -> &[u8] {
        &frame[TEXT_AT..]
    }

    #[test]
    fn requests_ask_for_what_they_should() {
        let ask = |load: Load, asked: &[u64]| load.request(SHAPE, asked, 100).unwrap();
        assert_eq!(text(&ask(Load::Get, &[7])), b"get 0000000007\r\n");
        assert_eq!(text(&ask(Load::Miss, &[7])), b"get 0000000107\r\n");
        assert_eq!(text(&ask(Load::Multiget, &[7, 12])), b"get 0000000007 0000000012\r\n");
        assert_eq!(text(&ask(Load::Set, &[12])), b"set 0000000012 0 0 5\r\n12121\r\n");
    }

    #[test]
    fn only_the_right_reply_is_right() {
        let reply = |text: &[u8]| [&[0; TEXT_AT][..], text].concat();
        let hit = reply(b"VALUE 0000000012 0 5\r\n12121\r\nEND\r\n");
        assert!(Load::Get.is_right(SHAPE, &hit));
        assert!(!Load::Miss.is_right(SHAPE, &hit) && !Load::Multiget.is_right(SHAPE, &hit));
        for at in TEXT_AT..hit.len() {
            let mut wrong = hit.clone();
            wrong[at] ^= 1;
            assert!(!Load::Get.is_right(SHAPE, &wrong), "byte {at}");
            assert!(!Load::Get.is_right(SHAPE, &hit[..at]), "cut at {at}");
        }
        assert_eq!(text(&hit), Load::Get.reply(SHAPE, &[12]));
        assert!(Load::Miss.is_right(SHAPE, &reply(b"END\r\n")));
        assert!(!Load::Get.is_right(SHAPE, &reply(b"END\r\n")));
        assert_eq!(Load::Miss.reply(SHAPE, &[12]), b"END\r\n");
        assert!(Load::Set.is_right(SHAPE, &reply(b"STORED\r\n")));
        assert!(!Load::Set.is_right(SHAPE, &reply(b"NOT_STORED\r\n")));
    }

    #[test]
    fn a_text_is_compared_to_the_byte_and_to_its_end() {
        let frame = |text: &[u8], len: usize| {
            let mut frame = [&[0; TEXT_AT][..], text].concat();
            frame[UDP_AT + 4..UDP_AT + 6]
                .copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
            frame
        };
        let text = Load::Get.reply(SHAPE, &[12]);
        let right = frame(&text, 16 + text.len());
        assert!(has_text(&right, &text));
        for at in TEXT_AT..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            assert!(!has_text(&wrong, &text) && !has_text(&right[..at], &text), "byte {at}");
        }
        // Another item's reply, a miss, and more or less than UDP says.
        assert!(!has_text(&right, &Load::Get.reply(SHAPE, &[13])));
        assert!(!has_text(&frame(b"END\r\n", 21), &text) && !has_text(&right, b"END\r\n"));
        assert!(!has_text(&frame(&text, 15 + text.len()), &text));
        assert!(!has_text(&frame(&text, 17 + text.len()), &text));
    }
}
