//! What comes before a connection's conversation: the right dialect, and where there is a file of
//! users, `set <any> <any> <any> <length>\r\n<user> <password>\r\n` with words that are in it, or SASL's packets
//! with the same ([`sasl`]).
//!
//! In: the bytes that the connection has sent. Out: how many of them were used up, replies in
//! memcached's words, and whether the conversation may begin. Until then no byte reaches it, and
//! no more than `LINE_MAX_BYTES` and `WORDS_MAX_BYTES` are held, or a packet of SASL.

use crate::observe::OpCounters;
use memcache::binary::sasl::{self, Asks, Words};
use memcache::binary::{REQUEST_MAGIC, Status};
use memcache::sink::Buffer;
use memcache::{Dialect, Dialects};
use std::fmt::Debug;
use std::sync::Arc;

/// Longest wait for the end of a line: memcached's limit.
const LINE_MAX_BYTES: usize = 2048;
/// Longest words taken: far above what a file can hold.
const WORDS_MAX_BYTES: usize = 2048;
/// Answers to attempts that came at a time: a client that tries passwords by hand has one.
const ANSWERS_MAX_BYTES: usize = 4096;

const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const TOO_LONG: &[u8] = b"CLIENT_ERROR auth token too long\r\n";
const BAD_END: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
const FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
const STORED: &[u8] = b"STORED\r\n";

/// Who may authenticate.
pub trait Users: Debug + Send + Sync {
    /// Whether there is this user with this password. Takes the same time for right and wrong ones.
    fn knows(&self, user: &[u8], password: &[u8]) -> bool;
}

/// Where a connection stands before its conversation.
#[derive(Debug)]
pub struct Login {
    dialects: Dialects,
    users: Option<Arc<dyn Users>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing came yet, or nothing since the words that were right.
    Fresh,
    /// A command line is awaited.
    Line,
    /// The words are awaited: so many bytes, and a line end.
    Words(usize),
    /// A packet is awaited.
    Packet,
    /// The same, which may be the step of a login that has begun.
    Step,
    /// The conversation may go on.
    Open,
}

/// What became of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginProgress {
    /// Bytes used up.
    pub consumed: usize,
    /// The connection is to be closed once the output is sent.
    pub close: bool,
}

impl Login {
    /// The beginning of a connection that speaks one of these dialects, and must authenticate if
    /// there are users.
    pub fn new(dialects: Dialects, users: Option<Arc<dyn Users>>) -> Self {
        Self { dialects, users, state: State::Fresh }
    }

    /// Whether the conversation may go on.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Answers whole attempts until one succeeds or the input is used up. Who sends very many at a time is not waited
    /// for. `version` is the server's.
    pub fn advance(
        &mut self,
        input: &[u8],
        (ops, version): (&OpCounters, &str),
        out: &mut Vec<u8>,
    ) -> LoginProgress {
        let mut consumed = 0;
        while self.users.is_none() || out.len() < ANSWERS_MAX_BYTES {
            let rest = input.get(consumed..).unwrap_or_default();
            let step = match self.state {
                State::Fresh => self.first(rest),
                State::Line => self.line(rest, out),
                State::Words(len) => match rest.get(..len + b"\r\n".len()) {
                    Some(words) => self.words(words, ops, out),
                    None => Step::Wait,
                },
                State::Packet | State::Step => self.packet(rest, (ops, version), out),
                State::Open => Step::Wait,
            };
            match step {
                Step::Used(n) => consumed += n,
                Step::Last(n) => return LoginProgress { consumed: consumed + n, close: true },
                Step::Wait => return LoginProgress { consumed, close: false },
                Step::Close => return LoginProgress { consumed, close: true },
            }
        }
        LoginProgress { consumed, close: true }
    }

    fn first(&mut self, input: &[u8]) -> Step {
        let Some(&first) = input.first() else { return Step::Wait };
        match (self.dialects, first == REQUEST_MAGIC) {
            (Dialects::Only(Dialect::Ascii), true) | (Dialects::Only(Dialect::Binary), false) => {
                return Step::Close;
            }
            _ => {}
        }
        self.state = match self.users {
            None => State::Open,
            Some(_) if first == REQUEST_MAGIC => State::Packet,
            Some(_) => State::Line,
        };
        Step::Used(0)
    }

    fn line(&mut self, input: &[u8], out: &mut Vec<u8>) -> Step {
        let Some(end) = input.iter().position(|&b| b == b'\n') else {
            return if input.len() > LINE_MAX_BYTES { Step::Close } else { Step::Wait };
        };
        let line = input.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match announced(line) {
            Some(len) if len > WORDS_MAX_BYTES => out.extend(TOO_LONG),
            Some(len) => self.state = State::Words(len),
            None => out.extend(UNAUTHENTICATED),
        }
        Step::Used(end + 1)
    }

