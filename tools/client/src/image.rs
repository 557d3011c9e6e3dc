//! What a READ got: whether it is one version of the item that was wanted.
//!
//! ```text
//!  0  status 1 | key length 1 | 0 2 | value length 4 | flags 4 | seconds left 4 | CAS id 8 | version 8
//! 32  key | value | zeros, as far as the READ reaches
//!     low half of the version 4 | CRC-32 of version, key and value 4, at the end
//! ```
//!
//! In: the bytes of a whole READ, and the key. Out: the item in them, that there is none, or how much
//! to read. Fails: [`Unfit`], for bytes that are of several versions, of another key, or of no server's. Never
//! panics.

use crc32fast::Hasher;

/// Bytes of the head.
pub const HEAD_BYTES: usize = 32;
/// Bytes of the end.
pub const TAIL_BYTES: usize = 8;
/// Most bytes that one READ gets: a value of 64 KB with the longest key.
pub const READ_MAX_BYTES: usize = HEAD_BYTES + memcache::KEY_MAX_BYTES + (64 << 10) + TAIL_BYTES;

/// Where the version stands in the head.
const VERSION_AT: usize = 24;
/// What `seconds left` says of an item that never expires.
const FOR_EVER: u32 = u32::MAX;

/// What bytes that are of one version say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// The item.
    Item(Item<'a>),
    /// There is no such item.
    Miss,
    /// It is longer than the READ: read this many bytes.
    Longer(usize),
    /// It is longer than any READ.
    TooLong,
}

/// An item that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its value.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Seconds until it expires; `None`: never.
    pub seconds_left: Option<u32>,
    /// Its CAS id.
    pub cas: u64,
}

/// Why bytes are not to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Shorter than a head and an end, or a status that there is not.
    #[error("not what a stag names")]
    Malformed,
    /// The version at the end is not the head's, or key and value end behind it.
    #[error("torn: its ends are of two versions")]
    Torn,
    /// Both ends are of one version, and what lies between is not.
    #[error("mixed: its CRC is wrong")]
    Mixed,
    /// It is of another key, which has the same stag.
    #[error("another key's")]
    Key,
}

