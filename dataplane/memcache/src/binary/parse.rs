//! Bytes to requests: the strict parser.
//!
//! In: bytes from a connection or a datagram. Out: one [`Command`] and how many bytes it
//! took. A packet's lengths are believed only after they have been found to fit each other: the
//! extras and the key into the body, and the value into the item limit. All arithmetic is on what
//! fits 17 bits, or is checked.

use super::header::{HEADER_BYTES, Header, REQUEST_MAGIC, opcode};
use crate::command::{
    Arith, Command, Delete, Form, Get, KEY_MAX_BYTES, Keys, Refused, Store, StoreMode, Verb,
};
use crate::parsed::Parsed;
use crate::refusal::Refusal;

/// Longest body that is read, or read past, in bytes: what memcached can count.
const BODY_MAX_BYTES: usize = i32::MAX as usize;

/// Exptime of an `increment` that is to store nothing where there is nothing.
const NO_INITIAL: u32 = u32::MAX;

/// Parses the first request of `input`. `item_max_bytes` is the item size limit (`-I`).
pub fn parse(input: &[u8], item_max_bytes: usize) -> Parsed<'_> {
    let Some((header, rest)) = Header::split(input) else {
        return Parsed::Incomplete { at_least: HEADER_BYTES };
    };
    if header.magic != REQUEST_MAGIC {
        return Parsed::Hopeless;
    }
    let (extras_bytes, key_bytes) =
        (usize::from(header.extras_bytes), usize::from(header.key_bytes));
    let used = HEADER_BYTES + extras_bytes + key_bytes;
    let (Some((extras, more)), true) = (rest.split_at_checked(extras_bytes), input.len() >= used)
    else {
        return Parsed::Incomplete { at_least: used };
    };
    let (key, body) = more.split_at_checked(key_bytes).unwrap_or_default();
    let (loud, quiet) = opcode::loud(header.opcode);
    let command = |verb| Command { verb, form: Form::Binary { header, quiet } };
    let refused = |why, forget, close| command(Verb::Refused(Refused { why, forget, close }));
    let hang_up = |why| Parsed::Command { command: refused(why, None, true), used };

    let body_bytes = usize::try_from(header.body_bytes).unwrap_or(usize::MAX);
    let Some(value_bytes) = body_bytes.checked_sub(extras_bytes + key_bytes) else {
        return hang_up(Refusal::UnknownOpcode);
    };
    if key.len() > KEY_MAX_BYTES {
        return hang_up(Refusal::BadLineFormat);
    }
    let swallow = |why, forget| match body_bytes <= BODY_MAX_BYTES {
        true => Parsed::Swallow { command: refused(why, forget, false), used, skip: value_bytes },
        false => Parsed::Command { command: refused(why, forget, true), used },
    };
    match shape(loud, extras, key, value_bytes, header.cas) {
        Shape::Whole(verb) => Parsed::Command { command: command(verb), used },
        Shape::WithValue(store) => {
            if value_bytes > item_max_bytes {
                return swallow(Refusal::TooLarge, (loud == opcode::SET).then_some(key));
            }
            let Some(value) = body.get(..value_bytes) else {
                return Parsed::Incomplete { at_least: used + value_bytes };
            };
            let verb = Verb::Store(Store { value, ..store });
            Parsed::Command { command: command(verb), used: used + value_bytes }
        }
        Shape::Unknown => swallow(Refusal::UnknownOpcode, None),
        Shape::Invalid => hang_up(Refusal::BadLineFormat),
    }
}

