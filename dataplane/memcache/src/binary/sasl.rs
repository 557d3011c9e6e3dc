//! SASL over the binary protocol, with PLAIN (RFC 4616) alone: what may come before a connection's other requests
//! where clients must authenticate (memcached's `-S`).
//!
//! In: bytes of a connection. Out: one packet that came whole, and what it asks. Nothing longer than
//! `MESSAGE_MAX_BYTES` is waited for.

use super::encode::put_text;
use super::header::{HEADER_BYTES, Header, opcode};
use super::status::Status;
use crate::sink::Sink;

/// The mechanisms, as `SASL list mechs` has them.
pub const MECHANISMS: &[u8] = b"PLAIN";
/// What is said to words that are right.
pub const AUTHENTICATED: &[u8] = b"Authenticated";
/// Longest name of a mechanism: memcached's limit.
const MECHANISM_MAX_BYTES: usize = 32;
/// Longest message: far above what a file of users can hold.
const MESSAGE_MAX_BYTES: usize = 2048;

/// User and password.
pub type Words<'a> = (&'a [u8], &'a [u8]);

/// A packet.
#[derive(Debug)]
pub struct Request<'a> {
    header: Header,
    /// Bytes of it.
    pub used: usize,
    /// What it asks.
    pub asks: Asks<'a>,
}

