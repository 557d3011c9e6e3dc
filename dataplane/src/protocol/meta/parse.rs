//! Meta command lines: bytes to [`Request`]s.
//!
//! In: what follows the two letters. Out: what [`ascii`](crate::protocol::ascii) gives for any
//! command. A line is refused in the words, and for the first of several reasons in the order, of
//! memcached; a refused `ms` whose length was understood takes its data block with it.

use super::{Fault, Flags, KEY_MAX_BYTES, Request, Verb, Words, decode};
use crate::protocol::ascii::{block_len, number, refused};
use crate::protocol::command::{Command, Keys, Refusal, StoreMode};
use crate::protocol::parsed::Parsed;

/// Most words behind the key, the length of a data block among them.
const WORDS_MAX: usize = 17;

/// Longest O flag, its letter included, in bytes.
const OPAQUE_MAX_BYTES: usize = 32;

/// Parses the line of the command `m` and `verb`. `rest` is what follows these two letters,
/// without its line end; the line takes the first `used` bytes of `input`.
pub fn parse<'a>(
    verb: u8,
    rest: &'a [u8],
    input: &'a [u8],
    used: usize,
    item_max_bytes: usize,
) -> Parsed<'a> {
    let result = match (verb, Keys(rest).split_first()) {
        (b'n', _) => Ok(Request { verb: Verb::Noop, key: b"", flags: Flags::none() }),
        (b'e', None) => Err(Refusal::BadLineFormat),
        (b's', Some((key, words))) => return set(key, words, input, used, item_max_bytes),
        (b'e' | b'g' | b'd' | b'a', Some((key, _))) if key.len() > KEY_MAX_BYTES => {
            Err(Refusal::BadLineFormat)
        }
        (b'e', Some((key, words))) => debug(key, words),
        (b'g', Some((key, words))) => get(key, words),
        (b'd', Some((key, words))) => delete(key, words),
        (b'a', Some((key, words))) => arith(key, words),
        _ => Err(Refusal::Error),
    };
    Parsed::Command { command: command(result), used }
}

fn command(result: Result<Request<'_>, Refusal>) -> Command<'_> {
    match result {
        Ok(request) => Command::Meta(request),
        Err(why) => refused(why, false),
    }
}

fn debug<'a>(key: &'a [u8], words: Words<'a>) -> Result<Request<'a>, Refusal> {
    let base64_key = words.iter().next() == Some(b"b");
    decode(key, base64_key).ok_or(Refusal::BadLineFormat)?;
    Ok(Request { verb: Verb::Debug, key, flags: Flags { base64_key, ..Flags::none() } })
}

fn get<'a>(key: &'a [u8], words: Words<'a>) -> Result<Request<'a>, Refusal> {
    if words.iter().count() > WORDS_MAX {
        return Err(Refusal::Meta(Fault::FlagsAreTooLong));
    }
    let flags = flags(key, words)?;
    opaque(&flags)?;
    Ok(Request { verb: Verb::Get, key, flags })
}

fn delete<'a>(key: &'a [u8], words: Words<'a>) -> Result<Request<'a>, Refusal> {
    let flags = flags_in_short(key, words)?;
    opaque(&flags)?;
    Ok(Request { verb: Verb::Delete, key, flags })
}

fn arith<'a>(key: &'a [u8], words: Words<'a>) -> Result<Request<'a>, Refusal> {
    let flags = flags_in_short(key, words)?;
    let decrement = match flags.mode {
        None | Some(b'I' | b'+') => false,
        Some(b'D' | b'-') => true,
        Some(_) => return Err(Refusal::Meta(Fault::ArithMode)),
    };
    opaque(&flags)?;
    Ok(Request { verb: Verb::Arith { decrement }, key, flags })
}

fn set<'a>(
    key: &'a [u8],
    words: Words<'a>,
    input: &'a [u8],
    used: usize,
    item_max_bytes: usize,
) -> Parsed<'a> {
    let (len, words) = words.split_first().unwrap_or((b"", words));
    let read = match 1 + words.iter().count() {
        _ if key.len() > KEY_MAX_BYTES => Err(Refusal::BadLineFormat),
        n if n > WORDS_MAX => Err(Refusal::Meta(Fault::FlagsTooLong)),
        _ => set_flags(key, words),
    };
    // Without a length nobody knows where the block ends: what follows is read as commands.
    let Some(len) = block_len(len) else {
        let why = match read {
            Err(why @ Refusal::Meta(Fault::FlagsTooLong)) => why,
            _ => Refusal::BadLineFormat,
        };
        return Parsed::Command { command: refused(why, false), used };
    };
    let skip = len + 2;
    let (mode, flags) = match read {
        Ok(read) => read,
        Err(why) => return Parsed::Swallow { command: refused(why, false), used, skip },
    };
    if len > item_max_bytes {
        let command = Command::Meta(Request { verb: Verb::SetTooLarge, key, flags });
        return Parsed::Swallow { command, used, skip };
    }
    let Some(block) = input.get(used..used + skip) else {
        return Parsed::Incomplete { at_least: used + skip };
    };
    let result = match block.strip_suffix(b"\r\n") {
        Some(value) => Ok(Request { verb: Verb::Set { mode, value }, key, flags }),
        None => Err(Refusal::BadDataChunk),
    };
    Parsed::Command { command: command(result), used: used + skip }
}

