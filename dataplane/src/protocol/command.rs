//! What a client asks for, whatever dialect it spoke (D3).
//!
//! Parsers make these and nothing else; the executor takes these and nothing else. A command
//! borrows its key and value from the bytes that it was parsed from.

use super::admin::Admin;
use super::binary::{self, Action};
use super::meta;
use super::stats::Kind;
use memchr::memchr;

/// Longest key, in bytes (protocol.txt).
pub const KEY_MAX_BYTES: usize = 250;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`: any number of keys.
    Get {
        /// The keys as written, blank-separated. Each was checked by the parser.
        keys: Keys<'a>,
        /// Send CAS ids too (`gets`, `gats`).
        with_cas: bool,
        /// The new exptime of what is found (`gat`, `gats`), as in [`Store::exptime`].
        touch: Option<i64>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store {
        /// What to store, and when.
        what: Store<'a>,
        /// Send no answer.
        noreply: bool,
    },
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Send no answer.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Arith {
        /// What to add to what.
        what: Arith<'a>,
        /// Send no answer.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// As in [`Store::exptime`].
        exptime: i64,
        /// Send no answer.
        noreply: bool,
    },
    /// `flush_all`.
    Flush {
        /// When, as in [`Store::exptime`], but that 0 and less are now.
        delay: i64,
        /// Send no answer.
        noreply: bool,
    },
    /// `flush_prefix`: forgets the keys that begin with a prefix and the delimiter.
    FlushPrefix {
        /// The prefix, without the delimiter behind it.
        prefix: &'a [u8],
        /// Send no answer.
        noreply: bool,
    },
    /// `verbosity`: nothing follows from it but the answer.
    Verbosity {
        /// Send no answer.
        noreply: bool,
    },
    /// A meta command.
    Meta(meta::Request<'a>),
    /// `version`.
    Version,
    /// `stats`, with its arguments as they stood, or none.
    Stats(Option<&'a [u8]>),
    /// An administrator's command.
    Admin {
        /// What is asked.
        what: Admin<'a>,
        /// Send no answer.
        noreply: bool,
    },
    /// `quit`.
    Quit,
    /// A request of the binary protocol, which answers in another form than all these.
    Binary(binary::Request<'a>),
    /// Something that cannot be understood or carried out; the text says so to the client.
    Refused {
        /// What to answer.
        reply: Refusal,
        /// Send no answer.
        noreply: bool,
        /// A `set` of this key failed: what is stored under it must not survive.
        forget: Option<&'a [u8]>,
    },
}

impl<'a> Command<'a> {
    /// The key, if the command is about the item under one key and its whole answer, if any, is
    /// one of the lines of this protocol's own words, or a number.
    #[inline]
    pub fn answered_in_a_line(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Store { what: Store { key, .. }, .. }
            | Self::Arith { what: Arith { key, .. }, .. }
            | Self::Delete { key, .. }
            | Self::Touch { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Whether its sender waits for no answer, not even for a refusal. (A quiet command of another
    /// dialect is one that tells nothing but refusals.)
    pub fn is_noreply(&self) -> bool {
        match *self {
            Self::Store { noreply, .. }
            | Self::Delete { noreply, .. }
            | Self::Arith { noreply, .. }
            | Self::Touch { noreply, .. }
            | Self::Flush { noreply, .. }
            | Self::FlushPrefix { noreply, .. }
            | Self::Verbosity { noreply }
            | Self::Admin { noreply, .. }
            | Self::Refused { noreply, .. } => noreply,
            _ => false,
        }
    }

    /// The kind that its duration is counted under.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Get { .. } => Kind::Get,
            Self::Store { .. } => Kind::Store,
            Self::Delete { .. } => Kind::Delete,
            Self::Arith { .. } => Kind::Arith,
            Self::Touch { .. } => Kind::Touch,
            Self::Meta(request) => match request.verb {
                meta::Verb::Get => Kind::Get,
                meta::Verb::Set { .. } | meta::Verb::SetTooLarge | meta::Verb::SetUnread => {
                    Kind::Store
                }
                meta::Verb::Delete => Kind::Delete,
                meta::Verb::Arith { .. } => Kind::Arith,
                meta::Verb::Debug | meta::Verb::Noop => Kind::Other,
            },
            Self::Binary(request) => match request.action {
                Action::Get { send: binary::Send::Flags, .. } => Kind::Touch,
                Action::Get { .. } => Kind::Get,
                Action::Store(_) => Kind::Store,
                Action::Delete { .. } => Kind::Delete,
                Action::Arith(_) => Kind::Arith,
                _ => Kind::Other,
            },
            _ => Kind::Other,
        }
    }
}

/// When a storage command stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreMode {
    /// Always.
    Set,
    /// If there is nothing.
    Add,
    /// If there is something.
    Replace,
    /// Behind what there is.
    Append,
    /// Before what there is.
    Prepend,
}

impl StoreMode {
    /// The word of the command that stores in this mode.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
        }
    }
}

/// The arguments of a storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// When to store.
    pub mode: StoreMode,
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client's own, opaque. Not looked at by append and prepend.
    pub flags: u32,
    /// As the client gave it: 0 never, negative at once, up to 30 days relative, else absolute
    /// Unix time, in seconds. Not looked at by append and prepend.
    pub exptime: i64,
    /// Without the line end.
    pub value: &'a [u8],
    /// Only in place of the item with this CAS id.
    pub cas: Option<u64>,
    /// An item with a higher CAS id is replaced too, by this one marked as stale (`ms`, flag I).
    pub or_stale: bool,
    /// The key came in base64, and is told so to whoever asks for it (`ms`, flag b).
    pub base64_key: bool,
}

impl<'a> Store<'a> {
    /// A plain `set`.
    pub fn set(key: &'a [u8], flags: u32, exptime: i64, value: &'a [u8]) -> Self {
        Self {
            mode: StoreMode::Set,
            key,
            flags,
            exptime,
            value,
            cas: None,
            or_stale: false,
            base64_key: false,
        }
    }
}

/// The arguments of `incr` and `decr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arith<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// How much.
    pub delta: u64,
    /// Subtract, down to 0; otherwise add, modulo 2^64.
    pub decrement: bool,
    /// Only if the item has this CAS id.
    pub cas: Option<u64>,
    /// What to store when there is nothing, and its exptime.
    pub initial: Option<(u64, i64)>,
    /// A new exptime for what there is.
    pub exptime: Option<i64>,
}

