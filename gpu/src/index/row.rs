//! A row: what the reply to a request of one form about an item is, but for what the request itself says.
//!
//! In: an item as the store has it. Out: the text, and the facts that kernels and workers go by; then the bytes of
//! both. None where the text does not fit, or the value lies in pieces.

use super::filter::signature;
use super::form::Form;
use super::source::Found;
use crate::layout::{ROW_TEXT_MAX, RowFacts, Verb};
use crate::tables::Row;
use std::io::Write;

/// First byte of a binary response (protocol_binary.txt, section 2.1), and bytes of flags behind its header.
const RESPONSE_MAGIC: u8 = 0x81;
const EXTRAS_BYTES: u8 = 4;

/// What stands behind a text ends here at the latest: kernels compare it by words, each of the halves of two (`row_has` in
/// gpu/kernels/rows.h has the same bound).
const BEHIND_END_MAX: usize = ROW_TEXT_MAX - 2;

/// The row of an item for requests of this form.
pub(super) fn row_of(hash: u64, form: Form, found: &Found<'_>) -> Option<Row> {
    // A value in several pieces is none here.
    if usize::try_from(found.value_len).ok()? != found.value.len() {
        return None;
    }
    let mut text = [0; ROW_TEXT_MAX];
    let mut rest = &mut text[..];
    let verb = form.verb();
    match verb {
        Verb::GET => put_line(found, None, &mut rest)?,
        Verb::GETS => put_line(found, Some(found.cas), &mut rest)?,
        Verb::BINARY_GET => put_packet(found, b"", &mut rest)?,
        Verb::BINARY_GETK => put_packet(found, found.key, &mut rest)?,
        _ => put_meta(found, form, &mut rest)?,
    }
    let len = ROW_TEXT_MAX - rest.len();
    let facts = RowFacts {
        text_len: u16::try_from(len).ok()?,
        value_len: u8::try_from(found.value.len()).ok()?,
        item_class: found.class,
        key_len: u8::try_from(found.key.len()).ok()?,
        verb,
        sum: sum_of(&text),
        expiry: found.expiry,
        signature: signature(hash),
    };
    if let Some(at) = behind_text(&facts) {
        let mut rest = text.get_mut(at..BEHIND_END_MAX)?;
        rest.write_all(found.key).ok()?;
        form.flags().try_for_each(|letter| rest.write_all(&[b' ', letter])).ok()?;
    }
    Some(Row { facts, text })
}

/// `VALUE` and what follows, with the CAS id where there is one.
fn put_line(found: &Found<'_>, cas: Option<u64>, mut out: impl Write) -> Option<()> {
    for piece in [b"VALUE ", found.key] {
        out.write_all(piece).ok()?;
    }
    write!(out, " {} {}", found.flags, found.value_len).ok()?;
    if let Some(cas) = cas {
        write!(out, " {cas}").ok()?;
    }
    for piece in [b"\r\n", found.value, b"\r\nEND\r\n"] {
        out.write_all(piece).ok()?;
    }
    Some(())
}

/// The binary response, without opcode and opaque.
fn put_packet(found: &Found<'_>, key: &[u8], mut out: impl Write) -> Option<()> {
    let key_len = u16::try_from(key.len()).ok()?;
    let body = u32::from(EXTRAS_BYTES) + u32::from(key_len) + found.value_len;
    let [k1, k0] = key_len.to_be_bytes();
    // Behind the key's length: that of the extras, data type and status. Then the body's, and the opaque.
    out.write_all(&[RESPONSE_MAGIC, 0, k1, k0, EXTRAS_BYTES, 0, 0, 0]).ok()?;
    out.write_all(&body.to_be_bytes()).ok()?;
    out.write_all(&[0; 4]).ok()?;
    out.write_all(&found.cas.to_be_bytes()).ok()?;
    out.write_all(&found.flags.to_be_bytes()).ok()?;
    for piece in [key, found.value] {
        out.write_all(piece).ok()?;
    }
    Some(())
}