/// Opens what a READ got.
///
/// # Errors
/// [`Unfit`].
pub fn open<'a>(bytes: &'a [u8], key: &[u8]) -> Result<Found<'a>, Unfit> {
    let (body, tail) = bytes.split_last_chunk::<TAIL_BYTES>().ok_or(Unfit::Malformed)?;
    let (head, rest) = body.split_first_chunk::<HEAD_BYTES>().ok_or(Unfit::Malformed)?;
    let word = |at: usize| {
        let bytes = head.get(at..).and_then(<[u8]>::first_chunk::<4>);
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let [low @ .., c0, c1, c2, c3] = *tail;
    if head.get(VERSION_AT + 4..) != Some(&low[..]) {
        return Err(Unfit::Torn);
    }
    let [status, key_len, ..] = *head;
    let (key_len, value_len) = (usize::from(key_len), word(4) as usize);
    let held = if status == 0 { key_len + value_len } else { 0 };
    let held = rest.get(..held).ok_or(Unfit::Torn)?;
    let mut crc = Hasher::new();
    crc.update(head.get(VERSION_AT..).unwrap_or_default());
    crc.update(held);
    if crc.finalize() != u32::from_be_bytes([c0, c1, c2, c3]) {
        return Err(Unfit::Mixed);
    }
    match status {
        0 => {
            let value = held.strip_prefix(key).filter(|_| key_len == key.len());
            let cas = u64::from(word(16)) << 32 | u64::from(word(20));
            let seconds_left = Some(word(12)).filter(|left| *left != FOR_EVER);
            let item = |value| Found::Item(Item { value, flags: word(8), seconds_left, cas });
            value.map(item).ok_or(Unfit::Key)
        }
        1 => Ok(Found::Miss),
        2 => {
            let len = HEAD_BYTES + key_len + TAIL_BYTES + value_len;
            // What fits was not too long: no server says so.
            match len {
                _ if len <= bytes.len() => Err(Unfit::Malformed),
                _ if len > READ_MAX_BYTES => Ok(Found::TooLong),
                _ => Ok(Found::Longer(len)),
            }
        }
        _ => Err(Unfit::Malformed),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a server sends: docs/rdma.md, independent of the code above.
    #[derive(Debug, Clone)]
    pub(crate) struct Sent {
        pub(crate) status: u8,
        pub(crate) key: Vec<u8>,
        pub(crate) value: Vec<u8>,
        pub(crate) version: u64,
    }

    impl Sent {
        pub(crate) fn bytes(&self, len: usize) -> Vec<u8> {
            let mut out = vec![self.status, u8::try_from(self.key.len()).unwrap(), 0, 0];
            out.extend(u32::try_from(self.value.len()).unwrap().to_be_bytes());
            out.extend(7u32.to_be_bytes());
            out.extend(u32::MAX.to_be_bytes());
            out.extend((self.version + 1000).to_be_bytes());
            out.extend(self.version.to_be_bytes());
            if self.status == 0 {
                out.extend(&self.key);
                out.extend(&self.value);
            }
            assert!(out.len() + 8 <= len);
            let crc = crc32fast::hash(&out[24..]);
            out.resize(len - 8, 0);
            out.extend(u32::try_from(self.version & 0xffff_ffff).unwrap().to_be_bytes());
            out.extend(crc.to_be_bytes());
            out
        }

        pub(crate) fn len(&self) -> usize {
            40 + self.key.len() + self.value.len()
        }
    }

    pub(crate) fn sent(value: Vec<u8>, version: u64) -> Sent {
        Sent { status: 0, key: b"sun".to_vec(), value, version }
    }

    #[test]
    fn what_a_server_sends_is_opened() {
        let hit = sent(b"shine".to_vec(), 9);
        for len in [hit.len(), hit.len() + 1, hit.len() + 700] {
            let bytes = hit.bytes(len);
            let item = Item { value: b"shine", flags: 7, seconds_left: None, cas: 1009 };
            assert_eq!(open(&bytes, b"sun"), Ok(Found::Item(item)));
            assert_eq!(open(&bytes, b"sum"), Err(Unfit::Key));
            assert_eq!(open(&bytes, b"suns"), Err(Unfit::Key));
            assert_eq!(open(&bytes, b"su"), Err(Unfit::Key));
        }
        let miss = Sent { status: 1, key: vec![], value: vec![], version: 0 };
        assert_eq!(open(&miss.bytes(100), b"sun"), Ok(Found::Miss));
        let longer = |len| Sent { status: 2, ..sent(vec![1; len], 5) };
        assert_eq!(open(&longer(500).bytes(100), b"sun"), Ok(Found::Longer(543)));
        assert_eq!(open(&longer(66_000).bytes(100), b"sun"), Ok(Found::TooLong));
        assert_eq!(open(&longer(50).bytes(100), b"sun"), Err(Unfit::Malformed));
        let strange = Sent { status: 3, ..longer(0) };
        assert_eq!(open(&strange.bytes(100), b"sun"), Err(Unfit::Malformed));
    }

    /// An image as it is after READs were resumed or packets overtaken: each piece of either version.
    fn mixed(a: &[u8], b: &[u8], mtu: usize, of_b: &[bool]) -> Vec<u8> {
        let pieces = a.chunks(mtu).zip(b.chunks(mtu)).zip(of_b.iter().cycle());
        pieces.flat_map(|((a, b), of_b)| if *of_b { b } else { a }).copied().collect()
    }

    proptest! {
        #[test]
        fn pieces_of_two_versions_are_never_accepted(
            lens in (0usize..3000, 0usize..3000),
            extra in 0usize..600,
            mtu in prop::sample::select(vec![256usize, 512, 1024]),
            of_b in prop::collection::vec(any::<bool>(), 1..14),
            same_low in any::<bool>(),
            gone in any::<bool>(),
            seed in any::<u8>(),
        ) {
            let value = |len: usize, seed: u8| -> Vec<u8> {
                (0..len).map(|n| seed.wrapping_mul(31) ^ u8::try_from(n % 251).unwrap()).collect()
            };
            let a = sent(value(lens.0, seed), 0x1_0000_0007);
            // Where the low halves of two versions are the same, the CRC alone distinguishes them.
            let version = if same_low { 0x2_0000_0007 } else { 0x1_0000_0008 };
            let b = match gone {
                true => Sent { status: 1, key: vec![], value: vec![], version: 0 },
                false => sent(value(lens.1, !seed), version),
            };
            let len = a.len().max(b.len()) + extra;
            let (a_bytes, b_bytes) = (a.bytes(len), b.bytes(len));
            let mix = mixed(&a_bytes, &b_bytes, mtu, &of_b);
            match open(&mix, b"sun") {
                Ok(Found::Item(item)) => {
                    let whole = |v: &Sent| v.status == 0 && item.value == v.value && item.cas == v.version + 1000;
                    prop_assert!(whole(&a) || whole(&b));
                }
                Ok(Found::Miss) => prop_assert!(gone && mix[..32] == b_bytes[..32] && mix[len - 8..] == b_bytes[len - 8..]),
                Ok(other) => prop_assert!(false, "{other:?}"),
                Err(_) => prop_assert!(mix != a_bytes && mix != b_bytes),
            }
        }

        #[test]
        fn what_is_cut_short_or_changed_is_never_another_value(
            len in 0usize..300, extra in 0usize..40, at in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let whole = sent((0..len).map(|n| u8::try_from(n % 251).unwrap()).collect(), 3);
            let bytes = whole.bytes(whole.len() + extra);
            for n in 0..bytes.len() {
                prop_assert!(open(&bytes[..n], b"sun").is_err(), "{n}");
            }
            let mut other = bytes.clone();
            let at = at.index(bytes.len());
            other[at] ^= 1 << bit;
            match open(&other, b"sun") {
                Ok(Found::Item(item)) => prop_assert_eq!(item.value, &whole.value[..]),
                Ok(other) => prop_assert!(false, "{other:?}"),
                Err(_) => {}
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(open(&bytes, b"sun").is_err());
        }
    }
}