/// What kind of packet a command is.
enum Shape<'a> {
    /// All of it is in extras and key.
    Whole(Verb<'a>),
    /// The value of this is still to be read.
    WithValue(Store<'a>),
    /// No such command.
    Unknown,
    /// The command has other parts than these.
    Invalid,
}

/// Fits the parts of a packet to its command.
fn shape<'a>(loud: u8, extras: &[u8], key: &'a [u8], value_bytes: usize, cas: u64) -> Shape<'a> {
    let cas = (cas != 0).then_some(cas);
    let has_key = !key.is_empty();
    let only_key = has_key && value_bytes == 0;
    let only_extras = !has_key && value_bytes == 0;
    let nothing = only_extras && extras.is_empty();
    let exptime = <[u8; 4]>::try_from(extras).ok().map(seconds);
    match loud {
        opcode::GET | opcode::GETK if only_key && extras.is_empty() => Shape::Whole(get(key, None)),
        opcode::TOUCH | opcode::GAT | opcode::GATK if only_key && exptime.is_some() => {
            Shape::Whole(get(key, exptime))
        }
        opcode::SET | opcode::ADD | opcode::REPLACE if has_key => {
            store(loud, key, extras, cas).map_or(Shape::Invalid, Shape::WithValue)
        }
        opcode::APPEND | opcode::PREPEND if has_key && extras.is_empty() => {
            let prepend = loud == opcode::PREPEND;
            let mode = if prepend { StoreMode::Prepend } else { StoreMode::Append };
            Shape::WithValue(Store { mode, cas, ..Store::set(key, 0, 0, b"") })
        }
        opcode::DELETE if only_key && extras.is_empty() => {
            Shape::Whole(Verb::Delete(Delete { key, cas, leave: None }))
        }
        opcode::INCREMENT | opcode::DECREMENT if only_key => {
            arith(loud == opcode::DECREMENT, key, extras, cas)
                .map_or(Shape::Invalid, |what| Shape::Whole(Verb::Arith(what)))
        }
        opcode::FLUSH if nothing => Shape::Whole(Verb::Flush { delay: 0 }),
        opcode::FLUSH if only_extras => {
            exptime.map_or(Shape::Invalid, |delay| Shape::Whole(Verb::Flush { delay }))
        }
        opcode::NOOP if nothing => Shape::Whole(Verb::Noop),
        opcode::VERSION if nothing => Shape::Whole(Verb::Version),
        opcode::QUIT if nothing => Shape::Whole(Verb::Quit),
        opcode::STAT if extras.is_empty() && value_bytes == 0 => {
            Shape::Whole(Verb::Stats((!key.is_empty()).then_some(key)))
        }
        // Known and not spoken: a client that sends it well-formed may go on.
        opcode::SASL_LIST if nothing => Shape::Unknown,
        opcode::SASL_AUTH | opcode::SASL_STEP if has_key && extras.is_empty() => Shape::Unknown,
        opcode::GET..=opcode::PREPENDQ
        | opcode::TOUCH..=opcode::GATQ
        | opcode::SASL_LIST..=opcode::GATKQ => Shape::Invalid,
        _ => Shape::Unknown,
    }
}

/// A look-up of one key.
fn get(key: &[u8], touch: Option<i64>) -> Verb<'_> {
    Verb::Get(Get { keys: Keys::One(key), with_cas: true, touch })
}

/// An exptime has no sign here: what is -1 to others is a time far away.
fn seconds(bytes: [u8; 4]) -> i64 {
    i64::from(u32::from_be_bytes(bytes))
}

/// The numbers of a `set`: client flags and exptime.
fn store<'a>(loud: u8, key: &'a [u8], extras: &[u8], cas: Option<u64>) -> Option<Store<'a>> {
    let mode = match loud {
        opcode::ADD => StoreMode::Add,
        opcode::REPLACE => StoreMode::Replace,
        _ => StoreMode::Set,
    };
    let (flags, exptime) = extras.split_first_chunk()?;
    let (flags, exptime) = (u32::from_be_bytes(*flags), seconds(exptime.try_into().ok()?));
    Some(Store { mode, cas, ..Store::set(key, flags, exptime, b"") })
}