/// `HD` or `VA` and what each flag asks for. None where that changes with time, or there is more to say.
fn put_meta(found: &Found<'_>, form: Form, mut out: impl Write) -> Option<()> {
    let value = form.flags().any(|letter| letter == b'v').then_some(found.value);
    match value {
        _ if found.marked => return None,
        Some(value) => write!(out, "VA {}", value.len()).ok()?,
        None => out.write_all(b"HD").ok()?,
    }
    for letter in form.flags() {
        match letter {
            b'f' => write!(out, " f{}", found.flags).ok()?,
            b's' => write!(out, " s{}", found.value_len).ok()?,
            b'c' => write!(out, " c{}", found.cas).ok()?,
            b'k' => {
                [b" k", found.key].into_iter().try_for_each(|piece| out.write_all(piece)).ok()?
            }
            b't' if found.expiry != 0 => return None,
            b't' => out.write_all(b" t-1").ok()?,
            _ => {}
        }
    }
    let behind = value.map_or([&b""[..]; 2], |value| [value, b"\r\n"]);
    for piece in [&b"\r\n"[..]].iter().chain(&behind) {
        out.write_all(piece).ok()?;
    }
    Some(())
}

/// Where in the text's place that is which kernels compare, if it is not the key in a line: behind a packet the key, behind
/// the text for an `mg` the request's line from the key on.
fn behind_text(facts: &RowFacts) -> Option<usize> {
    let is_line = matches!(facts.verb, Verb::GET | Verb::GETS);
    (!is_line).then(|| usize::from(facts.text_len).next_multiple_of(4) + 2)
}

