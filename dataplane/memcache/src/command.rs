//! A client's request, and the form of its answer.
//!
//! In: bytes, by way of a parser. Out: a [`Command`], which borrows its key and value from those
//! bytes. Whatever dialect was spoken, the same [`Verb`] means the same; only the [`Form`] of the
//! answer differs. Fails: what makes no sense is a verb too, [`Verb::Refused`].

use super::admin::Admin;
use super::base64_key;
use super::binary::{Header, REQUEST_MAGIC};
use super::far_end::FarEnd;
use super::refusal::Refusal;
use base::small_bytes;
pub use base::{Arith, KEY_MAX_BYTES, Store, StoreMode};

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command<'a> {
    /// What is to be done.
    pub verb: Verb<'a>,
    /// How to answer.
    pub form: Form<'a>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb<'a> {
    /// `get`, `gets`, `gat`, `gats`; binary `get`, `getk`, `gat`, `gatk`, `touch`.
    Get(Get<'a>),
    /// `mg`.
    Fetch(Fetch<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`.
    Store(Store<'a>),
    /// `delete`, `md`.
    Delete(Delete<'a>),
    /// `incr`, `decr`, `ma`.
    Arith(Arith<'a>),
    /// `touch`.
    Touch(Touch<'a>),
    /// `flush_all`.
    Flush {
        /// When, as in [`Store::exptime`], but that 0 and less are now.
        delay: i64,
    },
    /// `flush_prefix`: forgets the keys that begin with a prefix and the delimiter.
    FlushPrefix {
        /// The prefix, without the delimiter behind it.
        prefix: &'a [u8],
    },
    /// `me`: the item itself.
    Debug {
        /// The key.
        key: &'a [u8],
    },
    /// `stats`, with its arguments as they stood, or none.
    Stats(Option<&'a [u8]>),
    /// An administrator's command.
    Admin(Admin<'a>),
    /// `rdma`: connects a queue pair. `None`: with words that make no sense.
    Rdma(Option<FarEnd>),
    /// `mn`, binary `noop`.
    Noop,
    /// `verbosity`: nothing follows from it but the answer.
    Verbosity,
    /// `version`.
    Version,
    /// `quit`.
    Quit,
    /// Something that cannot be understood or carried out.
    Refused(Refused<'a>),
}

impl Verb<'_> {
    /// Whether it is refused over UDP, which is not the place for it.
    #[inline]
    pub fn is_for_tcp(&self) -> bool {
        match self {
            Self::Stats(what) => what.is_some(),
            Self::Flush { .. } | Self::FlushPrefix { .. } | Self::Verbosity | Self::Admin(_) => {
                true
            }
            Self::Get(_) | Self::Fetch(_) | Self::Store(_) | Self::Delete(_) | Self::Arith(_) => {
                false
            }
            Self::Touch(_) | Self::Debug { .. } | Self::Rdma(_) | Self::Noop => false,
            Self::Version | Self::Quit | Self::Refused(_) => false,
        }
    }
}

/// How to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// A line in the words of the classic commands.
    Text {
        /// Send no answer, not even a refusal.
        noreply: bool,
    },
    /// Two letters and flags, in the order they came in.
    Meta(Echo<'a>),
    /// A packet.
    Binary {
        /// The request's header, for what goes back with the answer.
        header: Header,
        /// Send no answer if all goes well, or, of a get, if there is nothing.
        quiet: bool,
    },
}

/// What the answer to a meta command repeats of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo<'a> {
    /// The key as it was written, base64 or not.
    pub key: &'a [u8],
    /// The flags as they were written.
    pub words: Words<'a>,
    /// b: the key is in base64.
    pub base64_key: bool,
    /// q: no answer where it says nothing new.
    pub quiet: bool,
    /// v: with the value.
    pub value: bool,
    /// N: the exptime of what is made, as the client gave it.
    pub create: Option<i64>,
    /// g and p: what one-sided reads of the item need to know.
    pub reads: Reads,
}

/// What a client wants to know of an item to read it without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// g: its key's stag.
    pub stag: bool,
    /// p: its place in the memory file.
    pub place: bool,
}

impl<'a> Echo<'a> {
    /// The letter of each flag and the whole flag, in order.
    pub(super) fn flags(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        self.words.flags()
    }
}

impl<'a> Command<'a> {
    /// A command that is answered in a line of text, or not at all if `noreply`.
    #[inline]
    pub fn text(verb: Verb<'a>, noreply: bool) -> Self {
        Self { verb, form: Form::Text { noreply } }
    }

    /// Whether the command is about the item under one key and its whole answer, if any, is one of
    /// the lines of this protocol's own words, or a number.
    #[inline]
    pub fn is_answered_in_a_line(&self) -> bool {
        matches!(
            (self.form, self.verb),
            (Form::Text { .. }, Verb::Store(_) | Verb::Arith(_) | Verb::Delete(_) | Verb::Touch(_))
        )
    }

    /// Whether [`Self::is_answered_in_a_line`] may hold of a request with this first byte. Of `get`s, meta commands and
    /// packets it never does.
    #[inline]
    pub fn may_be_answered_in_a_line(first: u8) -> bool {
        !matches!(first, b'g' | b'm' | REQUEST_MAGIC)
    }

    /// Whether its sender waits for no answer, not even for a refusal. (A quiet command of another
    /// dialect is one that is answered with nothing but refusals.)
    pub fn is_noreply(&self) -> bool {
        matches!(self.form, Form::Text { noreply: true })
    }

    /// The keys that it names, as they were written. Of a refused one, the key to forget.
    pub fn keys(&self) -> Keys<'a> {
        const NONE: Keys<'_> = Keys::One(b"");
        if let Form::Meta(echo) = self.form {
            return Keys::One(echo.key);
        }
        match self.verb {
            Verb::Get(Get { keys, .. }) => keys,
            Verb::Fetch(Fetch { key, .. })
            | Verb::Store(Store { key, .. })
            | Verb::Arith(Arith { key, .. })
            | Verb::Delete(Delete { key, .. })
            | Verb::Touch(Touch { key, .. })
            | Verb::Debug { key } => Keys::One(key),
            Verb::Refused(Refused { forget, .. }) => Keys::One(forget.unwrap_or_default()),
            Verb::Flush { .. } | Verb::FlushPrefix { .. } | Verb::Stats(_) | Verb::Admin(_) => NONE,
            Verb::Rdma(_) | Verb::Noop | Verb::Verbosity | Verb::Version | Verb::Quit => NONE,
        }
    }

    /// The refusal of a value as too long, for lack of memory instead.
    pub fn unread(self) -> Self {
        match self.verb {
            Verb::Refused(refused @ Refused { why: Refusal::TooLarge, .. }) => {
                let why = Refusal::OutOfMemoryReading;
                Self { verb: Verb::Refused(Refused { why, ..refused }), ..self }
            }
            _ => self,
        }
    }

    /// The same about the key that base64 stands for. `None`: nothing is in base64.
    pub fn decoded(&self, key: &'a mut [u8; KEY_MAX_BYTES]) -> Option<Self> {
        let Form::Meta(echo @ Echo { base64_key: true, .. }) = self.form else { return None };
        // The parser has done the same: there is a key.
        let key = base64_key::decode(echo.key, key)?;
        let verb = match self.verb {
            Verb::Fetch(what) => Verb::Fetch(Fetch { key, ..what }),
            Verb::Store(what) => Verb::Store(Store { key, ..what }),
            Verb::Delete(what) => Verb::Delete(Delete { key, ..what }),
            Verb::Arith(what) => Verb::Arith(Arith { key, ..what }),
            Verb::Debug { .. } => Verb::Debug { key },
            Verb::Refused(what) => Verb::Refused(Refused { forget: Some(key), ..what }),
            // None of these has a key in base64.
            Verb::Get(_) | Verb::Touch(_) | Verb::Flush { .. } | Verb::FlushPrefix { .. } => {
                self.verb
            }
            Verb::Stats(_) | Verb::Admin(_) | Verb::Rdma(_) | Verb::Noop => self.verb,
            Verb::Verbosity | Verb::Version | Verb::Quit => self.verb,
        };
        Some(Self { verb, ..*self })
    }
}

/// Look-ups of any number of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Get<'a> {
    /// The keys. Each was checked by the parser.
    pub keys: Keys<'a>,
    /// Send CAS ids too.
    pub with_cas: bool,
    /// The new exptime of what is found, as in [`Store::exptime`].
    pub touch: Option<i64>,
}

/// A look-up that may renew what it finds, hand out the right to replace it, or leave an empty item
/// where there is none. Exptimes are as in [`Store::exptime`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// T: the new exptime.
    pub touch: Option<i64>,
    /// R: the first to come when it expires before this may fetch the value anew.
    pub recache: Option<i64>,
    /// The new exptime counts for that, not the one that was found.
    pub recache_touched: bool,
    /// N: when there is nothing, leave an empty item of this exptime.
    pub create: Option<i64>,
    /// E: the CAS id of such an item.
    pub own_cas: Option<u64>,
    /// u: the look-up is not to be noticed.
    pub unnoticed: bool,
    /// C: the client has the value with this CAS id, and is not sent it again.
    pub known: Option<u64>,
}

/// The arguments of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Only if the item has this CAS id.
    pub cas: Option<u64>,
    /// Do not delete: leave this.
    pub leave: Option<Leave>,
}

/// What a deletion leaves of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leave {
    /// T: its new exptime. Without one an item out of date keeps its own, and one without a value has none.
    pub exptime: Option<i64>,
    /// I: it is out of date.
    pub stale: bool,
    /// x: its value goes; these are the client's flags of what stays.
    pub empty: Option<u32>,
    /// E: its new CAS id.
    pub own_cas: Option<u64>,
}

/// A new exptime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// As in [`Store::exptime`].
    pub exptime: i64,
}

/// A request that its parser refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<'a> {
    /// What to answer.
    pub why: Refusal,
    /// A `set` of this key failed: what is stored under it must not survive.
    pub forget: Option<&'a [u8]>,
    /// It is unknown where the next request begins: close the connection.
    pub close: bool,
}

/// The keys of a look-up, in the order asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys<'a> {
    /// One, whatever its bytes are; none, if it is empty.
    One(&'a [u8]),
    /// As they stood in a line.
    Words(Words<'a>),
}

impl<'a> Keys<'a> {
    /// The keys.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let (first, others) = rest.split_first()?;
            rest = others;
            Some(first)
        })
    }

    /// The first key and those behind it.
    #[inline]
    pub fn split_first(self) -> Option<(&'a [u8], Self)> {
        match self {
            Self::One(b"") => None,
            Self::One(key) => Some((key, Self::One(b""))),
            Self::Words(words) => words.split_first().map(|(key, rest)| (key, Self::Words(rest))),
        }
    }

    /// Bytes in which they stand.
    pub fn bytes(self) -> usize {
        match self {
            Self::One(text) | Self::Words(Words(text)) => text.len(),
        }
    }
}

/// Blank-separated words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words<'a>(pub &'a [u8]);

impl<'a> Words<'a> {
    /// The words, in order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let (word, others) = rest.split_first()?;
            rest = others;
            Some(word)
        })
    }

    /// The first word and those behind it.
    #[inline]
    pub fn split_first(self) -> Option<(&'a [u8], Self)> {
        let (word, rest) = first_word(self.0);
        if word.is_empty() { None } else { Some((word, Self(rest))) }
    }

    /// Whether there are more words than `most`, a blank before the first, too.
    #[inline]
    pub(super) fn are_more_than(self, most: usize) -> bool {
        // Each takes two bytes, its blank among them.
        self.0.len() > 2 * most && self.iter().count() > most
    }

    /// The letter of each flag and the whole flag, in order.
    #[inline]
    pub(super) fn flags(self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        self.iter().filter_map(|word| Some((*word.first()?, word)))
    }
}

/// The first word of a line, without blanks before it, and all that follows.
#[inline]
pub(super) fn first_word(line: &[u8]) -> (&[u8], &[u8]) {
    let mut text = line;
    while let [b' ', behind @ ..] = text {
        text = behind;
    }
    match text {
        // A flag, most likely: not worth a search.
        [_] | [_, b' ', ..] => text.split_at(1),
        _ => text.split_at(small_bytes::len_until_blank(text)),
    }
}