fn set_flags<'a>(key: &[u8], words: Words<'a>) -> Result<(StoreMode, Flags<'a>), Refusal> {
    let flags = flags(key, words)?;
    let mode = match flags.mode {
        None | Some(b'S') => StoreMode::Set,
        Some(b'E') => StoreMode::Add,
        Some(b'R') => StoreMode::Replace,
        Some(b'A') => StoreMode::Append,
        Some(b'P') => StoreMode::Prepend,
        Some(_) => return Err(Refusal::Meta(Fault::SetMode)),
    };
    opaque(&flags)?;
    Ok((mode, flags))
}

fn opaque(flags: &Flags<'_>) -> Result<(), Refusal> {
    let too_long = flags.iter().any(|(l, word)| l == b'O' && word.len() > OPAQUE_MAX_BYTES);
    if too_long { Err(Refusal::Meta(Fault::OpaqueTooLong)) } else { Ok(()) }
}

/// [`flags`] for the commands that do not say what is wrong with them.
fn flags_in_short<'a>(key: &[u8], words: Words<'a>) -> Result<Flags<'a>, Refusal> {
    if words.iter().count() > WORDS_MAX {
        return Err(Refusal::Meta(Fault::FlagsTooLong));
    }
    flags(key, words).map_err(|_| Refusal::Meta(Fault::InvalidOrDuplicateFlag))
}

