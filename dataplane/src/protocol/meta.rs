//! The meta commands `mg`, `ms`, `md`, `ma`, `me` and `mn` (protocol.txt): two letters, a key, flags.
//!
//! In: a command line, and for `ms` its data block. Out of [`parse`]: a [`Request`], or its
//! refusal; out of [`execute`]: the reply. A request borrows its line and is read again for the
//! reply, which repeats flags in the order they came in. Flags mean what they mean to memcached
//! 1.6.18, also where a command has no use for one: it is checked, and nothing follows from it.

mod execute;
mod parse;

pub use execute::execute;
pub use parse::parse;

use super::command::{KEY_MAX_BYTES, Keys, StoreMode};
use arrayvec::ArrayVec;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// The words of a line that follow its key: blank-separated like keys.
type Words<'a> = Keys<'a>;

/// A meta command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Which one.
    pub verb: Verb<'a>,
    /// Its key as it was written, base64 or not.
    pub key: &'a [u8],
    /// Its flags.
    pub flags: Flags<'a>,
}

/// Which command, and what it has beside key and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb<'a> {
    /// `mg`.
    Get,
    /// `ms`.
    Set {
        /// Flag M.
        mode: StoreMode,
        /// Without the line end.
        value: &'a [u8],
    },
    /// `ms` of more than fits. What is stored under the key must not survive.
    SetTooLarge,
    /// `ms` that there was no memory to read. What is stored under the key must not survive.
    SetUnread,
    /// `md`.
    Delete,
    /// `ma`.
    Arith {
        /// Flag M: subtract.
        decrement: bool,
    },
    /// `me`.
    Debug,
    /// `mn`.
    Noop,
}

/// The flags of a command: those that change what it does, and all as they were written. Exptimes
/// are as the client gave them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags<'a> {
    words: Words<'a>,
    /// b: the key is in base64.
    pub base64_key: bool,
    /// q: no answer where it says nothing new.
    pub quiet: bool,
    /// v: with the value.
    pub value: bool,
    /// u: the look-up is not to be noticed.
    pub unnoticed: bool,
    /// I: mark as out of date; a store that is too late is taken as such.
    pub invalidate: bool,
    /// C: only the item with this CAS id.
    pub cas: Option<u64>,
    /// T: the new exptime.
    pub exptime: Option<i64>,
    /// N: make an item of this exptime when there is none.
    pub create: Option<i64>,
    /// R: win the item if less than this is left.
    pub recache: Option<i64>,
    /// F: the client's own 32 bits.
    pub client_flags: u32,
    /// J: the number to begin with.
    pub initial: u64,
    /// D: how much to add or subtract.
    pub delta: u64,
    mode: Option<u8>,
}

impl<'a> Flags<'a> {
    fn none() -> Self {
        Self {
            words: Keys(b""),
            base64_key: false,
            quiet: false,
            value: false,
            unnoticed: false,
            invalidate: false,
            cas: None,
            exptime: None,
            create: None,
            recache: None,
            client_flags: 0,
            initial: 0,
            delta: 1,
            mode: None,
        }
    }

    /// The letter of each flag and the whole flag, in order.
    fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        self.words.iter().filter_map(|word| Some((*word.first()?, word)))
    }

    /// Whether flag `a` stands before flag `b`, both being there.
    fn is_before(&self, a: u8, b: u8) -> bool {
        let at = |letter| self.iter().position(|(l, _)| l == letter);
        matches!((at(a), at(b)), (Some(a), Some(b)) if a < b)
    }
}

/// A key as it is stored.
type Key = ArrayVec<u8, KEY_MAX_BYTES>;

/// The key that a client means by `text`. `None` for what is no base64, though it should be, and
/// for what is too long.
fn decode(text: &[u8], base64: bool) -> Option<Key> {
    let mut key = Key::new();
    if base64 {
        let mut bytes = [0; KEY_MAX_BYTES];
        let len = BASE64_STANDARD.decode_slice(text, &mut bytes).ok()?;
        key.try_extend_from_slice(bytes.get(..len)?).ok()?;
    } else {
        key.try_extend_from_slice(text).ok()?;
    }
    Some(key)
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
