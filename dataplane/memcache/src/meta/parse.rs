//! Meta command lines: bytes to commands.
//!
//! In: what follows the two letters. Out: what [`text`](crate::text) gives for any
//! command. A line is refused in the words, and for the first of several reasons in the order, of
//! memcached; a refused `ms` whose length was understood takes its data block with it.

use crate::base64_key::decode;
use crate::command::{
    Arith, Command, Delete, Echo, Fetch, Form, KEY_MAX_BYTES, Leave, Reads, Refused, Store,
    StoreMode, Verb, Words,
};
use crate::parsed::Parsed;
use crate::refusal::{Fault, Refusal};
use crate::text::{block_len, exptime, number, refused};

/// Most words behind the key, the length of a data block among them.
const WORDS_MAX: usize = 17;

/// Longest O flag, its letter included, in bytes.
const OPAQUE_MAX_BYTES: usize = 32;

/// The flags of a command: those that change what it does, and all as they were written. Exptimes
/// are as the client gave them.
#[derive(Debug, Clone, Copy)]
struct Flags<'a> {
    words: Words<'a>,
    /// b: the key is in base64.
    base64_key: bool,
    /// q: no answer where it says nothing new.
    quiet: bool,
    /// v: with the value.
    value: bool,
    /// u: the look-up is not to be noticed.
    unnoticed: bool,
    /// I: mark as out of date; a store that is too late is taken as such.
    invalidate: bool,
    /// x: the value goes, the item stays.
    remove_value: bool,
    /// C: only the item with this CAS id; for `mg` the value only of another.
    cas: Option<u64>,
    /// E: the CAS id of what is made.
    own_cas: Option<u64>,
    /// T: the new exptime.
    exptime: Option<i64>,
    /// N: make an item when there is none. The exptime that came with it.
    create: Option<i64>,
    /// The exptime of what is made: of N and T, what was said last.
    create_of: Option<i64>,
    /// R: win the item if less than this is left.
    recache: Option<i64>,
    /// T stands before R: what is left is what T says.
    recache_touched: bool,
    /// F: the client's own 32 bits.
    client_flags: u32,
    /// J: the number to begin with.
    initial: u64,
    /// D: how much to add or subtract.
    delta: u64,
    mode: Option<u8>,
    /// O has more than it may.
    opaque_too_long: bool,
    /// g and p: what one-sided reads of the item need to know.
    reads: Reads,
}

impl<'a> Flags<'a> {
    fn none() -> Self {
        Self {
            words: Words(b""),
            base64_key: false,
            quiet: false,
            value: false,
            unnoticed: false,
            invalidate: false,
            remove_value: false,
            cas: None,
            own_cas: None,
            exptime: None,
            create: None,
            create_of: None,
            recache: None,
            recache_touched: false,
            client_flags: 0,
            initial: 0,
            delta: 1,
            mode: None,
            opaque_too_long: false,
            reads: Reads::default(),
        }
    }

    fn command(&self, key: &'a [u8], verb: Verb<'a>) -> Command<'a> {
        let Self { words, base64_key, quiet, value, create, reads, .. } = *self;
        let echo = Echo { key, words, base64_key, quiet, value, create, reads };
        Command { verb, form: Form::Meta(echo) }
    }
}

