//! A call as text, and the answer read back: the classic ASCII commands and the meta commands.
//!
//! In: a verb, a key and a call; or the bytes of an answer. Out: a request; or the answer,
//! `None` while it is not complete. Fails: an answer that the verb does not have.

use super::model::{Answer, Call, Condition};
use clap::ValueEnum;
use gnomon_client::codec::reply::parse;
use gnomon_client::codec::request::text;
use gnomon_client::codec::{Protocol, Reply, Value};

/// The commands that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "memcached's own names")]
pub enum Verb {
    Get,
    Gets,
    Gat,
    Gats,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
    Delete,
    Incr,
    Decr,
    Touch,
    Mg,
    Ms,
    Md,
    Ma,
}

/// The server said something that is no answer to the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no answer to {1:?}")]
pub struct BadAnswer(String, Verb);

/// An expiry time far beyond any run.
const EXPTIME_SECONDS: u32 = 3600;

impl Verb {
    fn protocol(self) -> Protocol {
        match self {
            Self::Mg | Self::Ms | Self::Md | Self::Ma => Protocol::Meta,
            _ => Protocol::Ascii,
        }
    }

    /// The command's name on the line.
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Appends the request. `call` is one that this verb can say.
    pub fn request(self, key: &str, call: &Call, out: &mut Vec<u8>) {
        let name = self.name();
        let line = match (self, call) {
            (Self::Gat | Self::Gats, _) => format!("{name} {EXPTIME_SECONDS} {key}"),
            (Self::Touch, _) => format!("touch {key} {EXPTIME_SECONDS}"),
            (Self::Mg, _) => format!("mg {key} v f c"),
            (Self::Ms, Call::Store { condition, value, flags }) => {
                let how = match condition {
                    Condition::None => "MS".to_owned(),
                    Condition::Absent => "ME".to_owned(),
                    Condition::Present => "MR".to_owned(),
                    Condition::Unchanged(id) => format!("C{id}"),
                };
                format!("ms {key} {} F{flags} {how}", value.len())
            }
            (Self::Ms, Call::Join { front, value }) => {
                format!("ms {key} {} M{}", value.len(), if *front { 'P' } else { 'A' })
            }
            (Self::Md, Call::Delete { only: Some(id) }) => format!("md {key} C{id}"),
            (Self::Ma, Call::Count { up, by }) => {
                format!("ma {key} M{} D{by} v", if *up { 'I' } else { 'D' })
            }
            (_, Call::Count { by, .. }) => format!("{name} {key} {by}"),
            (_, Call::Store { condition, value, flags }) => {
                let id = match condition {
                    Condition::Unchanged(id) => format!(" {id}"),
                    _ => String::new(),
                };
                format!("{name} {key} {flags} 0 {}{id}", value.len())
            }
            (_, Call::Join { value, .. }) => format!("{name} {key} 0 0 {}", value.len()),
            (_, Call::Get | Call::Delete { .. } | Call::Touch) => format!("{name} {key}"),
        };
        let value = match call {
            Call::Store { value, .. } | Call::Join { value, .. } => Some(value.as_slice()),
            _ => None,
        };
        text(&line, value, out);
    }