    fn words(&mut self, words: &[u8], ops: &OpCounters, out: &mut Vec<u8>) -> Step {
        let used = words.len();
        self.state = State::Line;
        out.extend(match words.strip_suffix(b"\r\n") {
            None => BAD_END,
            Some(words) => self.judge(words, ops),
        });
        Step::Used(used)
    }

    fn packet(
        &mut self,
        input: &[u8],
        (ops, version): (&OpCounters, &str),
        out: &mut Vec<u8>,
    ) -> Step {
        match input.first() {
            None => return Step::Wait,
            Some(&first) if first != REQUEST_MAGIC => return Step::Close,
            Some(_) => {}
        }
        let Some(request) = sasl::Request::read(input) else { return Step::Wait };
        let usual = |status: Status| (status, status.text());
        let (status, text) = match request.asks {
            Asks::Mechanisms => (Status::Success, sasl::MECHANISMS),
            Asks::Version => (Status::Success, version.as_bytes()),
            Asks::ToBegin => {
                self.state = State::Step;
                usual(Status::AuthContinues)
            }
            Asks::Overlong => usual(Status::Invalid),
            Asks::ToAuthenticate(words) | Asks::ToContinue(words) => {
                let has_begun = std::mem::replace(&mut self.state, State::Packet) == State::Step;
                let words =
                    words.filter(|_| has_begun || !matches!(request.asks, Asks::ToContinue(_)));
                let is_known = words.is_some_and(|words| self.knows(words));
                match self.admit(is_known, ops) {
                    true => (Status::Success, sasl::AUTHENTICATED),
                    false => usual(Status::NotAllowed),
                }
            }
            Asks::Refused(status) => usual(status),
        };
        request.answer(status, text, &mut Buffer::new(out, usize::MAX));
        match request.asks {
            Asks::Refused(_) => Step::Last(request.used),
            _ => Step::Used(request.used),
        }
    }

    /// Whether the words are known: memcached 1.6.18 has the first and the second, 1.6.45 what stands before the first
    /// blank and all behind it.
    fn judge(&mut self, words: &[u8], ops: &OpCounters) -> &'static [u8] {
        let pair = match *tokens(words) {
            [user, password, ..] => Some((user, password)),
            _ => None,
        };
        let mut split = words.splitn(2, |&b| b == b' ');
        let split = split.next().zip(split.next());
        let is_known = pair.iter().chain(&split).any(|words| self.knows(*words));
        if !is_known && pair.is_none() {
            return BAD_FORMAT;
        }
        if self.admit(is_known, ops) { STORED } else { FAILURE }
    }

    fn knows(&self, (user, password): Words<'_>) -> bool {
        self.users.as_ref().is_some_and(|users| users.knows(user, password))
    }

    /// Counts an attempt, and lets the client in if its words are known.
    fn admit(&mut self, is_known: bool, ops: &OpCounters) -> bool {
        ops.auth_cmds.inc();
        if is_known {
            // What follows must be of the dialect, too.
            (self.users, self.state) = (None, State::Fresh);
        } else {
            ops.auth_errors.inc();
        }
        is_known
    }
}

/// What to do next.
enum Step {
    /// So many bytes were used up: look again.
    Used(usize),
    /// So many bytes were used up, and there is nothing more to say.
    Last(usize),
    /// More must come first, or the conversation goes on.
    Wait,
    /// Nothing more to say.
    Close,
}

/// The length that a `set` announces. Key, flags and exptime are not looked at.
fn announced(line: &[u8]) -> Option<usize> {
    let [b"set", _, _, _, len, ..] = *tokens(line) else { return None };
    str::from_utf8(len).ok()?.parse::<u32>().ok()?.try_into().ok()
}