/// Keys of a multi-key get, as they stood in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys<'a>(pub &'a [u8]);

impl<'a> Keys<'a> {
    /// The keys, in the order asked.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let (first, others) = rest.split_first()?;
            rest = others;
            Some(first)
        })
    }

    /// The first key and those behind it.
    pub fn split_first(self) -> Option<(&'a [u8], Self)> {
        let blanks = self.0.iter().take_while(|&&b| b == b' ').count();
        let text = self.0.get(blanks..)?;
        let (key, rest) = match memchr(b' ', text) {
            Some(end) => text.split_at_checked(end)?,
            None => (text, &b""[..]),
        };
        if key.is_empty() { None } else { Some((key, Self(rest))) }
    }
}

/// Why a request was refused, in memcached's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No such command.
    Error,
    /// A key above 250 bytes, or numbers that are none.
    BadLineFormat,
    /// The data block is not as long as announced.
    BadDataChunk,
    /// An item above the item size limit.
    TooLarge,
    /// No memory for the item.
    OutOfMemory,
    /// No memory for the rest of a request.
    OutOfMemoryReading,
    /// No memory for a reply.
    OutOfMemoryWriting,
    /// No memory for a number that has become longer.
    OutOfMemoryArith,
    /// `delete` with arguments that nobody gives any more.
    DeleteUsage,
    /// An exptime that is no number.
    InvalidExptime,
    /// An amount for `incr` or `decr` that is no number.
    InvalidDelta,
    /// A stored value for `incr` or `decr` that is no number.
    NonNumeric,
    /// `flush_all` is switched off.
    FlushNotAllowed,
    /// Too many prefixes were flushed within some seconds.
    TooManyPrefixes,
    /// An administrator's command over UDP.
    NotOverUdp,
    /// A reply of more datagrams than one request may ask for.
    ReplyTooLarge,
    /// A request of which only the first part came.
    RequestTooLarge,
    /// A command behind others in its datagram that have done all the work that one may cause.
    TooMuchWork,
    /// Flags of a meta command that mean nothing, or too much.
    Meta(meta::Fault),
    /// A reply larger than the source of the request may have. Short, so that it may be sent for
    /// the shortest `get` at the default factor.
    Amplified,
}

impl Refusal {
    /// The line to send, with its end.
    pub fn line(self) -> &'static [u8] {
        match self {
            Self::Error => b"ERROR\r\n",
            Self::BadLineFormat => b"CLIENT_ERROR bad command line format\r\n",
            Self::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Self::TooLarge => b"SERVER_ERROR object too large for cache\r\n",
            Self::OutOfMemory => b"SERVER_ERROR out of memory storing object\r\n",
            Self::OutOfMemoryReading => b"SERVER_ERROR out of memory reading request\r\n",
            Self::OutOfMemoryWriting => b"SERVER_ERROR out of memory writing get response\r\n",
            Self::OutOfMemoryArith => b"SERVER_ERROR out of memory\r\n",
            Self::InvalidExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Self::InvalidDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Self::NonNumeric => b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            Self::FlushNotAllowed => b"CLIENT_ERROR flush_all not allowed\r\n",
            Self::TooManyPrefixes => b"SERVER_ERROR too many prefixes flushed, try again\r\n",
            Self::DeleteUsage => {
                b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
            }
            Self::ReplyTooLarge => b"SERVER_ERROR reply too large for UDP, use TCP\r\n",
            Self::RequestTooLarge => b"SERVER_ERROR request too large for UDP, use TCP\r\n",
            Self::TooMuchWork => b"SERVER_ERROR too much work for one datagram, use TCP\r\n",
            Self::Meta(fault) => fault.line(),
            Self::Amplified => b"SERVER_ERROR too large, use TCP\r\n",
            Self::NotOverUdp => b"SERVER_ERROR command not available over UDP\r\n",
        }
    }
}
