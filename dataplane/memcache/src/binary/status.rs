//! How a request went: the number in the response, and the text that comes with it.

use crate::refusal::Refusal;

/// How a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// As asked.
    Success = 0x00,
    /// No such item, or no such statistics.
    NotFound = 0x01,
    /// The item has another CAS id, or is there already.
    Exists = 0x02,
    /// Above the item limit.
    TooLarge = 0x03,
    /// A packet whose parts are not those of its command.
    Invalid = 0x04,
    /// The value could not be joined to another.
    NotStored = 0x05,
    /// The stored value is no number.
    NonNumeric = 0x06,
    /// Switched off here.
    NotAllowed = 0x20,
    /// The message that is to let a client in is awaited.
    AuthContinues = 0x21,
    /// No such command, or a packet longer inside than outside.
    UnknownCommand = 0x81,
    /// No memory.
    OutOfMemory = 0x82,
    /// Not on this transport.
    NotSupported = 0x83,
}

impl Status {
    /// What memcached says to it, to the letter.
    pub fn text(self) -> &'static [u8] {
        match self {
            Self::Success | Self::AuthContinues => b"",
            Self::NotFound => b"Not found",
            Self::Exists => b"Data exists for key.",
            Self::TooLarge => b"Too large.",
            Self::Invalid => b"Invalid arguments",
            Self::NotStored => b"Not stored.",
            Self::NonNumeric => b"Non-numeric server-side value for incr or decr",
            Self::NotAllowed => b"Auth failure.",
            Self::UnknownCommand => b"Unknown command",
            Self::OutOfMemory => b"Out of memory allocating item",
            Self::NotSupported => b"Not supported",
        }
    }
}

impl From<Refusal> for Status {
    fn from(why: Refusal) -> Self {
        match why {
            Refusal::ReplyTooLarge
            | Refusal::RequestTooLarge
            | Refusal::TooMuchWork
            | Refusal::Amplified
            | Refusal::TooLarge => Self::TooLarge,
            Refusal::NotOverUdp => Self::NotSupported,
            Refusal::FlushNotAllowed => Self::NotAllowed,
            Refusal::OutOfMemory
            | Refusal::OutOfMemoryReading
            | Refusal::OutOfMemoryWriting
            | Refusal::OutOfMemoryArith
            | Refusal::TooManyPrefixes => Self::OutOfMemory,
            Refusal::NonNumeric => Self::NonNumeric,
            Refusal::UnknownOpcode => Self::UnknownCommand,
            Refusal::Error
            | Refusal::BadLineFormat
            | Refusal::BadDataChunk
            | Refusal::DeleteUsage
            | Refusal::InvalidExptime
            | Refusal::InvalidDelta
            | Refusal::Meta(_) => Self::Invalid,
        }
    }
}