    /// The answer that `come` begins with and what follows it, or `None` when more is to come.
    ///
    /// # Errors
    /// [`BadAnswer`].
    pub fn answer<'a>(
        self,
        key: &str,
        come: &'a [u8],
    ) -> Result<Option<(Answer, &'a [u8])>, BadAnswer> {
        let bad = || BadAnswer(String::from_utf8_lossy(come).into_owned(), self);
        let next = |come| parse(self.protocol(), come).map_err(|_| bad());
        let Some((reply, mut rest)) = next(come)? else { return Ok(None) };
        let answer = match (self, reply) {
            (Self::Ma, Reply::Value(Value { data, .. })) => {
                let number = str::from_utf8(data).ok().and_then(|n| n.parse().ok());
                Answer::Number(number.ok_or_else(bad)?)
            }
            (Self::Mg, Reply::Value(Value { flags: Some(flags), cas: Some(cas), data, .. })) => {
                Answer::Value { value: data.to_vec(), flags, cas: Some(cas) }
            }
            (
                Self::Get | Self::Gets | Self::Gat | Self::Gats,
                Reply::Value(Value { key: Some(name), flags: Some(flags), cas, data, .. }),
            ) if name == key.as_bytes() => {
                let Some((end, behind)) = next(rest)? else { return Ok(None) };
                rest = behind;
                if end != Reply::End {
                    return Err(bad());
                }
                Answer::Value { value: data.to_vec(), flags, cas }
            }
            (_, Reply::End | Reply::Miss | Reply::NotFound) => Answer::NotFound,
            (_, Reply::Stored | Reply::Deleted | Reply::Touched | Reply::Done) => Answer::Done,
            (_, Reply::NotStored) => Answer::NotStored,
            (_, Reply::Exists) => Answer::Exists,
            (_, Reply::Refused(line)) if line.ends_with(b"non-numeric value") => Answer::NotANumber,
            (Self::Incr | Self::Decr, Reply::Number(number)) => Answer::Number(number),
            _ => return Err(bad()),
        };
        Ok(Some((answer, rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(verb: Verb, call: &Call) -> String {
        let mut out = Vec::new();
        verb.request("k", call, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_in_both_dialects() {
        let store = |condition| Call::Store { condition, value: b"ab".to_vec(), flags: 7 };
        let unchanged = store(Condition::Unchanged(9));
        let join = Call::Join { front: true, value: b"x".to_vec() };
        let count = Call::Count { up: false, by: 3 };
        for (verb, call, text) in [
            (Verb::Gets, &Call::Get, "gets k\r\n"),
            (Verb::Gat, &Call::Get, "gat 3600 k\r\n"),
            (Verb::Add, &store(Condition::Absent), "add k 7 0 2\r\nab\r\n"),
            (Verb::Cas, &unchanged, "cas k 7 0 2 9\r\nab\r\n"),
            (Verb::Prepend, &join, "prepend k 0 0 1\r\nx\r\n"),
            (Verb::Decr, &count, "decr k 3\r\n"),
            (Verb::Touch, &Call::Touch, "touch k 3600\r\n"),
            (Verb::Mg, &Call::Get, "mg k v f c\r\n"),
            (Verb::Ms, &store(Condition::Present), "ms k 2 F7 MR\r\nab\r\n"),
            (Verb::Ms, &unchanged, "ms k 2 F7 C9\r\nab\r\n"),
            (Verb::Ms, &join, "ms k 1 MP\r\nx\r\n"),
            (Verb::Md, &Call::Delete { only: Some(4) }, "md k C4\r\n"),
            (Verb::Md, &Call::Delete { only: None }, "md k\r\n"),
            (Verb::Ma, &count, "ma k MD D3 v\r\n"),
        ] {
            assert_eq!(said(verb, call), text);
        }
    }

    #[test]
    fn answers_are_read_when_complete_and_not_before() {
        let value = |cas| Answer::Value { value: b"a\r\n".to_vec(), flags: 3, cas };
        for (verb, text, answer) in [
            (Verb::Get, &b"VALUE k 3 3\r\na\r\n\r\nEND\r\n"[..], value(None)),
            (Verb::Gets, b"VALUE k 3 3 12\r\na\r\n\r\nEND\r\n", value(Some(12))),
            (Verb::Mg, b"VA 3 f3 c12\r\na\r\n\r\n", value(Some(12))),
            (Verb::Ma, b"VA 2\r\n17\r\n", Answer::Number(17)),
            (Verb::Incr, b"17\r\n", Answer::Number(17)),
            (Verb::Get, b"END\r\n", Answer::NotFound),
            (Verb::Ms, b"HD\r\n", Answer::Done),
            (Verb::Cas, b"EXISTS\r\n", Answer::Exists),
            (
                Verb::Incr,
                b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
                Answer::NotANumber,
            ),
        ] {
            for n in 0..text.len() {
                assert_eq!(verb.answer("k", &text[..n]), Ok(None), "{verb:?} {n}");
            }
            assert_eq!(verb.answer("k", text), Ok(Some((answer, &[][..]))));
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for (verb, text) in [
            (Verb::Get, &b"VALUE other 3 1\r\na\r\nEND\r\n"[..]),
            (Verb::Get, b"VALUE k 3 1\r\nabEND\r\n.."),
            (Verb::Set, b"SERVER_ERROR out of memory storing object\r\n"),
            (Verb::Set, b"17\r\n"),
            (Verb::Set, b"ERROR\r\n"),
        ] {
            assert!(verb.answer("k", text).is_err());
        }
    }
}