/// The numbers of an `increment`: how much, what to begin with, and for how long.
fn arith<'a>(decrement: bool, key: &'a [u8], extras: &[u8], cas: Option<u64>) -> Option<Arith<'a>> {
    let (delta, more) = extras.split_first_chunk()?;
    let (initial, more) = more.split_first_chunk()?;
    let exptime = u32::from_be_bytes(more.try_into().ok()?);
    let initial = (u64::from_be_bytes(*initial), i64::from(exptime));
    let initial = (exptime != NO_INITIAL).then_some(initial);
    let delta = u64::from_be_bytes(*delta);
    Some(Arith { key, delta, decrement, cas, initial, own_cas: None, exptime: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM_MAX_BYTES: usize = 1000;

    fn packet(opcode: u8, cas: u64, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        Header { cas, ..Header::request(opcode) }.packet(extras, key, value).unwrap()
    }

    fn request(packet: &[u8]) -> (Verb<'_>, bool) {
        match parse(packet, ITEM_MAX_BYTES) {
            Parsed::Command {
                command: Command { verb, form: Form::Binary { quiet, .. } },
                used,
            } => {
                assert_eq!(used, packet.len());
                (verb, quiet)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_quiet_opcode_is_the_loud_one_and_quiet() {
        use opcode::*;
        let pairs = [
            (GET, GETQ),
            (GETK, GETKQ),
            (SET, SETQ),
            (ADD, ADDQ),
            (REPLACE, REPLACEQ),
            (DELETE, DELETEQ),
            (INCREMENT, INCREMENTQ),
            (DECREMENT, DECREMENTQ),
            (QUIT, QUITQ),
            (FLUSH, FLUSHQ),
            (APPEND, APPENDQ),
            (PREPEND, PREPENDQ),
            (GAT, GATQ),
            (GATK, GATKQ),
        ];
        for (plain, quiet) in pairs {
            let extras: &[u8] = match plain {
                SET | ADD | REPLACE => &[1; 8],
                INCREMENT | DECREMENT => &[1; 20],
                GAT | GATK => &[1; 4],
                _ => &[],
            };
            let key: &[u8] = if matches!(plain, QUIT | FLUSH) { b"" } else { b"k" };
            let (a, b) = (packet(plain, 0, extras, key, b""), packet(quiet, 0, extras, key, b""));
            let (a, b) = (request(&a), request(&b));
            assert!(!matches!(a.0, Verb::Refused(_)), "{plain:#x}");
            assert_eq!((a.0, false), (b.0, !b.1), "{plain:#x} {quiet:#x}");
            assert!(!a.1);
        }
    }

    #[test]
    fn the_numbers_are_where_they_should_be() {
        let set = packet(opcode::SET, 0, &[0, 0, 0, 5, 0xFF, 0xFF, 0xFF, 0xFF], b"k", b"value");
        let want = Store::set(b"k", 5, 0xFFFF_FFFF, b"value");
        assert_eq!(request(&set).0, Verb::Store(want));
        let incr = [[0, 0, 0, 0, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0, 0, 3]].concat();
        let incr = [&incr[..], &[0, 0, 0, 4]].concat();
        let incr = packet(opcode::INCREMENT, 9, &incr, b"k", b"");
        let want = Arith {
            key: b"k",
            delta: 2,
            decrement: false,
            cas: Some(9),
            initial: Some((3, 4)),
            own_cas: None,
            exptime: None,
        };
        assert_eq!(request(&incr).0, Verb::Arith(want));
        let touch = packet(opcode::TOUCH, 0, &[0, 0, 1, 0], b"k", b"");
        let want = Get { keys: Keys::One(b"k"), with_cas: true, touch: Some(256) };
        assert_eq!(request(&touch).0, Verb::Get(want));
        let flush = packet(opcode::FLUSH, 0, &[0, 0, 0, 7], b"", b"");
        assert_eq!(request(&flush).0, Verb::Flush { delay: 7 });
    }

    #[test]
    fn an_increment_with_the_highest_exptime_begins_no_number() {
        let extras = [&[0; 16][..], &[0xFF; 4]].concat();
        let packet = packet(opcode::DECREMENT, 0, &extras, b"k", b"");
        let Verb::Arith(what) = request(&packet).0 else { panic!() };
        assert_eq!((what.decrement, what.initial), (true, None));
    }

    #[test]
    fn a_value_above_the_limit_is_thrown_away_and_only_a_set_forgets() {
        for (opcode, extras, forgets) in [
            (opcode::SET, &[0; 8][..], true),
            (opcode::SETQ, &[0; 8], true),
            (opcode::ADD, &[0; 8], false),
            (opcode::REPLACEQ, &[0; 8], false),
            (opcode::APPEND, &[], false),
        ] {
            let packet = packet(opcode, 0, extras, b"k", &[0; ITEM_MAX_BYTES + 1]);
            // Header, extras and key are enough to know.
            let used = packet.len() - ITEM_MAX_BYTES - 1;
            let Parsed::Swallow { command, used: got, skip } =
                parse(&packet[..used], ITEM_MAX_BYTES)
            else {
                panic!()
            };
            assert_eq!((got, skip), (used, ITEM_MAX_BYTES + 1));
            let forget = forgets.then_some(&b"k"[..]);
            let want = Refused { why: Refusal::TooLarge, forget, close: false };
            assert_eq!(command.verb, Verb::Refused(want));
        }
    }
}
