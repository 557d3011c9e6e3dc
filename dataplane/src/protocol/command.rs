//! What a client asks for, whatever dialect it spoke (D3).
//!
//! Parsers make these and nothing else; the executor takes these and nothing else. A command
//! borrows its key and value from the bytes that it was parsed from.

/// Longest key, in bytes (protocol.txt).
pub const KEY_MAX_BYTES: usize = 250;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get` and `gets`: any number of keys.
    Get {
        /// The keys as written, blank-separated. Each was checked by the parser.
        keys: Keys<'a>,
        /// Send CAS ids too (`gets`).
        with_cas: bool,
    },
    /// `set`.
    Set(Store<'a>),
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Send no answer.
        noreply: bool,
    },
    /// `version`.
    Version,
    /// `stats`, with its argument or none.
    Stats(Option<&'a [u8]>),
    /// `quit`.
    Quit,
    /// Something that cannot be understood or carried out; the text says so to the client.
    Refused {
        /// What to answer.
        reply: Refusal,
        /// Send no answer.
        noreply: bool,
        /// A storage command on this key failed: what is stored under it must not survive.
        forget: Option<&'a [u8]>,
    },
}

/// The arguments of a storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client's own, opaque.
    pub flags: u32,
    /// As the client gave it: 0 never, negative at once, up to 30 days relative, else absolute
    /// Unix time, in seconds.
    pub exptime: i64,
    /// Without the line end.
    pub value: &'a [u8],
    /// Send no answer.
    pub noreply: bool,
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
        let (key, rest) = match text.iter().position(|&b| b == b' ') {
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
    /// `delete` with arguments that nobody gives any more.
    DeleteUsage,
    /// An administrator's command over UDP.
    NotOverUdp,
    /// A reply of more datagrams than one request may ask for.
    ReplyTooLarge,
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
            Self::DeleteUsage => {
                b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
            }
            Self::ReplyTooLarge => b"SERVER_ERROR reply too large for UDP, use TCP\r\n",
            Self::Amplified => b"SERVER_ERROR too large, use TCP\r\n",
            Self::NotOverUdp => b"SERVER_ERROR command not available over UDP\r\n",
        }
    }
}