/// The ones-complement sum of the text, folded. The zeros behind it add nothing.
fn sum_of(text: &[u8; ROW_TEXT_MAX]) -> u16 {
    let (pairs, _) = text.as_chunks::<2>();
    let sum: u32 = pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

/// Bytes of the row that are in use, in whole pieces of 16.
pub(super) fn row_bytes(row: &Row) -> usize {
    let text_end = usize::from(row.facts.text_len);
    let behind = usize::from(row.facts.key_len) + 2 * usize::from(row.facts.verb.0 >> 4);
    let end = behind_text(&row.facts).map_or(text_end, |at| at + behind);
    (size_of::<RowFacts>() + end).next_multiple_of(16)
}

/// The row's bytes, as kernels read them.
pub(super) fn bytes_of(row: &Row) -> [u8; size_of::<Row>()] {
    let RowFacts { text_len, value_len, item_class, key_len, verb, sum, expiry, signature } =
        row.facts;
    let mut bytes = [0; size_of::<Row>()];
    let mut rest = &mut bytes[..];
    let mut put = |piece: &[u8]| {
        // The pieces are the row's fields, so that they fill it.
        let _ = rest.write_all(piece);
    };
    put(&text_len.to_le_bytes());
    put(&[value_len, item_class, key_len, verb.0]);
    put(&sum.to_le_bytes());
    put(&expiry.to_le_bytes());
    put(&signature.to_le_bytes());
    put(&row.text);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Found<'_> = Found {
        location: 9,
        cas: 0x0102_0304_0506_0708,
        flags: 70_000,
        value_len: 5,
        key: b"key",
        value: b"value",
        expiry: 0,
        class: 2,
        marked: false,
    };

    fn meta(flags: &[u8]) -> Form {
        Form::of_meta(flags).unwrap()
    }

    fn text(row: &Row) -> &[u8] {
        &row.text[..usize::from(row.facts.text_len)]
    }

    #[test]
    fn a_row_is_the_reply_to_a_get() {
        let row = row_of(1 << 32, Form::GET, &FOUND).unwrap();
        let text = text(&row);
        assert_eq!(text, b"VALUE key 70000 5\r\nvalue\r\nEND\r\n");
        assert_eq!(row.facts.signature, 1);
        assert_eq!(row_bytes(&row), 48);
        let bytes = bytes_of(&row);
        assert_eq!(bytes.len(), size_of::<Row>());
        assert_eq!(bytes[..6], [31, 0, 5, 2, 3, 0]);
        let sum =
            text.chunks(2).map(|p| u32::from(p[0]) << 8 | p.get(1).map_or(0, |b| u32::from(*b)));
        assert_eq!(u32::from(row.facts.sum), sum.sum::<u32>() % 0xffff);
    }

    #[test]
    fn each_verb_has_a_reply_of_its_own() {
        let row = |verb| row_of(1, Form::of(verb)?, &FOUND);
        let gets = row(Verb::GETS).unwrap();
        assert_eq!(text(&gets), b"VALUE key 70000 5 72623859790382856\r\nvalue\r\nEND\r\n");
        let head = |key_len, body| [0x81, 0, 0, key_len, 4, 0, 0, 0, 0, 0, 0, body];
        let cas_and_flags = [1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0x11, 0x70];
        let get = row(Verb::BINARY_GET).unwrap();
        assert_eq!(text(&get), [&head(0, 9)[..], &[0; 4], &cas_and_flags, b"value"].concat());
        let getk = row(Verb::BINARY_GETK).unwrap();
        assert_eq!(text(&getk), [&head(3, 12)[..], &[0; 4], &cas_and_flags, b"keyvalue"].concat());
        // What kernels compare: 33 bytes of text, and 36.
        assert_eq!((&get.text[38..41], &getk.text[38..41]), (&b"key"[..], &b"key"[..]));
        assert_eq!((row_bytes(&get), row_bytes(&getk)), (64, 64));
    }

    #[test]
    fn each_sequence_of_flags_has_a_reply_of_its_own() {
        for (flags, want) in [
            (&b""[..], &b"HD\r\n"[..]),
            (b" q", b"HD\r\n"),
            (b" v", b"VA 5\r\nvalue\r\n"),
            (b" t s", b"HD t-1 s5\r\n"),
            (b" s t f", b"HD s5 t-1 f70000\r\n"),
            (b" k v q c", b"VA 5 kkey c72623859790382856\r\nvalue\r\n"),
        ] {
            let row = row_of(1, meta(flags), &FOUND).unwrap();
            assert_eq!(text(&row), want);
            let line = [b"key", flags].concat();
            let at = want.len().next_multiple_of(4) + 2;
            assert_eq!(row.text[at..at + line.len()], line);
            assert_eq!(row_bytes(&row), (16 + at + line.len()).next_multiple_of(16));
            assert_eq!(
                (row.facts.key_len, usize::from(row.facts.verb.0)),
                (3, 4 | flags.len() << 3)
            );
        }
        let empty = row_of(1, meta(b" v"), &Found { value: b"", value_len: 0, ..FOUND }).unwrap();
        assert_eq!(text(&empty), b"VA 0\r\n\r\n");
        let none = |flags: &[u8], found| assert!(row_of(1, meta(flags), &found).is_none());
        none(b" v", Found { marked: true, ..FOUND });
        none(b" v t", Found { expiry: 9, ..FOUND });
        assert!(row_of(1, meta(b" v"), &Found { expiry: 9, ..FOUND }).is_some());
    }

    /// The last word that a kernel reads of a key is half of one behind it.
    #[test]
    fn a_key_behind_a_packet_is_within_what_kernels_read() {
        const PACKET: Form = Form::of(Verb::BINARY_GET).unwrap();
        let bytes = [b'x'; 250];
        for (key_len, value_len) in
            (1..=250).flat_map(|key| (0..=240).map(move |value| (key, value)))
        {
            let (key, value) = (&bytes[..key_len], &bytes[..value_len]);
            let found = Found { key, value, value_len: u32::try_from(value_len).unwrap(), ..FOUND };
            let Some(row) = row_of(1, PACKET, &found) else { continue };
            let at = size_of::<RowFacts>() + (28 + value_len).next_multiple_of(4) + 2;
            let read_to = at + key_len.next_multiple_of(4) + 2;
            assert!(read_to <= size_of::<Row>(), "{key_len} {value_len}");
            assert_eq!(&row.text[at - 16..][..key_len], key);
        }
    }

    #[test]
    fn what_does_not_fit_has_no_row() {
        let value = [b'v'; ROW_TEXT_MAX];
        let of = |form, n: usize, told: usize| {
            let value_len = u32::try_from(told).unwrap();
            row_of(1, form, &Found { value_len, value: &value[..n], flags: 0, ..FOUND })
        };
        let lines = "VALUE key 0 210\r\n".len() + "\r\nEND\r\n".len();
        // The key behind it ends two bytes before the row, or three, since it begins in the midst of a word.
        let packet = 24 + 4 + 2 + 3 + 3;
        // The same of the line from the key on, which ends five bytes before the row.
        let line = "VA 210\r\n".len() + "\r\n".len() + 2 + "key v".len() + 5;
        let packet_form = Form::of(Verb::BINARY_GET).unwrap();
        for (form, around) in [(Form::GET, lines), (packet_form, packet), (meta(b" v"), line)] {
            assert!(of(form, ROW_TEXT_MAX - around, ROW_TEXT_MAX - around).is_some(), "{form:?}");
            assert!(of(form, ROW_TEXT_MAX - around + 1, ROW_TEXT_MAX - around + 1).is_none());
        }
        assert!(of(Form::GET, 0, 5000).is_none(), "a value in pieces");
    }
}
