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
    FlushAll,
    FlushPrefix,
}

/// The server said something that is no answer to the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no answer to {1:?}")]
pub struct BadAnswer(String, Verb);

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

    /// Whether it sets an item's expiry time, in seconds, and must.
    pub fn sets_exptime(self) -> bool {
        matches!(self, Self::Gat | Self::Gats | Self::Touch)
    }

    /// Whether it takes many keys' items.
    pub fn is_flush(self) -> bool {
        matches!(self, Self::FlushAll | Self::FlushPrefix)
    }

    /// Whether it may give the item that it stores an expiry time.
    pub fn stores_exptime(self) -> bool {
        matches!(self, Self::Set | Self::Add | Self::Replace | Self::Cas | Self::Ms)
    }

    /// Appends the request. `call` is one that this verb can say, and `exptime` 0 where it says none.
    pub fn request(self, key: &str, call: &Call, exptime: u32, out: &mut Vec<u8>) {
        let name = self.name();
        let line = match (self, call) {
            (Self::FlushAll, _) => "flush_all".to_owned(),
            (Self::FlushPrefix, _) => {
                format!("flush_prefix {}", key.split_once(':').map_or(key, |(prefix, _)| prefix))
            }
            (Self::Gat | Self::Gats, _) => format!("{name} {exptime} {key}"),
            (Self::Touch, _) => format!("touch {key} {exptime}"),
            (Self::Mg, _) => format!("mg {key} v f c"),
            (Self::Ms, Call::Store { condition, value, flags }) => {
                let how = match condition {
                    Condition::None => "MS".to_owned(),
                    Condition::Absent => "ME".to_owned(),
                    Condition::Present => "MR".to_owned(),
                    Condition::Unchanged(id) => format!("C{id}"),
                };
                format!("ms {key} {} F{flags} T{exptime} {how}", value.len())
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
                format!("{name} {key} {flags} {exptime} {}{id}", value.len())
            }
            (_, Call::Join { value, .. }) => format!("{name} {key} 0 0 {}", value.len()),
            (_, Call::Get | Call::Delete { .. } | Call::Touch | Call::Flush) => {
                format!("{name} {key}")
            }
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
            // It may have cost the item that was there.
            (_, Reply::Refused(line)) if line.starts_with(b"SERVER_ERROR out of memory") => {
                Answer::Lost
            }
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
        verb.request("k:1", call, if verb.sets_exptime() { 60 } else { 0 }, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_in_both_dialects() {
        let store = |condition| Call::Store { condition, value: b"ab".to_vec(), flags: 7 };
        let unchanged = store(Condition::Unchanged(9));
        let join = Call::Join { front: true, value: b"x".to_vec() };
        let count = Call::Count { up: false, by: 3 };
        for (verb, call, text) in [
            (Verb::Gets, &Call::Get, "gets k:1\r\n"),
            (Verb::Gat, &Call::Get, "gat 60 k:1\r\n"),
            (Verb::Add, &store(Condition::Absent), "add k:1 7 0 2\r\nab\r\n"),
            (Verb::Cas, &unchanged, "cas k:1 7 0 2 9\r\nab\r\n"),
            (Verb::Prepend, &join, "prepend k:1 0 0 1\r\nx\r\n"),
            (Verb::Decr, &count, "decr k:1 3\r\n"),
            (Verb::Touch, &Call::Touch, "touch k:1 60\r\n"),
            (Verb::Mg, &Call::Get, "mg k:1 v f c\r\n"),
            (Verb::Ms, &store(Condition::Present), "ms k:1 2 F7 T0 MR\r\nab\r\n"),
            (Verb::Ms, &unchanged, "ms k:1 2 F7 T0 C9\r\nab\r\n"),
            (Verb::Ms, &join, "ms k:1 1 MP\r\nx\r\n"),
            (Verb::Md, &Call::Delete { only: Some(4) }, "md k:1 C4\r\n"),
            (Verb::Md, &Call::Delete { only: None }, "md k:1\r\n"),
            (Verb::FlushAll, &Call::Flush, "flush_all\r\n"),
            (Verb::FlushPrefix, &Call::Flush, "flush_prefix k\r\n"),
            (Verb::Ma, &count, "ma k:1 MD D3 v\r\n"),
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
            (Verb::FlushAll, b"OK\r\n", Answer::Done),
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
            (Verb::Set, b"17\r\n"),
            (Verb::Set, b"ERROR\r\n"),
        ] {
            assert!(verb.answer("k", text).is_err());
        }
    }
}
