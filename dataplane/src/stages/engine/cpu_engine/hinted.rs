//! Requests that only the strict parser answers, but whose key an engine can find: one `mg`, or one
//! binary get.
//!
//! In: the text of a datagram. Out: a `STRICT_HINTED` descriptor with its key, or none. A wrong guess at an `mg` costs
//! a look-up and nothing else: stage 6 looks for what the strict parser reads (D1). A binary get may be answered by what
//! a GPU has for that key, so that it must be one that the strict parser would take for the same.

use base::small_bytes::word_len;
use gpu::{KeyDesc, ReqDesc, Verb, Verdict};
use memcache::KEY_MAX_BYTES;
use memcache::binary::{HEADER_BYTES, REQUEST_MAGIC, opcode};

/// Fills in the key, if there is one to be found.
pub(super) fn read(text: &[u8], text_off: u16, desc: &mut ReqDesc) {
    let found = match text {
        [b'm', b'g', b' ', line @ ..] => meta(line).map(|len| (Verb::META_GET, 3, len)),
        [REQUEST_MAGIC, packet @ ..] => binary(packet).map(|(verb, len)| (verb, HEADER_BYTES, len)),
        _ => None,
    };
    let Some((verb, skip, len)) = found else { return };
    let (Ok(skip), Ok(len)) = (u16::try_from(skip), u8::try_from(len)) else { return };
    let [key, ..] = &mut desc.keys;
    *key = KeyDesc { off: text_off + skip, len, ..KeyDesc::default() };
    desc.n_keys = 1;
    desc.verb = verb;
    desc.verdict = Verdict::STRICT_HINTED;
}

/// Bytes of the key of an `mg` line, given what follows the command, if the datagram ends with a line.
/// The flags are not looked at: with a key in base64, or in a line that is none, the look-up finds nothing.
fn meta(line: &[u8]) -> Option<usize> {
    let line = line.strip_suffix(b"\n")?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let len = word_len(line);
    (1..=KEY_MAX_BYTES).contains(&len).then_some(len)
}

/// What a binary get of this opcode asks.
fn verb_of(op: u8) -> Option<Verb> {
    match op {
        opcode::GET | opcode::GETQ => Some(Verb::BINARY_GET),
        opcode::GETK | opcode::GETKQ => Some(Verb::BINARY_GETK),
        _ => None,
    }
}

/// What a binary get that is a whole datagram asks, and the bytes of its key, given what follows the magic byte.
pub(super) fn binary(packet: &[u8]) -> Option<(Verb, usize)> {
    let &[op, k1, k0, extras, kind, _, _, b3, b2, b1, b0, ..] = packet else { return None };
    let len = usize::from(u16::from_be_bytes([k1, k0]));
    let only_key = (extras, kind) == (0, 0) && [b3, b2, b1, b0] == [0, 0, k1, k0];
    let whole = packet.len() + 1 == HEADER_BYTES + len;
    let fits = only_key && whole && (1..=KEY_MAX_BYTES).contains(&len);
    verb_of(op).filter(|_| fits).map(|verb| (verb, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &[u8]) -> Option<&[u8]> {
        let mut desc = ReqDesc::default();
        read(text, 0, &mut desc);
        let k = desc.keys[0];
        let end = usize::from(k.off) + usize::from(k.len);
        (desc.verdict == Verdict::STRICT_HINTED).then(|| &text[usize::from(k.off)..end])
    }

    #[test]
    fn one_meta_get() {
        for text in [
            &b"mg key v\r\n"[..],
            b"mg key\n",
            b"mg key s v t Ob\r\n",
            b"mg key  v\r\n",
            // Of no use, and no harm.
            b"mg key v b\r\n",
            b"mg key v\r\nmn\r\n",
            b"mg key\tv\r\n",
            b"mg key\r\r\n",
        ] {
            assert_eq!(key(text), Some(&b"key"[..]));
        }
        let long = |n| [&b"mg "[..], &vec![b'k'; n], b" v\r\n"].concat();
        assert_eq!(key(&long(250)).map(<[u8]>::len), Some(250));
        assert_eq!(key(&long(251)), None);
        for text in [
            &b"mg  key v\r\n"[..],
            b"mg \tkey v\r\n",
            b"mg \r\n",
            b"mg key v",
            b"ms key 1\r\nx\r\n",
        ] {
            assert_eq!(key(text), None, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn one_binary_get() {
        let packet = |op: u8, len: u8, body: u8, key: &[u8]| {
            let head = [0x80, op, 0, len, 0, 0, 9, 9, 0, 0, 0, body];
            [&head[..], &[7; 12], key].concat()
        };
        for op in [0, 9, 12, 13] {
            assert_eq!(key(&packet(op, 3, 3, b"a b")), Some(&b"a b"[..]));
        }
        for text in [
            packet(1, 3, 3, b"abc"),
            packet(0, 3, 4, b"abc"),
            packet(0, 3, 3, b"abcd"),
            packet(0, 3, 3, b"ab"),
            packet(0, 0, 0, b""),
            packet(0, 251, 251, &[b'k'; 251]),
        ] {
            assert_eq!(key(&text), None, "{text:?}");
            assert_eq!(key(&text[..text.len().min(23)]), None);
        }
        let mut typed = packet(0, 1, 1, b"k");
        typed[5] = 1;
        assert_eq!(key(&typed), None);
    }
}