/// Reads the flags, and whether the key is what they say. The last fault is told; an unknown or
/// repeated flag ends it.
fn flags<'a>(key: &[u8], words: Words<'a>) -> Result<Flags<'a>, Refusal> {
    let mut flags = Flags { words, ..Flags::none() };
    let mut fault = None;
    let mut seen = 0u128;
    for (letter, word) in flags.iter() {
        let value = word.get(1..).unwrap_or_default();
        if letter >= 127 || seen & (1 << letter) != 0 {
            return Err(Refusal::Meta(Fault::DuplicateFlag));
        }
        seen |= 1 << letter;
        let mut read = |ok: bool, otherwise: Fault| {
            if !ok {
                fault = Some(Refusal::Meta(otherwise));
            }
        };
        match letter {
            b'b' => {
                flags.base64_key = true;
                read(decode(key, true).is_some(), Fault::KeyEncoding);
            }
            b'q' => flags.quiet = true,
            b'v' => flags.value = true,
            b'u' => flags.unnoticed = true,
            b'I' => flags.invalidate = true,
            b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'O' | b'P' | b'L' => {}
            b'C' => {
                flags.cas = number(value);
                read(flags.cas.is_some(), Fault::BadToken);
            }
            b'T' => {
                flags.exptime = number(value);
                read(flags.exptime.is_some(), Fault::BadToken);
            }
            b'N' => {
                flags.create = number(value);
                read(flags.create.is_some(), Fault::BadToken);
            }
            b'R' => {
                flags.recache = number(value);
                read(flags.recache.is_some(), Fault::BadToken);
            }
            b'F' => match number(value) {
                Some(n) => flags.client_flags = n,
                // The one fault that leaves the one before it standing.
                None => fault = fault.or(Some(Refusal::BadLineFormat)),
            },
            b'J' => match number(value) {
                Some(n) => flags.initial = n,
                None => read(false, Fault::BadInitial),
            },
            b'D' => match number(value) {
                Some(n) => flags.delta = n,
                None => read(false, Fault::BadDelta),
            },
            b'M' => {
                flags.mode = value.first().copied();
                read(value.len() == 1, Fault::ModeLength);
            }
            _ => return Err(Refusal::Meta(Fault::InvalidFlag)),
        }
    }
    fault.map_or(Ok(flags), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ascii;

    fn request(line: &[u8]) -> Request<'_> {
        match ascii::parse(line, 1024) {
            Parsed::Command { command: Command::Meta(request), used } if used == line.len() => {
                request
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_are_read_in_any_order() {
        let r = request(b"mg k v T-1 Oabc N30 R5 q u\r\n");
        assert_eq!((r.verb, r.key), (Verb::Get, &b"k"[..]));
        let f = &r.flags;
        assert_eq!((f.exptime, f.create, f.recache), (Some(-1), Some(30), Some(5)));
        assert!(f.value && f.quiet && f.unnoticed && !f.invalidate && !f.base64_key);
        assert!(f.is_before(b'T', b'N') && !f.is_before(b'R', b'T') && !f.is_before(b'T', b'x'));
        let r = request(b"ms k 2 F7 C9 I MA\r\nab\r\n");
        assert_eq!(r.verb, Verb::Set { mode: StoreMode::Append, value: b"ab" });
        assert_eq!((r.flags.client_flags, r.flags.cas, r.flags.invalidate), (7, Some(9), true));
        let r = request(b"ma k D2 J3 MD\n");
        assert_eq!(r.verb, Verb::Arith { decrement: true });
        assert_eq!((r.flags.delta, r.flags.initial), (2, 3));
        assert_eq!(request(b"ma k\r\n").flags.delta, 1);
        assert!(request(b"me Zm9v b\r\n").flags.base64_key);
    }

    #[test]
    fn a_store_waits_for_its_data_and_takes_it_along_when_refused() {
        let whole = b"ms k 3 T0\r\nabc\r\n";
        for n in 0..whole.len() {
            let parsed = ascii::parse(&whole[..n], 1024);
            assert!(matches!(parsed, Parsed::Incomplete { at_least } if at_least > n), "{n}");
        }
        for (line, want) in [
            (&b"ms k 3 zz\r\n"[..], 5),
            (b"ms k 3 Oooooooooooooooooooooooooooooooooo\r\n", 5),
            (b"ms k 1025\r\n", 1027),
            (b"ms ==== 1025 b\r\n", 1027),
            (&[&b"ms "[..], &[b'k'; 251], b" 7 T0\r\n"].concat(), 9),
            (b"ms k 7 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\r\n", 9),
        ] {
            match ascii::parse(line, 1024) {
                Parsed::Swallow { used, skip, .. } => assert_eq!((used, skip), (line.len(), want)),
                other => panic!("{other:?}"),
            }
        }
        // The length itself cannot be believed: what follows is read as commands, as by memcached.
        for line in [&b"ms k\r\n"[..], b"ms k x\r\n", b"ms k -1\r\n", b"ms k 2147483646\r\n"] {
            let Parsed::Command { command: Command::Refused { reply, .. }, used } =
                ascii::parse(line, 1024)
            else {
                panic!()
            };
            assert_eq!((reply, used), (Refusal::BadLineFormat, line.len()));
        }
    }

    #[test]
    fn keys_are_250_bytes_as_written() {
        let line = |n| [b"mg ", &b"k".repeat(n)[..], b"\r\n"].concat();
        assert_eq!(request(&line(250)).key.len(), 250);
        let parsed = |line: &[u8]| format!("{:?}", ascii::parse(line, 1024));
        assert!(parsed(&line(251)).contains("BadLineFormat"));
        let line = |n| [b"mg ", &b"AAAA".repeat(n)[..], b" b\r\n"].concat();
        assert_eq!(decode(request(&line(62)).key, true).unwrap().len(), 186);
        assert!(parsed(&line(63)).contains("BadLineFormat"));
    }
}