/// Parses the line of the command `m` and `verb`. `rest` is what follows these two letters,
/// without its line end; the line takes the first `used` bytes of `input`.
pub fn parse<'a>(
    verb: u8,
    rest: &'a [u8],
    input: &'a [u8],
    used: usize,
    item_max_bytes: usize,
) -> Parsed<'a> {
    let result = match (verb, Words(rest).split_first()) {
        (b'n', _) => Ok(Flags::none().command(b"", Verb::Noop)),
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

fn command(result: Result<Command<'_>, Refusal>) -> Command<'_> {
    result.unwrap_or_else(|why| refused(why, false))
}

fn debug<'a>(key: &'a [u8], words: Words<'a>) -> Result<Command<'a>, Refusal> {
    let base64_key = words.iter().next() == Some(b"b");
    if base64_key {
        decode(key, &mut [0; KEY_MAX_BYTES]).ok_or(Refusal::BadLineFormat)?;
    }
    Ok(Flags { base64_key, ..Flags::none() }.command(key, Verb::Debug { key }))
}

fn get<'a>(key: &'a [u8], words: Words<'a>) -> Result<Command<'a>, Refusal> {
    if words.are_more_than(WORDS_MAX) {
        return Err(Refusal::Meta(Fault::FlagsAreTooLong));
    }
    let flags = flags(key, words)?;
    opaque(&flags)?;
    let what = Fetch {
        key,
        touch: flags.exptime,
        recache: flags.recache,
        recache_touched: flags.recache_touched,
        create: flags.create_of,
        own_cas: flags.own_cas,
        unnoticed: flags.unnoticed,
        known: flags.cas,
    };
    Ok(flags.command(key, Verb::Fetch(what)))
}

fn delete<'a>(key: &'a [u8], words: Words<'a>) -> Result<Command<'a>, Refusal> {
    let flags = flags_in_short(key, words)?;
    opaque(&flags)?;
    let leave = (flags.invalidate || flags.remove_value).then(|| Leave {
        exptime: flags.exptime,
        stale: flags.invalidate,
        empty: flags.remove_value.then_some(flags.client_flags),
        own_cas: flags.own_cas,
    });
    Ok(flags.command(key, Verb::Delete(Delete { key, cas: flags.cas, leave })))
}

fn arith<'a>(key: &'a [u8], words: Words<'a>) -> Result<Command<'a>, Refusal> {
    let flags = flags_in_short(key, words)?;
    let decrement = match flags.mode {
        None | Some(b'I' | b'+') => false,
        Some(b'D' | b'-') => true,
        Some(_) => return Err(Refusal::Meta(Fault::ArithMode)),
    };
    opaque(&flags)?;
    let what = Arith {
        key,
        delta: flags.delta,
        decrement,
        // To memcached 0 is no CAS id here, though it is one to `ms` and `md`.
        cas: flags.cas.filter(|&cas| cas != 0),
        initial: flags.create_of.map(|exptime| (flags.initial, exptime)),
        own_cas: flags.own_cas,
        exptime: flags.exptime,
    };
    Ok(flags.command(key, Verb::Arith(what)))
}

fn set<'a>(
    key: &'a [u8],
    words: Words<'a>,
    input: &'a [u8],
    used: usize,
    item_max_bytes: usize,
) -> Parsed<'a> {
    let (len, words) = words.split_first().unwrap_or((b"", words));
    let read = if key.len() > KEY_MAX_BYTES {
        Err(Refusal::BadLineFormat)
    } else if words.are_more_than(WORDS_MAX - 1) {
        Err(Refusal::Meta(Fault::FlagsTooLong))
    } else {
        set_flags(key, words)
    };
    // Without a length the end of the block is unknown: what follows is read as commands.
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
        let refused = Refused { why: Refusal::TooLarge, forget: Some(key), close: false };
        let command = flags.command(key, Verb::Refused(refused));
        return Parsed::Swallow { command, used, skip };
    }
    let Some(block) = input.get(used..used + skip) else {
        return Parsed::Incomplete { at_least: used + skip };
    };
    let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    let result = match block.strip_suffix(b"\r\n") {
        Some(value) => {
            let what = Store {
                mode,
                // 0 is none, and so never too old; who joins may give it for none.
                cas: flags.cas.filter(|&cas| cas != 0 || !joins),
                // Of one that is stored, 0 is as good as none.
                own_cas: flags.own_cas.filter(|&cas| cas != 0),
                or_stale: flags.invalidate && flags.cas != Some(0),
                base64_key: flags.base64_key,
                create: flags.create.filter(|_| joins),
                ..Store::set(key, flags.client_flags, flags.exptime.unwrap_or(0), value)
            };
            Ok(flags.command(key, Verb::Store(what)))
        }
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
    if flags.opaque_too_long { Err(Refusal::Meta(Fault::OpaqueTooLong)) } else { Ok(()) }
}

/// [`flags`] for the commands that do not say what is wrong with them.
fn flags_in_short<'a>(key: &[u8], words: Words<'a>) -> Result<Flags<'a>, Refusal> {
    if words.are_more_than(WORDS_MAX) {
        return Err(Refusal::Meta(Fault::FlagsTooLong));
    }
    let fault = Refusal::Meta(Fault::InvalidOrDuplicateFlag);
    flags(key, words).ok().filter(|flags| flags.reads == Reads::default()).ok_or(fault)
}

