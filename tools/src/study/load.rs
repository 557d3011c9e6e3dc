//! The offline study's requests to a worker, and what the right answers are.
//!
//! In: the number of an item, or several. Out: the frame of a request, and whether a reply is the
//! right one to the byte. Items are known by their numbers: key and value follow from that.

use crate::report::named;
use base::checksum;
use driver_shim::ports::memory::{MAC, PEER_MAC};
use gnomon_client::codec::reply::append_value;
use gnomon_client::codec::{Protocol, Set, udp};
use gpu::{ReplyHead, RowFacts, WholeReply};
use memcache::binary::{HEADER_BYTES, Header, RESPONSE_MAGIC, opcode};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use wire::build::UdpFrame;

/// The worker's address.
pub const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 2), 11_211);
/// The client's.
pub const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 40_000);
/// The worker's address over IPv6.
pub const SERVER6: (Ipv6Addr, u16) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2), 11_211);
/// The client's.
const CLIENT6: (Ipv6Addr, u16) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), 40_000);
/// The network of [`Load::Vlan`].
const VLAN: u16 = 7;
/// Where the UDP header of a frame begins: behind those of Ethernet and IPv4.
pub const UDP_AT: usize = 14 + 20;
/// Where the text begins: behind the UDP and memcached headers.
const TEXT_AT: usize = UDP_AT + 8 + 8;
/// The protocol's number (RFC 768).
const UDP: u8 = 17;

named! {
    /// What is asked, one request to a datagram.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
    pub enum Load {
        /// One key that is there.
        Get = "get",
        /// One key that is not.
        Miss = "miss",
        /// Several keys that are there.
        Multiget = "multiget",
        /// A key that is there gets a new value.
        Set = "set",
        /// A one-sided read of an item that is there.
        Read = "read",
        /// One key that is there, over IPv6.
        Get6 = "get6",
        /// One key that is there, with a VLAN tag.
        Vlan = "vlan",
        /// One key that is there, by `mg` with the flags k and v.
        Mg = "mg",
        /// The same by a binary get.
        Binary = "binary",
    }
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
        let text_at = text_at(reply);
        let asked = reply.get(text_at - 8..text_at - 6);
        let load = Load::ANSWERED.into_iter().find(|load| asked == Some(&[0, *load as u8]));
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
            value_len: u8::try_from(value_len).ok()?,
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

/// Where the text of a frame begins.
fn text_at(frame: &[u8]) -> usize {
    match frame.get(12..14) {
        Some([0x86, 0xdd]) => TEXT_AT + 20,
        Some([0x81, 0x00]) => TEXT_AT + 4,
        _ => TEXT_AT,
    }
}

/// The binary protocol's answer to a get of one key that was found.
fn binary_answer(cas: u64, value: &[u8]) -> Option<Vec<u8>> {
    let header = Header { magic: RESPONSE_MAGIC, cas, ..Header::request(opcode::GET) };
    header.packet(&[0; 4], &[], value)
}

impl Load {
    /// Those whose replies are text, or packets of the binary protocol.
    pub const ANSWERED: [Self; 8] = [
        Self::Get,
        Self::Miss,
        Self::Multiget,
        Self::Set,
        Self::Get6,
        Self::Vlan,
        Self::Mg,
        Self::Binary,
    ];

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
            Self::Mg => {
                let key = shape.key(*asked.first()?);
                text.extend([b"mg ", key.as_slice(), b" k v\r\n"].concat());
            }
            Self::Binary => {
                let key = shape.key(*asked.first()?);
                text.extend(Header::request(opcode::GET).packet(&[], &key, &[])?);
            }
            Self::Get | Self::Multiget | Self::Miss | Self::Get6 | Self::Vlan => {
                let first = if self == Self::Miss { items } else { 0 };
                Protocol::Ascii.get(asked.iter().map(|i| shape.key(first + i)), &mut text);
            }
            Self::Read => return None,
        }
        let (src, dst) = match self {
            Self::Get6 => (SocketAddr::from(CLIENT6), SocketAddr::from(SERVER6)),
            _ => (SocketAddr::from(CLIENT), SocketAddr::from(SERVER)),
        };
        let vlans = if self == Self::Vlan { &[VLAN][..] } else { &[] };
        UdpFrame { src_mac: PEER_MAC, dst_mac: MAC, vlans, src, dst, payload: &text }.to_vec()
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
        let mut text = reply.get(text_at(reply)..).unwrap_or_default();
        match self {
            Self::Set => return text == b"STORED\r\n",
            Self::Mg => return is_right_meta(shape, text),
            Self::Binary => return is_right_binary(shape, text),
            _ => {}
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

/// Whether an `mg` with the flags k and v is answered so.
fn is_right_meta(shape: Shape, text: &[u8]) -> bool {
    let begins = format!("VA {} k", shape.value_bytes);
    let key = text.strip_prefix(begins.as_bytes()).and_then(|rest| shape.key_in(rest));
    key.is_some_and(|i| {
        let (key, value) = (shape.key(i), shape.value(i));
        text == [begins.as_bytes(), key.as_slice(), b"\r\n", value.as_slice(), b"\r\n"].concat()
    })
}

/// Whether a binary get is answered so. Which key it was does not show, but for the value.
fn is_right_binary(shape: Shape, packet: &[u8]) -> bool {
    let Some((Header { cas, .. }, body)) = Header::split(packet) else { return false };
    let value = body.get(4..).unwrap_or_default();
    let whole = binary_answer(cas, value);
    value.len() == shape.value_bytes
        && packet.len() == HEADER_BYTES + 4 + value.len()
        && whole.as_deref() == Some(packet)
        && (value.is_empty() || value.first().is_some_and(u8::is_ascii_digit))
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
    fn other_forms_are_answered_in_their_words() {
        let reply = |text: &[u8]| [&[0; TEXT_AT][..], text].concat();
        let hit = reply(b"VA 5 k0000000012\r\n12121\r\n");
        assert!(Load::Mg.is_right(SHAPE, &hit) && !Load::Get.is_right(SHAPE, &hit));
        let packet = binary_answer(9, b"12121").unwrap();
        assert!(Load::Binary.is_right(SHAPE, &reply(&packet)));
        for at in 0..packet.len() - 5 {
            let mut wrong = packet.clone();
            wrong[at] ^= 1;
            let is_cas = (16..24).contains(&at);
            assert_eq!(Load::Binary.is_right(SHAPE, &reply(&wrong)), is_cas, "byte {at}");
        }
        for load in [Load::Get6, Load::Vlan, Load::Mg, Load::Binary] {
            let mut frame = load.request(SHAPE, &[12], 100).unwrap();
            let at = text_at(&frame);
            assert_eq!(frame[at - 7], load as u8);
            let text: &[u8] = match load {
                Load::Mg => b"VA 5 k0000000012\r\n12121\r\n",
                Load::Binary => &packet,
                _ => b"VALUE 0000000012 0 5\r\n12121\r\nEND\r\n",
            };
            frame.truncate(at);
            frame.extend(text);
            assert!(SHAPE.is_right(&frame), "{load:?}");
            frame.pop();
            assert!(!SHAPE.is_right(&frame), "{load:?}");
        }
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
