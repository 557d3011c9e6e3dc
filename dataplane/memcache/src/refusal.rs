//! Why a request was refused, and the line that says so.
//!
//! In: a reason. Out: memcached's own words for it. Never fails.

/// Why a request was refused, in memcached's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No such command.
    Error,
    /// No such opcode, or a packet longer inside than outside.
    UnknownOpcode,
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
    /// `delete` with arguments that are no longer accepted.
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
    /// A reply of more datagrams than one request may get.
    ReplyTooLarge,
    /// A request of which only the first part came.
    RequestTooLarge,
    /// A command behind others in its datagram that have done all the work that one may cause.
    TooMuchWork,
    /// Flags of a meta command that mean nothing, or too much.
    Meta(Fault),
    /// A reply larger than the source of the request may have. Short, so that it may be sent for
    /// the shortest `get` at the default factor.
    Amplified,
}

impl Refusal {
    /// The line to send, with its end.
    pub fn line(self) -> &'static [u8] {
        match self {
            Self::Error | Self::UnknownOpcode => b"ERROR\r\n",
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

/// What is wrong with a meta command, in memcached's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A flag twice, or one that is no letter at all.
    DuplicateFlag,
    /// A flag that no command has.
    InvalidFlag,
    /// Any fault in the flags of `md` and `ma`.
    InvalidOrDuplicateFlag,
    /// More flags than there are, to `mg`.
    FlagsAreTooLong,
    /// More flags than there are, to others.
    FlagsTooLong,
    /// A number that is none.
    BadToken,
    /// No number behind J.
    BadInitial,
    /// No number behind D.
    BadDelta,
    /// No single letter behind M.
    ModeLength,
    /// A letter behind M that `ms` does not know.
    SetMode,
    /// A letter behind M that `ma` does not know.
    ArithMode,
    /// A key that is no base64.
    KeyEncoding,
    /// More than 31 bytes behind O.
    OpaqueTooLong,
}

impl Fault {
    /// The line to send, with its end.
    pub fn line(self) -> &'static [u8] {
        match self {
            Self::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Self::InvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
            Self::InvalidOrDuplicateFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Self::FlagsAreTooLong => b"CLIENT_ERROR options flags are too long\r\n",
            Self::FlagsTooLong => b"CLIENT_ERROR options flags too long\r\n",
            Self::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Self::BadInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Self::BadDelta => b"CLIENT_ERROR invalid numeric delta value\r\n",
            Self::ModeLength => b"CLIENT_ERROR incorrect length for M token\r\n",
            Self::SetMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Self::ArithMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Self::KeyEncoding => b"CLIENT_ERROR error decoding key\r\n",
            Self::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
        }
    }
}
