//! What a request is about, seen without judging it: so that what it will read can be prefetched.
//!
//! In: bytes that begin with a request. Out: the keys that it most likely names, and where the next request most
//! likely begins. A guess: the parser reads the request, and does not ask what was seen here. Nothing fails.

use crate::binary::{Header, REQUEST_MAGIC, opcode};
use crate::command::{KEY_MAX_BYTES, Keys, Words, first_word};
use crate::text::block_len;
use memchr::memchr;

/// Longest line that is looked at: a get of some keys.
const LINE_MAX_BYTES: usize = 1024;

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance<'a> {
    /// The keys.
    pub keys: Keys<'a>,
    /// Their items change.
    pub changes: bool,
    /// Bytes of the request.
    pub used: usize,
}

/// Looks at the first request of `input`. `None`: it names no key, the first one is too long, or it has not come as a whole.
#[inline]
pub fn glance(input: &[u8]) -> Option<Glance<'_>> {
    let seen = match input.first()? {
        &REQUEST_MAGIC => packet(input)?,
        _ => line(input)?,
    };
    let (first, _) = seen.keys.split_first()?;
    (first.len() <= KEY_MAX_BYTES).then_some(seen)
}

fn line(input: &[u8]) -> Option<Glance<'_>> {
    let end = memchr(b'\n', input.get(..LINE_MAX_BYTES).unwrap_or(input))?;
    let line = input.get(..end)?;
    let (verb, words) = first_word(line.strip_suffix(b"\r").unwrap_or(line));
    let words = Words(words);
    let get = |keys| Some(Glance { keys: Keys::Words(keys), changes: false, used: end + 1 });
    // Whether the item changes, and how many words stand between the key and the length of a data block.
    let (changes, before_len) = match verb {
        b"get" | b"gets" | b"bget" => return get(words),
        b"gat" | b"gats" => return get(words.split_first()?.1),
        b"mg" | b"me" => (false, None),
        b"md" | b"ma" | b"delete" | b"touch" | b"incr" | b"decr" => (true, None),
        b"ms" => (true, Some(0)),
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => (true, Some(2)),
        _ => return None,
    };
    let (key, behind) = words.split_first()?;
    let block = match before_len {
        Some(words) => block_len(behind.iter().nth(words)?)? + 2,
        None => 0,
    };
    Some(Glance { keys: Keys::One(key), changes, used: end + 1 + block })
}

fn packet(input: &[u8]) -> Option<Glance<'_>> {
    let (header, body) = Header::split(input)?;
    let (opcode, _) = opcode::loud(header.opcode);
    let body_len = usize::try_from(header.body_bytes).ok()?;
    let (extras, key) = (usize::from(header.extras_bytes), usize::from(header.key_bytes));
    let key = body.get(extras..extras + key).filter(|_| extras + key <= body_len)?;
    let changes = !matches!(opcode, opcode::GET | opcode::GETK | opcode::GAT | opcode::GATK);
    Some(Glance { keys: Keys::One(key), changes, used: input.len() - body.len() + body_len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, Parsed};

    /// What is seen is what the parser finds.
    #[test]
    fn sees_what_the_parser_reads() {
        let packet = |opcode, extras, value: &[u8]| {
            Header::request(opcode).packet(&vec![0; extras], b"abc", value).unwrap()
        };
        let requests: [(&[u8], bool); _] = [
            (b"get a bc  def\r\n", false),
            (b"gets a bc\n", false),
            (b"gat 10 a bc\r\n", false),
            (b"mg abc k v t\r\n", false),
            (b"ms abc 3 T0 F1\r\nx\ny\r\n", true),
            (b" set abc 1 2 3\r\nxyz\r\n", true),
            (b"cas abc 1 2 3 4 noreply\r\nxyz\r\n", true),
            (b"md abc q\r\n", true),
            (b"ma abc\r\n", true),
            (b"incr abc 1\r\n", true),
            (b"touch abc 1 noreply\r\n", true),
            (b"delete abc\r\n", true),
            (&packet(opcode::GETKQ, 0, b""), false),
            (&packet(opcode::GAT, 4, b""), false),
            (&packet(opcode::SETQ, 8, b"value"), true),
            (&packet(opcode::DELETE, 0, b""), true),
        ];
        for (request, want) in requests {
            let shown = String::from_utf8_lossy(request);
            let dialect =
                if request[0] == REQUEST_MAGIC { Dialect::Binary } else { Dialect::Ascii };
            let input = [request, b"get next\r\n"].concat();
            let Parsed::Command { command, used } = dialect.parse(&input, 1000) else {
                panic!("{shown}")
            };
            let Glance { keys, changes, used: seen } = glance(&input).unwrap();
            assert!(keys.iter().eq(command.keys().iter()), "{shown}");
            assert_eq!((changes, seen), (want, used), "{shown}");
        }
        for none in [
            &b""[..],
            b"get a",
            b"\r\n",
            b"mg\r\n",
            b"ms a\r\n",
            b"ms a x\r\n",
            b"set a 0 0\r\n",
            b"quit\r\n",
            b"get\r\n",
            b"gat 1\r\n",
            &[b"get ", &[b'k'; KEY_MAX_BYTES + 1][..], b"\r\n"].concat(),
            &[&packet(opcode::GET, 0, b"")[..8], &[0; 19]].concat(),
            b"stats settings\r\n",
            &[&[REQUEST_MAGIC, opcode::NOOP][..], &[0; 22]].concat(),
            &packet(opcode::GET, 0, b"")[..26],
        ] {
            assert_eq!(glance(none), None, "{}", String::from_utf8_lossy(none));
        }
        // Lengths that no request has.
        let long = b"set a 0 0 99999999999999999999\r\n";
        assert_eq!(glance(long), None);
    }
}