fn tokens(text: &[u8]) -> Vec<&[u8]> {
    text.split(|&b| b == b' ').filter(|t| !t.is_empty()).take(6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use memcache::binary::{Header, opcode};

    #[derive(Debug)]
    struct One;

    impl Users for One {
        fn knows(&self, user: &[u8], password: &[u8]) -> bool {
            let passwords: &[&[u8]] = match user {
                b"u" => &[b"p", b"a b", b" c"],
                b"v" => &[b""],
                _ => &[],
            };
            passwords.contains(&password)
        }
    }

    /// Feeds the input in pieces; gives replies, whether it is closed, and what is left over.
    fn attempt(input: &[u8], piece: usize) -> (String, bool, Vec<u8>) {
        let (ops, mut out) = (OpCounters::default(), Vec::new());
        let mut login = Login::new(Dialects::Only(Dialect::Ascii), Some(Arc::new(One)));
        let mut waiting = Vec::new();
        for piece in input.chunks(piece) {
            waiting.extend_from_slice(piece);
            if login.is_open() {
                continue;
            }
            let a = login.advance(&waiting, (&ops, "1.2"), &mut out);
            waiting.drain(..a.consumed);
            if a.close {
                return (String::from_utf8(out).unwrap(), true, waiting);
            }
        }
        (String::from_utf8(out).unwrap(), false, waiting)
    }

    #[test]
    fn replies_are_memcacheds_however_the_bytes_come() {
        for (input, reply, left) in [
            ("get a\r\n", "CLIENT_ERROR unauthenticated\r\n", ""),
            ("quit\r\nversion\n", &*"CLIENT_ERROR unauthenticated\r\n".repeat(2), ""),
            ("set x 0 0 3\r\nu p\r\nget a\r\n", "STORED\r\n", "get a\r\n"),
            ("set x y z 4 noreply\nu  p\r\n", "STORED\r\n", ""),
            ("set x 0 0 5\r\nu p q\r\n", "STORED\r\n", ""),
            ("set x 0 0 5\r\nu a b\r\n", "STORED\r\n", ""),
            ("set x 0 0 6\r\nu  a b\r\n", "CLIENT_ERROR authentication failure\r\n", ""),
            ("set x 0 0 4\r\nu  c\r\n", "STORED\r\n", ""),
            ("set x 0 0 3\r\nu c\r\n", "CLIENT_ERROR authentication failure\r\n", ""),
            ("set x 0 0 2\r\nv \r\n", "STORED\r\n", ""),
            ("set x 0 0 2\r\nu \r\n", "CLIENT_ERROR bad authentication token format\r\n", ""),
            ("set x 0 0 +3\r\nu p\r\n", "STORED\r\n", ""),
            ("set x 0 0 3\r\nu q\r\n", "CLIENT_ERROR authentication failure\r\n", ""),
            ("set x 0 0 1\r\nu\r\n", "CLIENT_ERROR bad authentication token format\r\n", ""),
            ("set x 0 0 3\r\nu p\nX", "CLIENT_ERROR bad command line termination\r\n", ""),
            ("set x 0 0\r\n", "CLIENT_ERROR unauthenticated\r\n", ""),
            ("set x 0 0 3abc\r\n", "CLIENT_ERROR unauthenticated\r\n", ""),
            ("set x 0 0 -1\r\n", "CLIENT_ERROR unauthenticated\r\n", ""),
            ("SET x 0 0 3\r\n", "CLIENT_ERROR unauthenticated\r\n", ""),
            ("set x 0 0 2049\r\n", "CLIENT_ERROR auth token too long\r\n", ""),
            (
                "set x 0 0 4294967295\r\nset x 0 0 3\r\nu p\r\n",
                "CLIENT_ERROR auth token too long\r\nSTORED\r\n",
                "",
            ),
            (
                "set x 0 0 3\r\nu q\r\nset x 0 0 3\r\nu p\r\n",
                "CLIENT_ERROR authentication failure\r\nSTORED\r\n",
                "",
            ),
            ("set x 0 0 3\r\nu p", "", "u p"),
        ] {
            for piece in [1, 2, 5, 100] {
                let expected = (reply.to_owned(), false, left.as_bytes().to_vec());
                assert_eq!(attempt(input.as_bytes(), piece), expected, "{input:?} by {piece}");
            }
        }
    }

    #[test]
    fn what_cannot_be_an_attempt_is_closed() {
        assert!(!attempt(&[b'x'; LINE_MAX_BYTES], 100).1);
        assert!(attempt(&[b'x'; LINE_MAX_BYTES + 1], 100).1);
        assert!(attempt(b"\x80", 1).1);
        assert!(attempt(b"set x 0 0 3\r\nu p\r\n\x80", 1).1);
    }

    #[test]
    fn attempts_are_counted() {
        let (ops, mut out) = (OpCounters::default(), Vec::new());
        let mut login = Login::new(Dialects::Auto, Some(Arc::new(One)));
        let input = b"get a\r\nset x 0 0 3\r\nu q\r\nset x 0 0 3\r\nu p\r\n";
        login.advance(input, (&ops, "1.2"), &mut out);
        assert_eq!((ops.auth_cmds.get(), ops.auth_errors.get()), (2, 1));
    }

    fn packet(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
        Header::request(opcode).packet(b"", key, value).unwrap()
    }

    /// The statuses and texts of packets.
    fn told(mut packets: &[u8]) -> Vec<(u16, String)> {
        let mut told = Vec::new();
        while let Some((header, body)) = Header::split(packets) {
            assert_eq!(header.magic, 0x81);
            let (text, rest) = body.split_at(header.body_bytes as usize);
            told.push((header.status, String::from_utf8(text.to_vec()).unwrap()));
            packets = rest;
        }
        assert_eq!(packets, b"");
        told
    }

    #[test]
    fn packets_of_sasl_let_in_who_is_known_however_the_bytes_come() {
        let auth = |message: &[u8]| packet(opcode::SASL_AUTH, b"PLAIN", message);
        let (right, wrong) = (auth(b"\0u\0a b"), auth(b"\0u\0q"));
        let list = packet(opcode::SASL_LIST, b"", b"");
        let (version, get) = (packet(opcode::VERSION, b"", b""), packet(opcode::GET, b"k", b""));
        let (begin, step) = (auth(b""), packet(opcode::SASL_STEP, b"PLAIN", b"\0u\0p"));
        let overlong = packet(opcode::SASL_AUTH, &[b'X'; 40], b"\0u\0p");
        let failure = (0x20, "Auth failure.".to_owned());
        let (continues, mechanisms) = ((0x21, String::new()), (0, "PLAIN".to_owned()));
        let invalid = (4, "Invalid arguments".to_owned());
        let authenticated = (0, "Authenticated".to_owned());
        for (input, replies, closes, counted) in [
            (
                [&list[..], &version, &right, &get].concat(),
                vec![(0, "PLAIN".to_owned()), (0, "1.2".to_owned()), authenticated.clone()],
                false,
                (1, 0),
            ),
            (
                [&wrong[..], &right, &get].concat(),
                vec![failure.clone(), authenticated.clone()],
                false,
                (2, 1),
            ),
            ([&get[..], &right].concat(), vec![failure.clone()], true, (0, 0)),
            (
                [&step[..], &begin, &list, &step, &get].concat(),
                vec![failure.clone(), continues.clone(), mechanisms, authenticated.clone()],
                false,
                (2, 1),
            ),
            // The step of a login that failed.
            (
                [&begin[..], &wrong, &step, &overlong, &right, &get].concat(),
                vec![continues, failure.clone(), failure.clone(), invalid, authenticated.clone()],
                false,
                (3, 2),
            ),
            ([&wrong[..], b"set x 0 0 3\r\nu p\r\n"].concat(), vec![failure], true, (1, 1)),
        ] {
            for piece in [1, 7, 24, 1_000] {
                let (ops, mut out, mut waiting) = (OpCounters::default(), Vec::new(), Vec::new());
                let mut login = Login::new(Dialects::Auto, Some(Arc::new(One)));
                let mut closed = false;
                for piece in input.chunks(piece) {
                    waiting.extend_from_slice(piece);
                    if !login.is_open() && !closed {
                        let a = login.advance(&waiting, (&ops, "1.2"), &mut out);
                        waiting.drain(..a.consumed);
                        closed = a.close;
                    }
                }
                assert_eq!((told(&out), closed), (replies.clone(), closes), "{input:?} by {piece}");
                assert_eq!((login.is_open(), closed || waiting == get), (!closes, true));
                assert_eq!((ops.auth_cmds.get(), ops.auth_errors.get()), counted, "{input:?}");
            }
        }
    }

    #[test]
    fn who_tries_very_often_at_a_time_is_let_in_or_closed() {
        let auth = |message: &[u8]| packet(opcode::SASL_AUTH, b"PLAIN", message);
        let (wrong, right) = (auth(b"\0u\0q"), auth(b"\0u\0p"));
        let most = ANSWERS_MAX_BYTES.div_ceil(24 + "Auth failure.".len());
        for (tries, lets_in) in [(most - 1, true), (most, false)] {
            let (ops, mut out) = (OpCounters::default(), Vec::new());
            let mut login = Login::new(Dialects::Auto, Some(Arc::new(One)));
            let input = [&wrong.repeat(tries)[..], &right, b"\x80"].concat();
            let a = login.advance(&input, (&ops, "1.2"), &mut out);
            assert_eq!((login.is_open(), a.close), (lets_in, !lets_in), "{tries}");
            assert_eq!(told(&out).len(), most);
        }
    }

    #[test]
    fn the_first_byte_must_be_of_the_dialect() {
        for (dialects, input, admitted) in [
            (Dialects::Auto, b"g", true),
            (Dialects::Auto, b"\x80", true),
            (Dialects::Only(Dialect::Ascii), b"g", true),
            (Dialects::Only(Dialect::Ascii), b"\x80", false),
            (Dialects::Only(Dialect::Binary), b"g", false),
            (Dialects::Only(Dialect::Binary), b"\x80", true),
        ] {
            let mut login = Login::new(dialects, None);
            let ops = OpCounters::default();
            assert!(!login.advance(b"", (&ops, "1.2"), &mut Vec::new()).close && !login.is_open());
            let a = login.advance(input, (&ops, "1.2"), &mut Vec::new());
            assert_eq!((login.is_open(), a.close), (admitted, !admitted), "{dialects:?} {input:?}");
            assert_eq!(a.consumed, 0);
        }
    }
}