/// What a packet asks.
#[derive(Debug, PartialEq, Eq)]
pub enum Asks<'a> {
    /// How one may authenticate.
    Mechanisms,
    /// The server's version, which is no secret.
    Version,
    /// To be let in, with words that a step will bring.
    ToBegin,
    /// To be let in with these. `None`: by another mechanism, or by a message that is not one of PLAIN's.
    ToAuthenticate(Option<Words<'a>>),
    /// The same, in the step behind [`Self::ToBegin`].
    ToContinue(Option<Words<'a>>),
    /// For a mechanism whose name no mechanism has.
    Overlong,
    /// What is refused so, and ends the connection.
    Refused(Status),
}

impl<'a> Request<'a> {
    /// Reads the packet that `input` begins with, whose first byte was found to be a request's. `None`: more of it must
    /// come first.
    pub fn read(input: &'a [u8]) -> Option<Self> {
        let (header, body) = Header::split(input)?;
        let refused =
            |status| Some(Request { header, used: HEADER_BYTES, asks: Asks::Refused(status) });
        let (extras_bytes, key_bytes) =
            (usize::from(header.extras_bytes), usize::from(header.key_bytes));
        let body_bytes = usize::try_from(header.body_bytes).unwrap_or(usize::MAX);
        if extras_bytes + key_bytes > body_bytes {
            return refused(Status::UnknownCommand);
        }
        let asks_with_nothing = |asks| match body_bytes {
            0 => Some(Request { header, used: HEADER_BYTES, asks }),
            _ => refused(Status::Invalid),
        };
        match header.opcode {
            opcode::SASL_LIST => return asks_with_nothing(Asks::Mechanisms),
            opcode::VERSION => return asks_with_nothing(Asks::Version),
            opcode::SASL_AUTH | opcode::SASL_STEP => {}
            _ => return refused(Status::NotAllowed),
        }
        if extras_bytes > 0 || key_bytes == 0 {
            return refused(Status::Invalid);
        }
        if body_bytes > MESSAGE_MAX_BYTES {
            return refused(Status::NotAllowed);
        }
        let (mechanism, message) = body.get(..body_bytes)?.split_at_checked(key_bytes)?;
        let is_plain = mechanism.eq_ignore_ascii_case(MECHANISMS);
        // PLAIN has one message, in whichever of the two packets it comes.
        let words = plain(message).filter(|_| is_plain);
        let asks = match header.opcode {
            _ if key_bytes > MECHANISM_MAX_BYTES => Asks::Overlong,
            opcode::SASL_STEP => Asks::ToContinue(words),
            _ if is_plain && message.is_empty() => Asks::ToBegin,
            _ => Asks::ToAuthenticate(words),
        };
        Some(Request { header, used: HEADER_BYTES + body_bytes, asks })
    }

    /// Answers it.
    pub fn answer(&self, status: Status, text: &[u8], out: &mut impl Sink) {
        put_text(&self.header, status, text, out);
    }
}

/// The words of a message: `[authzid] NUL authcid NUL passwd`, of which the last two have a byte at least. No user acts
/// for another here.
fn plain(message: &[u8]) -> Option<Words<'_>> {
    let mut words = message.splitn(3, |&b| b == 0);
    let (acts_for, user, password) = (words.next()?, words.next()?, words.next()?);
    let is_own = acts_for.is_empty() || acts_for == user;
    (is_own && !user.is_empty() && !password.is_empty()).then_some((user, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        Header::request(opcode).packet(extras, key, value).unwrap()
    }

    fn asks(packet: &[u8]) -> Asks<'_> {
        for len in 0..packet.len() {
            if let Some(early) = Request::read(&packet[..len]) {
                assert!(matches!(early.asks, Asks::Refused(_)), "{len} bytes: {early:?}");
            }
        }
        Request::read(packet).unwrap().asks
    }

    #[test]
    fn messages_of_plain_are_read_and_no_others() {
        let words: &[(&[u8], Option<Words<'_>>)] = &[
            (b"\0u\0p", Some((b"u", b"p"))),
            (b"u\0u\0p", Some((b"u", b"p"))),
            (b"\0u\0", None),
            (b"\0\0p", None),
            (b"\0u\0a b:\0", Some((b"u", b"a b:\0"))),
            (b"v\0u\0p", None),
            (b"\0u", None),
            (b"u p", None),
        ];
        for (message, words) in words {
            let auth = |mechanism: &[u8]| packet(opcode::SASL_AUTH, b"", mechanism, message);
            assert_eq!(asks(&auth(b"PLAIN")), Asks::ToAuthenticate(*words), "{message:?}");
            assert_eq!(asks(&auth(b"plain")), Asks::ToAuthenticate(*words));
            assert_eq!(asks(&auth(b"SCRAM-SHA-256")), Asks::ToAuthenticate(None));
            let step = packet(opcode::SASL_STEP, b"", b"PLAIN", message);
            assert_eq!(asks(&step), Asks::ToContinue(*words));
        }
        let empty = |opcode, mechanism: &[u8]| packet(opcode, b"", mechanism, b"");
        assert_eq!(asks(&empty(opcode::SASL_AUTH, b"PLAIN")), Asks::ToBegin);
        assert_eq!(asks(&empty(opcode::SASL_AUTH, b"OTHER")), Asks::ToAuthenticate(None));
        assert_eq!(asks(&empty(opcode::SASL_STEP, b"PLAIN")), Asks::ToContinue(None));
        for opcode in [opcode::SASL_AUTH, opcode::SASL_STEP] {
            assert_eq!(
                asks(&empty(opcode, &[b'x'; MECHANISM_MAX_BYTES])),
                match opcode {
                    opcode::SASL_AUTH => Asks::ToAuthenticate(None),
                    _ => Asks::ToContinue(None),
                }
            );
            assert_eq!(asks(&empty(opcode, &[b'x'; MECHANISM_MAX_BYTES + 1])), Asks::Overlong);
        }
    }

    #[test]
    fn what_is_no_part_of_it_is_refused_at_once() {
        use opcode::{GET, SASL_AUTH, SASL_LIST, VERSION};
        assert_eq!(asks(&packet(SASL_LIST, b"", b"", b"")), Asks::Mechanisms);
        assert_eq!(asks(&packet(VERSION, b"", b"", b"")), Asks::Version);
        let long = [b'x'; MESSAGE_MAX_BYTES + 1];
        for (refused, status) in [
            (packet(GET, b"", b"k", b""), Status::NotAllowed),
            (packet(0xff, b"", b"k", &long), Status::NotAllowed),
            (packet(SASL_LIST, b"", b"k", b""), Status::Invalid),
            (packet(VERSION, b"", b"", b"v"), Status::Invalid),
            (packet(SASL_AUTH, b"", b"", b"\0u\0p"), Status::Invalid),
            (packet(SASL_AUTH, b"x", b"PLAIN", b"\0u\0p"), Status::Invalid),
            (packet(SASL_AUTH, b"", &long, b""), Status::NotAllowed),
            (packet(SASL_AUTH, b"", b"PLAIN", &long), Status::NotAllowed),
        ] {
            assert_eq!(asks(&refused[..HEADER_BYTES]), Asks::Refused(status), "{refused:?}");
        }
        let mut inside = packet(SASL_AUTH, b"", b"PLAIN", b"");
        inside[8..12].copy_from_slice(&4u32.to_be_bytes());
        assert_eq!(asks(&inside), Asks::Refused(Status::UnknownCommand));
    }
}