/// Reads the flags, and whether the key is what they say. The last fault is reported; an unknown or
/// repeated flag ends it.
fn flags<'a>(key: &[u8], words: Words<'a>) -> Result<Flags<'a>, Refusal> {
    let mut flags = Flags { words, ..Flags::none() };
    let mut fault = None;
    let mut seen = 0u64;
    for (letter, word) in words.flags() {
        let value = word.get(1..).unwrap_or_default();
        // 'A' to 126 have a bit each; what is below 'A' is no flag.
        let bit = 1 << (letter & 63);
        if letter >= 127 || (letter >= b'A' && seen & bit != 0) {
            return Err(Refusal::Meta(Fault::DuplicateFlag));
        }
        seen |= bit;
        let mut read = |ok: bool, otherwise: Fault| {
            if !ok {
                fault = Some(Refusal::Meta(otherwise));
            }
        };
        match letter {
            b'b' => {
                flags.base64_key = true;
                read(decode(key, &mut [0; KEY_MAX_BYTES]).is_some(), Fault::KeyEncoding);
            }
            b'q' => flags.quiet = true,
            b'v' => flags.value = true,
            b'u' => flags.unnoticed = true,
            b'I' => flags.invalidate = true,
            b'x' => flags.remove_value = true,
            // Refused where there are no such reads, when the command is carried out.
            b'g' if value.is_empty() => flags.reads.stag = true,
            b'p' if value.is_empty() => flags.reads.place = true,
            b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'P' | b'L' => {}
            b'O' => flags.opaque_too_long = word.len() > OPAQUE_MAX_BYTES,
            b'C' => {
                flags.cas = number(value);
                read(flags.cas.is_some(), Fault::BadToken);
            }
            b'E' => {
                flags.own_cas = number(value);
                read(flags.own_cas.is_some(), Fault::BadToken);
            }
            b'T' => {
                flags.exptime = exptime(value);
                flags.create_of = flags.create.and(flags.exptime);
                read(flags.exptime.is_some(), Fault::BadToken);
            }
            b'N' => {
                flags.create = exptime(value);
                flags.create_of = flags.create;
                read(flags.create.is_some(), Fault::BadToken);
            }
            b'R' => {
                flags.recache = exptime(value);
                flags.recache_touched = flags.exptime.is_some();
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
    use crate::text;

    fn request(line: &[u8]) -> (Verb<'_>, Echo<'_>) {
        match text::parse(line, 1024) {
            Parsed::Command { command: Command { verb, form: Form::Meta(echo) }, used }
                if used == line.len() =>
            {
                (verb, echo)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_are_read_in_any_order() {
        let (verb, echo) = request(b"mg k v T-1 Oabc N30 R5 q u\r\n");
        let fetch = Fetch {
            key: b"k",
            touch: Some(-1),
            recache: Some(5),
            recache_touched: true,
            create: Some(30),
            unnoticed: true,
            own_cas: None,
            known: None,
        };
        assert_eq!((verb, echo.key), (Verb::Fetch(fetch), &b"k"[..]));
        assert!(echo.value && echo.quiet && !echo.base64_key);
        assert_eq!(echo.create, Some(30));
        let Verb::Fetch(what) = request(b"mg k R5 N30 T7\r\n").0 else { panic!() };
        assert_eq!((what.create, what.recache_touched), (Some(7), false));
        let (verb, _) = request(b"ms k 2 F7 C9 I MA\r\nab\r\n");
        let want = Store {
            mode: StoreMode::Append,
            cas: Some(9),
            or_stale: true,
            ..Store::set(b"k", 7, 0, b"ab")
        };
        assert_eq!(verb, Verb::Store(want));
        let arith = |line| match request(line) {
            (Verb::Arith(what), _) => what,
            other => panic!("{other:?}"),
        };
        let what = arith(b"ma k D2 J3 N8 MD\n");
        assert_eq!((what.delta, what.initial, what.decrement), (2, Some((3, 8)), true));
        let what = arith(b"ma k\r\n");
        assert_eq!((what.delta, what.initial, what.decrement), (1, None, false));
        assert!(request(b"me Zm9v b\r\n").1.base64_key);
        let reads = |line| request(line).1.reads;
        assert_eq!(reads(b"mg k v p\r\n"), Reads { stag: false, place: true });
        assert_eq!(reads(b"ms k 2 p g\r\nab\r\n"), Reads { stag: true, place: true });
        for line in [&b"mg k p1\r\n"[..], b"mg k p p\r\n", b"md k p\r\n", b"ma k p\r\n"] {
            assert!(format!("{:?}", text::parse(line, 1024)).contains("Refused"));
        }
    }

    #[test]
    fn a_store_waits_for_its_data_and_takes_it_along_when_refused() {
        let whole = b"ms k 3 T0\r\nabc\r\n";
        for n in 0..whole.len() {
            let parsed = text::parse(&whole[..n], 1024);
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
            match text::parse(line, 1024) {
                Parsed::Swallow { used, skip, .. } => assert_eq!((used, skip), (line.len(), want)),
                other => panic!("{other:?}"),
            }
        }
        // The length itself cannot be believed: what follows is read as commands, as by memcached.
        for line in [&b"ms k\r\n"[..], b"ms k x\r\n", b"ms k -1\r\n", b"ms k 2147483646\r\n"] {
            let command = refused(Refusal::BadLineFormat, false);
            assert_eq!(text::parse(line, 1024), Parsed::Command { command, used: line.len() });
        }
    }

    #[test]
    fn keys_are_250_bytes_as_written() {
        let line = |n| [b"mg ", &b"k".repeat(n)[..], b"\r\n"].concat();
        assert_eq!(request(&line(250)).1.key.len(), 250);
        let parsed = |line: &[u8]| format!("{:?}", text::parse(line, 1024));
        assert!(parsed(&line(251)).contains("BadLineFormat"));
        let line = |n| [b"mg ", &b"AAAA".repeat(n)[..], b" b\r\n"].concat();
        assert_eq!(decode(request(&line(62)).1.key, &mut [0; 250]).unwrap().len(), 186);
        assert!(parsed(&line(63)).contains("BadLineFormat"));
    }
}
